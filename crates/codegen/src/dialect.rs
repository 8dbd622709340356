//! The differences between the two formula languages.
//!
//! PyTorch's files hold C++ formulas and are read as PyTorch reads them. Our own files hold Rust formulas:
//! they are parsed when loaded and read by tokens. The model built from either is the same.

#[cfg(any(test, not(feature = "emit")))]
mod operands;
mod rust;

use crate::api::{self, Binding, cpp};
use crate::ctype::CType;
use crate::error::Refusal;
use crate::formula::{self, tokens::Lexed};
use crate::model::SavedAttribute;
use crate::native::NativeFunction;

/// Words that are not names in Rust.
const KEYWORDS: &[&str] = &[
    "_", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro", "match",
    "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "Self", "self", "static", "struct", "super",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Whether a text is a name in Rust.
pub(crate) fn is_ident(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    begins && chars.all(|c| c == '_' || c.is_alphanumeric()) && !KEYWORDS.contains(&text)
}

/// The language of formulas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// PyTorch's, in the compat reading.
    Cpp,
    /// Ours, in the strict reading.
    Rust,
}

impl Dialect {
    /// Refuses formulas that are not of the language; says where. C++ is taken as it comes.
    pub fn check(self, formula: &str) -> Result<(), Refusal> {
        match self {
            Dialect::Cpp => Ok(()),
            Dialect::Rust => rust::check(formula),
        }
    }

    /// The arguments formulas see.
    pub fn arguments(self, f: &NativeFunction) -> Result<Vec<Binding>, Refusal> {
        match self {
            Dialect::Cpp => cpp::formula_arguments(f),
            Dialect::Rust => api::rust::formula_arguments(f),
        }
    }

    /// The gradients formulas may use by name, of the returns that can carry one.
    pub fn named_gradients(self, f: &NativeFunction, flags: Option<&[bool]>) -> Vec<String> {
        let returns = f.func.returns.iter().zip(cpp::return_names(f)).enumerate();
        let differentiable =
            returns.filter(|(i, (r, _))| flags.is_none_or(|on| on.get(*i) == Some(&true)) && r.ty.is_tensor_like());
        let named = differentiable.filter_map(|(_, (r, shown))| match self {
            Dialect::Cpp => r.name.clone(),
            Dialect::Rust => Some(shown),
        });
        named.map(|name| format!("grad_{name}")).collect()
    }

    /// Whether a formula uses an identifier.
    pub fn uses(self, formula: &str, name: &str) -> bool {
        match self {
            Dialect::Cpp => formula::uses_ident(formula, name),
            Dialect::Rust => formula.contains(name) && Lexed::new(formula).uses(name),
        }
    }

    /// Replaces an identifier.
    pub fn replace(self, formula: &str, name: &str, with: &str) -> String {
        match self {
            Dialect::Cpp => formula::replace_ident(formula, name, with),
            Dialect::Rust => Lexed::new(formula).replace(name, with),
        }
    }

    /// Rewrites a backward formula over some names: the new formula and what it saves.
    pub fn saved_variables(
        self,
        formula: &str,
        names: &[(&str, CType)],
        var_names: &[String],
    ) -> Result<(String, Vec<SavedAttribute>), Refusal> {
        match self {
            Dialect::Cpp => formula::saved_variables(formula, names, var_names),
            Dialect::Rust => rust::saved_variables(formula, names, var_names),
        }
    }

    /// A call of the operator itself, for formulas that are linear in their input; `name` is that of the info.
    pub fn call(self, f: &NativeFunction, name: &str, args: &[String]) -> String {
        let symint = if f.func.has_symint() { "_symint" } else { "" };
        match (self, args) {
            (Dialect::Rust, _) => {
                // The tangent of an in-place operator is a new tensor all the same.
                let name = f.rust.as_ref().map_or(name, |rust| rust.name.trim_end_matches('_'));
                format!("{name}({})", args.join(", "))
            }
            (Dialect::Cpp, [first, rest @ ..]) if !f.variant_function => {
                format!("{first}.{name}{symint}({})", rest.join(", "))
            }
            (Dialect::Cpp, _) => format!("at::{name}{symint}({})", args.join(", ")),
        }
    }

    /// The in-place form of a tangent formula: write into the tangent if there is one.
    pub fn into_tangent(self, in_place: &str, fresh: &str) -> String {
        match self {
            Dialect::Cpp => format!("self_t_raw.defined() ? self_t_raw.{in_place} : {fresh}"),
            Dialect::Rust => {
                format!("if self_t_raw.defined() {{ self_t_raw.{in_place} }} else {{ {fresh} }}")
            }
        }
    }
}
