//! The transport between ranks: the interface that MPI and threads implement.
//!
//! A link belongs to one thread, which makes one call at a time; all ranks make the same calls in the same order. Tensors
//! are one-dimensional, contiguous and of the same length and dtype on all ranks.

use crate::Result;
use firebrand_core::Tensor;

/// The collectives of one rank. Each returns when this rank has what it needs, or with an error after the time-out. After
/// an error the link is unusable.
pub(crate) trait Link: Send {
    /// Part `i` of `send` goes to rank `i`; part `i` of `receive` comes from it. There are as many parts as ranks.
    fn all_to_all(&mut self, send: &Tensor, receive: &Tensor) -> Result<()>;

    /// `receive` becomes the `send` of every rank, one after another.
    fn all_gather(&mut self, send: &Tensor, receive: &Tensor) -> Result<()>;

    /// Overwrites `tensor` with that of rank `root`.
    fn broadcast(&mut self, root: usize, tensor: &Tensor) -> Result<()>;

    /// Tells the other ranks that this one cannot continue; with MPI this ends the job.
    fn fail(&mut self, reason: &str);

    /// Leaves the world in good order.
    fn finish(&mut self) -> Result<()>;
}
