//! Namespace: gives every node of a graph a name that was never used before.
//!
//! Nothing is ever freed: a name stays used when its node is erased or renamed, so that a name in a report, a signature
//! or an archive means one thing. The rules are those of `docs/behaviour/graph-and-passes.md` §2.

use super::Name;
use foldhash::{HashMap, HashSet};
use std::borrow::Cow;

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

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Turns a text into an identifier: each run of other characters becomes one `_`.
fn identifier(candidate: &str) -> Cow<'_, str> {
    let digit_first = candidate.starts_with(|c: char| c.is_ascii_digit());
    if !candidate.is_empty() && !digit_first && candidate.chars().all(is_word) {
        return Cow::Borrowed(candidate);
    }
    let mut out = String::with_capacity(candidate.len() + 1);
    let mut bad = false;
    for c in candidate.chars() {
        if is_word(c) {
            out.push(c);
        } else if !bad {
            out.push('_');
        }
        bad = !is_word(c);
    }
    if out.is_empty() {
        return Cow::Borrowed("_unnamed");
    }
    if digit_first {
        out.insert(0, '_');
    }
    Cow::Owned(out)
}

impl Namespace {
    /// The names of nodes that were made one after another, each with a name of its own.
    pub(super) fn replay<'a>(names: impl Iterator<Item = &'a Name>) -> Namespace {
        let mut space = Namespace::default();
        for name in names {
            space.used.insert(name.clone());
            if let (base, Some(n)) = split_suffix(name) {
                *space.count_of(base) = n;
            }
        }
        space
    }

    /// A fresh name, the candidate itself if that is free.
    pub fn create_name(&mut self, candidate: &str) -> Name {
        let name: Name = self.free_name(candidate).into();
        self.used.insert(name.clone());
        name
    }

    /// Like [`Namespace::create_name`]; a candidate that is free is shared and not copied.
    pub(crate) fn create_shared(&mut self, candidate: &Name) -> Name {
        let name = match self.free_name(candidate) {
            Cow::Borrowed(same) if same.len() == candidate.len() => candidate.clone(),
            other => other.into(),
        };
        self.used.insert(name.clone());
        name
    }

    /// The name to use instead of a candidate, often itself; counts its base but does not take it yet.
    fn free_name<'a>(&mut self, candidate: &'a str) -> Cow<'a, str> {
        let candidate = identifier(candidate);
        let (base, suffix) = split_suffix(&candidate);
        let taken = self.used.contains(&*candidate);
        let mut other: Option<String> = None;
        let count = match suffix {
            Some(n) if !taken => n,
            _ => {
                let mut n = self.base_count.get(base).copied().unwrap_or(0);
                if RESERVED.binary_search(&&*candidate).is_ok() {
                    n += 1;
                    other = Some(format!("{base}_{n}"));
                }
                while self.used.contains(other.as_deref().unwrap_or(&candidate)) {
                    n = n.saturating_add(1);
                    other = Some(format!("{base}_{n}"));
                }
                n
            }
        };
        if count > 0 {
            *self.count_of(base) = count;
        }
        other.map_or(candidate, Cow::Owned)
    }

    /// The count of a base; its name is copied only when it is new.
    fn count_of(&mut self, base: &str) -> &mut u64 {
        if !self.base_count.contains_key(base) {
            self.base_count.insert(base.into(), 0);
        }
        self.base_count.get_mut(base).expect("it was just inserted")
    }

    /// Reserves exactly this name, from a file; false if it was used before.
    pub(crate) fn take(&mut self, name: &Name) -> bool {
        if !self.used.insert(name.clone()) {
            return false;
        }
        if let (base, Some(n)) = split_suffix(name) {
            let count = self.count_of(base);
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
