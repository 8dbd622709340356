//! What the two formula languages spell differently.
//!
//! PyTorch's files hold C++ formulas and are read as PyTorch reads them. Our own files hold Rust formulas:
//! they are parsed when loaded and read by tokens. The model built from either is the same.

use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::formula::{self, tokens::Lexed};
use crate::model::SavedAttribute;

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
        if self == Dialect::Cpp {
            return Ok(());
        }
        check_size(formula)?;
        syn::parse_str::<syn::Expr>(formula).map(|_| ()).map_err(|error| {
            let start = error.span().start();
            let place = format!("line {} column {}", start.line, start.column + 1);
            Refusal::new(Kind::FormulaSyntax, format!("`{formula}` is not a Rust expression: {error} ({place})"))
        })
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
            Dialect::Rust => rust_saved_variables(formula, names, var_names),
        }
    }

    /// A call of the operator itself, for formulas that are linear in their input.
    pub fn call(self, name: &str, symint: bool, as_function: bool, args: &[String]) -> String {
        let symint = if symint { "_symint" } else { "" };
        match (self, args) {
            (Dialect::Rust, _) => format!("ops::{name}({})", args.join(", ")),
            (Dialect::Cpp, [first, rest @ ..]) if !as_function => {
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

/// More tokens than any formula needs; the parser is recursive, so its input must be bounded.
const MAX_TOKENS: usize = 1000;
/// Deeper brackets than any formula needs.
const MAX_NESTING: usize = 48;

/// Refuses formulas that would cost the parser more stack than a thread may have.
fn check_size(formula: &str) -> Result<(), Refusal> {
    let lexed = Lexed::new(formula);
    let mut nesting = 0usize;
    let mut deepest = 0;
    // Prefix operators nest without brackets.
    let mut prefixes = 0usize;
    for at in 0..lexed.tokens.len() {
        let prefix = matches!(lexed.word(Some(at)), "!" | "-" | "*" | "&" | "|");
        prefixes = if prefix { prefixes + 1 } else { 0 };
        match lexed.word(Some(at)) {
            "(" | "[" | "{" => nesting += 1,
            ")" | "]" | "}" => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(nesting + prefixes);
    }
    if lexed.tokens.len() > MAX_TOKENS || deepest > MAX_NESTING {
        let message = format!("a formula of {} tokens nested {deepest} deep is too large", lexed.tokens.len());
        return Err(Refusal::new(Kind::FormulaSyntax, message));
    }
    Ok(())
}

/// Methods without arguments whose value is saved instead of the tensor: method, suffix, type.
#[rustfmt::skip]
const RUST_METHODS: [(&str, &str, CBase); 9] = [
    ("shape", "_shape", CBase::IntArrayRef),
    ("numel", "_numel", CBase::Long),
    ("options", "_options", CBase::TensorOptions),
    ("dtype", "_dtype", CBase::ScalarType),
    ("ndim", "_ndim", CBase::Long),
    ("strides", "_strides", CBase::IntArrayRef),
    ("layout", "_layout", CBase::Layout),
    ("device", "_device", CBase::Device),
    ("is_conj", "_conjugate", CBase::Bool),
];

/// The tokens of `x.as_ref().map(|t| t.shape())` after `x`.
const OPTIONAL_SHAPE: [&str; 16] =
    [".", "as_ref", "(", ")", ".", "map", "(", "|", "t", "|", "t", ".", "shape", "(", ")", ")"];

/// One place where something less than the whole value is saved.
struct Capture {
    tokens: std::ops::Range<usize>,
    text: String,
    saved: SavedAttribute,
}

fn rust_saved_variables(
    formula: &str,
    names: &[(&str, CType)],
    var_names: &[String],
) -> Result<(String, Vec<SavedAttribute>), Refusal> {
    let mut formula = formula.to_owned();
    let mut saved = Vec::new();
    for (name, ty) in names {
        if !formula.contains(name) {
            continue;
        }
        let lexed = Lexed::new(&formula);
        let uses: Vec<usize> = (0..lexed.tokens.len()).filter(|at| lexed.is_use(*at, name)).collect();
        let captures: Vec<_> = uses.iter().filter_map(|at| rust_capture(&lexed, *at, name)).collect();
        if captures.iter().any(|c| c.saved.name.ends_with("_strides")) && var_names != [*name] {
            let message = format!("strides of `{name}` may only be used in its own formula");
            return Err(Refusal::new(Kind::FormulaStridesScope, message));
        }
        let whole = captures.len() < uses.len();
        let range = |c: &Capture| lexed.tokens[c.tokens.start].range.start..lexed.tokens[c.tokens.end - 1].range.end;
        let changes: Vec<_> = captures.iter().map(|c| (range(c), c.text.clone())).collect();
        let rewritten = lexed.splice(&changes);
        saved.extend(captures.into_iter().map(|c| c.saved));
        if whole {
            saved.push(SavedAttribute { name: (*name).to_owned(), ty: ty.clone(), expr: (*name).to_owned() });
        }
        formula = rewritten;
    }
    Ok((formula, saved))
}

/// The capture around a use of a name, if the formula needs only a part of the value there.
fn rust_capture(lexed: &Lexed<'_>, at: usize, name: &str) -> Option<Capture> {
    let word = |offset: usize| lexed.word(Some(at + offset));
    let capture = |tokens: std::ops::Range<usize>, suffix: &str, ty: CType| {
        let attribute = format!("{name}{suffix}");
        let expr = &lexed.text[lexed.tokens[tokens.start].range.start..lexed.tokens[tokens.end - 1].range.end];
        let saved = SavedAttribute { name: attribute.clone(), ty, expr: expr.to_owned() };
        Some(Capture { tokens, text: attribute, saved })
    };
    if OPTIONAL_SHAPE.iter().enumerate().all(|(i, token)| word(i + 1) == *token) {
        return capture(at..at + 17, "_shape_opt", CType::from(CBase::IntArrayRef).optional());
    }
    if word(1) == "." && word(3) == "(" {
        if word(4) == ")"
            && let Some((_, suffix, ty)) = RUST_METHODS.iter().find(|(method, ..)| *method == word(2))
        {
            return capture(at..at + 5, suffix, (*ty).into());
        }
        if word(2) == "size" && word(5) == ")" {
            return capture(at..at + 6, &format!("_size_{}", word(4)), CBase::SymInt.into());
        }
        if word(2) == "size" && word(4) == "-" && word(6) == ")" {
            return capture(at..at + 7, &format!("_size_minus_{}", word(5)), CBase::SymInt.into());
        }
    }
    let borrowed = usize::from(lexed.word(at.checked_sub(1)) == "&");
    let open = at.checked_sub(1 + borrowed)?;
    let call = open.checked_sub(1)?;
    if lexed.word(Some(open)) == "(" && lexed.is_use(call, "zeros_like") && word(1) == ")" {
        let attribute = format!("{name}_info");
        let saved = SavedAttribute { name: attribute.clone(), ty: CBase::TypeAndSize.into(), expr: name.to_owned() };
        return Some(Capture { tokens: call..at + 2, text: format!("{attribute}.zeros()"), saved });
    }
    None
}
