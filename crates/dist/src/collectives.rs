//! The collectives on tensors of any shape, on the thread that owns the link.
//!
//! A link moves flat tensors of equal parts; this flattens, pads and restores. [`World`](crate::World) queues these calls, and
//! communication hooks ([`DistributedDataParallel::register_comm_hook`](crate::DistributedDataParallel::register_comm_hook)) make them directly.

use crate::link::Link;
use crate::reduce::{all_reduce, padded};
use crate::{Error, Result};
use firebrand_core::Tensor;
use firebrand_core::autograd::no_grad;

/// The collectives that a communication hook may call. All ranks must make the same calls in the same order.
pub struct Collectives<'a> {
    link: &'a mut dyn Link,
    rank: usize,
    size: usize,
}

impl std::fmt::Debug for Collectives<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collectives(rank {} of {})", self.rank, self.size)
    }
}

impl<'a> Collectives<'a> {
    pub(crate) fn new(link: &'a mut dyn Link, rank: usize, size: usize) -> Self {
        Collectives { link, rank, size }
    }

    /// The rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The sum over all ranks, bitwise identical on every rank. Shape and dtype must be the same on all.
    pub fn all_reduce(&mut self, t: &Tensor) -> Result<Tensor> {
        let flat = self.flat(t)?;
        all_reduce(self.link, self.size, &flat)?;
        unflatten(&flat, t)
    }

    /// The tensors of all ranks, in order. Shape and dtype must be the same on all.
    pub fn all_gather(&mut self, t: &Tensor) -> Result<Vec<Tensor>> {
        let send = no_grad(|| t.try_detach()?.try_contiguous()?.try_flatten(0, -1))?;
        let n = send.shape()[0];
        let all = Tensor::zeros([(n * self.size) as i64], t.dtype());
        self.link.all_gather(&send, &all)?;
        (0..self.size).map(|k| unflatten(&no_grad(|| all.try_narrow(0, k * n, n))?, t)).collect()
    }

    /// Overwrites the tensor with that of rank `root`.
    pub fn broadcast(&mut self, t: &Tensor, root: usize) -> Result<()> {
        if root >= self.size {
            return Err(Error::Argument(format!("expected a rank below {}, found {root}", self.size)));
        }
        let flat = self.flat(t)?;
        self.link.broadcast(root, &flat)?;
        no_grad(|| t.try_copy_(&unflatten(&flat, t)?, false).map(drop).map_err(Error::from))
    }

    /// A copy as one row, long enough to be cut into equal parts.
    fn flat(&self, t: &Tensor) -> Result<Tensor> {
        let n = t.numel();
        let flat = Tensor::zeros([padded(n, self.size) as i64], t.dtype());
        no_grad(|| flat.try_narrow(0, 0, n)?.try_copy_(&t.try_detach()?.try_reshape([n as i64])?, false).map(drop))?;
        Ok(flat)
    }
}

/// The front of a flat tensor, in the shape of another.
fn unflatten(flat: &Tensor, like: &Tensor) -> Result<Tensor> {
    Ok(no_grad(|| flat.try_narrow(0, 0, like.numel())?.try_view(like.shape()))?)
}
