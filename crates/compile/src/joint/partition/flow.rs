//! Minimum cuts: Dinic's algorithm on capacities that are floats. Deterministic: edges are tried in the order they were
//! added.

/// A network under construction; nodes are numbers.
pub(super) struct Network {
    edges: Vec<Edge>,
    out: Vec<Vec<usize>>,
}

struct Edge {
    to: usize,
    left: f64,
}

/// Smaller flows count as none.
const NOTHING: f64 = 1e-9;

impl Network {
    pub(super) fn new(nodes: usize) -> Network {
        Network { edges: Vec::new(), out: vec![Vec::new(); nodes] }
    }

    pub(super) fn edge(&mut self, from: usize, to: usize, capacity: f64) {
        for (from, to, left) in [(from, to, capacity), (to, from, 0.0)] {
            self.out[from].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    /// How far each node is from the source along edges with capacity left; none if it cannot be reached.
    fn levels(&self, source: usize) -> Vec<Option<usize>> {
        let mut level = vec![None; self.out.len()];
        level[source] = Some(0);
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(n) = queue.pop_front() {
            for &e in &self.out[n] {
                let edge = &self.edges[e];
                if edge.left > NOTHING && level[edge.to].is_none() {
                    level[edge.to] = level[n].map(|l| l + 1);
                    queue.push_back(edge.to);
                }
            }
        }
        level
    }

    /// One more path from source to sink, and what flows along it. No recursion: graphs may be long.
    fn augment(&mut self, source: usize, sink: usize, level: &[Option<usize>], next: &mut [usize]) -> Option<f64> {
        let mut path: Vec<usize> = Vec::new();
        let mut at = source;
        while at != sink {
            let step = self.out[at][next[at]..].iter().copied().find(|&e| {
                let edge = &self.edges[e];
                edge.left > NOTHING && level[edge.to] == level[at].map(|l| l + 1)
            });
            match step {
                Some(e) => {
                    while self.out[at][next[at]] != e {
                        next[at] += 1;
                    }
                    path.push(e);
                    at = self.edges[e].to;
                }
                None => {
                    // A dead end: go back, and do not come here again.
                    next[at] = self.out[at].len();
                    let e = path.pop()?;
                    at = self.edges[e ^ 1].to;
                    next[at] += 1;
                }
            }
        }
        let flow = path.iter().map(|&e| self.edges[e].left).fold(f64::INFINITY, f64::min);
        if flow.is_infinite() {
            return Some(flow);
        }
        for e in path {
            self.edges[e].left -= flow;
            self.edges[e ^ 1].left += flow;
        }
        Some(flow)
    }

    /// Which nodes still reach the sink.
    fn reaching(&self, sink: usize) -> Vec<bool> {
        let mut reaches = vec![false; self.out.len()];
        reaches[sink] = true;
        let mut stack = vec![sink];
        while let Some(n) = stack.pop() {
            for &e in &self.out[n] {
                // The twin of an edge out of `n` leads to it.
                let from = self.edges[e].to;
                if self.edges[e ^ 1].left > NOTHING && !std::mem::replace(&mut reaches[from], true) {
                    stack.push(from);
                }
            }
        }
        reaches
    }

    /// The nodes on the source's side of the minimum cut that lies nearest to the sink; none if nothing finite separates
    /// source and sink.
    pub(super) fn source_side(mut self, source: usize, sink: usize) -> Option<Vec<bool>> {
        loop {
            let level = self.levels(source);
            if level[sink].is_none() {
                return Some(self.reaching(sink).iter().map(|reaches| !reaches).collect());
            }
            let mut next = vec![0; self.out.len()];
            while let Some(flow) = self.augment(source, sink, &level, &mut next) {
                if flow.is_infinite() {
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_where_it_is_cheapest() {
        // 0 -> 1 -> 3 and 0 -> 2 -> 3; the cheap edges are 0->1 and 2->3.
        let mut network = Network::new(4);
        for (from, to, capacity) in [(0, 1, 1.0), (1, 3, 5.0), (0, 2, f64::INFINITY), (2, 3, 2.0), (1, 2, 1.0)] {
            network.edge(from, to, capacity);
        }
        assert_eq!(network.source_side(0, 3), Some(vec![true, false, true, false]));
    }

    #[test]
    fn says_when_nothing_separates() {
        let mut network = Network::new(3);
        network.edge(0, 1, f64::INFINITY);
        network.edge(1, 2, f64::INFINITY);
        assert_eq!(network.source_side(0, 2), None);
    }
}
