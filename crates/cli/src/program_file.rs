//! Program files: `.pt2` archives and graphs in text format (`.fb`), distinguished by their first bytes.

use crate::refusal::{Done, Refusal};
use firebrand::graph::text::{Form, parse, print};
use firebrand::graph::{ExportedProgram, LoadOptions, SaveOptions};
use firebrand::io::{Output, open_regular, plain, read_regular};
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

/// Reads a program.
pub(crate) fn read(path: &Path, options: &LoadOptions) -> Done<(ExportedProgram, Format)> {
    let named = |e: &dyn std::fmt::Display| Refusal::because(format!("{}: {e}", plain(&path.display().to_string())));
    let mut first = [0; 2];
    let (mut file, _) = open_regular(path)?;
    // A file too short to be an archive is read as text.
    let archive = std::io::Read::read_exact(&mut file, &mut first).is_ok() && &first == b"PK";
    if archive {
        let program = ExportedProgram::load_with(path, options).map_err(|e| match e {
            // The error already names the file.
            e @ firebrand::graph::Error::Io(_) => Refusal::because(e),
            e => named(&e),
        })?;
        return Ok((program, Format::Pt2));
    }
    let text = String::from_utf8(read_regular(path)?).map_err(|_| named(&"neither an archive nor UTF-8 text"))?;
    Ok((parse(&text).map_err(|e| named(&e))?, Format::Text))
}

/// Stages a program in this format: it appears, whole, when it is committed.
pub(crate) fn stage(path: &Path, program: &ExportedProgram, format: Format, form: Form) -> Done<Output> {
    match format {
        Format::Pt2 => program.stage_with(path, SaveOptions::default()).map_err(Refusal::because),
        Format::Text => Ok(Output::write(path, |out| Ok(out.write_all(print(program, form).as_bytes())?))?),
    }
}
