//! The call structure of a program: nested tuples, lists and maps of values, flattened to inputs and put together from outputs.
//!
//! The structure is stored in the archive (PyTorch's pytree spec). Values are matched part by part; keywords and map keys
//! may come in any order. Classes of the original program have no structure here: such a program must be called with flat inputs.

use crate::error::{Error, Result};
use crate::interpret::Value;
use crate::ir::Name;
use indexmap::IndexMap;
use serde::Deserialize;

/// How deep structures may nest.
const MAX_DEPTH: usize = 64;

/// A structure of values.
#[derive(Debug, PartialEq)]
pub(super) enum Structure {
    /// One value.
    Leaf,
    /// A tuple or list.
    Sequence(Vec<Structure>),
    /// A map, or a tuple with names.
    Map(Vec<(Name, Structure)>),
}

#[derive(Deserialize)]
struct Node {
    #[serde(rename = "type")]
    ty: Option<String>,
    context: Option<String>,
    children_spec: Vec<Node>,
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Value(format!("call structure: {}", message.into())))
}

/// Keys of a map, as they are printed.
fn keys(list: &serde_json::Value) -> Option<Vec<Name>> {
    let text = |v: &serde_json::Value| match v {
        serde_json::Value::String(s) => s.as_str().into(),
        other => other.to_string().into(),
    };
    list.as_array().map(|items| items.iter().map(text).collect())
}

impl Structure {
    /// Reads a spec as archives print it; `fields` are the field names of named tuples.
    pub(super) fn parse(spec: &str, fields: &IndexMap<String, serde_json::Value>) -> Result<Structure> {
        let parsed: (i64, Node) =
            serde_json::from_str(spec).map_err(|e| Error::Value(format!("call structure: {e}")))?;
        match parsed {
            (1, node) => Structure::of(node, fields, 0),
            (protocol, _) => refuse(format!("protocol {protocol} is not supported")),
        }
    }

    fn of(node: Node, fields: &IndexMap<String, serde_json::Value>, depth: usize) -> Result<Structure> {
        if depth > MAX_DEPTH {
            return refuse(format!("nests deeper than {MAX_DEPTH}"));
        }
        let Some(ty) = node.ty else { return Ok(Structure::Leaf) };
        let children: Vec<Structure> =
            node.children_spec.into_iter().map(|n| Structure::of(n, fields, depth + 1)).collect::<Result<_>>()?;
        let context: serde_json::Value = match &node.context {
            Some(text) => serde_json::from_str(text).unwrap_or(serde_json::Value::Null),
            None => serde_json::Value::Null,
        };
        let names = match ty.as_str() {
            "builtins.tuple" | "builtins.list" | "collections.deque" => return Ok(Structure::Sequence(children)),
            "builtins.dict" | "collections.OrderedDict" => keys(&context),
            "collections.defaultdict" => keys(&context["dict_context"]),
            "collections.namedtuple" => {
                let name = context.as_str().or(node.context.as_deref()).unwrap_or_default();
                fields.get(name).and_then(|f| keys(&f["field_names"]))
            }
            other => return refuse(format!("{other} is a class of the original program; call it flat")),
        };
        match names {
            Some(names) if names.len() == children.len() => {
                Ok(Structure::Map(names.into_iter().zip(children).collect()))
            }
            _ => refuse(format!("the keys of a {ty} do not match its children")),
        }
    }

    /// The leaves of a value that has this structure; `path` says where it is, for messages.
    pub(super) fn flatten(&self, value: Value, path: &str, leaves: &mut Vec<Value>) -> Result<()> {
        match (self, value) {
            (Structure::Leaf, value @ (Value::List(_) | Value::Dict(_))) => {
                refuse(format!("{path}: expected one value, found {}", value.kind()))
            }
            (Structure::Leaf, value) => {
                leaves.push(value);
                Ok(())
            }
            (Structure::Sequence(parts), Value::List(items)) => {
                if parts.len() != items.len() {
                    return refuse(format!("{path} has {} elements, expected {}", items.len(), parts.len()));
                }
                for (k, (part, item)) in parts.iter().zip(items).enumerate() {
                    part.flatten(item, &format!("{path}[{k}]"), leaves)?;
                }
                Ok(())
            }
            (Structure::Map(parts), Value::Dict(entries)) => {
                let mut given: IndexMap<Name, Value> = entries.into_iter().collect();
                for (name, part) in parts {
                    match given.shift_remove(name) {
                        Some(item) => part.flatten(item, &format!("{path}[{name:?}]"), leaves)?,
                        None => return refuse(format!("{path} has no {name:?}")),
                    }
                }
                match given.keys().next() {
                    Some(name) => refuse(format!("{path} has {name:?}, which the program was not exported with")),
                    None => Ok(()),
                }
            }
            // A tuple with names may come without them.
            (Structure::Map(parts), Value::List(items)) if parts.len() == items.len() => {
                let named = parts.iter().zip(items).map(|((name, _), item)| (name.clone(), item));
                self.flatten(Value::Dict(named.collect()), path, leaves)
            }
            (expected, value) => {
                let expected = if let Structure::Map(_) = expected { "a dict" } else { "a tuple or list" };
                refuse(format!("{path} is {}, expected {expected}", value.kind()))
            }
        }
    }

    /// The name of every leaf: keys of maps and positions in lists, joined by dots; empty if no map leads to it.
    pub(super) fn leaf_names(&self) -> Vec<String> {
        let join = |first: &str, rest: &str| match (first.is_empty(), rest.is_empty()) {
            (false, false) => format!("{first}.{rest}"),
            _ => format!("{first}{rest}"),
        };
        let mut names = Vec::new();
        match self {
            Structure::Leaf => names.push(String::new()),
            Structure::Sequence(parts) => {
                for (k, part) in parts.iter().enumerate() {
                    let below = part.leaf_names();
                    let named = below.iter().any(|n| !n.is_empty());
                    names.extend(below.iter().map(|n| if named { join(&k.to_string(), n) } else { String::new() }));
                }
            }
            Structure::Map(parts) => {
                for (key, part) in parts {
                    let below = part.leaf_names();
                    let several = below.len() > 1;
                    let inner = |k: usize, n: &String| if n.is_empty() && several { k.to_string() } else { n.clone() };
                    names.extend(below.iter().enumerate().map(|(k, n)| join(key, &inner(k, n))));
                }
            }
        }
        names
    }

    /// A value of this structure from its leaves; `None` if there are too few.
    pub(super) fn unflatten(&self, leaves: &mut impl Iterator<Item = Value>) -> Option<Value> {
        Some(match self {
            Structure::Leaf => leaves.next()?,
            Structure::Sequence(parts) => {
                Value::List(parts.iter().map(|p| p.unflatten(leaves)).collect::<Option<_>>()?)
            }
            Structure::Map(parts) => {
                let entries = parts.iter().map(|(name, p)| Some((name.clone(), p.unflatten(leaves)?)));
                Value::Dict(entries.collect::<Option<_>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

    fn nested() -> Structure {
        let list = format!(r#"{{"type": "builtins.list", "context": "null", "children_spec": [{LEAF}, {LEAF}]}}"#);
        let map =
            format!(r#"{{"type": "builtins.dict", "context": "[\"a\", \"b\"]", "children_spec": [{LEAF}, {list}]}}"#);
        Structure::parse(&format!("[1, {map}]"), &IndexMap::new()).unwrap()
    }

    #[test]
    fn leaves_are_named_by_keys() {
        assert_eq!(nested().leaf_names(), ["a", "b.0", "b.1"]);
        assert_eq!(Structure::Sequence(vec![Structure::Leaf, Structure::Leaf]).leaf_names(), ["", ""]);
    }

    fn dict(entries: &[(&str, Value)]) -> Value {
        Value::Dict(entries.iter().map(|(k, v)| ((*k).into(), v.clone())).collect())
    }

    #[test]
    fn values_are_matched_part_by_part() {
        let list = Value::List(vec![2i64.into(), 3i64.into()]);
        let mut leaves = Vec::new();
        nested().flatten(dict(&[("b", list.clone()), ("a", 1i64.into())]), "x", &mut leaves).unwrap();
        let numbers: Vec<i64> = leaves.iter().map(|v| v.scalar().unwrap().to_i64()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let Some(Value::Dict(entries)) = nested().unflatten(&mut leaves.into_iter()) else { panic!("a dict") };
        assert_eq!(entries.iter().map(|(k, _)| &**k).collect::<Vec<_>>(), ["a", "b"]);
        for (value, reason) in [
            (dict(&[("a", 1i64.into())]), "x has no \"b\""),
            (dict(&[("a", 1i64.into()), ("b", list.clone()), ("c", 1i64.into())]), "x has \"c\", which"),
            (dict(&[("a", list.clone()), ("b", list.clone())]), "x[\"a\"]: expected one value, found a list"),
            (dict(&[("a", 1i64.into()), ("b", Value::List(vec![]))]), "x[\"b\"] has 0 elements, expected 2"),
            (dict(&[("a", 1i64.into()), ("b", 2i64.into())]), "x[\"b\"] is an integer, expected a tuple or list"),
        ] {
            let e = nested().flatten(value, "x", &mut Vec::new()).unwrap_err().to_string();
            assert!(e.contains(reason), "{e}");
        }
    }

    #[test]
    fn named_tuples_and_foreign_classes() {
        let fields = [("P".to_string(), serde_json::json!({"field_names": ["x", "y"]}))].into_iter().collect();
        let spec =
            |ty: &str| format!(r#"[1, {{"type": "{ty}", "context": "\"P\"", "children_spec": [{LEAF}, {LEAF}]}}]"#);
        let point = Structure::parse(&spec("collections.namedtuple"), &fields).unwrap();
        let mut leaves = Vec::new();
        point.flatten(Value::List(vec![1i64.into(), 2i64.into()]), "p", &mut leaves).unwrap();
        assert_eq!(leaves.len(), 2);
        let e = Structure::parse(&spec("mine.Point"), &fields).unwrap_err().to_string();
        assert!(e.contains("mine.Point is a class of the original program"), "{e}");
        assert!(Structure::parse("[2, {}]", &fields).is_err());
        assert!(Structure::parse(&"[".repeat(500), &fields).is_err());
    }
}
