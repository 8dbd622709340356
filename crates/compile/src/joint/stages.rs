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
use firebrand_graph::schema::Schema;
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

/// How nodes of a graph share memory.
struct Memory<'a> {
    graph: &'a GraphModule,
}

impl Memory<'_> {
    fn schema(&self, n: NodeId) -> Option<&'static Schema> {
        self.graph.graph[n].target().and_then(Target::overload).and_then(|o| o.schema())
    }

    /// The value in whose memory this one lies.
    fn root(&self, mut n: NodeId) -> NodeId {
        let g = &self.graph.graph;
        let passes = |n: NodeId| is_hook(self.graph, n) || self.schema(n).is_some_and(|s| s.mutates() || s.is_view());
        while let Some(of) = g[n].args().first().and_then(Argument::node).filter(|_| passes(n)) {
            n = of;
        }
        n
    }

    /// The memory that a node has to do with.
    fn touched(&self, n: NodeId) -> Vec<NodeId> {
        self.graph.graph.input_nodes(n).map(|of| self.root(of)).collect()
    }

    /// Whether it runs a sub-graph that writes.
    fn is_writing_region(&self, n: NodeId) -> bool {
        let g = &self.graph.graph;
        g.input_nodes(n).any(|i| g[i].attr_path().and_then(|p| self.graph.subgraph(p)).is_some_and(|s| writes(s)))
    }

    /// The memory that it writes; a sub-graph may write all of its operands.
    fn written(&self, n: NodeId) -> Vec<NodeId> {
        if self.is_writing_region(n) {
            return self.touched(n);
        }
        let Some(schema) = self.schema(n).filter(|s| s.mutates()) else { return Vec::new() };
        let node = &self.graph.graph[n];
        let mut found = Vec::new();
        for (k, arg) in schema.args.iter().enumerate().filter(|(_, a)| a.written) {
            let named = node.kwargs().iter().find(|(name, _)| &**name == arg.name).map(|(_, v)| v);
            if let Some(given) = node.args().get(k).or(named) {
                given.for_each_node(&mut |of| found.push(self.root(of)));
            }
        }
        found
    }
}

/// Whether a graph writes memory.
fn writes(module: &GraphModule) -> bool {
    let (g, memory) = (&module.graph, Memory { graph: module });
    g.nodes().any(|n| memory.schema(n).is_some_and(|s| s.mutates())) || module.subgraphs().any(|(_, g)| writes(g))
}

/// For each node, which of the visible results are computed from it, through memory too: those of one kind are reached by the same
/// gradients. None where there are too many.
fn reached_by(graph: &GraphModule, visible: &[NodeId]) -> Option<HashMap<NodeId, u64>> {
    let (g, memory) = (&graph.graph, Memory { graph });
    if visible.len() > 64 {
        return None;
    }
    let order: Vec<NodeId> = g.nodes().collect();
    let mut found: HashMap<NodeId, u64> = HashMap::new();
    for (k, &n) in visible.iter().enumerate() {
        *found.entry(n).or_default() |= 1 << k;
    }
    loop {
        let before = found.clone();
        // What is read later, by its memory.
        let mut read: HashMap<NodeId, u64> = HashMap::new();
        for &n in order.iter().rev() {
            let later = memory.written(n).iter().filter_map(|r| read.get(r)).fold(0, |a, b| a | b);
            // A hook is on the history of its value, wherever it was put in.
            let hook = if is_hook(graph, n) { found.get(&hooked(graph, n)).copied().unwrap_or(0) } else { 0 };
            let own = found.get(&n).copied().unwrap_or(0) | later | hook;
            found.insert(n, own);
            for of in g.input_nodes(n) {
                *found.entry(of).or_default() |= own;
                *read.entry(memory.root(of)).or_default() |= own;
            }
        }
        if found == before {
            return Some(found);
        }
    }
}

/// Whether stages leave everything in its order that must be: random numbers, and what has to do with memory that is written.
fn keeps_order(graph: &GraphModule, place: &HashMap<NodeId, usize>) -> bool {
    let (g, memory) = (&graph.graph, Memory { graph });
    let in_order: Vec<usize> = g.nodes().filter_map(|n| place.get(&n).copied()).collect();
    // What a sub-graph writes may be known by other names too.
    if g.nodes().any(|n| memory.is_writing_region(n)) && !in_order.is_sorted() {
        return false;
    }
    let mut last_draw = 0;
    let mut last: HashMap<NodeId, usize> = HashMap::new();
    let written: HashSet<NodeId> = g.nodes().flat_map(|n| memory.written(n)).collect();
    for n in g.nodes() {
        let Some(&at) = place.get(&n) else { continue };
        if g[n].draws() {
            if at < last_draw {
                return false;
            }
            last_draw = at;
        }
        for root in memory.touched(n).into_iter().filter(|r| written.contains(r)) {
            let before = last.entry(root).or_default();
            if at < *before {
                return false;
            }
            *before = at;
        }
    }
    true
}

/// Whether the graph writes something that gradients flow through. The history that a write gives belongs to the caller's
/// tensor, and to the tensor between two stages.
pub(super) fn writes_recorded(graph: &GraphModule, everywhere: bool) -> bool {
    let g = &graph.graph;
    let memory = Memory { graph };
    g.nodes().any(|n| {
        if memory.schema(n).is_some_and(|s| s.mutates()) {
            let of = memory.root(n);
            return (everywhere || g[of].is_placeholder()) && (is_recorded(graph, n) || is_recorded(graph, of));
        }
        everywhere && memory.is_writing_region(n) && g.input_nodes(n).any(|i| is_recorded(graph, i))
    })
}

/// How a graph is run where something is recorded.
pub(super) enum Cut {
    /// As one node.
    One,
    /// As several.
    Stages(Vec<Piece>),
    /// Op by op: no stages are right.
    Ops,
}

/// The stages of a graph.
pub(super) fn cut(graph: &GraphModule) -> Cut {
    let g = &graph.graph;
    let visible = visible(graph);
    let cuts = cuts(graph, &visible);
    // With a custom function in it the graph is interpreted, and has no need of stages.
    let whole = [Function::SetGradEnabled, Function::ApplyFunction];
    let whole = g.nodes().any(|n| g[n].target().is_some_and(|t| whole.iter().any(|f| t.is_function(f))));
    if cuts.is_empty() || whole {
        return Cut::One;
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
    let Some(reached) = reached_by(graph, &visible) else { return Cut::Ops };
    // Parts of a result belong to what they are parts of: they have one node in an eager run too.
    let source = |mut n: NodeId| {
        while let Some(of) = part_of(graph, n) {
            n = of;
        }
        n
    };
    // Of one stretch of the program, what more results are computed from comes first, and what leads to none last: it is no part of
    // a node that gradients reach.
    let by = |n: &NodeId| reached.get(&source(*n)).copied().unwrap_or(0);
    let kind = |n: &NodeId| (stage_of[n], std::cmp::Reverse(by(n).count_ones()), by(n));
    let mut kinds: Vec<_> = stage_of.keys().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let place: HashMap<NodeId, usize> =
        stage_of.keys().map(|n| (*n, kinds.binary_search(&kind(n)).unwrap_or_default())).collect();
    match kinds.len() {
        0 | 1 => Cut::One,
        _ if !keeps_order(graph, &place) => Cut::Ops,
        count => Cut::Stages((0..count).map(|k| piece(graph, &place, k, &by)).collect()),
    }
}

fn piece(
    module: &GraphModule,
    stage_of: &HashMap<NodeId, usize>,
    stage: usize,
    reached: &dyn Fn(&NodeId) -> u64,
) -> Piece {
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
        // A hook on what leads to no result is never called.
        let idle = is_hook(module, n) && reached(&n) == 0;
        let of = g[n].args().first().and_then(Argument::node).filter(|_| idle);
        let copy = match of {
            Some(of) => copies[&of].clone(),
            None => part.graph.node_copy(&g[n], |i| copies[&i].clone()).into(),
        };
        copies.insert(n, copy);
    }
    let leaves = |n: NodeId| g.users(n).any(|u| !is_own.contains(&u));
    let outputs: Vec<NodeId> = own.into_iter().filter(|&n| leaves(n)).collect();
    // What later stages use as a constant, or for nothing that is returned, leaves this one as a constant: no gradient arrives for it.
    let constant = |n: NodeId| {
        let unrecorded = |u: NodeId| matches!(&g[u].meta().val, Some(Val::Tensor(meta)) if !meta.requires_grad);
        let in_vain = |u: NodeId| !g[u].is_output() && (unrecorded(u) || reached(&u) == 0);
        is_recorded(module, n) && g.users(n).filter(|u| !is_own.contains(u)).all(in_vain)
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
