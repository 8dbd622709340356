//! The history of tensors as a drawing: one box for each node that backward will visit, gradients flow along the arrows.
//!
//! Leaves that have a name, such as parameters of a module, tell which module the nodes beside them belong to.

use crate::drawing::{Class, Drawing, Edge, Group, Node, in_bytes};
use crate::grouping::{Groups, ROOT};
use crate::page;
use firebrand_core::autograd::{GraphView, Node as Recorded, Saved};
use std::collections::{HashMap, HashSet};

/// A page that shows the graph behind tensors, with the bytes that each node saves; the title is text, not markup.
///
/// ```
/// use firebrand_core::Tensor;
/// use firebrand_core::autograd::GraphView;
/// let w = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
/// let loss = (&w * &w).sum();
/// let page = firebrand_viz::history_html("squares", &GraphView::of(&[&loss]).named("w", &w));
/// assert!(page.contains("MulBackward0"));
/// ```
pub fn history_html(title: &str, view: &GraphView) -> String {
    page::html(&drawing(title, view))
}

pub(crate) fn drawing(title: &str, view: &GraphView) -> Drawing {
    let recorded = view.nodes();
    let mut edges = Vec::new();
    for (from, node) in recorded.iter().enumerate() {
        edges.extend(node.next_functions().iter().flatten().filter_map(|e| Some(Edge(from, view.position(&e.node)?))));
    }
    edges.sort_unstable();
    edges.dedup();
    let reached: HashSet<usize> = edges.iter().map(|e| e.1).collect();
    let held: Vec<Saved> = recorded.iter().map(GraphView::saved).collect();
    let mut nodes: Vec<Node> =
        recorded.iter().zip(&held).enumerate().map(|(i, (n, s))| node(view, n, s, !reached.contains(&i))).collect();

    let mut groups = Groups::new();
    let known: Vec<Option<usize>> =
        recorded.iter().map(|n| view.leaf_name(n).map(|name| groups.owner(ROOT, name))).collect();
    // Leaves are what the rest is made of: the other way round than gradients flow.
    let made: Vec<Edge> = edges.iter().map(|&Edge(from, to)| Edge(to, from)).collect();
    // An input that no gradient is needed for leaves a gap among the edges.
    let unseen = |n: usize| recorded[n].next_functions().iter().any(Option::is_none);
    let mut places = groups.fill(&known, &made, &backwards(recorded.len(), &edges), unseen);
    let mut groups = groups.finish(&mut places);
    nodes.iter_mut().zip(places).for_each(|(node, group)| node.group = group);
    let total = add_bytes(&nodes, &held, &mut groups);
    let leaves = nodes.iter().filter(|n| n.class == Class::Parameter).count();
    let summary = format!("{} nodes, {leaves} leaves, {} saved for backward", nodes.len(), in_bytes(total));
    Drawing { title: title.to_string(), summary, nodes, edges, groups }
}

fn node(view: &GraphView, recorded: &Recorded, saved: &Saved, root: bool) -> Node {
    let name = recorded.name().rsplit("::").next().unwrap_or_default();
    let shapes = recorded.input_metadata().iter().map(|m| format!("{}{:?}", m.dtype.name(), &m.shape[..]));
    let mut details = vec![("node", name.to_string())];
    let leaf = recorded.variable().is_some();
    if leaf {
        details.extend(view.leaf_name(recorded).map(|name| ("leaf", name.to_string())));
    } else {
        details.push(("order", recorded.sequence_nr().to_string()));
    }
    let mut bytes = None;
    match saved {
        Saved::Nothing => {}
        Saved::Freed => details.push(("saved", "freed".into())),
        Saved::Stale => details.push(("saved", "written in place since".into())),
        Saved::Bytes { names, storages, packed } => {
            let held = storages.values().sum();
            bytes = Some(held);
            details.push(("saved", format!("{} ({})", in_bytes(held), names.join(", "))));
            if *packed > 0 {
                details.push(("packed by hooks", packed.to_string()));
            }
        }
    }
    // The module around it has the rest of a leaf's name.
    let label = view.leaf_name(recorded).and_then(|n| n.rsplit('.').next()).unwrap_or(name).to_string();
    let class = match (leaf, root) {
        (true, _) => Class::Parameter,
        (false, true) => Class::Output,
        (false, false) => Class::Op,
    };
    Node { label, kind: shapes.collect::<Vec<_>>().join(" "), class, group: ROOT, details, bytes }
}

/// All nodes, each behind everything its gradients go to.
fn backwards(count: usize, edges: &[Edge]) -> Vec<usize> {
    let mut waiting = vec![0; count];
    let mut users = vec![Vec::new(); count];
    for &Edge(from, to) in edges {
        waiting[from] += 1;
        users[to].push(from);
    }
    let mut order: Vec<usize> = (0..count).filter(|&n| waiting[n] == 0).collect();
    let mut at = 0;
    while let Some(&n) = order.get(at) {
        at += 1;
        for &user in &users[n] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                order.push(user);
            }
        }
    }
    order
}

/// Adds up what groups hold, every storage once in each; returns the sum of all.
fn add_bytes(nodes: &[Node], held: &[Saved], groups: &mut [Group]) -> usize {
    let mut storages: Vec<HashMap<usize, usize>> = vec![HashMap::new(); groups.len()];
    for (node, saved) in nodes.iter().zip(held) {
        let Saved::Bytes { storages: own, .. } = saved else { continue };
        let mut at = Some(node.group);
        while let Some(g) = at {
            storages[g].extend(own);
            at = groups[g].parent;
        }
    }
    for (group, own) in groups.iter_mut().zip(&storages) {
        group.bytes = (!own.is_empty()).then(|| own.values().sum());
    }
    storages[ROOT].values().sum()
}
