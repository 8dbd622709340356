//! Complex numbers in terms of real kernels: as pairs, or multiplied by pointwise products.

use super::fused::Fused;
use super::pointwise::{binary_op, ternary_op};
use super::reduce::converted;
use super::{copy_into, dense};
use crate::layout::{Dims, Layout};
use crate::ops::shape::view::as_parts;
use crate::{DType, Result, Scalar, Spec, Tensor};
use firebrand_kernels::fill;
use firebrand_kernels::pointwise::Op;

/// The parts of complex numbers along a new last dimension: the same memory, outside of autograd.
pub(crate) fn parts(t: &Tensor) -> Result<Tensor> {
    Ok(t.alias_as(Spec { layout: as_parts(t.layout())?, dtype: t.dtype().to_real(), device: t.device() }))
}

/// The real parts (0) or the imaginary ones (1).
pub(crate) fn part(t: &Tensor, k: usize) -> Result<Tensor> {
    let l = as_parts(t.layout())?;
    let n = t.ndim();
    let layout = Layout::strided(&l.sizes()[..n], &l.strides()[..n], l.offset() + k)?;
    Ok(t.alias_as(Spec { layout, dtype: t.dtype().to_real(), device: t.device() }))
}

/// `len` elements along a dimension from `start` on.
fn cut(t: &Tensor, dim: usize, start: usize, len: usize) -> Tensor {
    let mut sizes = t.dims();
    sizes[dim] = len;
    // Of nothing, no place is named that memory may not have.
    let from = if sizes.contains(&0) { 0 } else { start * t.strides()[dim] };
    t.alias_with(Layout::derived(&sizes, t.strides(), t.layout().offset() + from))
}

/// The product over some dimensions: one after another, each by multiplying its halves.
pub(crate) fn prod(t: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    if t.numel() == 0 {
        fill(out.write()?.view_mut(), Scalar::Int(1).into());
        return Ok(());
    }
    let mut rest = t.clone();
    for &d in dims {
        let mut n = rest.shape()[d];
        while n > 1 {
            let half = n / 2;
            let mut sizes = rest.dims();
            sizes[d] = n - half;
            let next = Tensor::try_empty(Spec::new(&sizes, rest.dtype(), rest.device())?)?;
            binary_op(
                Op::Mul,
                t.dtype(),
                &cut(&rest, d, 0, half),
                &cut(&rest, d, half, half),
                &cut(&next, d, 0, half),
            )?;
            if n % 2 == 1 {
                copy_into(&cut(&rest, d, n - 1, 1), &cut(&next, d, half, 1))?;
            }
            (rest, n) = (next, n - half);
        }
    }
    // The same elements, whether or not dimensions of size 1 are kept.
    let rest = dense(&rest)?;
    let shaped = rest.alias_with(out.layout().to_contiguous().with_offset(rest.layout().offset())?);
    copy_into(&shaped, out)
}

/// `log(e^a + e^b)`: the operand with the larger real part, and the logarithm of what the other adds to it.
pub(crate) fn logaddexp(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    static SUM: Fused<3> =
        Fused::new(|[low, high, same]| same.eq(1.0).select(low, high + (low - high).one(Op::Exp).one(Op::Log1p)));
    let dtype = out.dtype();
    let (a, b) = (&converted(a, dtype)?, &converted(b, dtype)?);
    let (x, y) = (&part(a, 0)?, &part(b, 0)?);
    let fresh = |dtype| Tensor::try_empty(Spec::new(out.shape(), dtype, out.device())?);
    let (less, same, infinite) = (fresh(DType::Bool)?, fresh(DType::Bool)?, fresh(DType::Bool)?);
    binary_op(Op::Lt, x.dtype(), x, y, &less)?;
    // Both have nothing to add.
    binary_op(Op::Eq, x.dtype(), x, y, &same)?;
    let nothing = Tensor::try_empty(Spec::new(&[], x.dtype(), x.device())?)?;
    fill(nothing.write()?.view_mut(), Scalar::Float(f64::NEG_INFINITY).into());
    binary_op(Op::Eq, x.dtype(), x, &nothing, &infinite)?;
    binary_op(Op::LogicalAnd, DType::Bool, &same, &infinite, &same)?;
    let (low, high) = (fresh(dtype)?, fresh(dtype)?);
    ternary_op(Op::Where, dtype, &less, a, b, &low)?;
    ternary_op(Op::Where, dtype, &less, b, a, &high)?;
    SUM.run(dtype, [(&low).into(), (&high).into(), (&same).into()], out)
}

/// The elements so far combined, along one dimension.
pub(crate) fn scan(
    t: &Tensor,
    dim: usize,
    out: &Tensor,
    combine: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let sizes: Dims = t.dims();
    let Some(&n) = sizes.get(dim).filter(|_| t.numel() > 0) else { return copy_into(t, out) };
    for k in 0..n {
        let (from, to) = (cut(t, dim, k, 1), cut(out, dim, k, 1));
        match k {
            0 => copy_into(&from, &to)?,
            _ => combine(&cut(out, dim, k - 1, 1), &from, &to)?,
        }
    }
    Ok(())
}
