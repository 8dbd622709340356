//! LoRA and generation against the Python libraries that people know them from: PEFT and transformers.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Runs `script` with the built program; `venv` is an environment that has PyTorch, transformers and PEFT.
pub(super) fn run(script: &str, venv: Option<&str>) -> Outcome {
    let root = crate::root();
    let build = ["build", "--quiet", "--release", "-p", "firebrand-cli"];
    must(Command::new(env!("CARGO")).current_dir(&root).args(build))?;
    let python = environment(venv, &["transformers", "peft"])?.join("bin/python");
    let program = crate::target().join("release/firebrand");
    must(Command::new(python).arg(root.join("golden").join(script)).arg(program))?;
    Ok("equal".to_string())
}
