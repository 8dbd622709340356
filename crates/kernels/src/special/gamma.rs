//! The regularised incomplete gamma functions.

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
