//! Communication hooks: user code in place of the sum of a bucket over all ranks.

use crate::collectives::Collectives;
use crate::link::Link;
use crate::{Error, Result};
use firebrand_core::Tensor;
use firebrand_core::autograd::no_grad;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A bucket of gradients that is complete on this rank.
#[derive(Debug)]
#[non_exhaustive]
pub struct GradBucket {
    /// Its number in the order of communication, from 0.
    pub index: usize,
    /// Whether it is the last one of the pass.
    pub is_last: bool,
    /// The names of its parameters, in order.
    pub parameters: Vec<String>,
    /// Their gradients, flattened one after another.
    pub buffer: Tensor,
}

/// The function that replaces the sum.
pub(crate) type CommHook = Arc<dyn Fn(&GradBucket, &mut Collectives<'_>) -> Result<Tensor> + Send + Sync>;

/// Runs the hook on the communication thread, and stores its result where the gradients are.
pub(crate) fn run(hook: &CommHook, link: &mut dyn Link, rank: usize, size: usize, bucket: &GradBucket) -> Result<()> {
    let call = || hook(bucket, &mut Collectives::new(link, rank, size));
    // The thread must survive, or the reason would be lost.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        Err(Error::Argument(format!("a communication hook panicked: {}", text.unwrap_or("without a message"))))
    })?;
    let describe = |t: &Tensor| format!("{} {:?}", t.dtype(), t.shape());
    let (expected, found) = (describe(&bucket.buffer), describe(&result));
    if expected != found {
        return Err(Error::Argument(format!(
            "a communication hook must return a tensor like the bucket it gets: expected {expected}, found {found}"
        )));
    }
    Ok(no_grad(|| bucket.buffer.try_copy_(&result.try_detach()?, false).map(drop))?)
}
