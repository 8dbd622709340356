//! Grouping: the module that a node belongs to.
//!
//! Some nodes say so themselves: a program's calls carry the stack of modules they were made in, parameters their dotted
//! name. The others get the innermost module that contains both their inputs and their users, so that an
//! activation between two layers of one block stays in the block.

use crate::drawing::{Edge, Group};
use std::collections::HashMap;

/// Groups that are made as they are met.
pub(crate) struct Groups {
    list: Vec<Group>,
    /// By parent and name.
    index: HashMap<(usize, String), usize>,
    depth: Vec<usize>,
}

/// The group that holds everything.
pub(crate) const ROOT: usize = 0;

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups { list: vec![Group::default()], index: HashMap::new(), depth: vec![0] }
    }

    /// The group of this name in `parent`.
    pub(crate) fn child(&mut self, parent: usize, name: &str, kind: &str) -> usize {
        *self.index.entry((parent, name.to_string())).or_insert_with(|| {
            self.list.push(Group { name: name.into(), kind: kind.into(), parent: Some(parent), bytes: None });
            self.depth.push(self.depth[parent] + 1);
            self.list.len() - 1
        })
    }

    /// The group of the module that owns a dotted name: `layers.0` for `layers.0.weight`.
    ///
    /// It is made if it is not there; groups that are there are followed as far as their names match.
    pub(crate) fn owner(&mut self, base: usize, name: &str) -> usize {
        let Some((mut rest, _)) = name.rsplit_once('.') else { return base };
        let mut at = base;
        while !rest.is_empty() {
            let ends = rest.match_indices('.').map(|(i, _)| i).chain([rest.len()]);
            let known = ends.rev().find(|&end| self.index.contains_key(&(at, rest[..end].to_string())));
            let end = known.unwrap_or_else(|| rest.find('.').unwrap_or(rest.len()));
            at = self.child(at, &rest[..end], "");
            rest = rest[end..].trim_start_matches('.');
        }
        at
    }

    /// The innermost group around both.
    fn common(&self, mut a: usize, mut b: usize) -> usize {
        while a != b {
            let outer = if self.depth[a] >= self.depth[b] { &mut a } else { &mut b };
            *outer = self.list[*outer].parent.unwrap_or(ROOT);
        }
        a
    }

    /// Gives a group to the nodes that have none. Edges lead from operands; `order` lists all nodes, and
    /// follows them; `unseen` says which nodes also have operands that are not drawn.
    pub(crate) fn fill(
        &self,
        known: &[Option<usize>],
        edges: &[Edge],
        order: &[usize],
        unseen: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut next = vec![Vec::new(); known.len()];
        let mut previous = vec![Vec::new(); known.len()];
        for &Edge(from, to) in edges {
            next[from].push(to);
            previous[to].push(from);
        }
        let known = self.adopt(known, &previous, order, unseen);
        let above = self.spread(&known, &previous, order.iter());
        let below = self.spread(&known, &next, order.iter().rev());
        let one = |n: usize| match (known[n], above[n], below[n]) {
            (Some(g), _, _) => g,
            (None, Some(a), Some(b)) => self.common(a, b),
            _ => ROOT,
        };
        (0..known.len()).map(one).collect()
    }

    /// Nodes computed from parameters only belong to their module, and so do the nodes that read them.
    fn adopt(
        &self,
        known: &[Option<usize>],
        previous: &[Vec<usize>],
        order: &[usize],
        unseen: impl Fn(usize) -> bool,
    ) -> Vec<Option<usize>> {
        let mut found = known.to_vec();
        let mut of_parameters = vec![false; known.len()];
        for &n in order {
            let own = || previous[n].iter().filter(|&&m| of_parameters[m]);
            let all = own().count() == previous[n].len() && !unseen(n);
            let group = own().filter_map(|&m| found[m]).reduce(|a, b| self.common(a, b));
            found[n] = found[n].or(group);
            of_parameters[n] = all && found[n].is_some();
        }
        found
    }

    /// Along the order, each node without a group takes the one that is common to its neighbors.
    fn spread<'a>(
        &self,
        known: &[Option<usize>],
        neighbors: &[Vec<usize>],
        order: impl Iterator<Item = &'a usize>,
    ) -> Vec<Option<usize>> {
        let mut found = known.to_vec();
        for &n in order {
            let groups = neighbors[n].iter().filter_map(|&m| found[m]);
            found[n] = known[n].or_else(|| groups.reduce(|a, b| self.common(a, b)));
        }
        found
    }

    /// Leaves out groups that only hold one other group, joining the names, and groups that hold nothing.
    pub(crate) fn finish(self, nodes: &mut [usize]) -> Vec<Group> {
        let mut inside = vec![0usize; self.list.len()];
        let mut holds_nodes = vec![false; self.list.len()];
        nodes.iter().for_each(|&g| holds_nodes[g] = true);
        // Children come behind their parents.
        let mut used = holds_nodes.clone();
        for g in (1..self.list.len()).rev() {
            if let (true, Some(parent)) = (used[g], self.list[g].parent) {
                used[parent] = true;
                inside[parent] += 1;
            }
        }
        let mut kept: Vec<Group> = Vec::new();
        // Where each group went: its number, or the prefix that its only child takes over.
        let mut place: Vec<(usize, String)> = vec![(ROOT, String::new()); self.list.len()];
        for (g, group) in self.list.into_iter().enumerate() {
            let (parent, prefix) = group.parent.map_or((ROOT, String::new()), |p| place[p].clone());
            let joined = g != ROOT && inside[g] == 1 && !holds_nodes[g];
            place[g] = match (g == ROOT || used[g], joined) {
                (false, _) => (parent, prefix),
                (true, true) => (parent, format!("{prefix}{}.", group.name)),
                (true, false) => {
                    let parent = (g != ROOT).then_some(parent);
                    kept.push(Group { name: format!("{prefix}{}", group.name), parent, ..group });
                    (kept.len() - 1, String::new())
                }
            };
        }
        nodes.iter_mut().for_each(|g| *g = place[*g].0);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_the_module_that_was_called() {
        let mut groups = Groups::new();
        let layer = groups.child(ROOT, "layers.0", "Block");
        let norm = groups.child(layer, "norm", "LayerNorm");
        assert_eq!(groups.owner(ROOT, "layers.0.norm.weight"), norm);
        assert_eq!(groups.owner(ROOT, "weight"), ROOT);
        let made = groups.owner(ROOT, "layers.1.fc.bias");
        assert_eq!((groups.list[made].name.as_str(), groups.depth[made]), ("fc", 3));
    }

    /// `x -> linear(a.fc1) -> relu -> linear(a.fc2) -> sum`: the activation lies in `a`, input and sum do not.
    #[test]
    fn nodes_between_join_the_common_module() {
        let mut groups = Groups::new();
        let (first, second) = (groups.owner(ROOT, "a.fc1.weight"), groups.owner(ROOT, "a.fc2.weight"));
        let edges = [Edge(0, 3), Edge(1, 3), Edge(3, 4), Edge(2, 5), Edge(4, 5), Edge(5, 6)];
        let known = [None, Some(first), Some(second), None, None, None, None];
        let mut filled = groups.fill(&known, &edges, &[0, 1, 2, 3, 4, 5, 6], |_| false);
        let names: Vec<&str> = filled.iter().map(|&g| groups.list[g].name.as_str()).collect();
        assert_eq!(names, ["", "fc1", "fc2", "fc1", "a", "fc2", ""]);
        let kept = groups.finish(&mut filled);
        assert_eq!(kept.len(), 4);
    }

    #[test]
    fn a_module_that_only_holds_another_is_joined_with_it() {
        let mut groups = Groups::new();
        let mut nodes = [groups.owner(ROOT, "encoder.layers.0.w"), groups.owner(ROOT, "encoder.layers.1.w")];
        groups.owner(ROOT, "unused.w");
        let names: Vec<String> = groups.finish(&mut nodes).into_iter().map(|g| g.name).collect();
        assert_eq!(names, ["", "encoder.layers", "0", "1"]);
        assert_eq!(nodes, [2, 3]);
    }
}
