//! Printing the short and the long form.

use super::atoms::{is_word, write_string};
use super::signature::write_signature;
use super::values::{write_argument, write_tensor_meta, write_val};
use crate::ir::*;
use crate::program::{Dialect, ExportedProgram};
use std::fmt::{self, Write};

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// Only the calls.
    #[default]
    Short,
    /// Types, attributes and metadata as well.
    Long,
}

/// The whole program: graph, sub-graphs, signature.
pub fn print(program: &ExportedProgram, form: Form) -> String {
    let mut out = String::new();
    let done = write_program(&mut out, program, form);
    done.expect("writing to a string does not fail");
    out
}

/// A module and its sub-graphs, without a final line break.
pub fn print_module(module: &GraphModule, form: Form) -> String {
    let mut out = String::new();
    write_module(&mut out, module, "graph", 0, form).expect("writing to a string does not fail");
    out
}

/// One node as the short form prints it: `%y = aten.add.Tensor(%x, 1)`.
pub fn print_node(graph: &Graph, id: NodeId) -> String {
    let mut out = String::new();
    write_node(&mut out, graph, id, Form::Short).expect("writing to a string does not fail");
    out
}

fn write_program(out: &mut String, program: &ExportedProgram, form: Form) -> fmt::Result {
    write_module(out, &program.module, "graph", 0, form)?;
    out.push('\n');
    if let Some(signature) = &program.signature {
        write_signature(out, &program.module.graph, signature, form)?;
    }
    if form == Form::Long {
        if !program.range_constraints.is_empty() {
            out.push_str("\n# ranges\n");
            for (symbol, range) in &program.range_constraints {
                let end = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
                writeln!(out, "{symbol}: {}..{}", end(range.min), end(range.max))?;
            }
        }
        if program.dialect != Dialect::default() {
            write!(out, "\n# dialect\n{}\n", program.dialect.name())?;
        }
    }
    Ok(())
}

fn write_module(out: &mut String, module: &GraphModule, name: &str, indent: usize, form: Form) -> fmt::Result {
    let pad = " ".repeat(indent);
    writeln!(out, "{pad}{name} {{")?;
    if form == Form::Long {
        write_attributes(out, &module.attributes, "", indent + 2)?;
        for (key, value) in &module.meta {
            write!(out, "{pad}  meta ")?;
            write_string(out, key)?;
            out.push_str(" = ");
            write_string(out, value)?;
            out.push('\n');
        }
    }
    for n in module.graph.nodes() {
        write!(out, "{pad}  ")?;
        write_node(out, &module.graph, n, form)?;
        out.push('\n');
    }
    write!(out, "{pad}}}")?;
    write_subgraphs(out, &module.attributes, "", indent + 2, form)
}

fn write_subgraphs(out: &mut String, attributes: &Attributes, prefix: &str, indent: usize, form: Form) -> fmt::Result {
    for (name, attribute) in attributes.iter() {
        match attribute {
            Attribute::Graph(inner) => {
                out.push('\n');
                write_module(out, inner, &format!("{prefix}{name}"), indent, form)?;
            }
            Attribute::Module(inner) => write_subgraphs(out, inner, &format!("{prefix}{name}."), indent, form)?,
            _ => {}
        }
    }
    Ok(())
}

fn write_attributes(out: &mut String, attributes: &Attributes, prefix: &str, indent: usize) -> fmt::Result {
    for (name, attribute) in attributes.iter() {
        let path = format!("{prefix}{name}");
        let (role, meta) = match attribute {
            Attribute::Graph(_) => continue,
            Attribute::Module(inner) => {
                write_attributes(out, inner, &format!("{path}."), indent)?;
                continue;
            }
            Attribute::Tensor(t) => ("tensor", Some(TensorMeta::of(t))),
            Attribute::Parameter(t) => ("parameter", Some(TensorMeta::of(t))),
            Attribute::Buffer { tensor, persistent: true } => ("buffer", Some(TensorMeta::of(tensor))),
            Attribute::Buffer { tensor, persistent: false } => ("temporary_buffer", Some(TensorMeta::of(tensor))),
            Attribute::Unbound(meta) => ("unbound", meta.as_deref().cloned()),
            Attribute::Object { .. } => ("object", None),
        };
        write!(out, "{:indent$}attr {path}: {role}", "")?;
        if let Attribute::Object { class_fqn } = attribute {
            out.push(' ');
            write_string(out, class_fqn)?;
        }
        if let Some(meta) = meta {
            out.push(' ');
            write_tensor_meta(out, &meta)?;
        }
        out.push('\n');
    }
    Ok(())
}

fn write_node(out: &mut String, graph: &Graph, id: NodeId, form: Form) -> fmt::Result {
    let node = &graph[id];
    let name = node.name();
    match node.kind() {
        Kind::Output => {
            out.push_str("return ");
            write_argument(out, graph, &node.args()[0])?;
        }
        Kind::Placeholder(target) => {
            write!(out, "%{name} = placeholder")?;
            let starred = target.starts_with('*');
            if starred || (form == Form::Long && target != name) {
                write!(out, " {target}")?;
            }
            if let Some(default) = node.args().first() {
                out.push('(');
                write_argument(out, graph, default)?;
                out.push(')');
            }
        }
        Kind::GetAttr(path) => write!(out, "%{name} = get_attr {path}")?,
        Kind::CallFunction(target) => {
            write!(out, "%{name} = {target}")?;
            write_arguments(out, graph, node)?;
        }
        Kind::CallMethod(method) => {
            write!(out, "%{name} = call_method {method}")?;
            write_arguments(out, graph, node)?;
        }
        Kind::CallModule(path) => {
            write!(out, "%{name} = call_module {path}")?;
            write_arguments(out, graph, node)?;
        }
    }
    if form == Form::Long { write_meta(out, graph, node.meta()) } else { Ok(()) }
}

fn write_arguments(out: &mut String, graph: &Graph, node: &Node) -> fmt::Result {
    out.push('(');
    for (i, argument) in node.args().iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_argument(out, graph, argument)?;
    }
    for (i, (key, argument)) in node.kwargs().iter().enumerate() {
        out.push_str(if i > 0 || !node.args().is_empty() { ", " } else { "" });
        write!(out, "{key}=")?;
        write_argument(out, graph, argument)?;
    }
    out.push(')');
    Ok(())
}

fn write_meta(out: &mut String, graph: &Graph, meta: &Meta) -> fmt::Result {
    if let Some(val) = &meta.val {
        out.push_str(" : ");
        write_val(out, graph, val)?;
    }
    if let Some(stack) = &meta.nn_module_stack {
        out.push_str(" @nn_module_stack=[");
        for (i, (key, (path, class))) in stack.iter().enumerate() {
            for (part, text) in [key, path, class].into_iter().enumerate() {
                out.push_str(if i > 0 || part > 0 { ", " } else { "" });
                write_string(out, text)?;
            }
        }
        out.push(']');
    }
    if let Some(torch_fn) = &meta.torch_fn {
        out.push_str(" @torch_fn=[");
        write_string(out, &torch_fn.0)?;
        out.push_str(", ");
        write_string(out, &torch_fn.1)?;
        out.push(']');
    }
    if let Some(trace) = &meta.stack_trace {
        out.push_str(" @stack_trace=");
        write_string(out, trace)?;
    }
    for (key, value) in meta.other.iter().flat_map(|m| m.iter()) {
        out.push_str(" @");
        if is_word(key) && !matches!(key.as_str(), "nn_module_stack" | "torch_fn" | "stack_trace") {
            out.push_str(key);
        } else {
            write_string(out, key)?;
        }
        out.push('=');
        write_string(out, value)?;
    }
    Ok(())
}
