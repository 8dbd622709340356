//! Parts of graphs as separate graphs, and the values that flow between them.

use crate::backend::{ExampleInput, ExampleValue, Value};
use crate::error::{Error, Result};
use firebrand_core::Scalar;
use firebrand_core::autograd::no_grad;
use firebrand_graph::interpret::{Call, NodeRunner, run_call, run_module};
use firebrand_graph::ir::{Argument, Graph, GraphModule, Kind, NodeId, TensorMeta};
use std::collections::{HashMap, HashSet};

/// The value of every node of an eager run.
pub(super) fn node_values(module: &GraphModule, inputs: &[Value]) -> Result<HashMap<NodeId, Value>> {
    struct Watch(HashMap<NodeId, Value>, usize);
    impl NodeRunner for Watch {
        fn run_node(&mut self, call: &Call<'_>) -> firebrand_graph::Result<Value> {
            let inside = self.1;
            self.1 += 1;
            let result = run_call(self, call);
            self.1 = inside;
            let value = result?;
            if inside == 0 {
                self.0.insert(call.node, value.clone());
            }
            Ok(value)
        }
    }
    let mut watch = Watch(HashMap::new(), 0);
    no_grad(|| run_module(&mut watch, module, inputs))?;
    for (n, input) in module.graph.placeholders().zip(inputs) {
        watch.0.insert(n, input.clone());
    }
    Ok(watch.0)
}

/// A part of a graph: what it returns, which nodes become inputs, and which stand for others.
#[derive(Clone, Default)]
pub(super) struct Piece {
    pub(super) outputs: Vec<NodeId>,
    pub(super) cut: HashSet<NodeId>,
    pub(super) instead: HashMap<NodeId, NodeId>,
}

impl Piece {
    /// The node that stands for this one.
    pub(super) fn stands_for(&self, mut n: NodeId) -> NodeId {
        while let Some(&m) = self.instead.get(&n) {
            n = m;
        }
        n
    }

    /// Calls that the piece still has, in order.
    pub(super) fn calls(&self, module: &GraphModule) -> Vec<NodeId> {
        let needed = self.needed(module);
        let graph = &module.graph;
        graph.nodes().filter(|n| needed.contains(n) && !self.cut.contains(n) && graph[*n].target().is_some()).collect()
    }

    fn needed(&self, module: &GraphModule) -> HashSet<NodeId> {
        let mut needed = HashSet::new();
        let mut open: Vec<NodeId> = self.outputs.iter().map(|&n| self.stands_for(n)).collect();
        while let Some(n) = open.pop() {
            if needed.insert(n) && !self.cut.contains(&n) {
                open.extend(module.graph.input_nodes(n).map(|m| self.stands_for(m)));
            }
        }
        needed
    }

    /// The piece as a graph, with the inputs it takes.
    pub(super) fn build(
        &self,
        module: &GraphModule,
        values: &HashMap<NodeId, Value>,
    ) -> Result<(GraphModule, Vec<Value>)> {
        let needed = self.needed(module);
        let old = &module.graph;
        let mut graph = Graph::new();
        let mut new: HashMap<NodeId, NodeId> = HashMap::new();
        let mut inputs = Vec::new();
        let is_input = |n: &NodeId| needed.contains(n) && (self.cut.contains(n) || old[*n].is_placeholder());
        for n in old.nodes().filter(is_input) {
            let name = old[n].name();
            new.insert(n, graph.create_node(Kind::Placeholder(name.clone()), [], [], Some(name)));
            let missing = || Error::internal(format!("%{name} has no value in the eager run"));
            inputs.push(values.get(&n).cloned().ok_or_else(missing)?);
        }
        for n in old.nodes().filter(|n| needed.contains(n) && !is_input(n) && !old[*n].is_output()) {
            let node = &old[n];
            let mut map = |m: NodeId| new.get(&self.stands_for(m)).map_or(Argument::None, |&m| Argument::Node(m));
            let args: Vec<Argument> = node.args().iter().map(|a| a.map_nodes(&mut map)).collect();
            let kwargs: Vec<_> = node.kwargs().iter().map(|(k, a)| (k.clone(), a.map_nodes(&mut map))).collect();
            let created = graph.create_node(node.kind().clone(), args, kwargs, Some(node.name()));
            new.insert(n, created);
        }
        let outputs = self.outputs.iter().filter_map(|&n| new.get(&self.stands_for(n))).map(|&n| Argument::Node(n));
        let outputs = Argument::tuple(outputs);
        graph.create_node(Kind::Output, [outputs], [], None);
        let mut piece = GraphModule::new(graph);
        piece.attributes = module.attributes.clone();
        Ok((piece, inputs))
    }
}

/// The nodes that a graph returns.
pub(super) fn returned(module: &GraphModule) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    if let Some(result) = module.graph.result() {
        result.for_each_node(&mut |n| nodes.push(n));
    }
    nodes
}

/// The description of these inputs for a backend.
pub(super) fn examples(inputs: &[Value]) -> Result<Vec<ExampleInput>> {
    let example = |v: &Value| {
        let value = match v {
            Value::Tensor(t) => ExampleValue::Tensor(TensorMeta::of(t)),
            Value::Scalar(Scalar::Float(v)) => ExampleValue::Float(*v),
            Value::Scalar(s) => ExampleValue::Int(s.to_i64()),
            other => return Err(Error::internal(format!("{} cannot be an input of a compiled graph", other.kind()))),
        };
        Ok(ExampleInput { value, is_static: false })
    };
    inputs.iter().map(example).collect()
}
