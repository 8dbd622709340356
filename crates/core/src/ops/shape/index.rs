//! Shapes of ops that move elements by index or by mask.

use super::{broadcast, wrap_dim};
use crate::layout::Dims;
use crate::sym::SymInt;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

/// Fails unless the dtype is one that indices may have.
pub(crate) fn need_index(op: &'static str, index: &Tensor) -> Result<()> {
    if matches!(index.dtype(), DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: index.dtype(), expected: "i64 or i32 for an index" }.into())
}

/// Like [`need_index`]; an index without elements may have any dtype, as in `gather` and `scatter`.
fn need_index_if_any(op: &'static str, index: &Tensor) -> Result<()> {
    if index.numel() == 0 { Ok(()) } else { need_index(op, index) }
}

fn need_mask(op: &'static str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::Bool {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: mask.dtype(), expected: "bool for a mask" }.into())
}

fn need_same_dtype(op: &'static str, self_: &Tensor, src: &Tensor) -> Result<()> {
    if self_.dtype() == src.dtype() {
        return Ok(());
    }
    let m = format!("source of dtype {} for a tensor of dtype {}; convert one of them", src.dtype(), self_.dtype());
    Err(Error::argument(op, m))
}

/// A copy of `self_` that the op then writes to.
fn same(self_: &Tensor) -> Spec {
    Spec { layout: self_.layout().dense_like(), dtype: self_.dtype(), device: self_.device() }
}

/// Sizes with at least one dimension.
fn lifted(t: &Tensor) -> Dims {
    if t.ndim() == 0 { Dims::from_slice(&[1]) } else { t.dims() }
}

/// Fails unless the index has as many dimensions as the others and, except along `dim`, is at most as long.
fn need_within(op: &'static str, dim: usize, index: &Tensor, self_: &Tensor, src: Option<&Tensor>) -> Result<()> {
    if index.numel() == 0 {
        return Ok(());
    }
    let own = lifted(index);
    for (t, what, except) in [(Some(self_), "tensor", Some(dim)), (src, "source", None)] {
        let Some(t) = t else { continue };
        let other = lifted(t);
        let fits = own.len() == other.len() && (0..own.len()).all(|k| Some(k) == except || own[k] <= other[k]);
        if !fits {
            let except = except.map_or(String::new(), |d| format!(" apart from dimension {d}"));
            let m = format!(
                "the index has shape {:?}, which must lie within the {what}'s shape {:?}{except}",
                index.shape(),
                t.shape()
            );
            return Err(Error::argument(op, m));
        }
    }
    Ok(())
}

/// `gather`.
pub(crate) fn gather(op: &'static str, self_: &Tensor, dim: i64, index: &Tensor, _sparse: bool) -> Result<Spec> {
    need_index_if_any(op, index)?;
    let d = wrap_dim(op, dim, self_.ndim())?;
    need_within(op, d, index, self_, None)?;
    Spec::new(index.shape(), self_.dtype(), self_.device())
}

/// `scatter.src`, `scatter_add`.
pub(crate) fn scatter(op: &'static str, self_: &Tensor, dim: i64, index: &Tensor, src: &Tensor) -> Result<Spec> {
    need_index_if_any(op, index)?;
    let d = wrap_dim(op, dim, self_.ndim())?;
    need_same_dtype(op, self_, src)?;
    need_within(op, d, index, self_, Some(src))?;
    Ok(same(self_))
}

/// `scatter.value`.
pub(crate) fn scatter_value(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    _value: Scalar,
) -> Result<Spec> {
    need_index_if_any(op, index)?;
    let d = wrap_dim(op, dim, self_.ndim())?;
    need_within(op, d, index, self_, None)?;
    Ok(same(self_))
}

/// `scatter_reduce.two`.
pub(crate) fn scatter_reduce(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    _include_self: bool,
) -> Result<Spec> {
    need_reduce(op, reduce)?;
    scatter(op, self_, dim, index, src)
}

/// Fails unless it is one of the ways to combine.
pub(crate) fn need_reduce(op: &'static str, reduce: &str) -> Result<()> {
    if ["sum", "prod", "mean", "amax", "amin"].contains(&reduce) {
        return Ok(());
    }
    let m = format!("reduce is \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\", found {reduce:?}");
    Err(Error::argument(op, m))
}

/// A list of positions: at most one dimension.
fn need_list(op: &'static str, index: &Tensor) -> Result<()> {
    need_index(op, index)?;
    if index.ndim() > 1 {
        return Err(Error::argument(op, format!("the index must be a vector, found shape {:?}", index.shape())));
    }
    Ok(())
}

/// `index_select`.
pub(crate) fn index_select(op: &'static str, self_: &Tensor, dim: i64, index: &Tensor) -> Result<Spec> {
    need_list(op, index)?;
    let d = wrap_dim(op, dim, self_.ndim())?;
    let mut sizes = self_.dims();
    match sizes.get_mut(d) {
        Some(n) => *n = index.numel(),
        None if index.numel() == 1 => {}
        None => return Err(Error::argument(op, "a tensor without dimensions needs an index of one element")),
    }
    Spec::new(&sizes, self_.dtype(), self_.device())
}

/// `index_add`, `index_copy`: the source is the tensor with `dim` as long as the index.
pub(crate) fn index_source(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
) -> Result<Spec> {
    need_list(op, index)?;
    need_same_dtype(op, self_, source)?;
    let d = wrap_dim(op, dim, self_.ndim())?;
    let (mut expected, found) = (lifted(self_), lifted(source));
    expected[d] = index.numel();
    if expected != found {
        let m = format!(
            "the source has shape {:?}; a tensor of shape {:?} and {} indices along dimension {d} need {expected:?}",
            source.shape(),
            self_.shape(),
            index.numel()
        );
        return Err(Error::argument(op, m));
    }
    Ok(same(self_))
}

/// `index_add`.
pub(crate) fn index_add(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    _alpha: Scalar,
) -> Result<Spec> {
    index_source(op, self_, dim, index, source)
}

/// `index_reduce`.
pub(crate) fn index_reduce(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    _include_self: bool,
) -> Result<Spec> {
    need_reduce(op, reduce)?;
    index_source(op, self_, dim, index, source)
}

/// `index_fill` with a number.
pub(crate) fn index_fill(op: &'static str, self_: &Tensor, dim: i64, index: &Tensor, _value: Scalar) -> Result<Spec> {
    need_list(op, index)?;
    if index.dtype() != DType::I64 {
        let expected = "i64 for this index";
        return Err(ErrorKind::DTypeUnsupported { op, found: index.dtype(), expected }.into());
    }
    wrap_dim(op, dim, self_.ndim())?;
    Ok(same(self_))
}

/// Fails unless the tensor is a number.
fn need_number(op: &'static str, value: &Tensor) -> Result<()> {
    if value.ndim() == 0 {
        return Ok(());
    }
    Err(Error::argument(op, format!("expected a 0-dim value, found shape {:?}", value.shape())))
}

/// `index_fill` with the number in a tensor.
pub(crate) fn index_fill_tensor(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    value: &Tensor,
) -> Result<Spec> {
    need_number(op, value)?;
    index_fill(op, self_, dim, index, Scalar::Int(0))
}

fn masked(op: &'static str, self_: &Tensor, mask: &Tensor) -> Result<Spec> {
    need_mask(op, mask)?;
    let device = self_.device();
    let sizes = broadcast(op, self_.shape(), mask.shape())?;
    if sizes[..] == *self_.shape() {
        return Ok(same(self_));
    }
    Spec::new(&sizes, self_.dtype(), device)
}

/// `masked_fill` with a number.
pub(crate) fn masked_fill(op: &'static str, self_: &Tensor, mask: &Tensor, value: Scalar) -> Result<Spec> {
    need_real_value(op, self_, value.is_complex())?;
    masked(op, self_, mask)
}

/// Fails for a complex value that is to become real.
fn need_real_value(op: &'static str, self_: &Tensor, complex: bool) -> Result<()> {
    if complex && !self_.is_complex() {
        return Err(Error::argument(op, format!("expected a value of dtype {}, found a complex one", self_.dtype())));
    }
    Ok(())
}

/// `masked_fill` with the number in a tensor.
pub(crate) fn masked_fill_tensor(op: &'static str, self_: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Spec> {
    need_number(op, value)?;
    need_real_value(op, self_, value.is_complex())?;
    masked(op, self_, mask)
}

/// `masked_scatter`.
pub(crate) fn masked_scatter(op: &'static str, self_: &Tensor, mask: &Tensor, source: &Tensor) -> Result<Spec> {
    need_same_dtype(op, self_, source)?;
    masked(op, self_, mask)
}

/// The common shape of a tensor and its mask.
pub(crate) fn masked_select(op: &'static str, self_: &Tensor, mask: &Tensor) -> Result<Dims> {
    need_mask(op, mask)?;
    broadcast(op, self_.shape(), mask.shape())
}

/// `take`.
pub(crate) fn take(op: &'static str, self_: &Tensor, index: &Tensor) -> Result<Spec> {
    need_index(op, index)?;
    if self_.numel() == 0 && index.numel() > 0 {
        return Err(Error::argument(op, "cannot take values from a tensor of 0 elements"));
    }
    Spec::new(index.shape(), self_.dtype(), self_.device())
}

/// `put`.
pub(crate) fn put(
    op: &'static str,
    self_: &Tensor,
    index: &Tensor,
    source: &Tensor,
    _accumulate: bool,
) -> Result<Spec> {
    need_index(op, index)?;
    need_same_dtype(op, self_, source)?;
    if index.numel() != source.numel() {
        let m = format!("{} indices and {} source elements", index.numel(), source.numel());
        return Err(Error::argument(op, m));
    }
    if self_.numel() == 0 && index.numel() > 0 {
        return Err(Error::argument(op, "cannot put values into a tensor of 0 elements"));
    }
    Ok(same(self_))
}

/// `embedding`.
pub(crate) fn embedding(
    op: &'static str,
    weight: &Tensor,
    indices: &Tensor,
    _padding_idx: SymInt,
    _scale: bool,
    _sparse: bool,
) -> Result<Spec> {
    need_index(op, indices)?;
    let &[_, width] = weight.shape() else {
        return Err(Error::argument(op, format!("the weight is a matrix, found shape {:?}", weight.shape())));
    };
    let mut sizes = indices.dims();
    sizes.push(width);
    Spec::new(&sizes, weight.dtype(), weight.device())
}

/// `embedding_dense_backward`.
pub(crate) fn embedding_dense_backward(
    op: &'static str,
    grad: &Tensor,
    indices: &Tensor,
    num_weights: SymInt,
    _padding_idx: SymInt,
    _scale: bool,
) -> Result<Spec> {
    need_index(op, indices)?;
    let rows = num_weights
        .to_usize()
        .ok_or_else(|| Error::argument(op, format!("a negative number of weights ({num_weights})")))?;
    let (Some((&width, lead)), true) = (grad.shape().split_last(), grad.ndim() == indices.ndim() + 1) else {
        let m = format!("gradient of shape {:?} for indices of shape {:?}", grad.shape(), indices.shape());
        return Err(Error::argument(op, m));
    };
    if lead != indices.shape() {
        let m = format!("gradient of shape {:?} for indices of shape {:?}", grad.shape(), indices.shape());
        return Err(Error::argument(op, m));
    }
    Spec::new(&[rows, width], grad.dtype(), grad.device())
}

/// `index_put` on plain positions: the tensor itself.
pub(crate) fn index_put(
    op: &'static str,
    self_: &Tensor,
    indices: &[Option<Tensor>],
    values: &Tensor,
    _accumulate: bool,
) -> Result<Spec> {
    need_same_dtype(op, self_, values)?;
    if indices.len() > self_.ndim() {
        let m = format!("{} indices for a tensor with {} dimensions", indices.len(), self_.ndim());
        return Err(Error::argument(op, m));
    }
    Ok(same(self_))
}
