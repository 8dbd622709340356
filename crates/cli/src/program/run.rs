//! `firebrand run`: runs a program on arrays and writes its outputs as arrays.

use super::{WeightOptions, call, for_predictions, load, read_arrays};
use crate::program_file::is_stdout;
use crate::refusal::{Done, Refusal, note, say};
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::Argument;
use firebrand::io::npz::Tensors;
use firebrand::io::{Output, check_outputs, npy, stage_npz};
use firebrand::prelude::{Module, no_grad};
use firebrand::{Scalar, Tensor};
use serde_json::{Map, json};
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `firebrand run`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// One array per program input, under the input's name
    #[arg(long, value_name = "IN.npz")]
    inputs: PathBuf,
    /// Write the flattened outputs to this file (`-`: standard output), as `out_<i>`
    #[arg(short, long, value_name = "OUT.npz", value_parser = crate::program_file::output)]
    output: PathBuf,
    /// Write mutated buffers and inputs to this file, as `buffer:<name>` and `input:<name>`
    #[arg(long, value_name = "F.npz")]
    state_after: Option<PathBuf>,
    /// Run in evaluation mode: dropout is off, normalization uses running statistics
    #[arg(long, conflicts_with = "train")]
    eval: bool,
    /// Run in training mode: dropout is on, normalization uses batch statistics and updates the running ones
    #[arg(long)]
    train: bool,
    /// Compile the program with the fused backend
    #[arg(long)]
    compile: bool,
    #[command(flatten)]
    weights: WeightOptions,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
}

/// An output as an array; `None` for constants, which are not tensors.
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

/// A hash of the elements of a tensor.
fn fingerprint(t: &Tensor) -> Done<u64> {
    struct Hashed(DefaultHasher);
    impl Write for Hashed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut hashed = Hashed(DefaultHasher::new());
    npy::write(&mut hashed, t)?;
    Ok(hashed.0.finish())
}

/// Runs the program and writes its outputs.
pub(crate) fn run(options: &Options) -> Done {
    if options.json && is_stdout(&options.output) {
        return Err(Refusal::Usage(
            "--json and -o - both write to standard output: name a file for the outputs".into(),
        ));
    }
    check_outputs([&options.output].into_iter().chain(&options.state_after))?;
    let mut module = if options.compile && !options.train && options.state_after.is_none() {
        for_predictions(&options.model, options.weights, options.eval)?
    } else {
        load(&options.model, options.weights)?
    };
    if options.compile {
        module.set_evaluator(super::fused());
    }
    match (options.eval, options.train, module.exported_in_training()) {
        (true, ..) => module.eval(),
        (_, true, _) => module.train(),
        (.., Some(true)) => note!(
            "the program was exported in training mode and runs in it: dropout is on, normalization uses batch statistics; use --eval for predictions, or --train to silence this note"
        ),
        _ => {}
    }
    let inputs = read_arrays(&options.inputs)?;
    // A mutation shows in the tensor's version counter or, as with running statistics, only in its values.
    let watched: Vec<(String, Tensor)> = module
        .named_buffers()
        .into_iter()
        .map(|(name, t)| (format!("buffer:{name}"), t))
        .chain(inputs.iter().map(|(name, t)| (format!("input:{name}"), t.clone())))
        .collect();
    let mark = |t: &Tensor| -> Done<(u32, u64)> { Ok((t.version(), fingerprint(t)?)) };
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
    // Both are written before either appears, so that a run that fails changes nothing.
    let state = options.state_after.as_ref().map(|path| stage_npz(path, &written)).transpose()?;
    let outputs_file = stage_npz(&options.output, &arrays)?;
    Output::commit_all(state.into_iter().chain([outputs_file]))?;
    if options.json {
        let state: Map<String, serde_json::Value> =
            written.iter().map(|(k, t)| (k.clone(), summary(&Value::Tensor(t.clone())))).collect();
        let outputs: Vec<_> = outputs.iter().map(summary).collect();
        let text = serde_json::to_string_pretty(
            &json!({"schema": "firebrand.run_program/1", "outputs": outputs, "written_in_place": state}),
        );
        say!("{}", text.map_err(Refusal::because)?)?;
    }
    Ok(())
}
