//! Softmax: the kernel handles rows, columns and everything between.

use super::fused::Fused;
use super::reduce::converted;
use crate::ops::shape::wrap_dim;
use crate::{DType, Result, Spec, Tensor};
use firebrand_kernels::softmax as kernel;

pub(crate) fn softmax(t: &Tensor, dim: i64, _half_to_float: bool, out: &Tensor) -> Result<()> {
    kernel::softmax(t.read()?.view(), wrap_dim("softmax", dim, t.ndim())?, out.write()?.view_mut());
    Ok(())
}

pub(crate) fn log_softmax(t: &Tensor, dim: i64, _half_to_float: bool, out: &Tensor) -> Result<()> {
    kernel::log_softmax(t.read()?.view(), wrap_dim("log_softmax", dim, t.ndim())?, out.write()?.view_mut());
    Ok(())
}

pub(crate) fn softmax_backward_data(
    grad: &Tensor,
    output: &Tensor,
    dim: i64,
    _input_dtype: DType,
    out: &Tensor,
) -> Result<()> {
    let d = wrap_dim("softmax", dim, grad.ndim())?;
    let grad = converted(grad, output.dtype())?;
    kernel::softmax_backward(grad.read()?.view(), output.read()?.view(), d, out.write()?.view_mut());
    Ok(())
}

pub(crate) fn log_softmax_backward_data(
    grad: &Tensor,
    output: &Tensor,
    dim: i64,
    _input_dtype: DType,
    out: &Tensor,
) -> Result<()> {
    let d = wrap_dim("log_softmax", dim, grad.ndim())?;
    let grad = converted(grad, output.dtype())?;
    kernel::log_softmax_backward(grad.read()?.view(), output.read()?.view(), d, out.write()?.view_mut());
    Ok(())
}

/// As softmax, but a line of nothing but -inf gives zeros instead of NaN.
pub(crate) fn safe_softmax(t: &Tensor, dim: i64, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    softmax(&converted(t, out.dtype())?, dim, false, out)?;
    if t.ndim() == 0 || t.numel() == 0 {
        return Ok(());
    }
    let mut sizes = t.dims();
    sizes[wrap_dim("_safe_softmax", dim, t.ndim())?] = 1;
    let top = Tensor::try_empty(Spec::new(&sizes, t.dtype(), t.device())?)?;
    super::reduce::amax(t, &[dim], true, &top)?;
    static UNLESS_EMPTY: Fused<2> = Fused::new(|[y, top]| top.eq(f64::NEG_INFINITY).select(0.0, y));
    UNLESS_EMPTY.run(out.dtype(), [out.into(), (&top).into()], out)
}
