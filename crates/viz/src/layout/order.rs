//! The order in each row: every cell goes where its neighbors are, sweeping down and up a few times.
//!
//! The barycentre rule: it does not find the fewest crossings, which is hard, but few, in time that sorting takes. Of all
//! sweeps the best is kept.

use super::Rows;

/// After these, little changes.
const SWEEPS: usize = 8;

/// Sorts the cells of every row so that arrows cross little.
pub(super) fn reduce_crossings(rows: &mut Rows) {
    let mut order: Vec<Vec<usize>> = rows.cells.iter().map(|row| (0..row.len()).collect()).collect();
    let mut best = (crossings(rows, &order), order.clone());
    for sweep in 0..SWEEPS {
        if best.0 == 0 {
            break;
        }
        if sweep % 2 == 0 {
            (1..order.len()).for_each(|r| sort(&mut order, r, r - 1, rows.links[r - 1].iter().map(|&(a, b)| (b, a))));
        } else {
            let upwards = (0..order.len().saturating_sub(1)).rev();
            upwards.for_each(|r| sort(&mut order, r, r + 1, rows.links[r].iter().copied()));
        }
        let count = crossings(rows, &order);
        if count < best.0 {
            best = (count, order.clone());
        }
    }
    rows.reorder(&best.1);
}

fn places(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &cell)| places[cell] = place);
    places
}

/// Sorts row `r` by the mean place of each cell's neighbors in row `by`; a cell without any keeps its place.
fn sort(order: &mut [Vec<usize>], r: usize, by: usize, links: impl Iterator<Item = (usize, usize)>) {
    let neighbors = places(&order[by]);
    let mut sums = vec![(0.0, 0.0); order[r].len()];
    for (cell, neighbor) in links {
        sums[cell].0 += neighbors[neighbor] as f64;
        sums[cell].1 += 1.0;
    }
    // Rows differ in length: places are compared as shares of their row.
    let share = (neighbors.len() as f64).max(1.0) / (order[r].len() as f64).max(1.0);
    let mut keyed: Vec<(f64, usize)> = order[r]
        .iter()
        .enumerate()
        .map(|(place, &cell)| match sums[cell] {
            (_, 0.0) => (place as f64 * share, cell),
            (sum, count) => (sum / count, cell),
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    order[r] = keyed.into_iter().map(|(_, cell)| cell).collect();
}

/// How many pairs of connections cross, by counting inversions with a Fenwick tree.
fn crossings(rows: &Rows, order: &[Vec<usize>]) -> usize {
    let mut total = 0;
    for (r, links) in rows.links.iter().enumerate() {
        let (above, below) = (places(&order[r]), places(&order[r + 1]));
        let mut ends: Vec<(usize, usize)> = links.iter().map(|&(a, b)| (above[a], below[b])).collect();
        ends.sort_unstable();
        let mut tree = vec![0usize; below.len() + 1];
        for (seen, &(_, end)) in ends.iter().enumerate() {
            let mut at = end + 1;
            let mut not_right = 0;
            while at > 0 {
                not_right += tree[at];
                at &= at - 1;
            }
            total += seen - not_right;
            let mut at = end + 1;
            while at < tree.len() {
                tree[at] += 1;
                at += at & at.wrapping_neg();
            }
        }
    }
    total
}
