//! The IDX format of the MNIST files: a magic number with element type and number of dimensions, sizes, elements; all
//! big-endian. Files compressed by gzip, as they are published, are unpacked on the way.

use firebrand_core::{Error, Result, Tensor};
use std::io::Read;
use std::path::Path;

fn refused(message: impl Into<String>) -> Error {
    Error::argument("read_idx", message)
}

/// How much longer than itself a compressed file can become: no more is possible.
const LARGEST_RATIO: u64 = 1032;

/// Reads an IDX file, compressed by gzip or not.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), |bytes| match bytes {
        [0x1F, 0x8B, ..] => parse_idx(&unpacked(bytes)?),
        _ => parse_idx(bytes),
    })
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let limit = LARGEST_RATIO.saturating_mul(bytes.len() as u64);
    let read = flate2::read::GzDecoder::new(bytes).take(limit).read_to_end(&mut content);
    read.map_err(|e| refused(format!("the compressed file is damaged: {e}")))?;
    Ok(content)
}

/// The content of an IDX file as a tensor of its element type.
pub fn parse_idx(bytes: &[u8]) -> Result<Tensor> {
    let [0, 0, kind, dims, rest @ ..] = bytes else {
        return Err(refused(
            "expected a file that starts with two zero bytes, an element type and a number of dimensions",
        ));
    };
    let dims = usize::from(*dims);
    if rest.len() < 4 * dims {
        return Err(refused(format!("expected {dims} sizes, the file ends before")));
    }
    let (header, data) = rest.split_at(4 * dims);
    let sizes: Vec<usize> =
        header.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]) as usize).collect();
    let width = match kind {
        0x08 | 0x09 => 1,
        0x0B => 2,
        0x0C | 0x0D => 4,
        0x0E => 8,
        other => return Err(refused(format!("element type {other:#04x} is not known; 08, 09 and 0b to 0e are"))),
    };
    let count = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
    if count.and_then(|n| n.checked_mul(width)) != Some(data.len()) {
        let message = format!("sizes {sizes:?} of {width} bytes do not make the {} bytes that follow", data.len());
        return Err(refused(message));
    }
    macro_rules! elements {
        ($t:ty, $n:literal) => {{
            let numbers: Vec<$t> = data.as_chunks::<$n>().0.iter().map(|c| <$t>::from_be_bytes(*c)).collect();
            Tensor::try_from_vec(numbers, &sizes[..])
        }};
    }
    match kind {
        0x08 => Tensor::try_from_slice(data, &sizes[..]),
        0x09 => elements!(i8, 1),
        0x0B => elements!(i16, 2),
        0x0C => elements!(i32, 4),
        0x0D => elements!(f32, 4),
        _ => elements!(f64, 8),
    }
}
