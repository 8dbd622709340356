//! Rows: every arrow leads to a later row, unless arrows form a cycle.
//!
//! Between items that are single nodes they never do. Groups can: a block may call something that calls into the block
//! again. Then the item that appeared first is taken first, and arrows back to it are not counted.

use super::Content;

/// The row of every item.
pub(super) fn ranks(content: &Content) -> Vec<usize> {
    let count = content.items.len();
    let (mut next, mut previous) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(a, b) in &content.edges {
        next[a].push(b);
        previous[b].push(a);
    }
    let order = order(&next, &previous);
    let mut number = vec![0; count];
    order.iter().enumerate().for_each(|(k, &i)| number[i] = k);
    let onward = |a: usize, b: usize| number[a] < number[b];

    // The longest way from the top.
    let mut rank = vec![0; count];
    for &i in &order {
        let above = previous[i].iter().filter(|&&p| onward(p, i)).map(|&p| rank[p] + 1);
        rank[i] = above.max().unwrap_or(0);
    }
    // What has more arrows below than above hangs as low as it can, such as parameters and what only rearranges them.
    let mut above: Vec<usize> = previous.iter().map(Vec::len).collect();
    content.incoming.iter().for_each(|&(_, i)| above[i] += 1);
    for &i in order.iter().rev() {
        let below = next[i].iter().filter(|&&n| onward(i, n)).map(|&n| rank[n]).min();
        if let (Some(below), true) = (below, above[i] <= next[i].len()) {
            rank[i] = below - 1;
        }
    }
    // No row is empty.
    let mut used = vec![false; rank.iter().max().map_or(0, |r| r + 1)];
    rank.iter().for_each(|&r| used[r] = true);
    let mut rows = 0;
    let row: Vec<usize> = used.iter().map(|&u| (rows, rows += usize::from(u)).0).collect();
    rank.iter().map(|&r| row[r]).collect()
}

/// All items, each behind what leads to it; where that runs in circles, the first that is left comes next.
fn order(next: &[Vec<usize>], previous: &[Vec<usize>]) -> Vec<usize> {
    let mut waiting: Vec<usize> = previous.iter().map(Vec::len).collect();
    let mut placed = vec![false; next.len()];
    let mut order: Vec<usize> = (0..next.len()).filter(|&i| waiting[i] == 0).collect();
    order.iter().for_each(|&i| placed[i] = true);
    let (mut at, mut first_left) = (0, 0);
    loop {
        while let Some(&i) = order.get(at) {
            at += 1;
            for &n in &next[i] {
                waiting[n] -= 1;
                if waiting[n] == 0 && !placed[n] {
                    placed[n] = true;
                    order.push(n);
                }
            }
        }
        while first_left < placed.len() && placed[first_left] {
            first_left += 1;
        }
        if first_left == placed.len() {
            return order;
        }
        placed[first_left] = true;
        order.push(first_left);
    }
}
