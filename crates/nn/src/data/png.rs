//! PNG images: gray or color, converted to 8 bits per channel; an alpha channel is
//! dropped.

use firebrand_core::{Error, Result, Tensor};
use firebrand_io::Budget;
use png::{BitDepth, ColorType, Decoder, Encoder, Limits, Transformations};
use std::path::Path;

fn refused(message: impl std::fmt::Display) -> Error {
    Error::argument("read_png", message.to_string())
}

/// Reads a PNG image as u8 `[channels, height, width]`, with one channel or three.
pub fn read_png(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), parse_png)
}

/// The content of a PNG file as u8 `[channels, height, width]`.
pub fn parse_png(bytes: &[u8]) -> Result<Tensor> {
    parse_png_within(bytes, &super::budget(bytes))
}

/// Like [`parse_png`], within the caller's budget: the header's claims are checked against it before anything is allocated.
pub fn parse_png_within(bytes: &[u8], budget: &Budget) -> Result<Tensor> {
    let most = usize::try_from(budget.limit()).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(bytes), Limits { bytes: most });
    decoder.set_transformations(Transformations::normalize_to_color8());
    // Texts, profiles and times are nothing to a model.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(refused)?;
    check_palette(reader.info())?;
    let size = reader.output_buffer_size().ok_or_else(|| refused("the image is too large"))?;
    // Pixels, the tensor of them, and the tensor with channels first.
    budget.take((size as u64).saturating_mul(3)).map_err(refused)?;
    let mut pixels = vec![0; size];
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
    image.try_narrow(2, 0, channels)?.try_permute([2, 0, 1])?.try_contiguous()
}

/// A PNG file of these pixels, channels last, of height, width and number of channels (1 or 3).
pub fn encode_png(pixels: &[u8], [height, width, channels]: [usize; 3]) -> Result<Vec<u8>> {
    let color = match channels {
        1 => ColorType::Grayscale,
        3 => ColorType::Rgb,
        n => return Err(Error::argument("encode_png", format!("expected 1 or 3 channels, found {n}"))),
    };
    let refused = |e: &dyn std::fmt::Display| Error::argument("encode_png", e.to_string());
    let size = |n: usize| u32::try_from(n).map_err(|e| refused(&e));
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, size(width)?, size(height)?);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| refused(&e))?;
    writer.write_image_data(pixels).map_err(|e| refused(&e))?;
    writer.finish().map_err(|e| refused(&e))?;
    Ok(bytes)
}

/// The decoder trusts the palette and its alphas, and panics if they are incomplete.
fn check_palette(info: &png::Info<'_>) -> Result<()> {
    let Some(palette) = &info.palette else { return Ok(()) };
    let (colors, alphas) = (palette.len() / 3, info.trns.as_ref().map_or(0, |t| t.len()));
    if info.color_type == ColorType::Indexed && (palette.len() % 3 != 0 || colors > 256 || alphas > colors) {
        let message = format!(
            "expected a palette of at most 256 colors of 3 bytes and no more alphas than colors, found {} bytes and {alphas} alphas",
            palette.len()
        );
        return Err(refused(message));
    }
    Ok(())
}
