//! The embedded data set: 1,797 handwritten digits of 8 by 8 pixels (UCI Optical Recognition of Handwritten Digits).
//!
//! See `data/README.md` beside this crate for the source and its licence. The split is fixed: the first 1,437 samples
//! train, the last 360 test.

use firebrand_core::Tensor;

static DATA: &[u8] = include_bytes!("../data/digits.bin");
const HEADER: usize = 24;
const PIXELS: usize = 64;

/// How many samples there are.
pub const SAMPLES: usize = 1797;
/// How many of them, from the start, are for training.
pub const TRAIN: usize = 1437;
/// How many classes there are.
pub const CLASSES: usize = 10;

/// Images and labels.
pub struct Digits {
    /// f32, `[n, 64]`, from 0 to 1.
    pub images: Tensor,
    /// i64, `[n]`, from 0 to 9.
    pub labels: Tensor,
}

fn part(range: std::ops::Range<usize>) -> Digits {
    let pixels = &DATA[HEADER + range.start * PIXELS..HEADER + range.end * PIXELS];
    let labels = &DATA[HEADER + SAMPLES * PIXELS..][range.clone()];
    let images: Vec<f32> = pixels.iter().map(|&p| f32::from(p) / 16.0).collect();
    let labels: Vec<i64> = labels.iter().map(|&l| i64::from(l)).collect();
    Digits { images: Tensor::from_slice(&images, [range.len(), PIXELS]), labels: Tensor::new(&labels) }
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
