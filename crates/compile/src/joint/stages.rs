//! Stages: a graph cut where the caller can see into it.
//!
//! A compiled graph is one node of the caller's graph. A value that the caller can differentiate by, or that has a hook, must
//! be where the caller's engine passes: so a graph is cut behind every result that the graph goes on from, and behind every
//! value with a hook that comes with the call. Each stage is a node of its own, and what crosses a cut is a tensor between
//! two nodes. Nodes of a later stage run before those of an earlier one, as in a plain run, since cuts follow the order of
//! the program.

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

/// Whether gradients may flow through a value.
fn is_recorded(graph: &GraphModule, n: NodeId) -> bool {
    matches!(&graph.graph[n].meta().val, Some(Val::Tensor(meta)) if meta.requires_grad)
}

/// Behind which values the graph is cut.
fn cuts(graph: &GraphModule) -> HashSet<NodeId> {
    let g = &graph.graph;
    let goes_on = |n: NodeId| {
        let computes = |u: NodeId| !g[u].is_output() && !is_hook(graph, u);
        g.users(n).any(computes)
    };
    let mut values = HashSet::new();
    let returned = g.result().and_then(Argument::items).unwrap_or(&[]);
    for result in returned.iter().filter_map(Argument::node) {
        // A result with hooks is used under the name of any of them.
        let mut at = result;
        let mut used = goes_on(at);
        while is_hook(graph, at) {
            let Some(of) = g[at].args().first().and_then(Argument::node) else { break };
            at = of;
            used |= goes_on(at);
        }
        values.extend(used.then_some(at));
    }
    for n in g.nodes().filter(|&n| is_hook(graph, n) && matches!(g[n].args().get(1), Some(Argument::Int(_)))) {
        values.insert(hooked(graph, n));
    }
    values.retain(|&n| !g[n].is_placeholder() && is_recorded(graph, n));
    values
}

/// The stages of a graph; none if it is one.
pub(super) fn cut(graph: &GraphModule) -> Option<Vec<Piece>> {
    let g = &graph.graph;
    let cuts = cuts(graph);
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
        // Parts of a result belong to what they are parts of.
        let part = g[n].target().is_some_and(|t| *t == Target::from(Function::GetItem));
        let of = g[n].args().first().and_then(Argument::node).filter(|_| part);
        let own = of.and_then(|of| stage_of.get(&of).copied()).unwrap_or(stage);
        stage_of.insert(n, own);
        if cuts.contains(&n) && own == stage {
            stage += 1;
        }
    }
    let count = stage_of.values().max()? + 1;
    if count < 2 {
        return None;
    }
    Some((0..count).map(|k| piece(graph, &stage_of, k)).collect())
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
    part.graph.output(Argument::tuple(outputs.iter().map(|n| copies[n].clone())));
    Piece { graph: part, inputs, outputs }
}

/// A graph in stages.
pub(super) struct Staged {
    /// What runs where nothing is recorded.
    pub(super) whole: Arc<dyn Executable>,
    pub(super) graph: Arc<GraphModule>,
    pub(super) stages: Vec<(Piece, Arc<dyn Executable>)>,
}

impl Staged {
    fn run_stages(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let g = &self.graph.graph;
        let mut values: HashMap<NodeId, Value> = g.placeholders().zip(inputs.iter().cloned()).collect();
        let lost = || Error::internal("a stage needs a value that no stage gives");
        for (piece, run) in &self.stages {
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
        match self.stages.len() > MOST {
            true => Interpreted { graph: self.graph.clone() }.run(inputs, call),
            false => self.run_stages(inputs, call),
        }
    }
}

/// Which of a graph's inputs the placeholders of a stage are; none for values of the stages before it.
pub(super) fn places(graph: &GraphModule, piece: &Piece) -> Vec<Option<usize>> {
    let all: Vec<NodeId> = graph.graph.placeholders().collect();
    piece.inputs.iter().map(|n| all.iter().position(|p| p == n)).collect()
}
