//! JPEG images: gray or color, baseline or progressive, as their files have them (orientation in EXIF is not applied, as
//! torchvision does not). Pixels are those of libjpeg up to rounding.

use firebrand_core::{Error, Result, Tensor};
use firebrand_io::Budget;
use jpeg_decoder::{Decoder, PixelFormat};
use std::path::Path;

fn refused(message: impl std::fmt::Display) -> Error {
    Error::argument("read_jpeg", message.to_string())
}

/// Reads a JPEG image as u8 `[channels, height, width]`, with one channel or three.
pub fn read_jpeg(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), parse_jpeg)
}

/// The content of a JPEG file as u8 `[channels, height, width]`.
pub fn parse_jpeg(bytes: &[u8]) -> Result<Tensor> {
    parse_jpeg_within(bytes, &super::budget(bytes))
}

/// As [`parse_jpeg`], within the caller's budget: the header's claims are checked against it before anything is decoded.
pub fn parse_jpeg_within(bytes: &[u8], budget: &Budget) -> Result<Tensor> {
    let mut decoder = Decoder::new(bytes);
    decoder.read_info().map_err(refused)?;
    let info = decoder.info().ok_or_else(|| refused("the image has no frame"))?;
    let channels = match info.pixel_format {
        PixelFormat::L8 => 1,
        PixelFormat::RGB24 => 3,
        PixelFormat::CMYK32 => return Err(refused("expected gray or RGB, found CMYK; convert the image to RGB")),
        PixelFormat::L16 => {
            return Err(refused("expected 8 bits per channel, found more; convert the image to 8 bits"));
        }
    };
    let (height, width) = (usize::from(info.height), usize::from(info.width));
    // Coefficients (2 bytes) and planes, whose sizes are rounded up to whole blocks of up to 32; pixels and two tensors of them.
    let rounded = |n: usize| n.div_ceil(32) as u64 * 32;
    let values = rounded(height) * rounded(width) * channels as u64;
    budget.take(values * 6).map_err(refused)?;
    let pixels = decoder.decode().map_err(refused)?;
    if pixels.len() != height * width * channels {
        return Err(refused(format!("expected {height} by {width} pixels, found {} bytes", pixels.len())));
    }
    let image = Tensor::try_from_vec(pixels, [height, width, channels])?;
    image.try_permute([2, 0, 1])?.try_contiguous()
}
