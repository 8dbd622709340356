//! Lanes: the cells through which arrows pass rows.

use super::{Cell, Code, Content, Rows, positions};
use std::collections::{BTreeMap, HashSet};

/// An arrow over more rows than this has no lane and is drawn straight: a lane in each of a thousand rows for each of a
/// thousand arrows is neither readable nor linear.
const LONGEST: usize = 80;

/// Where an arrow starts in this group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// At an item.
    Item(usize),
    /// At a node outside: it comes in at the top.
    Outside(Code),
}

/// The rows with their lanes, in an order that nothing was done for yet.
pub(super) fn with_lanes(content: &Content, rank: &[usize]) -> Rows {
    let height = rank.iter().max().map_or(0, |r| r + 1);
    let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); height];
    rank.iter().enumerate().for_each(|(i, &r)| cells[r].push(Cell::Item(i)));

    // For each source, the rows where its arrows end; past the last row where they leave.
    let mut ends: BTreeMap<Source, Vec<(usize, Option<usize>)>> = BTreeMap::new();
    for &(a, b) in content.edges.iter().filter(|&&(a, b)| rank[b] > rank[a]) {
        ends.entry(Source::Item(a)).or_default().push((rank[b], Some(b)));
    }
    for (i, _) in content.leaves.iter().enumerate().filter(|(_, leaves)| **leaves) {
        ends.entry(Source::Item(i)).or_default().push((height, None));
    }
    for &(code, i) in &content.incoming {
        ends.entry(Source::Outside(code)).or_default().push((rank[i], Some(i)));
    }

    let mut sources = Vec::new();
    // Connections by row, from cell to cell of the next.
    let mut pairs: Vec<HashSet<(Cell, Cell)>> = vec![HashSet::new(); height];
    for (source, ends) in ends {
        let first = match source {
            Source::Item(i) => rank[i] + 1,
            Source::Outside(_) => 0,
        };
        let reach = |&&(row, _): &&(usize, Option<usize>)| row - first <= LONGEST;
        let last = ends.iter().filter(reach).map(|&(row, _)| row).max().unwrap_or(first);
        let lane = Cell::Lane(sources.len());
        if last > first {
            sources.push(match source {
                Source::Item(i) => content.items[i],
                Source::Outside(code) => code,
            });
            cells[first..last].iter_mut().for_each(|row| row.push(lane));
            (first + 1..last).for_each(|row| {
                pairs[row - 1].insert((lane, lane));
            });
        }
        if let (Source::Item(i), true) = (source, last > first) {
            pairs[first - 1].insert((Cell::Item(i), lane));
        }
        for &(row, end) in ends.iter().filter(reach) {
            let above = match source {
                Source::Item(i) if row == first => Some(Cell::Item(i)),
                Source::Outside(_) if row == 0 => None,
                _ => Some(lane),
            };
            if let (Some(above), Some(end)) = (above, end) {
                pairs[row - 1].insert((above, Cell::Item(end)));
            }
        }
    }

    let links = pairs.iter().zip(cells.windows(2)).map(|(pairs, rows)| {
        let (above, below) = (positions(&rows[0]), positions(&rows[1]));
        let mut links: Vec<(usize, usize)> = pairs.iter().map(|(a, b)| (above[a], below[b])).collect();
        links.sort_unstable();
        links
    });
    Rows { links: links.collect(), cells, sources }
}
