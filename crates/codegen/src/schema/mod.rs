//! Function schemas: `name.overload(arguments) -> returns`.
//!
//! [`FunctionSchema`] is read with `str::parse` and printed with `Display`; a schema that parses prints
//! back as the very same text and obeys the invariants of the schema language, so nothing later has to
//! check them. The operator's namespace, its kernels and tags are not known here.

mod arguments;
mod invariants;
mod name;
mod parse;
mod signature;
mod types;

pub use arguments::{Annotation, Argument, Arguments, Return, TensorOptions};
pub use name::{BaseOperatorName, OperatorName};
pub use signature::SignatureOptions;
pub use types::{BaseTy, Type};

use std::fmt;

/// What an operator does with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum SchemaKind {
    /// Returns new values.
    Functional,
    /// Writes to `self`.
    Inplace,
    /// Writes to keyword-only out arguments.
    Out,
    /// Writes to positional arguments and also returns something new.
    Mutable,
    /// Writes to out arguments some of which are scratch memory.
    Scratch,
}

impl SchemaKind {
    /// The kind as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Functional => "functional",
            Self::Inplace => "inplace",
            Self::Out => "out",
            Self::Mutable => "mutable",
            Self::Scratch => "scratch",
        }
    }
}

/// One operator: name, arguments, returns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionSchema {
    /// Name and overload.
    pub name: OperatorName,
    /// Arguments by group.
    pub arguments: Arguments,
    /// Returns in order.
    pub returns: Vec<Return>,
}

impl FunctionSchema {
    /// What the operator does with its arguments.
    pub fn kind(&self) -> SchemaKind {
        if self.name.name.inplace {
            SchemaKind::Inplace
        } else if self.arguments.out.iter().any(is_scratch) {
            SchemaKind::Scratch
        } else if self.is_out_fn() {
            SchemaKind::Out
        } else if self.arguments.post_self_positional.iter().any(Argument::is_write) {
            SchemaKind::Mutable
        } else {
            SchemaKind::Functional
        }
    }

    /// Whether it has out arguments.
    pub fn is_out_fn(&self) -> bool {
        !self.arguments.out.is_empty()
    }

    /// Whether its overload calls it a functional twin.
    pub fn is_functional_fn(&self) -> bool {
        self.name.overload_name.contains("functional")
    }

    /// Whether some argument other than out arguments holds symbolic integers.
    pub fn has_symint(&self) -> bool {
        self.arguments.has_symint()
    }

    /// The base name without in-place or dunder marks.
    pub fn base(&self) -> &str {
        &self.name.name.base
    }
}

/// Whether an out argument is scratch memory, which is never returned.
fn is_scratch(argument: &Argument) -> bool {
    argument.name.starts_with("_scratch_")
}

impl fmt::Display for FunctionSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}) -> ", self.name, self.arguments)?;
        if let [only] = self.returns.as_slice() {
            return write!(f, "{only}");
        }
        f.write_str("(")?;
        for (i, ret) in self.returns.iter().enumerate() {
            write!(f, "{}{ret}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}
