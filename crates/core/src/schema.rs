//! Schemas of ops as data: what each argument is, what may be left out, what is written.
//!
//! One reader for the generated table, whose strings the generator has checked, and for the schemas of ops that are
//! registered at run time ([`crate::library`]), which anybody may have written: it accepts or says what is wrong.
//! It knows nothing of kernels.

use crate::dispatch::Op;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The kind of an argument, without "or none".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is named after its schema type
pub enum Type {
    Tensor,
    Tensors,
    OptTensors,
    Scalar,
    Scalars,
    Int,
    Ints,
    Float,
    Floats,
    Bool,
    Bools,
    Str,
    DType,
    Device,
    Layout,
    MemoryFormat,
    Other,
}

/// One argument.
#[derive(Clone, Debug)]
pub struct SchemaArg {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub ty: Type,
    /// Whether it may be none.
    pub optional: bool,
    /// Its default, as written, if it has one.
    pub default: Option<&'static str>,
    /// Whether it can only be given by name.
    pub kwarg_only: bool,
    /// Whether the op writes it.
    pub written: bool,
    /// Whether a result may share its memory.
    pub aliased: bool,
}

/// What an op takes and returns.
#[derive(Clone, Debug)]
pub struct Schema {
    /// `aten::add.Tensor`, without `.default`.
    pub name: &'static str,
    /// Arguments, in order.
    pub args: Vec<SchemaArg>,
    /// For each result, whether it is a list.
    pub returns: Vec<bool>,
    /// Whether a result is an argument it wrote.
    pub returns_written: bool,
}

impl Schema {
    /// The schema of an op.
    pub fn of_op(op: Op) -> &'static Schema {
        static TABLE: OnceLock<HashMap<Op, Schema>> = OnceLock::new();
        let read = |op: Op| Schema::parse(op.info().schema).expect("the generator wrote the schema");
        let table = TABLE.get_or_init(|| Op::all().map(|op| (op, read(op))).collect());
        table.get(&op).unwrap_or_else(|| crate::library::schema(op))
    }

    /// Reads `namespace::name.overload(Type arg, *, Type named=default) -> Type`; the error says what is wrong.
    pub fn parse(text: &'static str) -> Result<Schema, String> {
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
            let (declared, default) = part.split_once('=').map_or((part, None), |(d, v)| (d, Some(v)));
            let Some((ty, arg)) = declared.trim().rsplit_once(' ') else {
                return Err(format!("argument '{part}' should be a type and a name, such as `Tensor self`"));
            };
            if !is_word(arg) {
                return Err(format!("'{arg}' is no name for an argument"));
            }
            if args.iter().any(|a| a.name == arg) {
                return Err(format!("two arguments are called '{arg}'"));
            }
            let (kind, optional) = read_type(ty);
            args.push(SchemaArg {
                name: arg,
                ty: kind,
                optional,
                default: default.map(str::trim),
                kwarg_only,
                written: ty.contains('!'),
                aliased: ty.contains('('),
            });
        }
        let results = text[arrow + 5..].trim();
        let several = results.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
        let results = several.map_or_else(|| vec![results], split_top);
        Ok(Schema {
            name: name.strip_suffix(".default").unwrap_or(name),
            args,
            returns: results.iter().map(|r| r.contains("[]")).collect(),
            returns_written: results.iter().any(|r| r.contains('!')),
        })
    }

    /// Whether the op writes one of its arguments.
    pub fn mutates(&self) -> bool {
        self.args.iter().any(|a| a.written)
    }

    /// Whether a result shares memory with an argument that is only read.
    pub fn is_view(&self) -> bool {
        self.args.iter().any(|a| a.aliased && !a.written)
    }

    /// Position of the argument with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name == name)
    }
}

/// Whether this could be a name in a program.
pub(crate) fn is_word(text: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_schema_of_the_table() {
        for op in Op::all() {
            let schema = Schema::of_op(op);
            let known = |a: &SchemaArg| a.ty != Type::Other || a.name == "generator";
            assert!(schema.args.iter().all(known), "{}", op.info().schema);
            assert_eq!(schema.name, op.name());
        }
    }

    #[test]
    fn tells_writes_from_views() {
        let schema = |name| Schema::of_op(Op::from_name(name).unwrap());
        assert!(schema("aten::add_.Tensor").mutates() && !schema("aten::add_.Tensor").is_view());
        assert!(schema("aten::split.Tensor").is_view() && schema("aten::split.Tensor").returns == [true]);
        assert_eq!(schema("aten::max.dim").returns, [false, false]);
        assert!(schema("aten::_assert_tensor_metadata").returns.is_empty());
        assert_eq!(schema("aten::sum.dim_IntList").args[2].default, Some("False"));
    }
}
