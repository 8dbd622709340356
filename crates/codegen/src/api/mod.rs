//! Calling conventions: how one schema looks as a C++ function for each of its callers.
//!
//! The differentiability model needs only [`cpp`]; the others complete the picture for tools that read
//! the same declarations. All of them are pure functions from schemas to [`Binding`]s and names.

pub mod cpp;
pub mod dispatcher;
pub mod functionalization;
pub mod meta;
pub mod native;
pub mod rust;
pub mod structured;
pub mod translate;
pub mod ufunc;
pub mod unboxing;

use crate::ctype::CType;
use crate::native::NativeFunction;
use std::fmt;

/// What a memory format is called when tensor options may already hold one.
pub const POSSIBLY_REDUNDANT_MEMORY_FORMAT: &str = "possibly_redundant_memory_format";

/// A parameter of a C++ function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The name of the parameter.
    pub name: String,
    /// What it stands for. Differs from the name only for a memory format beside tensor options.
    pub binds: String,
    /// Its type.
    pub ty: CType,
    /// Its default as C++ text.
    pub default: Option<String>,
}

impl Binding {
    /// A parameter without a default that stands for what it is called.
    pub fn new(name: &str, ty: impl Into<CType>) -> Self {
        Binding { name: name.to_owned(), binds: name.to_owned(), ty: ty.into(), default: None }
    }

    /// The same without a default.
    pub fn no_default(mut self) -> Self {
        self.default = None;
        self
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ty, self.name)?;
        match &self.default {
            Some(default) => write!(f, "={default}"),
            None => Ok(()),
        }
    }
}

/// Parameters as one would write them between parentheses.
pub fn declaration(bindings: &[Binding]) -> String {
    bindings.iter().map(Binding::to_string).collect::<Vec<_>>().join(", ")
}

/// What a declaration says about the spelling of its types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TypeStyle {
    /// Mutable tensors are const references.
    pub const_ref_for_mutable: bool,
    /// Tensor lists are list references.
    pub ilistref: bool,
}

impl TypeStyle {
    /// The style of one operator.
    pub fn of(f: &NativeFunction) -> Self {
        TypeStyle { const_ref_for_mutable: f.use_const_ref_for_mutable_tensors, ilistref: f.part_of_structured_group() }
    }
}
