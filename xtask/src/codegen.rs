//! Writes the generated part of core, or says that it is stale.

use crate::{Outcome, root};
use firebrand_codegen::emit::{GeneratedFile, Source, generate};
use firebrand_codegen::{Dialect, lint};
use std::path::Path;

const OPS: &str = "schema/ops.yaml";
const DERIVATIVES: &str = "schema/derivatives.yaml";
const FOLDER: &str = "crates/core/src/ops/generated";

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

fn generated(root: &Path) -> Result<Vec<GeneratedFile>, String> {
    let (ops, derivatives) = (read(root, OPS)?, read(root, DERIVATIVES)?);
    generate(Source { name: OPS, text: &ops }, Source { name: DERIVATIVES, text: &derivatives })
        .map_err(|e| e.to_string())
}

/// Writes every file whose content changed, in the workspace at `root`.
pub(crate) fn write(root: &Path) -> Outcome {
    let files = generated(root)?;
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{FOLDER}: {e}"))?;
    let mut written = 0;
    for file in &files {
        let path = folder.join(file.name);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == file.text) {
            continue;
        }
        std::fs::write(&path, &file.text).map_err(|e| format!("{}: {e}", path.display()))?;
        written += 1;
    }
    Ok(format!("{written} of {} files in {FOLDER} changed", files.len()))
}

/// Fails if some file is not what would be written.
pub(crate) fn check() -> Outcome {
    let stale = generated(&root())?.into_iter().find(|file| {
        let found = std::fs::read_to_string(root().join(FOLDER).join(file.name));
        !found.is_ok_and(|text| text == file.text)
    });
    match stale {
        None => Ok(format!("{FOLDER} is up to date")),
        Some(file) => Err(format!("{FOLDER}/{} is stale; run `cargo xtask codegen`", file.name)),
    }
}

/// Fails if some formula means something else than it seems to.
pub(crate) fn lint() -> Outcome {
    let (ops, derivatives) = (read(&root(), OPS)?, read(&root(), DERIVATIVES)?);
    let report =
        lint::lint(&ops, &derivatives, Dialect::Rust).map_err(|e| e.with_files(OPS, DERIVATIVES).to_string())?;
    match report.findings.as_slice() {
        [] => Ok(format!("{} entries, {} formulas", report.entries, report.formulas)),
        _ => Err(format!("{DERIVATIVES}\n{report}")),
    }
}
