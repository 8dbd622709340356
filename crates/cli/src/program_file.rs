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

/// Reads a program.
pub(crate) fn read(path: &Path, options: &LoadOptions) -> Done<(ExportedProgram, Format)> {
    let named = |e: &dyn std::fmt::Display| Refusal::because(format!("{}: {e}", plain(&path.display().to_string())));
    let mut first = [0; 2];
    let (mut file, _) = open_regular(path)?;
    // A file too short to be an archive is read as text.
    let archive = std::io::Read::read_exact(&mut file, &mut first).is_ok() && &first == b"PK";
    if archive {
        return Ok((load(path, options)?, Format::Pt2));
    }
    let text = String::from_utf8(read_regular(path)?).map_err(|_| named(&"neither an archive nor UTF-8 text"))?;
    Ok((parse(&text).map_err(|e| named(&e))?, Format::Text))
}

/// Loads an archive. The error names the file; if that is of another known kind, it says which.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Done<ExportedProgram> {
    ExportedProgram::load_with(path, options).map_err(|e| {
        let path_shown = plain(&path.display().to_string()).into_owned();
        match (other_kind(path), e) {
            (Some(kind), _) => Refusal::because(format!(
                "{path_shown}: this is {kind}, not an exported program; in Python: torch.export.save(torch.export.export(model, inputs), \"model.pt2\")"
            )),
            // It names the file itself.
            (None, Error::Io(e @ firebrand::io::Error::File { .. })) => Refusal::because(e),
            (None, e) => Refusal::because(format!("{path_shown}: {e}")),
        }
    })
}

/// The kind of a file that is not a program.
fn other_kind(path: &Path) -> Option<&'static str> {
    let Ok(archive) = Archive::open(path) else {
        let mut first = [0; 6];
        let (mut file, _) = open_regular(path).ok()?;
        let array = std::io::Read::read_exact(&mut file, &mut first).is_ok() && &first == b"\x93NUMPY";
        return array.then_some("an array (.npy)");
    };
    let has = |end: &str| archive.names().any(|n| n.ends_with(end));
    // Programs contain files of these kinds.
    if has("archive_format") || has("serialized_exported_program.json") {
        return None;
    }
    Some(match () {
        () if has("constants.pkl") => "a TorchScript module",
        () if has("data.pkl") => "a torch.save file",
        () if has(".npy") => "an archive of arrays (.npz)",
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
