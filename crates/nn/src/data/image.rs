//! An 8-bit image in memory, channel by channel, and the operations on it before it becomes a float tensor.

use firebrand_core::{DType, Error, Result, Tensor};

/// An image with 8 bits per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Channel after channel, row after row.
    pub(super) pixels: Vec<u8>,
}

impl Image {
    /// From a u8 tensor `[channels, height, width]`.
    pub(super) fn from_tensor(t: &Tensor) -> Result<Image> {
        match (t.dtype(), t.shape()) {
            (DType::U8, &[channels, height, width]) if channels * height * width > 0 => {
                Ok(Image { channels, height, width, pixels: t.try_to_vec::<u8>()? })
            }
            (dtype, shape) => {
                let message = format!("expected a u8 image [channels, height, width], found {dtype} {shape:?}");
                Err(Error::argument("Image", message))
            }
        }
    }

    /// As f32 `[channels, height, width]`, from 0 to 1.
    pub(super) fn to_floats(&self) -> Result<Tensor> {
        let floats: Vec<f32> = self.pixels.iter().map(|&p| f32::from(p) / 255.0).collect();
        Tensor::try_from_vec(floats, [self.channels, self.height, self.width])
    }

    /// With this many channels: gray by Pillow's weights, or gray repeated.
    pub(super) fn with_channels(self, channels: usize) -> Result<Image> {
        let area = self.height * self.width;
        let pixels = match (self.channels, channels) {
            (a, b) if a == b => return Ok(self),
            (1, n) => self.pixels.repeat(n),
            (3, 1) => {
                let at = |c: usize, k: usize| u32::from(self.pixels[c * area + k]);
                let gray = |k| ((at(0, k) * 19595 + at(1, k) * 38470 + at(2, k) * 7471 + 0x8000) >> 16) as u8;
                (0..area).map(gray).collect()
            }
            (from, to) => {
                let message = format!("an image of {from} channels cannot be converted to {to}; expected 1 or 3");
                return Err(Error::argument("Image", message));
            }
        };
        Ok(Image { channels, pixels, ..self })
    }

    /// The rectangle at this corner; pixels outside the image are black.
    pub(super) fn crop(&self, top: isize, left: isize, height: usize, width: usize) -> Image {
        let inside = |v: isize, size: usize| usize::try_from(v).ok().filter(|v| *v < size);
        let mut pixels = Vec::with_capacity(self.channels * height * width);
        for plane in self.pixels.chunks_exact(self.height * self.width) {
            for y in 0..height {
                let row = inside(top + y as isize, self.height).map(|y| &plane[y * self.width..][..self.width]);
                let at = |x: usize| row.and_then(|r| Some(r[inside(left + x as isize, self.width)?])).unwrap_or(0);
                pixels.extend((0..width).map(at));
            }
        }
        Image { height, width, pixels, ..*self }
    }

    /// Flipped horizontally.
    pub(super) fn flipped(mut self) -> Image {
        self.pixels.chunks_exact_mut(self.width).for_each(<[u8]>::reverse);
        self
    }

    /// Flipped vertically.
    pub(super) fn upside_down(&self) -> Image {
        let planes = self.pixels.chunks_exact(self.height * self.width);
        let pixels = planes.flat_map(|p| p.chunks_exact(self.width).rev().flatten().copied()).collect();
        Image { pixels, ..*self }
    }
}
