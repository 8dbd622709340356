//! `firebrand pass`: runs passes on a program and prints or writes the result, in the input's format.

use crate::program::WeightOptions;
use crate::program_file;
use crate::refusal::{Done, Refusal, say};
use clap::ValueEnum;
use firebrand::graph::LoadOptions;
use firebrand::graph::passes::{self, Context, PASSES, Pass};
use firebrand::graph::text::{Form, print};
use firebrand::io::check_outputs;
use std::path::PathBuf;

/// A grad mode.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    On,
    Off,
}

/// Arguments of `firebrand pass`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passes to run, in order, separated by commas
    #[arg(value_name = "NAME[,NAME…]", required_unless_present = "list", value_parser = known)]
    names: Option<String>,
    /// A .pt2 archive, or a graph in text form
    #[arg(value_name = "FILE", required_unless_present = "list")]
    file: Option<PathBuf>,
    /// Write the result to this file
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Print the result even if it is written to a file
    #[arg(long)]
    print: bool,
    /// Also print types, attributes and metadata
    #[arg(long)]
    long: bool,
    /// Grad mode to assume at the call
    #[arg(long, value_name = "MODE", default_value = "on")]
    ambient_grad: Mode,
    /// Reproduce PyTorch's quirks
    #[arg(long)]
    compat: bool,
    #[command(flatten)]
    weights: WeightOptions,
    /// List all passes and exit
    #[arg(long)]
    list: bool,
}

/// Every name in the list must be that of a pass.
fn known(names: &str) -> Result<String, String> {
    match names.split(',').map(passes::find).find_map(Result::err) {
        Some(error) => Err(error.to_string()),
        None => Ok(names.to_string()),
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Done {
    if options.list {
        for pass in PASSES {
            let alias = pass.alias.map_or(String::new(), |a| format!(" (or {a})"));
            say!("{}{alias}: {}", pass.name, pass.summary)?;
        }
        return Ok(());
    }
    let Some(file) = &options.file else { return Err(Refusal::because("no file given")) };
    check_outputs(&options.output)?;
    let memory = options.weights.memory();
    let (program, format) =
        program_file::read(file, &LoadOptions { refuse_unsupported: false, memory, ..LoadOptions::default() })?;
    let context = Context { ambient_grad: matches!(options.ambient_grad, Mode::On), compat: options.compat };
    let names = options.names.as_deref().unwrap_or_default().split(',');
    let list: Vec<&Pass> = names.map(passes::find).collect::<Result<_, _>>().map_err(Refusal::because)?;
    let (result, _) = passes::run(&program, &list, &context).map_err(Refusal::because)?;
    let form = if options.long { Form::Long } else { Form::Short };
    if let Some(path) = &options.output {
        program_file::write(path, &result, format, form)?;
    }
    if options.print || options.output.is_none() {
        say!("{}", print(&result, form).trim_end_matches('\n'))?;
    }
    Ok(())
}
