//! Namespace: gives every node of a graph a name that was never used before.
//!
//! Nothing is ever freed: a name stays used when its node is erased or renamed, so that a name in a report, a signature
//! or an archive means one thing. The rules are those of `docs/behaviour/graph-and-passes.md` §2.

use super::Name;
use std::collections::{HashMap, HashSet};

/// Words that no node may be called, because printed programs are Python to many tools.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup",
    "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "Ellipsis", "EncodingWarning", "EnvironmentError", "Exception",
    "ExceptionGroup", "FileExistsError", "FileNotFoundError", "FloatingPointError", "FutureWarning",
    "GeneratorExit", "IOError", "ImportError", "ImportWarning", "IndentationError", "IndexError",
    "InterruptedError", "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError",
    "ModuleNotFoundError", "NameError", "NoneType", "NotADirectoryError", "NotImplemented", "NotImplementedError",
    "OSError", "OverflowError", "PendingDeprecationWarning", "PermissionError", "ProcessLookupError",
    "RecursionError", "ReferenceError", "ResourceWarning", "RuntimeError", "RuntimeWarning", "StopAsyncIteration",
    "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError", "SystemExit", "TabError", "TimeoutError",
    "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeError",
    "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError", "Warning", "ZeroDivisionError",
    "__build_class__", "__debug__", "__doc__", "__import__", "__loader__", "__name__", "__package__", "__spec__",
    "abs", "aiter", "all", "and", "anext", "any", "as", "ascii", "assert", "async", "await", "bin", "bool",
    "break", "breakpoint", "bytearray", "bytes", "callable", "chr", "class", "classmethod", "compile", "complex",
    "continue", "copyright", "credits", "def", "del", "delattr", "device", "dict", "dir", "divmod", "elif",
    "else", "enumerate", "eval", "except", "exec", "exit", "filter", "finally", "float", "for", "format", "from",
    "frozenset", "fx_pytree", "getattr", "global", "globals", "hasattr", "hash", "help", "hex", "id", "if",
    "import", "in", "inf", "input", "int", "is", "isinstance", "issubclass", "iter", "lambda", "len", "license",
    "list", "locals", "map", "max", "memoryview", "min", "nan", "next", "nonlocal", "not", "object", "oct",
    "open", "or", "ord", "pass", "pow", "print", "property", "pytree", "quit", "raise", "range", "repr", "return",
    "reversed", "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "torch",
    "try", "tuple", "type", "vars", "while", "with", "yield", "zip",
];

/// The names of one graph.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    used: HashSet<Name>,
    /// The highest suffix given out for a base; absent means none.
    base_count: HashMap<Name, u64>,
}

/// `x_1` is `x` with suffix 1; the base may be empty.
pub(crate) fn split_suffix(name: &str) -> (&str, Option<u64>) {
    if let Some((base, digits)) = name.rsplit_once('_')
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(n) = digits.parse()
    {
        return (base, Some(n));
    }
    (name, None)
}

/// Makes an identifier: other characters become `_`, one for each run of them.
fn identifier(candidate: &str) -> String {
    let mut out = String::with_capacity(candidate.len() + 1);
    let mut bad = false;
    for c in candidate.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
        } else if !bad {
            out.push('_');
        }
        bad = !(c.is_ascii_alphanumeric() || c == '_');
    }
    if out.is_empty() {
        return "_unnamed".to_string();
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

impl Namespace {
    /// A fresh name, the candidate itself if that is free.
    pub fn create_name(&mut self, candidate: &str) -> Name {
        let candidate = identifier(candidate);
        let (base, suffix) = split_suffix(&candidate);
        let taken = self.used.contains(candidate.as_str());
        let mut name: Option<String> = None;
        let mut n = match suffix {
            Some(n) if !taken => n,
            _ => {
                let n = self.base_count.get(base).copied().unwrap_or(0);
                if RESERVED.binary_search(&candidate.as_str()).is_ok() {
                    name = Some(format!("{base}_{}", n + 1));
                    n + 1
                } else {
                    n
                }
            }
        };
        let mut name = name.unwrap_or_else(|| candidate.clone());
        while self.used.contains(name.as_str()) {
            n = n.saturating_add(1);
            name = format!("{base}_{n}");
        }
        if n > 0 {
            self.base_count.insert(base.into(), n);
        }
        let name: Name = name.into();
        self.used.insert(name.clone());
        name
    }

    /// Takes exactly this name, which a file gave; false if it was used before.
    pub(crate) fn take(&mut self, name: &Name) -> bool {
        if !self.used.insert(name.clone()) {
            return false;
        }
        if let (base, Some(n)) = split_suffix(name) {
            let count = self.base_count.entry(base.into()).or_insert(0);
            *count = (*count).max(n);
        }
        true
    }

    /// Whether a node ever had this name.
    pub fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }
}

/// The candidate for a node without a given name: `aten.add.Tensor` gives `add.tensor`, `fooBar` gives `foo_bar`.
pub(crate) fn snake_case(target: &str) -> String {
    let magic = target.len() > 4 && target.starts_with("__") && target.ends_with("__");
    let target = if magic { &target[2..target.len() - 2] } else { target };
    let mut out = String::with_capacity(target.len() + 2);
    let mut lower = false;
    for c in target.chars() {
        if lower && c.is_uppercase() {
            out.push('_');
        }
        lower = c.is_lowercase();
        out.extend(c.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(candidates: &[&str]) -> Vec<String> {
        let mut space = Namespace::default();
        candidates.iter().map(|c| space.create_name(c).to_string()).collect()
    }

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.is_sorted());
    }

    /// P-74
    #[test]
    fn suffixes_count_on() {
        let all = names(&["x", "x", "x", "x_1", "x_5", "x", "x_5"]);
        assert_eq!(all[1..], ["x_1", "x_2", "x_3", "x_5", "x_6", "x_7"]);
        assert_eq!(names(&["x_1_1", "x_1_1"]), ["x_1_1", "x_1_2"]);
    }

    /// P-75
    #[test]
    fn reserved_words_get_a_suffix() {
        let all = names(&["for", "int", "torch", "inf", "device", "self"]);
        assert_eq!(all, ["for_1", "int_1", "torch_1", "inf_1", "device_1", "self"]);
    }

    /// P-76
    #[test]
    fn anything_becomes_an_identifier() {
        assert_eq!(names(&["1bad", "a-b", "", "L['x']"]), ["_1bad", "a_b", "_unnamed", "L_x_"]);
    }

    #[test]
    fn targets_become_candidates() {
        let made = |t| names(&[&snake_case(t)]).remove(0);
        assert_eq!(made("add.Tensor"), "add_tensor");
        assert_eq!(made("add_.Tensor"), "add__tensor");
        assert_eq!(made("a.b.Weight"), "a_b_weight");
        assert_eq!(made("fooBar"), "foo_bar");
        assert_eq!(made("sum"), "sum_1");
        assert_eq!(made("__and__"), "and_1");
    }
}
