//! Errors of reading and writing files.

use std::path::PathBuf;

/// The result of readers and writers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// So that `?` works in functions that return `firebrand::Result`; the error is its source.
impl From<Error> for firebrand_core::Error {
    fn from(e: Error) -> firebrand_core::Error {
        firebrand_core::Error::user(e)
    }
}

/// Why a file was refused or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// An error with the file it concerns.
    #[error("{}: {source}", plain(&path.display().to_string()))]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<Error>,
    },
    /// An error with the array it concerns.
    #[error("array `{}`: {source}", plain(name))]
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
    /// An unknown npy version.
    #[error("unsupported npy version {major}.{minor}; expected 1.0, 2.0 or 3.0")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The npy header is not the dictionary it should be.
    #[error("npy header: {} at byte {at}", plain(reason))]
    Header {
        /// What was expected.
        reason: String,
        /// Where in the header.
        at: usize,
    },
    /// An element type no tensor can hold.
    #[error(
        "element type {} has no tensor counterpart; cast the array to a float, a signed integer, uint8 or bool",
        plain(descr)
    )]
    ElementType {
        /// NumPy's type string.
        descr: String,
    },
    /// A shape that is too large.
    #[error("shape {shape:?} is too large for this machine")]
    Shape {
        /// The sizes.
        shape: Vec<usize>,
    },
    /// The file ends too early.
    #[error("truncated: expected {needed} bytes, found {found}")]
    Truncated {
        /// Bytes that the header requires.
        needed: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// Not a zip archive, or a damaged one.
    #[error("{}", zip_reason(.0))]
    Zip(#[from] zip::result::ZipError),
    /// An archive that claims to hold more than its length allows.
    #[error("zip archive claims {claimed} bytes from {stored} stored ones: implausible compression ratio")]
    Inflated {
        /// What it claims.
        claimed: u64,
        /// What it holds.
        stored: u64,
    },
    /// Two arrays with one name.
    #[error("two arrays are named `{}`", plain(name))]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// An error with the file of an archive it concerns.
    #[error("{}: {source}", plain(name))]
    Entry {
        /// Its name in the archive.
        name: String,
        /// What is wrong.
        source: Box<Error>,
    },
    /// A file that should be in an archive is not.
    #[error("`{}` is missing from the archive", plain(name))]
    MissingEntry {
        /// Its name.
        name: String,
    },
    /// The bytes violate the format.
    #[error("archive truncated or damaged: {reason}")]
    Damaged {
        /// What is wrong.
        reason: String,
    },
    /// The first bytes are those of no format that is read here.
    #[error("unknown format; expected {expected}")]
    UnknownFormat {
        /// The formats.
        expected: &'static str,
    },
    /// An unsafe name in an archive.
    #[error("the entry name `{}` {reason}", plain(name))]
    EntryName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The checksum does not match.
    #[error("checksum mismatch: expected {expected:08x}, found {found:08x}; the content is damaged")]
    Checksum {
        /// What the archive says.
        expected: u32,
        /// What the content gives.
        found: u32,
    },
    /// More than a limit allows.
    #[error("claims {claimed} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What is claimed.
        claimed: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Reading would take more memory than the input justifies.
    #[error(
        "reading its {input} bytes would take more than {limit} bytes of memory, the limit for an input of this size; \
         store it uncompressed, or in smaller parts"
    )]
    Budget {
        /// Bytes of the input.
        input: u64,
        /// The memory it may use.
        limit: u64,
    },
    /// Only regular files are read.
    #[error("expected a regular file, found {what}{}", advice(what))]
    NotRegular {
        /// What it is.
        what: &'static str,
    },
    /// An output that cannot be written there.
    #[error("cannot be written: {reason}")]
    Output {
        /// Why not.
        reason: String,
    },
    /// A pickle that is not plain data.
    #[error("pickle, byte {at}: {}", plain(reason))]
    Pickle {
        /// Where.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// Not a safetensors file, or a damaged one.
    #[error("safetensors: {}", plain(reason))]
    Safetensors {
        /// What is wrong.
        reason: String,
    },
    /// A tensor could not be created, or its data could not be read.
    #[error(transparent)]
    Tensor(#[from] firebrand_core::Error),
}

/// What to do about an input that is not a regular file.
fn advice(what: &str) -> &'static str {
    if what == DIRECTORY { "" } else { "; copy its content to a file first" }
}

/// What the kind of a directory is called.
pub(crate) const DIRECTORY: &str = "a directory";

/// What the zip library says, in words for people who have a file and not the format's specification.
fn zip_reason(e: &zip::result::ZipError) -> String {
    match e {
        zip::result::ZipError::InvalidArchive(_) => format!("zip archive truncated or damaged ({e})"),
        e => format!("zip archive: {e}"),
    }
}

/// Text of a file made safe to print: control characters and those that change the direction of text are escaped, as
/// JSON escapes them, so that a file cannot send control sequences to a terminal.
pub fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let shown = |c: char| {
        !(c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    if text.chars().all(shown) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if shown(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Every one of these is in the plane that four digits reach.
            c => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    out.into()
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
