//! Models that people use, exported small and with random weights, run and train here as they do in PyTorch.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Compares; `venv` is an environment that has PyTorch and, as far as they should be compared, torchvision, timm and
/// transformers.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let root = crate::root();
    let build = ["build", "--quiet", "--release", "-p", "firebrand-cli"];
    must(Command::new(env!("CARGO")).current_dir(&root).args(build))?;
    let python = environment(venv, &["torchvision", "timm", "transformers"])?.join("bin/python");
    let program = crate::target().join("release/firebrand");
    must(Command::new(python).arg(root.join("golden/conformance_models.py")).arg(program))?;
    Ok("equal".to_string())
}
