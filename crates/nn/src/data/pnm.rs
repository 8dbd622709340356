//! Images in the portable formats PGM (`P5`, gray) and PPM (`P6`, color), 8 bits per channel.
//!
//! Every image program writes them (`convert photo.jpg photo.ppm`).

use firebrand_core::{Error, Result, Tensor};
use std::path::Path;

fn refused(message: impl Into<String>) -> Error {
    Error::argument("read_pnm", message)
}

/// Reads a PGM or PPM image as u8 `[channels, height, width]`.
pub fn read_pnm(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), parse_pnm)
}

/// The next number of the header, and what follows the byte after it. Comments run from `#` to the end of the line.
fn number(mut bytes: &[u8]) -> Option<(usize, &[u8])> {
    loop {
        match bytes {
            [b'#', ..] => bytes = &bytes[bytes.iter().position(|&b| b == b'\n')?..],
            [b, rest @ ..] if b.is_ascii_whitespace() => bytes = rest,
            _ => break,
        }
    }
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let value = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
    bytes[digits..].first()?.is_ascii_whitespace().then(|| (value, &bytes[digits + 1..]))
}

/// The content of a PGM or PPM file as u8 `[channels, height, width]`.
pub fn parse_pnm(bytes: &[u8]) -> Result<Tensor> {
    let channels = match bytes {
        [b'P', b'5', ..] => 1,
        [b'P', b'6', ..] => 3,
        _ => return Err(refused("expected an image that starts with P5 (gray) or P6 (color)")),
    };
    let header = || {
        let (width, rest) = number(&bytes[2..])?;
        let (height, rest) = number(rest)?;
        let (largest, rest) = number(rest)?;
        Some((width, height, largest, rest))
    };
    let (width, height, largest, pixels) =
        header().ok_or_else(|| refused("expected width, height and largest value in the header"))?;
    if largest != 255 {
        return Err(refused(format!("expected 255 as largest value, found {largest}")));
    }
    let count = width.checked_mul(height).and_then(|n| n.checked_mul(channels));
    let Some(pixels) = count.and_then(|n| pixels.get(..n)) else {
        return Err(refused(format!("{width} by {height} pixels are more than the file holds")));
    };
    let image = Tensor::try_from_slice(pixels, [height, width, channels])?;
    image.try_permute([2, 0, 1])?.try_contiguous()
}
