//! The layers of a program that can have an adapter: calls of `linear`, `addmm`, `mm` and convolutions whose weight is a parameter.

use super::{PASS, ends_in, refuse};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;
use crate::signature::InputKind;
use firebrand_core::DType;
use firebrand_core::dispatch::Op;
use std::collections::HashMap;

/// What a layer does with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// `x @ weightᵀ`.
    Linear,
    /// `x @ weight`, as GPT-2 has it.
    Conv1D,
    /// A convolution over this many dimensions.
    Conv { dims: usize, groups: usize },
}

impl LayerKind {
    /// Where the features are among the dimensions of a result, counted from the end.
    pub(super) fn features_from_end(self) -> usize {
        match self {
            LayerKind::Linear | LayerKind::Conv1D => 1,
            LayerKind::Conv { dims, .. } => dims + 1,
        }
    }
}

/// One call of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) node: NodeId,
    pub(super) input: NodeId,
}

/// A module with a weight.
pub(super) struct Layer {
    /// Its path in the model.
    pub(super) path: String,
    pub(super) kind: LayerKind,
    /// Sizes of its weight.
    pub(super) weight: Vec<usize>,
    pub(super) dtype: DType,
    /// The input that is its weight.
    pub(super) placeholder: NodeId,
    /// Another name of its weight, if it has one.
    tied: Option<String>,
    /// Why it cannot have an adapter, if it cannot.
    unfit: Option<String>,
    pub(super) calls: Vec<Call>,
}

/// All of them, in the order of the state dict, which is that of the modules.
pub(super) struct Layers {
    list: Vec<Layer>,
    /// Paths of modules whose weight is used in sub-graphs only.
    hidden: Vec<String>,
}

impl Layers {
    pub(super) fn of(program: &ExportedProgram) -> Result<Layers> {
        let graph = &program.module.graph;
        let weights: HashMap<NodeId, &str> = graph
            .placeholders()
            .zip(&program.signature()?.inputs)
            .filter_map(|(n, s)| match &s.kind {
                InputKind::Parameter(target) => Some((n, &**target)),
                _ => None,
            })
            .collect();
        let mut found: HashMap<&str, Layer> = HashMap::new();
        for n in graph.nodes() {
            let Some((kind, input, weight, unfit)) = recognize(graph, n, &weights) else { continue };
            let name = weights[&weight];
            let (Some(path), Some(state)) = (name.strip_suffix(".weight"), program.state_dict.get(name)) else {
                continue;
            };
            if !state.tensor.dtype().is_floating_point() {
                continue;
            }
            let other = |(other, s): (&String, &crate::State)| {
                (other != name && s.tensor.is_same(&state.tensor)).then(|| other.clone())
            };
            let layer = found.entry(name).or_insert_with(|| Layer {
                path: path.to_string(),
                kind,
                weight: state.tensor.shape().to_vec(),
                dtype: state.tensor.dtype(),
                placeholder: weight,
                tied: program.state_dict.iter().find_map(other),
                unfit: None,
                calls: Vec::new(),
            });
            if layer.kind != kind {
                layer.unfit = Some("its weight is used in different ways".to_string());
            }
            layer.unfit = layer.unfit.take().or(unfit);
            layer.calls.push(Call { node: n, input });
        }
        let hidden = inside_subgraphs(graph, &weights, &mut found);
        let list = program.state_dict.keys().filter_map(|name| found.remove(name.as_str())).collect();
        Ok(Layers { list, hidden })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Layer> {
        self.list.iter()
    }

    /// The layer at this path.
    pub(super) fn find(&self, path: &str) -> Option<&Layer> {
        self.list.iter().find(|l| l.path == path)
    }

    /// The layers that get adapters.
    pub(super) fn choose(&self, targets: Option<&[String]>) -> Result<Vec<&Layer>> {
        let Some(targets) = targets else {
            let linear =
                |l: &&Layer| !matches!(l.kind, LayerKind::Conv { .. }) && l.tied.is_none() && l.unfit.is_none();
            let chosen: Vec<&Layer> = self.list.iter().filter(linear).collect();
            if chosen.is_empty() {
                return refuse(
                    "the program has no linear layer whose weight is not shared; name layers with --targets",
                );
            }
            return Ok(chosen);
        };
        if let Some(unknown) = targets.iter().find(|t| !self.list.iter().any(|l| ends_in(&l.path, t))) {
            let mut ends: Vec<&str> = self.list.iter().filter_map(|l| l.path.rsplit('.').next()).collect();
            ends.sort_unstable();
            ends.dedup();
            let quoted: Vec<String> = ends.iter().map(|e| format!("{e:?}")).collect();
            let known =
                if ends.is_empty() { "it has none".to_string() } else { format!("it has {}", quoted.join(", ")) };
            if let Some(path) = self.hidden.iter().find(|path| ends_in(path, unknown)) {
                return refuse(format!("{path} is called in a sub-graph, where it cannot have an adapter"));
            }
            return refuse(format!("no linear or convolution layer of the program ends in {unknown:?}; {known}"));
        }
        let chosen: Vec<&Layer> = self.list.iter().filter(|l| targets.iter().any(|t| ends_in(&l.path, t))).collect();
        match chosen.iter().find_map(|l| Some((&l.path, l.unfit.as_ref()?))) {
            Some((path, why)) => refuse(format!("{path} cannot have an adapter: {why}")),
            None => Ok(chosen),
        }
    }
}

/// Marks layers whose weight goes into a sub-graph, where an adapter would have to follow it; gives the names of weights that
/// are used nowhere else.
fn inside_subgraphs(graph: &Graph, weights: &HashMap<NodeId, &str>, found: &mut HashMap<&str, Layer>) -> Vec<String> {
    let mut hidden = Vec::new();
    for n in graph.nodes().filter(|&n| matches!(graph[n].target(), Some(Target::Hop(_)))) {
        let mut passed: Vec<&str> = Vec::new();
        for argument in graph[n].arguments() {
            argument.for_each_node(&mut |v| passed.extend(weights.get(&v)));
        }
        for name in passed {
            match (found.get_mut(name), name.strip_suffix(".weight")) {
                (Some(layer), _) => {
                    let caller = graph[n].name();
                    layer.unfit = Some(format!("its weight is also used in the sub-graph that %{caller} calls"));
                }
                (None, Some(path)) => hidden.push(path.to_string()),
                (None, None) => {}
            }
        }
    }
    hidden
}

type Found = (LayerKind, NodeId, NodeId, Option<String>);

/// Kind, input and weight of a call; why it cannot have an adapter, if so.
pub(super) fn recognize(graph: &Graph, n: NodeId, weights: &HashMap<NodeId, &str>) -> Option<Found> {
    let node = &graph[n];
    let op = node.target()?.overload()?.op()?;
    let arg = |name: &str| argument(node, op, name);
    let node_of = |name: &str| arg(name)?.node();
    let plain = |w: NodeId| weights.contains_key(&w).then_some(w);
    if op == Op::LINEAR {
        return Some((LayerKind::Linear, node_of("input")?, plain(node_of("weight")?)?, None));
    }
    if op == Op::ADDMM || op == Op::MM {
        let input = node_of(if op == Op::ADDMM { "mat1" } else { "self" })?;
        let mat2 = node_of("mat2")?;
        let numbers = ["beta", "alpha"].iter().all(|k| {
            op == Op::MM
                || matches!(arg(k), None | Some(Argument::Int(1)))
                || matches!(arg(k), Some(Argument::Float(v)) if *v == 1.0)
        });
        if !numbers {
            return None;
        }
        return match plain(mat2) {
            Some(w) => Some((LayerKind::Conv1D, input, w, None)),
            None => Some((LayerKind::Linear, input, plain(transposed(graph, mat2)?)?, None)),
        };
    }
    let dims = match op {
        Op::CONV1D | Op::CONV1D_PADDING => 1,
        Op::CONV2D | Op::CONV2D_PADDING => 2,
        Op::CONV3D | Op::CONV3D_PADDING => 3,
        Op::CONVOLUTION => arg("stride")?.items()?.len(),
        _ => return None,
    };
    let groups = match arg("groups") {
        None => 1,
        Some(Argument::Int(g)) => usize::try_from(*g).ok()?,
        Some(_) => return None,
    };
    let dilated = arg("dilation").and_then(Argument::items).is_some_and(|d| d.iter().any(|v| *v != Argument::Int(1)));
    let transposed = matches!(arg("transposed"), Some(Argument::Bool(true)));
    let unfit = match (dilated, transposed) {
        (true, _) => Some("PEFT has no adapters for dilated convolutions".to_string()),
        (_, true) => Some("PEFT has no adapters for transposed convolutions".to_string()),
        _ => None,
    };
    Some((LayerKind::Conv { dims, groups }, node_of("input")?, plain(node_of("weight")?)?, unfit))
}

/// An argument by name, positional or not.
pub(in crate::passes) fn argument<'a>(node: &'a Node, op: Op, name: &str) -> Option<&'a Argument> {
    let position = op.schema().args.iter().position(|a| a.name == name)?;
    node.args().get(position).or_else(|| node.kwargs().iter().find(|(k, _)| **k == *name).map(|(_, v)| v))
}

/// What a node is the transpose of.
fn transposed(graph: &Graph, n: NodeId) -> Option<NodeId> {
    let node = &graph[n];
    let op = node.target()?.overload()?.op()?;
    let swaps = match op {
        Op::T => true,
        Op::PERMUTE => {
            let dims = argument(node, op, "dims")?.items()?;
            matches!(dims, [Argument::Int(1 | -1), Argument::Int(0 | -2)])
        }
        Op::TRANSPOSE_INT => {
            let dim = |name| match argument(node, op, name) {
                Some(Argument::Int(d)) => Some(d.rem_euclid(2)),
                _ => None,
            };
            dim("dim0")? != dim("dim1")?
        }
        _ => false,
    };
    if swaps { node.args().first()?.node() } else { None }
}

impl Call {
    /// The op that multiplies by `A`, and its arguments.
    pub(super) fn narrow(&self, graph: &Graph, x: NodeId, a: NodeId) -> (Op, Vec<Argument>) {
        let node = &graph[self.node];
        let op = node.target().and_then(Target::overload).and_then(OpOverload::op).unwrap_or(Op::LINEAR);
        if matches!(op, Op::LINEAR | Op::ADDMM | Op::MM) {
            return (Op::LINEAR, vec![x.into(), a.into()]);
        }
        // As the layer's own, without bias and with one group.
        let schema = op.schema().args;
        let mut args = Vec::new();
        for parameter in schema.iter() {
            args.push(match parameter.name {
                "input" => x.into(),
                "weight" => a.into(),
                "bias" => Argument::None,
                "groups" => Argument::Int(1),
                name => match argument(node, op, name) {
                    Some(given) => given.clone(),
                    // Everything from here on is left to its default, but groups, which is 1 by default.
                    None => break,
                },
            });
        }
        (op, args)
    }

    /// The op that multiplies by `B`, and its arguments.
    pub(super) fn wide(&self, graph: &Graph, y: NodeId, b: NodeId) -> (Op, Vec<Argument>) {
        let node = &graph[self.node];
        let op = node.target().and_then(Target::overload).and_then(OpOverload::op).unwrap_or(Op::LINEAR);
        if matches!(op, Op::LINEAR | Op::ADDMM | Op::MM) {
            return (Op::LINEAR, vec![y.into(), b.into()]);
        }
        let dims = match op {
            Op::CONV1D | Op::CONV1D_PADDING => 1,
            Op::CONV3D | Op::CONV3D_PADDING => 3,
            Op::CONVOLUTION => argument(node, op, "stride").and_then(Argument::items).map_or(2, <[Argument]>::len),
            _ => 2,
        };
        let groups = argument(node, op, "groups").cloned().unwrap_or(Argument::Int(1));
        let all = |v: i64| Argument::list(vec![Argument::Int(v); dims]);
        if op == Op::CONVOLUTION {
            let rest = [Argument::None, all(1), all(0), all(1), Argument::Bool(false), all(0), groups];
            return (op, [y.into(), b.into()].into_iter().chain(rest).collect());
        }
        let op = [Op::CONV1D, Op::CONV2D, Op::CONV3D][dims - 1];
        (op, vec![y.into(), b.into(), Argument::None, all(1), all(0), all(1), groups])
    }
}

impl Layer {
    /// Sizes of `A` and `B`.
    pub(super) fn shapes(&self, rank: usize) -> Result<(Vec<usize>, Vec<usize>)> {
        let wrong = || Error::Pass {
            pass: PASS,
            message: format!("{}: a weight of {:?} has no adapter", self.path, self.weight),
        };
        match (self.kind, &self.weight[..]) {
            (LayerKind::Linear, &[out, input]) | (LayerKind::Conv1D, &[input, out]) => {
                Ok((vec![rank, input], vec![out, rank]))
            }
            (LayerKind::Conv { dims, groups }, [out, input, kernel @ ..]) if kernel.len() == dims => {
                if groups == 0 || !rank.is_multiple_of(groups) {
                    return refuse(format!("{}: the rank {rank} is not a multiple of its {groups} groups", self.path));
                }
                let a = [rank, input * groups].into_iter().chain(kernel.iter().copied()).collect();
                let b = [*out, rank / groups].into_iter().chain(vec![1; dims]).collect();
                Ok((a, b))
            }
            _ => Err(wrong()),
        }
    }
}
