//! Why a file was refused or could not be written.

use std::path::PathBuf;

/// What every reader and writer returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file was refused or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system said no.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// An error with the file it concerns.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<Error>,
    },
    /// An error with the array it concerns.
    #[error("array `{name}`: {source}")]
    Array {
        /// Its name in the archive.
        name: String,
        /// What is wrong.
        source: Box<Error>,
    },
    /// The first bytes are not those of an npy file.
    #[error("not an npy file: it starts with {found:02x?}, expected 93 4e 55 4d 50 59 (\\x93NUMPY)")]
    Magic {
        /// What is there instead.
        found: Vec<u8>,
    },
    /// An npy version from the future.
    #[error("npy version {major}.{minor} is not known; 1.0, 2.0 and 3.0 are")]
    Version {
        /// Before the point.
        major: u8,
        /// After it.
        minor: u8,
    },
    /// The npy header is not the dictionary it should be.
    #[error("npy header: {reason} at byte {at}")]
    Header {
        /// What was expected.
        reason: String,
        /// Where in the header.
        at: usize,
    },
    /// An element type no tensor can hold.
    #[error(
        "element type {descr} has no tensor counterpart; cast the array to a float, a signed integer, uint8 or bool"
    )]
    ElementType {
        /// NumPy's type string.
        descr: String,
    },
    /// A shape that no memory can hold.
    #[error("shape {shape:?} is too large for this machine")]
    Shape {
        /// The sizes.
        shape: Vec<usize>,
    },
    /// The file ends too early.
    #[error("truncated: {needed} bytes are needed, {found} are there")]
    Truncated {
        /// How many the header asks for.
        needed: u64,
        /// How many there are.
        found: u64,
    },
    /// Not a zip archive, or a damaged one.
    #[error("zip archive: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// An archive that claims to hold more than its length allows.
    #[error("zip archive claims {claimed} bytes out of {stored} stored ones; no honest archive does")]
    Inflated {
        /// What it claims.
        claimed: u64,
        /// What it holds.
        stored: u64,
    },
    /// Two arrays of one name.
    #[error("two arrays are called `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// An error with the file of an archive it concerns.
    #[error("{name}: {source}")]
    Entry {
        /// Its name in the archive.
        name: String,
        /// What is wrong.
        source: Box<Error>,
    },
    /// A file that should be in an archive is not.
    #[error("`{name}` is missing from the archive")]
    MissingEntry {
        /// Its name.
        name: String,
    },
    /// The bytes are not what the format demands.
    #[error("archive truncated or damaged: {reason}")]
    Damaged {
        /// What is wrong.
        reason: String,
    },
    /// A name in an archive that could lead astray.
    #[error("the entry name `{}` {reason}", name.escape_debug())]
    EntryName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The content is not what was written.
    #[error("the checksum is {found:08x}, the archive says {expected:08x}: the content was damaged")]
    Checksum {
        /// What the archive says.
        expected: u32,
        /// What the content gives.
        found: u32,
    },
    /// More than a limit allows.
    #[error("{claimed} bytes are claimed, at most {limit} are allowed here")]
    TooLarge {
        /// What is claimed.
        claimed: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A pickle that is not plain data.
    #[error("pickle, byte {at}: {reason}")]
    Pickle {
        /// Where.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// Not a safetensors file, or a damaged one.
    #[error("safetensors: {reason}")]
    Safetensors {
        /// What is wrong.
        reason: String,
    },
    /// No tensor could be made, or its data could not be read.
    #[error(transparent)]
    Tensor(#[from] firebrand_core::Error),
}

impl Error {
    /// The same error, naming the file.
    pub fn in_file(self, path: impl Into<PathBuf>) -> Error {
        Error::File { path: path.into(), source: Box::new(self) }
    }

    /// The same error, naming the file of an archive.
    pub fn in_entry(self, name: &str) -> Error {
        Error::Entry { name: name.to_string(), source: Box::new(self) }
    }

    pub(crate) fn in_array(self, name: &str) -> Error {
        Error::Array { name: name.to_string(), source: Box::new(self) }
    }
}
