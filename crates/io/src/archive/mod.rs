//! Zip archives with tensors in them, as PyTorch writes them: read in place, written as a stream.
//!
//! Reading treats the file as hostile. The whole directory is checked before anything is used: entries lie inside the
//! file and do not overlap, names are relative, plain and unique, nothing is encrypted, and nothing claims to be much
//! larger than what is stored. Checksums are compared. Any zip tool's rewrite is accepted: alignment only decides
//! whether an entry is used in place or copied. Nothing is ever extracted to a path.

mod directory;
mod write;

pub use write::ArchiveWriter;

use crate::{Error, Result};
use directory::{Entry, Method};
use firebrand_core::{MappedFile, Storage};
use indexmap::IndexMap;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// What an archive may claim, and what is checked.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The largest entry that is read or inflated into memory (not one that is used in place).
    pub entry_limit: u64,
    /// The sum of all sizes.
    pub total_limit: u64,
    /// How much larger than stored an entry may be.
    pub ratio_limit: u64,
    /// Whether the checksum of memory used in place is compared, which reads all of it once.
    pub check_storages: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { entry_limit: 1 << 30, total_limit: 64 << 30, ratio_limit: 200, check_storages: true }
    }
}

enum Source {
    Mapped(MappedFile),
    Bytes(Arc<[u8]>),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Source::Mapped(m) => m.bytes(),
            Source::Bytes(b) => b,
        }
    }
}

/// An archive, open for reading.
pub struct Archive {
    source: Source,
    entries: IndexMap<String, Entry>,
    options: ReadOptions,
    pages: std::sync::OnceLock<Option<firebrand_core::PrivatePages>>,
}

impl Archive {
    /// Maps a file and reads its directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_with(path, ReadOptions::default())
    }

    /// As [`Archive::open`], with limits of one's own.
    pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Archive> {
        let path = path.as_ref();
        let open = || -> Result<Archive> {
            let file = std::fs::File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory).into());
            }
            Archive::new(Source::Mapped(MappedFile::new(file)?), options)
        };
        open().map_err(|e| e.in_file(path))
    }

    /// Reads the directory of an archive in memory.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Archive> {
        Archive::new(Source::Bytes(bytes.into()), ReadOptions::default())
    }

    fn new(source: Source, options: ReadOptions) -> Result<Archive> {
        let entries = directory::read(source.bytes(), &options)?;
        Ok(Archive { source, entries, options, pages: std::sync::OnceLock::new() })
    }

    /// The names of all files in it, in the order of the directory.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is such a file.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The size of a file, if it is there.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|e| e.size)
    }

    fn entry(&self, name: &str) -> Result<(&Entry, &[u8])> {
        let entry = self.entries.get(name).ok_or_else(|| Error::MissingEntry { name: name.to_string() })?;
        Ok((entry, &self.source.bytes()[entry.data.clone()]))
    }

    /// The content of a file of at most `limit` bytes, its checksum compared; borrowed if it is stored as it is.
    pub fn read(&self, name: &str, limit: u64) -> Result<Cow<'_, [u8]>> {
        let (entry, stored) = self.entry(name)?;
        let limit = limit.min(self.options.entry_limit);
        let content = || -> Result<Cow<'_, [u8]>> {
            if entry.size > limit {
                return Err(Error::TooLarge { claimed: entry.size, limit });
            }
            let content = match entry.method {
                Method::Stored => Cow::Borrowed(stored),
                Method::Deflated => Cow::Owned(inflate(stored, entry.size)?),
            };
            check(entry, &content)?;
            Ok(content)
        };
        content().map_err(|e| e.in_entry(name))
    }

    /// The content as text.
    pub fn read_text(&self, name: &str, limit: u64) -> Result<Cow<'_, str>> {
        let invalid = |_| Error::Damaged { reason: "text in UTF-8 expected".into() }.in_entry(name);
        Ok(match self.read(name, limit)? {
            Cow::Borrowed(b) => Cow::Borrowed(std::str::from_utf8(b).map_err(|e| invalid(e.valid_up_to()))?),
            Cow::Owned(b) => Cow::Owned(String::from_utf8(b).map_err(|e| invalid(e.utf8_error().valid_up_to()))?),
        })
    }

    /// The content as memory for tensors: the mapped file itself (private pages, copied by the system when they are
    /// written) if the entry is stored and aligned, else a copy.
    pub fn storage(&self, name: &str) -> Result<Storage> {
        let (entry, stored) = self.entry(name)?;
        if entry.method == Method::Stored
            && let Some(storage) = self.pages().and_then(|p| p.storage(entry.data.clone()))
        {
            if self.options.check_storages {
                check(entry, stored).map_err(|e| e.in_entry(name))?;
            }
            return Ok(storage);
        }
        let content = match entry.method {
            Method::Stored => Cow::Borrowed(stored),
            Method::Deflated => Cow::Owned(inflate(stored, entry.size).map_err(|e| e.in_entry(name))?),
        };
        check(entry, &content).map_err(|e| e.in_entry(name))?;
        Ok(Storage::from_bytes(&content).map_err(firebrand_core::Error::from)?)
    }

    fn pages(&self) -> Option<&firebrand_core::PrivatePages> {
        let Source::Mapped(file) = &self.source else { return None };
        // If the system has no room for the mapping, copies still work.
        self.pages.get_or_init(|| file.copy_on_write().ok()).as_ref()
    }
}

fn check(entry: &Entry, content: &[u8]) -> Result<()> {
    let found = crc32fast::hash(content);
    if found == entry.crc { Ok(()) } else { Err(Error::Checksum { expected: entry.crc, found }) }
}

/// Inflates exactly `size` bytes; the directory has compared them with what is stored.
fn inflate(stored: &[u8], size: u64) -> Result<Vec<u8>> {
    let damaged = |reason: String| Error::Damaged { reason };
    let mut content = Vec::new();
    let mut reader = flate2::read::DeflateDecoder::new(stored).take(size.saturating_add(1));
    reader.read_to_end(&mut content).map_err(|e| damaged(format!("compressed data: {e}")))?;
    if content.len() as u64 != size {
        return Err(damaged(format!("compressed data does not hold the {size} bytes it claims")));
    }
    Ok(content)
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
