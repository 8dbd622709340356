//! A graph as text: a list, a tree, or DOT for Graphviz; with shapes, edges and saved values.
//!
//! Reading changes nothing: hooks of saved tensors do not run, checkpoints are not recomputed. Nothing recurses, and a
//! chain stays at one indentation, so a million nodes print in linear space. Text is returned, never printed.

use super::graph::iter_graph;
use super::logging::abbreviation;
use super::node::Node;
use super::saved::{SavedValue, peek};
use crate::{ErrorKind, Tensor};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The history of some tensors, numbered breadth first.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::Tensor;
/// use firebrand::autograd::GraphView;
/// let x = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
/// let y = (&x * &x).sum();
/// assert_eq!(
///     GraphView::of(&[&y]).named("x", &x).tree(),
///     "#0 SumBackward0 f64[]\n#1 MulBackward0 f64[2] saved 16 B (other, self)\n  [1] #2 AccumulateGrad f64[2] x\n[0] #2 above\n"
/// );
/// ```
pub struct GraphView {
    nodes: Vec<Node>,
    index: HashMap<usize, usize>,
    /// Names of leaves, by the address of their node.
    names: HashMap<usize, String>,
}

/// What a node saves for backward.
#[derive(Debug)]
pub enum Saved {
    /// No tensor.
    Nothing,
    /// Nothing: the graph was freed.
    Freed,
    /// Something that has been written in place since, so reading it would fail.
    Stale,
    /// Tensors.
    Bytes {
        /// The names of what is saved.
        names: Vec<&'static str>,
        /// Bytes by storage; several nodes may hold the same one.
        storages: HashMap<usize, usize>,
        /// Number of tensors packed by hooks.
        packed: usize,
    },
}

impl GraphView {
    /// The graph behind these tensors; those without history add nothing.
    pub fn of(outputs: &[&Tensor]) -> GraphView {
        let nodes = iter_graph(outputs.iter().map(|t| t.grad_fn()));
        let index = nodes.iter().enumerate().map(|(i, n)| (n.addr(), i)).collect();
        GraphView { nodes, index, names: HashMap::new() }
    }

    /// Shows a leaf under a name.
    pub fn named(mut self, name: &str, leaf: &Tensor) -> GraphView {
        let is_it = |n: &&Node| n.variable().is_some_and(|v| v.is_same(leaf));
        if let Some(n) = self.nodes.iter().find(is_it) {
            self.names.insert(n.addr(), name.to_string());
        }
        self
    }

    /// Shows leaves under names, such as those of a module's `named_parameters`.
    pub fn all_named<'a>(mut self, names: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> GraphView {
        let addresses: HashMap<usize, &str> =
            names.into_iter().map(|(name, t)| (firebrand_kernels::shared::Arc::addr(&t.0), name)).collect();
        for n in &self.nodes {
            let leaf = n.variable().map(|v| firebrand_kernels::shared::Arc::addr(&v.0));
            if let Some(name) = leaf.and_then(|a| addresses.get(&a)) {
                self.names.insert(n.addr(), name.to_string());
            }
        }
        self
    }

    /// The nodes, breadth first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The position of a node of this graph in [`GraphView::nodes`].
    pub fn position(&self, node: &Node) -> Option<usize> {
        self.index.get(&node.addr()).copied()
    }

    /// The name under which a leaf is shown.
    pub fn leaf_name(&self, node: &Node) -> Option<&str> {
        self.names.get(&node.addr()).map(String::as_str)
    }

    fn name(node: &Node) -> &str {
        node.name().rsplit("::").next().unwrap_or_default()
    }

    fn shapes(node: &Node) -> String {
        let one = |m: &super::node::InputMetadata| format!("{}{:?}", abbreviation(m.dtype), &m.shape[..]);
        node.input_metadata().iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// What a node saves; reading changes nothing.
    pub fn saved(node: &Node) -> Saved {
        let (values, packed) = peek(|| node.formula().saved(node));
        let values = match values {
            Ok(values) => values,
            Err(e) if matches!(e.kind(), ErrorKind::GraphFreed { .. }) => return Saved::Freed,
            Err(_) => return Saved::Stale,
        };
        let (mut names, mut storages) = (Vec::new(), HashMap::new());
        for (name, value) in &values {
            let tensors: Vec<&Tensor> = match value {
                SavedValue::Tensor(t) => vec![t],
                SavedValue::Tensors(list) => list.iter().flatten().collect(),
                _ => continue,
            };
            if !tensors.is_empty() {
                names.push(*name);
            }
            storages.extend(tensors.iter().map(|t| (t.storage().addr(), t.storage().nbytes())));
        }
        if storages.is_empty() && packed == 0 { Saved::Nothing } else { Saved::Bytes { names, storages, packed } }
    }

    /// ` saved 16 B (other, self)`, ` x`, or nothing.
    fn remark(&self, node: &Node, saved: &Saved) -> String {
        if node.variable().is_some() {
            return self.names.get(&node.addr()).map_or(String::new(), |n| format!(" {n}"));
        }
        match saved {
            Saved::Nothing => String::new(),
            Saved::Freed => " freed".into(),
            Saved::Stale => " saved values were written since".into(),
            Saved::Bytes { names, storages, packed } => {
                let mut text = String::new();
                if !storages.is_empty() {
                    let bytes: usize = storages.values().sum();
                    let _ = write!(text, " saved {bytes} B ({})", names.join(", "));
                }
                if *packed > 0 {
                    let _ = write!(text, " packed {packed}");
                }
                text
            }
        }
    }

    /// `#1 MulBackward0 f64[2] saved 16 B (other, self)`
    fn line(&self, i: usize) -> String {
        let node = &self.nodes[i];
        let remark = self.remark(node, &Self::saved(node));
        format!("#{i} {} {}{remark}", Self::name(node), Self::shapes(node))
    }

    fn number(&self, node: &Node) -> usize {
        self.index[&node.addr()]
    }

    /// One line per node, with its edges (`-` where no gradient goes), and the total memory of all saved values.
    pub fn list(&self) -> String {
        let (mut text, mut all) = (String::new(), HashMap::new());
        for (i, node) in self.nodes.iter().enumerate() {
            let saved = Self::saved(node);
            let _ = write!(text, "#{i} {} {}{}", Self::name(node), Self::shapes(node), self.remark(node, &saved));
            if !node.next_functions().is_empty() {
                let edge = |e: &Option<super::node::Edge>| match e {
                    Some(e) if e.slot == 0 => format!("#{}", self.number(&e.node)),
                    Some(e) => format!("#{}.{}", self.number(&e.node), e.slot),
                    None => "-".into(),
                };
                let edges: Vec<String> = node.next_functions().iter().map(edge).collect();
                let _ = write!(text, " -> {}", edges.join(" "));
            }
            text.push('\n');
            if let Saved::Bytes { storages, .. } = saved {
                all.extend(storages);
            }
        }
        let bytes: usize = all.values().sum();
        let _ = writeln!(text, "{} nodes, {bytes} B saved", self.nodes.len());
        text
    }

    /// For every node, the length of the longest path below it.
    fn heights(&self) -> Vec<u32> {
        let mut heights = vec![None; self.nodes.len()];
        for root in 0..self.nodes.len() {
            let mut stack = vec![root];
            while let Some(&i) = stack.last() {
                let children = || self.nodes[i].next_functions().iter().flatten().map(|e| self.number(&e.node));
                let open: Vec<usize> = children().filter(|&c| heights[c].is_none()).collect();
                if heights[i].is_some() || open.is_empty() {
                    heights[i] = Some(children().filter_map(|c| heights[c]).max().map_or(0u32, |h| h + 1));
                    stack.pop();
                } else {
                    stack.extend(open);
                }
            }
        }
        heights.into_iter().flatten().collect()
    }

    /// Depth first. The longest path below a node continues at its indentation, the other edges are indented below it;
    /// a node that was already shown is only named.
    pub fn tree(&self) -> String {
        let heights = self.heights();
        let (mut text, mut shown) = (String::new(), HashSet::new());
        let below: HashSet<usize> =
            self.nodes.iter().flat_map(|n| n.next_functions().iter().flatten().map(|e| e.node.addr())).collect();
        let roots = (0..self.nodes.len()).filter(|&i| !below.contains(&self.nodes[i].addr()));
        // (indentation, edge of several, node)
        let mut stack: Vec<(usize, Option<usize>, usize)> = roots.map(|i| (0, None, i)).collect();
        stack.reverse();
        while let Some((depth, edge, i)) = stack.pop() {
            let label = edge.map_or(String::new(), |k| format!("[{k}] "));
            if !shown.insert(i) {
                let _ = writeln!(text, "{:1$}{label}#{i} above", "", 2 * depth);
                continue;
            }
            let _ = writeln!(text, "{:1$}{label}{2}", "", 2 * depth, self.line(i));
            let edges = self.nodes[i].next_functions();
            let children: Vec<(usize, usize)> =
                edges.iter().enumerate().filter_map(|(k, e)| Some((k, self.number(&e.as_ref()?.node)))).collect();
            let label = |k: usize| (edges.len() > 1).then_some(k);
            // The first of the longest.
            let main = children.iter().rev().max_by_key(|(_, c)| heights[*c]).copied();
            stack.extend(main.map(|(k, c)| (depth, label(k), c)));
            let others = children.iter().rev().filter(|c| Some(**c) != main);
            stack.extend(others.map(|&(k, c)| (depth + 1, label(k), c)));
        }
        text
    }

    /// A graph for Graphviz: gradients flow along the arrows.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph autograd {\n  node [shape=box, fontname=monospace];\n");
        for (i, node) in self.nodes.iter().enumerate() {
            let remark = self.remark(node, &Self::saved(node));
            let remark =
                if remark.is_empty() { remark } else { format!("\\n{}", remark.trim_start().replace('"', "'")) };
            let style = if node.variable().is_some() { ", style=filled, fillcolor=lightblue" } else { "" };
            let _ = writeln!(text, "  n{i} [label=\"{}\\n{}{remark}\"{style}];", Self::name(node), Self::shapes(node));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let edges = node.next_functions();
            for (k, e) in edges.iter().enumerate().filter_map(|(k, e)| Some((k, e.as_ref()?))) {
                let label = if edges.len() > 1 { format!(" [label=\"{k}\"]") } else { String::new() };
                let _ = writeln!(text, "  n{i} -> n{}{label};", self.number(&e.node));
            }
        }
        text.push_str("}\n");
        text
    }
}
