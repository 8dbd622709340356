//! Bessel functions of orders zero and one.

use super::chebyshev;
use super::tables::{I0_LARGE, I0_SMALL, I1_LARGE, I1_SMALL, K0_LARGE, K0_SMALL, K1_LARGE, K1_SMALL};

pub(super) fn i0e(x: f64) -> f64 {
    let x = x.abs();
    if x <= 8.0 { chebyshev(&I0_SMALL, x / 4.0 - 1.0) } else { chebyshev(&I0_LARGE, 16.0 / x - 1.0) / x.sqrt() }
}

pub(super) fn i0(x: f64) -> f64 {
    x.abs().exp() * i0e(x)
}

pub(super) fn i1e(x: f64) -> f64 {
    let a = x.abs();
    let y = match a <= 8.0 {
        true => a * chebyshev(&I1_SMALL, a / 4.0 - 1.0),
        false => chebyshev(&I1_LARGE, 16.0 / a - 1.0) / a.sqrt(),
    };
    if x < 0.0 { -y } else { y }
}

pub(super) fn i1(x: f64) -> f64 {
    x.abs().exp() * i1e(x)
}

/// `K0` where it is not small.
fn k0_near(x: f64) -> f64 {
    chebyshev(&K0_SMALL, x * x / 2.0 - 1.0) - (x / 2.0).ln() * i0(x)
}

/// `K1` where it is not small.
fn k1_near(x: f64) -> f64 {
    (x / 2.0).ln() * i1(x) + chebyshev(&K1_SMALL, x * x / 2.0 - 1.0) / x
}

/// Infinite at zero, undefined below.
fn beyond_zero(x: f64, f: impl Fn(f64) -> f64) -> f64 {
    match x {
        _ if x == 0.0 => f64::INFINITY,
        _ if x < 0.0 => f64::NAN,
        _ => f(x),
    }
}

pub(super) fn k0(x: f64) -> f64 {
    beyond_zero(x, |x| if x <= 2.0 { k0_near(x) } else { (-x).exp() * chebyshev(&K0_LARGE, 4.0 / x - 1.0) / x.sqrt() })
}

pub(super) fn k0e(x: f64) -> f64 {
    beyond_zero(x, |x| if x <= 2.0 { x.exp() * k0_near(x) } else { chebyshev(&K0_LARGE, 4.0 / x - 1.0) / x.sqrt() })
}

pub(super) fn k1(x: f64) -> f64 {
    beyond_zero(x, |x| if x <= 2.0 { k1_near(x) } else { (-x).exp() * chebyshev(&K1_LARGE, 4.0 / x - 1.0) / x.sqrt() })
}

pub(super) fn k1e(x: f64) -> f64 {
    beyond_zero(x, |x| if x <= 2.0 { x.exp() * k1_near(x) } else { chebyshev(&K1_LARGE, 4.0 / x - 1.0) / x.sqrt() })
}

pub(super) fn j0(x: f64) -> f64 {
    libm::j0(x)
}

pub(super) fn j1(x: f64) -> f64 {
    libm::j1(x)
}

pub(super) fn y0(x: f64) -> f64 {
    libm::y0(x)
}

pub(super) fn y1(x: f64) -> f64 {
    libm::y1(x)
}

pub(super) fn spherical_j0(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    if x.is_infinite() { 0.0 } else { x.sin() / x }
}
