//! Memory-mapped files: read in place, and used by storages without a copy until they are written.
//!
//! [`MappedFile::new`] maps a file twice: once to read, and once per [`MappedFile::copy_on_write`] as private pages that the
//! system copies when they are first written. A write never reaches the file, nor another private mapping of it, so two
//! users of one file each have their own state, which costs only what they change.
//!
//! **Mapping or copying.** Mapping is for files that do not change: no system can protect a mapping from a process that
//! rewrites the file in place or truncates it. Then what was checked is not what is used, and memory behind the new end is
//! a signal (SIGBUS) that ends the process. Files that are replaced by renaming, as every writer of this workspace does, are
//! safe. Where others can write to the file, [`MappedFile::copied`] reads it once into memory: the same type, twice
//! the cost of reading, and nothing that happens to the file afterwards matters. In either case text that was validated
//! should be copied before it is relied on. Where the system has no mappings (WebAssembly), files are copied.
#![allow(unsafe_code)]

use crate::{OutOfMemory, Storage};
use memmap2::{Mmap, MmapOptions, MmapRaw};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

/// Whether the system maps files at all.
const CAN_MAP: bool = !cfg!(target_family = "wasm");

/// The content of a file: mapped, or copied into memory.
pub struct MappedFile(Content);

enum Content {
    Mapped { file: Arc<File>, read: Mmap },
    Copied(Arc<[u8]>),
}

impl MappedFile {
    /// Maps the whole file. It must not be rewritten in place or truncated while it is mapped; see the head of this module.
    pub fn new(file: File) -> io::Result<MappedFile> {
        // SAFETY: the mapping is only read; that nothing changes the file meanwhile is the caller's part (see the head).
        match unsafe { Mmap::map(&file) } {
            Ok(read) => Ok(MappedFile(Content::Mapped { file: Arc::new(file), read })),
            Err(_) if !CAN_MAP => MappedFile::copied(file),
            Err(e) => Err(e),
        }
    }

    /// Copies the whole file into memory; later changes to the file do not matter.
    pub fn copied(mut file: File) -> io::Result<MappedFile> {
        let expected = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        content.try_reserve_exact(expected).map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
        // A file that grows meanwhile is taken as it was.
        file.by_ref().take(expected as u64).read_to_end(&mut content)?;
        Ok(MappedFile(Content::Copied(content.into())))
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Content::Mapped { read, .. } => read,
            Content::Copied(content) => content,
        }
    }

    /// Memory of one user with the content of the whole file.
    pub fn copy_on_write(&self) -> io::Result<PrivatePages> {
        match &self.0 {
            Content::Mapped { file, read } => Ok(PrivatePages(Pages::Mapped(MappedPages::new(file, read.len())?))),
            Content::Copied(content) => Ok(PrivatePages(Pages::Copied(content.clone()))),
        }
    }
}

/// A file's bytes as memory of one user.
#[derive(Clone)]
pub struct PrivatePages(Pages);

#[derive(Clone)]
enum Pages {
    Mapped(MappedPages),
    Copied(Arc<[u8]>),
}

impl PrivatePages {
    /// A storage over a part of the file; None if it lies outside or, in a mapping, is not aligned for every element type.
    /// Of a copied file each storage has bytes of its own; None then also stands for memory that is missing.
    pub fn storage(&self, range: Range<usize>) -> Option<Storage> {
        match &self.0 {
            Pages::Mapped(pages) => pages.window(range, true),
            Pages::Copied(content) => Storage::from_bytes(content.get(range)?).ok(),
        }
    }
}

#[derive(Clone)]
struct MappedPages {
    file: Arc<File>,
    pages: Arc<MmapRaw>,
}

impl MappedPages {
    fn new(file: &Arc<File>, length: usize) -> io::Result<MappedPages> {
        // SAFETY: private pages are nothing else's; truncation is the caller's part (see the head).
        let pages = unsafe { MmapOptions::new().len(length).map_copy(&**file)? };
        Ok(MappedPages { file: file.clone(), pages: Arc::new(pages.into()) })
    }

    fn window(&self, range: Range<usize>, original: bool) -> Option<Storage> {
        if range.start > range.end || range.end > self.pages.len() {
            return None;
        }
        let data = self.pages.as_mut_ptr().wrapping_add(range.start);
        if !data.addr().is_multiple_of(8) {
            return None;
        }
        let owner = Window { pages: self.clone(), start: range.start, original };
        // SAFETY: the range lies inside writable pages that the owner keeps mapped; all access to them goes through
        // storages, under their contract.
        Some(unsafe { Storage::from_raw(data, range.len(), Box::new(owner)) })
    }
}

/// What keeps the pages of a storage mapped, and tells how to map them again.
struct Window {
    pages: MappedPages,
    start: usize,
    /// Whether it still shows the file; a fork is made to be written.
    original: bool,
}

/// Creates storages that start with the content of others and are written independently. Storages that were shared stay shared.
///
/// A storage over a file that was never written (its version is 0) is mapped again, so that it costs nothing until it is
/// written. All others are copied, forks too: kernels may write statistics that no version counts.
#[derive(Default)]
pub struct Fork {
    pages: HashMap<usize, MappedPages>,
    storages: HashMap<usize, (Storage, Storage)>,
}

impl Fork {
    /// The fork of a storage; the same one whenever it is requested.
    pub fn storage(&mut self, original: &Storage) -> Result<Storage, OutOfMemory> {
        if let Some((_, fork)) = self.storages.get(&original.addr()) {
            return Ok(fork.clone());
        }
        let window =
            original.owner().and_then(|o| o.downcast_ref::<Window>()).filter(|w| w.original && original.version() == 0);
        let fork = match window.and_then(|w| self.remap(w, original.nbytes())) {
            Some(fork) => fork,
            None => original.duplicate()?,
        };
        // The original is kept, so that its address stays its own while this map is in use.
        self.storages.insert(original.addr(), (original.clone(), fork.clone()));
        Ok(fork)
    }

    fn remap(&mut self, window: &Window, nbytes: usize) -> Option<Storage> {
        let key = Arc::as_ptr(&window.pages.file).addr();
        let pages = match self.pages.entry(key) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                e.insert(MappedPages::new(&window.pages.file, window.pages.pages.len()).ok()?)
            }
        };
        pages.window(window.start..window.start + nbytes, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, fill, read_slice};

    fn numbers(s: &Storage) -> Vec<f32> {
        let mut out = vec![0.0; s.nbytes() / 4];
        read_slice(s.view(DType::F32, 0, &[s.nbytes() / 4], &[1]), &mut out);
        out
    }

    /// A file of this test's own.
    fn scratch(name: &str) -> std::path::PathBuf {
        // WASI has no folder by that name; what runs the tests there provides one.
        let folder = if cfg!(target_os = "wasi") { "/tmp".into() } else { std::env::temp_dir() };
        folder.join(format!("firebrand-{name}-{}", if cfg!(target_os = "wasi") { 0 } else { std::process::id() }))
    }

    /// Every user of a mapped file has a state of its own, and the file stays as it was.
    #[test]
    fn writes_stay_private() {
        let path = scratch("mapped");
        let bytes: Vec<u8> = (0..64).flat_map(|i| (i as f32).to_le_bytes()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mapped = MappedFile::new(File::open(&path).unwrap()).unwrap();
        let pages = mapped.copy_on_write().unwrap();
        let original = pages.storage(64..80).unwrap();
        assert_eq!(numbers(&original), [16.0, 17.0, 18.0, 19.0]);
        assert_eq!(pages.storage(4..16).is_none(), CAN_MAP, "not aligned");
        assert!(pages.storage(64..1000).is_none(), "outside");

        let mut fork = Fork::default();
        let (a, b) = (fork.storage(&original).unwrap(), fork.storage(&original).unwrap());
        assert!(a.ptr_eq(&b) && !a.ptr_eq(&original));
        fill(a.view_mut(DType::F32, 0, &[4], &[1]), crate::pointwise::Value::Float(1.0));
        assert_eq!(numbers(&b), [1.0; 4]);
        assert_eq!(numbers(&original), [16.0, 17.0, 18.0, 19.0]);
        assert_eq!(mapped.bytes(), bytes);

        // A fork is copied, with what was written into it.
        assert_eq!(numbers(&Fork::default().storage(&a).unwrap()), [1.0; 4]);
        drop((pages, original, a, b, fork));
        std::fs::remove_file(path).unwrap();
    }

    /// A copied file is what it was when it was read, whatever becomes of it; its storages are apart from each other.
    #[test]
    fn a_copied_file_does_not_change() {
        let path = scratch("copied");
        std::fs::write(&path, [7; 4096]).unwrap();
        let copied = MappedFile::copied(File::open(&path).unwrap()).unwrap();
        let pages = copied.copy_on_write().unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap(); // a mapping would be a signal now
        let (a, b) = (pages.storage(3..11).unwrap(), pages.storage(3..11).unwrap());
        fill(a.view_mut(DType::U8, 0, &[8], &[1]), crate::pointwise::Value::Int(1));
        let mut seen = [0u8; 8];
        read_slice(b.view(DType::U8, 0, &[8], &[1]), &mut seen);
        assert_eq!((seen, copied.bytes()), ([7; 8], &[7; 4096][..]));
        assert!(pages.storage(4090..4097).is_none(), "outside");
        std::fs::remove_file(path).unwrap();
    }
}
