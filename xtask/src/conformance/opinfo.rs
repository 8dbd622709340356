//! PyTorch's own op database, sample by sample through export and `.pt2`: values, gradients, refusals, and a table of what differs.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Where the committed table stands.
const SUMMARY: &str = "docs/conformance/opinfo.md";

/// Compares all of it and writes the table, or some ops by name; `venv` is an environment that has PyTorch and
/// `expecttest`, which its database needs.
pub(super) fn run(venv: Option<&str>, only: &[&str]) -> Outcome {
    let root = crate::root();
    let build = ["build", "--quiet", "--release", "-p", "firebrand-cli"];
    must(Command::new(env!("CARGO")).current_dir(&root).args(build))?;
    let python = environment(venv, &["expecttest"])?.join("bin/python");
    let mut command = Command::new(python);
    command.arg(root.join("golden/conformance_opinfo.py")).arg(crate::target().join("release/firebrand"));
    // What PyTorch made is kept: it takes most of the time, and stays the same.
    command.arg("--programs").arg(root.join("target/opinfo")).args(["--jobs", "2"]);
    if only.is_empty() {
        command.arg("--summary").arg(root.join(SUMMARY));
        must(&mut command)?;
        return Ok(format!("written to {SUMMARY}; `git diff` shows what changed"));
    }
    must(command.arg("--only").args(only))?;
    Ok("done; the table is written by a run of all ops".to_string())
}
