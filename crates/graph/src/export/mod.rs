//! Export: runs a Rust function on meta tensors and records what it does as a program.
//!
//! Every op the function calls passes through the dispatcher, where a layer records it; grad-mode changes and
//! autocast blocks become regions. The function must not read values of its inputs: such a read has no answer here and is
//! an error. Sizes are those of the example inputs, except for those declared dynamic ([`Dim`]): for these the
//! function is run at other sizes too, and must do the same there (`vary`).

mod inner;
mod layer;
mod vary;

use crate::dynamic::{Dim, Places, Symbol};
use crate::error::Result;
use crate::ir::{Argument, CallSpec, GraphModule, Name, OpOverload, Target};
use crate::passes::{self, Context};
use crate::program::*;
use crate::signature::*;
use firebrand_core::Tensor;
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::module::{Buffer, Module, ModuleVisitor, Parameter};
use std::collections::HashSet;
use std::sync::Arc;

pub use inner::InnerTrace;
pub(crate) use layer::{TraceLayer, trace_below_autograd};

/// A tensor that the function owns and that has a name in the program.
#[derive(Debug)]
pub struct NamedTensor {
    /// Its qualified name, such as `layer.weight`.
    pub name: String,
    /// The tensor the function uses.
    pub tensor: Tensor,
    /// Whether it is a parameter; else it is a buffer.
    pub is_parameter: bool,
}

/// Exports a function of tensors; [`Export`] has more options.
///
/// `state` names the function's parameters and buffers; any other tensor it uses becomes a constant. The result is a
/// program in the training dialect, with `no_grad` and `autocast` blocks as regions.
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
    Export::new(inputs).state(state).once(f)
}

/// A builder for an export: example inputs, the function's own tensors, and which sizes are dynamic.
///
/// ```
/// use firebrand_core::{DType, Tensor};
/// use firebrand_graph::{Dim, Export};
/// let batch = Dim::new("batch").min(2).max(64);
/// let x = Tensor::zeros([4, 3], DType::F32);
/// let program = Export::new(&[x])
///     .names(["x"])
///     .dynamic(0, 0, &batch)
///     .run(|x| { let n = x[0].size(0); Ok(vec![x[0].reshape([n * 3])]) })?;
/// let out = program.run(&[Tensor::ones([10, 3], DType::F32)])?;
/// assert_eq!(out[0].tensor()?.shape(), [30]);
/// assert!(program.run(&[Tensor::ones([65, 3], DType::F32)]).is_err());
/// # Ok::<(), firebrand_graph::Error>(())
/// ```
#[must_use = "nothing is exported before `run`"]
pub struct Export<'a> {
    inputs: &'a [Tensor],
    names: Vec<String>,
    state: Vec<Own>,
    dims: Vec<(usize, usize, Dim)>,
}

/// A tensor of the function's own.
struct Own {
    name: String,
    tensor: Tensor,
    is_parameter: bool,
    persistent: bool,
}

impl<'a> Export<'a> {
    /// An export for inputs like these.
    pub fn new(inputs: &'a [Tensor]) -> Export<'a> {
        Export { inputs, names: Vec::new(), state: Vec::new(), dims: Vec::new() }
    }

    /// Names of the inputs, in order; those without one are called `arg_0`, `arg_1`, ….
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Additional parameters and buffers of the function.
    pub fn state(mut self, state: &[NamedTensor]) -> Self {
        self.state.extend(state.iter().map(|s| Own {
            name: s.name.clone(),
            tensor: s.tensor.clone(),
            is_parameter: s.is_parameter,
            persistent: true,
        }));
        self
    }

    /// The parameters and buffers of a module that the function calls.
    pub fn module(mut self, module: &dyn Module) -> Self {
        let mut seen = self.state.iter().map(|s| s.tensor.id()).collect();
        for (path, inner) in module.named_modules() {
            inner.visit(&mut Collect { path: &path, state: &mut self.state, seen: &mut seen });
        }
        self
    }

    /// Makes dimension `dim` of an input dynamic.
    pub fn dynamic(mut self, input: usize, dim: usize, size: &Dim) -> Self {
        self.dims.push((input, dim, size.clone()));
        self
    }

    /// Runs the function and records what it does. With dynamic sizes it is run several times, always on meta tensors.
    ///
    /// # Errors
    /// The function's error at the sizes of the example; [`crate::Error::Specialized`] if it does not do the same at
    /// others.
    pub fn run(self, f: impl Fn(&[Tensor]) -> firebrand_core::Result<Vec<Tensor>>) -> Result<ExportedProgram> {
        if self.dims.is_empty() {
            return self.once(f);
        }
        let (places, symbols) = Places::new(self.inputs, &self.dims, |i| self.name(i))?;
        let (module, symbols) = vary::trace(&self, &places, symbols, &f)?;
        let mut program = self.program(module)?;
        let ranges = symbols.iter().enumerate().map(|(k, s)| (Symbol::name(k), s.range));
        program.range_constraints = ranges.collect();
        Ok(program)
    }

    /// Like [`Export::run`], where nothing varies.
    fn once(self, f: impl FnOnce(&[Tensor]) -> firebrand_core::Result<Vec<Tensor>>) -> Result<ExportedProgram> {
        let (places, _) = Places::new(self.inputs, &[], |i| self.name(i))?;
        let layer = Arc::new(TraceLayer::new(is_grad_enabled()));
        let outlines = self.begin(&layer, &places, &[])?;
        let results = layer::above_autograd(&layer, || f(&outlines))?;
        let module = layer.finish(&results)?;
        self.program(module)
    }

    fn name(&self, input: usize) -> String {
        self.names.get(input).cloned().unwrap_or_else(|| format!("arg_{input}"))
    }

    /// Parameters come before buffers, and both before the caller's inputs.
    fn own(&self) -> impl Iterator<Item = &Own> {
        self.state.iter().filter(|s| s.is_parameter).chain(self.state.iter().filter(|s| !s.is_parameter))
    }

    /// Adds the inputs to a graph; gives the meta tensors that the function is called with.
    fn begin(&self, layer: &TraceLayer, places: &Places, symbols: &[i64]) -> Result<Vec<Tensor>> {
        for own in self.own() {
            let prefix = if own.is_parameter { "p_" } else { "b_" };
            layer.input(&format!("{prefix}{}", own.name.replace('.', "_").to_lowercase()), &own.tensor);
        }
        let outline = |(i, input): (usize, &Tensor)| {
            let name = self.name(i);
            let outline = places.outline(i, input, symbols, &name)?;
            layer.input(&name, &outline);
            Ok(outline)
        };
        self.inputs.iter().enumerate().map(outline).collect()
    }

    /// What was captured, with its signature and state, as a program.
    fn program(&self, module: GraphModule) -> Result<ExportedProgram> {
        let mut program = ExportedProgram::default();
        let mut signature = GraphSignature::default();
        let graph = &module.graph;
        let mut inputs = graph.placeholders().map(|n| SpecArg::Tensor(graph[n].name().clone()));
        for (own, arg) in self.own().zip(&mut inputs) {
            let target: Name = own.name.as_str().into();
            let kind = match own.is_parameter {
                true => InputKind::Parameter(target),
                false => InputKind::Buffer { target, persistent: own.persistent },
            };
            signature.inputs.push(InputSpec { kind, arg });
            let tensor = own.tensor.clone();
            if own.is_parameter || own.persistent {
                program.state_dict.insert(own.name.clone(), State { tensor, is_parameter: own.is_parameter });
            } else {
                program.constants.insert(own.name.clone(), Constant::Tensor(tensor));
            }
        }
        signature.inputs.extend(inputs.map(|arg| InputSpec { kind: InputKind::UserInput, arg }));
        let returned = graph.result().and_then(Argument::items).unwrap_or(&[]);
        let names = returned.iter().filter_map(Argument::node).map(|n| graph[n].name().clone());
        signature.outputs =
            names.map(|name| OutputSpec { kind: OutputKind::UserOutput, arg: SpecArg::Tensor(name) }).collect();
        program.module_call_graph = vec![self.call(returned.len())];
        program.module = Arc::new(module);
        program.signature = Some(Arc::new(signature));
        let context = Context { ambient_grad: is_grad_enabled(), compat: false };
        const PASSES: [&str; 5] = [
            "insert_conversion_guards_pass",
            "lift_constants_pass",
            "set_grad",
            "replace_autocast_with_hop_pass",
            "placeholder_naming_pass",
        ];
        let list = PASSES.map(passes::find).into_iter().collect::<Result<Vec<_>>>()?;
        Ok(passes::run(&program, &list, &context)?.0)
    }

    /// How the program is called: a tuple of tensors in, a tuple of tensors out.
    fn call(&self, results: usize) -> ModuleCallEntry {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let tuple = |children: Vec<&str>| {
            let children = children.join(", ");
            format!(r#"{{"type": "builtins.tuple", "context": "null", "children_spec": [{children}]}}"#)
        };
        let kwargs = r#"{"type": "builtins.dict", "context": "[]", "children_spec": []}"#;
        let args = tuple(vec![leaf; self.inputs.len()]);
        let call_spec = CallSpec {
            in_spec: format!("[1, {}]", tuple(vec![&args, kwargs])),
            out_spec: format!("[1, {}]", tuple(vec![leaf; results])),
            forward_arg_names: (0..self.inputs.len()).map(|i| self.name(i)).collect(),
        };
        let signature = ModuleCallSignature { inputs: Vec::new(), outputs: Vec::new(), call_spec };
        ModuleCallEntry { fqn: String::new(), signature: Some(signature) }
    }
}

/// Collects what a module holds itself.
struct Collect<'s> {
    path: &'s str,
    state: &'s mut Vec<Own>,
    /// Ids of the tensors in `state`: what several modules share is there once.
    seen: &'s mut HashSet<usize>,
}

impl Collect<'_> {
    fn add(&mut self, name: &str, tensor: Tensor, is_parameter: bool, persistent: bool) {
        if self.seen.insert(tensor.id()) {
            let name = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
            self.state.push(Own { name, tensor, is_parameter, persistent });
        }
    }
}

impl<'a> ModuleVisitor<'a> for Collect<'_> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        self.add(name, parameter.tensor().clone(), true, true);
    }

    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.add(name, buffer.get(), false, buffer.is_persistent());
    }

    fn module(&mut self, _: &str, _: &'a dyn Module) {}
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
