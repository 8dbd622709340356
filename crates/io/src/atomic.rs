//! Atomic output files: written next to the target, then renamed over it.
//!
//! [`Output`] is one such file between writing and renaming, so that several can be written before the first appears.
//! A symbolic link is followed: what it points to is replaced, and the link stays. An existing file keeps its mode. A
//! FIFO or a device is never replaced: its content is prepared in a nameless file and then copied into it. Until it is
//! renamed, the file has a random hidden name in the same folder, and is removed if anything fails; programs that are
//! ended by a signal they can catch call [`remove_unfinished`]. File and folder are synced, so that after a crash there is
//! the old content or the new one. Hard links to a replaced file keep the old content.

use crate::{Error, Result};
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{BufWriter, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Files of this process that are not finished.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Removes every file of this process that is being written, for a program that is about to be ended by a signal. No
/// output can be started or finished afterwards: a caller that tries blocks until the program ends.
pub fn remove_unfinished() {
    let mut all = unfinished();
    for path in all.drain(..) {
        let _ = fs::remove_file(path);
    }
    std::mem::forget(all);
}

fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Output { reason: reason.into() })
}

/// What an output path refers to.
enum Place {
    /// A regular file, to be replaced, or nothing yet.
    Regular { target: PathBuf, existing: Option<Metadata> },
    /// A FIFO, a socket or a device, to be written as it is.
    Special(PathBuf),
}

/// The path itself, or what it links to, link by link; the last one need not exist.
fn follow(path: &Path) -> Result<PathBuf> {
    let mut path = path.to_path_buf();
    // As many links as Linux follows.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(link) => path = path.parent().unwrap_or(Path::new("")).join(link),
            Err(_) => return Ok(path),
        }
    }
    refuse("too many symbolic links")
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The folder where the content of a special file is prepared: the system's temporary one, if it has one.
fn waiting_room(special: &Path) -> PathBuf {
    if cfg!(target_family = "wasm") { folder(special).to_path_buf() } else { std::env::temp_dir() }
}

/// Resolves an output path; an error for what cannot be an output.
fn place(path: &Path) -> Result<Place> {
    let (target, existing) = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return refuse("is a directory; give the name of a file"),
        Ok(found) if !found.is_file() => return Ok(Place::Special(path.to_path_buf())),
        // The links of /proc lead to files that may have no path any more.
        Ok(found) => match fs::canonicalize(path) {
            Ok(target) => (target, Some(found)),
            // WASI has no whole paths.
            Err(_) if cfg!(target_family = "wasm") => (follow(path)?, Some(found)),
            Err(_) => return Ok(Place::Special(path.to_path_buf())),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => (follow(path)?, None),
        Err(e) => return Err(e.into()),
    };
    let ends_as_folder = target.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
    if target.file_name().is_none() || ends_as_folder {
        return refuse("is a directory; give the name of a file");
    }
    match fs::metadata(folder(&target)) {
        Ok(f) if f.is_dir() => {}
        _ => return refuse(format!("no such directory: {}", crate::plain(&folder(&target).display().to_string()))),
    }
    Ok(Place::Regular { target, existing })
}

/// A new file under a random hidden name beside `target`.
fn neighbor(target: &Path, existing: Option<&Metadata>) -> Result<(PathBuf, File)> {
    const TRIES: usize = 32;
    // Long names must leave room for what is added.
    let name: String = target.file_name().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(not(unix))]
    let _ = existing;
    #[cfg(unix)]
    if let Some(existing) = existing {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        // Never more open than what it replaces, not even while it is written.
        options.mode(existing.mode() & 0o700);
    }
    for _ in 0..TRIES {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let path = target.with_file_name(format!(".{name}.{random:016x}.tmp"));
        // Known as unfinished before it exists, so that no signal falls between.
        unfinished().push(path.clone());
        match options.open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) => {
                unfinished().retain(|p| *p != path);
                if e.kind() != ErrorKind::AlreadyExists {
                    return Err(e.into());
                }
            }
        }
    }
    refuse("no free temporary name in its directory")
}

/// An unnamed file in a folder, deleted when it is closed.
pub(crate) fn nameless(folder: &Path) -> Result<File> {
    let (path, file) = neighbor(&folder.join("firebrand"), None)?;
    let removed = fs::remove_file(&path);
    unfinished().retain(|p| *p != path);
    removed?;
    Ok(file)
}

enum State {
    Replaces { temporary: PathBuf, target: PathBuf },
    Copied { content: File, special: PathBuf },
    Done,
}

/// A file that is written but not visible yet. Dropping it removes it.
#[must_use = "an output appears when it is committed"]
pub struct Output {
    path: PathBuf,
    state: State,
}

impl Output {
    /// Writes the content of a file through `fill`. What is at `path` is unchanged until [`Output::commit`].
    pub fn write(path: impl AsRef<Path>, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<Output> {
        let mut fill = Some(fill);
        // Compiled once: only the call of `fill` differs.
        Output::write_dyn(path.as_ref(), &mut |out| fill.take().map_or(Ok(()), |fill| fill(out)))
    }

    fn write_dyn(path: &Path, fill: &mut dyn FnMut(&mut BufWriter<File>) -> Result<()>) -> Result<Output> {
        let mut write = || -> Result<Output> {
            let mut existing = None;
            let (state, file) = match place(path)? {
                Place::Regular { target, existing: found } => {
                    let (temporary, file) = neighbor(&target, found.as_ref())?;
                    existing = found;
                    (State::Replaces { temporary, target }, file)
                }
                Place::Special(special) => {
                    let content = nameless(&waiting_room(&special))?;
                    let file = content.try_clone()?;
                    (State::Copied { content, special }, file)
                }
            };
            let output = Output { path: path.to_path_buf(), state };
            let mut out = BufWriter::new(file);
            fill(&mut out)?;
            out.flush()?;
            if let Some(existing) = &existing {
                keep_owner_and_mode(out.get_ref(), existing)?;
            }
            // The name must not appear before the content is safe.
            out.get_ref().sync_all()?;
            Ok(output)
        };
        write().map_err(|e| e.in_file(path))
    }

    /// Makes the file visible under its name.
    pub fn commit(mut self) -> Result<()> {
        let commit = |state: &mut State| -> Result<()> {
            match state {
                State::Replaces { temporary, target } => {
                    fs::rename(&*temporary, &*target)?;
                    unfinished().retain(|p| p != temporary);
                    sync_folder(folder(target));
                }
                State::Copied { content, special } => {
                    content.rewind()?;
                    let mut out = OpenOptions::new().write(true).open(special)?;
                    std::io::copy(content, &mut out)?;
                }
                State::Done => {}
            }
            *state = State::Done;
            Ok(())
        };
        commit(&mut self.state).map_err(|e| e.in_file(&self.path))
    }

    /// Makes several files visible. What can still fail comes first: a FIFO whose reader has gone is found
    /// before any file is renamed.
    pub fn commit_all(outputs: impl IntoIterator<Item = Output>) -> Result<()> {
        let special = |o: &Output| matches!(o.state, State::Copied { .. });
        let (first, then): (Vec<Output>, Vec<Output>) = outputs.into_iter().partition(special);
        first.into_iter().chain(then).try_for_each(Output::commit)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let State::Replaces { temporary, .. } = &self.state {
            // Nothing better can be done about a file that will not go away.
            let _ = fs::remove_file(temporary);
            unfinished().retain(|p| p != temporary);
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Output").field(&self.path).finish()
    }
}

/// A file that replaces another keeps its mode, and its owner if permitted.
#[cfg(unix)]
fn keep_owner_and_mode(file: &File, existing: &Metadata) -> Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let fresh = file.metadata()?;
    if (fresh.uid(), fresh.gid()) != (existing.uid(), existing.gid()) {
        // Only root may give files away; for others the file becomes theirs, as any file they write anew does.
        let _ = fchown(file, Some(existing.uid()), Some(existing.gid()));
    }
    // After the owner, because a change of owner clears bits of the mode.
    Ok(file.set_permissions(existing.permissions())?)
}

#[cfg(not(unix))]
fn keep_owner_and_mode(_: &File, _: &Metadata) -> Result<()> {
    Ok(())
}

/// Makes a rename durable. The file is in place either way, so failure here is not an error.
fn sync_folder(folder: &Path) {
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|f| f.sync_all());
    #[cfg(not(unix))]
    let _ = folder;
}

/// Checks that outputs can be written, before any work is done and without leaving anything behind. Folders,
/// missing folders, files and folders without write permission, and two names of one file are errors.
pub fn check_outputs<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<()> {
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let mut check = || -> Result<()> {
            let Place::Regular { target, existing } = place(path)? else { return Ok(()) };
            if existing.is_some() {
                OpenOptions::new().write(true).open(&target)?;
            }
            // Whether a file can be made there is best found out by making one.
            drop(Output {
                path: path.to_path_buf(),
                state: {
                    let (temporary, _) = neighbor(&target, None)?;
                    State::Replaces { temporary, target: target.clone() }
                },
            });
            let whole = match fs::canonicalize(folder(&target)) {
                Err(_) if cfg!(target_family = "wasm") => folder(&target).to_path_buf(),
                whole => whole?,
            };
            let whole = whole.join(target.file_name().unwrap_or_default());
            if seen.contains(&whole) {
                return refuse("another output of this run has the same name");
            }
            seen.push(whole);
            Ok(())
        };
        check().map_err(|e| e.in_file(path))?;
    }
    Ok(())
}

/// Writes a file through `fill`. If anything fails, what was at `path` is unchanged.
pub fn write_atomic(path: impl AsRef<Path>, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    Output::write(path, fill)?.commit()
}

/// Writes a text file atomically.
pub fn write_text(path: impl AsRef<Path>, text: &str) -> Result<()> {
    write_atomic(path, |out| Ok(out.write_all(text.as_bytes())?))
}
