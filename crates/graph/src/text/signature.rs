//! The signature block: `# inputs`, one line each, an empty line, `# outputs`, one line each.
//!
//! The short form says name, kind and target; the long form adds what the argument is when that is not a tensor.

use super::print::Form;
use super::scan::Scanner;
use super::values::{read_argument, write_argument};
use crate::error::Result;
use crate::ir::{Argument, Graph, Name};
use crate::signature::*;
use std::fmt::{self, Write};

fn write_arg(out: &mut String, graph: &Graph, arg: &SpecArg, form: Form) -> fmt::Result {
    if form == Form::Short {
        return Ok(());
    }
    match arg {
        SpecArg::Tensor(_) => Ok(()),
        SpecArg::SymInt(_) => out.write_str(" arg=symint"),
        SpecArg::SymFloat(_) => out.write_str(" arg=symfloat"),
        SpecArg::SymBool(_) => out.write_str(" arg=symbool"),
        SpecArg::Token(_) => out.write_str(" arg=token"),
        SpecArg::CustomObj { class_fqn, .. } => write!(out, " arg=object class='{class_fqn}'"),
        SpecArg::Constant { value, .. } => {
            out.push_str(" arg=constant value=");
            write_argument(out, graph, value)
        }
    }
}

pub(super) fn write_signature(out: &mut String, graph: &Graph, s: &GraphSignature, form: Form) -> fmt::Result {
    let target = |t: Option<&Name>| t.map_or(String::new(), |t| format!(" target='{t}'"));
    out.push_str("# inputs\n");
    for spec in &s.inputs {
        write!(out, "{}: {}{}", spec.arg.name(), spec.kind.name(), target(spec.kind.target()))?;
        if let InputKind::Buffer { persistent, .. } = spec.kind {
            write!(out, " persistent={}", if persistent { "True" } else { "False" })?;
        }
        write_arg(out, graph, &spec.arg, form)?;
        out.push('\n');
    }
    out.push_str("\n# outputs\n");
    for spec in &s.outputs {
        write!(out, "{}: {}{}", spec.arg.name(), spec.kind.name(), target(spec.kind.target()))?;
        write_arg(out, graph, &spec.arg, form)?;
        out.push('\n');
    }
    Ok(())
}

/// `key='value'`, if it comes next.
fn quoted<'a>(s: &mut Scanner<'a>, key: &str) -> Result<Option<&'a str>> {
    if !s.eat(&format!("{key}='")) {
        return Ok(None);
    }
    let rest = s.rest();
    let end = rest.find('\'').ok_or_else(|| s.expected("a closing '"))?;
    s.at += end + 1;
    Ok(Some(&rest[..end]))
}

fn read_arg(s: &mut Scanner<'_>, name: &str, default: SpecArg) -> Result<SpecArg> {
    let name: Name = name.into();
    if !s.eat("arg=") {
        return Ok(default);
    }
    Ok(match s.word() {
        "symint" => SpecArg::SymInt(name),
        "symfloat" => SpecArg::SymFloat(name),
        "symbool" => SpecArg::SymBool(name),
        "token" => SpecArg::Token(name),
        "object" => {
            let class_fqn = quoted(s, "class")?.ok_or_else(|| s.expected("class='…'"))?;
            SpecArg::CustomObj { name, class_fqn: class_fqn.into() }
        }
        "constant" => {
            s.expect("value=")?;
            SpecArg::Constant { name, value: read_argument(s, &|_| None, 0)? }
        }
        _ => return Err(s.expected("symint, symfloat, symbool, token, object or constant behind arg=")),
    })
}

/// Name and kind, which both sorts of line begin with.
fn read_head<'a>(s: &mut Scanner<'a>) -> Result<(&'a str, &'a str, Option<Name>)> {
    let name = s.word();
    s.expect(":")?;
    let kind = s.word();
    Ok((name, kind, quoted(s, "target")?.map(Name::from)))
}

pub(super) fn read_input(s: &mut Scanner<'_>) -> Result<InputSpec> {
    let (name, kind, target) = read_head(s)?;
    let needed = |s: &Scanner<'_>| target.clone().ok_or_else(|| s.expected(&format!("target='…' behind {kind}")));
    let mut arg = SpecArg::Tensor(name.into());
    let kind = match kind {
        "USER_INPUT" => InputKind::UserInput,
        "PARAMETER" => InputKind::Parameter(needed(s)?),
        "CONSTANT_TENSOR" => InputKind::ConstantTensor(needed(s)?),
        "CUSTOM_OBJ" => {
            arg = SpecArg::CustomObj { name: name.into(), class_fqn: "".into() };
            InputKind::CustomObj(needed(s)?)
        }
        "TOKEN" => {
            arg = SpecArg::Token(name.into());
            InputKind::Token
        }
        "BUFFER" => {
            let target = needed(s)?;
            let persistent = !s.eat("persistent=False");
            s.eat("persistent=True");
            InputKind::Buffer { target, persistent }
        }
        _ => return Err(s.expected("USER_INPUT, PARAMETER, BUFFER, CONSTANT_TENSOR, CUSTOM_OBJ or TOKEN before this")),
    };
    let arg = read_arg(s, name, arg)?;
    s.end()?;
    Ok(InputSpec { kind, arg })
}

/// `value` is what the graph returns at this position: a spec without a name stands for that constant.
pub(super) fn read_output(s: &mut Scanner<'_>, value: Option<&Argument>) -> Result<OutputSpec> {
    let (name, kind, target) = read_head(s)?;
    let needed = |s: &Scanner<'_>| target.clone().ok_or_else(|| s.expected(&format!("target='…' behind {kind}")));
    let mut arg = SpecArg::Tensor(name.into());
    if name.is_empty() {
        arg = SpecArg::Constant { name: "".into(), value: value.cloned().unwrap_or(Argument::None) };
    }
    let kind = match kind {
        "USER_OUTPUT" => OutputKind::UserOutput,
        "LOSS_OUTPUT" => OutputKind::LossOutput,
        "BUFFER_MUTATION" => OutputKind::BufferMutation(needed(s)?),
        "PARAMETER_MUTATION" => OutputKind::ParameterMutation(needed(s)?),
        "GRADIENT_TO_PARAMETER" => OutputKind::GradientToParameter(needed(s)?),
        "GRADIENT_TO_USER_INPUT" => OutputKind::GradientToUserInput(needed(s)?),
        "USER_INPUT_MUTATION" => OutputKind::UserInputMutation(needed(s)?),
        "TOKEN" => {
            arg = SpecArg::Token(name.into());
            OutputKind::Token
        }
        _ => return Err(s.expected("an output kind such as USER_OUTPUT or BUFFER_MUTATION before this")),
    };
    let arg = read_arg(s, name, arg)?;
    if let SpecArg::Constant { value, .. } = &arg {
        let mut nodes = 0;
        value.for_each_node(&mut |_| nodes += 1);
        if nodes > 0 {
            return Err(s.expected("a name at the beginning, since a value of the graph is returned here"));
        }
    }
    s.end()?;
    Ok(OutputSpec { kind, arg })
}
