//! Elementary functions in f64.
//!
//! exp, expm1, log, log1p, tanh, sigmoid and what is built of them are branch-free and vectorise, with errors of one or
//! two ulp; they also carry the f32 functions of the second rank. The trigonometric and rare ones are library calls, one
//! element at a time. `*_reduced` and [`atan`] reach about 1e-11, enough for f32 only; [`full`] has their exact forms.
#![allow(clippy::excessive_precision)]

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, PI};

/// `a * b + c`, rounded once if the machine can.
#[inline(always)]
pub fn fma<const F: bool>(a: f64, b: f64, c: f64) -> f64 {
    if F { a.mul_add(b, c) } else { a * b + c }
}

/// Horner evaluation, constant term first.
#[inline(always)]
fn poly<const F: bool, const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut y = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        y = fma::<F>(y, x, c[i]);
    }
    y
}

const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52: adding it rounds to an integer that sits in the low bits
const LN2_HI: f64 = 6.931_471_803_691_238_164_90e-01; // low bits zero, so k * LN2_HI is exact
const LN2_LO: f64 = 1.908_214_929_270_587_700_02e-10;

/// `x = k ln 2 + r` with `|r| <= ln 2 / 2`; x is clamped to where exp overflows and underflows. NaN stays in `r`.
#[inline(always)]
fn reduce<const F: bool>(x: f64) -> (i64, f64) {
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let t = fma::<F>(x, LOG2_E, MAGIC);
    let k = (t.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64);
    let kf = t - MAGIC;
    (k, fma::<F>(kf, -LN2_LO, fma::<F>(kf, -LN2_HI, x)))
}

/// `exp(r) - 1` for a reduced `r`: the Taylor series, whose next term is below 2^-57.
#[inline(always)]
fn expm1_reduced<const F: bool>(r: f64) -> f64 {
    const Q: [f64; 12] = {
        let mut q = [0.5; 12];
        let mut i = 1;
        while i < 12 {
            q[i] = q[i - 1] / (i + 2) as f64;
            i += 1;
        }
        q
    };
    fma::<F>(r * r, poly::<F, 12>(r, Q), r)
}

#[inline(always)]
fn pow2(k: i64) -> f64 {
    f64::from_bits((k.wrapping_add(1023) << 52) as u64)
}

/// The two factors of `2^k`, each a normal number. A logical shift of a biased number: AVX2 has no arithmetic one.
#[inline(always)]
fn halves(k: i64) -> (f64, f64) {
    let half = (k.wrapping_add(4096) as u64 >> 1) as i64 - 2048;
    (pow2(half), pow2(k.wrapping_sub(half)))
}

/// `e^x`.
#[inline(always)]
pub fn exp<const F: bool>(x: f64) -> f64 {
    let (k, r) = reduce::<F>(x);
    let (p, q) = halves(k);
    (expm1_reduced::<F>(r) + 1.0) * p * q
}

/// `e^x - 1` without cancellation.
#[inline(always)]
pub fn expm1<const F: bool>(x: f64) -> f64 {
    let (k, r) = reduce::<F>(if x < -40.0 { -40.0 } else { x });
    let (p, q) = halves(k);
    let y = fma::<F>(expm1_reduced::<F>(r), p, p - 1.0 / q) * q; // 2^k (e^r - 1) + 2^k - 1
    if x == 0.0 { x } else { y }
}

/// Natural logarithm: `2 atanh(f / (2 + f))` of the mantissa in `[sqrt(1/2), sqrt(2))`.
#[inline(always)]
pub fn log<const F: bool>(x: f64) -> f64 {
    const P: [f64; 8] = [
        0.666666666666666665,
        0.40000000000000877,
        0.285714285708036118,
        0.222222223917139174,
        0.181817956401329063,
        0.153862397028146582,
        0.132687731386568852,
        0.130866261478401021,
    ];
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let tiny = x < f64::MIN_POSITIVE;
    let bits = (if tiny { x * 18_014_398_509_481_984.0 } else { x }).to_bits();
    let biased = bits.wrapping_add((1023 << 52) - SQRT_HALF); // exponent field k + 1023, whatever side of sqrt(1/2)
    let kf = f64::from_bits(biased >> 52 | TWO_52.to_bits()) - (TWO_52 + 1023.0) - if tiny { 54.0 } else { 0.0 };
    let f = f64::from_bits((biased & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let h = 0.5 * f * f;
    // f - (h - s (h + R)) keeps f whole, so that nothing is lost near one.
    let tail = fma::<F>(s, fma::<F>(z, poly::<F, 8>(z, P), h), kf * LN2_LO);
    let y = fma::<F>(kf, LN2_HI, f - (h - tail));
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f64::NAN } else { y };
    if x < f64::INFINITY { y } else { x }
}

/// `log(1 + x)`: the logarithm of the rounded sum, corrected for what the rounding lost.
#[inline(always)]
pub fn log1p<const F: bool>(x: f64) -> f64 {
    let u = 1.0 + x;
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    let y = log::<F>(u) + if u > 0.0 && u < f64::INFINITY { lost / u } else { 0.0 };
    if x == 0.0 { x } else { y }
}

/// Hyperbolic tangent, `m / (m + 2)` with `m = exp(2|x|) - 1`.
#[inline(always)]
pub fn tanh<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let m = expm1::<F>(if a > 22.0 { 44.0 } else { 2.0 * a });
    (m / (m + 2.0)).copysign(x)
}

/// `1 / (1 + exp(-x))`; the exponential is only taken of negative numbers, so both tails keep their accuracy.
#[inline(always)]
pub fn sigmoid<const F: bool>(x: f64) -> f64 {
    let z = exp::<F>(-x.abs());
    (if x < 0.0 { z } else { 1.0 }) / (1.0 + z)
}

/// `x sigmoid(x)`.
#[inline(always)]
pub fn silu<const F: bool>(x: f64) -> f64 {
    let y = x * sigmoid::<F>(x);
    if x == f64::NEG_INFINITY { -0.0 } else { y }
}

/// Base-two logarithm, exact for powers of two once rounded to f32.
#[inline(always)]
pub fn log2<const F: bool>(x: f64) -> f64 {
    log::<F>(x) * LOG2_E
}

/// Base-ten logarithm.
#[inline(always)]
pub fn log10<const F: bool>(x: f64) -> f64 {
    log::<F>(x) * std::f64::consts::LOG10_E
}

/// `log(sigmoid(x))`.
#[inline(always)]
pub fn logsigmoid<const F: bool>(x: f64) -> f64 {
    (if x > 0.0 { 0.0 } else { x }) - log1p::<F>(exp::<F>(-x.abs()))
}

/// `x tanh(log(1 + e^x))`, as a quotient of exponentials.
#[inline(always)]
pub fn mish<const F: bool>(x: f64) -> f64 {
    let n = exp::<F>(if x > 40.0 { 40.0 } else { x });
    let m = n * (n + 2.0);
    let y = x * (m / (m + 2.0));
    if x == f64::NEG_INFINITY { -0.0 } else { y }
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh<const F: bool>(x: f64) -> f64 {
    let m = expm1::<F>(x.abs());
    let y = 0.5 * (m + m / (m + 1.0));
    // Past 709 the exponential overflows before the half of it does.
    let h = exp::<F>(0.5 * x.abs());
    (if x.abs() > 40.0 { 0.5 * h * h } else { y }).copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh<const F: bool>(x: f64) -> f64 {
    let h = exp::<F>(0.5 * x.abs());
    let e = exp::<F>(x.abs());
    if x.abs() > 40.0 { 0.5 * h * h } else { 0.5 * (e + 1.0 / e) }
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    let big = log::<F>(a) + LN_2;
    let y = log1p::<F>(a + a * a / (1.0 + fma::<F>(a, a, 1.0).sqrt()));
    (if a > 1e9 { big } else { y }).copysign(x)
}

/// Inverse hyperbolic cosine.
#[inline(always)]
pub fn acosh<const F: bool>(x: f64) -> f64 {
    let t = x - 1.0;
    let y = log1p::<F>(t + (t * (t + 2.0)).sqrt());
    let y = if x > 1e9 { log::<F>(x) + LN_2 } else { y };
    if x < 1.0 { f64::NAN } else { y }
}

/// Inverse hyperbolic tangent.
#[inline(always)]
pub fn atanh<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    (0.5 * log1p::<F>(2.0 * a / (1.0 - a))).copysign(x)
}

/// `x = k pi/2 + r` with `|r| <= pi/4`; the first part of pi/2 has 33 bits, so its product with k is exact to 2^20.
#[inline(always)]
fn quarter<const F: bool>(x: f64) -> (i64, f64) {
    const HI: f64 = 1.570_796_326_734_125_614_17;
    const LO: f64 = 6.077_100_506_506_192_249_32e-11;
    let t = fma::<F>(x, 2.0 / PI, MAGIC);
    let kf = t - MAGIC;
    (t.to_bits() as i64, fma::<F>(kf, -LO, fma::<F>(kf, -HI, x)))
}

#[inline(always)]
fn sin_or_cos<const F: bool>(k: i64, r: f64) -> f64 {
    const S: [f64; 5] = [-1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0];
    const C: [f64; 6] = [-0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0, 1.0 / 479_001_600.0];
    let z = r * r;
    let s = fma::<F>(r * z, poly::<F, 5>(z, S), r);
    let c = fma::<F>(z, poly::<F, 6>(z, C), 1.0);
    let y = if k & 1 == 0 { s } else { c };
    f64::from_bits(y.to_bits() ^ ((k & 2) as u64) << 62)
}

/// Sine to f32 accuracy, for `|x|` up to a million.
#[inline(always)]
pub fn sin_reduced<const F: bool>(x: f64) -> f64 {
    let (k, r) = quarter::<F>(x);
    let y = sin_or_cos::<F>(k, r);
    if x == 0.0 { x } else { y }
}

/// Cosine to f32 accuracy, for `|x|` up to a million.
#[inline(always)]
pub fn cos_reduced<const F: bool>(x: f64) -> f64 {
    let (k, r) = quarter::<F>(x);
    sin_or_cos::<F>(k.wrapping_add(1), r)
}

/// Arc tangent to f32 accuracy: reduced to `|x| <= tan(pi/8)`.
#[inline(always)]
pub fn atan<const F: bool>(x: f64) -> f64 {
    const P: [f64; 8] = [
        0.999999999999244762,
        -0.333333332769224921,
        0.199999930535558136,
        -0.142853865537521393,
        0.111034569089474629,
        -0.0899255290615091148,
        0.0697419768659526513,
        -0.037655106012914021,
    ];
    let a = x.abs();
    let (far, mid) = (a > 2.414_213_562_373_095, a > 0.414_213_562_373_095);
    let (n, d) = if mid { (a - 1.0, a + 1.0) } else { (a, 1.0) };
    let (n, d) = if far { (-1.0, a) } else { (n, d) };
    let base = if mid { FRAC_PI_4 } else { 0.0 };
    let base = if far { FRAC_PI_2 } else { base };
    let t = n / d;
    fma::<F>(t, poly::<F, 8>(t * t, P), base).copysign(x)
}

/// Arc sine to f32 accuracy.
#[inline(always)]
pub fn asin<const F: bool>(x: f64) -> f64 {
    atan::<F>(x / ((1.0 - x) * (1.0 + x)).sqrt())
}

/// Arc cosine to f32 accuracy.
#[inline(always)]
pub fn acos<const F: bool>(x: f64) -> f64 {
    2.0 * atan::<F>(((1.0 - x) / (1.0 + x)).sqrt())
}

/// `log(1 + exp(beta x)) / beta`, and `x` where `beta x > threshold`.
#[inline(always)]
pub fn softplus<const F: bool>(x: f64, beta: f64, threshold: f64) -> f64 {
    let s = x * beta;
    if s > threshold { x } else { log1p::<F>(exp::<F>(s)) / beta }
}

/// `x Phi(x)`.
#[inline(always)]
pub fn gelu_erf<const F: bool>(x: f64) -> f64 {
    let y = 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2);
    if x == f64::NEG_INFINITY { -0.0 } else { y }
}

/// `x (1 + tanh u) / 2` as `x sigmoid(2u)`.
#[inline(always)]
pub fn gelu_tanh<const F: bool>(x: f64) -> f64 {
    let u2 = 1.595_769_121_605_730_711_76 * fma::<F>(0.044_715 * x * x, x, x);
    let y = x * sigmoid::<F>(u2);
    if x == f64::NEG_INFINITY { -0.0 } else { y }
}

/// Error function, a library call.
#[inline(always)]
pub fn erf<const F: bool>(x: f64) -> f64 {
    libm::erf(x)
}

/// Complementary error function, a library call.
#[inline(always)]
pub fn erfc<const F: bool>(x: f64) -> f64 {
    libm::erfc(x)
}

/// `log |Gamma(x)|`, a library call.
#[inline(always)]
pub fn lgamma<const F: bool>(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The inverse of erf: a rough start, then Newton steps on erf (or on erfc near one, which keeps its digits).
pub fn erfinv<const F: bool>(x: f64) -> f64 {
    let a = x.abs();
    if a >= 1.0 || x.is_nan() {
        return if a == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
    }
    if a < 1e-9 {
        return x * 0.886_226_925_452_758_013_65; // sqrt(pi) / 2
    }
    let l = (-a).ln_1p() + a.ln_1p();
    let t = 2.0 / (PI * 0.147) + 0.5 * l;
    let mut y = ((t * t - l / 0.147).sqrt() - t).max(0.0).sqrt();
    for _ in 0..3 {
        let e = if a < 0.5 { libm::erf(y) - a } else { (1.0 - a) - libm::erfc(y) };
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp();
        let u = e / slope;
        y -= u / (1.0 + y * u); // Halley: the second derivative of erf is -2y times the first
    }
    y.copysign(x)
}

/// The derivative of lgamma: reflection for negative numbers, recurrence up to 10, then the asymptotic series.
pub fn digamma<const F: bool>(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        return digamma::<F>(1.0 - x) - PI / (PI * x.fract()).tan();
    }
    if x == f64::INFINITY {
        return x;
    }
    let (mut x, mut y) = (x, 0.0);
    while x < 10.0 {
        y -= 1.0 / x;
        x += 1.0;
    }
    const B: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let z = 1.0 / (x * x);
    y + x.ln() - 0.5 / x - z * poly::<false, 7>(z, B)
}

/// The sum of `(q + k)^-s` over `k >= 0`: term by term up to 10, then Euler and Maclaurin's series.
pub fn zeta<const F: bool>(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 || (q < 0.0 && q != q.floor() && s != s.floor()) {
        return f64::NAN;
    }
    if s == 1.0 || (q <= 0.0 && q == q.floor()) {
        return f64::INFINITY;
    }
    if q < -10.0 {
        // The terms below zero are those of two series above it, mirrored: as many as you like in one step.
        let (f, sign) = (q - q.floor(), if s % 2.0 == 0.0 { 1.0 } else { -1.0 });
        return (zeta::<F>(s, f) + sign * zeta::<F>(s, 1.0 - f)) - sign * zeta::<F>(s, 1.0 - q);
    }
    let (mut q, mut y) = (q, 0.0);
    while q < 10.0 {
        y += q.powf(-s);
        q += 1.0;
    }
    if q == f64::INFINITY {
        return 0.0;
    }
    // The Bernoulli numbers B_2j over (2j)!.
    const B: [f64; 9] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3_617.0 / 10_670_622_842_880_000.0,
        43_867.0 / 5_109_094_217_170_944_000.0,
    ];
    let last = q.powf(-s);
    y += last * (q / (s - 1.0) + 0.5);
    let mut factor = s * last / q;
    for (j, b) in B.iter().enumerate() {
        y += b * factor;
        let k = s + 2.0 * j as f64;
        factor *= (k + 1.0) * (k + 2.0) / (q * q);
    }
    y
}

/// Full-precision f64 forms of what above is only good for f32, as library calls.
pub mod full {
    pub use super::{
        acosh, asinh, atanh, cosh, digamma, erf, erfc, erfinv, exp, expm1, fma, gelu_erf, gelu_tanh, lgamma, log,
        log1p, logsigmoid, mish, sigmoid, silu, sinh, softplus, tanh, zeta,
    };

    macro_rules! library {
        ($($name:ident = $method:ident)*) => {$(
            #[doc = concat!("`f64::", stringify!($method), "`.")]
            #[inline(always)]
            pub fn $name<const F: bool>(x: f64) -> f64 {
                x.$method()
            }
        )*};
    }
    library!(exp2 = exp2 log2 = log2 log10 = log10 sin = sin cos = cos tan = tan asin = asin acos = acos atan = atan);

    /// `f64::powf`.
    #[inline(always)]
    pub fn pow<const F: bool>(x: f64, y: f64) -> f64 {
        x.powf(y)
    }
    /// `f64::atan2`.
    #[inline(always)]
    pub fn atan2<const F: bool>(y: f64, x: f64) -> f64 {
        y.atan2(x)
    }
    /// `f64::hypot`.
    #[inline(always)]
    pub fn hypot<const F: bool>(x: f64, y: f64) -> f64 {
        x.hypot(y)
    }
}
