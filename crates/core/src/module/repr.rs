//! Printing modules: the tree of their children with the arguments of each, as PyTorch's `repr` shows it.
//!
//! Members of a list field (`layers.0`, `layers.1`) are shown as the `ModuleList` they would be in PyTorch, equal neighbors
//! once. Knows nothing of particular layers; each lists its own arguments in [`Module::extra_repr`].

use super::Module;
use super::field::Members;
use std::fmt::{self, Formatter};

/// The arguments of a module, written as PyTorch does: `3, 8, kernel_size=(3, 3), bias=False`.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::module::ExtraRepr;
///
/// let text = ExtraRepr::new().value(3).field("eps", 1e-5).field("stride", [2, 1]).field("bias", true).finish();
/// assert_eq!(text, "3, eps=1e-05, stride=(2, 1), bias=True");
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExtraRepr(String);

impl ExtraRepr {
    /// No arguments.
    pub fn new() -> ExtraRepr {
        ExtraRepr::default()
    }

    fn comma(&mut self) {
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
    }

    /// Appends an argument without a name.
    #[must_use]
    pub fn value(mut self, value: impl PythonRepr) -> ExtraRepr {
        self.comma();
        value.python_repr(&mut self.0);
        self
    }

    /// Appends an argument with its name.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl PythonRepr) -> ExtraRepr {
        self.comma();
        self.0.push_str(name);
        self.0.push('=');
        value.python_repr(&mut self.0);
        self
    }

    /// Appends an argument with its name unless it has its default.
    #[must_use]
    pub fn field_unless<T: PythonRepr + PartialEq>(self, name: &str, value: T, default: T) -> ExtraRepr {
        if value == default { self } else { self.field(name, value) }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// A value that prints as Python writes it.
pub trait PythonRepr {
    /// Appends the text.
    fn python_repr(&self, out: &mut String);
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl PythonRepr for $t {
            fn python_repr(&self, out: &mut String) {
                out.push_str(&self.to_string());
            }
        }
    )*};
}
integers!(i32, i64, u32, usize);

impl PythonRepr for bool {
    fn python_repr(&self, out: &mut String) {
        out.push_str(if *self { "True" } else { "False" });
    }
}

impl PythonRepr for f64 {
    fn python_repr(&self, out: &mut String) {
        let text = match self {
            v if v.is_nan() => "nan".to_string(),
            v if v.is_infinite() => if *v > 0.0 { "inf" } else { "-inf" }.to_string(),
            v => format!("{v:?}"),
        };
        match text.split_once('e') {
            None => out.push_str(&text),
            // Python writes a sign and two digits.
            Some((digits, exponent)) => {
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
                out.push_str(&format!("{digits}e{sign}{exponent:0>2}"));
            }
        }
    }
}

impl PythonRepr for &str {
    fn python_repr(&self, out: &mut String) {
        out.push_str(&format!("'{self}'"));
    }
}

impl<T: PythonRepr> PythonRepr for Option<T> {
    fn python_repr(&self, out: &mut String) {
        match self {
            Some(value) => value.python_repr(out),
            None => out.push_str("None"),
        }
    }
}

impl<T: PythonRepr> PythonRepr for &[T] {
    fn python_repr(&self, out: &mut String) {
        out.push('(');
        for (k, value) in self.iter().enumerate() {
            if k > 0 {
                out.push_str(", ");
            }
            value.python_repr(out);
        }
        out.push_str(if self.len() == 1 { ",)" } else { ")" });
    }
}

impl<T: PythonRepr, const N: usize> PythonRepr for [T; N] {
    fn python_repr(&self, out: &mut String) {
        (&self[..]).python_repr(out);
    }
}

/// A line of the tree: a name, how many there are of it, and the text behind it.
struct Row {
    first: String,
    last: String,
    count: usize,
    text: String,
}

/// Name, arguments in front, rows of children.
fn block(name: &str, extra: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return format!("{name}({extra})");
    }
    let mut text = format!("{name}(\n");
    if !extra.is_empty() {
        text.push_str(&format!("  {extra}\n"));
    }
    for row in rows {
        let inner = row.text.replace('\n', "\n  ");
        match row.count {
            1 => text.push_str(&format!("  ({}): {inner}\n", row.first)),
            n => text.push_str(&format!("  ({}-{}): {n} x {inner}\n", row.first, row.last)),
        }
    }
    text.push(')');
    text
}

/// Rows of a list: equal neighbors are one.
fn list(members: Vec<(String, String)>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (name, text) in members {
        match rows.last_mut() {
            Some(row) if row.text == text => {
                row.last = name;
                row.count += 1;
            }
            _ => rows.push(Row { first: name.clone(), last: name, count: 1, text }),
        }
    }
    rows
}

fn tree(module: &dyn Module) -> String {
    let children: Vec<(String, String)> =
        Members::of(module).modules.into_iter().map(|(name, child)| (name, tree(child))).collect();
    let (name, extra) = (module.name(), module.extra_repr());
    if name == "ModuleList" {
        return block(name, &extra, &list(children));
    }
    // What a list field holds has names of two parts, and stands together.
    let (mut rows, mut group): (Vec<Row>, Vec<(String, String)>) = (Vec::new(), Vec::new());
    let mut children = children.into_iter().peekable();
    while let Some((path, text)) = children.next() {
        let Some((field, place)) = path.split_once('.') else {
            rows.push(Row { first: path.clone(), last: path, count: 1, text });
            continue;
        };
        group.push((place.to_string(), text));
        let goes_on = children.peek().is_some_and(|(next, _)| next.split_once('.').is_some_and(|(f, _)| f == field));
        if !goes_on {
            let text = block("ModuleList", "", &list(std::mem::take(&mut group)));
            rows.push(Row { first: field.to_string(), last: field.to_string(), count: 1, text });
        }
    }
    block(name, &extra, &rows)
}

/// Prints the tree of a module: what `{:?}` does.
pub fn fmt_module(module: &dyn Module, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(&tree(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: impl PythonRepr) -> String {
        let mut text = String::new();
        value.python_repr(&mut text);
        text
    }

    /// Texts of Python's `repr`.
    #[test]
    fn values_print_as_in_python() {
        let floats = [(1e-5, "1e-05"), (0.1, "0.1"), (20.0, "20.0"), (1e16, "1e+16"), (1.5e-300, "1.5e-300")];
        for (value, text) in floats {
            assert_eq!(shown(value), text);
        }
        assert_eq!(shown([3usize]), "(3,)");
        assert_eq!(shown([3usize, 1]), "(3, 1)");
        assert_eq!(shown(None::<f64>), "None");
        assert_eq!(shown("same"), "'same'");
        assert_eq!(shown(f64::INFINITY), "inf");
    }
}
