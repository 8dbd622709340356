//! Shapes of sorting, selection by rank and search.

use super::wrap_dim;
use crate::layout::{Dims, Layout};
use crate::sym::SymInt;
use crate::{DType, Error, Result, Spec, Tensor};

/// Values of the tensor's dtype and their indices.
fn pair(self_: &Tensor, layout: Layout) -> (Spec, Spec) {
    let indices = Spec { layout: layout.clone(), dtype: DType::I64, device: self_.device() };
    (Spec { layout, dtype: self_.dtype(), device: self_.device() }, indices)
}

/// `sort`.
pub(crate) fn sort(op: &'static str, self_: &Tensor, dim: i64, _descending: bool) -> Result<(Spec, Spec)> {
    wrap_dim(op, dim, self_.ndim())?;
    Ok(pair(self_, self_.layout().dense_like()))
}

/// `sort.stable`.
pub(crate) fn sort_stable(
    op: &'static str,
    self_: &Tensor,
    _stable: Option<bool>,
    dim: i64,
    descending: bool,
) -> Result<(Spec, Spec)> {
    sort(op, self_, dim, descending)
}

/// `topk`.
pub(crate) fn topk(
    op: &'static str,
    self_: &Tensor,
    k: SymInt,
    dim: i64,
    _largest: bool,
    _sorted: bool,
) -> Result<(Spec, Spec)> {
    let d = wrap_dim(op, dim, self_.ndim())?;
    let n = self_.shape().get(d).copied().unwrap_or(1);
    let Some(k) = k.to_usize().filter(|k| *k <= n) else {
        return Err(Error::argument(op, format!("k is {k}, dimension {d} has size {n}")));
    };
    let mut sizes = self_.dims();
    if let Some(s) = sizes.get_mut(d) {
        *s = k;
    }
    Ok(pair(self_, Layout::contiguous(&sizes)?))
}

/// One element along `dim`.
fn reduced(op: &'static str, self_: &Tensor, dim: i64, keepdim: bool) -> Result<(Spec, Spec)> {
    let d = wrap_dim(op, dim, self_.ndim())?;
    if self_.shape().get(d) == Some(&0) {
        return Err(Error::argument(op, format!("dimension {d} has size 0: there is nothing to choose from")));
    }
    let mut sizes: Dims = self_.dims();
    if d < sizes.len() {
        if keepdim {
            sizes[d] = 1;
        } else {
            sizes.remove(d);
        }
    }
    Ok(pair(self_, Layout::contiguous(&sizes)?))
}

/// `kthvalue`.
pub(crate) fn kthvalue(op: &'static str, self_: &Tensor, k: SymInt, dim: i64, keepdim: bool) -> Result<(Spec, Spec)> {
    let specs = reduced(op, self_, dim, keepdim)?;
    let n = self_.shape().get(wrap_dim(op, dim, self_.ndim())?).copied().unwrap_or(1);
    if k.int() < 1 || k.int() > n as i64 {
        return Err(Error::argument(op, format!("k is {k}; the dimension allows 1 to {n}")));
    }
    Ok(specs)
}

/// `median.dim`, `nanmedian.dim`, `mode`.
pub(crate) fn along(op: &'static str, self_: &Tensor, dim: i64, keepdim: bool) -> Result<(Spec, Spec)> {
    reduced(op, self_, dim, keepdim)
}

/// `median`, `nanmedian`.
pub(crate) fn median(_op: &'static str, self_: &Tensor) -> Result<Spec> {
    Spec::new(&[], self_.dtype(), self_.device())
}

/// `searchsorted`.
pub(crate) fn searchsorted(
    op: &'static str,
    sorted_sequence: &Tensor,
    self_: &Tensor,
    out_int32: bool,
    right: bool,
    side: Option<&str>,
    sorter: Option<&Tensor>,
) -> Result<Spec> {
    if !matches!(side, None | Some("left" | "right")) || (side == Some("left") && right) {
        let m = format!("side is \"left\" or \"right\" and agrees with right={right}, found {side:?}");
        return Err(Error::argument(op, m));
    }
    let (s, v) = (sorted_sequence.shape(), self_.shape());
    let fits = s.len() == 1 || (!s.is_empty() && s.len() == v.len() && s[..s.len() - 1] == v[..v.len() - 1]);
    if !fits {
        let m = format!(
            "a sequence of shape {s:?} does not match values of shape {v:?}: use one dimension, or the same leading ones"
        );
        return Err(Error::argument(op, m));
    }
    if sorted_sequence.dtype() != self_.dtype() && !(self_.is_wrapped_number()) {
        let m = format!("sequence of {} and values of {}; convert one of them", sorted_sequence.dtype(), self_.dtype());
        return Err(Error::argument(op, m));
    }
    if let Some(t) = sorter.filter(|t| t.shape() != s || t.dtype() != DType::I64) {
        let m = format!("the sorter must be an i64 tensor of shape {s:?}, found {} {:?}", t.dtype(), t.shape());
        return Err(Error::argument(op, m));
    }
    let dtype = if out_int32 { DType::I32 } else { DType::I64 };
    Spec::new(v, dtype, sorted_sequence.device())
}

/// `bucketize`.
pub(crate) fn bucketize(
    op: &'static str,
    self_: &Tensor,
    boundaries: &Tensor,
    out_int32: bool,
    right: bool,
) -> Result<Spec> {
    if boundaries.ndim() != 1 {
        return Err(Error::argument(op, format!("boundaries must be a vector, found shape {:?}", boundaries.shape())));
    }
    searchsorted(op, boundaries, self_, out_int32, right, None, None)
}
