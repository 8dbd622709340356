//! Commands on exported programs: `run`, `grad`, `inspect`, and fine-tuning for `train`.

pub(crate) mod fine_tune;
pub(crate) mod grad;
pub(crate) mod inspect;
pub(crate) mod loss;
pub(crate) mod run;

use crate::refusal::{Done, Refusal};
use firebrand::Tensor;
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::TensorMeta;
use firebrand::graph::{Evaluator, ExportedProgram, LoadOptions, Memory, ProgramModule};
use firebrand::io::npz::Tensors;
use firebrand_compile::fused::{Fused, FusedGraph, FusedOptions};
use firebrand_compile::joint::AotExecutable;
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The array of labels among the inputs; not an input of the program.
pub(crate) const TARGET: &str = "__target__";

/// Whether the weights of a program are mapped or copied.
#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct WeightOptions {
    /// Copy weights into memory instead of memory-mapping the file, so that the file may change
    #[arg(long)]
    copy_weights: bool,
}

impl WeightOptions {
    /// The loader's option.
    pub(crate) fn memory(self) -> Memory {
        if self.copy_weights { Memory::Copied } else { Memory::Mapped }
    }
}

/// Loads a program and gives it its own state.
pub(crate) fn load(path: &Path, weights: WeightOptions) -> Done<ProgramModule> {
    let options = LoadOptions { memory: weights.memory(), ..LoadOptions::default() };
    let program = ExportedProgram::load_with(path, &options).map_err(Refusal::because)?;
    program.module().map_err(Refusal::because)
}

/// Runs on arrays by name; labels are left out.
pub(crate) fn call(module: &ProgramModule, inputs: &Tensors) -> Done<Vec<Value>> {
    let named = inputs.iter().filter(|(name, _)| *name != TARGET).map(|(name, t)| (name.as_str(), t));
    module.run_named(named).map_err(Refusal::because)
}

/// Runs graphs through the fused back end, which keeps its plans between calls. It records no gradients.
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

/// Runs graphs through the optimizing back end, gradients included.
pub(crate) fn compiled() -> Evaluator {
    let compiled: OnceLock<AotExecutable> = OnceLock::new();
    Arc::new(move |graph, inputs| {
        let failed = |e: firebrand_compile::Error| firebrand::graph::Error::Value(e.to_string());
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
