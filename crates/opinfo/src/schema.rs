//! Just enough of ATen schemas to call an op: argument names, types, and which arguments are written.

use firebrand_core::dispatch::Op;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock};

/// One argument of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type without alias notes: `Tensor`, `int[2]?`.
    pub kind: String,
    /// Whether the op writes to it.
    pub written: bool,
    /// Whether it has a default.
    pub has_default: bool,
}

/// A parsed schema.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Name without namespace and overload.
    pub base: String,
    /// Arguments in order.
    pub parameters: Vec<Parameter>,
    /// Whether the first result is an argument the op wrote to.
    pub returns_written: bool,
}

/// Cuts at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

fn parameter(text: &str) -> Parameter {
    let (declared, default) = text.split_once('=').map_or((text, None), |(d, v)| (d, Some(v)));
    let (kind, name) = declared.trim().rsplit_once(' ').expect("an argument has a type and a name");
    let mut plain = String::new();
    let mut depth = 0;
    for c in kind.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    Parameter { name: name.to_string(), kind: plain, written: kind.contains('!'), has_default: default.is_some() }
}

impl Schema {
    /// Reads a schema as ATen prints it.
    pub fn parse(text: &str) -> Schema {
        let open = text.find('(').expect("a schema has arguments");
        let mut depth = 0;
        let close = text
            .char_indices()
            .find(|(_, c)| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                *c == ')' && depth == 0
            })
            .map(|(i, _)| i)
            .expect("a schema closes its arguments");
        let name = text[..open].strip_prefix("aten::").unwrap_or(&text[..open]);
        let base = name.split('.').next().unwrap_or(name).to_string();
        let parameters = split(&text[open + 1..close]).into_iter().filter(|p| *p != "*").map(parameter).collect();
        let returns = &text[close + 1..];
        let first = returns.split(',').next().unwrap_or(returns);
        Schema { base, parameters, returns_written: first.contains('!') }
    }

    /// The schema of an op; ops registered at run time have one too, and are registered for good.
    pub fn of(op: Op) -> &'static Schema {
        static ALL: Mutex<BTreeMap<&'static str, &'static Schema>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(|e| e.into_inner());
        all.entry(op.name()).or_insert_with(|| Box::leak(Box::new(Schema::parse(op.info().schema))))
    }

    fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|p| (p.name.as_str(), p.kind.as_str()))
    }
}

/// The forms of a functional op that write to an argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forms {
    /// `op_`.
    pub inplace: Option<Op>,
    /// `op(..., out=)`.
    pub out: Option<Op>,
}

/// The writing forms of a functional op: those whose other arguments are the same.
pub fn forms(op: Op) -> Forms {
    static ALL: OnceLock<HashMap<&'static str, Forms>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut by_base: HashMap<&str, Vec<Op>> = HashMap::new();
        for op in Op::all() {
            by_base.entry(&Schema::of(op).base).or_default().push(op);
        }
        Op::all().map(|op| (op.name(), find_forms(op, &by_base))).collect()
    });
    all[op.name()]
}

fn find_forms(op: Op, by_base: &HashMap<&str, Vec<Op>>) -> Forms {
    let own = Schema::of(op);
    if own.parameters.iter().any(|p| p.written) {
        return Forms::default();
    }
    let inplace_name = format!("{}_", own.base);
    let inplace = by_base.get(inplace_name.as_str()).into_iter().flatten().copied().find(|&c| {
        let other = Schema::of(c);
        other.returns_written && other.arguments().eq(own.arguments())
    });
    let out = by_base[own.base.as_str()].iter().copied().find(|&c| {
        let other = Schema::of(c);
        let plain = other.parameters.iter().filter(|p| !p.written).map(|p| (p.name.as_str(), p.kind.as_str()));
        c != op && other.returns_written && plain.eq(own.arguments())
    });
    Forms { inplace, out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_aliases_lists_and_defaults() {
        let s = Schema::parse(
            "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int[2]? dim=[0, 1], *, str mode=\"mean\") -> Tensor(a)[]",
        );
        assert_eq!(s.base, "split");
        assert!(!s.returns_written);
        let kinds: Vec<_> = s.arguments().collect();
        assert_eq!(kinds, [("self", "Tensor"), ("split_size", "SymInt"), ("dim", "int[2]?"), ("mode", "str")]);
        let s = Schema::parse("add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
        assert!(
            s.returns_written && s.parameters[0].written && !s.parameters[1].written && s.parameters[2].has_default
        );
        assert_eq!(Schema::parse("f() -> Tensor").parameters, []);
    }
}
