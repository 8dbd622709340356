//! Chores: `cargo xtask <chore>`. Every chore is one subcommand and one module.

mod codegen;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <chore>

chores:
  codegen           write crates/core/src/ops/generated/ from schema/
  codegen --check   fail if that folder is not what schema/ says
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["codegen"] => codegen::write(),
        ["codegen", "--check"] => codegen::check(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
