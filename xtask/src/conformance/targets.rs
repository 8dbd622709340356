//! Other systems: the façade and the C library pass `cargo check` for them. Nothing is linked, so no SDK is needed, only the
//! standard library of each.

use super::cross::need_target;
use super::environment::must;
use crate::Outcome;
use std::process::Command;

const TARGETS: [&str; 6] = [
    "x86_64-pc-windows-gnu",
    "x86_64-pc-windows-msvc",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
    "aarch64-apple-ios",
    "aarch64-linux-android",
];

/// Checks the named targets, or all that are installed, and says which are not.
pub(super) fn run(only: &[&str]) -> Outcome {
    let wanted: Vec<&str> = if only.is_empty() { TARGETS.to_vec() } else { only.to_vec() };
    let (installed, missing): (Vec<&str>, Vec<&str>) = wanted.into_iter().partition(|t| need_target(t).is_ok());
    if installed.is_empty() || !only.is_empty() && !missing.is_empty() {
        return Err(format!("standard libraries are missing; `rustup target add {}` gets them", missing.join(" ")));
    }
    for target in &installed {
        println!("{target}");
        let arguments = ["check", "--quiet", "-p", "firebrand", "-p", "firebrand-capi", "--target", target];
        must(Command::new(env!("CARGO")).current_dir(crate::root()).args(arguments))?;
    }
    let skipped = match &missing[..] {
        [] => String::new(),
        missing => format!("; not installed, get them by `rustup target add {}`", missing.join(" ")),
    };
    Ok(format!("checked for {}{skipped}", installed.join(", ")))
}
