//! Saved attributes by the compat reading: which parts of a formula are captured when the forward runs.
//!
//! A table of rules is applied to one name after another; what no rule takes is saved whole. A rule's dot
//! stands for any character and a name has no boundary before it, as in the reference.

use super::{is_word, occurrences, replace_word, uses_ident};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::model::SavedAttribute;

/// The shape of the text a rule takes.
enum Pattern {
    /// `NAME`, any character, this text.
    Method(&'static str),
    /// `NAME`, this text.
    Suffix(&'static str),
    /// This text, `NAME`, `)`.
    Call(&'static str),
    /// `NAME`, any character, `sym_size(W)`.
    SymSize,
}

/// What is evaluated when the value is saved.
enum Saved {
    /// The text the rule took.
    Matched,
    /// `NAME` itself.
    Name,
    /// The optional sizes of `NAME`.
    OptionalSizes,
    /// The block sizes of `NAME`.
    BlockSize,
    /// The strides of `NAME`, or an error when it has none.
    Strides,
}

/// One row of the table.
struct Rule {
    pattern: Pattern,
    suffix: &'static str,
    ty: fn() -> CType,
    saved: Saved,
}

const fn rule(pattern: Pattern, suffix: &'static str, ty: fn() -> CType, saved: Saved) -> Rule {
    Rule { pattern, suffix, ty, saved }
}

fn optional_sizes() -> CType {
    CType::from(CBase::SymIntArrayRef).optional()
}

use Pattern::{Call, Method, Suffix, SymSize};
use Saved::{BlockSize, Matched, Name, OptionalSizes, Strides};

/// The rules in the order in which they are applied.
#[rustfmt::skip]
const RULES: [Rule; 17] = [
    rule(Method("sym_sizes()"), "_sym_sizes", || CBase::SymIntArrayRef.into(), Matched),
    rule(Suffix("->sym_sizes()"), "_sym_sizes_opt", optional_sizes, OptionalSizes),
    rule(Method("sym_blocksize()"), "_self_sym_blocksize_opt", optional_sizes, BlockSize),
    rule(Method("options()"), "_options", || CBase::TensorOptions.into(), Matched),
    rule(Call("zeros_like("), "_info", || CBase::TypeAndSize.into(), Name),
    rule(SymSize, "_sym_argsize_", || CBase::SymInt.into(), Matched),
    rule(Method("numel()"), "_numel", || CBase::Long.into(), Matched),
    rule(Method("sym_numel()"), "_sym_numel", || CBase::SymInt.into(), Matched),
    rule(Call("to_args_sizes("), "_args_sizes", || CType::from(CBase::Long).vector().vector(), Matched),
    rule(Call("to_args_sizes_symint("), "_args_sizes_symint", || CType::from(CBase::SymInt).vector().vector(), Matched),
    rule(Call("to_args_scalartypes("), "_args_scalartypes", || CType::from(CBase::ScalarType).vector(), Matched),
    rule(Call("TensorGeometry("), "_geometry", || CBase::TensorGeometry.into(), Matched),
    rule(Method("scalar_type()"), "_scalar_type", || CBase::ScalarType.into(), Matched),
    rule(Method("dim()"), "_dim", || CBase::Long.into(), Matched),
    rule(Method("sym_strides()"), "_sym_strides", || CBase::SymIntArrayRef.into(), Strides),
    rule(Method("layout()"), "_layout", || CBase::Layout.into(), Matched),
    rule(Method("is_conj()"), "_conjugate", || CBase::Bool.into(), Matched),
];

impl Pattern {
    /// Text without which the pattern cannot match.
    fn needle(&self) -> &'static str {
        match self {
            Method(text) | Suffix(text) | Call(text) => text,
            SymSize => "sym_size(",
        }
    }

    /// Where the pattern matches with its name at `at`: start, end, and the argument of `sym_size`.
    fn matches<'a>(&self, text: &'a str, name: &str, at: usize) -> Option<(usize, usize, &'a str)> {
        let end = at + name.len();
        let any = || text[end..].chars().next().filter(|c| *c != '\n').map(|c| end + c.len_utf8());
        match self {
            Method(method) => {
                let from = any()?;
                text[from..].starts_with(method).then(|| (at, from + method.len(), ""))
            }
            Suffix(suffix) => text[end..].starts_with(suffix).then(|| (at, end + suffix.len(), "")),
            Call(call) => {
                let fits = text[..at].ends_with(call) && text[end..].starts_with(')');
                fits.then(|| (at - call.len(), end + 1, ""))
            }
            SymSize => {
                let inside = text[any()?..].strip_prefix("sym_size(")?;
                let unsigned = inside.strip_prefix('-').unwrap_or(inside);
                let word = unsigned.find(|c| !is_word(c)).filter(|n| *n > 0 && unsigned[*n..].starts_with(')'))?;
                let argument = &inside[..inside.len() - unsigned.len() + word];
                let start = inside.as_ptr() as usize - text.as_ptr() as usize;
                Some((at, start + argument.len() + 1, argument))
            }
        }
    }
}

impl Rule {
    /// Replaces every match of the rule for one name and notes what is saved.
    fn apply(
        &self,
        formula: &str,
        name: &str,
        var_names: &[String],
        saved: &mut Vec<SavedAttribute>,
    ) -> Result<Option<String>, Refusal> {
        let mut out = String::new();
        let mut copied = 0;
        for at in occurrences(formula, name) {
            let Some((start, end, argument)) = self.pattern.matches(formula, name, at) else { continue };
            if start < copied {
                continue;
            }
            let attribute = match argument {
                "" => format!("{name}{}", self.suffix),
                argument => format!("{name}{}{}", self.suffix, argument.replace('-', "minus_")),
            };
            let expr = match self.saved {
                Matched => formula[start..end].to_owned(),
                Name => name.to_owned(),
                OptionalSizes => format!(
                    "{name}.has_value() ? std::optional<c10::SymIntArrayRef>({name}->sym_sizes()) : std::nullopt"
                ),
                BlockSize => format!("at::sparse_csr::getSymIntBlockSize({name})"),
                Strides if var_names == [name] => format!("strides_or_error({name}, \"{name}\")"),
                Strides => {
                    let message = format!("strides of `{name}` may only be used in its own formula");
                    return Err(Refusal::new(Kind::FormulaStridesScope, message));
                }
            };
            out.push_str(&formula[copied..start]);
            out.push_str(&attribute);
            if matches!(self.saved, Name) {
                out.push_str(".zeros()");
            }
            saved.push(SavedAttribute { name: attribute, ty: (self.ty)(), of: name.to_owned(), expr });
            copied = end;
        }
        if copied == 0 {
            return Ok(None);
        }
        out.push_str(&formula[copied..]);
        Ok(Some(out))
    }
}

/// Rewrites a formula over some names: the new formula and what it saves, repeats included.
pub fn saved_variables(
    formula: &str,
    names: &[(&str, CType)],
    var_names: &[String],
) -> Result<(String, Vec<SavedAttribute>), Refusal> {
    refuse_concrete(formula)?;
    let mut formula = formula.to_owned();
    let mut saved = Vec::new();
    for (name, ty) in names {
        if name.is_empty() || !formula.contains(name) {
            continue;
        }
        for rule in &RULES {
            if formula.contains(rule.pattern.needle())
                && let Some(rewritten) = rule.apply(&formula, name, var_names, &mut saved)?
            {
                formula = rewritten;
            }
        }
        if *ty == CType::from(CBase::StringView).optional() {
            let value = format!("{name}.has_value() ? std::optional<std::string_view>({name}.value()) : std::nullopt");
            formula = replace_word(&formula, name, &value);
        }
        if uses_ident(&formula, name) {
            saved.push(SavedAttribute::whole(name, ty.clone()));
        }
    }
    Ok((formula, saved))
}

/// Sizes and strides must be symbolic.
fn refuse_concrete(formula: &str) -> Result<(), Refusal> {
    let refuse = |kind, what: &str| Err(Refusal::new(kind, format!("`{what}` is not supported: use the sym_ form")));
    let called = |text: &str| [".", "->"].iter().any(|by| formula.contains(&format!("{by}{text}")));
    if formula.contains("sizes()") && called("sizes()") {
        return refuse(Kind::FormulaSizes, ".sizes()");
    }
    let is_number = |rest: &str| {
        let unsigned = rest.strip_prefix('-').unwrap_or(rest);
        unsigned.find(|c: char| !c.is_ascii_digit()).is_some_and(|n| n > 0 && unsigned[n..].starts_with(')'))
    };
    let by_access = |at: usize| formula[..at].ends_with('.') || formula[..at].ends_with("->");
    if formula.match_indices("size(").any(|(at, found)| by_access(at) && is_number(&formula[at + found.len()..])) {
        return refuse(Kind::FormulaSizeInt, ".size(N)");
    }
    if formula.contains("strides()") && called("strides()") {
        return refuse(Kind::FormulaStrides, ".strides()");
    }
    Ok(())
}
