//! The verifier. This comment is its specification.
//!
//! A graph is well formed when, node by node in order:
//! 1. every argument belongs to this graph and is defined before it is used;
//! 2. no two nodes have one name;
//! 3. placeholders have at most one argument (their default, which names no node), `get_attr` none, `output` exactly one;
//! 4. every `get_attr` path names an attribute of the owning module, every `call_module` path a sub-graph;
//! 5. and every sub-graph that a `get_attr` or `call_module` names is well formed in turn.
//!
//! A program ([`verify_program`]) has a well-formed graph and, besides:
//! 6. begins with its placeholders, ends with `output`, and calls neither modules nor methods;
//! 7. has one input spec for each placeholder and one output spec for each element returned, and the name of every spec
//!    that stands for a node is the name of the node in its place;
//! 8. parameters are parameters of the state dict; persistent buffers are in it, or among the constants; other buffers
//!    are not; constants and objects are among the constants;
//! 9. mutation targets name a buffer, parameter or input of the signature;
//! 10. at the top, `get_attr` names sub-graphs only; every placeholder and call has an abstract value;
//! 11. in the ATEN dialect no op writes an argument;
//! 12. module call signatures name nodes that exist.
//!
//! Where a rule breaks, the violation names the graph (by path), the node and the rule. Verification is linear in nodes
//! and references. It reads no tensor and runs no op.

use crate::ir::{Argument, Attribute, GraphModule, Kind, NodeId, Target};
use crate::program::{Constant, Dialect, ExportedProgram};
use crate::schema::Schema;
use crate::signature::{GraphSignature, InputKind, OutputKind, SpecArg};
use std::collections::HashSet;
use std::sync::Arc;

/// A violation and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}node %{node}: {message}", if .graph.is_empty() { String::new() } else { format!("in {}, ", .graph) })]
pub struct Violation {
    /// Path of the sub-graph; empty for the top graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// The violated rule.
    pub message: String,
}

/// Checks a module and all sub-graphs it uses.
pub fn verify_module(module: &GraphModule) -> Result<(), Violation> {
    verify_at(module, "", &mut HashSet::new())
}

fn verify_at(module: &GraphModule, path: &str, seen: &mut HashSet<*const GraphModule>) -> Result<(), Violation> {
    let graph = &module.graph;
    let fail =
        |node: &str, message: String| Err(Violation { graph: path.to_string(), node: node.to_string(), message });
    let mut defined = vec![false; graph.capacity()];
    let mut names: HashSet<&str> = HashSet::with_capacity(graph.len());
    for n in graph.nodes() {
        let node = &graph[n];
        let is_placeholder = matches!(node.kind(), Kind::Placeholder(_));
        let mut wrong: Option<String> = None;
        for argument in node.arguments() {
            argument.for_each_node(&mut |used: NodeId| {
                if wrong.is_some() {
                } else if !graph.owns(used) {
                    wrong = Some("an argument belongs to another graph".to_string());
                } else if is_placeholder {
                    wrong = Some("the default of a placeholder names a node".to_string());
                } else if !defined[used.index()] {
                    wrong = Some(format!("argument %{} is used before definition", graph[used].name()));
                }
            });
        }
        if let Some(message) = wrong {
            return fail(node.name(), message);
        }
        if !names.insert(node.name()) {
            return fail(node.name(), "two nodes have this name".to_string());
        }
        let count = node.arguments().count();
        let wrong_count = match node.kind() {
            Kind::Placeholder(_) => count > 1,
            Kind::GetAttr(_) => count > 0,
            Kind::Output => count != 1,
            _ => false,
        };
        if wrong_count {
            return fail(node.name(), format!("has {count} arguments, which its kind does not take"));
        }
        match node.kind() {
            Kind::GetAttr(p) if module.attributes.get(p).is_none() => {
                return fail(node.name(), format!("the module has no attribute {p}"));
            }
            Kind::CallModule(p) if !matches!(module.attributes.get(p), Some(Attribute::Graph(_))) => {
                return fail(node.name(), format!("the module has no sub-graph {p}"));
            }
            _ => {}
        }
        defined[n.index()] = true;
    }
    for n in graph.nodes() {
        if let Kind::GetAttr(p) | Kind::CallModule(p) = graph[n].kind()
            && let Some(inner) = module.subgraph(p)
            && seen.insert(Arc::as_ptr(inner))
        {
            let inner_path = if path.is_empty() { p.to_string() } else { format!("{path}.{p}") };
            verify_at(inner, &inner_path, seen)?;
        }
    }
    Ok(())
}

/// Checks a program: its graph, its signature and its state.
pub fn verify_program(program: &ExportedProgram) -> Result<(), Violation> {
    verify_module(&program.module)?;
    let Some(signature) = &program.signature else { return fail("", "the program has no signature") };
    check_nodes(&program.module, program.dialect)?;
    check_specs(program, signature)?;
    check_state(program, signature)?;
    let names: HashSet<&str> = program.module.graph.nodes().map(|n| &**program.module.graph[n].name()).collect();
    for entry in &program.module_call_graph {
        let args = entry.signature.iter().flat_map(|s| s.inputs.iter().chain(&s.outputs));
        for name in args.filter_map(SpecArg::node) {
            if !names.contains(&**name) {
                return fail(name, format!("the call of module {:?} names it, but there is no such node", entry.fqn));
            }
        }
    }
    Ok(())
}

fn fail<T>(node: &str, message: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { graph: String::new(), node: node.to_string(), message: message.into() })
}

fn check_nodes(module: &GraphModule, dialect: Dialect) -> Result<(), Violation> {
    let graph = &module.graph;
    if graph.output_node().is_none() {
        return fail("", "the last node is not an output");
    }
    let is_placeholder = |n: &NodeId| matches!(graph[*n].kind(), Kind::Placeholder(_));
    if let Some(late) = graph.nodes().skip_while(is_placeholder).find(is_placeholder) {
        return fail(graph[late].name(), "a placeholder comes after other nodes");
    }
    for n in graph.nodes() {
        let (node, name) = (&graph[n], graph[n].name());
        match node.kind() {
            Kind::CallModule(_) | Kind::CallMethod(_) => return fail(name, "programs call functions only"),
            Kind::GetAttr(path) if module.subgraph(path).is_none() => {
                return fail(
                    name,
                    format!("reads {path}, which is not a sub-graph; constants are inputs of a program"),
                );
            }
            Kind::Placeholder(_) | Kind::CallFunction(_) if node.meta().val.is_none() => {
                return fail(name, "has no abstract value (`val`)");
            }
            Kind::CallFunction(Target::Op(op))
                if dialect == Dialect::Aten && op.schema().is_some_and(Schema::mutates) =>
            {
                return fail(name, format!("{op} mutates an argument, which the ATEN dialect does not allow"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_specs(program: &ExportedProgram, signature: &GraphSignature) -> Result<(), Violation> {
    let graph = &program.module.graph;
    let placeholders: Vec<NodeId> = graph.placeholders().collect();
    if placeholders.len() != signature.inputs.len() {
        let (found, specs) = (placeholders.len(), signature.inputs.len());
        return fail("", format!("the graph has {found} placeholders, the signature {specs} input specs"));
    }
    for (&n, spec) in placeholders.iter().zip(&signature.inputs) {
        if spec.arg.node().is_some_and(|name| name != graph[n].name()) {
            return fail(graph[n].name(), format!("its input spec is called {}", spec.arg.name()));
        }
    }
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]);
    if returned.len() != signature.outputs.len() {
        let (found, specs) = (returned.len(), signature.outputs.len());
        return fail("output", format!("the graph returns {found} values, the signature has {specs} output specs"));
    }
    for (value, spec) in returned.iter().zip(&signature.outputs) {
        if let (Some(n), Some(name)) = (value.node(), spec.arg.node())
            && graph[n].name() != name
        {
            return fail(graph[n].name(), format!("its output spec is called {name}"));
        }
    }
    Ok(())
}

fn check_state(program: &ExportedProgram, signature: &GraphSignature) -> Result<(), Violation> {
    for spec in &signature.inputs {
        let name = spec.arg.name();
        match &spec.kind {
            InputKind::Parameter(target) => match program.state_dict.get(&**target) {
                Some(state) if state.is_parameter => {}
                Some(_) => return fail(name, format!("{target} is not a parameter of the state dict")),
                None => return fail(name, format!("parameter {target} is not in the state dict")),
            },
            InputKind::Buffer { target, persistent } => {
                let (saved, constant) =
                    (program.state_dict.contains_key(&**target), program.constants.contains_key(&**target));
                if *persistent && !saved && !constant {
                    return fail(name, format!("buffer {target} is neither in the state dict nor a constant"));
                }
                if !persistent && saved {
                    return fail(name, format!("buffer {target} is not persistent, but in the state dict"));
                }
            }
            InputKind::ConstantTensor(target) => {
                if !matches!(program.constants.get(&**target), Some(Constant::Tensor(_))) {
                    return fail(name, format!("{target} is not a constant tensor of the program"));
                }
            }
            InputKind::CustomObj(target) => {
                if !program.constants.contains_key(&**target) {
                    return fail(name, format!("object {target} is not a constant of the program"));
                }
            }
            InputKind::UserInput | InputKind::Token => {}
        }
    }
    for spec in &signature.outputs {
        let known = |wanted: fn(&InputKind) -> bool, target: &str| {
            signature.inputs.iter().any(|s| wanted(&s.kind) && s.kind.target().is_some_and(|t| &**t == target))
        };
        let ok = match &spec.kind {
            OutputKind::BufferMutation(t) => known(|k| matches!(k, InputKind::Buffer { .. }), t),
            OutputKind::ParameterMutation(t) | OutputKind::GradientToParameter(t) => {
                known(|k| matches!(k, InputKind::Parameter(_)), t)
            }
            OutputKind::UserInputMutation(t) | OutputKind::GradientToUserInput(t) => {
                signature.user_inputs().any(|s| s.arg.name() == t)
            }
            OutputKind::UserOutput | OutputKind::LossOutput | OutputKind::Token => true,
        };
        if !ok {
            let target = spec.kind.target().map_or("", |t| t);
            return fail(spec.arg.name(), format!("{} of {target}, which is not an input", spec.kind.name()));
        }
    }
    Ok(())
}
