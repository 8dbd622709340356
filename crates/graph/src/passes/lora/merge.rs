//! Merges adapters into the weights of their layers: afterwards the program is as small and as fast as without them.

use super::layers::{LayerKind, argument, recognize};
use super::{CONFIG, PASS, refuse};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::passes::Report;
use crate::passes::dead_code::sweep;
use crate::program::{ExportedProgram, State};
use crate::signature::InputKind;
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::Op;
use firebrand_core::{DType, Tensor, TensorMap, ops};
use std::collections::HashMap;
use std::sync::Arc;

/// The two parameters of one adapter, by name.
pub(super) struct Pair {
    /// The module they belong to.
    pub(super) path: String,
    pub(super) a: String,
    pub(super) b: String,
}

/// The module of a name such as `path.lora_A.weight` or `path.lora_A.default.weight`.
pub(super) fn module_of<'a>(name: &'a str, part: &str) -> Option<&'a str> {
    let (path, rest) = name.split_once(part)?;
    let path = path.strip_suffix('.')?;
    let adapter = rest.strip_prefix('.')?.strip_suffix("weight")?;
    let plain = adapter.is_empty() || adapter.strip_suffix('.').is_some_and(|a| !a.is_empty() && !a.contains('.'));
    plain.then_some(path)
}

/// The adapters of a program, in the order of the state dict.
pub(super) fn pairs(program: &ExportedProgram) -> Result<Vec<Pair>> {
    let mut found = Vec::new();
    for name in program.state_dict.keys() {
        let Some(path) = module_of(name, "lora_A") else { continue };
        let b = name.replacen("lora_A", "lora_B", 1);
        if !program.state_dict.contains_key(&b) {
            return refuse(format!("{name} has no counterpart {b}"));
        }
        found.push(Pair { path: path.to_string(), a: name.clone(), b });
    }
    Ok(found)
}

/// Merges every adapter into the weight of its layer and removes it. All parameters require grad again.
///
/// # Errors
/// If there is no adapter, if one is used in a way this pass does not know, or if a weight has other users, which would
/// change with it.
pub fn merge_lora(program: &ExportedProgram) -> Result<(ExportedProgram, Report)> {
    let adapters = pairs(program)?;
    if adapters.is_empty() {
        return refuse("the program has no adapters (parameters named lora_A and lora_B) to merge");
    }
    let mut merge = Merge::new(program)?;
    for pair in &adapters {
        merge.one(pair)?;
    }
    Ok((merge.finish(&adapters)?, Report::of(adapters.len())))
}

struct Merge {
    result: ExportedProgram,
    module: GraphModule,
    /// Placeholders of parameters by name, and the other way round.
    inputs: HashMap<String, NodeId>,
    names: HashMap<NodeId, String>,
}

/// How an adapter is used: its factor, the layer's call and what its result is added in.
struct Use {
    scaling: f64,
    base: NodeId,
    sum: NodeId,
}

impl Merge {
    fn new(program: &ExportedProgram) -> Result<Merge> {
        let (mut inputs, mut names) = (HashMap::new(), HashMap::new());
        for (n, spec) in program.module.graph.placeholders().zip(&program.signature()?.inputs) {
            if let InputKind::Parameter(target) = &spec.kind {
                inputs.insert(target.to_string(), n);
                names.insert(n, target.to_string());
            }
        }
        Ok(Merge { result: program.clone(), module: (*program.module).clone(), inputs, names })
    }

    fn tensor(&self, name: &str) -> Result<Tensor> {
        let missing = || Error::Pass { pass: PASS, message: format!("{name} has no value") };
        self.result.state_dict.get(name).map(|s| s.tensor.detach()).ok_or_else(missing)
    }

    fn one(&mut self, pair: &Pair) -> Result<()> {
        let known: HashMap<NodeId, &str> = self.names.iter().map(|(n, name)| (*n, name.as_str())).collect();
        let (Some(&a), Some(&b)) = (self.inputs.get(&pair.a), self.inputs.get(&pair.b)) else {
            return refuse(format!("{} or {} is not an input of the graph", pair.a, pair.b));
        };
        let uses = uses(&self.module.graph, &known, a, b).map_err(|why| Error::Pass {
            pass: PASS,
            message: format!("the adapter of {} cannot be merged: {why}", pair.path),
        })?;
        let mut layer: Option<(LayerKind, NodeId, f64)> = None;
        for found in &uses {
            let Some((kind, _, weight, _)) = recognize(&self.module.graph, found.base, &known) else {
                let name = self.module.graph[found.base].name();
                return refuse(format!(
                    "the adapter of {} belongs to %{name}, which is not a layer with a weight",
                    pair.path
                ));
            };
            let this = (kind, weight, found.scaling);
            if *layer.get_or_insert(this) != this {
                return refuse(format!("the adapter of {} is used in different ways", pair.path));
            }
        }
        let Some((kind, weight, scaling)) = layer else {
            return refuse(format!("the adapter of {} is unused", pair.path));
        };
        let name = self.names[&weight].clone();
        let users = self.module.graph.users(weight).collect::<Vec<_>>();
        let graph = &self.module.graph;
        let own = |u: &NodeId| uses.iter().any(|f| f.base == *u || graph.input_nodes(f.base).any(|i| i == *u));
        if let Some(other) = users.iter().find(|u| !own(u)) {
            let message = format!("{name} is also used by %{}, which must not change", graph[*other].name());
            return refuse(format!("the adapter of {} cannot be merged: {message}", pair.path));
        }
        let old = self.tensor(&name)?;
        if let Some((other, _)) = self
            .result
            .state_dict
            .iter()
            .find(|(n, s)| **n != name && s.tensor.is_same(&self.result.state_dict[&name].tensor))
        {
            return refuse(format!("the adapter of {} cannot be merged: its weight is also {other}", pair.path));
        }
        let merged = merged(kind, &old, &self.tensor(&pair.a)?, &self.tensor(&pair.b)?, scaling)?;
        self.result.state_dict.insert(name, State { tensor: merged, is_parameter: true });
        for Use { base, sum, .. } in uses {
            let (old, new) = (self.module.graph[sum].name().clone(), self.module.graph[base].name().clone());
            self.module.graph.replace_all_uses_with(sum, base);
            let mut signature = self.result.signature()?.clone();
            for spec in signature.outputs.iter_mut().filter(|s| s.arg.node() == Some(&old)) {
                spec.arg.set_name(new.clone());
            }
            self.result.signature = Some(Arc::new(signature));
            let known = self.result.module_call_graph.iter_mut().filter_map(|e| e.signature.as_mut());
            for arg in known.flat_map(|s| &mut s.outputs).filter(|a| a.node() == Some(&old)) {
                arg.set_name(new.clone());
            }
        }
        Ok(())
    }

    /// Removes what has become unused, and lets parameters train again.
    fn finish(mut self, adapters: &[Pair]) -> Result<ExportedProgram> {
        sweep(&mut self.module)?;
        let mut signature = self.result.signature()?.clone();
        for name in adapters.iter().flat_map(|p| [&p.a, &p.b]) {
            self.module.graph.erase(self.inputs[name])?;
            self.result.state_dict.shift_remove(name);
            signature.inputs.retain(|s| !matches!(&s.kind, InputKind::Parameter(t) if **t == **name));
        }
        let mut trained: TensorMap<Tensor> = TensorMap::new();
        for state in
            self.result.state_dict.values_mut().filter(|s| s.is_parameter && s.tensor.dtype().is_floating_point())
        {
            let new = match trained.get(&state.tensor) {
                Some(new) => new.clone(),
                None => {
                    let new = state.tensor.detach();
                    new.try_set_requires_grad(true)?;
                    trained.insert(&state.tensor, new.clone());
                    new
                }
            };
            state.tensor = new;
        }
        let placeholders: Vec<NodeId> = self.module.graph.placeholders().collect();
        for (n, spec) in placeholders.into_iter().zip(&signature.inputs) {
            if let (InputKind::Parameter(_), Some(Val::Tensor(meta))) =
                (&spec.kind, &mut self.module.graph.meta_mut(n).val)
            {
                Arc::make_mut(meta).requires_grad = meta.dtype.is_differentiable();
            }
        }
        let mut extras = self.result.extras.as_deref().cloned().unwrap_or_default();
        if extras.files.shift_remove(CONFIG).is_some() {
            self.result.extras = Some(Arc::new(extras));
        }
        self.result.module = Arc::new(self.module);
        self.result.signature = Some(Arc::new(signature));
        Ok(self.result)
    }
}

/// Every use of an adapter: from `A` through `B` to the sum with the layer's result.
fn uses(graph: &Graph, known: &HashMap<NodeId, &str>, a: NodeId, b: NodeId) -> Result<Vec<Use>, String> {
    let mut starts: Vec<NodeId> = Vec::new();
    for user in graph.users(a) {
        match recognize(graph, user, known) {
            Some((.., weight, _)) if weight == a => starts.push(user),
            _ => starts.extend(graph.users(user)),
        }
    }
    starts.into_iter().map(|start| follow(graph, known, start, b)).collect()
}

fn follow(graph: &Graph, known: &HashMap<NodeId, &str>, start: NodeId, b: NodeId) -> Result<Use, String> {
    let (mut at, mut scaling, mut widened) = (start, 1.0, false);
    loop {
        let mut users = graph.users(at);
        let (Some(next), None) = (users.next(), users.next()) else {
            return Err(format!("%{} is used in several places", graph[at].name()));
        };
        let node = &graph[next];
        let strange = || format!("%{} is not part of an adapter", node.name());
        let op = node.target().and_then(Target::overload).and_then(OpOverload::op).ok_or_else(strange)?;
        match op {
            Op::TO_DTYPE | Op::_TO_COPY | Op::CLONE | Op::VIEW | Op::RESHAPE | Op::_UNSAFE_VIEW => {}
            Op::MUL_TENSOR | Op::MUL_SCALAR => {
                scaling *= match argument(node, op, "other") {
                    Some(Argument::Float(v)) => *v,
                    Some(Argument::Int(v)) => *v as f64,
                    _ => return Err(strange()),
                }
            }
            Op::ADD_TENSOR if widened && node.kwargs().is_empty() && node.args().len() == 2 => {
                let other = node.args().iter().filter_map(Argument::node).find(|&n| n != at).ok_or_else(strange)?;
                return Ok(Use { scaling, base: back(graph, other), sum: next });
            }
            _ => match recognize(graph, next, known) {
                Some((.., weight, _)) if weight == b && !widened => widened = true,
                _ => return Err(strange()),
            },
        }
        at = next;
    }
}

/// The call behind changes of shape.
fn back(graph: &Graph, mut n: NodeId) -> NodeId {
    while let Some(op) = graph[n].target().and_then(Target::overload).and_then(OpOverload::op)
        && matches!(op, Op::VIEW | Op::RESHAPE | Op::_UNSAFE_VIEW)
        && let Some(before) = graph[n].args().first().and_then(Argument::node)
    {
        n = before;
    }
    n
}

/// `weight + scaling · B A`, in the shape and dtype of the weight.
fn merged(kind: LayerKind, weight: &Tensor, a: &Tensor, b: &Tensor, scaling: f64) -> Result<Tensor> {
    if let LayerKind::Conv { groups, .. } = kind
        && groups != 1
    {
        return refuse(format!("an adapter of a convolution with {groups} groups cannot be merged into its weight"));
    }
    let exact = if weight.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    no_grad(|| {
        let rank = a.shape().first().copied().unwrap_or(0);
        let matrix = |t: &Tensor, rows: usize| -> Result<Tensor> {
            Ok(ops::reshape(&t.try_to_dtype(exact)?, &[(rows as i64).into(), (-1).into()])?)
        };
        let product = ops::mm(&matrix(b, b.shape().first().copied().unwrap_or(0))?, &matrix(a, rank)?)?;
        let product = if kind == LayerKind::Conv1D { ops::transpose(&product, 0, 1)? } else { product };
        let sizes: Vec<firebrand_core::SymInt> = weight.shape().iter().map(|&s| s.into()).collect();
        let delta = ops::mul_scalar(&ops::reshape(&product, &sizes)?, scaling.into())?;
        let sum = ops::add(&weight.try_to_dtype(exact)?, &delta, 1.into())?;
        Ok(sum.try_to_dtype(weight.dtype())?)
    })
}
