//! A small YAML tree with line numbers, built from parser events.
//!
//! Guarantees: repeated keys are errors; every node knows its line (from 1); plain scalars are resolved by
//! the rules of YAML 1.1, because the declaration files rely on `True`, `yes`, `on`; nesting and alias
//! expansion are bounded. Merge keys, tags other than `!!str` and several documents are refused.

use crate::error::{CodegenError, Kind, Result, Stage};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::{HashMap, HashSet};

/// A value and the line it begins on.
#[derive(Clone, Debug)]
pub struct Node {
    /// From 1.
    pub line: usize,
    /// What stands there.
    pub value: Value,
}

/// A YAML value. Numbers keep their text: no rule of the generator computes with them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// `~`, `null` or nothing.
    Null,
    /// `true`, `yes`, `on`, …
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// Any other plain scalar that YAML 1.1 does not read as text: floats, dates, long integers.
    Other(String),
    /// Text.
    Str(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in file order.
    Map(Vec<(Node, Node)>),
}

// Line numbers are not part of a value: two nodes are equal when their content is.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
impl Eq for Node {}
impl std::hash::Hash for Node {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl Node {
    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The items, if it is a sequence.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs, if it is a mapping.
    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The value under a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v)
    }
}

/// Reads one document. An empty text is [`Value::Null`].
pub fn parse(text: &str, stage: Stage) -> Result<Node> {
    let copies_left = text.len().saturating_mul(COPIES).saturating_add(1 << 16);
    let mut reader = Reader { events: Parser::new_from_str(text), stage, anchors: HashMap::new(), copies_left };
    let mut document = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(document.unwrap_or(Node { line: 1, value: Value::Null })),
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if document.is_some() => {
                return Err(reader.error(Kind::YamlSyntax, &span, "a second document"));
            }
            Event::DocumentStart(_) => {}
            event => document = Some(reader.node(event, &span, 0)?),
        }
    }
}

/// Deeper files are refused rather than risking the stack.
const MAX_DEPTH: usize = 64;
/// Up to this size a mapping is searched key by key.
const SMALL: usize = 32;
/// What anchors and aliases may copy in all, as a multiple of the text and a little more.
const COPIES: usize = 4;
/// What a copied value costs besides its text.
const COPIED_NODE: usize = 64;

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    stage: Stage,
    anchors: HashMap<usize, Node>,
    /// How many bytes anchors and aliases may still copy: a short file must not become a long one.
    copies_left: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span)> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(e)) => {
                let mut error = CodegenError::new(self.stage, Kind::YamlSyntax, format!("not YAML: {}", e.info()));
                error.line = Some(e.marker().line());
                Err(error)
            }
            None => Err(CodegenError::new(self.stage, Kind::YamlSyntax, "the document ends too early")),
        }
    }

    fn error(&self, kind: Kind, span: &Span, message: &str) -> CodegenError {
        let mut error = CodegenError::new(self.stage, kind, message);
        error.line = Some(span.start.line());
        error
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node> {
        if depth > MAX_DEPTH {
            return Err(self.error(Kind::YamlSyntax, span, "nested too deeply"));
        }
        let line = span.start.line();
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let forced = tag.as_ref().is_some_and(|t| t.is_yaml_core_schema() && t.suffix == "str");
                if tag.is_some() && !forced {
                    return Err(self.error(Kind::YamlSyntax, span, "only the tag !!str is supported"));
                }
                let plain = style == ScalarStyle::Plain && !forced;
                (if plain { resolve(&text) } else { Value::Str(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.mapping(depth)?, anchor),
            Event::Alias(id) => {
                let Some(cost) = self.anchors.get(&id).map(size) else {
                    return Err(self.error(Kind::YamlSyntax, span, "an alias to something that is not complete"));
                };
                self.pay(cost, span)?;
                return Ok(Node { line, ..self.anchors[&id].clone() });
            }
            _ => return Err(self.error(Kind::YamlSyntax, span, "a value is missing")),
        };
        let node = Node { line, value };
        if anchor != 0 {
            self.pay(size(&node), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Takes a copy of this cost off what is allowed.
    fn pay(&mut self, cost: usize, span: &Span) -> Result<()> {
        match self.copies_left.checked_sub(cost) {
            Some(left) => self.copies_left = left,
            None => return Err(self.error(Kind::YamlSyntax, span, "aliases expand to too much")),
        }
        Ok(())
    }

    fn sequence(&mut self, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value> {
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Value::Map(pairs));
            }
            let key = self.node(event, &span, depth + 1)?;
            // Nearly all mappings are small, and looking is then cheaper than hashing.
            let repeated = if pairs.len() < SMALL {
                pairs.iter().any(|(known, _)| *known == key)
            } else {
                if seen.is_empty() {
                    seen.extend(pairs.iter().map(|(known, _)| known.value.clone()));
                }
                !seen.insert(key.value.clone())
            };
            if repeated {
                let name = key.as_str().unwrap_or("?");
                return Err(self.error(Kind::YamlDuplicateKey, &span, &format!("the key `{name}` is repeated")));
            }
            if key.as_str() == Some("<<") {
                return Err(self.error(Kind::YamlSyntax, &span, "merge keys are not supported"));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            pairs.push((key, value));
        }
    }
}

/// What a copy of a tree costs.
fn size(node: &Node) -> usize {
    COPIED_NODE
        + match &node.value {
            Value::List(items) => items.iter().map(size).sum(),
            Value::Map(pairs) => pairs.iter().map(|(k, v)| size(k) + size(v)).sum(),
            Value::Str(text) | Value::Other(text) => text.len(),
            Value::Null | Value::Bool(_) | Value::Int(_) => 0,
        }
}

/// A plain scalar by the rules of YAML 1.1.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Value::Str(text.to_owned());
    }
    if let Some(number) = integer(text) {
        number.map_or_else(|| Value::Other(text.to_owned()), Value::Int)
    } else if is_float(text) || is_date(text) {
        Value::Other(text.to_owned())
    } else {
        Value::Str(text.to_owned())
    }
}

/// `None` when it is not an integer, `Some(None)` when it is one that does not fit.
fn integer(text: &str) -> Option<Option<i64>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    let of = |digits: &str, radix: u32| -> Option<Option<i64>> {
        let digits = digits.replace('_', "");
        let sign = if negative { "-" } else { "" };
        let valid = digits.bytes().all(|b| char::from(b).is_digit(radix));
        (valid && !digits.is_empty()).then(|| i64::from_str_radix(&format!("{sign}{digits}"), radix).ok())
    };
    if let Some(binary) = unsigned.strip_prefix("0b") {
        of(binary, 2)
    } else if let Some(hex) = unsigned.strip_prefix("0x") {
        of(hex, 16)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        of(&unsigned[1..], 8)
    } else if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        let mut parts = unsigned.split(':');
        let head = parts.next().unwrap_or_default();
        let rest: Vec<_> = parts.collect();
        if rest.is_empty() {
            return of(head, 10);
        }
        // Base 60, as in 1:30: an integer, but of no use here.
        let sixties = rest.iter().all(|p| matches!(p.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']));
        (sixties && !head.starts_with('0') && of(head, 10).is_some()).then_some(None)
    } else {
        None
    }
}

/// `1.5`, `1.0e+3`, `.5`, `.inf`, `.nan`. An exponent needs a dot before it and a sign after it.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e)),
        None => (unsigned, None),
    };
    let Some((whole, fraction)) = mantissa.split_once('.') else { return false };
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let exponent_fits = exponent.is_none_or(|e| {
        e.strip_prefix(['+', '-']).is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
    });
    let starts = whole.starts_with(|c: char| c.is_ascii_digit())
        || whole.is_empty() && fraction.starts_with(|c: char| c.is_ascii_digit());
    starts && digits(whole) && digits(fraction) && exponent_fits
}

/// `2024-01-31`, also with a time behind it.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = |pattern: &str| {
        bytes.len() == pattern.len()
            && pattern.bytes().zip(bytes).all(|(p, b)| if p == b'd' { b.is_ascii_digit() } else { p == *b })
    };
    shape("dddd-dd-dd")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anchors and aliases cannot make a long document of a short one, be it by many nodes, by nesting or by long texts.
    #[test]
    fn copies_are_bounded() {
        let doubling: String = (1..20).map(|i| format!("- &a{i} [*a{}, *a{}]\n", i - 1, i - 1)).collect();
        let nested = (0..60).map(|i| format!("&b{i} [")).collect::<String>() + &"x,".repeat(4000) + &"]".repeat(60);
        let text = format!("- &t {}\n", "x".repeat(10_000)) + &"- *t\n".repeat(1000);
        for (label, text) in [("doubling", format!("- &a0 x\n{doubling}")), ("nested", nested), ("long text", text)] {
            let error = parse(&text, Stage::Native).expect_err(label);
            assert!(error.to_string().contains("aliases expand to too much"), "{label}: {error}");
        }
        let honest = "- &common [a, b]\n- *common\n- {x: *common}\n";
        assert_eq!(parse(honest, Stage::Native).expect("small copies").as_list().map(<[Node]>::len), Some(3));
    }
}
