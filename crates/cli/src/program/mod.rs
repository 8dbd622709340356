//! Commands on exported programs: `run`, `eval`, `grad`, `inspect`, `profile`.

pub(crate) mod eval;
pub(crate) mod grad;
pub(crate) mod inspect;
pub(crate) mod loss;
pub(crate) mod profile;
pub(crate) mod run;

use crate::program_file;
use crate::refusal::{Done, Refusal};
use firebrand::Tensor;
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::TensorMeta;
use firebrand::graph::passes::{self, Context};
use firebrand::graph::{Evaluator, ExportedProgram, LoadOptions, Memory, ProgramModule};
use firebrand::io::npz::Tensors;
use firebrand::io::{Rows, open_regular, plain, read_npz, read_npz_rows};
use firebrand_compile::fused::{Fused, FusedGraph, FusedOptions};
use firebrand_compile::joint::AotExecutable;
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable};
use indexmap::IndexMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The array of labels among the inputs; not an input of the program.
pub(crate) const TARGET: &str = "__target__";

/// Whether the weights of a program are mapped or copied.
#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct WeightOptions {
    /// Copy weights into memory instead of memory-mapping the file, so that the file may change while it is in use
    #[arg(long)]
    copy_weights: bool,
}

impl WeightOptions {
    /// The loader's option.
    pub(crate) fn memory(self) -> Memory {
        if self.copy_weights { Memory::Copied } else { Memory::Mapped }
    }
}

/// Loads a program.
pub(crate) fn load_program(path: &Path, weights: WeightOptions) -> Done<ExportedProgram> {
    program_file::load(path, &LoadOptions { memory: weights.memory(), ..LoadOptions::default() })
}

/// Reads arrays from a `.npz` file.
pub(crate) fn read_arrays(path: &Path) -> Done<Tensors> {
    check_npz(path)?;
    read_npz(path).map_err(|e| program_file::of_other_kind(path, "an .npz file", e))
}

/// Like [`read_arrays`], without reading what can stay in the file.
pub(crate) fn read_rows(path: &Path) -> Done<IndexMap<String, Rows>> {
    check_npz(path)?;
    read_npz_rows(path).map_err(|e| program_file::of_other_kind(path, "an .npz file", e))
}

fn check_npz(path: &Path) -> Done {
    let mut first = [0; 2];
    let (mut file, _) = open_regular(path)?;
    if std::io::Read::read_exact(&mut file, &mut first).is_err() || &first != b"PK" {
        let path = plain(&path.display().to_string()).into_owned();
        return Err(Refusal::because(format!(
            "{path}: not an .npz file; in Python: np.savez(\"data.npz\", name=array, …)"
        )));
    }
    Ok(())
}

/// Loads a program and gives it its own state.
pub(crate) fn load(path: &Path, weights: WeightOptions) -> Done<ProgramModule> {
    load_program(path, weights)?.module().map_err(Refusal::because)
}

/// Like [`load`], for predictions by compiled graphs: batch norms that do not train are part of their convolutions. `eval` sets
/// evaluation mode.
pub(crate) fn for_predictions(path: &Path, weights: WeightOptions, eval: bool) -> Done<ProgramModule> {
    let program = load_program(path, weights)?;
    let names: &[&str] = if eval { &["eval_mode", "fold_batch_norm"] } else { &["fold_batch_norm"] };
    let list = names.iter().map(|name| passes::find(name)).collect::<Result<Vec<_>, _>>().map_err(Refusal::because)?;
    let (program, _) = passes::run(&program, &list, &Context::default()).map_err(Refusal::because)?;
    program.module().map_err(Refusal::because)
}

/// Runs a program on named arrays, ignoring the labels.
pub(crate) fn call(module: &ProgramModule, inputs: &Tensors) -> Done<Vec<Value>> {
    let named = inputs.iter().filter(|(name, _)| *name != TARGET).map(|(name, t)| (name.as_str(), t));
    module.run_named(named).map_err(Refusal::because)
}

/// Runs graphs through the fused backend, which keeps its plans between calls. It records no gradients.
pub(crate) fn fused() -> Evaluator {
    let compiled: OnceLock<FusedGraph> = OnceLock::new();
    Arc::new(move |graph, inputs| {
        let failed = |e: firebrand_compile::Error| firebrand::graph::Error::Value(e.to_string());
        if compiled.get().is_none() {
            // Planned on the first run, when the inputs are known.
            let _ = compiled.set(Fused::default().compile_graph(graph, &[]).map_err(failed)?);
        }
        let compiled = compiled.get().expect("it was set above");
        compiled.run(inputs, &Call::default()).map_err(failed)
    })
}

/// Runs graphs through the optimizing backend, gradients included. A module has one graph for training and one for
/// evaluation; the one that runs without gradients (validation) is compiled without them.
pub(crate) fn compiled() -> Evaluator {
    let (compiled, forward): (OnceLock<AotExecutable>, Evaluator) = (OnceLock::new(), fused());
    Arc::new(move |graph, inputs| {
        let failed = |e: firebrand_compile::Error| firebrand::graph::Error::Value(e.to_string());
        // Casts of autocast are made part of the graph by the joint backend alone.
        if !firebrand::autograd::is_grad_enabled() && !firebrand::autograd::is_autocast_enabled() {
            return forward(graph, inputs);
        }
        if compiled.get().is_none() {
            let example = |v: &Value| {
                let meta = TensorMeta::of(v.tensor()?);
                Ok(ExampleInput { is_static: meta.requires_grad, value: ExampleValue::Tensor(meta) })
            };
            let examples = inputs.iter().map(example).collect::<firebrand::graph::Result<Vec<_>>>()?;
            let backend = firebrand_compile::joint::firebrand(FusedOptions::default());
            let _ = compiled.set(backend.compile_graph(graph, &examples).map_err(failed)?);
        }
        let compiled = compiled.get().expect("it was set above");
        compiled.run(inputs, &Call::default()).map_err(failed)
    })
}

/// The floating point tensors among the outputs.
pub(crate) fn float_outputs(outputs: &[Value]) -> Vec<Tensor> {
    let float = |v: &Value| match v {
        Value::Tensor(t) if t.is_floating_point() => Some(t.clone()),
        _ => None,
    };
    outputs.iter().filter_map(float).collect()
}
