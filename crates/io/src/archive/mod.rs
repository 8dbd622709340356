//! Zip archives with tensors in them, as PyTorch writes them: read in place, written as a stream.
//!
//! Reading treats the file as hostile. The whole directory is checked before anything is used: entries lie inside the
//! file and do not overlap, names are relative, plain and unique, nothing is encrypted, and nothing claims to be much
//! larger than what is stored. Checksums are compared. Any zip tool's rewrite is accepted: alignment only decides
//! whether an entry is used in place or copied. Nothing is ever extracted to a path. An archive inside an archive may
//! not be compressed, and draws on the outer one's [`Budget`].
//!
//! Of a mapped file ([`Memory::Mapped`]) only storages are used in place. Everything else is copied first, and
//! checked, decoded and used as that copy.

mod directory;
mod write;

pub use write::ArchiveWriter;

use crate::{Budget, Error, Result, open_regular, read_regular};
use directory::{Entry, Method};
use firebrand_core::{MappedFile, Storage};
use indexmap::IndexMap;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Where the tensors of a file are stored after reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// In the memory-mapped file (copy-on-write): loading costs next to nothing.
    /// The file must not be changed in place or truncated while its tensors live: their values would change, or the
    /// process would be killed by the system. Replacing it by a rename, as every writer here does, is fine.
    #[default]
    Mapped,
    /// Copied into memory. The whole file is read once before anything in it is used; what happens to it
    /// afterwards does not matter. For files that others may write to.
    Copied,
}

/// Limits and checks for reading an archive.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Where tensors are stored.
    pub memory: Memory,
    /// Memory that reading may use beyond [`crate::FACTOR`] times the length of the file.
    pub spare: u64,
    /// The largest entry that is read or inflated into memory (not one that is used in place).
    pub entry_limit: u64,
    /// The sum of all sizes.
    pub total_limit: u64,
    /// The largest compression ratio of an entry.
    pub ratio_limit: u64,
    /// Whether to verify the checksum of memory used in place, which reads all of it once.
    pub check_storages: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            memory: Memory::Mapped,
            spare: crate::SPARE,
            entry_limit: 1 << 30,
            total_limit: 64 << 30,
            ratio_limit: 200,
            check_storages: true,
        }
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
    budget: Budget,
    pages: std::sync::OnceLock<Option<firebrand_core::PrivatePages>>,
}

impl Archive {
    /// Maps a file and reads its directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_with(path, ReadOptions::default())
    }

    /// Like [`Archive::open`], with options.
    pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Archive> {
        let path = path.as_ref();
        let source = match options.memory {
            Memory::Mapped => {
                let (file, _) = open_regular(path)?;
                Source::Mapped(MappedFile::new(file).map_err(|e| Error::from(e).in_file(path))?)
            }
            Memory::Copied => Source::Bytes(read_regular(path)?.into()),
        };
        Archive::new(source, options, None).map_err(|e| e.in_file(path))
    }

    /// Reads the directory of an archive in memory.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Archive> {
        Archive::from_bytes_with(bytes, ReadOptions::default())
    }

    /// Like [`Archive::from_bytes`], with options.
    pub fn from_bytes_with(bytes: impl Into<Arc<[u8]>>, options: ReadOptions) -> Result<Archive> {
        Archive::new(Source::Bytes(bytes.into()), options, None)
    }

    /// Reads the directory of an archive that was a file of this one. It may not be compressed, since what it holds
    /// could then be any number of times larger than this one, and what it costs is taken from this one's budget.
    pub fn inner(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Archive> {
        Archive::new(Source::Bytes(bytes.into()), self.options, Some(self.budget.clone()))
    }

    fn new(source: Source, options: ReadOptions, outer: Option<Budget>) -> Result<Archive> {
        let entries = directory::read(source.bytes(), &options)?;
        if outer.is_some()
            && let Some((name, _)) = entries.iter().find(|(_, e)| e.method == Method::Deflated)
        {
            let reason = "compressed, in an archive inside an archive; store the inner one uncompressed".to_string();
            return Err(Error::Damaged { reason }.in_entry(name));
        }
        let budget = outer.unwrap_or_else(|| Budget::with_spare(source.bytes().len() as u64, options.spare));
        Ok(Archive { source, entries, options, budget, pages: std::sync::OnceLock::new() })
    }

    /// The remaining memory budget of this archive.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The names of all files in it, in the order of the directory.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether the archive has this file.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The size of a file, if the archive has it.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|e| e.size)
    }

    fn entry(&self, name: &str) -> Result<(&Entry, &[u8])> {
        let entry = self.entries.get(name).ok_or_else(|| Error::MissingEntry { name: name.to_string() })?;
        Ok((entry, &self.source.bytes()[entry.data.clone()]))
    }

    /// The content of a file of at most `limit` bytes, its checksum compared; borrowed if it is stored as it is in
    /// memory that nothing else can change.
    pub fn read(&self, name: &str, limit: u64) -> Result<Cow<'_, [u8]>> {
        let (entry, stored) = self.entry(name)?;
        let limit = limit.min(self.options.entry_limit);
        let content = || -> Result<Cow<'_, [u8]>> {
            if entry.size > limit {
                return Err(Error::TooLarge { claimed: entry.size, limit });
            }
            self.content(entry, stored)
        };
        content().map_err(|e| e.in_entry(name))
    }

    /// The content of an entry. The checksum is that of the returned bytes, not of a file that may change.
    fn content<'a>(&self, entry: &Entry, stored: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let content = match (entry.method, &self.source) {
            (Method::Stored, Source::Bytes(_)) => Cow::Borrowed(stored),
            (Method::Stored, Source::Mapped(_)) => {
                self.budget.take(entry.size)?;
                Cow::Owned(stored.to_vec())
            }
            (Method::Deflated, _) => {
                self.budget.take(entry.size)?;
                Cow::Owned(inflate(stored, entry.size)?)
            }
        };
        check(entry, &content)?;
        Ok(content)
    }

    /// The content as text.
    pub fn read_text(&self, name: &str, limit: u64) -> Result<Cow<'_, str>> {
        let invalid = |_| Error::Damaged { reason: "expected UTF-8 text".into() }.in_entry(name);
        Ok(match self.read(name, limit)? {
            Cow::Borrowed(b) => Cow::Borrowed(std::str::from_utf8(b).map_err(|e| invalid(e.valid_up_to()))?),
            Cow::Owned(b) => Cow::Owned(String::from_utf8(b).map_err(|e| invalid(e.utf8_error().valid_up_to()))?),
        })
    }

    /// The content as JSON text. The memory its values may take once parsed is charged to the budget.
    pub fn read_json(&self, name: &str, limit: u64) -> Result<Cow<'_, str>> {
        let text = self.read_text(name, limit)?;
        self.budget.take_json(&text).map_err(|e| e.in_entry(name))?;
        Ok(text)
    }

    /// The content as memory for tensors: the mapped file itself (private pages, copied by the system when they are
    /// written) if the entry is stored and aligned, else a copy.
    pub fn storage(&self, name: &str) -> Result<Storage> {
        let (entry, stored) = self.entry(name)?;
        let storage = || -> Result<Storage> {
            if entry.method == Method::Stored
                && let Some(storage) = self.pages().and_then(|p| p.storage(entry.data.clone()))
            {
                if self.options.check_storages {
                    check(entry, stored)?;
                }
                return Ok(storage);
            }
            self.budget.take(entry.size)?;
            let content = self.content(entry, stored)?;
            Ok(Storage::from_bytes(&content).map_err(firebrand_core::Error::from)?)
        };
        storage().map_err(|e| e.in_entry(name))
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
    let room = usize::try_from(size).unwrap_or(usize::MAX);
    content.try_reserve_exact(room).map_err(|_| damaged(format!("not enough memory for {size} bytes")))?;
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
