//! Gradients and tangents of ops that move elements by index or by mask.

use super::{sum_to_size, sym, zeros_of};
use crate::autograd::delayed_error;
use crate::ops::arith;
use crate::ops::shape::wrap_dim;
use crate::sym::{SymInt, SymInts};
use crate::tensor::sparse;
use crate::{DType, Result, Scalar, Spec, Tensor, ops, state};

const ZERO: Scalar = Scalar::Int(0);
const ONE: Scalar = Scalar::Int(1);

fn dense_zeros(spec: &Spec) -> Result<Tensor> {
    zeros_of(&Spec { layout: spec.layout.to_contiguous(), ..spec.clone() })
}

/// The gradient of `gather`.
pub(crate) fn gather_backward(
    grad: &Tensor,
    sizes: &[SymInt],
    dim: i64,
    index: &Tensor,
    sparse_grad: bool,
) -> Result<Tensor> {
    if sparse_grad {
        return sparse::gather_gradient(grad, sizes, dim, index);
    }
    ops::scatter_add(&ops::new_zeros(grad, sizes, None, None)?, dim, index, grad)
}

/// A source may be larger than its index; only the part under the index was read.
fn read_part(src: &Tensor, index: &Tensor) -> Result<Tensor> {
    let mut part = src.clone();
    for (d, &n) in index.shape().iter().enumerate() {
        if src.shape().get(d).is_some_and(|&m| m != n) {
            part = ops::slice(&part, d as i64, None, Some(n.into()), 1.into())?;
        }
    }
    Ok(part)
}

/// Zeros around the part that was read.
fn around_part(part: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    if part.ndim() != sizes.len() {
        return ops::reshape(part, sizes);
    }
    let mut pads = SymInts::new();
    for (&whole, &n) in sizes.iter().zip(part.shape()).rev() {
        pads.extend([SymInt::from(0i64), whole - n]);
    }
    if pads.iter().all(|p| *p == 0i64) { Ok(part.clone()) } else { ops::constant_pad_nd(part, &pads, ZERO) }
}

/// The gradient of what `scatter` and `scatter_add` write.
pub(crate) fn scatter_src_backward(grad: &Tensor, dim: i64, index: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    around_part(&ops::gather(grad, dim, index, false)?, sizes)
}

/// The gradient of a reduction that picks one element along `dim` by index.
pub(crate) fn value_selecting_reduction_backward(
    grad: &Tensor,
    dim: i64,
    indices: &Tensor,
    sizes: &[SymInt],
    keepdim: bool,
) -> Result<Tensor> {
    let zeros = ops::new_zeros(grad, sizes, None, None)?;
    if keepdim || sizes.is_empty() {
        return ops::scatter(&zeros, dim, indices, grad);
    }
    ops::scatter(&zeros, dim, &ops::unsqueeze(indices, dim)?, &ops::unsqueeze(grad, dim)?)
}

/// What a reduction that picks by index picks of another tensor.
pub(crate) fn gather_with_keepdimed_indices(
    input: &Tensor,
    dim: i64,
    indices: &Tensor,
    keepdim: bool,
) -> Result<Tensor> {
    if keepdim || input.ndim() == 0 {
        return ops::gather(input, dim, indices, false);
    }
    ops::squeeze_dim(&ops::gather(input, dim, &ops::unsqueeze(indices, dim)?, false)?, dim)
}

/// A product's gradient by a factor does not depend on the other factors where several of them are zero, as it is computed; its own
/// derivative is an error then.
fn once_where_zeros_meet(grad_src: Tensor, zeros: &Tensor) -> Result<Tensor> {
    let recorded = state::is(state::GRAD) && grad_src.requires_grad();
    if !recorded || state::is(state::LEVEL) || zeros.is_meta() {
        return Ok(grad_src);
    }
    if ops::any(&ops::gt_scalar(zeros, ONE)?)?.try_scalar_value()?.to_bool() {
        let text = "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered to the same position \
                    in self";
        let found = delayed_error(text, &[Some(grad_src.detach())], &[Some(grad_src.clone())])?;
        return Ok(found.into_iter().next().flatten().unwrap_or(grad_src));
    }
    Ok(grad_src)
}

/// The gradients of `scatter_reduce` for the tensor and the source.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn scatter_reduce_backward(
    grad: &Tensor,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    include_self: bool,
    result: &Tensor,
) -> Result<(Tensor, Tensor)> {
    if index.numel() == 0 {
        return Ok((grad.clone(), ops::zeros_like(src, None, None, None)?));
    }
    let whole = src.sym_sizes();
    let src = &read_part(src, index)?;
    let gather = |t: &Tensor| ops::gather(t, dim, index, false);
    let as_number = |t: &Tensor| ops::to_copy(t, Some(self_.dtype()), None, false, None);
    let (mut grad_self, grad_src) = match reduce {
        "prod" => {
            let zero = ops::eq_scalar(self_, ZERO)?;
            let masked = ops::masked_fill(self_, &zero, ONE)?;
            let product = ops::scatter_reduce(&masked, dim, index, src, reduce, include_self)?;
            let grad_self = arith::div(&arith::mul(grad, &product)?, &masked)?;
            // One zero among the factors: the others' product is what its gradient is.
            let zero = ops::eq_scalar(src, ZERO)?;
            let none = ops::zeros_like(self_, None, None, None)?;
            let zeros = gather(&ops::scatter_add(&none, dim, index, &as_number(&zero)?)?)?;
            let single = ops::logical_and(&zero, &ops::eq_scalar(&zeros, ONE)?)?;
            let masked = ops::masked_fill(src, &single, ONE)?;
            let product = ops::scatter_reduce(self_, dim, index, &masked, reduce, include_self)?;
            let at_zero = gather(&arith::mul(grad, &product)?)?;
            let elsewhere = arith::div(&gather(&arith::mul(grad, result)?)?, &ops::masked_fill(src, &zero, ONE)?)?;
            let grad_src = ops::where_self(&single, &at_zero, &elsewhere)?;
            (grad_self, once_where_zeros_meet(grad_src, &zeros)?)
        }
        "mean" => {
            let start = ops::full_like(grad, Scalar::Int(include_self.into()), None, None, None)?;
            let counts = ops::scatter_add(&start, dim, index, &ops::ones_like(src, None, None, None)?)?;
            let counts = ops::masked_fill(&counts, &ops::eq_scalar(&counts, ZERO)?, ONE)?;
            let share = arith::div(grad, &counts)?;
            (share.clone(), gather(&share)?)
        }
        "amax" | "amin" => {
            let mine = as_number(&ops::eq(self_, result)?)?;
            let theirs = as_number(&ops::eq(src, &gather(result)?)?)?;
            let start = if include_self { mine.clone() } else { ops::scatter_value(&mine, dim, index, ZERO)? };
            let share = arith::div(grad, &ops::scatter_add(&start, dim, index, &theirs)?)?;
            (arith::mul(&mine, &share)?, arith::mul(&theirs, &gather(&share)?)?)
        }
        _ => (grad.clone(), gather(grad)?),
    };
    if !include_self {
        grad_self = ops::scatter_value(&grad_self, dim, index, ZERO)?;
    }
    Ok((grad_self, around_part(&grad_src, &whole)?))
}

/// The tangent of `scatter_reduce`. Each gradient is a factor per element, which for ones is the factor itself.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn scatter_reduce_tangent(
    self_t: &Tensor,
    src_t: &Tensor,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    include_self: bool,
    result: &Tensor,
) -> Result<Tensor> {
    let ones = ops::ones_like(result, None, None, None)?;
    let (by_self, by_src) = scatter_reduce_backward(&ones, self_, dim, index, src, reduce, include_self, result)?;
    ops::scatter_add(&arith::mul(self_t, &by_self)?, dim, index, &arith::mul(src_t, &by_src)?)
}

/// The index of every element of the source.
fn spread(index: &Tensor, dim: i64, source: &Tensor) -> Result<Tensor> {
    if source.ndim() == 0 {
        return ops::reshape(index, &[]);
    }
    let d = wrap_dim("index_reduce", dim, source.ndim())?;
    let mut sizes: SymInts = source.shape().iter().map(|_| SymInt::from(1i64)).collect();
    sizes[d] = index.numel().into();
    ops::expand(&ops::reshape(index, &sizes)?, &source.sym_sizes(), false)
}

/// The gradients of `index_reduce`.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn index_reduce_backward(
    grad: &Tensor,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
    result: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let index = spread(index, dim, source)?;
    scatter_reduce_backward(grad, self_, dim, &index, source, reduce, include_self, result)
}

/// The tangent of `index_reduce`.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn index_reduce_tangent(
    self_t: &Tensor,
    source_t: &Tensor,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
    result: &Tensor,
) -> Result<Tensor> {
    let index = spread(index, dim, source)?;
    scatter_reduce_tangent(self_t, source_t, self_, dim, &index, source, reduce, include_self, result)
}

/// The gradient of `index`.
pub(crate) fn index_backward(grad: &Tensor, spec: &Spec, indices: &[Option<Tensor>]) -> Result<Tensor> {
    ops::index_put(&dense_zeros(spec)?, indices, grad, true)
}

/// The gradient of `index_put` for the tensor written to.
pub(crate) fn index_put_self_backward(
    grad: &Tensor,
    indices: &[Option<Tensor>],
    values: &Spec,
    accumulate: bool,
) -> Result<Tensor> {
    if accumulate { Ok(grad.clone()) } else { ops::index_put(grad, indices, &dense_zeros(values)?, false) }
}

/// The gradient of the source of `index_add`.
pub(crate) fn index_add_source_backward(
    grad: &Tensor,
    dim: i64,
    index: &Tensor,
    sizes: &[SymInt],
    alpha: Scalar,
) -> Result<Tensor> {
    let picked = ops::reshape(&ops::index_select(grad, dim, index)?, sizes)?;
    if alpha.equals(1.0) { Ok(picked) } else { arith::mul(&picked, &alpha) }
}

/// The gradient of the value of `index_fill`.
pub(crate) fn index_fill_value_backward(grad: &Tensor, dim: i64, index: &Tensor) -> Result<Tensor> {
    // An index given twice still fills one place.
    let zeros = ops::zeros_like(grad, Some(DType::Bool), None, None)?;
    let filled = ops::index_fill(&zeros, dim, index, Scalar::Bool(true))?;
    masked_fill_value_backward(grad, &filled)
}

/// The gradient of the value of `masked_fill`.
pub(crate) fn masked_fill_value_backward(grad: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let zeros = ops::zeros_like(grad, None, None, None)?;
    ops::sum(&ops::where_self(mask, grad, &zeros)?, None)
}

/// The gradient of `masked_select`.
pub(crate) fn masked_select_backward(grad: &Tensor, sizes: &[SymInt], mask: &Tensor) -> Result<Tensor> {
    let own: crate::layout::Dims = sizes.iter().map(|s| s.to_usize().unwrap_or(0)).collect();
    let common = ops::shape::broadcast("masked_select", &own, mask.shape())?;
    let zeros = ops::new_zeros(grad, &sym(&common), None, None)?;
    sum_to_size(&ops::masked_scatter(&zeros, mask, grad)?, &own)
}

/// The gradient of the source of `masked_scatter`: nothing for elements that were not used.
pub(crate) fn masked_scatter_backward(grad: &Tensor, mask: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let used = ops::masked_select(grad, mask)?;
    let numel: SymInt = sizes.iter().copied().product();
    let unused = numel - used.numel();
    let all = if unused == 0i64 { used } else { ops::constant_pad_nd(&used, &[0.into(), unused], ZERO)? };
    ops::reshape(&all, sizes)
}

/// The gradient of `take`.
pub(crate) fn take_backward(grad: &Tensor, spec: &Spec, index: &Tensor) -> Result<Tensor> {
    ops::put(&dense_zeros(spec)?, index, grad, true)
}

/// The gradient of `put` for the tensor written to.
pub(crate) fn put_self_backward(grad: &Tensor, index: &Tensor, source: &Spec, accumulate: bool) -> Result<Tensor> {
    if accumulate { Ok(grad.clone()) } else { ops::put(grad, index, &dense_zeros(source)?, false) }
}

/// The gradient of `embedding`: all of the table, or the rows that were read.
pub(crate) fn embedding_backward(
    grad: &Tensor,
    indices: &Tensor,
    num_weights: SymInt,
    padding_idx: SymInt,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Result<Tensor> {
    let backward = if sparse { sparse::embedding_gradient } else { ops::embedding_dense_backward };
    backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)
}

/// The gradient of `embedding_dense_backward`: the rows read again, with the same scale.
pub(crate) fn embedding_dense_double_backward(
    grad: &Tensor,
    indices: &Tensor,
    padding_idx: SymInt,
    scale_grad_by_freq: bool,
) -> Result<Tensor> {
    let mut rows = ops::embedding(grad, indices, padding_idx, false, false)?;
    if scale_grad_by_freq {
        let ones = ops::new_ones(grad, &[indices.numel().into()], None, None)?;
        let zeros = ops::new_zeros(grad, &[grad.size(0)], None, None)?;
        let flat = ops::reshape(indices, &[(-1).into()])?;
        let counts = ops::take(&ops::index_add(&zeros, 0, &flat, &ones, ONE)?, indices)?;
        rows = arith::div(&rows, &ops::unsqueeze(&counts, -1)?)?;
    }
    if padding_idx < 0i64 {
        return Ok(rows);
    }
    let padding = ops::eq_scalar(indices, padding_idx.into())?;
    ops::masked_fill(&rows, &ops::unsqueeze(&padding, -1)?, ZERO)
}
