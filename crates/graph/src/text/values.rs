//! Arguments, abstract values and symbolic numbers as text: both directions.
//!
//! ```text
//! argument   %name  None  True  3  1e-05  complex(1.0, 2.0)  "text"  float32  device(cpu)  strided  preserve_format
//!            slice(None, 2, None)  (a, b)  [a]  {k: v}  aten.sin.default
//! value      float32[2, 3]  float32[2, 3] strides=[1, 2] offset=4 device=cuda:0 layout=sparse_coo requires_grad
//!            none  token  object("class")  const(3)  int("Symbol('s0')"~4)  float(…)  bool(…)  (v, v)  [v]
//! number     4  "Symbol('s0', positive=True)"~4     (an expression and its value at export, if known)
//! ```

use super::atoms::{is_word, write_float, write_string};
use super::scan::Scanner;
use crate::error::Result;
use crate::ir::*;
use std::fmt::{self, Write};
use std::sync::Arc;

/// How deep containers may nest.
const MAX_DEPTH: usize = 64;

// ---- arguments

pub(super) fn write_argument(out: &mut impl Write, graph: &Graph, argument: &Argument) -> fmt::Result {
    let many = |out: &mut _, items: &[Argument]| {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                Write::write_str(out, ", ")?;
            }
            write_argument(out, graph, item)?;
        }
        fmt::Result::Ok(())
    };
    match argument {
        Argument::None => out.write_str("None"),
        Argument::Bool(b) => out.write_str(if *b { "True" } else { "False" }),
        Argument::Int(i) => write!(out, "{i}"),
        Argument::Float(v) => write_float(out, *v),
        Argument::Complex(re, im) => {
            out.write_str("complex(")?;
            write_float(out, *re)?;
            out.write_str(", ")?;
            write_float(out, *im)?;
            out.write_str(")")
        }
        Argument::Str(s) => write_string(out, s),
        Argument::DType(d) => out.write_str(d.name()),
        Argument::Device(d) => write!(out, "device({d})"),
        Argument::Layout(l) => out.write_str(l.name()),
        Argument::MemoryFormat(m) => out.write_str(m.name()),
        Argument::Op(target) => write!(out, "{target}"),
        Argument::Node(n) => match graph.owns(*n) {
            true => write!(out, "%{}", graph[*n].name()),
            false => write!(out, "%<of another graph>"),
        },
        Argument::Slice(parts) => {
            out.write_str("slice(")?;
            many(out, &parts[..])?;
            out.write_str(")")
        }
        Argument::Tuple(items) => {
            out.write_str("(")?;
            many(out, items)?;
            out.write_str(if items.len() == 1 { ",)" } else { ")" })
        }
        Argument::List(items) => {
            out.write_str("[")?;
            many(out, items)?;
            out.write_str("]")
        }
        Argument::Dict(entries) => {
            out.write_str("{")?;
            for (i, (key, value)) in entries.iter().enumerate() {
                if i > 0 {
                    out.write_str(", ")?;
                }
                if is_word(key) {
                    out.write_str(key)?
                } else {
                    write_string(out, key)?
                }
                out.write_str(": ")?;
                write_argument(out, graph, value)?;
            }
            out.write_str("}")
        }
    }
}

/// Finds nodes by name while a graph is read.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<NodeId>;

pub(super) fn read_argument(s: &mut Scanner<'_>, lookup: Lookup<'_>, depth: usize) -> Result<Argument> {
    if depth > MAX_DEPTH {
        return Err(s.expected(&format!("at most {MAX_DEPTH} levels of containers")));
    }
    let many = |s: &mut Scanner<'_>, close: &str| -> Result<(Vec<Argument>, bool)> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !s.eat(close) {
            if !items.is_empty() && !comma {
                return Err(s.expected(&format!("',' or '{close}'")));
            }
            items.push(read_argument(s, lookup, depth + 1)?);
            comma = s.eat(",");
        }
        Ok((items, comma))
    };
    match s.peek() {
        Some('%') => {
            s.expect("%")?;
            let begin = s.at;
            let name = s.name()?;
            lookup(name).map(Argument::Node).ok_or_else(|| {
                s.at = begin;
                s.expected("a node that is defined above")
            })
        }
        Some('(') => {
            s.expect("(")?;
            let (items, comma) = many(s, ")")?;
            if items.len() == 1 && !comma {
                return Err(s.expected("',' behind the only element of a tuple"));
            }
            Ok(Argument::Tuple(items.into()))
        }
        Some('[') => {
            s.expect("[")?;
            Ok(Argument::List(many(s, "]")?.0.into()))
        }
        Some('{') => {
            s.expect("{")?;
            let mut entries: Vec<(Name, Argument)> = Vec::new();
            while !s.eat("}") {
                if !entries.is_empty() {
                    s.expect(",")?;
                }
                let key = if s.peek() == Some('"') { s.string()? } else { s.name()?.to_string() };
                s.expect(":")?;
                entries.push((key.into(), read_argument(s, lookup, depth + 1)?));
            }
            Ok(Argument::Dict(entries.into()))
        }
        Some('"') => Ok(Argument::Str(s.string()?.into())),
        Some(c) if c.is_ascii_digit() || c == '-' => read_number(s),
        _ => {
            let begin = s.at;
            let word = s.path();
            if matches!(word, "slice" | "complex" | "device") && s.peek() == Some('(') {
                s.expect("(")?;
                if word == "device" {
                    let text = s.take(|c| c != ')');
                    let device = DeviceName::parse(text).ok_or_else(|| s.expected("a device such as cpu"))?;
                    s.expect(")")?;
                    return Ok(Argument::Device(device));
                }
                let (parts, _) = many(s, ")")?;
                return match (word, &parts[..]) {
                    ("slice", [a, b, c]) => Ok(Argument::Slice(Arc::new([a.clone(), b.clone(), c.clone()]))),
                    ("complex", [Argument::Float(re), Argument::Float(im)]) => Ok(Argument::Complex(*re, *im)),
                    _ => Err(s.expected(&format!("{word} of the right parts"))),
                };
            }
            read_word(word).ok_or_else(|| {
                s.at = begin;
                s.expected("an argument")
            })
        }
    }
}

fn read_word(word: &str) -> Option<Argument> {
    Some(match word {
        "None" => Argument::None,
        "True" => Argument::Bool(true),
        "False" => Argument::Bool(false),
        "inf" => Argument::Float(f64::INFINITY),
        "nan" => Argument::Float(f64::NAN),
        _ => {
            if let Some(d) = ScalarType::from_name(word) {
                Argument::DType(d)
            } else if let Some(l) = MemoryLayout::from_name(word) {
                Argument::Layout(l)
            } else if let Some(m) = MemoryFormat::from_name(word) {
                Argument::MemoryFormat(m)
            } else {
                Argument::Op(Arc::new(Target::parse(word)?))
            }
        }
    })
}

fn read_number(s: &mut Scanner<'_>) -> Result<Argument> {
    let begin = s.at;
    let text = s.number();
    let wrong = |s: &mut Scanner<'_>| {
        s.at = begin;
        s.expected("a number")
    };
    if text == "-inf" {
        return Ok(Argument::Float(f64::NEG_INFINITY));
    }
    if text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(Argument::Int).map_err(|_| wrong(s));
    }
    // Rust reads `infinity` and the like as floats; the grammar does not.
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    text.parse().ok().filter(|_| plain).map(Argument::Float).ok_or_else(|| wrong(s))
}

// ---- symbolic numbers

fn write_symbolic<T: Copy>(
    out: &mut impl Write,
    v: &Symbolic<T>,
    write: impl Fn(&mut dyn Write, T) -> fmt::Result,
) -> fmt::Result {
    match v {
        Symbolic::Known(v) => write(out, *v),
        Symbolic::Expr { expr, hint } => {
            write_string(out, &expr.to_string())?;
            match hint {
                Some(hint) => {
                    out.write_str("~")?;
                    write(out, *hint)
                }
                None => Ok(()),
            }
        }
    }
}

fn read_symbolic<T>(s: &mut Scanner<'_>, read: impl Fn(&mut Scanner<'_>) -> Result<T>) -> Result<Symbolic<T>> {
    if s.peek() != Some('"') {
        return read(s).map(Symbolic::Known);
    }
    let begin = s.at;
    let expr = Expr::parse(&s.string()?).map_err(|e| {
        s.at = begin;
        s.expected(&format!("an expression ({e})"))
    })?;
    let hint = if s.eat("~") { Some(read(s)?) } else { None };
    Ok(Symbolic::Expr { expr: Arc::new(expr), hint })
}

fn write_sizes(out: &mut impl Write, sizes: &[SymInt]) -> fmt::Result {
    out.write_str("[")?;
    for (i, size) in sizes.iter().enumerate() {
        if i > 0 {
            out.write_str(", ")?;
        }
        write_symbolic(out, size, |out, v| write!(out, "{v}"))?;
    }
    out.write_str("]")
}

fn read_sizes(s: &mut Scanner<'_>) -> Result<Vec<SymInt>> {
    s.expect("[")?;
    let mut sizes = Vec::new();
    while !s.eat("]") {
        if !sizes.is_empty() {
            s.expect(",")?;
        }
        sizes.push(read_symbolic(s, |s| s.integer())?);
    }
    Ok(sizes)
}

fn read_float(s: &mut Scanner<'_>) -> Result<f64> {
    match read_argument(s, &|_| None, 0)? {
        Argument::Float(v) => Ok(v),
        Argument::Int(v) => Ok(v as f64),
        _ => Err(s.expected("a float")),
    }
}

fn read_bool(s: &mut Scanner<'_>) -> Result<bool> {
    match s.word() {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(s.expected("True or False")),
    }
}

// ---- abstract values

pub(super) fn write_tensor_meta(out: &mut impl Write, t: &TensorMeta) -> fmt::Result {
    out.write_str(t.dtype.name())?;
    write_sizes(out, &t.sizes)?;
    let known: Option<Vec<i64>> = t.sizes.iter().map(Symbolic::known).collect();
    let contiguous = known.map(|sizes| TensorMeta::contiguous(t.dtype, &sizes).strides);
    if contiguous.as_ref() != Some(&t.strides) {
        out.write_str(" strides=")?;
        write_sizes(out, &t.strides)?;
    }
    if t.storage_offset != Symbolic::Known(0) {
        out.write_str(" offset=")?;
        write_symbolic(out, &t.storage_offset, |out, v| write!(out, "{v}"))?;
    }
    if t.device != DeviceName::cpu() {
        write!(out, " device={}", t.device)?;
    }
    if t.layout != MemoryLayout::Strided {
        write!(out, " layout={}", t.layout)?;
    }
    if t.requires_grad {
        out.write_str(" requires_grad")?;
    }
    Ok(())
}

pub(super) fn read_tensor_meta(s: &mut Scanner<'_>, dtype: ScalarType) -> Result<TensorMeta> {
    let sizes = read_sizes(s)?;
    let known: Option<Vec<i64>> = sizes.iter().map(Symbolic::known).collect();
    let mut t = TensorMeta::contiguous(dtype, known.as_deref().unwrap_or(&[]));
    t.sizes = sizes;
    loop {
        if s.eat("strides=") {
            t.strides = read_sizes(s)?;
        } else if s.eat("offset=") {
            t.storage_offset = read_symbolic(s, |s| s.integer())?;
        } else if s.eat("device=") {
            let text = s.take(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_');
            t.device = DeviceName::parse(text).ok_or_else(|| s.expected("a device such as cpu"))?;
        } else if s.eat("layout=") {
            t.layout = MemoryLayout::from_name(s.word()).ok_or_else(|| s.expected("a layout such as strided"))?;
        } else if s.eat("requires_grad") {
            t.requires_grad = true;
        } else if t.strides.len() == t.sizes.len() {
            return Ok(t);
        } else {
            return Err(s.expected("strides=[…], one for each of the symbolic sizes"));
        }
    }
}

pub(super) fn write_val(out: &mut impl Write, graph: &Graph, val: &Val) -> fmt::Result {
    let many = |out: &mut _, items: &[Val]| {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                Write::write_str(out, ", ")?;
            }
            write_val(out, graph, item)?;
        }
        fmt::Result::Ok(())
    };
    match val {
        Val::None => out.write_str("none"),
        Val::Token => out.write_str("token"),
        Val::Tensor(t) => write_tensor_meta(out, t),
        Val::SymInt(v) => {
            out.write_str("int(")?;
            write_symbolic(out, v, |out, v| write!(out, "{v}"))?;
            out.write_str(")")
        }
        Val::SymFloat(v) => {
            out.write_str("float(")?;
            write_symbolic(out, v, |mut out, v| write_float(&mut out, v))?;
            out.write_str(")")
        }
        Val::SymBool(v) => {
            out.write_str("bool(")?;
            write_symbolic(out, v, |out, v| out.write_str(if v { "True" } else { "False" }))?;
            out.write_str(")")
        }
        Val::Constant(argument) => {
            out.write_str("const(")?;
            write_argument(out, graph, argument)?;
            out.write_str(")")
        }
        Val::CustomObj { class_fqn } => {
            out.write_str("object(")?;
            write_string(out, class_fqn)?;
            out.write_str(")")
        }
        Val::Tuple(items) => {
            out.write_str("(")?;
            many(out, items)?;
            out.write_str(")")
        }
        Val::List(items) => {
            out.write_str("[")?;
            many(out, items)?;
            out.write_str("]")
        }
    }
}

pub(super) fn read_val(s: &mut Scanner<'_>, depth: usize) -> Result<Val> {
    if depth > MAX_DEPTH {
        return Err(s.expected(&format!("at most {MAX_DEPTH} levels of values")));
    }
    let close = match s.peek() {
        Some('(') => ")",
        Some('[') => "]",
        _ => return read_simple_val(s),
    };
    s.at += 1;
    let mut items = Vec::new();
    while !s.eat(close) {
        if !items.is_empty() {
            s.expect(",")?;
        }
        items.push(read_val(s, depth + 1)?);
    }
    Ok(if close == ")" { Val::Tuple(items.into()) } else { Val::List(items.into()) })
}

fn read_simple_val(s: &mut Scanner<'_>) -> Result<Val> {
    let begin = s.at;
    let word = s.word();
    if let Some(dtype) = ScalarType::from_name(word)
        && s.peek() == Some('[')
    {
        return read_tensor_meta(s, dtype).map(Val::from);
    }
    match word {
        "none" => return Ok(Val::None),
        "token" => return Ok(Val::Token),
        _ => {}
    }
    s.expect("(")?;
    let val = match word {
        "int" => Val::SymInt(read_symbolic(s, |s| s.integer())?),
        "float" => Val::SymFloat(read_symbolic(s, read_float)?),
        "bool" => Val::SymBool(read_symbolic(s, read_bool)?),
        "const" => Val::Constant(read_argument(s, &|_| None, 0)?),
        "object" => Val::CustomObj { class_fqn: s.string()?.into() },
        _ => {
            s.at = begin;
            return Err(s.expected("a value such as float32[2, 3]"));
        }
    };
    s.expect(")")?;
    Ok(val)
}
