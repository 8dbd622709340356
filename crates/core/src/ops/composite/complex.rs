//! Complex numbers and their parts. `conj` computes: there is no lazy conjugate bit, so nothing needs resolving, and a
//! conjugate does not share memory with its input.

use crate::ops::{self};
use crate::{Error, Result, Tensor};

/// The real part, a view; of real numbers the tensor itself.
pub(crate) fn real(t: &Tensor) -> Result<Tensor> {
    if t.is_complex() { ops::select(&ops::view_as_real(t)?, -1, 0.into()) } else { Ok(t.clone()) }
}

/// The imaginary part, a view.
pub(crate) fn imag(t: &Tensor) -> Result<Tensor> {
    if t.is_complex() {
        return ops::select(&ops::view_as_real(t)?, -1, 1.into());
    }
    Err(Error::argument("imag", format!("only complex tensors have an imaginary part, this one is {}", t.dtype())))
}

/// The conjugate; of real numbers the tensor itself.
pub(crate) fn conj(t: &Tensor) -> Result<Tensor> {
    ops::formulas::conj(t)
}

/// The tensor itself: conjugates are computed when they are requested.
pub(crate) fn resolve_conj(t: &Tensor) -> Result<Tensor> {
    Ok(t.clone())
}

/// The conjugate of the transposed matrices.
pub(crate) fn adjoint(t: &Tensor) -> Result<Tensor> {
    conj(&ops::transpose(t, -2, -1)?)
}

/// Complex numbers of these magnitudes and angles.
pub(crate) fn polar(abs: &Tensor, angle: &Tensor) -> Result<Tensor> {
    ops::complex(&ops::mul(abs, &ops::cos(angle)?)?, &ops::mul(abs, &ops::sin(angle)?)?)
}
