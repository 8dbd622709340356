//! `firebrand`: train, run exported programs, list ops, measure, generate. The only crate that prints.
//!
//! Exit codes: 0 success; 2 usage error; 3 invalid input (the reason is on stderr, no output was written or changed).

mod bench;
mod codegen;
mod ops;
mod pass;
mod program;
mod program_file;
mod refusal;
mod signals;
mod train;
mod viz;

use clap::{Parser, Subcommand};
use refusal::{Refusal, printable};
use std::process::ExitCode;

/// PyTorch's autograd stack in Rust.
#[derive(Parser)]
#[command(name = "firebrand", version)]
struct Cli {
    /// Number of threads [default: FIREBRAND_NUM_THREADS, or one per core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train the built-in model on the embedded digits and write a report, or fine-tune an exported program
    Train(train::Options),
    /// Run an exported program
    Run(program::run::Options),
    /// Compute the gradients of an exported program's parameters
    Grad(program::grad::Options),
    /// Show an exported program's signature, graph and ops, including unsupported ones
    Inspect(program::inspect::Options),
    /// Draw an exported program as an HTML page with zoom, search and collapsible modules
    Viz(viz::Options),
    /// List all ops with their derivatives, transforms and (with --coverage) tests
    Ops(ops::Options),
    /// Benchmark built-in workloads or an exported program
    Bench(bench::Options),
    /// Run graph passes on a program and print or write the result
    Pass(pass::Options),
    /// Inspect, lint or generate code from op declarations and derivative formulas
    #[command(subcommand)]
    Codegen(codegen::Command),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // The message quotes the argument, which may contain control characters.
        Err(e) if std::env::args_os().any(|a| a.to_string_lossy().chars().any(char::is_control)) => {
            eprint!("{}", printable(&e.render().to_string()));
            return ExitCode::from(2);
        }
        Err(e) => e.exit(),
    };
    signals::watch();
    if let Some(n) = cli.threads {
        firebrand::set_num_threads(n.into());
    }
    let done = match cli.command {
        Command::Train(options) => train::run(&options),
        Command::Run(options) => program::run::run(&options),
        Command::Grad(options) => program::grad::run(&options),
        Command::Inspect(options) => program::inspect::run(&options),
        Command::Viz(options) => viz::run(&options),
        Command::Ops(options) => ops::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Pass(options) => pass::run(&options),
        Command::Codegen(command) => codegen::run(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe (`| head`).
        Err(Refusal::ReaderGone) => ExitCode::SUCCESS,
        Err(Refusal::Because(reason)) => {
            eprintln!("error: {}", printable(&reason));
            ExitCode::from(3)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
