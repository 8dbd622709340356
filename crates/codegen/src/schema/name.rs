//! Operator names and what their spelling says: in-place, dunder, functional twin, overload.

use super::parse::{Result, check_roundtrip, fail};
use crate::error::{Kind, Refusal};
use std::fmt;
use std::str::FromStr;

/// The base of an operator name, with what its spelling says about the variant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BaseOperatorName {
    /// The bare word: `add` for `add`, `add_` and `__iadd__`.
    pub base: String,
    /// A final underscore, or the `i` of an in-place dunder.
    pub inplace: bool,
    /// Written `__word__`.
    pub dunder_method: bool,
    /// Ended in `_functional`: the functional twin of a mutable operator.
    pub functional_overload: bool,
}

impl fmt::Display for BaseOperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = &self.base;
        match (self.dunder_method, self.inplace, self.functional_overload) {
            (true, true, _) => write!(f, "__i{base}__"),
            (true, false, _) => write!(f, "__{base}__"),
            (false, true, _) => write!(f, "{base}_"),
            (false, false, true) => write!(f, "{base}_functional"),
            (false, false, false) => f.write_str(base),
        }
    }
}

/// Base name and overload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OperatorName {
    /// The part before the first dot.
    pub name: BaseOperatorName,
    /// The part after the first dot; empty without one.
    pub overload_name: String,
}

impl OperatorName {
    /// The name with an underscore instead of the dot, as used for identifiers.
    pub fn unambiguous_name(&self) -> String {
        if self.overload_name.is_empty() {
            self.name.to_string()
        } else {
            format!("{}_{}", self.name, self.overload_name)
        }
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overload_name.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}.{}", self.name, self.overload_name)
        }
    }
}

/// Operators that have an in-place dunder.
const AUGMENTED_ASSIGNMENT_NAMES: [&str; 11] =
    ["add", "sub", "mul", "div", "mod", "pow", "lshift", "rshift", "and", "xor", "or"];

impl FromStr for BaseOperatorName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return fail(Kind::NameEmpty, "an operator name cannot be empty");
        }
        if text.ends_with("_out") {
            return fail(Kind::NameOutSuffix, format!("`{text}`: the ending `_out` is reserved, use an overload"));
        }
        let dunder = text.strip_prefix("__").and_then(|t| t.strip_suffix("__")).filter(|t| !t.is_empty());
        let dunder = dunder.filter(|t| !t.contains('_'));
        let (mut base, inplace) = match dunder {
            Some(word) => match word.strip_prefix('i') {
                Some(name) if AUGMENTED_ASSIGNMENT_NAMES.contains(&name) => (name, true),
                Some(_) => return fail(Kind::NameDunderI, format!("`{text}` is not a known in-place dunder")),
                None => (word, false),
            },
            None => match text.strip_suffix('_') {
                Some(base) => (base, true),
                None => (text, false),
            },
        };
        let mut functional_overload = false;
        if let Some(shorter) = base.strip_suffix("_functional") {
            if inplace || dunder.is_some() {
                return fail(Kind::NameFunctionalSuffix, format!("`{text}` is both `_functional` and in-place"));
            }
            functional_overload = true;
            base = shorter;
        }
        let name =
            BaseOperatorName { base: base.to_owned(), inplace, dunder_method: dunder.is_some(), functional_overload };
        check_roundtrip(name, text)
    }
}

impl FromStr for OperatorName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let (name, overload) = text.split_once('.').unwrap_or((text, ""));
        check_roundtrip(OperatorName { name: name.parse()?, overload_name: overload.to_owned() }, text)
    }
}
