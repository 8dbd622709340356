//! Sums of gradients on a rank that has several shards of a step.
//!
//! A rank computes its shards one after another and adds their gradients along the tree ([`crate::tree`]) as a binary counter
//! adds ones: it never holds more than one sum for each power of two. The bits are those of as many ranks with one shard
//! each.

use crate::{Error, Result};
use firebrand_core::Tensor;
use firebrand_core::autograd::no_grad;

/// An error if the shards cannot be divided so that each rank has a whole subtree.
pub fn check_shards(shards: usize, ranks: usize) -> Result<()> {
    if ranks > 0 && shards.is_multiple_of(ranks) && (shards / ranks).is_power_of_two() {
        return Ok(());
    }
    let valid: Vec<String> = (0..4).map(|k| (ranks << k).to_string()).collect();
    let message = format!(
        "expected the number of ranks ({ranks}) times a power of two as the number of shards ({}, …), found {shards}",
        valid.join(", ")
    );
    Err(Error::Argument(message))
}

/// Sums over 1, 2, 4, … shards, the largest of the earliest shards; each by parameter.
#[derive(Default)]
pub(crate) struct Partial(Vec<Option<Vec<Option<Tensor>>>>);

impl Partial {
    /// Takes in the gradients of a shard that is not the rank's last.
    pub(crate) fn push(&mut self, mut grads: Vec<Option<Tensor>>) -> Result<()> {
        for level in &mut self.0 {
            let Some(earlier) = level.take() else {
                *level = Some(grads);
                return Ok(());
            };
            let pairs = earlier.into_iter().zip(grads);
            grads = pairs.map(|(a, b)| sum(a, b)).collect::<Result<_>>()?;
        }
        self.0.push(Some(grads));
        Ok(())
    }

    /// The sum for a parameter over all shards, the last of which has this gradient.
    pub(crate) fn total(&mut self, parameter: usize, mut grad: Option<Tensor>) -> Result<Option<Tensor>> {
        for level in self.0.iter_mut().flatten() {
            grad = sum(level[parameter].take(), grad)?;
        }
        Ok(grad)
    }

    /// Whether this rank has other shards in the step.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Begins another step.
    pub(crate) fn clear(&mut self) {
        self.0.clear()
    }
}

/// The sum of two terms, in the memory of one of them. A shard that does not use a parameter adds zeros, as it does in a bucket:
/// that turns negative zeros into positive ones.
fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    let (into, other) = match (a, b) {
        (None, None) => return Ok(None),
        (Some(a), b) => (a, b),
        (None, Some(b)) => (b, None),
    };
    no_grad(|| match &other {
        Some(other) => into.try_add_(other).map(drop),
        None => into.try_add_(0.0).map(drop),
    })?;
    Ok(Some(into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;
    use firebrand_core::DType;

    #[test]
    fn shards_are_shared_by_powers_of_two() {
        for (shards, ranks, valid) in
            [(1, 1, true), (4, 1, true), (4, 2, true), (6, 3, true), (3, 1, false), (6, 2, false), (2, 4, false)]
        {
            assert_eq!(check_shards(shards, ranks).is_ok(), valid, "{shards} shards, {ranks} ranks");
        }
        let message = check_shards(5, 2).expect_err("refused").to_string();
        assert!(message.contains("(2, 4, 8, 16, …), found 5"), "{message}");
    }

    #[test]
    fn the_counter_adds_along_the_tree() {
        for shards in [1, 2, 4, 8, 16] {
            firebrand_core::random::manual_seed(shards);
            let terms: Vec<Tensor> = (0..shards).map(|_| Tensor::randn([500], DType::F32) * 1e3).collect();
            let mut partial = Partial::default();
            let (last, earlier) = terms.split_last().expect("at least one");
            earlier.iter().for_each(|t| partial.push(vec![Some(t.clone_tensor()), None]).expect("one shape"));
            let found = partial.total(0, Some(last.clone_tensor())).expect("one shape").expect("a sum");
            assert!(partial.total(1, None).expect("nothing").is_none());
            tree::sum_into_first(&terms).expect("one shape");
            assert_eq!(found.to_vec::<f32>(), terms[0].to_vec::<f32>(), "{shards} shards");
        }
    }

    #[test]
    fn what_is_not_used_adds_zeros() {
        let negative = || Some(Tensor::new(&[-0.0f32]));
        for (a, b) in [(negative(), None), (None, negative())] {
            let sum = sum(a, b).expect("one shape").expect("a sum");
            assert_eq!(sum.to_vec::<f32>()[0].to_bits(), 0);
        }
    }
}
