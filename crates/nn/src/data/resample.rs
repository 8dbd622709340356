//! Resizing of 8-bit images, bilinear with antialiasing, exactly as Pillow 11 computes it: two passes (horizontal,
//! then vertical) in fixed point, each rounded to 8 bits. torchvision's `Resize` of an image is this. Pillow 13 takes the
//! passes in the other order for some shapes, which changes pixels by at most 1.

use super::image::Image;

/// Fractional bits of a weight: 8 bits of pixel and two of headroom are left.
const PRECISION: u32 = 32 - 8 - 2;

/// The source pixels of one output pixel: the first, and their weights.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// For every output pixel along one dimension, the source pixels that contribute to it.
fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    // Shrinking averages over all the pixels that are covered.
    let filter_scale = scale.max(1.0);
    let support = filter_scale;
    (0..to)
        .map(|k| {
            let center = (k as f64 + 0.5) * scale;
            let first = (center - support + 0.5).max(0.0) as usize;
            let last = ((center + support + 0.5) as usize).min(from);
            let triangle = |x: f64| (1.0 - x.abs()).max(0.0);
            let raw: Vec<f64> =
                (first..last).map(|x| triangle((x as f64 - center + 0.5) * (1.0 / filter_scale))).collect();
            let total: f64 = raw.iter().sum();
            let fixed = |w: f64| {
                let w = if total == 0.0 { w } else { w / total };
                (0.5 + w * f64::from(1u32 << PRECISION)) as i32
            };
            Taps { first, weights: raw.into_iter().map(fixed).collect() }
        })
        .collect()
}

fn weighted(taps: &Taps, pixel: impl Fn(usize) -> u8) -> u8 {
    let start = 1i32 << (PRECISION - 1);
    let sum = taps.weights.iter().enumerate().fold(start, |sum, (k, w)| sum + w * i32::from(pixel(taps.first + k)));
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// The image with another size.
pub(super) fn resize(image: &Image, height: usize, width: usize) -> Image {
    let mut image = image.clone();
    if width != image.width {
        let taps = taps(image.width, width);
        let rows = image.pixels.chunks_exact(image.width);
        let pixels = rows.flat_map(|row| taps.iter().map(move |t| weighted(t, |x| row[x]))).collect();
        image = Image { width, pixels, ..image };
    }
    if height != image.height {
        let taps = taps(image.height, height);
        let mut pixels = Vec::with_capacity(image.channels * height * width);
        for plane in image.pixels.chunks_exact(image.height * width) {
            for t in &taps {
                pixels.extend((0..width).map(|x| weighted(t, |y| plane[y * width + x])));
            }
        }
        image = Image { height, pixels, ..image };
    }
    image
}
