//! Input files: regular ones only, whose length is known before they are read.
//!
//! A FIFO could block a reader forever and a device could feed it without end, so both are errors, as are directories.

use crate::{Error, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The kind of a file that is not a regular file.
fn kind(found: &Metadata) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let t = found.file_type();
        if t.is_fifo() {
            return Some("a FIFO");
        } else if t.is_socket() {
            return Some("a socket");
        } else if t.is_char_device() || t.is_block_device() {
            return Some("a device");
        }
    }
    match found {
        m if m.is_dir() => Some(crate::error::DIRECTORY),
        m if m.is_file() => None,
        _ => Some("no file"),
    }
}

fn regular(found: &Metadata) -> Result<u64> {
    match kind(found) {
        None => Ok(found.len()),
        Some(what) => Err(Error::NotRegular { what }),
    }
}

/// Opens a regular file for reading and returns its length; anything else is an error, without blocking.
pub fn open_regular(path: impl AsRef<Path>) -> Result<(File, u64)> {
    let path = path.as_ref();
    let open = || -> Result<(File, u64)> {
        // Looked at before it is opened, because opening alone may wait or rewind a tape; and again afterwards, because
        // it may have been replaced in between.
        regular(&std::fs::metadata(path)?)?;
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        let file = options.open(path)?;
        let length = regular(&file.metadata()?)?;
        Ok((file, length))
    };
    open().map_err(|e| e.in_file(path))
}

/// The content of a regular file, up to the length it had when opened.
pub fn read_regular(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let (file, length) = open_regular(path)?;
    let read = || -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX)).map_err(|_| {
            std::io::Error::new(ErrorKind::OutOfMemory, format!("not enough memory for its {length} bytes"))
        })?;
        // One byte more tells whether the file grew.
        file.take(length.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            let reason = format!("its length was {length} bytes and changed while it was read; read it again");
            return Err(std::io::Error::new(ErrorKind::InvalidData, reason).into());
        }
        Ok(bytes)
    };
    read().map_err(|e| e.in_file(path))
}

/// The content of a regular file of UTF-8 text.
pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let refused = |at: usize| -> Error {
        std::io::Error::new(ErrorKind::InvalidData, format!("invalid UTF-8 at byte {at}")).into()
    };
    String::from_utf8(read_regular(path)?).map_err(|e| refused(e.utf8_error().valid_up_to()).in_file(path))
}
