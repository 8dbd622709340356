//! f32 results and gradients are as near to f64 truth as PyTorch's are, for every row of the op table, larger cases and ten
//! models. `golden/conformance_accuracy.py` says how errors are measured and what is required.

use super::environment::{environment, must};
use crate::Outcome;
use std::process::Command;

/// Compares; `venv` is an environment that has PyTorch.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let root = crate::root();
    for build in [["-p", "firebrand-opinfo", "--example", "evaluate"], ["-p", "firebrand-cli", "--bin", "firebrand"]] {
        must(Command::new(env!("CARGO")).current_dir(&root).args(["build", "--quiet", "--release"]).args(build))?;
    }
    let python = environment(venv, &[])?.join("bin/python");
    let release = crate::target().join("release");
    let mut compare = Command::new(python);
    compare.arg(root.join("golden/conformance_accuracy.py"));
    must(compare.arg(release.join("examples/evaluate")).arg(release.join("firebrand")))?;
    Ok("as accurate as PyTorch, but for the exceptions listed".to_string())
}
