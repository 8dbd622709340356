//! The Airy function of the first kind.

use super::chebyshev;
use super::tables::{AIRY_COS, AIRY_DECAY, AIRY_SIN};
use std::f64::consts::{FRAC_PI_4, PI};

/// Ai(0) and -Ai'(0).
const AT_ZERO: [f64; 2] = [0.355_028_053_887_817_2, 0.258_819_403_792_806_8];

/// Beyond it the function is taken for zero, as PyTorch does.
const FAR: f64 = 103.892;

pub(super) fn ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    if x > FAR {
        return 0.0;
    }
    if x.abs() <= 2.0 {
        return series(x);
    }
    let a = x.abs();
    let z = 2.0 / 3.0 * a * a.sqrt();
    // z at the border.
    let border = 4.0 / 3.0 * std::f64::consts::SQRT_2;
    if x > 0.0 {
        return (-z).exp() * chebyshev(&AIRY_DECAY, 2.0 * border / z - 1.0) / (2.0 * PI.sqrt() * a.powf(0.25));
    }
    let u = 2.0 * (border / z) * (border / z) - 1.0;
    let (sin, cos) = (z - FRAC_PI_4).sin_cos();
    (cos * chebyshev(&AIRY_COS, u) + sin * chebyshev(&AIRY_SIN, u) / z) / (PI.sqrt() * a.powf(0.25))
}

/// Both solutions of `y'' = x y` as power series.
fn series(x: f64) -> f64 {
    let cube = x * x * x;
    let (mut f, mut g) = (1.0, x);
    let (mut even, mut odd, mut k) = (1.0f64, x, 0.0);
    while even.abs() > 1e-18 || odd.abs() > 1e-18 {
        k += 3.0;
        even *= cube / (k * (k - 1.0));
        odd *= cube / (k * (k + 1.0));
        f += even;
        g += odd;
    }
    AT_ZERO[0] * f - AT_ZERO[1] * g
}
