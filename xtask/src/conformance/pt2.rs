//! What we write, PyTorch reads: every program of `golden/programs` is read and written by us, loaded by PyTorch, and
//! gives the outputs it gave before; programs we export with sizes that vary run there at other sizes. Needs an
//! environment with PyTorch.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Compares; `venv` is an environment that has PyTorch.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let root = crate::root();
    let scratch = root.join("target/conformance/pt2");
    let dynamic = scratch.join("dynamic");
    std::fs::create_dir_all(&dynamic).map_err(|e| format!("{}: {e}", dynamic.display()))?;
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
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&root).args(["run", "--quiet", "-p", "firebrand", "--example", "export", "--"]).arg(&dynamic);
    must(&mut command)?;
    let python = environment(venv, &[])?.join("bin/python");
    must(Command::new(python).arg(root.join("golden/conformance_pt2.py")).arg(&scratch))?;
    Ok("equal".to_string())
}
