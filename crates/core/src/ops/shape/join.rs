//! Shapes of concatenating, repeating, flipping and padding.

use super::{wrap_dim, wrap_dims};
use crate::dtype::Promotion;
use crate::layout::{Dims, checked_numel};
use crate::sym::SymInt;
use crate::{Error, ErrorKind, Result, Spec, Tensor};

/// A vector without elements, which `cat` skips whatever the others' dimensions.
pub(crate) fn is_skipped(sizes: &[usize]) -> bool {
    sizes == [0]
}

fn joined_type(tensors: &[Tensor]) -> (crate::DType, crate::Device) {
    let promotion = tensors.iter().fold(Promotion::default(), |p, t| p.tensor(t));
    (promotion.result(), tensors.first().map_or_else(Default::default, Tensor::device))
}

/// `cat`.
pub(crate) fn cat(op: &'static str, tensors: &[Tensor], dim: i64) -> Result<Spec> {
    if let Some(t) = tensors.iter().find(|t| t.ndim() == 0) {
        return Err(Error::argument(op, format!("a 0-dim tensor ({}) cannot be concatenated; use stack", t.dtype())));
    }
    let Some(first) = tensors.iter().find(|t| !is_skipped(t.shape())).or(tensors.first()) else {
        return Err(Error::argument(op, "the list of tensors is empty"));
    };
    let d = wrap_dim(op, dim, first.ndim())?;
    let mut sizes = first.dims();
    sizes[d] = 0;
    for t in tensors.iter().filter(|t| !is_skipped(t.shape())) {
        let fits = t.ndim() == sizes.len() && (0..sizes.len()).all(|k| k == d || t.shape()[k] == sizes[k]);
        if !fits {
            let m = format!(
                "shapes {:?} and {:?} differ outside dimension {d}, along which they are concatenated",
                first.shape(),
                t.shape()
            );
            return Err(Error::argument(op, m));
        }
        sizes[d] += t.shape()[d];
    }
    let (dtype, device) = joined_type(tensors);
    Spec::new(&sizes, dtype, device)
}

/// `stack`.
pub(crate) fn stack(op: &'static str, tensors: &[Tensor], dim: i64) -> Result<Spec> {
    let Some(first) = tensors.first() else {
        return Err(Error::argument(op, "the list of tensors is empty"));
    };
    let d = wrap_dim(op, dim, first.ndim() + 1)?;
    if let Some(t) = tensors.iter().find(|t| t.shape() != first.shape()) {
        let m = format!("all tensors must have one shape, found {:?} and {:?}", first.shape(), t.shape());
        return Err(Error::argument(op, m));
    }
    let mut sizes = first.dims();
    sizes.insert(d, tensors.len());
    let (dtype, device) = joined_type(tensors);
    Spec::new(&sizes, dtype, device)
}

/// `repeat`.
pub(crate) fn repeat(op: &'static str, self_: &Tensor, repeats: &[SymInt]) -> Result<Spec> {
    let counts = crate::sym::checked_sizes(op, repeats)?;
    if counts.len() < self_.ndim() {
        let m = format!("{} repeats for a tensor with {} dimensions; give one for each", counts.len(), self_.ndim());
        return Err(Error::argument(op, m));
    }
    let lead = counts.len() - self_.ndim();
    let mut sizes = Dims::new();
    for (k, &r) in counts.iter().enumerate() {
        let n = if k < lead { 1 } else { self_.shape()[k - lead] };
        sizes.push(n.checked_mul(r).ok_or_else(|| Error::argument(op, format!("the repeats {repeats:?} overflow")))?);
    }
    Spec::new(&sizes, self_.dtype(), self_.device())
}

fn same(self_: &Tensor) -> Spec {
    Spec { layout: self_.layout().dense_like(), dtype: self_.dtype(), device: self_.device() }
}

/// `flip`.
pub(crate) fn flip(op: &'static str, self_: &Tensor, dims: &[i64]) -> Result<Spec> {
    wrap_dims(op, dims, self_.ndim())?;
    Ok(same(self_))
}

/// `roll`.
pub(crate) fn roll(op: &'static str, self_: &Tensor, shifts: &[SymInt], dims: &[i64]) -> Result<Spec> {
    let expected = if dims.is_empty() { 1 } else { dims.len() };
    if shifts.len() != expected {
        let m = format!("{} shifts for {expected} dimensions", shifts.len());
        return Err(Error::argument(op, m));
    }
    for &d in dims {
        wrap_dim(op, d, self_.ndim())?;
        if self_.ndim() == 0 {
            return Err(Error::argument(op, format!("dimension {d} of a tensor that has none")));
        }
    }
    Ok(same(self_))
}

/// `tril`, `triu`.
pub(crate) fn triangle(op: &'static str, self_: &Tensor, _diagonal: SymInt) -> Result<Spec> {
    if self_.ndim() < 2 {
        return Err(Error::argument(op, format!("needs at least 2 dimensions, found shape {:?}", self_.shape())));
    }
    Ok(same(self_))
}

/// Amounts before and after each padded dimension, in the order of dimensions; they are given last dimension first.
pub(crate) fn pads(padding: &[SymInt]) -> Vec<(i64, i64)> {
    padding.chunks_exact(2).rev().map(|p| (p[0].int(), p[1].int())).collect()
}

/// The sizes after padding the trailing dimensions.
fn padded(op: &'static str, self_: &Tensor, padding: &[SymInt]) -> Result<Dims> {
    if !padding.len().is_multiple_of(2) || padding.len() / 2 > self_.ndim() {
        let m = format!(
            "{} amounts for a tensor with {} dimensions; give two for each padded dimension",
            padding.len(),
            self_.ndim()
        );
        return Err(Error::argument(op, m));
    }
    let mut sizes = self_.dims();
    let first = sizes.len() - padding.len() / 2;
    for (n, (before, after)) in sizes[first..].iter_mut().zip(pads(padding)) {
        let size = i128::from(*n as u64) + i128::from(before) + i128::from(after);
        *n = usize::try_from(size).map_err(|_| {
            Error::argument(op, format!("padding {before} and {after} leaves a dimension of {n} with size {size}"))
        })?;
    }
    if checked_numel(&sizes).is_none() {
        return Err(ErrorKind::SizeOverflow { shape: sizes.to_vec() }.into());
    }
    Ok(sizes)
}

/// `constant_pad_nd`.
pub(crate) fn constant_pad_nd(op: &'static str, self_: &Tensor, pad: &[SymInt], _value: crate::Scalar) -> Result<Spec> {
    // Negative amounts crop first, so there must be as much to crop.
    for (&n, (before, after)) in self_.shape().iter().rev().zip(pads(pad).into_iter().rev()) {
        if before.min(0).unsigned_abs().saturating_add(after.min(0).unsigned_abs()) > n as u64 {
            let m = format!("amounts {before} and {after} crop more than a dimension of {n} has");
            return Err(Error::argument(op, m));
        }
    }
    Spec::new(&padded(op, self_, pad)?, self_.dtype(), self_.device())
}

/// Number of padded dimensions, by the op's name.
fn spatial(op: &str) -> usize {
    if op.contains("1d") {
        1
    } else if op.contains("2d") {
        2
    } else {
        3
    }
}

fn spatial_pad(op: &'static str, self_: &Tensor, padding: &[SymInt]) -> Result<Spec> {
    let n = spatial(op);
    if padding.len() != 2 * n {
        return Err(Error::argument(op, format!("takes {} amounts, found {}", 2 * n, padding.len())));
    }
    let dims = self_.ndim();
    let channels_empty = self_.shape().iter().rev().take(n + 1).any(|&s| s == 0);
    if !(n + 1..=n + 2).contains(&dims) || channels_empty {
        let m = format!(
            "takes {} or {} dimensions of which only the batch may be empty, found shape {:?}",
            n + 1,
            n + 2,
            self_.shape()
        );
        return Err(Error::argument(op, m));
    }
    let sizes = padded(op, self_, padding)?;
    if sizes[dims - n..].contains(&0) {
        return Err(Error::argument(
            op,
            format!("the padding {padding:?} leaves nothing of shape {:?}", self_.shape()),
        ));
    }
    Spec::new(&sizes, self_.dtype(), self_.device())
}

/// `reflection_pad1d` to `3d`.
pub(crate) fn reflection_pad(op: &'static str, self_: &Tensor, padding: &[SymInt]) -> Result<Spec> {
    let spec = spatial_pad(op, self_, padding)?;
    let first = self_.ndim() - spatial(op);
    for (&n, (before, after)) in self_.shape()[first..].iter().zip(pads(padding)) {
        if before >= n as i64 || after >= n as i64 {
            let m = format!("a dimension of size {n} can be mirrored by less than {n}, found {before} and {after}");
            return Err(Error::argument(op, m));
        }
    }
    Ok(spec)
}

/// `replication_pad1d` to `3d`.
pub(crate) fn replication_pad(op: &'static str, self_: &Tensor, padding: &[SymInt]) -> Result<Spec> {
    spatial_pad(op, self_, padding)
}

fn pad_backward(op: &'static str, grad: &Tensor, self_: &Tensor, forward: Spec) -> Result<Spec> {
    if grad.shape() != forward.layout.sizes() {
        let m = format!("gradient of shape {:?}, expected {:?}", grad.shape(), forward.layout.sizes());
        return Err(Error::argument(op, m));
    }
    Spec::new(self_.shape(), grad.dtype(), grad.device())
}

/// The gradients of `reflection_pad1d` to `3d`.
pub(crate) fn reflection_pad_backward(
    op: &'static str,
    grad: &Tensor,
    self_: &Tensor,
    padding: &[SymInt],
) -> Result<Spec> {
    pad_backward(op, grad, self_, reflection_pad(op, self_, padding)?)
}

/// The gradients of `replication_pad1d` to `3d`.
pub(crate) fn replication_pad_backward(
    op: &'static str,
    grad: &Tensor,
    self_: &Tensor,
    padding: &[SymInt],
) -> Result<Spec> {
    pad_backward(op, grad, self_, replication_pad(op, self_, padding)?)
}
