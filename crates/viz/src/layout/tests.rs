//! Tests of the layout's guarantees.

use super::*;
use crate::drawing::{Class, Group, Node};

fn drawing(groups: &[Option<usize>], nodes: &[usize], edges: &[(usize, usize)]) -> Drawing {
    let node = |&group: &usize| Node {
        label: String::new(),
        kind: String::new(),
        class: Class::Op,
        group,
        details: Vec::new(),
        bytes: None,
    };
    Drawing {
        title: String::new(),
        summary: String::new(),
        nodes: nodes.iter().map(node).collect(),
        edges: edges.iter().map(|&(a, b)| Edge(a, b)).collect(),
        groups: groups.iter().map(|&parent| Group { parent, ..Group::default() }).collect(),
    }
}

/// The rows of a level as sets, lanes as `-1`.
fn rows(level: &Level) -> Vec<Vec<i64>> {
    let row = |row: &Vec<i64>| {
        let mut row: Vec<i64> = row.iter().map(|&c| c.max(-1)).collect();
        row.sort_unstable();
        row
    };
    level.rows.iter().map(row).collect()
}

#[test]
fn arrows_lead_down_and_pass_rows_in_lanes() {
    // 0 -> 1 -> 2 -> 3 and 0 -> 3; 4 is a parameter of 3.
    let levels = layout(&drawing(&[None], &[0; 5], &[(0, 1), (0, 3), (1, 2), (2, 3), (4, 3)]));
    assert_eq!(rows(&levels[0]), [vec![0], vec![-1, 1], vec![-1, 2, 4], vec![3]]);
    assert_eq!(levels[0].sources, [0]);
}

#[test]
fn a_group_is_one_item_and_has_rows_of_its_own() {
    // 0 -> [1 -> 2] -> 3, and 0 -> 2 past 1; code 4 is the root, 5 the group.
    let levels = layout(&drawing(&[None, Some(0)], &[0, 1, 1, 0], &[(0, 1), (0, 2), (1, 2), (2, 3)]));
    assert_eq!(rows(&levels[0]), [[0], [5], [3]]);
    assert_eq!(rows(&levels[1]), [vec![-1, 1], vec![2]]);
    assert_eq!(levels[1].sources, [0], "the lane belongs to the node outside");
}

#[test]
fn groups_that_lead_to_each_other_are_drawn_anyway() {
    // [0, 2] and [1, 3] with 0 -> 1 -> 2 -> 3: the groups run in a circle.
    let levels = layout(&drawing(&[None, Some(0), Some(0)], &[1, 2, 1, 2], &[(0, 1), (1, 2), (2, 3)]));
    assert_eq!(rows(&levels[0]).concat(), [5, 6]);
}

#[test]
fn crossings_are_undone() {
    // Two chains, written down crosswise.
    let levels = layout(&drawing(&[None], &[0; 6], &[(0, 3), (1, 2), (2, 5), (3, 4)]));
    let level = &levels[0];
    for a in &level.links {
        for b in level.links.iter().filter(|b| b[0] == a[0]) {
            assert_eq!(a[1].cmp(&b[1]), a[2].cmp(&b[2]), "{:?}", level.links);
        }
    }
}

/// Tens of thousands of nodes, all of whose values are used again far below.
#[test]
fn large_graphs_take_linear_space() {
    let n = 20_000;
    let chain = (1..n).map(|i| (i - 1, i));
    let far = (0..n / 2).map(|i| (i, n - 1 - i)).filter(|&(a, b)| a + 1 < b);
    let mut edges: Vec<(usize, usize)> = chain.chain(far).collect();
    edges.sort_unstable();
    let levels = layout(&drawing(&[None], &vec![0; n], &edges));
    assert_eq!(levels[0].rows.len(), n);
    let cells: usize = levels[0].rows.iter().map(Vec::len).sum();
    assert!(cells < 3 * n, "{cells}");
}
