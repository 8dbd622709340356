//! The command `firebrand`: one subcommand per module. This is the only crate that prints.
//!
//! Exit codes: 0 success; 2 usage error; 3 invalid input (the reason is on stderr, no output was written or changed); 130 and
//! 143 for training that Ctrl-C or SIGTERM stopped after its checkpoint was written.

mod adapt;
mod bench;
mod codegen;
mod completions;
mod convert;
mod dist_info;
mod generate;
mod log;
mod lora;
mod ops;
mod page;
mod pass;
mod program;
mod program_file;
mod refusal;
mod runs;
mod signals;
#[cfg(feature = "text")]
mod text;
mod train;
mod viz;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use refusal::{Done, Refusal, printable};
use std::process::ExitCode;

/// Where the help of a command lists what every command accepts: behind its own options.
const GLOBAL: &str = "Global options";

const TRAIN_EXAMPLES: &str = "\
Examples:
  firebrand train
      Train the built-in model on the bundled digits; the report is in runs/0001
  firebrand train model.pt2 --data samples.npz --loss cross_entropy --val-split 0.1 --out runs/first
      Fine-tune an exported program
  firebrand train model.pt2 --data samples.npz --loss cross_entropy --val-split 0.1 --out runs/first --resume
      Continue that run after it was stopped";

const PASS_EXAMPLES: &str = "\
Examples:
  firebrand pass functionalize model.pt2
      Print the result
  firebrand pass run_decompositions,eliminate_dead_code model.pt2 -o small.pt2
      Run two passes and write the result
  firebrand pass lora --rank 8 --targets q_proj,v_proj model.pt2 -o lora.pt2
      Add adapters";

/// PyTorch's autograd stack in Rust.
#[derive(Parser)]
#[command(name = "firebrand", version)]
struct Cli {
    /// Number of threads [default: FIREBRAND_NUM_THREADS, or one per core]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print results and errors only: no progress, notes or warnings
    #[arg(short, long, global = true, help_heading = GLOBAL, conflicts_with = "verbose")]
    quiet: bool,
    /// Print log messages of the libraries; repeat for more detail. RUST_LOG sets levels per target
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train the built-in model on the bundled digits, or fine-tune an exported program
    #[command(allow_negative_numbers = true, after_long_help = TRAIN_EXAMPLES)]
    Train(Box<train::Options>),
    /// Compute the metrics of an exported program on data
    Eval(program::eval::Options),
    /// List, compare and diff training runs
    #[command(subcommand)]
    Runs(runs::Command),
    /// Run an exported program
    Run(program::run::Options),
    /// Compute the gradients of an exported program's parameters
    Grad(program::grad::Options),
    /// Show an exported program's signature, graph and ops, including unsupported ones
    Inspect(program::inspect::Options),
    /// Show which kernels an exported program runs, how long they take and how fast they are
    Profile(program::profile::Options),
    /// Draw an exported program as an HTML page with zoom, search and collapsible modules
    Viz(viz::Options),
    /// List all ops with their derivatives, transforms and (with --coverage) tests
    Ops(ops::Options),
    /// Benchmark built-in workloads or an exported program
    Bench(bench::Options),
    /// Continue a prompt with an exported language model
    #[command(allow_negative_numbers = true)]
    Generate(generate::Options),
    /// Convert model weights between file formats, or load weights into a program
    Convert(convert::Options),
    /// Show the launcher, MPI library and number of processes, and test a reduction
    DistInfo(dist_info::Options),
    /// Run graph passes on a program and print or write the result
    #[command(after_long_help = PASS_EXAMPLES)]
    Pass(pass::Options),
    /// Inspect, lint or generate code from op declarations and derivative formulas
    #[command(subcommand)]
    Codegen(codegen::Command),
    /// Print a completion script for a shell
    Completions {
        /// Shell to generate the script for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write man pages, one for each command
    Man {
        /// Directory to write them to
        #[arg(value_name = "DIR")]
        folder: std::path::PathBuf,
    },
}

/// The `train` subcommand, for code that reads and writes its settings.
pub(crate) fn train_command() -> clap::Command {
    Cli::command().find_subcommand("train").expect("there is such a command").clone()
}

/// The parsed arguments, with settings from files merged in.
fn parse() -> Result<(Cli, ArgMatches), Refusal> {
    let arguments = train::config::expand(std::env::args_os().collect(), &Cli::command())?;
    // Built, so that derived names and global options are in their places.
    let matches = Cli::command().try_get_matches_from(arguments);
    match matches.and_then(|m| Ok((Cli::from_arg_matches(&m)?, m))) {
        Ok(parsed) => Ok(parsed),
        // The message quotes the argument, which may contain control characters.
        Err(e) if std::env::args_os().any(|a| a.to_string_lossy().chars().any(char::is_control)) => {
            eprint!("{}", printable(&e.render().to_string()));
            std::process::exit(2);
        }
        Err(e) => e.exit(),
    }
}

fn main() -> ExitCode {
    signals::watch();
    match parse().and_then(|(cli, matches)| run(&cli, &matches)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe (`| head`).
        Err(Refusal::ReaderGone) => ExitCode::SUCCESS,
        Err(Refusal::Said(code)) => ExitCode::from(code),
        Err(Refusal::Because(reason)) => {
            eprintln!("error: {}", printable(&reason));
            ExitCode::from(3)
        }
        Err(Refusal::Usage(reason)) => {
            eprintln!("error: {}\n\nFor more information, try '--help'.", printable(&reason));
            ExitCode::from(2)
        }
        Err(Refusal::Stopped(advice)) => {
            eprintln!("{}", printable(&advice));
            ExitCode::from(signals::exit_code())
        }
    }
}

/// Refuses environment variables that the libraries would silently replace by their defaults.
fn check_environment(cli: &Cli) -> Done {
    let value = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(|v| v.to_string_lossy().into_owned());
    let refuse = |name: &str, found: &str, expected: &str| {
        Err(Refusal::Usage(format!("the environment variable {name} is {found:?}; expected {expected}")))
    };
    if let Some(found) = value("FIREBRAND_NUM_THREADS")
        && cli.threads.is_none()
        && !found.parse::<usize>().is_ok_and(|n| n > 0)
    {
        return refuse("FIREBRAND_NUM_THREADS", &found, "a number of threads, at least 1");
    }
    const SETS: [&str; 5] = ["avx512", "avx2", "neon", "simd128", "portable"];
    match value("FIREBRAND_CPU") {
        Some(found) if !SETS.contains(&found.as_str()) => {
            refuse("FIREBRAND_CPU", &found, &format!("one of {}", SETS.join(", ")))
        }
        _ => Ok(()),
    }
}

fn run(cli: &Cli, matches: &ArgMatches) -> Done {
    log::start(cli.quiet, cli.verbose);
    check_environment(cli)?;
    if cli.quiet {
        refusal::silence_notes();
    }
    if let Some(n) = cli.threads {
        firebrand::set_num_threads(n.into());
    }
    match &cli.command {
        Command::Train(options) => {
            let command = train_command();
            let given = matches.subcommand().map_or(matches, |(_, m)| m);
            let settings = train::config::Settings::of(&command, given, false);
            train::run(options, &settings, &command, train::Call { quiet: cli.quiet, threads: cli.threads.is_some() })
        }
        Command::Eval(options) => program::eval::run(options),
        Command::Runs(command) => runs::run(command),
        Command::Run(options) => program::run::run(options),
        Command::Grad(options) => program::grad::run(options),
        Command::Inspect(options) => program::inspect::run(options),
        Command::Profile(options) => program::profile::run(options),
        Command::Viz(options) => viz::run(options),
        Command::Ops(options) => ops::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Generate(options) => generate::run(options),
        Command::Convert(options) => convert::run(options),
        Command::DistInfo(options) => dist_info::run(options),
        Command::Pass(options) => pass::run(options),
        Command::Codegen(command) => codegen::run(command),
        Command::Completions { shell } => completions::completions(*shell, Cli::command()),
        Command::Man { folder } => completions::man(folder, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
