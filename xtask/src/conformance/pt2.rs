//! What we write, PyTorch reads: every program of `golden/programs` is read and written by us, loaded by PyTorch, and
//! gives the outputs it gave before. Needs an environment with PyTorch.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Compares; `venv` is an environment that has PyTorch.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let root = crate::root();
    let scratch = root.join("target/conformance/pt2");
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&root).args(["run", "--quiet", "-p", "firebrand-graph", "--example", "rewrite", "--"]);
    let folders = std::fs::read_dir(root.join("golden/programs")).map_err(|e| format!("golden/programs: {e}"))?;
    for folder in folders.flatten() {
        for file in ["model", "model_core"] {
            let from = folder.path().join(format!("{file}.pt2"));
            if from.is_file() {
                let name = format!("{}.{file}.pt2", folder.file_name().to_string_lossy());
                command.arg(from).arg(scratch.join(name));
            }
        }
    }
    must(&mut command)?;
    let python = environment(venv, &[])?.join("bin/python");
    must(Command::new(python).arg(root.join("golden/conformance_pt2.py")).arg(&scratch))?;
    Ok("equal".to_string())
}
