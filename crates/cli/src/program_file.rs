//! Program files: `.pt2` archives and graphs in text format (`.fb`), distinguished by their first bytes.

use crate::refusal::{Done, Refusal};
use firebrand::graph::text::{Form, parse, print};
use firebrand::graph::{Error, ExportedProgram, LoadOptions, SaveOptions};
use firebrand::io::{Archive, Output, open_regular, plain, read_regular};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The format of a program file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Format {
    /// An archive.
    Pt2,
    /// Text.
    Text,
}

/// Where an output goes: `-` is standard output, where the system has a file for it.
pub(crate) fn output(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" if cfg!(unix) => Ok(PathBuf::from("/dev/stdout")),
        "-" => Err("standard output has no name on this system; write to a file".to_string()),
        text => Ok(PathBuf::from(text)),
    }
}

/// Whether an output is standard output, where nothing else may then be printed.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("/dev/stdout")
}

/// Reads a program.
pub(crate) fn read(path: &Path, options: &LoadOptions) -> Done<(ExportedProgram, Format)> {
    let named = |e: &dyn std::fmt::Display| Refusal::because(format!("{}: {e}", plain(&path.display().to_string())));
    open_regular(path)?; // so that its error is reported
    // A file too short to be an archive is read as text.
    if is_zip(path) == Some(true) {
        return Ok((load(path, options)?, Format::Pt2));
    }
    let neither = "expected a .pt2 archive or a graph in text form";
    let text = String::from_utf8(read_regular(path)?).map_err(|_| named(&format!("{neither}, found binary data")))?;
    if text.trim().is_empty() {
        return Err(named(&format!("{neither}, found an empty file")));
    }
    match parse(&text) {
        Ok(program) => Ok((program, Format::Text)),
        // Where not even the first line is that of a graph, the text is something else.
        Err(e @ Error::Text { line: 1, .. }) => Err(named(&format!("{neither}: {e}"))),
        Err(e) => Err(named(&e)),
    }
}

/// Loads an archive. The error names the file; if that is of another known kind, it says which.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Done<ExportedProgram> {
    ExportedProgram::load_with(path, options).map_err(|e| {
        let path_shown = plain(&path.display().to_string()).into_owned();
        match (known_kind(path).filter(|kind| *kind != PROGRAM), e) {
            (Some(kind), _) => Refusal::because(format!(
                "{path_shown}: this is {kind}, not an exported program; {HOW_TO_EXPORT}"
            )),
            (None, _) if is_zip(path) == Some(false) => Refusal::because(format!(
                "{path_shown}: expected an exported program (.pt2), found a file that is not a zip archive; {HOW_TO_EXPORT}"
            )),
            // It names the file itself.
            (None, Error::Io(e @ firebrand::io::Error::File { .. })) => Refusal::because(e),
            (None, e) => Refusal::because(format!("{path_shown}: {e}")),
        }
    })
}

/// What to say of a file that could not be read as `expected`: what it is instead, if that is known, or else the error.
pub(crate) fn of_other_kind(path: &Path, expected: &str, e: firebrand::io::Error) -> Refusal {
    match known_kind(path).filter(|kind| *kind != ARRAYS) {
        Some(kind) => {
            let path = plain(&path.display().to_string()).into_owned();
            Refusal::because(format!("{path}: this is {kind}, not {expected}"))
        }
        None => e.into(),
    }
}

/// Whether a regular file begins like a zip archive; `None` if it cannot be read.
fn is_zip(path: &Path) -> Option<bool> {
    let mut first = [0; 2];
    let (mut file, _) = open_regular(path).ok()?;
    Some(std::io::Read::read_exact(&mut file, &mut first).is_ok() && &first == b"PK")
}

/// What to do where there is no program.
const HOW_TO_EXPORT: &str = "in Python: torch.export.save(torch.export.export(model, inputs), \"model.pt2\")";

const PROGRAM: &str = "an exported program";
const ARRAYS: &str = "an archive of arrays (.npz)";

/// The kind of a file, as far as it is known here.
fn known_kind(path: &Path) -> Option<&'static str> {
    let Ok(archive) = Archive::open(path) else {
        let mut first = [0; 6];
        let (mut file, _) = open_regular(path).ok()?;
        let array = std::io::Read::read_exact(&mut file, &mut first).is_ok() && &first == b"\x93NUMPY";
        return array.then_some("an array (.npy)");
    };
    let has = |end: &str| archive.names().any(|n| n.ends_with(end));
    Some(match () {
        // First, because programs contain files of the other kinds.
        () if has("archive_format") || has("serialized_exported_program.json") => PROGRAM,
        () if has("constants.pkl") => "a TorchScript module",
        () if has("data.pkl") => "a torch.save file",
        () if has(".npy") => ARRAYS,
        () => return None,
    })
}

/// Stages a program in this format: it appears, whole, when it is committed.
pub(crate) fn stage(path: &Path, program: &ExportedProgram, format: Format, form: Form) -> Done<Output> {
    match format {
        Format::Pt2 => program.stage_with(path, SaveOptions::default()).map_err(Refusal::because),
        Format::Text => Ok(Output::write(path, |out| Ok(out.write_all(print(program, form).as_bytes())?))?),
    }
}
