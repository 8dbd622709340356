//! Transforms of images, with torchvision's names, meaning and random numbers: the same seed gives the same crops and
//! flips, and resized pixels are Pillow's.

use super::image::Image;
use super::resample;
use firebrand_core::{DType, Error, Result, Tensor, ops};
use std::str::FromStr;

/// One transform of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Resize the smaller edge to this length and keep the proportions.
    ResizeEdge(usize),
    /// Resize to height and width.
    Resize([usize; 2]),
    /// Center crop of this height and width; a smaller image gets a black border.
    CenterCrop([usize; 2]),
    /// Random crop of this height and width, after adding a black border of `padding` pixels.
    RandomCrop {
        /// Height and width.
        size: [usize; 2],
        /// Border on every side.
        padding: usize,
    },
    /// Random crop of 8 to 100 % of the area with an aspect ratio between 3:4 and 4:3, resized.
    RandomResizedCrop([usize; 2]),
    /// Flip horizontally with this probability.
    Flip(f64),
    /// Flip vertically with this probability.
    VerticalFlip(f64),
    /// Convert to gray by luminance, one channel.
    Grayscale,
    /// Subtract the mean and divide by the standard deviation of each channel; comes last.
    Normalize {
        /// Means, one for each channel or one for all.
        mean: Vec<f32>,
        /// Standard deviations.
        std: Vec<f32>,
    },
}

/// ImageNet's means and standard deviations, which most pretrained models expect.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

fn refused(message: String) -> Error {
    Error::argument("Transform", message)
}

/// `N`, or `HxW`.
fn size(text: &str) -> Option<[usize; 2]> {
    let one = |t: &str| t.parse::<usize>().ok().filter(|n| (1..=1 << 16).contains(n));
    match text.split_once('x') {
        Some((h, w)) => Some([one(h)?, one(w)?]),
        None => one(text).map(|n| [n, n]),
    }
}

/// `resize=256`, `resize=224x224`, `center_crop=224`, `random_crop=32:4`, `random_resized_crop=224`, `flip`, `flip=0.3`,
/// `vertical_flip`, `grayscale`, `normalize=imagenet`, `normalize=0.5/0.25`, `normalize=0.1,0.2,0.3/1,1,1`.
impl FromStr for Transform {
    type Err = Error;

    fn from_str(text: &str) -> Result<Transform> {
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        let sized = value.and_then(size);
        let probability = || value.map_or(Some(0.5), |v| v.parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p)));
        let made = match name {
            "resize" if value.is_some_and(|v| v.contains('x')) => sized.map(Transform::Resize),
            "resize" => sized.map(|[n, _]| Transform::ResizeEdge(n)),
            "center_crop" => sized.map(Transform::CenterCrop),
            "random_resized_crop" => sized.map(Transform::RandomResizedCrop),
            "random_crop" => value.and_then(|v| {
                let (s, padding) = v.split_once(':').unwrap_or((v, "0"));
                Some(Transform::RandomCrop { size: size(s)?, padding: padding.parse().ok().filter(|p| *p < 1 << 16)? })
            }),
            "flip" => probability().map(Transform::Flip),
            "vertical_flip" => probability().map(Transform::VerticalFlip),
            "grayscale" if value.is_none() => Some(Transform::Grayscale),
            "normalize" => value.and_then(normalize),
            "grayscale" => None,
            _ => {
                return Err(refused(format!(
                    "unknown transform `{name}`; there are resize, center_crop, random_crop, random_resized_crop, flip, \
                     vertical_flip, grayscale and normalize"
                )));
            }
        };
        made.ok_or_else(|| {
            let example = match name {
                "flip" | "vertical_flip" => format!("{name} or {name}=0.5"),
                "grayscale" => "grayscale, without a value".into(),
                "normalize" => {
                    "normalize=imagenet, or means and standard deviations: normalize=0.5,0.5,0.5/0.2,0.2,0.2".into()
                }
                "random_crop" => "random_crop=32, or random_crop=32:4 with a border of 4".into(),
                _ => format!("{name}=224 or {name}=224x320"),
            };
            refused(format!("expected {example}, found `{text}`"))
        })
    }
}

fn normalize(text: &str) -> Option<Transform> {
    if text == "imagenet" {
        return Some(Transform::Normalize { mean: IMAGENET.0.to_vec(), std: IMAGENET.1.to_vec() });
    }
    let list = |t: &str| {
        t.split(',').map(|v| v.trim().parse::<f32>().ok().filter(|v| v.is_finite())).collect::<Option<Vec<f32>>>()
    };
    let (mean, std) = text.split_once('/')?;
    let (mean, std) = (list(mean)?, list(std)?);
    (mean.len() == std.len() && std.iter().all(|s| *s > 0.0)).then_some(Transform::Normalize { mean, std })
}

/// Transforms in order, from an 8-bit image to floats.
///
/// ```
/// # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
/// use firebrand::{DType, Tensor};
/// use firebrand::data::Transforms;
///
/// let chain = Transforms::new(vec!["resize=8".parse()?, "center_crop=6".parse()?, "normalize=0.5/0.25".parse()?])?;
/// let image = chain.apply(&Tensor::zeros([3, 16, 24], DType::U8))?;
/// assert_eq!((image.shape(), image.to_vec::<f32>()[0]), (&[3, 6, 6][..], -2.0));
/// # Ok::<(), firebrand::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transforms {
    /// The transforms, in order of application.
    pub list: Vec<Transform>,
}

impl Transforms {
    /// These transforms. Normalizing works on floats, so it must come last.
    pub fn new(list: Vec<Transform>) -> Result<Transforms> {
        let at = list.iter().position(|t| matches!(t, Transform::Normalize { .. }));
        match at {
            Some(k) if k + 1 != list.len() => Err(refused("normalize must be the last transform".into())),
            _ => Ok(Transforms { list }),
        }
    }

    /// The same without randomness, for evaluation: no flips, center crops instead of random ones (after a resize by 8/7 where the
    /// random crop resizes).
    pub fn evaluation(&self) -> Transforms {
        let plain = |t: &Transform| match t {
            Transform::Flip(_) | Transform::VerticalFlip(_) => vec![],
            Transform::RandomCrop { size, .. } => vec![Transform::CenterCrop(*size)],
            Transform::RandomResizedCrop(size) => {
                let edge = size[0].max(size[1]) * 8 / 7;
                vec![Transform::ResizeEdge(edge), Transform::CenterCrop(*size)]
            }
            other => vec![other.clone()],
        };
        Transforms { list: self.list.iter().flat_map(plain).collect() }
    }

    /// Applies them to a u8 image `[channels, height, width]`; f32 from 0 to 1, or normalized.
    pub fn apply(&self, image: &Tensor) -> Result<Tensor> {
        let mut image = Image::from_tensor(image)?;
        for t in &self.list {
            image = t.pixels(image)?;
        }
        let floats = image.to_floats()?;
        match self.list.last() {
            Some(Transform::Normalize { mean, std }) => normalized(&floats, mean, std),
            _ => Ok(floats),
        }
    }
}

fn normalized(image: &Tensor, mean: &[f32], std: &[f32]) -> Result<Tensor> {
    let channels = image.shape()[0];
    if mean.len() != 1 && mean.len() != channels {
        let message = format!("normalize has {} means, the image has {channels} channels", mean.len());
        return Err(refused(message));
    }
    let column = |v: &[f32]| Tensor::try_from_vec(v.to_vec(), [v.len(), 1, 1]);
    ops::div(&ops::sub(image, &column(mean)?, 1.into())?, &column(std)?)
}

/// A random number from 0 to 1, as `torch.rand(1)` draws it.
fn chance() -> Result<f64> {
    Ok(f64::from(Tensor::rand([1], DType::F32).try_item::<f32>()?))
}

/// A random integer below `high`, as `torch.randint(0, high, (1,))` draws it.
fn below(high: usize) -> Result<isize> {
    let t = Tensor::empty([1], DType::I64);
    ops::random_from_(&t, 0, Some(high as i64))?;
    Ok(t.try_item::<i64>()? as isize)
}

/// A random number between two, as `torch.empty(1).uniform_(low, high)` draws it.
fn uniform(low: f64, high: f64) -> Result<Tensor> {
    let t = Tensor::empty([1], DType::F32);
    ops::uniform_(&t, low, high)?;
    Ok(t)
}

/// Half of the remainder, rounded as Python rounds: ties to even.
fn middle(from: usize, to: usize) -> isize {
    ((from as f64 - to as f64) / 2.0).round_ties_even() as isize
}

fn center_crop(image: &Image, [height, width]: [usize; 2]) -> Image {
    // A border that cannot be split evenly is wider below and to the right.
    let start = |from: usize, to: usize| if to > from { -((to - from) as isize / 2) } else { middle(from, to) };
    image.crop(start(image.height, height), start(image.width, width), height, width)
}

/// Corner and size of a random part, in torchvision's order of draws.
fn random_part(image: &Image) -> Result<(isize, isize, usize, usize)> {
    let area = (image.height * image.width) as f64;
    let ratio = [3f32 / 4.0, 4f32 / 3.0];
    for _ in 0..10 {
        let target = area * f64::from(uniform(0.08, 1.0)?.try_item::<f32>()?);
        let logarithm = uniform(f64::from(ratio[0].ln()), f64::from(ratio[1].ln()))?;
        let aspect = f64::from(logarithm.try_exp()?.try_item::<f32>()?);
        let width = (target * aspect).sqrt().round_ties_even() as usize;
        let height = (target / aspect).sqrt().round_ties_even() as usize;
        if (1..=image.width).contains(&width) && (1..=image.height).contains(&height) {
            let top = below(image.height - height + 1)?;
            return Ok((top, below(image.width - width + 1)?, height, width));
        }
    }
    let (w, h) = (image.width as f64, image.height as f64);
    let (width, height) = match w / h {
        r if r < 0.75 => (image.width, (w / 0.75).round_ties_even() as usize),
        r if r > 4.0 / 3.0 => ((h * (4.0 / 3.0)).round_ties_even() as usize, image.height),
        _ => (image.width, image.height),
    };
    Ok((((image.height - height) / 2) as isize, ((image.width - width) / 2) as isize, height, width))
}

impl Transform {
    /// Applies it to the pixels; normalization happens later, on floats.
    fn pixels(&self, image: Image) -> Result<Image> {
        Ok(match self {
            Transform::ResizeEdge(edge) => {
                let (short, long) = (image.height.min(image.width), image.height.max(image.width));
                let long = edge * long / short;
                // As much as a file of this size could reasonably ask for.
                if long > 1 << 20 {
                    let message =
                        format!("an image of {} by {} pixels is too narrow to resize", image.height, image.width);
                    return Err(refused(message));
                }
                match image.width <= image.height {
                    true => resample::resize(&image, long, *edge),
                    false => resample::resize(&image, *edge, long),
                }
            }
            Transform::Resize([height, width]) => resample::resize(&image, *height, *width),
            Transform::CenterCrop(size) => center_crop(&image, *size),
            Transform::RandomCrop { size: [height, width], padding } => {
                let (full_height, full_width) = (image.height + 2 * padding, image.width + 2 * padding);
                if full_height < *height || full_width < *width {
                    let message = format!(
                        "random_crop of {height} by {width} needs a larger image than {full_height} by {full_width}; resize first, or add a border"
                    );
                    return Err(refused(message));
                }
                let border = *padding as isize;
                if (full_height, full_width) == (*height, *width) {
                    return Ok(image.crop(-border, -border, *height, *width));
                }
                let top = below(full_height - height + 1)?;
                let left = below(full_width - width + 1)?;
                image.crop(top - border, left - border, *height, *width)
            }
            Transform::RandomResizedCrop([height, width]) => {
                let (top, left, h, w) = random_part(&image)?;
                resample::resize(&image.crop(top, left, h, w), *height, *width)
            }
            Transform::Flip(p) => {
                if chance()? < *p {
                    image.flipped()
                } else {
                    image
                }
            }
            Transform::VerticalFlip(p) => {
                if chance()? < *p {
                    image.upside_down()
                } else {
                    image
                }
            }
            Transform::Grayscale => image.with_channels(1)?,
            Transform::Normalize { .. } => image,
        })
    }
}
