//! Parses the schemas of registered ops, which are user input: it accepts them or says what is wrong.
//!
//! The only reader of schemas at run time; those of this build's ops are data. What is read lives as long as the process.

use crate::DType;
use crate::dispatch::MemoryFormat;
use crate::schema::{Constant, Schema, SchemaArg, Type};

/// Reads `namespace::name.overload(Type arg, *, Type named=default) -> Type`: the name without `.default`, and the
/// rest; the error says what is wrong.
pub(crate) fn parse(text: &'static str) -> Result<(&'static str, Schema), String> {
    let (Some(open), Some(arrow)) = (text.find('('), text.rfind(") -> ")) else {
        return Err("expected `namespace::name(arguments) -> results`".into());
    };
    let name = text[..open].trim();
    let (mut args, mut kwarg_only) = (Vec::<SchemaArg>::new(), false);
    for part in split_top(&text[open + 1..arrow]) {
        if part == "*" {
            kwarg_only = true;
            continue;
        }
        let (declared, default) = part.split_once('=').map_or((part, None), |(d, v)| (d, Some(v.trim())));
        let Some((ty, arg)) = declared.trim().rsplit_once(' ') else {
            return Err(format!("argument '{part}' should be a type and a name, such as `Tensor self`"));
        };
        if !is_word(arg) {
            return Err(format!("'{arg}' is not a valid name for an argument"));
        }
        if args.iter().any(|a| a.name == arg) {
            return Err(format!("two arguments are called '{arg}'"));
        }
        let (kind, optional) = read_type(ty);
        let bad = |text: &str| format!("argument '{arg}': '{text}' is not a valid default for its type");
        args.push(SchemaArg {
            name: arg,
            ty: kind,
            optional,
            default: default.map(|text| constant(text).ok_or_else(|| bad(text))).transpose()?,
            kwarg_only,
            written: ty.contains('!'),
            aliased: ty.contains('('),
        });
    }
    let results = text[arrow + 5..].trim();
    let several = results.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    let results = several.map_or_else(|| vec![results], split_top);
    // A name may follow the type of a result.
    let returned = |r: &&str| read_type(r.split_whitespace().next().unwrap_or_default()).0;
    let schema = Schema {
        text,
        args: args.leak(),
        returns: results.iter().map(returned).collect::<Vec<_>>().leak(),
        returns_written: results.iter().any(|r| r.contains('!')),
    };
    Ok((name.strip_suffix(".default").unwrap_or(name), schema))
}

/// A default; `None` if it does not parse.
fn constant(text: &'static str) -> Option<Constant> {
    fn items<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<&'static [T]> {
        let items = text.split(',').map(str::trim).filter(|t| !t.is_empty());
        Some(items.map(read).collect::<Option<Vec<T>>>()?.leak())
    }
    let truth = |t: &str| match t {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    let quoted = |mark: char| text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark));
    if let Some(inside) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return items(inside, |t| t.parse().ok())
            .map(Constant::Ints)
            .or_else(|| items(inside, |t| t.parse().ok()).map(Constant::Floats))
            .or_else(|| items(inside, truth).map(Constant::Bools));
    }
    Some(match text {
        "None" => Constant::None,
        "long" => Constant::DType(DType::I64),
        "float" => Constant::DType(DType::F32),
        "contiguous_format" => Constant::MemoryFormat(MemoryFormat::Contiguous),
        "preserve_format" => Constant::MemoryFormat(MemoryFormat::Preserve),
        _ => match (truth(text), quoted('"').or_else(|| quoted('\''))) {
            (Some(b), _) => Constant::Bool(b),
            (None, Some(inside)) => Constant::Str(inside),
            (None, None) => match text.parse() {
                Ok(i) => Constant::Int(i),
                Err(_) => Constant::Float(text.parse().ok()?),
            },
        },
    })
}

/// Whether this could be a name in a program.
pub(super) fn is_word(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Splits at commas that are in no bracket.
fn split_top(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[begin..i].trim());
                begin = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

fn read_type(text: &str) -> (Type, bool) {
    // Drop alias annotations: `Tensor(a!)[]` is `Tensor[]`.
    let (mut plain, mut depth) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let (base, optional) = plain.strip_suffix('?').map_or((plain.as_str(), false), |b| (b, true));
    let (element, list) = base.split_once('[').map_or((base, false), |(e, _)| (e, true));
    let ty = match (element, list) {
        ("Tensor", false) => Type::Tensor,
        ("Tensor", true) => Type::Tensors,
        ("Tensor?", true) => Type::OptTensors,
        ("Scalar", false) => Type::Scalar,
        ("Scalar", true) => Type::Scalars,
        ("int" | "SymInt", false) => Type::Int,
        ("int" | "SymInt", true) => Type::Ints,
        ("float", false) => Type::Float,
        ("float", true) => Type::Floats,
        ("bool", false) => Type::Bool,
        ("bool", true) => Type::Bools,
        ("str", false) => Type::Str,
        ("ScalarType", false) => Type::DType,
        ("Device", false) => Type::Device,
        ("Layout", false) => Type::Layout,
        ("MemoryFormat", false) => Type::MemoryFormat,
        _ => Type::Other,
    };
    (ty, optional)
}
