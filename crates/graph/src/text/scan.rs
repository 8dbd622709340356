//! A cursor over one line of text.

use crate::error::{Error, Result};

/// Reads one line; every error names it.
pub(super) struct Scanner<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) line: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str, line: usize) -> Scanner<'a> {
        Scanner { text, at: 0, line }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// An error that says what was expected here.
    pub(super) fn expected(&self, what: &str) -> Error {
        let found: String = self.rest().chars().take(24).collect();
        let found = if found.is_empty() { "the end of the line".to_string() } else { format!("{found:?}") };
        Error::Text { line: self.line, message: format!("column {}: expected {what}, found {found}", self.at + 1) }
    }

    pub(super) fn blank(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        self.blank();
        self.rest().chars().next()
    }

    /// Takes this text if it comes next.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        self.blank();
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<()> {
        if self.eat(text) { Ok(()) } else { Err(self.expected(&format!("'{text}'"))) }
    }

    pub(super) fn take(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        self.blank();
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Letters, digits, underscores.
    pub(super) fn word(&mut self) -> &'a str {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// Words joined by dots.
    pub(super) fn path(&mut self) -> &'a str {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    }

    /// A name of a node, which may hold anything but blanks and punctuation of the grammar.
    pub(super) fn name(&mut self) -> Result<&'a str> {
        let name = self.word();
        if name.is_empty() { Err(self.expected("a name")) } else { Ok(name) }
    }

    pub(super) fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the line")),
        }
    }

    /// A string in JSON quotes.
    pub(super) fn string(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut units: Vec<u16> = Vec::new();
        let mut chars = self.rest().char_indices();
        let unclosed = "a closing quote";
        loop {
            let Some((at, c)) = chars.next() else { return Err(self.expected(unclosed)) };
            match c {
                '"' => {
                    self.at += at + 1;
                    return String::from_utf16(&units).map_err(|_| self.expected("escapes that make characters"));
                }
                '\\' => {
                    let Some((_, e)) = chars.next() else { return Err(self.expected(unclosed)) };
                    let plain = match e {
                        '"' | '\\' | '/' => e,
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'u' => {
                            let hex: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                            let unit = u16::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == 4);
                            units.push(unit.ok_or_else(|| self.expected("four hexadecimal digits behind \\u"))?);
                            continue;
                        }
                        _ => return Err(self.expected("a known escape")),
                    };
                    units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
                }
                c => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            }
        }
    }

    /// The characters of a number, sign included; empty if there is none.
    pub(super) fn number(&mut self) -> &'a str {
        self.blank();
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let sign = matches!(bytes[end], b'-' | b'+') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
            if !(sign || bytes[end].is_ascii_alphanumeric() || bytes[end] == b'.' || bytes[end] == b'_') {
                break;
            }
            end += 1;
        }
        self.at += end;
        &rest[..end]
    }

    /// An integer.
    pub(super) fn integer(&mut self) -> Result<i64> {
        let begin = self.at;
        let text = self.number();
        text.parse().map_err(|_| {
            self.at = begin;
            self.expected("an integer")
        })
    }
}
