//! `firebrand grad`: the gradient of a loss with respect to every parameter of a program.

use super::loss::GradLoss;
use super::{TARGET, WeightOptions, call, float_outputs, load, read_arrays};
use crate::refusal::{Done, Refusal};
use firebrand::io::npz::Tensors;
use firebrand::io::{check_outputs, write_npz};
use firebrand::prelude::{BackwardOptions, Module};
use std::path::PathBuf;

/// Arguments of `firebrand grad`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// One array per program input, and labels as `__target__` if the loss needs them
    #[arg(long, value_name = "IN.npz")]
    inputs: PathBuf,
    /// Loss to differentiate
    #[arg(long, value_enum)]
    loss: GradLoss,
    /// Write gradients, by parameter name, and the loss as `__loss__` to this file (`-`: standard output)
    #[arg(short, long, value_name = "GRADS.npz", value_parser = crate::program_file::output)]
    output: PathBuf,
    /// Also write gradients of float inputs, as `input:<name>`
    #[arg(long)]
    wrt_inputs: bool,
    #[command(flatten)]
    weights: WeightOptions,
}

/// Runs forward and backward, and writes the gradients.
pub(crate) fn run(options: &Options) -> Done {
    check_outputs([&options.output])?;
    let module = load(&options.model, options.weights)?;
    let inputs = read_arrays(&options.inputs)?;
    if options.wrt_inputs {
        for (_, t) in inputs.iter().filter(|(name, t)| *name != TARGET && t.is_floating_point()) {
            t.try_set_requires_grad(true)?;
        }
    }
    let outputs = call(&module, &inputs)?;
    let loss = options.loss.of(&float_outputs(&outputs), inputs.get(TARGET))?;
    if !loss.requires_grad() {
        return Err(Refusal::because("the loss does not depend on a parameter that requires grad"));
    }
    loss.try_backward(&BackwardOptions::default())?;
    let mut grads = Tensors::new();
    grads.insert("__loss__".into(), loss.try_detach()?);
    for (name, p) in module.named_parameters() {
        if let Some(g) = p.grad() {
            grads.insert(name, g);
        }
    }
    if options.wrt_inputs {
        for (name, t) in &inputs {
            if let Some(g) = t.grad() {
                grads.insert(format!("input:{name}"), g);
            }
        }
    }
    Ok(write_npz(&options.output, &grads)?)
}
