//! The regularized incomplete gamma functions.

use std::f64::consts::PI;

/// Orders from which one expansion for all places is exact enough.
const UNIFORM: f64 = 1e6;

/// `x^a e^-x / Gamma(a + 1)`, without losing digits to large powers.
fn prefactor(a: f64, x: f64) -> f64 {
    if a < 15.0 {
        return (a * x.ln() - x - libm::lgamma(a + 1.0)).exp();
    }
    // What Stirling's formula leaves out.
    let r = 1.0 / (a * a);
    let rest = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / a;
    (-a * excess(a, x) - rest).exp() / (2.0 * PI * a).sqrt()
}

/// `x/a - 1 - log(x/a)`, also where both are close.
fn excess(a: f64, x: f64) -> f64 {
    let d = (x - a) / a;
    if d.abs() > 0.1 {
        return d - d.ln_1p();
    }
    // log(1 + d) = 2 artanh(v), v = d / (2 + d).
    let v = d / (2.0 + d);
    let (mut sum, mut power, mut k) = (d * v, 2.0 * v, 1.0);
    loop {
        power *= v * v;
        k += 2.0;
        let next = sum - power / k;
        if next == sum {
            return sum;
        }
        sum = next;
    }
}

/// The lower function by its series.
fn lower(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0f64, 1.0f64, a);
    while term > sum * 1e-17 {
        k += 1.0;
        term *= x / k;
        sum += term;
    }
    sum * prefactor(a, x)
}

/// The upper function by its continued fraction, evaluated from the top (Lentz).
fn upper(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / if b == 0.0 { TINY } else { b };
    let mut h = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = an * d + b;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = b + an / c;
        c = if c.abs() < TINY { TINY } else { c };
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    // prefactor(a, x) has Gamma(a + 1) below the line.
    prefactor(a, x) * a * h
}

/// The upper function of a large order (Temme): an error function and its first correction.
fn uniform(a: f64, x: f64) -> f64 {
    let m = (x - a) / a;
    let half = excess(a, x);
    let eta = (2.0 * half).sqrt().copysign(m);
    let correction = if eta.abs() < 1e-4 { -1.0 / 3.0 + eta / 12.0 } else { 1.0 / m - 1.0 / eta };
    libm::erfc(eta * (a / 2.0).sqrt()) / 2.0 + (-a * half).exp() / (2.0 * PI * a).sqrt() * correction
}

/// What both are where nothing is to be computed: the lower one.
fn edge(a: f64, x: f64) -> Option<f64> {
    match (a, x) {
        _ if a.is_nan() || x.is_nan() || x < 0.0 || a < 0.0 => Some(f64::NAN),
        _ if a == 0.0 => Some(if x > 0.0 { 1.0 } else { f64::NAN }),
        _ if x == 0.0 => Some(0.0),
        _ if a.is_infinite() => Some(if x.is_infinite() { f64::NAN } else { 0.0 }),
        _ if x.is_infinite() => Some(1.0),
        _ => None,
    }
}

pub(super) fn igamma(a: f64, x: f64) -> f64 {
    edge(a, x).unwrap_or_else(|| match a {
        _ if a > UNIFORM => 1.0 - uniform(a, x),
        _ if x > 1.0 && x > a => 1.0 - upper(a, x),
        _ => lower(a, x),
    })
}

pub(super) fn igammac(a: f64, x: f64) -> f64 {
    if let Some(lower) = edge(a, x) {
        return 1.0 - lower;
    }
    match a {
        _ if a > UNIFORM => uniform(a, x),
        _ if x > 1.1 && x > a => upper(a, x),
        _ if x <= 0.5 && a < 0.1 || (x <= 1.1 && x > a) => upper_series(a, x),
        _ => 1.0 - lower(a, x),
    }
}

/// The upper function where place and order are small, so that the lower one is close to one.
fn upper_series(a: f64, x: f64) -> f64 {
    let (mut power, mut sum, mut n) = (1.0, 0.0f64, 0.0);
    loop {
        n += 1.0;
        power *= -x / n;
        let term = power / (a + n);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    let log = a * x.ln();
    let small = libm::lgamma(1.0 + a);
    -(log - small).exp_m1() - (log - libm::lgamma(a)).exp() * sum
}

/// The slope of a gamma-distributed number `x` in the shape of its distribution, the number's quantile held fixed:
/// `-(d cdf / d shape) / pdf`. A series near 0, a saddle point expansion for large shapes, a rational approximation
/// between them, with PyTorch's coefficients.
pub(super) fn standard_gamma_grad(shape: f64, x: f64) -> f64 {
    if x < f64::from(0.8f32) {
        let (mut term, mut below) = (1.0, shape);
        let (mut first, mut second) = (term / below, term / (below * below));
        for i in 1..=5 {
            term *= -x / f64::from(i);
            below += 1.0;
            first += term / below;
            second += term / (below * below);
        }
        let power = x.powf(shape);
        let density = x.powf(shape - 1.0) * (-x).exp();
        let slope = (x.ln() - crate::vmath64::digamma::<false>(shape)) * (power * first) - power * second;
        let result = -slope / density;
        return if result.is_nan() { 0.0 } else { result };
    }
    if shape > 8.0 {
        if f64::from(0.9f32) * shape <= x && x <= f64::from(1.1f32) * shape {
            let a = 1.0 + 24.0 * shape * (1.0 + 12.0 * shape);
            let b = 1440.0 * (shape * shape) + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / shape
                + shape * (107.0 + 3600.0 * x);
            return a * b / (1_244_160.0 * (shape * shape) * (shape * shape));
        }
        let below = (8.0 * shape).sqrt();
        let second = below / (shape - x);
        let third = (x - shape - shape * (x / shape).ln()).powf(-1.5);
        let both = if x < shape { second - third } else { second + third };
        let first = (x / shape).ln() * both - (2.0 / shape).sqrt() * (shape + x) / ((shape - x) * (shape - x));
        let stirling = 1.0 + 1.0 / (12.0 * shape) * (1.0 + 1.0 / (24.0 * shape));
        return -stirling * (x * first) / below;
    }
    const C: [[f64; 8]; 3] = [
        [0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084],
        [0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623],
        [
            0.040121004,
            -0.0065914022,
            -0.0026286047,
            -0.0013441777,
            0.017050642,
            -0.0021309326,
            0.00085092367,
            -1.5247877e-07,
        ],
    ];
    let (u, v) = ((x / shape).ln(), shape.ln());
    let c: [f64; 8] = std::array::from_fn(|i| C[0][i] + u * (C[1][i] + u * C[2][i]));
    let p = c[0] + v * (c[1] + v * (c[2] + v * c[3]));
    let q = c[4] + v * (c[5] + v * (c[6] + v * c[7]));
    (p / q).exp()
}
