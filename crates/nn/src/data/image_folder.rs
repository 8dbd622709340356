//! Images in folders: `root/class/image.png`. Classes are numbered in the order of their names.

use super::image::Image;
use super::{Dataset, Transforms, read_jpeg, read_png, read_pnm};
use firebrand_core::{Error, Result, Tensor};
use std::path::{Path, PathBuf};

/// JPEG, PNG, PGM and PPM images by class: an f32 image `[channels, height, width]`, from 0 to 1 unless transforms normalize it, and
/// an i64 class index.
#[derive(Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    samples: Vec<(PathBuf, i64)>,
    channels: Option<usize>,
    transforms: Transforms,
}

/// Reads an image, if the name is that of one.
type Reader = fn(&Path) -> Result<Tensor>;

fn reader(path: &Path) -> Option<Reader> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "jpg" | "jpeg" => Some(|path| read_jpeg(path)),
        "png" => Some(|path| read_png(path)),
        "pgm" | "ppm" => Some(|path| read_pnm(path)),
        _ => None,
    }
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let refused = |e: std::io::Error| Error::user(format!("{}: {e}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(refused)?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>().map_err(refused)?;
    paths.sort();
    Ok(paths)
}

impl ImageFolder {
    /// All `.jpg`, `.jpeg`, `.png`, `.pgm` and `.ppm` files in the folders below `root`.
    pub fn new(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let mut found =
            ImageFolder { classes: Vec::new(), samples: Vec::new(), channels: None, transforms: Transforms::default() };
        for folder in sorted(root)?.into_iter().filter(|p| p.is_dir()) {
            let class = found.classes.len() as i64;
            found.classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
            let images = sorted(&folder)?.into_iter().filter(|p| reader(p).is_some());
            found.samples.extend(images.map(|p| (p, class)));
        }
        if found.samples.is_empty() {
            let message =
                format!("{}: expected folders of .jpg, .png, .pgm or .ppm images, found none", root.display());
            return Err(Error::argument("ImageFolder", message));
        }
        Ok(found)
    }

    /// Converts images to one channel (gray) or three; by default they keep the channels of their files.
    pub fn with_channels(self, channels: usize) -> ImageFolder {
        ImageFolder { channels: Some(channels), ..self }
    }

    /// With transforms, from 8-bit pixels to floats.
    pub fn with_transforms(self, transforms: Transforms) -> ImageFolder {
        ImageFolder { transforms, ..self }
    }

    /// The file of a sample.
    pub fn path(&self, index: usize) -> &Path {
        &self.samples[index].0
    }

    /// The class index of a sample.
    pub fn class(&self, index: usize) -> i64 {
        self.samples[index].1
    }

    /// The u8 pixels `[channels, height, width]` of a sample, before transforms.
    pub fn pixels(&self, index: usize) -> Result<Tensor> {
        let path = self.path(index);
        let read = reader(path).expect("only names of images were kept");
        let pixels = read(path)?;
        let in_file = |e| Error::user(format!("{}: {e}", firebrand_io::plain(&path.display().to_string())));
        match self.channels {
            Some(n) if pixels.shape().first() != Some(&n) => {
                let image = Image::from_tensor(&pixels).and_then(|i| i.with_channels(n)).map_err(in_file)?;
                Tensor::try_from_vec(image.pixels, [n, image.height, image.width])
            }
            _ => Ok(pixels),
        }
    }

    /// Names of the classes, by index.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

impl Dataset for ImageFolder {
    type Sample = [Tensor; 2];
    fn len(&self) -> usize {
        self.samples.len()
    }
    fn get(&self, index: usize) -> Result<[Tensor; 2]> {
        let image = self.transforms.apply(&self.pixels(index)?)?;
        Ok([image, Tensor::scalar(self.class(index))])
    }
}
