//! The arguments of an op, from the schema text of the op table: names, types, which must be given and how.

use firebrand_core::dispatch::Op;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// One argument of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpArgument {
    pub(crate) name: String,
    /// As the schema writes it, without alias notes: `Tensor`, `int[2]`, `Tensor?[]`.
    pub(crate) ty: String,
    pub(crate) required: bool,
    pub(crate) keyword_only: bool,
}

/// What an op takes and gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpSchema {
    pub(crate) arguments: Vec<OpArgument>,
}

/// The schema of an op; parsed once.
pub(crate) fn of(op: Op) -> Arc<OpSchema> {
    static CACHE: OnceLock<Mutex<HashMap<Op, Arc<OpSchema>>>> = OnceLock::new();
    let mut cache = CACHE.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    cache.entry(op).or_insert_with(|| Arc::new(parse(op.info().schema))).clone()
}

/// Splits at commas that stand outside of brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quoted, mut start) = (Vec::new(), 0, false, 0);
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
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

/// Reads what the op table prints, which is well formed.
fn parse(schema: &str) -> OpSchema {
    let inside = schema
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once("->"))
        .and_then(|(arguments, _)| arguments.trim_end().strip_suffix(')'))
        .unwrap_or_default();
    let mut keyword_only = false;
    let mut arguments = Vec::new();
    for part in split(inside) {
        if part == "*" {
            keyword_only = true;
            continue;
        }
        let (declared, default) = match part.split_once('=') {
            Some((d, v)) => (d, Some(v)),
            None => (part, None),
        };
        let Some((ty, name)) = declared.rsplit_once(' ') else { continue };
        // `Tensor(a!)` is a tensor.
        let ty = match (ty.find('('), ty.rfind(')')) {
            (Some(open), Some(close)) => format!("{}{}", &ty[..open], &ty[close + 1..]),
            _ => ty.to_string(),
        };
        arguments.push(OpArgument { name: name.to_string(), ty, required: default.is_none(), keyword_only });
    }
    OpSchema { arguments }
}

impl OpSchema {
    /// Checks names and number of the arguments of a call.
    pub(crate) fn check<'a>(&self, positional: usize, keywords: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let by_position = self.arguments.iter().filter(|a| !a.keyword_only).count();
        if positional > by_position {
            return Err(format!("{positional} arguments by position, the op takes {by_position}"));
        }
        let mut given = vec![false; self.arguments.len()];
        given[..positional].fill(true);
        for name in keywords {
            match self.arguments.iter().position(|a| a.name == name) {
                None => return Err(format!("the op has no argument {name:?}")),
                Some(k) if std::mem::replace(&mut given[k], true) => {
                    return Err(format!("the argument {name:?} is given twice"));
                }
                Some(_) => {}
            }
        }
        match self.arguments.iter().zip(&given).find(|(a, given)| a.required && !**given) {
            Some((a, _)) => Err(format!("the argument {:?} is missing", a.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_schemas() {
        let op = Op::from_name("aten::add_.Tensor").expect("an op");
        let schema = of(op);
        let short: Vec<_> =
            schema.arguments.iter().map(|a| (a.name.as_str(), a.ty.as_str(), a.required, a.keyword_only)).collect();
        assert_eq!(
            short,
            [("self", "Tensor", true, false), ("other", "Tensor", true, false), ("alpha", "Scalar", false, true)]
        );
        assert!(schema.check(2, ["alpha"].into_iter()).is_ok());
        assert!(schema.check(3, [].into_iter()).unwrap_err().contains("by position"));
        assert!(schema.check(1, [].into_iter()).unwrap_err().contains("\"other\" is missing"));
        assert!(schema.check(2, ["beta"].into_iter()).unwrap_err().contains("no argument"));
        assert!(schema.check(2, ["other"].into_iter()).unwrap_err().contains("twice"));
    }

    /// Every schema of the table is read to the end: its names are as many as its commas say.
    #[test]
    fn reads_every_op() {
        for op in Op::all() {
            let schema = of(op);
            let words_ok = schema.arguments.iter().all(|a| !a.name.contains(['(', '[', ' ']) && !a.ty.is_empty());
            assert!(words_ok && (!schema.arguments.is_empty() || op.info().schema.contains("()")), "{op:?}");
        }
    }
}
