//! `firebrand pass`: runs passes on a program and prints or writes the result, in the input's format.

use crate::lora;
use crate::program::WeightOptions;
use crate::program_file;
use crate::refusal::{Done, Refusal, say};
use crate::train::config::nearest;
use clap::ValueEnum;
use firebrand::graph::LoadOptions;
use firebrand::graph::passes::{self, Context, PASSES, Pass};
use firebrand::graph::text::{Form, print};
use firebrand::io::{Output, check_outputs, plain};
use std::path::{Path, PathBuf};

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
    /// Print the result even if --output is given
    #[arg(long)]
    print: bool,
    /// Also print types, attributes and metadata
    #[arg(long)]
    long: bool,
    /// Grad mode to assume when the program is called
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
    #[command(flatten)]
    lora: lora::PassOptions,
    #[command(flatten)]
    quantize: QuantizeOptions,
}

/// Options of the pass `quantize`.
#[derive(clap::Args, Clone, Copy)]
#[command(next_help_heading = "Quantization")]
struct QuantizeOptions {
    /// Bits of a quantized weight: 8 or 4
    #[arg(long, value_name = "N", default_value_t = 8)]
    bits: u8,
    /// Number of weight columns that share a scale
    #[arg(long, value_name = "N", default_value_t = 64)]
    group: usize,
}

/// Passes that take options of their own: name and summary.
const WITH_OPTIONS: [(&str, &str); 2] = [
    ("lora", "adds low-rank adapters and freezes the rest; --merge folds them into the weights"),
    ("quantize", "stores frozen weights of linear layers in 8 or 4 bits"),
];

/// One pass of the list.
enum Step {
    Lora,
    Quantize,
    Plain(&'static Pass),
}

fn step(name: &str) -> firebrand::graph::Result<Step> {
    Ok(match name {
        "lora" => Step::Lora,
        "quantize" => Step::Quantize,
        name => Step::Plain(passes::find(name)?),
    })
}

/// Checks that every name in the list is a pass.
fn known(names: &str) -> Result<String, String> {
    let Some(unknown) = names.split(',').find(|name| step(name).is_err()) else { return Ok(names.to_string()) };
    // The two arguments are easily swapped.
    if Path::new(names).exists() {
        return Err("this is a file; the passes come first, then the file".to_string());
    }
    let plain_passes = PASSES.iter().flat_map(|p| [Some(p.name), p.alias]).flatten();
    let all: Vec<&str> = plain_passes.chain(WITH_OPTIONS.map(|(name, _)| name)).collect();
    let near = nearest(unknown, &all).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Err(format!("there is no pass `{}`{near}; `firebrand pass --list` lists them", plain(unknown)))
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Done {
    if options.list {
        for pass in PASSES {
            let alias = pass.alias.map_or(String::new(), |a| format!(" (or {a})"));
            say!("{}{alias}: {}", pass.name, pass.summary)?;
        }
        for (name, summary) in WITH_OPTIONS {
            say!("{name}: {summary}")?;
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
    let steps: Vec<Step> = names.map(step).collect::<Result<_, _>>().map_err(Refusal::because)?;
    if options.lora.is_any() && !steps.iter().any(|s| matches!(s, Step::Lora)) {
        return Err(Refusal::because("--rank, --targets, --merge and similar options need the pass `lora`"));
    }
    let mut result = program;
    for step in &steps {
        result = match step {
            Step::Lora => options.lora.run(&result)?,
            Step::Quantize => {
                let quantize = passes::QuantizeOptions { bits: options.quantize.bits, group: options.quantize.group };
                passes::quantize(&result, &quantize).map_err(Refusal::because)?.0
            }
            Step::Plain(pass) => passes::run(&result, &[*pass], &context).map_err(Refusal::because)?.0,
        };
    }
    let mut outputs = options.lora.stage(&result)?;
    let form = if options.long { Form::Long } else { Form::Short };
    if let Some(path) = &options.output {
        outputs.push(program_file::stage(path, &result, format, form)?);
    }
    Output::commit_all(outputs)?;
    if options.print || (options.output.is_none() && !options.lora.only_files()) {
        say!("{}", print(&result, form).trim_end_matches('\n'))?;
    }
    Ok(())
}
