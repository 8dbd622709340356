//! unique: distinct elements, where each went and how many there were.

use super::{Packed, keys, nan_key, with_packed};
use crate::walk::{for_runs, last};
use crate::{View, scratch};

/// The distinct elements of a tensor, by their positions in logical order; `index::take` fetches the values.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Unique {
    /// Position of the first of each distinct element.
    pub positions: Vec<i64>,
    /// For every element, which distinct one it is.
    pub inverse: Vec<i64>,
    /// How many there are of each.
    pub counts: Vec<i64>,
}

/// Distinct elements in ascending order, or with `consecutive` the runs of equal neighbors in logical order.
///
/// No NaN equals another, so each is distinct.
pub fn unique(input: &View, consecutive: bool) -> Unique {
    let nan = nan_key(input.dtype());
    with_packed!(input.dtype(), input.numel(), P => {
        let mut all: Vec<P> = scratch::room(input.numel());
        for_runs(input.sizes(), [input.strides()], 0..input.numel(), |[at], len| {
            // SAFETY: the walk stays within the view.
            unsafe { keys(input, at, last(input.strides()), len, |key| all.push(P::pack(key, all.len()))) }
        });
        if !consecutive {
            all.sort_unstable();
        }
        let mut unique = Unique {
            inverse: scratch::filled(0, all.len()),
            positions: scratch::room(all.len()),
            counts: scratch::room(all.len()),
        };
        let mut before = None;
        for p in all {
            if before != Some(p.key()) || Some(p.key()) == nan {
                unique.positions.push(p.at() as i64);
                unique.counts.push(0);
            }
            before = Some(p.key());
            let group = unique.counts.len() - 1;
            unique.counts[group] += 1;
            unique.inverse[p.at()] = group as i64;
        }
        unique
    })
}
