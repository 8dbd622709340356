//! The IDX format of the MNIST files: a magic number with element type and number of dimensions, sizes, elements; all
//! big-endian. Files compressed by gzip, as they are published, are unpacked on the way.

use firebrand_core::{Error, Result, Tensor};
use firebrand_io::Budget;
use std::io::Read;
use std::path::Path;

fn refused(message: impl Into<String>) -> Error {
    Error::argument("read_idx", message)
}

/// Largest number of dimensions.
const MOST_DIMS: usize = 64;

/// Reads an IDX file, compressed by gzip or not.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    super::read_file(path.as_ref(), parse_idx)
}

/// The content of an IDX file, compressed by gzip or not, as a tensor of its element type.
pub fn parse_idx(bytes: &[u8]) -> Result<Tensor> {
    parse_idx_within(bytes, &super::budget(bytes))
}

/// Like [`parse_idx`], within the caller's budget.
pub fn parse_idx_within(bytes: &[u8], budget: &Budget) -> Result<Tensor> {
    match bytes {
        [0x1F, 0x8B, ..] => elements(&unpacked(bytes, budget)?, budget),
        _ => elements(bytes, budget),
    }
}

fn unpacked(bytes: &[u8], budget: &Budget) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    let mut buffer = [0; 1 << 13];
    loop {
        match decoder.read(&mut buffer).map_err(|e| refused(format!("the compressed file is damaged: {e}")))? {
            0 => return Ok(content),
            n => {
                // A list that grows by doubling is up to twice as long as what is in it, and moves.
                budget.take(3 * n as u64).map_err(|e| refused(e.to_string()))?;
                content.extend_from_slice(&buffer[..n]);
            }
        }
    }
}

fn elements(bytes: &[u8], budget: &Budget) -> Result<Tensor> {
    let [0, 0, kind, dims, rest @ ..] = bytes else {
        return Err(refused(
            "expected a file that starts with two zero bytes, an element type and a number of dimensions",
        ));
    };
    let dims = usize::from(*dims);
    if dims > MOST_DIMS {
        return Err(refused(format!("{dims} dimensions are more than the {MOST_DIMS} a tensor may have")));
    }
    if rest.len() < 4 * dims {
        return Err(refused(format!("expected {dims} sizes, but the file ends before them")));
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
        let message = format!("sizes {sizes:?} of {width} bytes do not match the {} bytes that follow", data.len());
        return Err(refused(message));
    }
    // The elements in this machine's order, and the tensor.
    budget.take(2 * data.len() as u64).map_err(|e| refused(e.to_string()))?;
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
