//! Gradients of products, also where factors are 0.

use super::reduce::{full_like, reduce_like, restore_dims};
use crate::ops::arith;
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Result, Scalar, Tensor, ops};

/// Whether some element is 0. A question about numbers, so the meta device answers no; inside `vmap` and while a graph is
/// traced, where nothing can look, the answer is the one that is right for both.
pub(super) fn has_zero(t: &Tensor) -> Result<bool> {
    if crate::state::is(crate::state::LEVEL) || (t.is_meta() && crate::state::is(crate::state::INNER)) {
        return Ok(t.numel() > 0);
    }
    if t.is_meta() || t.numel() == 0 {
        return Ok(false);
    }
    let _plain = crate::autograd::NoGrad::new();
    ops::any(&ops::eq_scalar(t, Scalar::Int(0))?)?.try_item::<bool>()
}

pub(crate) fn prod_backward(grad: &Tensor, input: &Tensor, result: &Tensor) -> Result<Tensor> {
    if input.ndim() == 0 {
        return Ok(grad.clone());
    }
    if !has_zero(input)? {
        return arith::mul_conj(grad, &ops::div(result, input)?);
    }
    let flat = ops::reshape(input, &[SymInt::from(-1)])?;
    let others = product_of_others(&flat, 0)?;
    arith::mul_conj(grad, &ops::reshape(&others, &input.sym_sizes())?)
}

pub(crate) fn prod_dim_backward(
    grad: &Tensor,
    input: &Tensor,
    result: &Tensor,
    dim: i64,
    keepdim: bool,
) -> Result<Tensor> {
    if input.ndim() == 0 {
        return Ok(grad.clone());
    }
    let (grad, result) = (
        restore_dims(grad, input.ndim(), Some(&[dim]), keepdim)?,
        restore_dims(result, input.ndim(), Some(&[dim]), keepdim)?,
    );
    if !has_zero(input)? {
        return arith::mul_conj(&grad, &ops::div(&result, input)?);
    }
    arith::mul_conj(&grad, &product_of_others(input, dim)?)
}

/// For every element the product of the others along `dim`: those before times those after.
fn product_of_others(t: &Tensor, dim: i64) -> Result<Tensor> {
    let d = wrap_dim("prod", dim, t.ndim())?;
    let mut sizes = t.dims();
    if sizes[d] == 0 {
        return Ok(t.clone());
    }
    let (dim, last) = (d as i64, sizes[d] as i64 - 1);
    sizes[d] = 1;
    let one = full_like(t, &sizes, 1)?;
    let before = ops::cat(&[one.clone(), ops::slice(t, dim, None, Some(last.into()), 1.into())?], dim)?;
    let after = ops::cat(&[one, ops::flip(&ops::slice(t, dim, Some(1.into()), None, 1.into())?, &[dim])?], dim)?;
    let (before, after) = (ops::cumprod(&before, dim, None)?, ops::cumprod(&after, dim, None)?);
    ops::mul(&before, &ops::flip(&after, &[dim])?)
}

pub(crate) fn prod_jvp(tangent: &Tensor, input: &Tensor, result: &Tensor) -> Result<Tensor> {
    let slope = prod_backward(&full_like(result, &[], 1)?, input, result)?;
    ops::sum(&arith::mul_conj(tangent, &slope)?, None)
}

pub(crate) fn prod_dim_jvp(
    tangent: &Tensor,
    input: &Tensor,
    result: &Tensor,
    dim: i64,
    keepdim: bool,
) -> Result<Tensor> {
    let slope = prod_dim_backward(&full_like(result, result.shape(), 1)?, input, result, dim, keepdim)?;
    reduce_like(&arith::mul_conj(tangent, &slope)?, Some(&[dim]), keepdim)
}
