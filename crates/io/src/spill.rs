//! Saved tensors on disk: one unnamed file per scope, read back through a mapping.
//!
//! The file is unlinked as soon as it is open, so nothing is left behind however the program ends. Space that backward
//! has released is reused, and the file shrinks to nothing when all of it is free. A full disk rejects new
//! tensors (which then stay in memory) and leaves stored ones intact.

use crate::Result;
use firebrand_core::autograd::{SavedHooksGuard, SpillStore, Spilled, save_in_store};
use firebrand_core::{Error, MappedFile, Storage};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// Tensors smaller than this stay in memory: a page of the file would cost more.
const AT_LEAST: usize = 64 * 1024;

/// While the guard lives, tensors saved for backward (from 64 KiB on) are kept in a file in `dir` instead of memory. The
/// file is unnamed and is deleted with the graph; it outlives the guard as long as the graph needs it.
///
/// ```
/// use firebrand_core::Tensor;
/// let x = Tensor::full([1 << 16], 0.5, firebrand_core::DType::F32).requires_grad_();
/// let y = {
///     let _on_disk = firebrand_io::save_on_disk(std::env::temp_dir())?;
///     x.sin().exp()
/// };
/// y.sum().backward();
/// assert!(x.grad().is_some());
/// # Ok::<(), firebrand_io::Error>(())
/// ```
pub fn save_on_disk(dir: impl AsRef<Path>) -> Result<SavedHooksGuard> {
    Ok(save_in_store(SpillFile::new(dir)?, AT_LEAST)?)
}

/// An unnamed file that holds the bytes of saved tensors.
#[derive(Clone)]
pub struct SpillFile(Arc<Mutex<Space>>);

firebrand_core::opaque_debug! { [] SpillFile => "SpillFile"; }

struct Space {
    file: File,
    /// Free ranges before `end`, sorted, never touching.
    free: Vec<Range<u64>>,
    end: u64,
    limit: u64,
}

impl Space {
    /// The first free range that is large enough, or the end of the file.
    fn take(&mut self, bytes: u64) -> std::io::Result<Range<u64>> {
        if let Some(k) = self.free.iter().position(|r| r.end - r.start >= bytes) {
            let range = self.free[k].start..self.free[k].start + bytes;
            self.free[k].start = range.end;
            if self.free[k].is_empty() {
                self.free.remove(k);
            }
            return Ok(range);
        }
        if self.end.checked_add(bytes).is_none_or(|end| end > self.limit) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::StorageFull,
                format!("{bytes} bytes do not fit: {} of {} are used", self.end, self.limit),
            ));
        }
        let range = self.end..self.end + bytes;
        self.end = range.end;
        Ok(range)
    }

    /// Joins a range with its free neighbors, and cuts the file where nothing follows.
    fn give_back(&mut self, mut range: Range<u64>) {
        let at = self.free.partition_point(|r| r.start < range.start);
        if self.free.get(at).is_some_and(|next| next.start == range.end) {
            range.end = self.free.remove(at).end;
        }
        if at > 0 && self.free[at - 1].end == range.start {
            range.start = self.free.remove(at - 1).start;
        }
        if range.end < self.end {
            let at = self.free.partition_point(|r| r.start < range.start);
            return self.free.insert(at, range);
        }
        self.end = range.start;
        // Only disk space is lost if this fails, and the range is used again first.
        let _ = self.file.set_len(self.end);
    }
}

impl SpillFile {
    /// A file in `dir`, bounded by the disk only.
    pub fn new(dir: impl AsRef<Path>) -> Result<SpillFile> {
        SpillFile::with_limit(dir, u64::MAX)
    }

    /// A file in `dir` that never grows beyond `limit` bytes.
    pub fn with_limit(dir: impl AsRef<Path>, limit: u64) -> Result<SpillFile> {
        let file = crate::atomic::nameless(dir.as_ref()).map_err(|e| e.in_file(dir.as_ref()))?;
        Ok(SpillFile(Arc::new(Mutex::new(Space { file, free: Vec::new(), end: 0, limit }))))
    }

    /// Current size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.lock().end
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Space> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn write(&self, bytes: &[u8]) -> std::io::Result<Region> {
        let mut space = self.lock();
        let range = space.take(bytes.len() as u64)?;
        let written = space.file.seek(SeekFrom::Start(range.start)).and_then(|_| space.file.write_all(bytes));
        if let Err(e) = written {
            space.give_back(range);
            return Err(e);
        }
        Ok(Region { file: self.clone(), range })
    }
}

impl SpillStore for SpillFile {
    fn put(&self, bytes: &Storage) -> firebrand_core::Result<Box<dyn Spilled>> {
        let bytes = crate::place::bytes(bytes).map_err(Error::user)?;
        Ok(Box::new(self.write(&bytes).map_err(Error::user)?))
    }
}

/// Where the bytes of one tensor lie.
struct Region {
    file: SpillFile,
    range: Range<u64>,
}

impl Spilled for Region {
    fn get(&self) -> firebrand_core::Result<Storage> {
        let file = self.file.lock().file.try_clone().map_err(Error::user)?;
        // The region is this object's as long as it lives, so nothing writes or cuts it while it is mapped.
        let mapped = MappedFile::new(file).map_err(Error::user)?;
        let (start, end) = (self.range.start as usize, self.range.end as usize);
        let bytes = mapped.bytes().get(start..end).ok_or_else(|| Error::user("the spill file was truncated"))?;
        Ok(Storage::from_bytes(bytes)?)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.file.lock().give_back(self.range.clone())
    }
}
