//! Windows for spectra: weights that fall off toward both ends.

use super::creation::computed;
use crate::limits::as_size;
use crate::ops::shape::{creation as shape, need_float};
use crate::{DType, Device, Error, Result, Tensor};
use std::f64::consts::PI;

/// `value(i, period)` for each place; a periodic window is a symmetric one without its last place.
fn window(
    op: &'static str,
    length: i64,
    periodic: bool,
    (dtype, device): (Option<DType>, Option<Device>),
    value: impl Fn(f64, f64) -> f64,
) -> Result<Tensor> {
    if length < 0 {
        return Err(Error::argument(op, format!("the window's length must not be negative, found {length}")));
    }
    let n = as_size(length);
    let spec = shape::fresh(op, &[n.into()], dtype, device)?;
    need_float(op, spec.dtype)?;
    let period = if periodic { n } else { n.saturating_sub(1) } as f64;
    computed(spec, |i| if n == 1 { 1.0 } else { value(i as f64, period) })
}

macro_rules! windows {
    ($($name:ident $periodic:ident ($($argument:ident = $default:expr),*) |$i:ident, $period:ident| $value:expr;)*) => {$(
        pub(crate) fn $name(window_length: i64, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
            $periodic(window_length, true, $($default,)* dtype, device)
        }

        pub(crate) fn $periodic(
            window_length: i64,
            periodic: bool,
            $($argument: f64,)*
            dtype: Option<DType>,
            device: Option<Device>,
        ) -> Result<Tensor> {
            window(stringify!($name), window_length, periodic, (dtype, device), |$i, $period| $value)
        }
    )*};
}
windows! {
    bartlett_window bartlett_window_periodic () |i, period| 1.0 - (2.0 * i / period - 1.0).abs();
    blackman_window blackman_window_periodic () |i, period| {
        let turn = 2.0 * PI * i / period;
        0.42 - 0.5 * turn.cos() + 0.08 * (2.0 * turn).cos()
    };
    hamming_window hamming_window_with (alpha = 0.54, beta = 0.46) |i, period| {
        alpha - beta * (2.0 * PI * i / period).cos()
    };
    kaiser_window kaiser_window_with (beta = 12.0) |i, period| {
        use firebrand_kernels::special::Unary;
        let x = 2.0 * i / period - 1.0;
        Unary::I0.at(beta * (1.0 - x * x).max(0.0).sqrt()) / Unary::I0.at(beta)
    };
}

pub(crate) fn hamming_window_periodic(
    window_length: i64,
    periodic: bool,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    hamming_window_with(window_length, periodic, 0.54, 0.46, dtype, device)
}

pub(crate) fn hamming_window_alpha(
    window_length: i64,
    periodic: bool,
    alpha: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    hamming_window_with(window_length, periodic, alpha, 0.46, dtype, device)
}

pub(crate) fn kaiser_window_periodic(
    window_length: i64,
    periodic: bool,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    kaiser_window_with(window_length, periodic, 12.0, dtype, device)
}
