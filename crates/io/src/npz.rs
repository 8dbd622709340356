//! Named tensors in one `.npz` archive: a zip of `.npy` files, stored or deflated.

use crate::{Budget, Error, Output, Result, Rows, npy, open_regular};
use firebrand_core::{MappedFile, PrivatePages, Tensor};
use indexmap::IndexMap;
use std::io::{BufReader, Cursor, Read, Seek, Write};
use std::path::Path;
use zip::read::ZipFile;
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

/// The arrays of a `.npz` file, row by row: arrays that are stored without compression stay in the file, which is mapped, and their checksums
/// are not compared; the others are read.
pub fn read_npz_rows(path: impl AsRef<Path>) -> Result<IndexMap<String, Rows>> {
    let path = path.as_ref();
    let (file, length) = open_regular(path)?;
    let read = || -> Result<IndexMap<String, Rows>> {
        let file = MappedFile::new(file)?;
        let pages = file.copy_on_write()?;
        let mut arrays = IndexMap::new();
        let budget = Budget::for_input(length);
        each_entry(&mut Cursor::new(file.bytes()), length, &budget, &mut |name, entry, claimed| {
            let rows = match entry.data_start().filter(|_| entry.compression() == CompressionMethod::Stored) {
                Some(start) => in_place(&file, &pages, start, claimed, &budget)?,
                None => None,
            };
            let rows = match rows {
                Some(rows) => rows,
                None => Rows::new(read_entry(entry, claimed, &budget)?),
            };
            match arrays.insert(name.to_string(), rows) {
                Some(_) => Err(Error::DuplicateName { name: name.to_string() }),
                None => Ok(()),
            }
        })?;
        Ok(arrays)
    };
    read().map_err(|e| e.in_file(path))
}

/// The rows of a stored array, if they can be used where they are. What is wrong with its header is for the reader to say.
fn in_place(file: &MappedFile, pages: &PrivatePages, start: u64, length: u64, budget: &Budget) -> Result<Option<Rows>> {
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else { return Ok(None) };
    let Some(content) = start.checked_add(length).and_then(|end| file.bytes().get(start..end)) else { return Ok(None) };
    let Some(found) = npy::elements(content, budget)? else { return Ok(None) };
    let range = start + found.at..start + found.at + found.bytes;
    Ok(Rows::mapped(pages, range, found.dtype, &found.shape))
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
    let mut tensors = Tensors::new();
    each_entry(source, length, budget, &mut |name, entry, claimed| match tensors
        .insert(name.to_string(), read_entry(entry, claimed, budget)?)
    {
        Some(_) => Err(Error::DuplicateName { name: name.to_string() }),
        None => Ok(()),
    })?;
    Ok(tensors)
}

type Entry<'a, 'b> = ZipFile<'a, &'b mut dyn Source>;

fn read_entry(entry: &mut Entry<'_, '_>, claimed: u64, budget: &Budget) -> Result<Tensor> {
    let tensor = npy::read_from(entry, claimed, budget)?;
    // The checksum is compared at the end of the entry.
    std::io::copy(entry, &mut std::io::sink())?;
    Ok(tensor)
}

/// Visits every array: its name, its content, and how long that is.
fn each_entry(
    source: &mut dyn Source,
    length: u64,
    budget: &Budget,
    visit: &mut dyn FnMut(&str, &mut Entry<'_, '_>, u64) -> Result<()>,
) -> Result<()> {
    let mut archive = ZipArchive::new(source)?;
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
        visit(&name, &mut entry, claimed).map_err(|e| match e {
            Error::DuplicateName { .. } => e,
            e => e.in_array(&name),
        })?;
    }
    Ok(())
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
