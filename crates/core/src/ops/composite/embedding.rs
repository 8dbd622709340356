//! Bags of embeddings: rows of a weight, reduced by sum, mean or maximum per bag.
//!
//! Composed of `embedding` and sums by index, so gradients of any order follow. The second to fourth results say which
//! bag each index belongs to, how many indices each bag has, and (empty here) where maxima came from.

use crate::ops::{arith, lists};
use crate::{DType, Error, ErrorKind, Result, Scalar, SymInt, Tensor, ops};

const OP: &str = "embedding_bag";

fn wrong<T>(message: String) -> Result<T> {
    Err(Error::argument(OP, message))
}

/// The bag of every index.
fn bags(offsets: &Tensor, n: usize, include_last_offset: bool) -> Result<(Vec<i64>, usize)> {
    let starts = ops::to_dtype(offsets, DType::I64, false, false, None)?.try_to_vec::<i64>()?;
    let ordered = starts.windows(2).all(|w| w[0] <= w[1]);
    let last = starts.last().copied().unwrap_or(0);
    if starts.first().is_some_and(|&s| s != 0) || !ordered || last > n as i64 {
        return wrong(format!("offsets must begin with 0, ascend and end within the {n} indices, found {starts:?}"));
    }
    let count = starts.len() - usize::from(include_last_offset);
    let bag_of = |k: usize| starts[..count].partition_point(|&s| s <= k as i64) as i64 - 1;
    Ok((lists::collected(n, (0..n).map(bag_of))?, count))
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn embedding_bag_padding(
    weight: &Tensor,
    indices: &Tensor,
    offsets: &Tensor,
    scale_grad_by_freq: bool,
    mode: i64,
    sparse: bool,
    per_sample_weights: Option<&Tensor>,
    include_last_offset: bool,
    padding_idx: Option<i64>,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let &[rows, width] = weight.shape() else {
        return wrong(format!("the weight is a matrix, found shape {:?}", weight.shape()));
    };
    if indices.ndim() != 1 || offsets.ndim() != 1 || !(0..=2).contains(&mode) {
        let m = format!(
            "takes vectors of indices and offsets and a mode of 0 to 2, found shapes {:?} and {:?} and mode {mode}",
            indices.shape(),
            offsets.shape()
        );
        return wrong(m);
    }
    if include_last_offset && offsets.numel() == 0 {
        return wrong("include_last_offset needs at least one offset".into());
    }
    if per_sample_weights.is_some_and(|w| mode != 0 || w.shape() != indices.shape()) {
        return wrong("per_sample_weights need mode 0 (sum) and one weight for each index".into());
    }
    if sparse && mode == 2 {
        return wrong("mode 2 (max) has no sparse gradients; pass sparse=false".into());
    }
    let padding = match padding_idx {
        Some(p) if p < -(rows as i64) || p >= rows as i64 => {
            return wrong(format!("the padding index {p} is outside the {rows} rows"));
        }
        Some(p) => Some(if p < 0 { p + rows as i64 } else { p }),
        None => None,
    };
    let n = indices.numel();
    // As on PyTorch's CPU: 64 bits unless indices and offsets both have 32.
    let small = indices.dtype() == DType::I32 && offsets.dtype() == DType::I32;
    let int = if small { DType::I32 } else { DType::I64 };
    let no_maxima = ops::new_zeros(indices, &[0.into()], Some(int), None)?;
    if weight.is_meta() || offsets.is_meta() {
        let count = offsets.numel() - usize::from(include_last_offset);
        let out = ops::new_empty(weight, &[count.into(), width.into()], None, None)?;
        let bag = ops::new_empty(indices, &[n.into()], Some(int), None)?;
        let sizes = ops::new_empty(offsets, &[count.into()], Some(int), None)?;
        return Ok((out, bag, sizes, no_maxima));
    }
    let (bag, count) = bags(offsets, n, include_last_offset)?;
    let bag = Tensor::try_from_vec(bag, [n])?;
    let sum_of = |values: &Tensor, sizes: &[SymInt]| {
        ops::index_add(&ops::new_zeros(values, sizes, None, None)?, 0, &bag, values, Scalar::Int(1))
    };
    // A padding index counts for nothing.
    let counted = match padding {
        Some(p) => ops::ne_scalar(indices, Scalar::Int(p))?,
        None => ops::ones_like(indices, Some(DType::Bool), None, None)?,
    };
    let sizes = sum_of(&ops::to_dtype(&counted, DType::I64, false, false, None)?, &[count.into()])?;
    let picked = ops::embedding(weight, indices, padding.unwrap_or(-1).into(), scale_grad_by_freq, sparse);
    let picked = picked.map_err(|e| match *e.kind() {
        ErrorKind::IndexOutOfRange { index, dim, size, .. } => {
            ErrorKind::IndexOutOfRange { op: OP, index, dim, size }.into()
        }
        _ => e,
    })?;
    let kept = ops::unsqueeze(&counted, 1)?;
    let shape = [count.into(), width.into()];
    let out = if mode == 2 && n == 0 {
        sum_of(&picked, &shape)? // zeros
    } else if mode == 2 {
        let empty = ops::unsqueeze(&ops::eq_scalar(&sizes, Scalar::Int(0))?, 1)?;
        let first = ops::masked_fill(&first_maxima(&picked, &kept, &bag, &shape)?, &empty, Scalar::Int(0))?;
        ops::masked_fill(&ops::gather(&picked, 0, &first, false)?, &empty, Scalar::Int(0))?
    } else {
        let mut rows = ops::masked_fill(&picked, &ops::logical_not(&kept)?, Scalar::Int(0))?;
        if let Some(w) = per_sample_weights {
            rows = arith::mul(&rows, &ops::unsqueeze(w, 1)?)?;
        }
        let sum = sum_of(&rows, &shape)?;
        if mode == 0 {
            sum
        } else {
            let filled = ops::masked_fill(&sizes, &ops::eq_scalar(&sizes, Scalar::Int(0))?, Scalar::Int(1))?;
            let filled = ops::to_dtype(&filled, sum.dtype(), false, false, None)?;
            arith::div(&sum, &ops::unsqueeze(&filled, 1)?)?
        }
    };
    let cast = |t: &Tensor| ops::to_dtype(t, int, false, false, None);
    Ok((out, cast(&bag)?, cast(&sizes)?, no_maxima))
}

/// Where the maxima of bags are among the rows that indices name; the first of equal ones, which alone gets the gradient.
fn first_maxima(picked: &Tensor, kept: &Tensor, bag: &Tensor, shape: &[SymInt]) -> Result<Tensor> {
    let lowest = ops::detach(&ops::masked_fill(picked, &ops::logical_not(kept)?, Scalar::Float(f64::NEG_INFINITY))?)?;
    let zeros = ops::new_zeros(&lowest, shape, None, None)?;
    let most = ops::index_reduce(&zeros, 0, bag, &lowest, "amax", false)?;
    let equal = ops::eq(&lowest, &ops::index_select(&most, 0, bag)?)?;
    let is_most = ops::logical_and(&ops::logical_or(&equal, &ops::isnan(&lowest)?)?, kept)?;
    let n = picked.shape()[0];
    let rows = Tensor::try_from_vec((0..n as i64).collect(), [n, 1])?;
    let places = ops::where_scalar_other(&is_most, &rows, Scalar::Int(n as i64))?;
    let start = ops::new_zeros(&places, shape, None, None)?;
    ops::index_reduce(&start, 0, bag, &places, "amin", false)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn embedding_bag(
    weight: &Tensor,
    indices: &Tensor,
    offsets: &Tensor,
    scale_grad_by_freq: bool,
    mode: i64,
    sparse: bool,
    per_sample_weights: Option<&Tensor>,
    include_last_offset: bool,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    embedding_bag_padding(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        None,
    )
}

/// `_embedding_bag`: a negative padding index means none.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn embedding_bag_plain(
    weight: &Tensor,
    indices: &Tensor,
    offsets: &Tensor,
    scale_grad_by_freq: bool,
    mode: i64,
    sparse: bool,
    per_sample_weights: Option<&Tensor>,
    include_last_offset: bool,
    padding_idx: i64,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let padding = (padding_idx >= 0).then_some(padding_idx);
    embedding_bag_padding(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding,
    )
}

/// Scales the rows that indices name down to a norm of at most `max_norm`, in place and without history.
pub(crate) fn embedding_renorm_<'a>(
    self_: &'a Tensor,
    indices: &Tensor,
    max_norm: f64,
    norm_type: f64,
) -> Result<&'a Tensor> {
    if self_.is_meta() {
        return Ok(self_);
    }
    let _plain = crate::autograd::NoGrad::new();
    let (named, _, _) = ops::unique2(indices, true, false, false)?;
    let rows = ops::index_select(self_, 0, &named)?;
    let norms = ops::linalg_vector_norm(&rows, Scalar::Float(norm_type), Some(&[1]), true, None)?;
    let number = |v: f64| Scalar::Float(v);
    let scale = arith::div(&number(max_norm), &ops::add_scalar(&norms, number(1e-7), Scalar::Int(1))?)?;
    let ones = ops::ones_like(&scale, None, None, None)?;
    let scale = ops::where_self(&ops::gt_scalar(&norms, number(max_norm))?, &scale, &ones)?;
    ops::index_copy_(self_, 0, &named, &arith::mul(&rows, &scale)?)
}
