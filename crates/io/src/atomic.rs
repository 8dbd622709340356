//! Files that appear whole or not at all: written beside their place, then renamed into it.

use crate::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Removes the unfinished file unless it was renamed.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Nothing better can be done about a file that will not go away.
            let _ = fs::remove_file(path);
        }
    }
}

/// A name in the same folder (a rename across file systems would not be atomic) that no other writer uses.
fn neighbour(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, "a file name is needed, this is a folder")
    })?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.{}.tmp", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    Ok(path.with_file_name(hidden))
}

/// Writes a file through `fill`. If anything fails, `path` is as it was before.
pub fn write_atomic(path: impl AsRef<Path>, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    let write = || -> Result<()> {
        let temporary = neighbour(path)?;
        let mut out = BufWriter::new(File::create_new(&temporary)?);
        let mut unfinished = Unfinished(Some(temporary.clone()));
        fill(&mut out)?;
        out.flush()?;
        // The name must not appear before the content is safe.
        out.get_ref().sync_all()?;
        fs::rename(&temporary, path)?;
        unfinished.0 = None;
        Ok(())
    };
    write().map_err(|e: Error| e.in_file(path))
}

/// Writes a text file, whole or not at all.
pub fn write_text(path: impl AsRef<Path>, text: &str) -> Result<()> {
    write_atomic(path, |out| Ok(out.write_all(text.as_bytes())?))
}
