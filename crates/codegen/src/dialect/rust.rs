//! Rust formulas: parsed when loaded, then read by tokens.
//!
//! Knows which parts of a tensor a formula may ask for, so that nodes keep sizes instead of tensors. What becomes of
//! operators and calls is decided at emission.

use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::formula::tokens::Lexed;
use crate::model::SavedAttribute;
use std::ops::Range;

/// Refuses text that is no Rust expression, and points at the place.
pub(super) fn check(formula: &str) -> Result<(), Refusal> {
    check_size(formula)?;
    let Err((message, line, column)) = parse(formula) else { return Ok(()) };
    let shown = formula.lines().nth(line.saturating_sub(1)).unwrap_or(formula);
    let caret = format!("{}^", " ".repeat(column));
    let place = format!("line {line} column {}", column + 1);
    let message = format!("the formula is not a valid Rust expression: {message} ({place})\n    {shown}\n    {caret}");
    Err(Refusal::new(Kind::FormulaSyntax, message))
}

/// What is wrong with a formula, and the line (from 1) and column (from 0) of the place.
#[cfg(feature = "emit")]
fn parse(formula: &str) -> Result<(), (String, usize, usize)> {
    syn::parse_str::<syn::Expr>(formula).map(drop).map_err(|error| {
        let start = error.span().start();
        (error.to_string(), start.line, start.column)
    })
}

/// As above, without a parser of Rust: brackets match, and operands and operators take turns.
#[cfg(not(feature = "emit"))]
fn parse(formula: &str) -> Result<(), (String, usize, usize)> {
    super::operands::check(formula).map_err(|(message, at)| {
        let before = &formula[..at];
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        (message, 1 + before.matches('\n').count(), column)
    })
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

/// Methods without arguments whose value is saved instead of the tensor: method, suffix, type, text behind the name
/// that reads it.
#[rustfmt::skip]
const METHODS: [(&str, &str, CBase, &str); 8] = [
    ("sym_sizes", "_sym_sizes", CBase::SymIntArrayRef, ".sym_sizes()"),
    ("sym_strides", "_sym_strides", CBase::SymIntArrayRef, ".strides().iter().map(|&n| n.into()).collect()"),
    ("numel", "_numel", CBase::Long, ".numel()"),
    ("dtype", "_scalar_type", CBase::ScalarType, ".dtype()"),
    ("device", "_device", CBase::Device, ".device()"),
    ("ndim", "_dim", CBase::Long, ".ndim()"),
    ("spec", "_spec", CBase::TypeAndSize, ".spec().clone()"),
    ("layout", "_layout", CBase::TensorGeometry, ".layout().clone()"),
];

/// One place where something less than the whole value is saved.
struct Capture {
    tokens: Range<usize>,
    text: String,
    saved: SavedAttribute,
}

/// Rewrites a formula over some names: the new formula and what it saves, repeats included.
pub(super) fn saved_variables(
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
        let captures: Vec<_> = uses.iter().filter_map(|at| capture(&lexed, *at, name, ty)).collect();
        if captures.iter().any(|c| c.saved.name.ends_with("_sym_strides")) && var_names != [*name] {
            let message = format!("strides of `{name}` may only be used in its own formula");
            return Err(Refusal::new(Kind::FormulaStridesScope, message));
        }
        let whole = captures.len() < uses.len();
        let range = |c: &Capture| lexed.tokens[c.tokens.start].range.start..lexed.tokens[c.tokens.end - 1].range.end;
        let changes: Vec<_> = captures.iter().map(|c| (range(c), c.text.clone())).collect();
        let rewritten = lexed.splice(&changes);
        saved.extend(captures.into_iter().map(|c| c.saved));
        if whole {
            saved.push(SavedAttribute::whole(name, ty.clone()));
        }
        formula = rewritten;
    }
    Ok((formula, saved))
}

/// The capture around a use of a name, if the formula needs only a part of the value there.
fn capture(lexed: &Lexed<'_>, at: usize, name: &str, ty: &CType) -> Option<Capture> {
    let part = |tokens: Range<usize>, suffix: &str, ty: CType, expr: String| {
        let saved = SavedAttribute { name: format!("{name}{suffix}"), ty, of: name.to_owned(), expr };
        Some(Capture { tokens, text: saved.name.clone(), saved })
    };
    match ty {
        CType::Base(CBase::Tensor) => {
            if let Some((end, suffix, ty, read)) = method(lexed, at, name) {
                return part(at..end, &suffix, ty.into(), read);
            }
            let tokens = call(lexed, at, "zeros_like")?;
            let zeros = part(tokens, "_info", CBase::TypeAndSize.into(), format!("{name}.spec().clone()"))?;
            Some(Capture { text: format!("zeros_of({})", zeros.saved.name), ..zeros })
        }
        CType::Optional(of) if **of == CType::Base(CBase::Tensor) => {
            let sizes = CType::from(CBase::SymIntArrayRef).optional();
            part(optional_sizes(lexed, at)?, "_sym_sizes_opt", sizes, format!("{name}.map(|t| t.sym_sizes())"))
        }
        CType::Base(CBase::TensorList) => {
            if let Some(tokens) = call(lexed, at, "to_args_sizes") {
                let sizes = CType::from(CBase::SymInt).vector().vector();
                return part(tokens, "_args_sizes", sizes, format!("{name}.iter().map(|t| t.sym_sizes()).collect()"));
            }
            let tokens = call(lexed, at, "to_args_dtypes")?;
            let dtypes = CType::from(CBase::ScalarType).vector();
            part(tokens, "_args_scalartypes", dtypes, format!("{name}.iter().map(|t| t.dtype()).collect()"))
        }
        _ => None,
    }
}

/// A method of the tensor at `at` whose value is saved: its end, the suffix, the type, text that reads it.
fn method(lexed: &Lexed<'_>, at: usize, name: &str) -> Option<(usize, String, CBase, String)> {
    let word = |offset: usize| lexed.word(Some(at + offset));
    if word(1) != "." || word(3) != "(" {
        return None;
    }
    if word(2) == "sym_size" {
        let (end, dim, suffix) = match (word(4), word(5), word(6)) {
            ("-", dim, ")") => (at + 7, format!("-{dim}"), format!("minus_{dim}")),
            (dim, ")", _) => (at + 6, dim.to_owned(), dim.to_owned()),
            _ => return None,
        };
        if !suffix.chars().all(|c| c == '_' || c.is_alphanumeric()) {
            return None;
        }
        let read = format!("formulas::sym_size({name}, {dim})?");
        return Some((end, format!("_sym_argsize_{suffix}"), CBase::SymInt, read));
    }
    let (_, suffix, ty, read) = METHODS.iter().find(|(method, ..)| *method == word(2) && word(4) == ")")?;
    Some((at + 5, (*suffix).to_owned(), *ty, format!("{name}{read}")))
}

/// The tokens of `x.map(|t| t.sym_sizes())`, where `x` is at `at`; also with `as_ref()` before `map`.
fn optional_sizes(lexed: &Lexed<'_>, at: usize) -> Option<Range<usize>> {
    let follows = |from: usize, tokens: &[&str]| {
        let fits = |(i, token): (usize, &&str)| *token == "t" || lexed.word(Some(from + i)) == *token;
        tokens.iter().enumerate().all(fits).then_some(from + tokens.len())
    };
    let from = follows(at + 1, &[".", "as_ref", "(", ")"]).unwrap_or(at + 1);
    let end = follows(from, &[".", "map", "(", "|", "t", "|", "t", ".", "sym_sizes", "(", ")", ")"])?;
    (lexed.word(Some(from + 4)) == lexed.word(Some(from + 6))).then_some(at..end)
}

/// The tokens of `function(x)` or `function(&x)`, where `x` is at `at`.
fn call(lexed: &Lexed<'_>, at: usize, function: &str) -> Option<Range<usize>> {
    let borrowed = usize::from(lexed.word(at.checked_sub(1)) == "&");
    let open = at.checked_sub(1 + borrowed)?;
    let name = open.checked_sub(1)?;
    let fits = lexed.word(Some(open)) == "(" && lexed.is_use(name, function) && lexed.word(Some(at + 1)) == ")";
    fits.then_some(name..at + 2)
}
