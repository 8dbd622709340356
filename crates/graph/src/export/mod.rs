//! Export: runs a Rust function once on tensors without memory and keeps what it did as a program.
//!
//! Every op the function calls passes through the dispatcher, where a layer writes it down; grad-mode changes become
//! regions. The function must not read values of its inputs: such a read has no answer here and is refused by the op.
//! Sizes are those of the example inputs.

mod capture;
mod tracer;

use crate::error::Result;
use crate::ir::{Argument, GraphModule, OpOverload, Target};
use crate::passes::{self, Context};
use crate::program::{Dialect, ExportedProgram, State};
use crate::signature::*;
use capture::Capture;
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::{Device, Tensor};
use std::sync::Arc;

pub(crate) use capture::trace_below_autograd;
pub use tracer::Tracer;

/// A tensor of the function's own that the program should know by name.
pub struct NamedTensor {
    /// Its qualified name, such as `layer.weight`.
    pub name: String,
    /// The tensor the function uses.
    pub tensor: Tensor,
    /// Whether it is a parameter; else it is a buffer.
    pub is_parameter: bool,
}

/// Exports a function of tensors.
///
/// `state` names the function's parameters and buffers; any other tensor it uses becomes a constant. The result is a
/// program in the training dialect, with `no_grad` blocks as regions.
///
/// ```
/// use firebrand_core::{Tensor, autograd::no_grad};
/// let program = firebrand_graph::export(
///     |x| { let s = no_grad(|| x[0].sin()); Ok(vec![&x[0] * &s]) },
///     &[Tensor::new(&[1.0f32, 2.0])],
///     &[],
/// )?;
/// assert_eq!(program.run(&[Tensor::new(&[0.0f32, 0.0])])?.len(), 1);
/// # Ok::<(), firebrand_graph::Error>(())
/// ```
pub fn export(
    f: impl FnOnce(&[Tensor]) -> firebrand_core::Result<Vec<Tensor>>,
    inputs: &[Tensor],
    state: &[NamedTensor],
) -> Result<ExportedProgram> {
    let capture = Arc::new(Capture::new(is_grad_enabled()));
    let mut signature = GraphSignature::default();
    let mut program = ExportedProgram::default();
    // Parameters come before buffers, and both before the caller's inputs.
    let ordered = state.iter().filter(|s| s.is_parameter).chain(state.iter().filter(|s| !s.is_parameter));
    for NamedTensor { name, tensor, is_parameter } in ordered {
        let target = name.as_str().into();
        let (prefix, kind) = match is_parameter {
            true => ("p_", InputKind::Parameter(target)),
            false => ("b_", InputKind::Buffer { target, persistent: true }),
        };
        let node = capture.input(&format!("{prefix}{}", name.replace('.', "_").to_lowercase()), tensor);
        signature.inputs.push(InputSpec { kind, arg: SpecArg::Tensor(node) });
        program.state_dict.insert(name.clone(), State { tensor: tensor.clone(), is_parameter: *is_parameter });
    }
    let mut outlines = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let outline = input.try_to_device(Device::Meta)?.try_requires_grad_(input.requires_grad())?;
        let node = capture.input(&format!("arg_{i}"), &outline);
        signature.inputs.push(InputSpec { kind: InputKind::UserInput, arg: SpecArg::Tensor(node) });
        outlines.push(outline);
    }
    let results = capture::above_autograd(&capture, || f(&outlines))?;
    let module = capture.finish(&results)?;
    let returned = module.graph.result().and_then(Argument::items).unwrap_or(&[]);
    let names = returned.iter().filter_map(Argument::node).map(|n| module.graph[n].name().clone());
    signature.outputs =
        names.map(|name| OutputSpec { kind: OutputKind::UserOutput, arg: SpecArg::Tensor(name) }).collect();
    program.module = Arc::new(module);
    program.signature = Some(Arc::new(signature));
    let context = Context { ambient_grad: is_grad_enabled(), compat: false };
    let list = ["insert_conversion_guards_pass", "lift_constants_pass", "set_grad", "placeholder_naming_pass"]
        .map(passes::find);
    let list = list.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(passes::run(&program, &list, &context)?.0)
}

/// Whether a graph writes no memory, here and below.
pub(crate) fn is_functional(module: &GraphModule) -> bool {
    let graph = &module.graph;
    let writes = |t: &Target| t.overload().and_then(OpOverload::schema).is_some_and(|s| s.mutates());
    graph.nodes().all(|n| !graph[n].target().is_some_and(writes)) && module.subgraphs().all(|(_, g)| is_functional(g))
}

/// The dialect a module is in, by what it holds.
pub(crate) fn dialect_of(module: &GraphModule) -> Dialect {
    if is_functional(module) { Dialect::Aten } else { Dialect::Training }
}
