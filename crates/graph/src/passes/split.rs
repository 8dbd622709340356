//! sequential_split: cuts a graph into parts at delimiters and leaves a base graph that calls them one by one.
//!
//! The input is never changed. Each part is a sub-graph `submod_<k>`; what it reads of other parts comes in as
//! placeholders, in order of first use; what others read of it goes out, in order of first mention. Modes that a part
//! begins in (autocast, grad mode) are set again at its front, so that a part means the same alone. Linear in nodes and
//! references.

use crate::error::{Error, Result};
use crate::ir::*;
use std::collections::HashMap;
use std::sync::Arc;

const PASS: &str = "sequential_split";
const NO_PART: u32 = u32::MAX;

/// A graph cut into parts.
#[derive(Debug)]
pub struct Split {
    /// The base graph, whose calls are `submod_<k>`, with the parts as attributes.
    pub module: GraphModule,
    /// The `call_module` nodes of the base graph, in order.
    pub calls: Vec<NodeId>,
    /// For each call, how many nodes at the front of the part set modes again.
    pub prelude: Vec<usize>,
}

struct Part {
    number: u32,
    nodes: Vec<NodeId>,
    /// What it takes of others, and the modules it reads.
    inputs: Vec<NodeId>,
    modules: Vec<NodeId>,
    outputs: Vec<NodeId>,
    /// Markers to repeat at the front, and autocast regions to close at the end (by their enter).
    enter: Vec<NodeId>,
    exit: Vec<NodeId>,
}

/// What became of the nodes of a graph elsewhere, by their dense numbers.
struct Copies(Vec<Option<NodeId>>);

impl Copies {
    fn of(graph: &Graph) -> Copies {
        Copies(vec![None; graph.capacity()])
    }

    fn set(&mut self, node: NodeId, copy: NodeId) {
        self.0[node.index()] = Some(copy);
    }

    fn find(&self, node: NodeId) -> Option<NodeId> {
        self.0[node.index()]
    }
}

impl std::ops::Index<NodeId> for Copies {
    type Output = NodeId;
    fn index(&self, node: NodeId) -> &NodeId {
        self.0[node.index()].as_ref().expect("values are copied before they are used")
    }
}

/// Whether this node changes a mode for what follows.
fn state_op(node: &Node) -> Option<&Function> {
    match node.target() {
        Some(Target::Function(f))
            if matches!(f, Function::SetGradEnabled | Function::EnterAutocast | Function::ExitAutocast) =>
        {
            Some(f)
        }
        _ => None,
    }
}

fn fail(graph: &Graph, node: NodeId, message: &str) -> Error {
    Error::PassNode { pass: PASS, node: graph[node].name().to_string(), message: message.to_string() }
}

/// Cuts a module before every node that `is_delimiter` accepts. The predicate is asked of every node once, in order,
/// also of placeholders, attribute reads and the output, which belong to no part.
pub fn sequential_split(module: &GraphModule, is_delimiter: impl FnMut(&Graph, NodeId) -> bool) -> Result<Split> {
    let mut cut = Cut::new(module, is_delimiter)?;
    for k in 0..cut.calls.len() {
        let body = cut.body(k);
        cut.base.attributes.set(&cut.name(k), Attribute::Graph(Arc::new(body)));
    }
    let prelude = cut.parts.iter().map(|p| p.enter.len()).collect();
    Ok(Split { module: cut.base, calls: cut.calls, prelude })
}

/// A module whose base graph is built and whose parts are built one by one, when they are requested.
pub(super) struct Cut<'a> {
    module: &'a GraphModule,
    /// The base graph; the attributes it calls stand for parts and are without value.
    pub(super) base: GraphModule,
    /// Its calls, in order.
    pub(super) calls: Vec<NodeId>,
    parts: Vec<Part>,
    /// One table serves all parts: what a part mentions it has set itself.
    local: Copies,
    /// The name of the output, if it is just that: then no other node has it, and parts may call theirs so.
    output: Option<Name>,
}

impl<'a> Cut<'a> {
    /// Cuts a module as [`sequential_split`] does.
    pub(super) fn new(module: &'a GraphModule, is_delimiter: impl FnMut(&Graph, NodeId) -> bool) -> Result<Cut<'a>> {
        let parts = find_parts(module, is_delimiter)?;
        let (base, calls) = build_base(module, &parts);
        let graph = &module.graph;
        let output = graph.output_node().map(|n| graph[n].name().clone()).filter(|name| &**name == "output");
        Ok(Cut { module, base, calls, parts, local: Copies::of(graph), output })
    }

    /// The attribute that stands for a part.
    pub(super) fn name(&self, k: usize) -> Name {
        part_name(&self.parts[k])
    }

    /// How many nodes at the front of a part set modes again.
    pub(super) fn prelude(&self, k: usize) -> usize {
        self.parts[k].enter.len()
    }

    /// Builds the sub-graph of a part.
    pub(super) fn body(&mut self, k: usize) -> GraphModule {
        let (part, graph, local) = (&self.parts[k], &self.module.graph, &mut self.local);
        let mut body = GraphModule::default();
        let out = &mut body.graph;
        for &marker in &part.enter {
            let copy = out.create_node(graph[marker].kind().clone(), graph[marker].args(), [], None);
            *out.meta_mut(copy) = graph[marker].meta().clone();
            local.set(marker, copy);
        }
        for &n in &part.inputs {
            let name = graph[n].name();
            let copy = out.create_unique(Kind::Placeholder(name.clone()), [], [], name);
            *out.meta_mut(copy) = graph[n].meta().clone();
            local.set(n, copy);
        }
        for &n in &part.modules {
            let path = graph[n].attr_path().expect("only attribute reads are modules");
            let copy = out.get_attr(path);
            *out.meta_mut(copy) = graph[n].meta().clone();
            let attribute = self.module.attributes.get(path).expect("it was looked up before");
            body.attributes.set(path, attribute.clone());
            local.set(n, copy);
        }
        for &n in &part.nodes {
            let copy = out.node_copy_unique(&graph[n], |n| local[n].into());
            if let Kind::CallModule(path) = graph[n].kind()
                && let Some(attribute) = self.module.attributes.get(path)
            {
                body.attributes.set(path, attribute.clone());
            }
            local.set(n, copy);
        }
        for &enter in &part.exit {
            let target = Kind::CallFunction(Function::ExitAutocast.into());
            out.create_node(target, [local[enter].into()], [], None);
        }
        let result: Argument = match part.outputs.as_slice() {
            [only] => local[*only].into(),
            many => Argument::tuple(many.iter().map(|&n| local[n].into())),
        };
        match &self.output {
            Some(name) => out.create_unique(Kind::Output, [result], [], name),
            None => out.output(result),
        };
        body
    }
}

fn part_name(part: &Part) -> Name {
    format!("submod_{}", part.number).into()
}

fn find_parts(module: &GraphModule, mut is_delimiter: impl FnMut(&Graph, NodeId) -> bool) -> Result<Vec<Part>> {
    let graph = &module.graph;
    let mut part_of = vec![NO_PART; graph.capacity()]; // index into `parts`
    let mut parts: Vec<Part> = Vec::new();
    let mut number = 0;
    for n in graph.nodes() {
        if is_delimiter(graph, n) {
            number += 1;
        }
        if matches!(graph[n].kind(), Kind::Placeholder(_) | Kind::GetAttr(_) | Kind::Output) {
            continue;
        }
        if parts.last().is_none_or(|p| p.number != number) {
            let empty = Vec::new;
            parts.push(Part {
                number,
                nodes: empty(),
                inputs: empty(),
                modules: empty(),
                outputs: empty(),
                enter: empty(),
                exit: empty(),
            });
        }
        part_of[n.index()] = parts.len() as u32 - 1;
        parts.last_mut().expect("just pushed").nodes.push(n);
    }
    find_modes(graph, &part_of, &mut parts)?;
    find_crossings(module, &part_of, &mut parts);
    Ok(parts)
}

/// Finds the parts in which each mode is active, and what must be repeated there.
fn find_modes(graph: &Graph, part_of: &[u32], parts: &mut [Part]) -> Result<()> {
    /// An autocast region: where it begins, the parts it touches, where it ends.
    struct Region {
        enter: NodeId,
        first: u32,
        last: u32,
        closed: bool,
    }
    let mut regions: Vec<Region> = Vec::new();
    let mut by_enter: HashMap<NodeId, usize> = HashMap::new();
    let mut grad: Option<NodeId> = None;
    let mut last_part = NO_PART;
    for n in graph.nodes().filter(|&n| part_of[n.index()] != NO_PART) {
        let part = part_of[n.index()];
        if part != last_part {
            if let Some(toggle) = grad {
                parts[part as usize].enter.push(toggle);
            }
            last_part = part;
        }
        let node = &graph[n];
        match state_op(node) {
            Some(Function::SetGradEnabled) => {
                let [Argument::Bool(_)] = node.args() else {
                    return Err(fail(graph, n, "_set_grad_enabled takes one bool"));
                };
                // A toggle that begins its part ends the one before it.
                if parts[part as usize].nodes[0] == n {
                    parts[part as usize].enter.clear();
                }
                grad = Some(n);
            }
            Some(Function::EnterAutocast) => {
                if graph.input_nodes(n).next().is_some() {
                    return Err(fail(graph, n, "_enter_autocast takes constants only"));
                }
                by_enter.insert(n, regions.len());
                regions.push(Region { enter: n, first: part, last: part, closed: false });
            }
            Some(_) => {
                let region = node.args().first().and_then(Argument::node).and_then(|e| by_enter.get(&e));
                let Some(region) = region.map(|&r| &mut regions[r]).filter(|r| !r.closed) else {
                    return Err(fail(graph, n, "_exit_autocast names no open _enter_autocast"));
                };
                region.last = part;
                region.closed = true;
            }
            None => {}
        }
    }
    if let Some(open) = regions.iter().find(|r| !r.closed) {
        return Err(fail(graph, open.enter, "this autocast region never ends"));
    }
    // Enters are repeated outermost first and in front of a repeated toggle, exits innermost first.
    for region in regions.iter().rev() {
        for part in region.first..=region.last {
            if part > region.first {
                parts[part as usize].enter.insert(0, region.enter);
            }
            if part < region.last {
                parts[part as usize].exit.push(region.enter);
            }
        }
    }
    Ok(())
}

/// Finds what each part reads of others, and what others read of it.
fn find_crossings(module: &GraphModule, part_of: &[u32], parts: &mut [Part]) {
    let graph = &module.graph;
    let is_module = |n: NodeId| {
        let path = graph[n].attr_path();
        path.is_some_and(|p| matches!(module.attributes.get(p), Some(Attribute::Graph(_) | Attribute::Module(_))))
    };
    let mut leaves = vec![false; graph.capacity()];
    let mut entered = vec![NO_PART; graph.capacity()];
    for n in graph.nodes() {
        let node = &graph[n];
        if matches!(node.kind(), Kind::Placeholder(_) | Kind::GetAttr(_)) || state_op(node).is_some() {
            continue;
        }
        let user = part_of[n.index()];
        for value in graph.input_nodes(n) {
            let producer = part_of[value.index()];
            if producer == user {
                continue;
            }
            if producer != NO_PART && !std::mem::replace(&mut leaves[value.index()], true) {
                parts[producer as usize].outputs.push(value);
            }
            // Nodes of a part follow each other, so one stamp per value tells whether the part has it.
            if user != NO_PART && std::mem::replace(&mut entered[value.index()], user) != user {
                let part = &mut parts[user as usize];
                if is_module(value) { part.modules.push(value) } else { part.inputs.push(value) }
            }
        }
    }
}

/// Builds the base graph; gives it with its calls.
fn build_base(module: &GraphModule, parts: &[Part]) -> (GraphModule, Vec<NodeId>) {
    let graph = &module.graph;
    let mut base = GraphModule { meta: module.meta.clone(), ..GraphModule::default() };
    base.graph.call_spec = graph.call_spec.clone();
    let mut values = Copies::of(graph);
    for n in graph.placeholders() {
        // By its very name: an input may be called `input`, as no node made here would be.
        let (kind, args, name) = (graph[n].kind(), graph[n].args(), graph[n].name());
        let copy = base.graph.create_named(kind.clone(), args, [], name);
        let copy = copy.unwrap_or_else(|| base.graph.create_like(kind.clone(), args, [], name));
        *base.graph.meta_mut(copy) = graph[n].meta().clone();
        values.set(n, copy);
    }
    let mut calls = Vec::with_capacity(parts.len());
    for part in parts {
        for &n in &part.inputs {
            if values.find(n).is_none() {
                read_attribute(module, &mut base, n, &mut values);
            }
        }
        let name = part_name(part);
        base.attributes.set(&name, Attribute::Unbound(None));
        let arguments: Vec<Argument> = part.inputs.iter().map(|&n| values[n].into()).collect();
        let call = base.graph.create_like(Kind::CallModule(name.clone()), arguments, [], &name);
        match part.outputs.as_slice() {
            [only] => {
                values.set(*only, call);
            }
            many => {
                for (i, &n) in many.iter().enumerate() {
                    let item = base.graph.call_function(Function::GetItem, [call.into(), (i as i64).into()]);
                    values.set(n, item);
                }
            }
        }
        calls.push(call);
    }
    // Without a part, or returned as they are: attributes that only the output reads.
    for n in graph.nodes().filter(|&n| graph[n].attr_path().is_some()) {
        let returned = graph.users(n).any(|u| graph[u].is_output());
        if values.find(n).is_none() && (returned || parts.is_empty()) {
            read_attribute(module, &mut base, n, &mut values);
        }
    }
    if let Some(output) = graph.nodes().find(|&n| graph[n].is_output()) {
        let value = graph[output].args()[0].map_nodes(&mut |n| values[n].into());
        let copy = base.graph.output(value);
        *base.graph.meta_mut(copy) = graph[output].meta().clone();
    }
    (base, calls)
}

/// Reads an attribute in the base graph too.
fn read_attribute(from: &GraphModule, base: &mut GraphModule, n: NodeId, values: &mut Copies) {
    let node = &from.graph[n];
    let path = node.attr_path().expect("values that no part makes are placeholders or attributes");
    let copy = base.graph.get_attr(path);
    *base.graph.meta_mut(copy) = node.meta().clone();
    if let Some(attribute) = from.attributes.get(path) {
        base.attributes.set(path, attribute.clone());
    }
    values.set(n, copy);
}
