//! Schemas of ops as data: the type of each argument, what is optional, what is mutated.
//!
//! Those of this build are static data that the generator wrote; those of ops registered at run time are read from text
//! by [`crate::library`]. Nothing here reads text, and it knows nothing of kernels.

use crate::DType;
use crate::dispatch::MemoryFormat;
use crate::record::Op;

/// The type of an argument or result, without its optionality.
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

/// The default of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // each holds what its name says
pub enum Constant {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(&'static str),
    Ints(&'static [i64]),
    Floats(&'static [f64]),
    Bools(&'static [bool]),
    DType(DType),
    MemoryFormat(MemoryFormat),
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct SchemaArg {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub ty: Type,
    /// Whether it is optional.
    pub optional: bool,
    /// Its default; `None` if it is required. A single number for a list is repeated as often as needed.
    pub default: Option<Constant>,
    /// Whether it is keyword-only.
    pub kwarg_only: bool,
    /// Whether the op mutates it.
    pub written: bool,
    /// Whether a result may share its memory.
    pub aliased: bool,
}

/// A required argument, positional or keyword, that is only read.
pub(crate) const fn arg(name: &'static str, ty: Type) -> SchemaArg {
    SchemaArg { name, ty, optional: false, default: None, kwarg_only: false, written: false, aliased: false }
}

impl SchemaArg {
    pub(crate) const fn optional(self) -> SchemaArg {
        SchemaArg { optional: true, ..self }
    }

    pub(crate) const fn keyword(self) -> SchemaArg {
        SchemaArg { kwarg_only: true, ..self }
    }

    pub(crate) const fn written(self) -> SchemaArg {
        SchemaArg { written: true, aliased: true, ..self }
    }

    pub(crate) const fn aliased(self) -> SchemaArg {
        SchemaArg { aliased: true, ..self }
    }

    pub(crate) const fn or(self, default: Constant) -> SchemaArg {
        SchemaArg { default: Some(default), ..self }
    }

    /// Whether it only receives results.
    pub fn is_out(&self) -> bool {
        self.written && self.kwarg_only
    }
}

/// What an op takes and returns.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// As ATen prints it.
    pub text: &'static str,
    /// Arguments, in order.
    pub args: &'static [SchemaArg],
    /// What each result is.
    pub returns: &'static [Type],
    /// Whether a result is an argument it wrote.
    pub returns_written: bool,
}

impl Schema {
    /// The schema of an op.
    pub fn of_op(op: Op) -> &'static Schema {
        op.schema()
    }

    /// Whether the op mutates one of its arguments.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    /// The one reader of schemas at run time reads what the generator reads, to the same data.
    #[test]
    fn records_say_what_the_text_says() {
        for op in Op::all() {
            let schema = op.schema();
            let (name, read) = library::parse(schema.text).expect("a schema of the table");
            assert_eq!(name, op.name());
            assert_eq!(format!("{read:?}"), format!("{schema:?}"), "{}", op.name());
            let known = |a: &SchemaArg| a.ty != Type::Other || a.name == "generator";
            assert!(schema.args.iter().all(known), "{}", schema.text);
        }
    }

    #[test]
    fn tells_writes_from_views() {
        assert!(Op::ADD__TENSOR.schema().mutates() && !Op::ADD__TENSOR.schema().is_view());
        assert!(Op::SPLIT_TENSOR.schema().is_view() && Op::SPLIT_TENSOR.schema().returns == [Type::Tensors]);
        assert_eq!(Op::MAX_DIM.schema().returns, [Type::Tensor, Type::Tensor]);
        assert!(Op::_ASSERT_TENSOR_METADATA.schema().returns.is_empty());
        assert_eq!(Op::SUM_DIM_INTLIST.schema().args[2].default, Some(Constant::Bool(false)));
    }
}
