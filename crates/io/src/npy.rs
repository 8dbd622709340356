//! One tensor in one `.npy` file (format versions 1 to 3; written as version 1, row-major, little-endian).

use crate::elements::{self as numbers, descr, dtype_of};
use crate::header::Header;
use crate::{Budget, Error, Result, open_regular, write_atomic};
use firebrand_core::{DType, Tensor, ops};
use std::io::{BufReader, Read, Write};
use std::path::Path;

const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// NumPy pads headers so that data starts at a multiple of this.
const ALIGNMENT: usize = 64;
/// NumPy's own limit on dimensions.
const MAX_DIMS: usize = 64;

/// Reads a `.npy` file.
pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let (file, length) = open_regular(path)?;
    read_from(&mut BufReader::new(file), length, &Budget::for_input(length)).map_err(|e| e.in_file(path))
}

/// Writes a `.npy` file atomically.
pub fn write_npy(path: impl AsRef<Path>, t: &Tensor) -> Result<()> {
    write_atomic(path, |out| write_to(out, t))
}

/// Reads a tensor from the content of a `.npy` file.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensor> {
    from_bytes_within(bytes, &Budget::for_input(bytes.len() as u64))
}

/// Like [`from_bytes`], within the caller's budget.
pub fn from_bytes_within(mut bytes: &[u8], budget: &Budget) -> Result<Tensor> {
    let length = bytes.len() as u64;
    read_from(&mut bytes, length, budget)
}

/// The content of a `.npy` file with this tensor.
pub fn to_bytes(t: &Tensor) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write_to(&mut out, t)?;
    Ok(out)
}

/// Writes the content of a `.npy` file with this tensor, a part at a time.
pub fn write(out: &mut dyn Write, t: &Tensor) -> Result<()> {
    write_to(out, t)
}

/// Takes `n` bytes of the rest, if there are as many.
fn spend(left: &mut u64, n: u64) -> Result<()> {
    *left = left.checked_sub(n).ok_or(Error::Truncated { needed: n, found: *left })?;
    Ok(())
}

/// Where the elements of a `.npy` file are, and what they are.
pub(crate) struct Elements {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

/// Where the elements are, if they lie there as tensors have them: row-major and in the byte order of most machines.
pub(crate) fn elements(content: &[u8], budget: &Budget) -> Result<Option<Elements>> {
    let (mut rest, mut left) = (content, content.len() as u64);
    let header = read_header(&mut rest, &mut left, budget)?;
    let (dtype, big_endian) = dtype_of(&header.descr)?;
    let bytes = bytes_of(&header.shape, dtype.size()).filter(|n| *n <= left);
    let Some(bytes) = bytes.filter(|_| !big_endian && !header.fortran_order) else { return Ok(None) };
    Ok(Some(Elements { at: content.len() - rest.len(), bytes: bytes as usize, dtype, shape: header.shape }))
}

/// Reads the header of a source that holds `left` bytes.
fn read_header(source: &mut dyn Read, left: &mut u64, budget: &Budget) -> Result<Header> {
    let mut start = [0u8; 8];
    spend(left, 8)?;
    source.read_exact(&mut start)?;
    if start[..6] != MAGIC {
        return Err(Error::Magic { found: start[..6].to_vec() });
    }
    let header_length = match (start[6], start[7]) {
        (1, 0) => {
            let mut n = [0u8; 2];
            spend(left, 2)?;
            source.read_exact(&mut n)?;
            u64::from(u16::from_le_bytes(n))
        }
        (2 | 3, 0) => {
            let mut n = [0u8; 4];
            spend(left, 4)?;
            source.read_exact(&mut n)?;
            u64::from(u32::from_le_bytes(n))
        }
        (major, minor) => return Err(Error::Version { major, minor }),
    };
    spend(left, header_length)?;
    // The text, its sizes (a digit and a comma each), and what is made of them.
    budget.take(header_length.saturating_mul(16))?;
    let mut text = vec![0u8; header_length as usize];
    source.read_exact(&mut text)?;
    let text = String::from_utf8(text)
        .map_err(|e| Error::Header { reason: "text expected".into(), at: e.utf8_error().valid_up_to() })?;
    Header::parse(&text)
}

/// Reads a tensor from a source that holds `length` bytes.
pub(crate) fn read_from(source: &mut dyn Read, length: u64, budget: &Budget) -> Result<Tensor> {
    let mut left = length;
    let header = read_header(source, &mut left, budget)?;
    let (dtype, big_endian) = dtype_of(&header.descr)?;
    let needed = bytes_of(&header.shape, dtype.size()).ok_or_else(|| Error::Shape { shape: header.shape.clone() })?;
    spend(&mut left, needed)?;
    budget.take(needed)?;
    if !header.fortran_order {
        return numbers::read(source, dtype, big_endian, &header.shape);
    }
    // Column-major data is row-major data of the transpose.
    let reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
    let dims: Vec<i64> = (0..reversed.len() as i64).rev().collect();
    Ok(ops::permute(&numbers::read(source, dtype, big_endian, &reversed)?, &dims)?)
}

/// Bytes of an array, if sizes and strides fit into memory at all.
fn bytes_of(shape: &[usize], element: usize) -> Option<u64> {
    // Strides are products of sizes, so that a size of 0 does not excuse huge others.
    let reach = shape.iter().try_fold(element, |n, &d| n.checked_mul(d.max(1))).filter(|&n| n <= isize::MAX as usize);
    if shape.len() > MAX_DIMS || reach.is_none() {
        return None;
    }
    Some(shape.iter().product::<usize>() as u64 * element as u64)
}

/// Writes a tensor.
pub(crate) fn write_to(out: &mut dyn Write, t: &Tensor) -> Result<()> {
    let header = Header { descr: descr(t.dtype()).to_string(), fortran_order: false, shape: t.shape().to_vec() };
    let mut text = header.print();
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    text.push('\n');
    let length = u16::try_from(text.len()).map_err(|_| Error::Shape { shape: t.shape().to_vec() })?;
    out.write_all(&MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    numbers::write(out, t)
}
