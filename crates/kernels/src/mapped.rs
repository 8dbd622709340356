//! Files as memory: read in place, and used by storages without a copy until they are written.
//!
//! [`MappedFile`] maps a file twice: once to read, and once per [`MappedFile::copy_on_write`] as private pages that the
//! system copies when they are first written. A write never reaches the file, nor another private mapping of it, so two
//! users of one file each have a state of their own that costs only what they change.
//!
//! The system cannot protect a mapping from another process that truncates or rewrites the file in place: such a file
//! reads as garbage or ends the process. Replace files by renaming (as every writer of this workspace does).
#![allow(unsafe_code)]

use crate::{OutOfMemory, Storage};
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A file, mapped for reading.
pub struct MappedFile {
    file: Arc<File>,
    read: Mmap,
}

impl MappedFile {
    /// Maps the whole file.
    pub fn new(file: File) -> io::Result<MappedFile> {
        // SAFETY: the mapping is only read; that nobody truncates the file meanwhile is the caller's part (see the head).
        let read = unsafe { Mmap::map(&file)? };
        Ok(MappedFile { file: Arc::new(file), read })
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.read
    }

    /// Private pages of the whole file.
    pub fn copy_on_write(&self) -> io::Result<PrivatePages> {
        PrivatePages::new(&self.file, self.read.len())
    }
}

/// A file's bytes as memory of one user.
#[derive(Clone)]
pub struct PrivatePages {
    file: Arc<File>,
    pages: Arc<MmapMut>,
}

impl PrivatePages {
    fn new(file: &Arc<File>, length: usize) -> io::Result<PrivatePages> {
        // SAFETY: private pages are nobody else's; truncation is the caller's part (see the head).
        let pages = unsafe { MmapOptions::new().len(length).map_copy(&**file)? };
        Ok(PrivatePages { file: file.clone(), pages: Arc::new(pages) })
    }

    /// A storage over a part of the file; None if it lies outside or is not aligned for every element type.
    pub fn storage(&self, range: Range<usize>) -> Option<Storage> {
        self.window(range, true)
    }

    fn window(&self, range: Range<usize>, original: bool) -> Option<Storage> {
        if range.start > range.end || range.end > self.pages.len() {
            return None;
        }
        let data = self.pages.as_ptr().wrapping_add(range.start).cast_mut();
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
    pages: PrivatePages,
    start: usize,
    /// Whether it still shows the file; a fork is made to be written.
    original: bool,
}

/// Makes storages that start with the content of others and are written on their own. Storages that were one stay one.
///
/// A storage over a file that was never written (its version is 0) is mapped again, so that it costs nothing until it is
/// written. All others are copied, forks too: kernels may write statistics that no version counts.
#[derive(Default)]
pub struct Fork {
    pages: HashMap<usize, PrivatePages>,
    storages: HashMap<usize, (Storage, Storage)>,
}

impl Fork {
    /// The fork of a storage; the same one whenever it is asked for.
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
                e.insert(PrivatePages::new(&window.pages.file, window.pages.pages.len()).ok()?)
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

    /// Every user of a mapped file has a state of its own, and the file stays as it was.
    #[test]
    fn writes_stay_private() {
        let path = std::env::temp_dir().join(format!("firebrand-mapped-{}", std::process::id()));
        let bytes: Vec<u8> = (0..64).flat_map(|i| (i as f32).to_le_bytes()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mapped = MappedFile::new(File::open(&path).unwrap()).unwrap();
        let pages = mapped.copy_on_write().unwrap();
        let original = pages.storage(64..80).unwrap();
        assert_eq!(numbers(&original), [16.0, 17.0, 18.0, 19.0]);
        assert!(pages.storage(4..16).is_none(), "not aligned");
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
}
