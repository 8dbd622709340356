//! The order of sums: a fixed binary tree over the numbers 0 to n.
//!
//! Floating-point addition is not associative, so the order of a sum is part of its result. Here the order is a function of
//! the number of terms alone. The left part of n terms is the largest power of two below n; both parts are summed in the
//! same way, then added. A rank that holds a run of 2^k terms from a multiple of 2^k on holds a whole subtree: it may add them on its own,
//! and the bits do not change.

use firebrand_core::autograd::no_grad;
use firebrand_core::{Result, Tensor};

/// The additions of a sum of `n` terms, in order: `(a, b)` means that term `b` is added to term `a`. The sum ends up in
/// term 0.
///
/// ```
/// assert_eq!(firebrand_dist::tree::additions(4), [(0, 1), (2, 3), (0, 2)]);
/// assert_eq!(firebrand_dist::tree::additions(3), [(0, 1), (0, 2)]);
/// ```
pub fn additions(n: usize) -> Vec<(usize, usize)> {
    fn walk(first: usize, n: usize, list: &mut Vec<(usize, usize)>) {
        if n < 2 {
            return;
        }
        let left = n.next_power_of_two() / 2;
        walk(first, left, list);
        walk(first + left, n - left, list);
        list.push((first, first + left));
    }
    let mut list = Vec::with_capacity(n.saturating_sub(1));
    walk(0, n, &mut list);
    list
}

/// Adds up tensors of one shape in the order of the tree. The sum is in the first; the others are scratch afterwards.
/// Half-precision terms are added in f32 and rounded after each addition, so that a subtree's sum is a term like any other.
pub fn sum_into_first(terms: &[Tensor]) -> Result<()> {
    no_grad(|| {
        for (a, b) in additions(terms.len()) {
            terms[a].try_add_(&terms[b])?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::DType;

    #[test]
    fn every_term_is_added_once() {
        for n in 1..40 {
            let mut gone = vec![false; n];
            for (a, b) in additions(n) {
                assert!(a < b && !gone[a] && !gone[b], "{n} terms: {a} + {b}");
                gone[b] = true;
            }
            assert_eq!(gone.iter().filter(|g| !**g).count(), 1, "{n} terms");
            assert!(!gone[0]);
        }
    }

    /// Sums of subtrees, made apart, give the bits of the whole sum.
    #[test]
    fn subtrees_may_be_summed_apart() {
        for shards in [2, 4, 6, 8, 12, 16] {
            firebrand_core::random::manual_seed(shards as u64);
            let terms: Vec<Tensor> = (0..shards).map(|_| Tensor::randn([1000], DType::F32) * 1e3).collect();
            let copy = |of: &[Tensor]| -> Vec<Tensor> { of.iter().map(|t| t.clone_tensor()).collect() };
            let whole = copy(&terms);
            sum_into_first(&whole).expect("one shape");
            for each in [1, 2, 4, 8].into_iter().filter(|k| shards % k == 0) {
                let parts: Vec<Tensor> = terms
                    .chunks(each)
                    .map(|part| {
                        let part = copy(part);
                        sum_into_first(&part).expect("one shape");
                        part[0].clone()
                    })
                    .collect();
                sum_into_first(&parts).expect("one shape");
                assert_eq!(parts[0].to_vec::<f32>(), whole[0].to_vec::<f32>(), "{shards} shards, {each} on a rank");
            }
        }
    }
}
