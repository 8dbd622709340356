//! Maintenance tasks: `cargo xtask <task>`. Every task is one subcommand and one module.

mod c_library;
mod check;
mod codegen;
mod conformance;
mod modules;
mod python;
mod sizes;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The outcome of a task: a message, or an error.
type Outcome = Result<String, String>;

/// The workspace.
fn root() -> PathBuf {
    // Cargo says where it runs; a build copied from another checkout would still name that one.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).join("..")
}

/// Where Cargo puts what it builds.
fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

const USAGE: &str = "\
usage: cargo xtask <task>

tasks:
  check [STEP...]   run everything that CI runs, or only these steps
  codegen           generate crates/core/src/ops/generated/ and the Python table from schema/
  codegen --check   fail if they are out of date
  install-c PREFIX  build the C library for shipping and install headers, libraries, pkg-config and CMake files
  modules           check for cyclic dependencies between modules; part of check
  deny              check licenses, advisories and versions of dependencies (deny.toml); needs cargo-deny
  conformance ...   conformance checks against PyTorch and other tools; without arguments, lists them
  sizes [c|--fresh] print generated lines and sizes of the built files; with c, those of the C library alone; with --fresh, also
                    times of fresh builds
  web               build crates/web for browsers and complete the page in web/
  bench [...]       run benchmarks against PyTorch and JAX (bench/compare.py); needs Python
  golden            regenerate the reference data in golden/; needs Python with PyTorch
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["check", steps @ ..] => check::run(steps),
        ["deny"] => check::deny(),
        ["modules"] => modules::check(),
        ["bench", rest @ ..] => python::bench(rest),
        ["golden"] => python::golden(),
        ["conformance", rest @ ..] => conformance::run(rest),
        ["install-c", prefix] => c_library::install(prefix),
        ["sizes"] => sizes::run(false),
        ["sizes", "c"] => sizes::c_library(),
        ["sizes", "--fresh"] => sizes::run(true),
        ["web"] => web::build(),
        ["codegen"] => codegen::write(&root()),
        ["codegen", "--check"] => codegen::check(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(message) => {
            if !message.is_empty() {
                println!("{message}");
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
