//! Hazards of one formula: what the two readings see differently, and text that gets lost.

use super::entry::{Context, Formula};
use super::{Hazard, Report};
use crate::ctype::CBase;
use crate::dialect::Dialect;
use crate::formula::{count_ident, tokens::Lexed, tokens::TokenKind, uses_ident};

/// Methods whose value is saved instead of the tensor.
#[rustfmt::skip]
const CAPTURED_METHODS: &[&str] = &[
    "sym_sizes()", "sym_blocksize()", "options()", "sym_size(", "numel()", "sym_numel()", "scalar_type()", "dim()",
    "sym_strides()", "layout()", "is_conj()",
];

pub(super) fn check(formula: &Formula<'_>, all: &[Formula<'_>], context: &Context<'_>, report: &mut Report) {
    let mut add = |hazard, message| report.add(hazard, formula.line, context.entry, message);
    match context.dialect {
        Dialect::Rust => rust(formula.text, context, &mut add),
        Dialect::Cpp => cpp(formula, all, context, &mut add),
    }
}

/// Tokens are read properly, but not scopes.
fn rust(text: &str, context: &Context<'_>, add: &mut impl FnMut(Hazard, String)) {
    if let Err(error) = context.dialect.check(text) {
        return add(Hazard::FormulaSyntax, error.message);
    }
    let lexed = Lexed::new(text);
    for name in &context.arguments {
        let is_other = |at: &usize| {
            let (before, after) = (lexed.word(at.checked_sub(1)), lexed.word(Some(at + 1)));
            let parameter = before == "|" && matches!(after, "|" | "," | ":");
            lexed.is_use(*at, name) && (after == "(" || before == "let" || parameter)
        };
        if (0..lexed.tokens.len()).any(|at| is_other(&at)) {
            let message = format!("a function or local is called like the argument `{name}`, so it is saved");
            add(Hazard::LocalIsArgument, message);
        }
    }
}

fn cpp(formula: &Formula<'_>, all: &[Formula<'_>], context: &Context<'_>, add: &mut impl FnMut(Hazard, String)) {
    let text = formula.text;
    let lexed = Lexed::new(text);
    for name in &context.arguments {
        if !text.contains(name) {
            continue;
        }
        if !formula.is_forward {
            capture(text, name, add);
        }
        readings(&lexed, name, add);
    }
    let replaced: &[&str] =
        if formula.is_forward { &["self_p", "self_t", "result"] } else { &["grad", "grads", "result"] };
    for name in replaced {
        let tokens = (0..lexed.tokens.len()).filter(|at| lexed.is_use(*at, name)).count();
        if count_ident(text, name) < tokens {
            let message = format!("two uses of `{name}` one character apart: only the first would be replaced");
            add(Hazard::SharedSeparator, message);
        }
    }
    if formula.is_forward {
        forward(text, context, add);
    } else {
        wrap_opt_if(formula, all, context, add);
    }
    if context.is_foreach_reference {
        plain_text(formula, context, add);
    }
}

/// Rules take a name without looking at what stands before it, and any character for the dot.
fn capture(text: &str, name: &str, add: &mut impl FnMut(Hazard, String)) {
    for (at, _) in text.match_indices(name) {
        let Some(dot) = text[at + name.len()..].chars().next() else { continue };
        let method = &text[at + name.len() + dot.len_utf8()..];
        let Some(captured) = CAPTURED_METHODS.iter().find(|m| method.starts_with(**m)) else { continue };
        let in_word = text[..at].chars().next_back().is_some_and(|c| c == '_' || c.is_alphanumeric());
        if in_word {
            add(Hazard::NameIsSuffix, format!("`{captured}` of a longer word is taken for `{name}`"));
        } else if dot != '.' {
            add(Hazard::DotIsAnything, format!("`{name}{dot}{captured}` is taken for `{name}.{captured}`"));
        }
    }
}

/// The compat reading sees identifiers where the strict one sees members, paths and strings.
fn readings(lexed: &Lexed<'_>, name: &str, add: &mut impl FnMut(Hazard, String)) {
    let (compat, strict) = (uses_ident(lexed.text, name), lexed.uses(name));
    if compat == strict {
        return;
    }
    let is_member = (1..lexed.tokens.len()).any(|at| {
        let member = matches!(lexed.word(Some(at - 1)), "." | "->" | "::");
        member && lexed.tokens[at].kind == TokenKind::Ident && lexed.word(Some(at)) == name
    });
    if is_member {
        add(Hazard::MethodIsArgument, format!("a method or path is called like the argument `{name}`, so it is saved"));
    } else {
        add(Hazard::ReadingsDiffer, format!("`{name}` is used in one reading and not in the other"));
    }
}

fn forward(text: &str, context: &Context<'_>, add: &mut impl FnMut(Hazard, String)) {
    let schema = &context.declared.schema;
    let modifies = text.strip_prefix("self_t.").and_then(|call| call.split('(').next());
    let modifies = modifies.is_some_and(|method| method.ends_with('_'));
    if modifies && schema.name.name.inplace {
        let functional = context.declared.autogen.iter().any(|name| !name.contains("out"));
        if functional {
            let message = "the generated functional operator would modify the tangent".to_owned();
            add(Hazard::TangentModified, message);
        }
        if context.is_foreach_reference {
            let message = "the in-place foreach form would call a method with two underscores".to_owned();
            add(Hazard::ForeachInplaceMethod, message);
        }
    }
    let uses = |name| context.dialect.uses(text, name);
    if context.has_inplace && !schema.name.name.inplace && uses("self_p") && uses("result") {
        add(Hazard::SelfTwice, "the in-place form needs `self` before and after: it is listed twice".to_owned());
    }
}

fn wrap_opt_if(
    formula: &Formula<'_>,
    all: &[Formula<'_>],
    context: &Context<'_>,
    add: &mut impl FnMut(Hazard, String),
) {
    let text = formula.text;
    let options = context.declared.schema.arguments.tensor_options.is_some();
    if options && context.dialect.uses(text, "memory_format") {
        add(Hazard::MemoryFormatNotSaved, "`memory_format` beside tensor options is never saved".to_owned());
    }
    let differentiated = |name: &&str| all.iter().any(|f| !f.is_forward && f.names.contains(name));
    let positions: Vec<&str> = context.arguments.iter().copied().filter(|name| differentiated(name)).collect();
    for (at, found) in text.match_indices("wrap_opt_if(") {
        let inside = &text[at + found.len()..];
        let Some((_, condition)) = inside.split_once(',') else { continue };
        let condition = condition.split_once(')').map_or(condition, |(condition, _)| condition);
        if !condition.starts_with(' ') || condition.contains('(') {
            let message =
                "write one space after the comma of wrap_opt_if and no parentheses in its condition".to_owned();
            add(Hazard::WrapOptIfCut, message);
        }
        for mask in condition.split("grad_input_mask[").skip(1) {
            let index: Option<usize> = mask.split(']').next().and_then(|n| n.parse().ok());
            if let Some(index) = index
                && formula.names.get(index) != positions.get(index)
            {
                let message = format!("grad_input_mask[{index}] is not the same argument in the key and in the node");
                add(Hazard::MaskIndex, message);
            }
        }
    }
}

/// Formulas of foreach operators are made by replacing text, wherever it stands.
fn plain_text(formula: &Formula<'_>, context: &Context<'_>, add: &mut impl FnMut(Hazard, String)) {
    let schema = &context.declared.schema;
    let mut replaced = vec!["result".to_owned()];
    let mut text = formula.text.to_owned();
    if formula.is_forward {
        let plain = schema.arguments.flat_all().filter(|a| !a.ty.is_tensor_like());
        replaced.extend(plain.map(|a| a.name.clone()));
    } else {
        replaced.push("grad".to_owned());
        let names: Vec<_> = context.arguments.iter().map(|name| (*name, CBase::Tensor.into())).collect();
        let var_names: Vec<_> = formula.names.iter().map(|name| (*name).to_owned()).collect();
        if let Ok((rewritten, saved)) = context.dialect.saved_variables(&text, &names, &var_names) {
            text = rewritten;
            replaced.extend(saved.into_iter().map(|saved| saved.name));
        }
    }
    let lexed = Lexed::new(&text);
    for name in &replaced {
        let longer = |at: &usize| {
            let word = lexed.word(Some(*at));
            lexed.tokens[*at].kind == TokenKind::Ident && !replaced.iter().any(|r| r == word) && word.contains(name)
        };
        if let Some(at) = (0..lexed.tokens.len()).find(longer) {
            let message = format!("`{name}` inside `{}` would be replaced too", lexed.word(Some(at)));
            add(Hazard::ForeachPlainText, message);
        }
    }
}
