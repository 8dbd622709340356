//! Elementary functions in f32, written once as branch-free scalar code.
//!
//! Guarantees: no table, no branch, no library call (but for those that say so), so a loop over any of these vectorises
//! whatever the instruction set. Lane position does not change a result, and AVX2 and AVX-512 agree bit for bit (both
//! use FMA). `F` says whether FMA exists: without it `mul_add` would become a library call per element.
//! The functions of the first rank (exp, log, tanh, sigmoid, erf, gelu) are f32 throughout; the others are formulas over
//! the f64 functions of [`crate::vmath64`], rounded once. NaN and infinities follow IEEE.
#![allow(clippy::excessive_precision)]

use crate::vmath64 as wide;

/// `a * b + c`, rounded once if the machine can.
#[inline(always)]
pub fn fma<const F: bool>(a: f32, b: f32, c: f32) -> f32 {
    if F { a.mul_add(b, c) } else { a * b + c }
}

/// Horner evaluation, constant term first.
#[inline(always)]
fn poly<const F: bool, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        y = fma::<F>(y, x, c[i]);
    }
    y
}

/// Clamp that keeps NaN (`f32::clamp` does too, but this form is two min/max instructions).
#[inline(always)]
fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x > hi { hi } else { x };
    if x < lo { lo } else { x }
}

const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer that sits in the low bits
const LN2_HI: f32 = 0.693_145_75; // low bits zero, so k * LN2_HI is exact
const LN2_LO: f32 = 1.428_606_8e-6;

/// `x = k ln 2 + r` with `|r| <= ln 2 / 2`. No float-to-int conversion: those saturate in Rust and cost compares.
#[inline(always)]
fn reduce<const F: bool>(x: f32) -> (i32, f32) {
    let t = fma::<F>(x, std::f32::consts::LOG2_E, MAGIC);
    let k = (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let kf = t - MAGIC;
    (k, fma::<F>(kf, -LN2_LO, fma::<F>(kf, -LN2_HI, x)))
}

/// `exp(r) - 1` for a reduced `r`.
#[inline(always)]
fn expm1_reduced<const F: bool>(r: f32) -> f32 {
    const Q: [f32; 5] = [5.000000101e-01, 1.666651289e-01, 4.166618727e-02, 8.369598291e-03, 1.395171846e-03];
    fma::<F>(r * r, poly::<F, 5>(r, Q), r)
}

#[inline(always)]
fn pow2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) << 23) as u32)
}

/// `2^k * y` in two steps, so that results overflow to infinity and underflow through the subnormals.
#[inline(always)]
fn scale(y: f32, k: i32) -> f32 {
    let half = k >> 1;
    y * pow2(half) * pow2(k.wrapping_sub(half))
}

/// `e^x`.
#[inline(always)]
pub fn exp<const F: bool>(x: f32) -> f32 {
    let (k, r) = reduce::<F>(clamp(x, -104.5, 89.0));
    scale(expm1_reduced::<F>(r) + 1.0, k)
}

/// `x + x^3 P(x^2)` below 0.6, `1 - 2 / (exp(2|x|) + 1)` above.
///
/// One formula for all, `m / (m + 2)` with `m = exp(2|x|) - 1`, is a fifth faster in cache but reaches 2.3 ulp.
#[inline(always)]
pub fn tanh<const F: bool>(x: f32) -> f32 {
    const P: [f32; 5] = [-3.333329927e-01, 1.333195824e-01, -5.378668370e-02, 2.080538497e-02, -5.905868826e-03];
    let a = x.abs();
    let aa = a * a;
    let small = fma::<F>(a * aa, poly::<F, 5>(aa, P), a);
    let (k, r) = reduce::<F>(if a > 10.0 { 20.0 } else { 2.0 * a });
    let s = pow2(k);
    let big = 1.0 - 2.0 / (fma::<F>(s, expm1_reduced::<F>(r), s) + 1.0);
    (if a < 0.6 { small } else { big }).copysign(x)
}

/// The exponential is only taken of negative numbers, so both tails keep their relative accuracy.
#[inline(always)]
pub fn sigmoid<const F: bool>(x: f32) -> f32 {
    let z = exp::<F>(-x.abs());
    (if x < 0.0 { z } else { 1.0 }) / (1.0 + z)
}

/// Natural logarithm.
#[inline(always)]
pub fn log<const F: bool>(x: f32) -> f32 {
    const P: [f32; 9] = [
        3.333331042e-01,
        -2.499998672e-01,
        2.000222812e-01,
        -1.666924409e-01,
        1.421861827e-01,
        -1.238445666e-01,
        1.187341408e-01,
        -1.178927535e-01,
        6.913623481e-02,
    ];
    let tiny = x < f32::MIN_POSITIVE;
    let bits = (if tiny { x * 8_388_608.0 } else { x }).to_bits() as i32;
    let k = bits.wrapping_sub(0x3f35_04f3) >> 23; // mantissa lands in [sqrt(1/2), sqrt(2))
    let f = f32::from_bits(bits.wrapping_sub(k << 23) as u32) - 1.0;
    let kf = k as f32 - if tiny { 23.0 } else { 0.0 };
    let ff = f * f;
    let tail = fma::<F>(f * ff, poly::<F, 9>(f, P), fma::<F>(ff, -0.5, kf * LN2_LO));
    let y = fma::<F>(kf, LN2_HI, f + tail);
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x } // +inf and NaN
}

/// `x + x P(x^2)` below 1; `1 - exp(q(|x|))` with `q = ln erfc` above.
#[inline(always)]
pub fn erf<const F: bool>(x: f32) -> f32 {
    const S: [f32; 7] = [
        1.283791660e-01,
        -3.761262714e-01,
        1.128360020e-01,
        -2.685444538e-02,
        5.189536679e-03,
        -8.020852137e-04,
        7.889153301e-05,
    ];
    const Q: [f32; 7] = [
        -2.447132737e-04,
        -1.127474987e+00,
        -6.375170068e-01,
        -1.036403275e-01,
        2.208764319e-02,
        -3.008537674e-03,
        1.924261090e-04,
    ];
    let a = x.abs();
    let small = fma::<F>(a, poly::<F, 7>(a * a, S), a); // the leading 1 kept apart saves a rounding
    let t = if a > 4.0 { 4.0 } else { a };
    let (k, r) = reduce::<F>(poly::<F, 7>(t, Q));
    let s = pow2(k);
    let big = 1.0 - fma::<F>(s, expm1_reduced::<F>(r), s);
    (if a < 1.0 { small } else { big }).copysign(x)
}

/// `x Phi(x)` with `Phi(-a) = exp(-a^2/2) G(a)`: the left tail keeps its digits, unlike `x (1 + erf) / 2`.
#[inline(always)]
pub fn gelu_erf<const F: bool>(x: f32) -> f32 {
    const G: [f32; 10] = [
        1.215139475e-01,
        -2.064026204e-01,
        1.232250412e-01,
        -4.621326362e-02,
        6.131942268e-03,
        2.904387389e-03,
        -9.832881734e-04,
        -3.390128866e-04,
        1.150136415e-04,
        5.316194509e-05,
    ];
    let a = x.abs();
    let a = if a > 14.5 { 14.5 } else { a };
    let s = a * a;
    let lost = if F { a.mul_add(a, -s) } else { 0.0 }; // what rounding a*a dropped; exp would magnify it
    let (k, r) = reduce::<F>(-0.5 * s);
    let e = scale(expm1_reduced::<F>(fma::<F>(lost, -0.5, r)) + 1.0, k);
    let tail = e * poly::<F, 10>((a - 3.0) / (a + 3.0), G);
    let y = x * if x < 0.0 { tail } else { 1.0 - tail };
    if x == f32::NEG_INFINITY { -0.0 } else { y }
}

/// `x (1 + tanh u) / 2` is `x sigmoid(2u)`, which has no cancellation.
#[inline(always)]
pub fn gelu_tanh<const F: bool>(x: f32) -> f32 {
    let u2 = 1.595_769_1 * fma::<F>(0.044_715 * x * x, x, x);
    let y = x * sigmoid::<F>(u2);
    if x == f32::NEG_INFINITY { -0.0 } else { y }
}

/// `x sigmoid(x)`.
#[inline(always)]
pub fn silu<const F: bool>(x: f32) -> f32 {
    // At minus infinity the product would be inf * 0.
    let y = x * sigmoid::<F>(x);
    if x == f32::NEG_INFINITY { -0.0 } else { y }
}

/// `2^x`.
#[inline(always)]
pub fn exp2<const F: bool>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let t = x + MAGIC;
    let k = (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let r = (x - (t - MAGIC)) * std::f32::consts::LN_2;
    scale(expm1_reduced::<F>(r) + 1.0, k)
}

macro_rules! widened {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, computed in f64 and rounded once.")]
        #[inline(always)]
        pub fn $name<const F: bool>(x: f32) -> f32 {
            wide::$name::<F>(f64::from(x)) as f32
        }
    )*};
}
widened!(expm1 log2 log10 log1p asin acos atan sinh cosh asinh acosh atanh logsigmoid mish);
widened!(erfc erfinv lgamma digamma); // scalar

/// `zeta`, computed in f64 and rounded once.
pub fn zeta<const F: bool>(s: f32, q: f32) -> f32 {
    wide::zeta::<F>(f64::from(s), f64::from(q)) as f32
}

/// Up to this argument the reduction by multiples of pi/2 is exact enough; callers repair what lies beyond.
pub const TRIG_LIMIT: f32 = 1e6;

/// Sine, for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub fn sin<const F: bool>(x: f32) -> f32 {
    wide::sin_reduced::<F>(f64::from(x)) as f32
}

/// Cosine, for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub fn cos<const F: bool>(x: f32) -> f32 {
    wide::cos_reduced::<F>(f64::from(x)) as f32
}

/// Tangent, for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub fn tan<const F: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    (wide::sin_reduced::<F>(x) / wide::cos_reduced::<F>(x)) as f32
}

/// `x^y` with the special cases of C's `pow`.
#[inline(always)]
pub fn pow<const F: bool>(x: f32, y: f32) -> f32 {
    let r = wide::exp::<F>(f64::from(y) * wide::log::<F>(f64::from(x.abs()))) as f32;
    let half = y * 0.5;
    let whole = y.trunc() == y;
    let odd = whole && half.trunc() != half;
    let r = if x.is_sign_negative() && odd { -r } else { r };
    let r = if x < 0.0 && !whole && x > f32::NEG_INFINITY { f32::NAN } else { r };
    if y == 0.0 || x == 1.0 || (x == -1.0 && y.is_infinite()) { 1.0 } else { r }
}

/// The angle of `(x, y)`, in all four quadrants.
#[inline(always)]
pub fn atan2<const F: bool>(y: f32, x: f32) -> f32 {
    let (a, b) = (f64::from(y.abs()), f64::from(x.abs()));
    let (lo, hi) = if a > b { (b, a) } else { (a, b) };
    let q = if hi == 0.0 { 0.0 } else { lo / hi };
    let q = if lo == f64::INFINITY { 1.0 } else { q };
    let t = wide::atan::<F>(q);
    let t = if a > b { std::f64::consts::FRAC_PI_2 - t } else { t };
    let t = if x.is_sign_negative() { std::f64::consts::PI - t } else { t };
    if x.is_nan() || y.is_nan() { f32::NAN } else { (t as f32).copysign(y) }
}

/// `sqrt(x^2 + y^2)` without overflow.
#[inline(always)]
pub fn hypot<const F: bool>(x: f32, y: f32) -> f32 {
    let (a, b) = (f64::from(x), f64::from(y));
    let r = wide::fma::<F>(a, a, b * b).sqrt() as f32;
    if x.is_infinite() || y.is_infinite() { f32::INFINITY } else { r }
}

/// `log(1 + exp(beta x)) / beta`, and `x` where `beta x > threshold`.
#[inline(always)]
pub fn softplus<const F: bool>(x: f32, beta: f32, threshold: f32) -> f32 {
    let s = x * beta;
    let y = (wide::log1p::<F>(wide::exp::<F>(f64::from(s))) / f64::from(beta)) as f32;
    if s > threshold { x } else { y }
}

/// The f32 of IEEE half-precision bits, exactly.
#[inline(always)]
pub fn from_f16(h: u16) -> f32 {
    let m = u32::from(h & 0x7fff) << 13;
    // One multiplication rebiases the exponent and normalizes the subnormals.
    let f = f32::from_bits(m) * f32::from_bits((127 + 112) << 23);
    let f = if m >= 0x0f80_0000 { f32::from_bits(m | 0x7f80_0000) } else { f };
    f32::from_bits(f.to_bits() | u32::from(h & 0x8000) << 16)
}

/// Nearest half-precision bits, ties to even; NaN stays NaN.
#[inline(always)]
pub fn to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let b = x.to_bits() & 0x7fff_ffff;
    let normal = b.wrapping_sub(112 << 23).wrapping_add(0xfff + (b >> 13 & 1)) >> 13;
    // Adding one half lines the last bit up with the smallest subnormal of f16, so the hardware rounds.
    let tiny = (f32::from_bits(b) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let h = if b < 0x3880_0000 { tiny } else { normal };
    let h = if b >= 0x477f_f000 { 0x7c00 } else { h };
    let h = if b > 0x7f80_0000 { 0x7e00 } else { h };
    h as u16 | sign
}

/// The f32 of bfloat16 bits.
#[inline(always)]
pub fn from_bf16(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// Nearest bfloat16 bits, ties to even; NaN stays NaN.
#[inline(always)]
pub fn to_bf16(x: f32) -> u16 {
    let b = x.to_bits();
    let r = b.wrapping_add(0x7fff + (b >> 16 & 1)) >> 16;
    if x.is_nan() { 0x7fc0 } else { r as u16 }
}
