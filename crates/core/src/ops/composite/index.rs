//! Indexing ops composed of other indexing ops.

use crate::ops::formulas::sym;
use crate::ops::shape::{self, wrap_dim};
use crate::sym::SymInt;
use crate::{DType, Error, ErrorKind, Result, Scalar, Tensor, ops};

/// `scatter.reduce`: its words for what `scatter_reduce` does.
pub(crate) fn scatter_with_reduce(
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
) -> Result<Tensor> {
    match reduce {
        "add" if self_.is_complex() => ops::scatter_add(self_, dim, index, src),
        "add" => ops::scatter_reduce(self_, dim, index, src, "sum", true),
        "multiply" => ops::scatter_reduce(self_, dim, index, src, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is \"add\" or \"multiply\", found {other:?}"))),
    }
}

pub(crate) fn scatter_value_with_reduce(
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    value: Scalar,
    reduce: &str,
) -> Result<Tensor> {
    let src = ops::new_full(self_, &index.sym_sizes(), value, None, None)?;
    scatter_with_reduce(self_, dim, index, &src, reduce)
}

pub(crate) fn index_select_backward(grad: &Tensor, sizes: &[SymInt], dim: i64, index: &Tensor) -> Result<Tensor> {
    let zeros = ops::new_zeros(grad, sizes, None, None)?;
    ops::index_add(&zeros, dim, index, grad, Scalar::Int(1))
}

pub(crate) fn take_along_dim(self_: &Tensor, indices: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    const OP: &str = "take_along_dim";
    let Some(dim) = dim else {
        let flat = ops::reshape(self_, &[(-1).into()])?;
        return ops::gather(&flat, 0, &ops::reshape(indices, &[(-1).into()])?, false);
    };
    if self_.ndim() != indices.ndim() {
        let m = format!("{} dimensions and indices with {}; they must be equal", self_.ndim(), indices.ndim());
        return Err(Error::argument(OP, m));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    if self_.ndim() == 0 {
        return ops::gather(self_, 0, indices, false);
    }
    let (mut own, mut other) = (self_.dims(), indices.dims());
    (own[d], other[d]) = (1, 1);
    let mut sizes = shape::broadcast(OP, &own, &other)?;
    sizes[d] = self_.shape()[d];
    let input = ops::expand(self_, &sym(&sizes), false)?;
    sizes[d] = indices.shape()[d];
    let indices = from_front(indices, self_.shape()[d])?;
    ops::gather(&input, dim, &ops::expand(&indices, &sym(&sizes), false)?, false)
}

/// Indices with those below zero counted from the end.
fn from_front(indices: &Tensor, size: usize) -> Result<Tensor> {
    let shifted = ops::add_scalar(indices, Scalar::Int(size as i64), Scalar::Int(1))?;
    ops::where_self(&ops::lt_scalar(indices, Scalar::Int(0))?, &shifted, indices)
}

/// The positions of elements that are not zero, one vector a dimension.
pub(crate) fn nonzero_numpy(self_: &Tensor) -> Result<Vec<Tensor>> {
    let lifted = if self_.ndim() == 0 { ops::unsqueeze(self_, 0)? } else { self_.clone() };
    ops::unbind(&ops::nonzero(&lifted)?, 1)
}

/// Elements by indices, and `fill` where the mask says no; indices are not looked at there.
pub(crate) fn unsafe_masked_index(
    self_: &Tensor,
    mask: &Tensor,
    indices: &[Option<Tensor>],
    fill: Scalar,
) -> Result<Tensor> {
    let (safe, _) = masked_indices(mask, indices)?;
    let found = ops::index(self_, &safe)?;
    ops::masked_fill(&found, &ops::logical_not(mask)?, fill)
}

/// Adds values at indices, where the mask says so.
pub(crate) fn unsafe_masked_index_put_accumulate(
    self_: &Tensor,
    mask: &Tensor,
    indices: &[Option<Tensor>],
    values: &Tensor,
) -> Result<Tensor> {
    let (safe, no) = masked_indices(mask, indices)?;
    ops::index_put(self_, &safe, &ops::masked_fill(values, &no, Scalar::Int(0))?, true)
}

/// Indices that are zero where the mask says no, and where it does.
fn masked_indices(mask: &Tensor, indices: &[Option<Tensor>]) -> Result<(Vec<Option<Tensor>>, Tensor)> {
    let no = ops::logical_not(mask)?;
    let safe = |i: &Option<Tensor>| i.as_ref().map(|i| ops::masked_fill(i, &no, Scalar::Int(0))).transpose();
    Ok((indices.iter().map(safe).collect::<Result<_>>()?, no))
}

pub(crate) fn argwhere(self_: &Tensor) -> Result<Tensor> {
    ops::nonzero(self_)
}

pub(crate) fn one_hot(self_: &Tensor, num_classes: i64) -> Result<Tensor> {
    const OP: &str = "one_hot";
    if self_.dtype() != DType::I64 {
        let expected = "i64 class indices";
        return Err(ErrorKind::DTypeUnsupported { op: OP, found: self_.dtype(), expected }.into());
    }
    let classes = match num_classes {
        -1 => {
            self_.need_data(OP)?;
            let highest = self_.try_to_vec::<i64>()?.into_iter().max();
            highest.ok_or_else(|| Error::argument(OP, "give the number of classes for an empty tensor"))?.max(-1) + 1
        }
        n if n > 0 => n,
        n => return Err(Error::argument(OP, format!("the number of classes must be positive, found {n}"))),
    };
    let mut sizes = self_.sym_sizes();
    sizes.push(classes.into());
    let zeros = ops::new_zeros(self_, &sizes, None, None)?;
    ops::scatter_value(&zeros, -1, &ops::unsqueeze(self_, -1)?, Scalar::Int(1))
}

pub(crate) fn fill_diagonal_(self_: &Tensor, fill_value: Scalar, wrap: bool) -> Result<&Tensor> {
    const OP: &str = "fill_diagonal_";
    let sizes = self_.shape();
    let equal = sizes.len() == 2 || sizes.windows(2).all(|w| w[0] == w[1]);
    if sizes.len() < 2 || !equal {
        let m = format!("takes a matrix, or more dimensions of one size, found shape {sizes:?}");
        return Err(Error::argument(OP, m));
    }
    let shortest = sizes.iter().copied().min().unwrap_or(0);
    let step: usize = self_.layout().strides().iter().sum();
    let diagonal = |n: usize, offset: usize| {
        let at = self_.layout().offset() + offset;
        ops::as_strided(self_, &[n.into()], &[step.into()], Some(at.into()))
    };
    ops::fill_(&diagonal(shortest, 0)?, fill_value)?;
    if let (true, &[rows, columns]) = (wrap, sizes)
        && rows > columns + 1
        && !self_.is_meta()
    {
        // A tall matrix goes on after a free row.
        let mut at = columns + 1;
        while at < rows {
            let n = columns.min(rows - at);
            ops::fill_(&diagonal(n, at * self_.layout().strides()[0])?, fill_value)?;
            at += columns + 1;
        }
    }
    Ok(self_)
}
