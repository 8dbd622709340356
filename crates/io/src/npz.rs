//! Named tensors in one `.npz` archive: a zip of `.npy` files, stored or deflated.

use crate::{Budget, Error, Output, Result, npy, open_regular};
use firebrand_core::Tensor;
use indexmap::IndexMap;
use std::io::{BufReader, Cursor, Read, Seek, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

/// Tensors by name, in the order of the archive.
pub type Tensors = IndexMap<String, Tensor>;

/// Where an archive is read from; a trait object, so that the code for archives is compiled once.
trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}
/// Where an archive is written to.
trait Sink: Write + Seek {}
impl<T: Write + Seek> Sink for T {}

/// No deflate stream grows by more than this factor.
const DEFLATE_LIMIT: u64 = 1032;
/// What an entry costs besides its elements: a tensor, and its place in the directory.
const ENTRY: u64 = 1 << 10;
/// Entries above this length need the wide form of zip headers.
const NARROW: usize = u32::MAX as usize - (1 << 16);

/// Reads every array of a `.npz` file.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Tensors> {
    let path = path.as_ref();
    let (file, length) = open_regular(path)?;
    read_from(&mut BufReader::new(file), length, &Budget::for_input(length)).map_err(|e| e.in_file(path))
}

/// Writes a `.npz` file atomically. Equal tensors give equal bytes.
pub fn write_npz<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<()> {
    stage_npz(path, tensors)?.commit()
}

/// Like [`write_npz`], without making the file visible yet.
pub fn stage_npz<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<Output> {
    Output::write(path, |out| write_to(out, tensors))
}

/// Reads the content of a `.npz` file.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensors> {
    from_bytes_within(bytes, &Budget::for_input(bytes.len() as u64))
}

/// Like [`from_bytes`], within the caller's budget.
pub fn from_bytes_within(bytes: &[u8], budget: &Budget) -> Result<Tensors> {
    read_from(&mut Cursor::new(bytes), bytes.len() as u64, budget)
}

/// The content of a `.npz` file with these tensors.
pub fn to_bytes<'a>(tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>) -> Result<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    write_to(&mut out, tensors)?;
    Ok(out.into_inner())
}

fn read_from(source: &mut dyn Source, length: u64, budget: &Budget) -> Result<Tensors> {
    let mut archive = ZipArchive::new(source)?;
    let mut tensors = Tensors::new();
    let mut spent = 0u64;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let (claimed, stored) = (entry.size(), entry.compressed_size());
        let growth = if entry.compression() == CompressionMethod::Stored { 1 } else { DEFLATE_LIMIT };
        // Entries that overlap would together be longer than the file.
        spent = spent.saturating_add(stored);
        if claimed > stored.saturating_mul(growth) || spent > length {
            return Err(Error::Inflated { claimed, stored: stored.min(length) });
        }
        budget.take(ENTRY)?;
        let name = entry.name()?.into_owned();
        let name = name.strip_suffix(".npy").map_or(name.clone(), str::to_string);
        let tensor = npy::read_from(&mut entry, claimed, budget).map_err(|e| e.in_array(&name))?;
        // The checksum is compared at the end of the entry.
        std::io::copy(&mut entry, &mut std::io::sink()).map_err(|e| Error::from(e).in_array(&name))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(Error::DuplicateName { name });
        }
    }
    Ok(tensors)
}

fn write_to<'a>(out: &mut dyn Sink, tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>) -> Result<()> {
    write_list(out, tensors.into_iter().map(|(name, t)| (name.as_ref().to_string(), t)).collect())
}

fn write_list(out: &mut dyn Sink, tensors: Vec<(String, &Tensor)>) -> Result<()> {
    let mut archive = ZipWriter::new(out);
    let mut names = std::collections::HashSet::new();
    for (name, t) in tensors {
        if !names.insert(name.clone()) {
            return Err(Error::DuplicateName { name });
        }
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::default())
            .large_file(t.numel().saturating_mul(t.dtype().size()) > NARROW);
        archive.start_file(format!("{name}.npy"), options)?;
        npy::write_to(&mut archive, t).map_err(|e| e.in_array(&name))?;
    }
    archive.finish()?.flush()?;
    Ok(())
}
