//! Where a program has adapters, and which wide values are computed again: what [`super::recompute_wide`] reads from a graph once.

use super::recompute::block;
use crate::interpret::Value;
use crate::ir::{Argument, Graph, GraphModule, Kind, Name, NodeId, OpOverload, Target};
use firebrand_core::dispatch::Op;
use std::collections::{HashMap, HashSet};

/// The part of an adapted layer that a node is; each with the node of the sum.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    /// The layer itself.
    Layer(NodeId),
    /// The product with `A`.
    Narrow(NodeId),
    /// That, scaled.
    Scaled(NodeId),
    /// The product with `B`.
    Wide(NodeId),
    /// The activation before the layer, which nothing else reads.
    Activation(NodeId),
    /// Layer and adapter.
    Sum,
}

/// What is known of a graph.
#[derive(Default)]
pub(super) struct Adapters {
    pub(super) roles: HashMap<NodeId, Role>,
    /// Products whose results only cheap ops read. Not those of the last block, where the backward pass begins and what is computed
    /// again is needed at once, unless weights are quantized: then the last bit of memory counts.
    pub(super) again: HashSet<NodeId>,
    /// By sum: the layer's input, read until there.
    pub(super) inputs: Vec<(NodeId, NodeId)>,
}

fn op_of(graph: &Graph, n: NodeId) -> Option<Op> {
    match graph[n].kind() {
        Kind::CallFunction(Target::Op(op)) => op.op(),
        _ => None,
    }
}

/// A node that one other reads, and its arguments, if it is this op.
fn only(graph: &Graph, n: &Argument, op: Op) -> Option<NodeId> {
    let Argument::Node(n) = n else { return None };
    (graph[*n].num_users() == 1 && op_of(graph, *n) == Some(op) && graph[*n].kwargs().is_empty()).then_some(*n)
}

/// Where the input of a layer is among its arguments.
fn input_place(op: Op) -> Option<usize> {
    match op {
        Op::LINEAR | Op::MM | Op::_LINEAR_QUANTIZED => Some(0),
        Op::ADDMM => Some(1),
        _ => None,
    }
}

impl Adapters {
    /// Reads a graph; `cheap` says which ops are.
    pub(super) fn of(module: &GraphModule, cheap: &dyn Fn(&OpOverload) -> bool) -> Adapters {
        let graph = &module.graph;
        let mut found = Adapters::default();
        for n in graph.nodes() {
            found.adapter(graph, n);
        }
        found.products(graph, cheap);
        found
    }

    /// Whether this node is the sum of a layer and its adapter, as the pass `lora` writes it.
    fn adapter(&mut self, graph: &Graph, sum: NodeId) -> Option<()> {
        let node = &graph[sum];
        let [Argument::Node(layer), wide] = node.args() else { return None };
        if op_of(graph, sum) != Some(Op::ADD_TENSOR) || !node.kwargs().is_empty() || graph[*layer].num_users() != 1 {
            return None;
        }
        let place = input_place(op_of(graph, *layer)?).filter(|_| graph[*layer].kwargs().is_empty())?;
        let input = graph[*layer].args().get(place)?;
        let wide = only(graph, wide, Op::LINEAR)?;
        let [from, _] = graph[wide].args() else { return None };
        let scaled = only(graph, from, Op::MUL_TENSOR);
        let from = match scaled {
            None => from,
            Some(n) => match graph[n].args() {
                [from, Argument::Float(_) | Argument::Int(_)] => from,
                _ => return None,
            },
        };
        let narrow = only(graph, from, Op::LINEAR)?;
        let ([x, _], Argument::Node(read)) = (graph[narrow].args(), input) else { return None };
        if x != input {
            return None;
        }
        self.inputs.push((sum, *read));
        let before = &graph[*read];
        if let (Some(Op::GELU | Op::SILU), [Argument::Node(u)], 2) =
            (op_of(graph, *read), before.args(), before.num_users())
        {
            self.roles.insert(*read, Role::Activation(sum));
            self.inputs.push((sum, *u));
        }
        let parts =
            [(*layer, Role::Layer(sum)), (narrow, Role::Narrow(sum)), (wide, Role::Wide(sum)), (sum, Role::Sum)];
        self.roles.extend(parts);
        self.roles.extend(scaled.map(|n| (n, Role::Scaled(sum))));
        Some(())
    }

    fn products(&mut self, graph: &Graph, cheap: &dyn Fn(&OpOverload) -> bool) {
        let product = |n: NodeId| match self.roles.get(&n) {
            Some(role) => *role == Role::Sum,
            None => op_of(graph, n).and_then(input_place).is_some(),
        };
        let read_by_cheap = |n: NodeId| {
            let mut users = graph.users(n).peekable();
            users.peek().is_some()
                && users.all(|u| matches!(graph[u].kind(), Kind::CallFunction(Target::Op(op)) if cheap(op)))
        };
        let found: Vec<NodeId> = graph.nodes().filter(|&n| product(n) && read_by_cheap(n)).collect();
        if graph.nodes().any(|n| op_of(graph, n) == Some(Op::_LINEAR_QUANTIZED)) {
            self.again = found.into_iter().collect();
            return;
        }
        let Some(last) = found.last().map(|&n| block(graph, n)) else { return };
        let before = |(k, n): (usize, &NodeId)| match &last {
            Some(last) => block(graph, *n).as_ref() != Some(last),
            None => k + 1 < found.len(),
        };
        let again = found.iter().enumerate().filter(|&(k, n)| before((k, n))).map(|(_, n)| *n).collect();
        self.again = again;
    }
}

/// A call: op, arguments, arguments by name.
pub(super) type Kept = (OpOverload, Vec<Value>, Vec<(Name, Value)>);

/// The arguments of the parts of a layer, until the sum.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) activation: Option<Kept>,
    pub(super) layer: Option<(OpOverload, Vec<Value>)>,
    pub(super) a: Option<Value>,
    pub(super) scaling: Option<Value>,
    pub(super) b: Option<Value>,
}
