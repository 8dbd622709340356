//! PNG images: grey or colour, 8 bits a channel after palettes and 16-bit values are brought to that; an alpha channel is
//! left out, since models are fed colours.

use firebrand_core::{Error, Result, Tensor};
use png::{ColorType, Decoder, Limits, Transformations};
use std::path::Path;

/// More pixels than this are refused, whatever a header claims.
const MOST_BYTES: usize = 1 << 30;

fn refused(message: impl std::fmt::Display) -> Error {
    Error::argument("read_png", message.to_string())
}

/// Reads a PNG image as u8 `[channels, height, width]`, with one channel or three.
pub fn read_png(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), parse_png)
}

/// The content of a PNG file as u8 `[channels, height, width]`.
pub fn parse_png(bytes: &[u8]) -> Result<Tensor> {
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(bytes), Limits { bytes: MOST_BYTES });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(refused)?;
    let size = reader.output_buffer_size().filter(|&n| n <= MOST_BYTES);
    let mut pixels = vec![0; size.ok_or_else(|| refused("the image is too large"))?];
    let frame = reader.next_frame(&mut pixels).map_err(refused)?;
    pixels.truncate(frame.buffer_size());
    let (found, channels) = match frame.color_type {
        ColorType::Grayscale => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgb => (3, 3),
        ColorType::Rgba => (4, 3),
        ColorType::Indexed => return Err(refused("the palette of the image is missing")),
    };
    let image = Tensor::try_from_vec(pixels, [frame.height as usize, frame.width as usize, found])?;
    image.try_narrow(2, 0, channels)?.try_permute(&[2, 0, 1])?.try_contiguous()
}
