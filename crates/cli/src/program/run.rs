//! `firebrand run`: a program on arrays, its outputs as arrays.

use super::{call, load};
use crate::refusal::{Done, Refusal, say};
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::Argument;
use firebrand::io::npz::Tensors;
use firebrand::io::{npy, read_npz, write_npz};
use firebrand::prelude::{Module, no_grad};
use firebrand::{Scalar, Tensor};
use serde_json::{Map, json};
use std::path::PathBuf;

/// Arguments of `firebrand run`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The exported program
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// One array per input, named as the program names it
    #[arg(long, value_name = "IN.npz")]
    inputs: PathBuf,
    /// Where outputs go: `out_<i>` by position among the flattened outputs
    #[arg(short, long, value_name = "OUT.npz")]
    output: PathBuf,
    /// Where what was written in place goes: `buffer:<name>` and `input:<name>`
    #[arg(long, value_name = "F.npz")]
    state_after: Option<PathBuf>,
    /// Run it through the compiler's fused back end
    #[arg(long)]
    compile: bool,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
}

/// An output as an array; constants that are no tensors have none.
fn array(value: &Value) -> Option<Tensor> {
    match value {
        Value::Tensor(t) => Some(t.clone()),
        _ => None,
    }
}

fn summary(value: &Value) -> serde_json::Value {
    match value {
        Value::Tensor(t) => json!({"dtype": t.dtype().name(), "shape": t.shape()}),
        Value::Scalar(Scalar::Bool(v)) => json!({ "constant": v }),
        Value::Scalar(Scalar::Int(v)) => json!({ "constant": v }),
        Value::Scalar(Scalar::Float(v)) => json!({ "constant": v }),
        Value::Constant(Argument::Str(v)) => json!({ "constant": &**v }),
        _ => json!({ "constant": null }),
    }
}

/// Runs the program and writes what it gives.
pub(crate) fn run(options: &Options) -> Done {
    let mut module = load(&options.model)?;
    if options.compile {
        module.set_evaluator(super::fused());
    }
    let inputs = read_npz(&options.inputs)?;
    // What was written shows in the version of its memory, or, as with running statistics, only in the numbers.
    let watched: Vec<(String, Tensor)> = module
        .named_buffers()
        .into_iter()
        .map(|(name, t)| (format!("buffer:{name}"), t))
        .chain(inputs.iter().map(|(name, t)| (format!("input:{name}"), t.clone())))
        .collect();
    let mark = |t: &Tensor| -> Done<(u32, Vec<u8>)> { Ok((t.version(), npy::to_bytes(t)?)) };
    let before = watched.iter().map(|(_, t)| mark(t)).collect::<Done<Vec<_>>>()?;
    let outputs = no_grad(|| call(&module, &inputs))?;
    let arrays: Tensors =
        outputs.iter().enumerate().filter_map(|(k, v)| Some((format!("out_{k}"), array(v)?))).collect();
    let mut written = Tensors::new();
    for ((name, t), before) in watched.into_iter().zip(before) {
        if mark(&t)? != before {
            written.insert(name, t);
        }
    }
    if let Some(path) = &options.state_after {
        write_npz(path, &written)?;
    }
    write_npz(&options.output, &arrays).inspect_err(|_| {
        // Nothing is left behind by a run that fails.
        if let Some(path) = &options.state_after {
            let _ = std::fs::remove_file(path);
        }
    })?;
    if options.json {
        let state: Map<String, serde_json::Value> =
            written.iter().map(|(k, t)| (k.clone(), summary(&Value::Tensor(t.clone())))).collect();
        let outputs: Vec<_> = outputs.iter().map(summary).collect();
        let text = serde_json::to_string_pretty(&json!({"outputs": outputs, "written_in_place": state}));
        say!("{}", text.map_err(Refusal::because)?)?;
    }
    Ok(())
}
