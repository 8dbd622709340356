//! Argument checks of the generated ops on lists of tensors, before the first element is touched.

use crate::{Error, Result, Tensor};

/// Lists are not empty and equally long; a tensor that serves every element is a single number.
pub(crate) fn check(op: &'static str, lengths: &[usize], shared: &[&Tensor]) -> Result<()> {
    let first = lengths.first().copied().unwrap_or(0);
    if first == 0 {
        return Err(Error::argument(op, "expected lists with at least one tensor, found an empty one"));
    }
    if let Some(other) = lengths.iter().find(|n| **n != first) {
        let message = format!("expected lists of equal length, found {first} and {other} elements");
        return Err(Error::argument(op, message));
    }
    if let Some(t) = shared.iter().find(|t| t.ndim() != 0) {
        let message = format!("expected a tensor of 0 dimensions for all elements, found shape {:?}", t.shape());
        return Err(Error::argument(op, message));
    }
    Ok(())
}
