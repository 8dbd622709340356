//! The bundled dataset: 1,797 handwritten digits of 8 by 8 pixels (UCI Optical Recognition of Handwritten Digits).
//!
//! See `data/README.md` in this crate for the source and its license. The file is ordered by writer, so samples are
//! shuffled once, always in the same way, before they are split: 1,437 train, 360 test.

use firebrand_core::Tensor;
use firebrand_core::random::Generator;

static DATA: &[u8] = include_bytes!("../data/digits.bin");
const HEADER: usize = 24;
const PIXELS: usize = 64;

/// Number of samples.
pub const SAMPLES: usize = 1797;
/// Number of training samples.
pub const TRAIN: usize = 1437;
/// Number of classes.
pub const CLASSES: usize = 10;

/// Images and labels.
#[derive(Debug)]
pub struct Digits {
    /// f32, `[n, 64]`, from 0 to 1.
    pub images: Tensor,
    /// i64, `[n]`, from 0 to 9.
    pub labels: Tensor,
}

/// The order of samples: what `randperm` gives for seed 0.
fn order() -> Vec<usize> {
    let mut generator = Generator::new(0);
    let mut order: Vec<usize> = (0..SAMPLES).collect();
    for i in 0..SAMPLES - 1 {
        order.swap(i, i + generator.random() as usize % (SAMPLES - i));
    }
    order
}

fn part(range: std::ops::Range<usize>) -> Digits {
    let (pixels, labels) = DATA[HEADER..].split_at(SAMPLES * PIXELS);
    let order = &order()[range];
    let images: Vec<f32> =
        order.iter().flat_map(|i| &pixels[i * PIXELS..][..PIXELS]).map(|&p| f32::from(p) / 16.0).collect();
    let labels: Vec<i64> = order.iter().map(|&i| i64::from(labels[i])).collect();
    Digits { images: Tensor::from_slice(&images, [order.len(), PIXELS]), labels: Tensor::new(&labels) }
}

/// The training samples.
pub fn train() -> Digits {
    part(0..TRAIN)
}

/// The test samples.
pub fn test() -> Digits {
    part(TRAIN..SAMPLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_whole() {
        assert_eq!(&DATA[..8], b"FBDIGIT1");
        assert_eq!(DATA.len(), HEADER + SAMPLES * (PIXELS + 1));
        let (a, b) = (train(), test());
        assert_eq!((a.images.shape(), b.labels.shape()), (&[TRAIN, 64][..], &[SAMPLES - TRAIN][..]));
        let mut seen = [0; CLASSES];
        a.labels.to_vec::<i64>().iter().for_each(|&l| seen[l as usize] += 1);
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
    }
}
