//! The form PyTorch prints, for the eye: `%x : [num_users=1] = placeholder[target=x]`. It is not read back.

use super::atoms::write_float;
use crate::ir::*;
use std::fmt::{self, Write};

/// Whether nodes carry a `%` and strings go without quotes (calls), or the other way round (the return line).
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Call,
    Return,
}

/// A graph as PyTorch prints it.
pub fn print_python(graph: &Graph) -> String {
    let mut out = "graph():".to_string();
    for n in graph.nodes() {
        out.push_str("\n    ");
        write_node(&mut out, graph, n).expect("writing to a string does not fail");
    }
    out
}

fn write_node(out: &mut String, graph: &Graph, id: NodeId) -> fmt::Result {
    let node = &graph[id];
    let (kind, target) = match node.kind() {
        Kind::Output => {
            out.push_str("return ");
            return write_argument(out, graph, &node.args()[0], Style::Return);
        }
        Kind::Placeholder(target) => ("placeholder", target.to_string()),
        Kind::GetAttr(path) => ("get_attr", path.to_string()),
        Kind::CallFunction(target) => ("call_function", qualified(target)),
        Kind::CallMethod(method) => ("call_method", method.to_string()),
        Kind::CallModule(path) => ("call_module", path.to_string()),
    };
    write!(out, "%{} : [num_users={}] = {kind}[target={target}]", node.name(), node.num_users())?;
    match node.kind() {
        Kind::GetAttr(_) => Ok(()),
        Kind::Placeholder(_) => match node.args().first() {
            Some(default) => {
                out.push_str("(default=");
                write_argument(out, graph, default, Style::Call)?;
                out.write_char(')')
            }
            None => Ok(()),
        },
        _ => {
            out.push_str("(args = ");
            write_argument(out, graph, &Argument::Tuple(node.args().into()), Style::Call)?;
            out.push_str(", kwargs = ");
            write_argument(out, graph, &Argument::Dict(node.kwargs().into()), Style::Call)?;
            out.write_char(')')
        }
    }
}

fn qualified(target: &Target) -> String {
    match target {
        Target::Op(op) => format!("torch.ops.{op}"),
        Target::Hop(hop) => format!("torch.ops.higher_order.{}", hop.name()),
        Target::Function(Function::SetGradEnabled) => "torch._C._set_grad_enabled".to_string(),
        Target::Function(Function::EnterAutocast) => "torch.amp.autocast_mode._enter_autocast".to_string(),
        Target::Function(Function::ExitAutocast) => "torch.amp.autocast_mode._exit_autocast".to_string(),
        Target::Function(f) => f.name().to_string(),
    }
}

fn write_argument(out: &mut String, graph: &Graph, argument: &Argument, style: Style) -> fmt::Result {
    let many = |out: &mut String, items: &[Argument]| {
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            write_argument(out, graph, item, style)?;
        }
        fmt::Result::Ok(())
    };
    match argument {
        Argument::None => out.push_str("None"),
        Argument::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Argument::Int(i) => write!(out, "{i}")?,
        Argument::Float(v) => write_float(out, *v)?,
        Argument::Complex(re, im) => {
            // Python leaves out `.0` and a real part of zero.
            let part = |v: f64| {
                let mut text = String::new();
                write_float(&mut text, v).expect("writing to a string does not fail");
                text.strip_suffix(".0").map_or(text.clone(), str::to_string)
            };
            match *re == 0.0 && re.is_sign_positive() {
                true => write!(out, "{}j", part(*im))?,
                false => write!(out, "({}{}{}j)", part(*re), if *im < 0.0 { "" } else { "+" }, part(*im))?,
            }
        }
        Argument::Str(s) if style == Style::Call => out.push_str(s),
        Argument::Str(s) => write!(out, "'{}'", s.escape_default())?,
        Argument::DType(d) => write!(out, "torch.{d}")?,
        Argument::Device(d) if style == Style::Call => write!(out, "{d}")?,
        Argument::Device(d) => match d.index {
            Some(index) => write!(out, "device(type='{}', index={index})", d.kind)?,
            None => write!(out, "device(type='{}')", d.kind)?,
        },
        Argument::Layout(l) => write!(out, "torch.{l}")?,
        Argument::MemoryFormat(m) => write!(out, "torch.{m}")?,
        Argument::Op(target) => match &**target {
            Target::Op(op) => write!(out, "{op}")?,
            other => out.push_str(&qualified(other)),
        },
        Argument::Node(n) if style == Style::Call => write!(out, "%{}", graph[*n].name())?,
        Argument::Node(n) => out.push_str(graph[*n].name()),
        Argument::Slice(parts) => {
            out.push_str("slice(");
            many(out, &parts[..])?;
            out.push(')');
        }
        Argument::Tuple(items) => {
            out.push('(');
            many(out, items)?;
            out.push_str(if items.len() == 1 { ",)" } else { ")" });
        }
        Argument::List(items) => {
            out.push('[');
            many(out, items)?;
            out.push(']');
        }
        Argument::Dict(entries) => {
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                match style {
                    Style::Call => write!(out, "{key}: ")?,
                    Style::Return => write!(out, "'{}': ", key.escape_default())?,
                }
                write_argument(out, graph, value, style)?;
            }
            out.push('}');
        }
    }
    Ok(())
}
