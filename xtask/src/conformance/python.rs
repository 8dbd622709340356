//! The Python package gives PyTorch's results: builds the extension, puts it beside the package's Python files and runs the
//! package's tests, which compare every case with PyTorch.

use super::environment::{environment, must};
use crate::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What Python imports.
const EXTENSION: &str = "crates/python/python/firebrand/_firebrand.abi3.so";

/// Where cargo leaves it, by system.
fn library() -> PathBuf {
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    crate::target().join(format!("debug/{prefix}_firebrand{suffix}"))
}

/// Builds and tests; `venv` is an environment with PyTorch, numpy and pytest.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let root = crate::root();
    build(&root)?;
    let python = environment(venv, &["numpy", "pytest"])?.join("bin/python");
    let package = root.join("crates/python");
    must(
        Command::new(python)
            .current_dir(&package)
            .env("PYTHONPATH", package.join("python"))
            .args(["-m", "pytest", "-q"]),
    )?;
    Ok("the package's tests pass".to_string())
}

/// Builds the extension and puts it where Python finds it.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    must(Command::new(env!("CARGO")).current_dir(root).args(["build", "--package", "firebrand-python"]))?;
    place(root)
}

/// Likewise, and the command `firebrand` with it: in one go, so that what both need is built once. Says where the command is.
pub(crate) fn build_with_command(root: &Path) -> Result<PathBuf, String> {
    let packages = ["build", "--package", "firebrand-python", "--package", "firebrand-cli"];
    must(Command::new(env!("CARGO")).current_dir(root).args(packages))?;
    place(root)?;
    Ok(crate::target().join(format!("debug/firebrand{}", std::env::consts::EXE_SUFFIX)))
}

/// Puts the extension where Python finds it, once it is built.
pub(crate) fn place(root: &Path) -> Result<(), String> {
    copy(&library(), &root.join(EXTENSION))
}

/// Replaces rather than overwrites: a process may have the old one mapped.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let _ = std::fs::remove_file(to);
    std::fs::copy(from, to).map(drop).map_err(|e| format!("{}: {e}", to.display()))
}
