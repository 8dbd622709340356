//! Formulas as text: where an identifier is used, how it is replaced, what a formula saves.
//!
//! Two readings exist. The *compat* functions read formulas as the reference does, by patterns over plain
//! text, with its blind spots; dumps depend on them byte for byte. [`tokens`] reads them properly. The
//! patterns are matched by hand: each is a name between fixed pieces, and a compiled expression per name
//! would cost more than all the matching.

mod rules;
pub mod tokens;

pub use rules::saved_variables;

/// Whether a character belongs to a word.
fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Byte positions at which `name` occurs, overlapping ones included.
fn occurrences<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + text.get(from..)?.find(name).filter(|_| !name.is_empty())?;
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
        Some(at)
    })
}

/// Matches of `(^|\W)name($|\W)`, each as (start, name start, name end, end). Neighbours belong to the
/// match, so a separator between two uses serves only the first.
fn ident_matches<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (usize, usize, usize, usize)> + 'a {
    let mut free_from = 0;
    occurrences(text, name).filter_map(move |at| {
        let start = match text[..at].chars().next_back() {
            None => 0,
            Some(c) if is_word(c) => return None,
            Some(c) => at - c.len_utf8(),
        };
        let name_end = at + name.len();
        let end = match text[name_end..].chars().next() {
            None => name_end,
            Some(c) if is_word(c) => return None,
            Some(c) => name_end + c.len_utf8(),
        };
        if start < free_from {
            return None;
        }
        free_from = end;
        Some((start, at, name_end, end))
    })
}

/// Whether a formula uses an identifier.
pub fn uses_ident(formula: &str, name: &str) -> bool {
    ident_matches(formula, name).next().is_some()
}

/// How often a formula uses an identifier, by the matching rules of [`replace_ident`].
pub fn count_ident(formula: &str, name: &str) -> usize {
    ident_matches(formula, name).count()
}

/// Replaces an identifier. Of two uses one character apart only the first is replaced.
pub fn replace_ident(formula: &str, name: &str, with: &str) -> String {
    let mut out = String::with_capacity(formula.len() + with.len());
    let mut copied = 0;
    for (_, start, end, _) in ident_matches(formula, name) {
        out.push_str(&formula[copied..start]);
        out.push_str(with);
        copied = end;
    }
    out.push_str(&formula[copied..]);
    out
}

/// Replaces whole words, neighbors not being part of the match.
fn replace_word(formula: &str, name: &str, with: &str) -> String {
    let mut out = String::with_capacity(formula.len() + with.len());
    let mut copied = 0;
    for at in occurrences(formula, name) {
        let end = at + name.len();
        let boundary = |c: Option<char>| !c.is_some_and(is_word);
        if at < copied || !boundary(formula[..at].chars().next_back()) || !boundary(formula[end..].chars().next()) {
            continue;
        }
        out.push_str(&formula[copied..at]);
        out.push_str(with);
        copied = end;
    }
    out.push_str(&formula[copied..]);
    out
}

/// The `i` of every `grads[i]`. An index too large for any operator is [`usize::MAX`].
pub fn used_gradient_indices(formula: &str) -> Vec<usize> {
    let mut indices = Vec::new();
    let mut free_from = 0;
    for (at, found) in formula.match_indices("grads[") {
        // The character before belongs to the match, as for identifiers.
        let bounded = match formula[..at].chars().next_back() {
            None => true,
            Some(c) => !is_word(c) && at - c.len_utf8() >= free_from,
        };
        let inside = &formula[at + found.len()..];
        let digits = inside.find(|c: char| !c.is_ascii_digit()).unwrap_or(inside.len());
        if bounded && digits > 0 && inside[digits..].starts_with(']') {
            indices.push(inside[..digits].parse().unwrap_or(usize::MAX));
            free_from = at + found.len() + digits + 1;
        }
    }
    indices
}
