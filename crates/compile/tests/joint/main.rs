//! The joint-graph back ends: gradients, partitions, hooks, written inputs, random numbers and higher derivatives.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod attention;
mod autocast;
mod cond;
mod donated;
mod early;
mod gradients;
mod higher;
mod hooks;
mod memory;
mod partitions;
mod saved;

use firebrand_compile::joint::{Aot, AotExecutable, AotOptions, Interpret, aot_eager};
use firebrand_compile::partition::{PartitionOptions, Partitioner};
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable, Value};
use firebrand_core::autograd::{GradOptions, grad};
use firebrand_core::{Result, Tensor};
use firebrand_graph::ir::{GraphModule, TensorMeta};
use std::sync::Arc;

/// A function of tensors.
pub type F = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// The back ends under test: the minimum cut and the default rule, interpreted.
pub fn backends() -> Vec<(&'static str, Aot)> {
    let default = PartitionOptions { partitioner: Partitioner::Default, ..PartitionOptions::default() };
    let everything = PartitionOptions { activation_memory_budget: 0.0, ..PartitionOptions::default() };
    let with = |name, partition| {
        (name, Aot::new(AotOptions { name, inner: Arc::new(Interpret), partition, decompose: false }))
    };
    vec![("aot_eager", aot_eager()), with("default", default), with("recompute", everything)]
}

/// The captured graph of a function.
pub fn capture(f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[Tensor]) -> GraphModule {
    let program = firebrand_graph::export(|x| f(x), inputs, &[]).unwrap();
    assert_eq!(program.module.graph.placeholders().count(), inputs.len(), "no constants");
    (*program.module).clone()
}

/// Compiles a captured graph for inputs like these.
pub fn compile(backend: &Aot, graph: &GraphModule, inputs: &[Tensor]) -> AotExecutable {
    let one = |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
    let examples: Vec<ExampleInput> = inputs.iter().map(one).collect();
    let executable = backend.compile_graph(graph, &examples).unwrap();
    assert!(executable.forward_graph().is_some(), "the graph is traced as a whole");
    executable
}

/// Runs an executable on tensors.
pub fn call(executable: &AotExecutable, inputs: &[Tensor]) -> Vec<Tensor> {
    call_with(executable, inputs, &Call::default())
}

/// Runs an executable with hooks.
pub fn call_with(executable: &AotExecutable, inputs: &[Tensor], call: &Call) -> Vec<Tensor> {
    let values: Vec<Value> = inputs.iter().map(Value::from).collect();
    executable.run(&values, call).unwrap().iter().map(|v| v.tensor().unwrap().clone()).collect()
}

/// Bits of a tensor of any float type.
pub fn bits(t: &Tensor) -> Vec<u64> {
    t.detach().to_dtype(firebrand_core::DType::F64).to_vec::<f64>().into_iter().map(f64::to_bits).collect()
}

/// Gradients of the sum of the first result.
pub fn grads(outs: &[Tensor], inputs: &[Tensor]) -> Vec<Option<Tensor>> {
    let wanted: Vec<Tensor> = inputs.iter().filter(|t| t.requires_grad()).cloned().collect();
    let options = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
    grad(&outs[0].sum(), wanted, &options).unwrap()
}

/// A leaf.
pub fn leaf(values: &[f32]) -> Tensor {
    Tensor::new(values).requires_grad_()
}
