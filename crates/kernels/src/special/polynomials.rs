//! Orthogonal polynomials of an argument and an order.
//!
//! Orders below zero give zero. Inside the interval, high orders of Chebyshev's are computed by their angles.

/// Orders beyond it would take too long, as every element costs as many steps: NaN.
const LONGEST: i64 = 100_000;

/// Hermite's polynomials of higher order overflow anywhere.
const HIGHEST_HERMITE: i64 = 512;

fn sign(n: i64) -> f64 {
    if n % 2 == 0 { 1.0 } else { -1.0 }
}

/// `p(n)` of `p(0) = 1`, `p(1)`, `p(k + 1) = step(k, p(k), p(k - 1))`; ends early when it becomes NaN.
fn recurrence(n: i64, first: f64, step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    let (mut p, mut q) = (1.0, first);
    for k in 1..n.min(LONGEST) {
        if q.is_nan() {
            return q;
        }
        (p, q) = (q, step(k as f64, q, p));
    }
    if n > LONGEST { f64::NAN } else { q }
}

/// The four kinds: what they are at 1 and -1, by the angle, and of order one.
fn chebyshev(x: f64, n: f64, kind: usize, by_angle: i64) -> f64 {
    let n = n as i64;
    if n < 0 {
        return 0.0;
    }
    let (count, odd) = (n as f64, sign(n));
    if x.abs() == 1.0 {
        return match (kind, x > 0.0) {
            (0, true) => 1.0,
            (0, false) => odd,
            (1, true) => count + 1.0,
            (1, false) => odd * (count + 1.0),
            (2, true) => 1.0,
            (3, false) => odd,
            (2, false) => odd * (2.0 * count + 1.0),
            _ => 2.0 * count + 1.0,
        };
    }
    if n > by_angle && x.abs() < 1.0 {
        let t = x.acos();
        return match kind {
            0 => (count * t).cos(),
            1 => ((count + 1.0) * t).sin() / t.sin(),
            2 => ((count + 0.5) * t).cos() / (t / 2.0).cos(),
            _ => ((count + 0.5) * t).sin() / (t / 2.0).sin(),
        };
    }
    let first = match kind {
        0 => x,
        1 => x + x,
        2 => x + x - 1.0,
        _ => x + x + 1.0,
    };
    recurrence(n, first, |_, q, p| (x + x) * q - p)
}

macro_rules! kinds {
    ($($name:ident $shifted:ident $kind:literal $by_angle:literal $shifted_by_angle:literal)*) => {$(
        pub(super) fn $name(x: f64, n: f64) -> f64 {
            chebyshev(x, n, $kind, $by_angle)
        }
        pub(super) fn $shifted(x: f64, n: f64) -> f64 {
            chebyshev(x + x - 1.0, n, $kind, $shifted_by_angle)
        }
    )*};
}
kinds! {
    chebyshev_t shifted_t 0 6 6
    chebyshev_u shifted_u 1 8 6
    chebyshev_v shifted_v 2 8 6
    chebyshev_w shifted_w 3 8 4
}

fn ordered(n: f64, f: impl Fn(i64) -> f64) -> f64 {
    let n = n as i64;
    if n < 0 { 0.0 } else { f(n) }
}

pub(super) fn hermite_h(x: f64, n: f64) -> f64 {
    let step = |k: f64, q: f64, p: f64| (x + x) * q - 2.0 * k * p;
    ordered(n, |n| if n > HIGHEST_HERMITE { f64::NAN } else { recurrence(n, x + x, step) })
}

pub(super) fn hermite_he(x: f64, n: f64) -> f64 {
    let step = |k: f64, q: f64, p: f64| x * q - k * p;
    ordered(n, |n| if n > HIGHEST_HERMITE { f64::NAN } else { recurrence(n, x, step) })
}

pub(super) fn laguerre_l(x: f64, n: f64) -> f64 {
    let step = |k: f64, q: f64, p: f64| ((k + k + (1.0 - x)) * q - k * p) / (k + 1.0);
    ordered(n, |n| if x == 0.0 { 1.0 } else { recurrence(n, 1.0 - x, step) })
}

pub(super) fn legendre_p(x: f64, n: f64) -> f64 {
    let step = |k: f64, q: f64, p: f64| ((k + k + 1.0) * x * q - k * p) / (k + 1.0);
    ordered(n, |n| match x.abs() == 1.0 {
        true if x > 0.0 => 1.0,
        true => sign(n),
        false => recurrence(n, x, step),
    })
}
