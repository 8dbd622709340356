//! Reads PyTorch's own declarations and derivatives with our generator and with torchgen, and compares what each
//! understood: infos, matches, nodes and wrappers as canonical JSON, byte for byte.
//!
//! The files are those that a PyTorch wheel carries, so nothing of PyTorch is kept here. Needs Python once to make an
//! environment outside the workspace, unless one is given.

use super::environment::{environment, must, site_packages};
use crate::Outcome;
use firebrand_codegen::{Dialect, Sources, Stage, yaml};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const ORACLE: &str = "golden/oracle_codegen.py";

/// Compares; `venv` is an environment that has PyTorch, else one is made under `~/.cache/firebrand`.
pub(super) fn run(venv: Option<&str>) -> Outcome {
    let venv = environment(venv, &[])?;
    let python = venv.join("bin/python");
    let packaged = site_packages(&venv)?.join("torchgen/packaged");
    let native = read(&packaged.join("ATen/native/native_functions.yaml"))?;
    let derivatives = read(&packaged.join("autograd/derivatives.yaml"))?;

    let sources = Sources { native: &native, derivatives: &derivatives, tags: None, dialect: Dialect::Cpp };
    let began = Instant::now();
    let ours = firebrand_codegen::dump(&native, &derivatives, true).map_err(|e| e.to_string())?;
    let our_time = began.elapsed().as_secs_f64();

    let scratch = std::env::temp_dir().join(format!("firebrand-torchgen-{}.json", std::process::id()));
    let began = Instant::now();
    let mut command = Command::new(&python);
    command.arg(crate::root().join(ORACLE)).args(["--wheel", "--plan", "--out"]).arg(&scratch);
    let ran = must(&mut command);
    let their_time = began.elapsed().as_secs_f64();
    let theirs = ran.and_then(|()| read(&scratch));
    // Nothing depends on it any more; a leftover in the temporary folder is no failure.
    let _ = std::fs::remove_file(&scratch);
    let theirs = theirs?;

    let model = sources.model().map_err(|e| e.to_string())?;
    let plans = model.plans().map_err(|e| e.to_string())?;
    let document = yaml::parse(&derivatives, Stage::Derivatives).map_err(|e| e.to_string())?;
    let build = if cfg!(debug_assertions) { " (debug build)" } else { "" };
    println!("entries    {:>9}", document.as_list().map_or(0, <[_]>::len));
    println!("functions  {:>9}", model.functions.len());
    println!("nodes      {:>9}", plans.nodes.len());
    println!("wrappers   {:>9}", plans.wrappers.len());
    println!("firebrand  {:>9} bytes {our_time:>7.2} s{build}", ours.len());
    println!("torchgen   {:>9} bytes {their_time:>7.2} s", theirs.len());
    match difference(&ours, &theirs) {
        None => Ok(format!("equal; firebrand took 1/{:.0} of torchgen's time", their_time / our_time)),
        Some(place) => Err(format!("the dumps differ: {place}")),
    }
}

/// The first line that differs, from both sides.
fn difference(ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let line = ours.lines().zip(theirs.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| ours.lines().count().min(theirs.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Some(format!("line {}\n  firebrand: {}\n  torchgen:  {}", line + 1, show(ours), show(theirs)))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
