//! Writes the generated parts of core and of the Python package, or says that they are stale.

use crate::{Outcome, root};
use firebrand_codegen::emit::{Source, generate, python_table};
use firebrand_codegen::{Dialect, lint};
use std::path::Path;

const OPS: &str = "schema/ops.yaml";
const DERIVATIVES: &str = "schema/derivatives.yaml";
const NAMES: &str = "schema/python.yaml";
const CORE: &str = "crates/core/src/ops/generated";
const PYTHON: &str = "crates/python/src/generated";

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Every generated file: its path in the workspace, and its text.
fn generated(root: &Path) -> Result<Vec<(String, String)>, String> {
    let (ops, derivatives, names) = (read(root, OPS)?, read(root, DERIVATIVES)?, read(root, NAMES)?);
    let ops = Source { name: OPS, text: &ops };
    let derivatives = Source { name: DERIVATIVES, text: &derivatives };
    let core = generate(ops, derivatives).map_err(|e| e.to_string())?;
    let python = python_table(ops, derivatives, Source { name: NAMES, text: &names }).map_err(|e| e.to_string())?;
    let mut files: Vec<_> = core.into_iter().map(|f| (format!("{CORE}/{}", f.name), f.text)).collect();
    files.push((format!("{PYTHON}/{}", python.name), python.text));
    Ok(files)
}

/// Writes every file whose content changed, in the workspace at `root`.
pub(crate) fn write(root: &Path) -> Outcome {
    let files = generated(root)?;
    let mut written = 0;
    for (path, text) in &files {
        let path = root.join(path);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(path.parent().unwrap_or(root))?;
            std::fs::write(&path, text)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))?;
        written += 1;
    }
    Ok(format!("{written} of {} files in {CORE} and {PYTHON} changed", files.len()))
}

/// Fails if some file is not what would be written.
pub(crate) fn check() -> Outcome {
    let is_stale =
        |(path, text): &(String, String)| !std::fs::read_to_string(root().join(path)).is_ok_and(|found| found == *text);
    match generated(&root())?.into_iter().find(is_stale) {
        None => Ok(format!("{CORE} and {PYTHON} are up to date")),
        Some((path, _)) => Err(format!("{path} is stale; run `cargo xtask codegen`")),
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
