//! Layout: for every group its rows, and the order in each row.
//!
//! A group is laid out on its own, with what it holds as single items, so that opening or closing one changes sizes but no
//! row and no order elsewhere. Arrows lead from row to later row. An arrow that passes rows on its way has a narrow lane
//! in each of them, so that it runs between the boxes and not through them; all arrows from one item share its lanes, and
//! so do arrows that come into the group from the same node outside.
//!
//! `rank` finds the rows, `lanes` the lanes, `order` the order. Nothing recurses and each step is linear in what it sees;
//! an arrow is seen once in every group that it passes.

mod lanes;
mod order;
mod rank;

use crate::drawing::{Drawing, Edge};
use serde::Serialize;
use std::collections::HashMap;

/// A group's content, in rows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Level {
    /// In each row, items from left to right: nodes and groups as [`Code`], lanes as `-1 - i` for `sources[i]`.
    pub(crate) rows: Vec<Vec<i64>>,
    /// Whose arrows a lane carries: an item of this group, or a node outside.
    pub(crate) sources: Vec<Code>,
    /// What is connected from one row to the next: row, position in it, position in the row below.
    pub(crate) links: Vec<[u32; 3]>,
}

/// A node by its number, or a group as the number of nodes plus its own.
pub(crate) type Code = usize;

/// What one group sees of the graph: its items and the arrows at them. Items are numbered in order of appearance.
#[derive(Default)]
struct Content {
    items: Vec<Code>,
    /// Between items, sorted, each once.
    edges: Vec<(usize, usize)>,
    /// Node outside and item.
    incoming: Vec<(Code, usize)>,
    /// Which items have arrows that leave the group.
    leaves: Vec<bool>,
}

/// The layout of every group.
pub(crate) fn layout(drawing: &Drawing) -> Vec<Level> {
    contents(drawing).iter().map(arrange).collect()
}

/// Rows, lanes and order of one group.
fn arrange(content: &Content) -> Level {
    let ranks = rank::ranks(content);
    let mut rows = lanes::with_lanes(content, &ranks);
    order::reduce_crossings(&mut rows);
    rows.level(content)
}

/// Hands every node, group and edge to the groups that see it.
fn contents(drawing: &Drawing) -> Vec<Content> {
    let count = drawing.nodes.len();
    let mut contents: Vec<Content> = Vec::new();
    contents.resize_with(drawing.groups.len(), Content::default);
    // By code: the group around it, and its number there.
    let mut place = vec![(0, 0); count + drawing.groups.len()];
    let mut put = |contents: &mut Vec<Content>, group: usize, code: Code| {
        place[code] = (group, contents[group].items.len());
        contents[group].items.push(code);
    };
    for (g, group) in drawing.groups.iter().enumerate() {
        group.parent.inspect(|&parent| put(&mut contents, parent, count + g));
    }
    drawing.nodes.iter().enumerate().for_each(|(n, node)| put(&mut contents, node.group, n));
    contents.iter_mut().for_each(|c| c.leaves = vec![false; c.items.len()]);
    let depth = depths(drawing);
    for &Edge(from, to) in &drawing.edges {
        let (mut a, mut b) = (from, to);
        // Both ends climb until they meet in one group, the deeper one first.
        while place[a].0 != place[b].0 {
            let (ga, gb) = (place[a].0, place[b].0);
            if depth[ga] >= depth[gb] {
                contents[ga].leaves[place[a].1] = true;
                a = count + ga;
            }
            if depth[gb] >= depth[ga] {
                contents[gb].incoming.push((from, place[b].1));
                b = count + gb;
            }
        }
        if a != b {
            contents[place[a].0].edges.push((place[a].1, place[b].1));
        }
    }
    for content in &mut contents {
        content.edges.sort_unstable();
        content.edges.dedup();
        content.incoming.sort_unstable();
        content.incoming.dedup();
    }
    contents
}

fn depths(drawing: &Drawing) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(drawing.groups.len());
    for group in &drawing.groups {
        depths.push(group.parent.map_or(0, |p| depths[p] + 1));
    }
    depths
}

/// A cell of a row, before its order is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Item(usize),
    Lane(usize),
}

/// Rows of cells with the connections between neighboring rows.
struct Rows {
    cells: Vec<Vec<Cell>>,
    /// For each row, pairs of positions: in it, and in the next.
    links: Vec<Vec<(usize, usize)>>,
    sources: Vec<Code>,
}

impl Rows {
    fn level(self, content: &Content) -> Level {
        let code = |cell: &Cell| match *cell {
            Cell::Item(i) => content.items[i] as i64,
            Cell::Lane(k) => -1 - k as i64,
        };
        let rows = self.cells.iter().map(|row| row.iter().map(code).collect()).collect();
        let link = |(r, links): (usize, &Vec<(usize, usize)>)| -> Vec<[u32; 3]> {
            links.iter().map(|&(i, j)| [r as u32, i as u32, j as u32]).collect()
        };
        Level { rows, sources: self.sources, links: self.links.iter().enumerate().flat_map(link).collect() }
    }

    /// Puts every row into a new order: `orders[r][k]` is the old position of the cell that comes `k`-th.
    fn reorder(&mut self, orders: &[Vec<usize>]) {
        let new_position = |order: &Vec<usize>| {
            let mut position = vec![0; order.len()];
            order.iter().enumerate().for_each(|(new, &old)| position[old] = new);
            position
        };
        let positions: Vec<Vec<usize>> = orders.iter().map(new_position).collect();
        for (r, order) in orders.iter().enumerate() {
            self.cells[r] = order.iter().map(|&old| self.cells[r][old]).collect();
        }
        for (r, links) in self.links.iter_mut().enumerate() {
            links.iter_mut().for_each(|(i, j)| (*i, *j) = (positions[r][*i], positions[r + 1][*j]));
            links.sort_unstable();
        }
    }
}

/// Positions by cell, of one row.
fn positions(row: &[Cell]) -> HashMap<Cell, usize> {
    row.iter().enumerate().map(|(i, &cell)| (cell, i)).collect()
}

#[cfg(test)]
mod tests;
