//! Chores: `cargo xtask <chore>`. Every chore is one subcommand and one module.

mod c_example;
mod check;
mod codegen;
mod conformance;
mod modules;
mod python;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a chore says: done, or why not.
type Outcome = Result<String, String>;

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const USAGE: &str = "\
usage: cargo xtask <chore>

chores:
  check             everything that must hold before a change lands
  codegen           write crates/core/src/ops/generated/ and the table of the Python package from schema/
  codegen --check   fail if they are not what schema/ says
  modules           modules that depend on each other in circles; part of check
  deny              licences, advisories and versions of dependencies (deny.toml); needs cargo-deny
  conformance ...   proofs against torchgen and in a scratch copy; alone it lists them
  sizes [--fresh]   generated lines and sizes of the built files; with --fresh how long fresh builds take
  bench [...]       compare with PyTorch and JAX (bench/compare.py); needs Python
  golden            regenerate the reference data in golden/; needs Python with PyTorch
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["check"] => check::run(),
        ["deny"] => check::deny(),
        ["modules"] => modules::check(),
        ["bench", rest @ ..] => python::bench(rest),
        ["golden"] => python::golden(),
        ["conformance", rest @ ..] => conformance::run(rest),
        ["sizes"] => sizes::run(false),
        ["sizes", "--fresh"] => sizes::run(true),
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
