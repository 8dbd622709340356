//! Functions related to the normal distribution, and products with logarithms.

use super::chebyshev;
use super::tables::ERFCX;
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

pub(super) fn erfcx(x: f64) -> f64 {
    if x < 0.0 {
        // Below -26.7 it is larger than any number.
        return if x < -26.7 { f64::INFINITY } else { 2.0 * (x * x).exp() - erfcx(-x) };
    }
    if x > 1e10 {
        return 1.0 / (x * PI.sqrt());
    }
    chebyshev(&ERFCX, (x - 3.75) / (x + 3.75)) / (1.0 + 2.0 * x)
}

pub(super) fn log_ndtr(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if x < -1.0 { (erfcx(-t) / 2.0).ln() - t * t } else { (-libm::erfc(t) / 2.0).ln_1p() }
}

/// Newton's method with the second derivative, on the logarithm of the tail: the tails of tiny probabilities are long.
pub(super) fn ndtri(p: f64) -> f64 {
    match p {
        _ if p == 0.0 => return f64::NEG_INFINITY,
        _ if p == 1.0 => return f64::INFINITY,
        _ if !(0.0..=1.0).contains(&p) => return f64::NAN,
        _ if p > 0.5 => return -ndtri(1.0 - p),
        _ => {}
    }
    let log = p.ln();
    // Good to three digits (Abramowitz and Stegun 26.2.23).
    let t = (-2.0 * log).sqrt();
    let mut x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
    for _ in 0..4 {
        // d/dx log Φ(x) = φ(x)/Φ(x), whose own derivative is -(x + it) it.
        let slope = (2.0 / PI).sqrt() / erfcx(-x * FRAC_1_SQRT_2);
        let step = (log_ndtr(x) - log) / slope;
        x -= step / (1.0 + step * (x + slope) / 2.0);
    }
    // Around the middle the value itself decides, not its logarithm.
    if p > 0.1 {
        let off = libm::erfc(-x / SQRT_2) / 2.0 - p;
        x -= off * (2.0 * PI).sqrt() * (x * x / 2.0).exp();
    }
    x
}

pub(super) fn xlog1py(x: f64, y: f64) -> f64 {
    if x == 0.0 && !y.is_nan() { 0.0 } else { x * y.ln_1p() }
}
