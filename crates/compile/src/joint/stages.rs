//! Stages: a graph cut where the caller can see into it.
//!
//! A compiled graph is one node of the caller's graph. A value that the caller can differentiate by, or that has a hook, must
//! be where the caller's engine passes: so a graph is cut behind every result, and behind every value with a hook that comes
//! with the call. Each stage is a node of its own, and what crosses a cut is a tensor between two nodes. Nodes of a later stage
//! run before those of an earlier one, as in an eager run, since cuts follow the order of the program. Ops from which different
//! results are computed are apart too: so whichever results are differentiated, a node that is reached passes gradients to all
//! of its inputs, and leaves that an eager run does not reach are not reached.

use crate::backend::{Call, Executable, Interpreted, Value};
use crate::error::{Error, Result};
use firebrand_core::autograd::is_grad_enabled;
use firebrand_graph::ir::{Argument, Function, GraphModule, Kind, NodeId, Target, Val};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// More stages than this are not worth their nodes: the graph is interpreted.
const MOST: usize = 12;

/// One stage.
pub(super) struct Piece {
    pub(super) graph: GraphModule,
    /// The values it takes, in the order of its placeholders.
    inputs: Vec<NodeId>,
    /// The values it gives.
    outputs: Vec<NodeId>,
}

fn is_hook(graph: &GraphModule, n: NodeId) -> bool {
    graph.graph[n].target().is_some_and(|t| t.is_function(&Function::RegisterHook))
}

/// The value that a chain of hooks is on.
fn hooked(graph: &GraphModule, mut n: NodeId) -> NodeId {
    while let Some(of) = graph.graph[n].args().first().and_then(Argument::node).filter(|_| is_hook(graph, n)) {
        n = of;
    }
    n
}

/// What a value is a part of, if it is one.
fn part_of(graph: &GraphModule, n: NodeId) -> Option<NodeId> {
    let part = graph.graph[n].target().is_some_and(|t| t.is_function(&Function::GetItem));
    graph.graph[n].args().first().and_then(Argument::node).filter(|_| part)
}

/// Whether gradients may flow through a value.
fn is_recorded(graph: &GraphModule, n: NodeId) -> bool {
    matches!(&graph.graph[n].meta().val, Some(Val::Tensor(meta)) if meta.requires_grad)
}

/// Results through which gradients may flow, without the hooks on them.
fn visible(graph: &GraphModule) -> Vec<NodeId> {
    let returned = graph.graph.result().and_then(Argument::items).unwrap_or(&[]);
    let mut values: Vec<NodeId> = returned.iter().filter_map(Argument::node).map(|n| hooked(graph, n)).collect();
    values.retain(|&n| !graph.graph[n].is_placeholder() && is_recorded(graph, n));
    values.sort_by_key(|n| n.index());
    values.dedup();
    values
}

/// Behind which values the graph is cut.
fn cuts(graph: &GraphModule, visible: &[NodeId]) -> HashSet<NodeId> {
    let g = &graph.graph;
    let mut values: HashSet<NodeId> = visible.iter().copied().collect();
    for n in g.nodes().filter(|&n| is_hook(graph, n) && matches!(g[n].args().get(1), Some(Argument::Int(_)))) {
        values.insert(hooked(graph, n));
    }
    values.retain(|&n| !g[n].is_placeholder() && is_recorded(graph, n));
    values
}

/// For each node, which of the visible results are computed from it: those of one kind are reached by the same gradients.
/// None where memory is written, since what depends on a write is not said by the graph, or where there are too many.
fn reached_by(graph: &GraphModule, visible: &[NodeId]) -> Option<HashMap<NodeId, u64>> {
    let g = &graph.graph;
    let schema = |n: NodeId| g[n].target().and_then(Target::overload).and_then(|o| o.schema());
    // Random numbers are drawn in the order of the program.
    let fixed = |n: NodeId| schema(n).is_some_and(|s| s.mutates()) || g[n].draws();
    if visible.len() > 64 || g.nodes().any(fixed) {
        return None;
    }
    let order: Vec<NodeId> = g.nodes().collect();
    let mut found: HashMap<NodeId, u64> = HashMap::new();
    for (k, &n) in visible.iter().enumerate() {
        *found.entry(n).or_default() |= 1 << k;
    }
    for &n in order.iter().rev() {
        let own = found.get(&n).copied().unwrap_or(0);
        for of in g.input_nodes(n) {
            *found.entry(of).or_default() |= own;
        }
    }
    Some(found)
}

/// Whether the graph writes something that gradients flow through. The history that a write gives belongs to the caller's
/// tensor, and to the tensor between two stages.
pub(super) fn writes_recorded(graph: &GraphModule, everywhere: bool) -> bool {
    let g = &graph.graph;
    let schema = |n: NodeId| g[n].target().and_then(Target::overload).and_then(|o| o.schema());
    let writes = |module: &GraphModule| {
        let g = &module.graph;
        let schema = |n: NodeId| g[n].target().and_then(Target::overload).and_then(|o| o.schema());
        g.nodes().any(|n| schema(n).is_some_and(|s| s.mutates()))
    };
    let root = |mut n: NodeId| {
        let passes = |n: NodeId| is_hook(graph, n) || schema(n).is_some_and(|s| s.mutates() || s.is_view());
        while let Some(of) = g[n].args().first().and_then(Argument::node).filter(|_| passes(n)) {
            n = of;
        }
        n
    };
    g.nodes().any(|n| {
        if schema(n).is_some_and(|s| s.mutates()) {
            let of = root(n);
            return (everywhere || g[of].is_placeholder()) && (is_recorded(graph, n) || is_recorded(graph, of));
        }
        let region =
            g.input_nodes(n).any(|i| g[i].attr_path().and_then(|p| graph.subgraph(p)).is_some_and(|s| writes(s)));
        everywhere && region && g.input_nodes(n).any(|i| is_recorded(graph, i))
    })
}

/// The stages of a graph; none if it is one.
pub(super) fn cut(graph: &GraphModule) -> Option<Vec<Piece>> {
    let g = &graph.graph;
    let visible = visible(graph);
    let cuts = cuts(graph, &visible);
    // With a custom function in it the graph is interpreted, and has no need of stages.
    let whole = [Function::SetGradEnabled, Function::ApplyFunction];
    let whole = g.nodes().any(|n| g[n].target().is_some_and(|t| whole.iter().any(|f| t.is_function(f))));
    if cuts.is_empty() || whole {
        return None;
    }
    let calls = |n: &NodeId| matches!(g[*n].kind(), Kind::CallFunction(_));
    let mut stage_of: HashMap<NodeId, usize> = HashMap::new();
    let mut stage = 0;
    for n in g.nodes().filter(calls) {
        let own = part_of(graph, n).and_then(|of| stage_of.get(&of).copied()).unwrap_or(stage);
        stage_of.insert(n, own);
        if cuts.contains(&n) && own == stage {
            stage += 1;
        }
    }
    let reached = reached_by(graph, &visible);
    // Parts of a result belong to what they are parts of: they have one node in an eager run too.
    let source = |mut n: NodeId| {
        while let Some(of) = part_of(graph, n) {
            n = of;
        }
        n
    };
    // Of one stretch of the program, what more results are computed from comes first.
    let kind = |n: &NodeId| {
        let by = reached.as_ref().map_or(0, |r| r.get(&source(*n)).copied().unwrap_or(0));
        (stage_of[n], std::cmp::Reverse(by.count_ones()), by)
    };
    let mut kinds: Vec<_> = stage_of.keys().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.len() < 2 {
        return None;
    }
    let place: HashMap<NodeId, usize> =
        stage_of.keys().map(|n| (*n, kinds.binary_search(&kind(n)).unwrap_or_default())).collect();
    Some((0..kinds.len()).map(|k| piece(graph, &place, k)).collect())
}

fn piece(module: &GraphModule, stage_of: &HashMap<NodeId, usize>, stage: usize) -> Piece {
    let g = &module.graph;
    let own: Vec<NodeId> = g.nodes().filter(|n| stage_of.get(n) == Some(&stage)).collect();
    let is_own: HashSet<NodeId> = own.iter().copied().collect();
    let mut part = GraphModule::default();
    let mut copies: HashMap<NodeId, Argument> = HashMap::new();
    let mut inputs = Vec::new();
    for n in own.iter().flat_map(|&n| g.input_nodes(n)).filter(|n| !is_own.contains(n)) {
        if copies.contains_key(&n) || g[n].attr_path().is_some() {
            continue;
        }
        let placeholder = part.graph.placeholder(g[n].name());
        part.graph.meta_mut(placeholder).val = g[n].meta().val.clone();
        copies.insert(n, placeholder.into());
        inputs.push(n);
    }
    for &n in &own {
        for a in g.input_nodes(n) {
            if let Some(path) = g[a].attr_path().filter(|_| !copies.contains_key(&a)) {
                if let Some(attribute) = module.attributes.get(path) {
                    part.attributes.set(path, attribute.clone());
                }
                copies.insert(a, part.graph.get_attr(path).into());
            }
        }
        let copy = part.graph.node_copy(&g[n], |i| copies[&i].clone());
        copies.insert(n, copy.into());
    }
    let leaves = |n: NodeId| g.users(n).any(|u| !is_own.contains(&u));
    let outputs: Vec<NodeId> = own.into_iter().filter(|&n| leaves(n)).collect();
    // What later stages use as a constant leaves this one as a constant: no gradient arrives for it.
    let constant = |n: NodeId| {
        let unrecorded = |u: NodeId| matches!(&g[u].meta().val, Some(Val::Tensor(meta)) if !meta.requires_grad);
        is_recorded(module, n) && g.users(n).filter(|u| !is_own.contains(u)).all(|u| !g[u].is_output() && unrecorded(u))
    };
    for &n in outputs.iter().filter(|&&n| constant(n)) {
        let detached = part.graph.call_function(Target::aten("detach.default"), [copies[&n].clone()]);
        part.graph.meta_mut(detached).val = g[n].meta().val.clone();
        copies.insert(n, detached.into());
    }
    part.graph.output(Argument::tuple(outputs.iter().map(|n| copies[n].clone())));
    Piece { graph: part, inputs, outputs }
}

/// A graph in stages.
pub(super) struct Staged {
    /// What runs where nothing is recorded.
    pub(super) whole: Arc<dyn Executable>,
    pub(super) graph: Arc<GraphModule>,
    /// None where the graph has to be interpreted if something is recorded.
    pub(super) stages: Option<Vec<(Piece, Arc<dyn Executable>)>>,
}

impl Staged {
    fn run_stages(&self, stages: &[(Piece, Arc<dyn Executable>)], inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let g = &self.graph.graph;
        let mut values: HashMap<NodeId, Value> = g.placeholders().zip(inputs.iter().cloned()).collect();
        let lost = || Error::internal("a stage needs a value that no stage gives");
        for (piece, run) in stages {
            let given = piece.inputs.iter().map(|n| values.get(n).cloned().ok_or_else(lost));
            let given = given.collect::<Result<Vec<_>>>()?;
            let results = run.run(&given, call)?;
            values.extend(piece.outputs.iter().copied().zip(results));
        }
        let returned = g.result().and_then(Argument::items).unwrap_or(&[]);
        let value = |a: &Argument| a.node().and_then(|n| values.get(&n).cloned()).ok_or_else(lost);
        returned.iter().map(value).collect()
    }
}

impl Executable for Staged {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let wanted = |v: &Value| matches!(v, Value::Tensor(t) if t.requires_grad());
        if !(is_grad_enabled() && inputs.iter().any(wanted)) {
            return self.whole.run(inputs, call);
        }
        match &self.stages {
            Some(stages) if stages.len() <= MOST => self.run_stages(stages, inputs, call),
            _ => Interpreted { graph: self.graph.clone() }.run(inputs, call),
        }
    }
}

/// Which of a graph's inputs the placeholders of a stage are; none for values of the stages before it.
pub(super) fn places(graph: &GraphModule, piece: &Piece) -> Vec<Option<usize>> {
    let all: Vec<NodeId> = graph.graph.placeholders().collect();
    piece.inputs.iter().map(|n| all.iter().position(|p| p == n)).collect()
}
