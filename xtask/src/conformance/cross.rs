//! What the checks on other machines share: whether a target is installed, the test programs that Cargo builds for it, and
//! the lists of tests that cannot run there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A target's standard library, or an error that says how to get it.
pub(crate) fn need_target(target: &str) -> Result<(), String> {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| format!("rustc: {e}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    if sysroot.join("lib/rustlib").join(target).exists() {
        return Ok(());
    }
    Err(format!("the standard library of {target} is missing; `rustup target add {target}` gets it"))
}

/// A program that can be started, or an error that says how to get it.
pub(super) fn need_program(program: &str, advice: &str) -> Result<(), String> {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|s| s.success()) { Ok(()) } else { Err(format!("{program} is missing; {advice}")) }
}

/// A program that Cargo built.
pub(super) struct Program {
    /// The name of the test file or example; of the crate for unit tests.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The folder of its package, in which Cargo runs tests.
    pub(super) package: PathBuf,
}

/// The program that a message of Cargo's names.
fn executable(message: &str) -> Option<Program> {
    let text = |from: &str, key: &str| {
        let (_, rest) = from.split_once(&format!("\"{key}\":\""))?;
        Some(rest.split_once('"')?.0.to_string())
    };
    let (path, mut package) = (text(message, "executable")?.into(), PathBuf::from(text(message, "manifest_path")?));
    package.pop();
    let (_, target) = message.split_once("\"target\":{")?;
    Some(Program { name: text(target, "name")?, path, package })
}

/// What Cargo is to build of the test programs: all, or those with these names (test files; crates for their unit tests).
pub(super) fn programs<'a>(only: &[&'a str]) -> Vec<&'a str> {
    if only.is_empty() {
        return vec!["--lib", "--tests"];
    }
    only.iter()
        .flat_map(|name| if name.starts_with("firebrand_") { vec!["--lib"] } else { vec!["--test", name] })
        .collect()
}

/// Runs a command of Cargo's that builds, for `target`, and returns the programs it made.
pub(super) fn build(mut cargo: Command, target: &str) -> Result<Vec<Program>, String> {
    cargo.args(["--quiet", "--target", target, "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect())
}

/// The tests of a list, by program: lines of `program test: reason`.
pub(super) fn excluded(list: &'static str, file: &str) -> Result<BTreeMap<&'static str, Vec<&'static str>>, String> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in list.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let bad = || format!("{file}: expected `program test: reason`, found {line:?}");
        let (test, reason) = line.split_once(": ").ok_or_else(bad)?;
        let (program, test) = test.split_once(' ').ok_or_else(bad)?;
        if reason.trim().is_empty() {
            return Err(bad());
        }
        all.entry(program).or_default().push(test);
    }
    Ok(all)
}
