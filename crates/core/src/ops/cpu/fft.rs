//! Fourier transforms: which lines, in which order, and what the result is divided by.

use super::pointwise::scalar_op;
use super::{copy_into, dense};
use crate::layout::{Dims, Layout};
use crate::limits::as_size;
use crate::{DType, Device, Error, Result, Scalar, Spec, SymInt, Tensor};
#[cfg(feature = "fft")]
use firebrand_kernels::fft as kernel;
use firebrand_kernels::pointwise::Op;

/// What stands in the place of the kernels in a build without them.
#[cfg(not(feature = "fft"))]
mod kernel {
    use firebrand_kernels::{View, ViewMut};

    pub(super) fn c2c(_: ViewMut<'_>, _: usize, _: bool) {
        unreachable!("the ops refuse")
    }

    pub(super) fn c2r(_: View<'_>, _: usize, _: ViewMut<'_>) {
        unreachable!("the ops refuse")
    }
}

/// Dimensions counted from the start; the shape function has checked them.
fn places(dims: impl Iterator<Item = i64>, ndim: usize) -> Dims {
    dims.map(|d| if d < 0 { d + ndim as i64 } else { d } as usize).collect()
}

/// Divides by 1, by the root of `n` or by `n`.
fn normalize(out: &Tensor, normalization: i64, n: usize) -> Result<()> {
    let by = match normalization {
        1 => (n as f64).sqrt(),
        2 => n as f64,
        _ => return Ok(()),
    };
    scalar_op(Op::Mul, out.dtype(), out, Scalar::Float(1.0 / by), out)
}

fn lengths(t: &Tensor, dims: &[usize]) -> usize {
    dims.iter().map(|&d| t.shape()[d]).product()
}

pub(crate) fn c2c(t: &Tensor, dim: &[SymInt], normalization: i64, forward: bool, out: &Tensor) -> Result<()> {
    let dims = places(dim.iter().map(|d| d.int()), t.ndim());
    copy_into(t, out)?;
    for &d in dims.iter().rev() {
        kernel::c2c(out.write()?.view_mut(), d, forward);
    }
    normalize(out, normalization, lengths(out, &dims))
}

pub(crate) fn r2c(t: &Tensor, dim: &[i64], normalization: i64, _onesided: bool, out: &Tensor) -> Result<()> {
    let dims = places(dim.iter().copied(), t.ndim());
    let Some((&last, others)) = dims.split_last() else { return copy_into(t, out) };
    let whole = Tensor::try_empty(Spec::new(t.shape(), out.dtype(), t.device())?)?;
    copy_into(t, &whole)?;
    kernel::c2c(whole.write()?.view_mut(), last, true);
    copy_into(&whole.alias_with(Layout::strided(out.shape(), whole.strides(), whole.layout().offset())?), out)?;
    for &d in others.iter().rev() {
        kernel::c2c(out.write()?.view_mut(), d, true);
    }
    normalize(out, normalization, lengths(t, &dims))
}

pub(crate) fn c2r(t: &Tensor, dim: &[i64], normalization: i64, _last_dim_size: SymInt, out: &Tensor) -> Result<()> {
    let dims = places(dim.iter().copied(), t.ndim());
    let Some((&last, others)) = dims.split_last() else { return copy_into(t, out) };
    let mut spectrum = dense(t)?;
    if !others.is_empty() {
        // Transformed in place: never in the caller's memory.
        let own = Tensor::try_empty(Spec::new(t.shape(), t.dtype(), t.device())?)?;
        copy_into(t, &own)?;
        for &d in others {
            kernel::c2c(own.write()?.view_mut(), d, false);
        }
        spectrum = own;
    }
    kernel::c2r(spectrum.read()?.view(), last, out.write()?.view_mut());
    normalize(out, normalization, lengths(out, &dims))
}

/// `k / (n d)` for the frequencies a transform of length `n` has: those from `first` on, then the others.
fn frequencies(
    op: &'static str,
    n: i64,
    d: f64,
    dtype: Option<DType>,
    device: Option<Device>,
    count: i64,
    list: impl Iterator<Item = i64>,
) -> Result<Tensor> {
    if n < 0 {
        return Err(Error::argument(op, format!("the number of samples must not be negative, found {n}")));
    }
    let dtype = dtype.unwrap_or_else(crate::dtype::default_dtype);
    crate::ops::shape::need_float(op, dtype)?;
    let out = Tensor::try_empty(Spec::new(&[as_size(count)], dtype, device.unwrap_or_default())?)?;
    if !out.is_meta() {
        crate::ops::lists::write(&out, list.map(|k| k as f64 / (n as f64 * d)))?;
    }
    Ok(out)
}

pub(crate) fn fftfreq(n: i64, d: f64, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    frequencies("fft_fftfreq", n, d, dtype, device, n, (0..n - n / 2).chain(-(n / 2)..0))
}

pub(crate) fn rfftfreq(n: i64, d: f64, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    frequencies("fft_rfftfreq", n, d, dtype, device, n / 2 + 1, 0..=n / 2)
}
