//! `backward` and `grad`: argument rules, incoming gradients (seeds), batched gradients.

use super::engine::{self, Run, Wanted};
use super::node::{Edge, GradientEdge, Node};
use crate::capture;
use crate::func::Randomness;
use crate::func::level::{self, Batch};
use crate::func::rules::Batched;
use crate::sym::SymInts;
use crate::warnings::warn;
use crate::{DType, Device, Error, ErrorKind, Result, Spec, Tensor, ops, state};
use indexmap::IndexMap;
use std::hash::Hash;
use std::panic::Location;
use std::sync::Once;

/// Something to differentiate, or to differentiate with respect to.
#[derive(Clone, Debug)]
pub enum Target {
    /// A tensor.
    Tensor(Tensor),
    /// A place in the graph.
    Edge(GradientEdge),
}

impl From<&Tensor> for Target {
    fn from(t: &Tensor) -> Target {
        Target::Tensor(t.clone())
    }
}
impl From<Tensor> for Target {
    fn from(t: Tensor) -> Target {
        Target::Tensor(t)
    }
}
impl From<GradientEdge> for Target {
    fn from(e: GradientEdge) -> Target {
        Target::Edge(e)
    }
}
impl From<&GradientEdge> for Target {
    fn from(e: &GradientEdge) -> Target {
        Target::Edge(e.clone())
    }
}

/// A list of targets: one, or an array, slice or vector of values that convert to one.
pub trait Targets {
    /// The list.
    fn into_targets(self) -> Vec<Target>;
}
impl Targets for &Tensor {
    fn into_targets(self) -> Vec<Target> {
        vec![self.into()]
    }
}
impl Targets for &GradientEdge {
    fn into_targets(self) -> Vec<Target> {
        vec![self.into()]
    }
}
impl<T: Into<Target>, const N: usize> Targets for [T; N] {
    fn into_targets(self) -> Vec<Target> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<T: Into<Target>> Targets for Vec<T> {
    fn into_targets(self) -> Vec<Target> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<'a, T> Targets for &'a [T]
where
    &'a T: Into<Target>,
{
    fn into_targets(self) -> Vec<Target> {
        self.iter().map(Into::into).collect()
    }
}

/// Options of [`backward`].
#[derive(Clone, Debug, Default)]
pub struct BackwardOptions {
    /// One gradient per output; a missing one is an implicit 1 for outputs of one element. Extra ones are ignored.
    pub grad_tensors: Vec<Option<Tensor>>,
    /// Keep saved values for another run; defaults to `create_graph`.
    pub retain_graph: Option<bool>,
    /// Record the run itself, for higher derivatives.
    pub create_graph: bool,
    /// Accumulate gradients into these only.
    pub inputs: Option<Vec<Target>>,
}

impl BackwardOptions {
    /// Saved values are kept for another run.
    pub fn retain_graph() -> BackwardOptions {
        BackwardOptions { retain_graph: Some(true), ..Default::default() }
    }

    /// The run itself is recorded, for higher derivatives.
    pub fn create_graph() -> BackwardOptions {
        BackwardOptions { create_graph: true, ..Default::default() }
    }
}

/// Options of [`grad`].
#[derive(Clone, Debug, Default)]
pub struct GradOptions {
    /// One gradient per output; a missing one is an implicit 1 for outputs of one element.
    pub grad_outputs: Vec<Option<Tensor>>,
    /// Keep saved values for another run; defaults to `create_graph`.
    pub retain_graph: Option<bool>,
    /// Record the run itself, for higher derivatives.
    pub create_graph: bool,
    /// Unused inputs give `None` instead of an error; defaults to `materialize_grads`.
    pub allow_unused: Option<bool>,
    /// Unused inputs give zeros.
    pub materialize_grads: bool,
    /// The first dimension of every gradient is a batch; results get it too.
    pub is_grads_batched: bool,
}

impl GradOptions {
    /// For higher derivatives.
    pub fn create_graph() -> GradOptions {
        GradOptions { create_graph: true, ..Default::default() }
    }

    /// Saved values are kept for another run.
    pub fn retain_graph() -> GradOptions {
        GradOptions { retain_graph: Some(true), ..Default::default() }
    }
}

struct Seeded {
    edge: Edge,
    shape: Vec<usize>,
    dtype: DType,
    device: Device,
}

fn seeded(t: &Target, index: usize) -> Result<Seeded> {
    match t {
        Target::Tensor(t) => {
            let edge = if t.requires_grad() { t.gradient_edge()? } else { None };
            let edge = edge.ok_or_else(|| Error::from(ErrorKind::NoGradFn { index }))?;
            Ok(Seeded { edge, shape: t.shape().to_vec(), dtype: t.dtype(), device: t.device() })
        }
        Target::Edge(e) => {
            let meta = &e.node.input_metadata()[e.output_nr];
            let edge = Edge { node: e.node.clone(), slot: e.output_nr as u32 };
            Ok(Seeded { edge, shape: meta.shape.to_vec(), dtype: meta.dtype, device: meta.device })
        }
    }
}

/// A gradient on the expected device; as in PyTorch, a 0-dim gradient is moved there. It comes from `node`, or from the caller.
pub(super) fn on_device(g: &Tensor, expected: Device, node: Option<&Node>, index: usize) -> Result<Tensor> {
    // A layer below autograd may show tensors on another device than those it computes with.
    if g.device() == expected || state::is(state::INNER) {
        return Ok(g.clone());
    }
    if g.ndim() == 0 && expected == Device::Meta {
        return Tensor::try_empty(Spec::new(&[], g.dtype(), expected)?);
    }
    let node = node.map(|n| n.name().to_string());
    Err(ErrorKind::GradDevice { node, index, expected, found: g.device() }.into())
}

/// Pairs every output with its seed. With `batched`, seeds have one dimension more and nothing is implied.
fn roots(outputs: &[Target], grads: &[Option<Tensor>], batched: bool) -> Result<Vec<(Edge, Tensor)>> {
    let mut list = Vec::with_capacity(outputs.len());
    for (index, t) in outputs.iter().enumerate() {
        let s = match t {
            // Inside `vmap`, what has no batch may have a history outside of it.
            Target::Tensor(t) if state::is(state::LEVEL) => seeded(&Target::Tensor(level::lowered(t)), index)?,
            _ => seeded(t, index)?,
        };
        let seed = match grads.get(index).and_then(Option::as_ref) {
            Some(g) => {
                let found = g.shape();
                if batched && (found.is_empty() || found[1..] != s.shape[..]) {
                    return Err(ErrorKind::BatchedGradShape { index, expected: s.shape, found: found.to_vec() }.into());
                }
                if !batched && found != &s.shape[..] {
                    return Err(ErrorKind::GradShapeMismatch { index, expected: s.shape, found: found.to_vec() }.into());
                }
                if g.dtype().is_complex() != s.dtype.is_complex() {
                    let (expected, found) = (s.dtype, g.dtype());
                    return Err(ErrorKind::GradComplexMismatch { index, expected, found }.into());
                }
                let g = on_device(g, s.device, None, index)?;
                if g.dtype() == s.dtype { g } else { ops::formulas::cast(&g, s.dtype)? }
            }
            None => {
                if s.shape.iter().product::<usize>() != 1 {
                    return Err(ErrorKind::ImplicitGradNonScalar { shape: s.shape }.into());
                }
                if !s.dtype.is_floating_point() {
                    return Err(ErrorKind::ImplicitGradNotReal { dtype: s.dtype }.into());
                }
                match s.device {
                    Device::Meta if !state::is(state::INNER) => {
                        Tensor::try_empty(Spec::new(&s.shape, s.dtype, Device::Meta)?)?
                    }
                    _ if ops::formulas::is_traced() => ops::full(
                        &s.shape.iter().map(|&n| n.into()).collect::<SymInts>(),
                        1.0.into(),
                        Some(s.dtype),
                        None,
                    )?,
                    _ => Tensor::try_full_spec(&s.shape, 1.0.into(), s.dtype)?,
                }
            }
        };
        list.push((s.edge, seed));
    }
    Ok(list)
}

/// Computes gradients of `outputs` and accumulates them into the leaves.
#[track_caller]
pub fn backward(outputs: impl Targets, options: &BackwardOptions) -> Result<()> {
    if let Some(tracer) = capture::tracer() {
        let at = Location::caller();
        let real = |list: &[Target]| capture::real_targets(&*tracer, list, at);
        let options = BackwardOptions {
            grad_tensors: capture::real_seeds(&*tracer, &options.grad_tensors, at)?,
            inputs: options.inputs.as_deref().map(real).transpose()?,
            ..options.clone()
        };
        let outputs = real(&outputs.into_targets())?;
        return capture::suspended(|| backward(outputs, &options));
    }
    if crate::state::is(crate::state::DEPTH) {
        return Err(ErrorKind::BackwardInTransform.into());
    }
    let outputs = outputs.into_targets();
    if capture::has_stand_ins() && capture::targets_stand_in(&outputs, options.inputs.as_deref(), &options.grad_tensors)
    {
        let options = BackwardOptions {
            grad_tensors: options.grad_tensors.iter().map(|t| t.as_ref().map(capture::real)).collect(),
            inputs: options.inputs.as_deref().map(capture::targets_here),
            ..options.clone()
        };
        return backward(capture::targets_here(&outputs), &options);
    }
    if options.inputs.as_ref().is_some_and(Vec::is_empty) {
        return Err(ErrorKind::EmptyInputs.into());
    }
    let roots = roots(&outputs, &options.grad_tensors, false)?;
    let wanted = match &options.inputs {
        None => Wanted::All,
        Some(inputs) => {
            let mut nodes = Vec::new();
            for t in inputs {
                match t {
                    Target::Tensor(t) => {
                        t.try_retain_grad()?;
                        nodes.extend(t.gradient_edge()?.map(|e| e.node));
                    }
                    Target::Edge(e) => nodes.push(e.node.clone()),
                }
            }
            Wanted::Nodes(nodes)
        }
    };
    if options.create_graph {
        static ONCE: Once = Once::new();
        let mut first = false;
        ONCE.call_once(|| first = true);
        if first || cfg!(test) {
            warn(
                "backward with create_graph makes a reference cycle between a leaf and its gradient, which leaks memory; \
                 use grad() instead, or reset the gradients after use",
            );
        }
    }
    let keep_graph = options.retain_graph.unwrap_or(options.create_graph);
    engine::run(Run { roots, keep_graph, create_graph: options.create_graph, wanted })?;
    Ok(())
}

/// Computes gradients of `outputs` with respect to `inputs` and returns them, one per input.
#[track_caller]
pub fn grad(outputs: impl Targets, inputs: impl Targets, options: &GradOptions) -> Result<Vec<Option<Tensor>>> {
    let (outputs, inputs) = (outputs.into_targets(), inputs.into_targets());
    if let Some(tracer) = capture::tracer() {
        let at = Location::caller();
        let grad_outputs = capture::real_seeds(&*tracer, &options.grad_outputs, at)?;
        let options = GradOptions { grad_outputs, ..options.clone() };
        let real = |list: &[Target]| capture::real_targets(&*tracer, list, at);
        let (outputs, inputs) = (real(&outputs)?, real(&inputs)?);
        return capture::suspended(|| grad(outputs, inputs, &options));
    }
    if capture::has_stand_ins() && capture::targets_stand_in(&outputs, Some(&inputs), &options.grad_outputs) {
        let grad_outputs = options.grad_outputs.iter().map(|t| t.as_ref().map(capture::real)).collect();
        let options = GradOptions { grad_outputs, ..options.clone() };
        return grad(capture::targets_here(&outputs), capture::targets_here(&inputs), &options);
    }
    grad_here(outputs, inputs, options)
}

/// [`grad`] by the engine, whether or not a function is being captured.
pub(crate) fn grad_here(
    outputs: Vec<Target>,
    inputs: Vec<Target>,
    options: &GradOptions,
) -> Result<Vec<Option<Tensor>>> {
    if inputs.is_empty() {
        return Err(ErrorKind::EmptyInputs.into());
    }
    if options.materialize_grads && options.allow_unused == Some(false) {
        return Err(ErrorKind::MaterializeNeedsUnused.into());
    }
    let roots = roots(&outputs, &options.grad_outputs, options.is_grads_batched)?;
    let mut edges = Vec::with_capacity(inputs.len());
    for (index, t) in inputs.iter().enumerate() {
        edges.push(match t {
            Target::Tensor(t) => {
                let e = if t.requires_grad() { t.gradient_edge()? } else { None };
                e.ok_or_else(|| Error::from(ErrorKind::InputNoGrad { index }))?
            }
            Target::Edge(e) => Edge { node: e.node.clone(), slot: e.output_nr as u32 },
        });
    }
    let keep_graph = options.retain_graph.unwrap_or(options.create_graph);
    let mut grads = if options.is_grads_batched {
        batched(roots, &edges, keep_graph, options.create_graph)?
    } else {
        let wanted = Wanted::Captures(edges);
        engine::run(Run { roots, keep_graph, create_graph: options.create_graph, wanted })?
    };
    let allow_unused = options.allow_unused.unwrap_or(options.materialize_grads);
    for (index, g) in grads.iter_mut().enumerate().filter(|(_, g)| g.is_none()) {
        if !allow_unused {
            return Err(ErrorKind::UnusedInput { index }.into());
        }
        if options.materialize_grads {
            let Target::Tensor(t) = &inputs[index] else { return Err(ErrorKind::EdgeMaterialize { index }.into()) };
            let zeros = Tensor::try_full_spec(t.shape(), 0.0.into(), t.dtype())?;
            *g = Some(if options.create_graph { zeros.try_requires_grad_(true)? } else { zeros });
        }
    }
    Ok(grads)
}

/// One run for the whole batch: seeds are wrapped as `vmap` does it.
fn batched(
    roots: Vec<(Edge, Tensor)>,
    edges: &[Edge],
    keep_graph: bool,
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    let size = roots.first().map_or(0, |(_, g)| g.shape()[0]);
    let found: Vec<Option<Batched>> = {
        let _level = level::enter_batch(Batch { size, randomness: Randomness::Different })?;
        let roots = roots.into_iter().map(|(e, g)| (e, level::wrap(g, Some(0)))).collect();
        let wanted = Wanted::Captures(edges.to_vec());
        let grads = engine::run(Run { roots, keep_graph, create_graph, wanted })?;
        grads.iter().map(|g| g.as_ref().map(level::unwrap).transpose()).collect::<Result<_>>()?
    };
    found.into_iter().map(|g| g.map(|g| g.full(size)).transpose()).collect()
}

/// [`grad`] with named inputs: the result has the same keys.
pub fn grad_map<K: Hash + Eq + Clone>(
    outputs: impl Targets,
    inputs: &IndexMap<K, Tensor>,
    options: &GradOptions,
) -> Result<IndexMap<K, Option<Tensor>>> {
    let list: Vec<Target> = inputs.values().map(Target::from).collect();
    let grads = grad(outputs, list, options)?;
    Ok(inputs.keys().cloned().zip(grads).collect())
}

impl Tensor {
    /// Computes gradients of this tensor (of one element) and accumulates them into the leaves.
    ///
    /// # Panics
    /// If it does not require grad, has several elements, or a node or hook fails; see [`Tensor::try_backward`].
    #[track_caller]
    pub fn backward(&self) {
        self.try_backward(&BackwardOptions::default()).unwrap_or_else(|e| e.raise())
    }

    /// Like [`Tensor::backward`], but keeps the saved values, so that the graph can be differentiated again.
    ///
    /// # Panics
    /// See [`Tensor::backward`].
    #[track_caller]
    pub fn backward_retain_graph(&self) {
        self.try_backward(&BackwardOptions::retain_graph()).unwrap_or_else(|e| e.raise())
    }

    /// [`backward`] of this tensor.
    #[track_caller]
    pub fn try_backward(&self, options: &BackwardOptions) -> Result<()> {
        backward(self, options)
    }

    /// Backward with a gradient of this tensor's shape.
    ///
    /// # Panics
    /// See [`Tensor::backward`].
    #[track_caller]
    pub fn backward_with(&self, gradient: &Tensor) {
        let options = BackwardOptions { grad_tensors: vec![Some(gradient.clone())], ..Default::default() };
        self.try_backward(&options).unwrap_or_else(|e| e.raise())
    }
}
