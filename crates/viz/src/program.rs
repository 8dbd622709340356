//! A program as a drawing: calls in the modules they were made in, inputs and state beside what uses them.
//!
//! A sub-graph is a group of its own inside the module that calls it. An arrow leads from what it returns to the call, and
//! operands of the call lead to the inputs of the sub-graph where they correspond one to one.

use crate::drawing::{Class, Drawing, Edge, Node, in_bytes};
use crate::grouping::{Groups, ROOT};
use crate::page;
use firebrand_graph::ir::{Attribute, Graph, GraphModule, Kind, Meta, NodeId, Target};
use firebrand_graph::text::print_node;
use firebrand_graph::{ExportedProgram, GraphSignature, InputKind};
use std::collections::HashMap;

/// A page that shows a program; the title is text, not markup.
///
/// ```
/// let program = firebrand_graph::text::parse("graph {\n  %x = placeholder\n  %y = aten.relu.default(%x)\n  return (%y,)\n}\n")?;
/// let page = firebrand_viz::program_html("relu", &program);
/// assert!(page.starts_with("<!doctype html>") && page.contains("aten.relu.default"));
/// # Ok::<(), firebrand_graph::Error>(())
/// ```
pub fn program_html(title: &str, program: &ExportedProgram) -> String {
    page::html(&drawing(title, program))
}

pub(crate) fn drawing(title: &str, program: &ExportedProgram) -> Drawing {
    let mut builder = Builder {
        program,
        groups: Groups::new(),
        nodes: Vec::new(),
        known: Vec::new(),
        edges: Vec::new(),
        owned: Vec::new(),
    };
    builder.add(&program.module, ROOT, program.signature.as_deref());
    let Builder { mut groups, mut nodes, mut known, mut edges, owned, .. } = builder;
    for (number, base, target) in owned {
        known[number] = Some(groups.owner(base, target)).filter(|&g| g != ROOT);
    }
    edges.sort_unstable();
    edges.dedup();
    let order: Vec<usize> = (0..nodes.len()).collect();
    let mut places = groups.fill(&known, &edges, &order, |_| false);
    let groups = groups.finish(&mut places);
    nodes.iter_mut().zip(places).for_each(|(node, group)| node.group = group);
    Drawing { title: title.to_string(), summary: summary(program, &nodes), nodes, edges, groups }
}

fn summary(program: &ExportedProgram, nodes: &[Node]) -> String {
    let torch = program.extras.as_ref().map(|e| e.torch_version.as_str()).filter(|v| !v.is_empty());
    let source = torch.map_or(String::new(), |v| format!(" of PyTorch {v}"));
    let count = |class| nodes.iter().filter(|n| n.class == class).count();
    let parameters = count(Class::Parameter);
    let bytes: usize = program.state_dict.values().map(|s| s.tensor.numel() * s.tensor.dtype().size()).sum();
    let state = if bytes > 0 { format!(", {} of state", in_bytes(bytes)) } else { String::new() };
    format!("{} program{source}: {} calls, {parameters} parameters{state}", program.dialect.name(), count(Class::Op))
}

struct Builder<'a> {
    program: &'a ExportedProgram,
    groups: Groups,
    nodes: Vec<Node>,
    /// The group of a node that says so itself.
    known: Vec<Option<usize>>,
    edges: Vec<Edge>,
    /// State: its node, the group to look in, its dotted name. Its module is looked up when all calls are there.
    owned: Vec<(usize, usize, &'a str)>,
}

/// A graph that was added: the numbers of its inputs, and of its output.
struct Added {
    inputs: Vec<usize>,
    output: Option<usize>,
}

impl<'a> Builder<'a> {
    /// Adds a graph to a group.
    fn add(&mut self, module: &'a GraphModule, base: usize, signature: Option<&'a GraphSignature>) -> Added {
        let graph = &module.graph;
        let mut numbers: HashMap<NodeId, usize> = HashMap::new();
        let mut subgraphs: HashMap<NodeId, Added> = HashMap::new();
        let mut specs = signature.map(|s| s.inputs.iter());
        let mut added = Added { inputs: Vec::new(), output: None };
        for id in graph.nodes() {
            let node = &graph[id];
            if let Some(child) =
                node.attr_path().and_then(|path| module.attributes.get(path)).and_then(Attribute::graph)
            {
                // It belongs where it is called.
                let caller = graph.users(id).next().and_then(|user| self.module_of(base, graph[user].meta()));
                let group = self.groups.child(caller.unwrap_or(base), node.name(), "sub-graph");
                subgraphs.insert(id, self.add(child, group, None));
                continue;
            }
            let number = self.nodes.len();
            let spec = if node.is_placeholder() { specs.as_mut().and_then(Iterator::next) } else { None };
            let drawn = self.node(graph, id, spec.map(|s| &s.kind));
            self.nodes.push(drawn);
            let group = self.module_of(base, node.meta());
            self.known.push(group.or((base != ROOT).then_some(base)));
            self.owned.extend(spec.and_then(|s| s.kind.target()).map(|target| (number, base, &**target)));
            self.connect(node, number, &numbers, &subgraphs);
            numbers.insert(id, number);
            match node.kind() {
                Kind::Placeholder(_) => added.inputs.push(number),
                Kind::Output => added.output = Some(number),
                _ => {}
            }
        }
        added
    }

    /// Arrows to a node, and to the inputs of the sub-graphs that it calls.
    fn connect(
        &mut self,
        node: &firebrand_graph::ir::Node,
        number: usize,
        numbers: &HashMap<NodeId, usize>,
        subgraphs: &HashMap<NodeId, Added>,
    ) {
        let mut mentioned = Vec::new();
        node.arguments().for_each(|a| a.for_each_node(&mut |n| mentioned.push(n)));
        let called: Vec<&Added> = mentioned.iter().filter_map(|n| subgraphs.get(n)).collect();
        let first_operand = mentioned.iter().rposition(|n| subgraphs.contains_key(n)).map_or(0, |i| i + 1);
        let operands: Vec<usize> = mentioned[first_operand..].iter().filter_map(|n| numbers.get(n)).copied().collect();
        let correspond = !called.is_empty() && called.iter().all(|g| g.inputs.len() == operands.len());
        if correspond {
            for subgraph in &called {
                self.edges.extend(operands.iter().zip(&subgraph.inputs).map(|(&from, &to)| Edge(from, to)));
            }
            mentioned.truncate(first_operand);
        }
        self.edges.extend(called.iter().filter_map(|g| g.output).map(|from| Edge(from, number)));
        self.edges.extend(mentioned.iter().filter_map(|n| numbers.get(n)).map(|&from| Edge(from, number)));
    }

    /// The group of the modules in which a call was made.
    fn module_of(&mut self, base: usize, meta: &Meta) -> Option<usize> {
        let (mut at, mut outer) = (base, "");
        for (path, class) in meta.nn_module_stack.as_deref()?.values().filter(|(path, _)| !path.is_empty()) {
            let inner = path.strip_prefix(outer).and_then(|p| p.strip_prefix('.')).unwrap_or(path);
            at = self.groups.child(at, inner, class.rsplit('.').next().unwrap_or_default());
            outer = path;
        }
        (at != base).then_some(at)
    }

    fn node(&self, graph: &Graph, id: NodeId, input: Option<&InputKind>) -> Node {
        let node = &graph[id];
        let meta = node.meta();
        let mut details = vec![("name", node.name().to_string())];
        let (class, label) = match (node.kind(), input) {
            (Kind::Placeholder(_), Some(kind)) => {
                details.push(("input", kind.name().to_string()));
                let class = match kind {
                    InputKind::UserInput | InputKind::Token => Class::Input,
                    InputKind::Parameter(_) => Class::Parameter,
                    InputKind::Buffer { .. } => Class::Buffer,
                    InputKind::ConstantTensor(_) | InputKind::CustomObj(_) => Class::Constant,
                };
                // The module around it has the rest of its name.
                (class, kind.target().unwrap_or(node.name()).rsplit('.').next().unwrap_or_default().to_string())
            }
            (Kind::Placeholder(_), None) => (Class::Input, node.name().to_string()),
            (Kind::GetAttr(path), _) => (Class::Constant, path.to_string()),
            (Kind::CallFunction(target), _) => (Class::Op, short(target)),
            (Kind::CallMethod(name) | Kind::CallModule(name), _) => (Class::Op, name.to_string()),
            (Kind::Output, _) => (Class::Output, "output".to_string()),
        };
        let state = input.and_then(InputKind::target);
        let mut kind = meta.val.as_ref().map_or(String::new(), |v| v.to_string());
        if let Some(target) = state {
            details.push(("state", target.to_string()));
            if let Some(tensor) = self.program.state(target) {
                details.push(("memory", in_bytes(tensor.numel() * tensor.dtype().size())));
                if kind.is_empty() {
                    kind = format!("{}{:?}", tensor.dtype().name(), tensor.shape());
                }
            }
        }
        if matches!(class, Class::Op | Class::Output) {
            details.push(("call", print_node(graph, id)));
        }
        details.extend(meta.stack_trace.as_ref().map(|trace| ("source", trace.to_string())));
        Node { label, kind, class, group: ROOT, details, bytes: None }
    }
}

/// The name of what is called, without namespace and overload.
fn short(target: &Target) -> String {
    match target {
        Target::Op(op) if op.namespace() == "aten" => op.base().to_string(),
        Target::Op(op) => format!("{}.{}", op.namespace(), op.base()),
        Target::Hop(hop) => hop.name().to_string(),
        Target::Function(f) => f.name().rsplit('.').next().unwrap_or_default().to_string(),
    }
}
