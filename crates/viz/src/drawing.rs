//! A drawing: nodes, edges, and groups that can be opened and closed. It knows neither programs nor tensors.

use serde::Serialize;

/// The kind of a node; the page gives each its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    Input,
    Parameter,
    Buffer,
    Constant,
    Op,
    Output,
}

/// A box.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    /// What it is, in a word or two.
    pub(crate) label: String,
    /// The type of its result: `float32[4, 8]`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    pub(crate) class: Class,
    /// Index into the groups; the first one holds everything.
    pub(crate) group: usize,
    /// Shown when it is selected, as names and values.
    pub(crate) details: Vec<(&'static str, String)>,
    /// Bytes it saves for the backward pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
}

/// An arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Edge(pub(crate) usize, pub(crate) usize);

/// A box around nodes and other groups.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Group {
    /// Its name below its parent.
    pub(crate) name: String,
    /// What it is: the class of a module, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// The group around it; a parent comes before its children, and the first group has none.
    pub(crate) parent: Option<usize>,
    /// Memory that its nodes keep together; what several of them hold counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
}

/// Everything on a page.
#[derive(Debug, Serialize)]
pub(crate) struct Drawing {
    pub(crate) title: String,
    /// One line below the title.
    pub(crate) summary: String,
    pub(crate) nodes: Vec<Node>,
    /// Sorted, each once, none from a node to itself.
    pub(crate) edges: Vec<Edge>,
    pub(crate) groups: Vec<Group>,
}

/// Memory sizes as text: `640 B`, `1.5 KiB`.
pub(crate) fn in_bytes(n: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (n.max(1).ilog2() / 10).min(4);
    let value = n as f64 / 1024f64.powi(power as i32);
    let digits = usize::from(power > 0 && value < 10.0);
    format!("{value:.digits$} {}", UNITS[power as usize])
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_in_words() {
        let words = [0, 640, 1536, 20 << 20, 3 << 30].map(super::in_bytes);
        assert_eq!(words, ["0 B", "640 B", "1.5 KiB", "20 MiB", "3.0 GiB"]);
    }
}
