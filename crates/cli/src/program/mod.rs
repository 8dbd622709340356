//! Commands on exported programs: `run`, `grad`, `inspect`, and fine-tuning for `train`.

pub(crate) mod fine_tune;
pub(crate) mod grad;
pub(crate) mod inspect;
pub(crate) mod loss;
pub(crate) mod run;

use crate::refusal::{Done, Refusal};
use firebrand::Tensor;
use firebrand::graph::interpret::Value;
use firebrand::graph::{ExportedProgram, ProgramModule};
use firebrand::io::npz::Tensors;
use std::path::Path;

/// The array of labels among the inputs; no input of the program.
pub(crate) const TARGET: &str = "__target__";

/// Loads a program and gives it a state of its own.
pub(crate) fn load(path: &Path) -> Done<ProgramModule> {
    let program = ExportedProgram::load(path).map_err(Refusal::because)?;
    program.module().map_err(Refusal::because)
}

/// Runs on arrays by name; labels are left out.
pub(crate) fn call(module: &ProgramModule, inputs: &Tensors) -> Done<Vec<Value>> {
    let named = inputs.iter().filter(|(name, _)| *name != TARGET).map(|(name, t)| (name.as_str(), t));
    module.run_named(named).map_err(Refusal::because)
}

/// The floating point tensors among the outputs.
pub(crate) fn float_outputs(outputs: &[Value]) -> Vec<Tensor> {
    let float = |v: &Value| match v {
        Value::Tensor(t) if t.is_floating_point() => Some(t.clone()),
        _ => None,
    };
    outputs.iter().filter_map(float).collect()
}
