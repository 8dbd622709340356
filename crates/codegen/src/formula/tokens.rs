//! The strict reading: identifiers are tokens, and the name of a method or a path is not a use of a variable.
//!
//! One lexer serves C++ and Rust formulas. Text is never printed from tokens: changes are spliced into the
//! original, so everything that is not changed stays as it was written.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// A word that does not begin with a digit.
    Ident,
    /// A word that does.
    Number,
    /// A string or character literal.
    Literal,
    /// One punctuation character; `->` and `::` are one.
    Punct,
}

/// A token and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its bytes in the formula.
    pub range: Range<usize>,
}

/// Splits a formula into tokens; white space is left out.
pub fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let word = || rest.find(|c: char| !super::is_word(c)).unwrap_or(rest.len());
        let (kind, len) = match c {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' => (TokenKind::Literal, literal_len(rest, '"')),
            // A lone quote is a lifetime, not a character.
            '\'' if is_char_literal(rest) => (TokenKind::Literal, literal_len(rest, '\'')),
            '0'..='9' => (TokenKind::Number, word()),
            c if super::is_word(c) => (TokenKind::Ident, word()),
            _ if rest.starts_with("->") || rest.starts_with("::") => (TokenKind::Punct, 2),
            c => (TokenKind::Punct, c.len_utf8()),
        };
        tokens.push(Token { kind, range: at..at + len });
        at += len;
    }
    tokens
}

fn literal_len(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

/// A formula with its tokens.
#[derive(Debug)]
pub struct Lexed<'a> {
    /// The formula.
    pub text: &'a str,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

impl<'a> Lexed<'a> {
    /// Lexes a formula.
    pub fn new(text: &'a str) -> Self {
        Lexed { text, tokens: lex(text) }
    }

    /// The text of a token, or nothing beyond either end.
    pub fn word(&self, at: Option<usize>) -> &'a str {
        at.and_then(|at| self.tokens.get(at)).map_or("", |t| &self.text[t.range.clone()])
    }

    /// Whether the token at `at` is a use of the variable `name`.
    pub fn is_use(&self, at: usize, name: &str) -> bool {
        let token = &self.tokens[at];
        if token.kind != TokenKind::Ident || &self.text[token.range.clone()] != name {
            return false;
        }
        let before = |n: usize| self.word(at.checked_sub(n));
        let member = before(1) == "." && before(2) != "." || matches!(before(1), "->" | "::");
        !member && self.word(Some(at + 1)) != "::"
    }

    /// Whether the variable is used at all.
    pub fn uses(&self, name: &str) -> bool {
        (0..self.tokens.len()).any(|at| self.is_use(at, name))
    }

    /// The formula with some stretches replaced; they must be in order and apart.
    pub fn splice(&self, changes: &[(Range<usize>, String)]) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut copied = 0;
        for (range, with) in changes {
            out.push_str(&self.text[copied..range.start]);
            out.push_str(with);
            copied = range.end;
        }
        out.push_str(&self.text[copied..]);
        out
    }

    /// The formula with every use of a variable replaced.
    pub fn replace(&self, name: &str, with: &str) -> String {
        let uses = (0..self.tokens.len()).filter(|at| self.is_use(*at, name));
        let changes: Vec<_> = uses.map(|at| (self.tokens[at].range.clone(), with.to_owned())).collect();
        self.splice(&changes)
    }
}
