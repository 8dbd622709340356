//! Functions of integers and of the bits of floats: divisors, neighbors, mantissa and exponent.
//!
//! They are rare, so they go element by element through lists of a wide type.

use super::copy_into;
use crate::ops::lists;
use crate::ops::shape::expanded;
use crate::{DType, Element, Result, Spec, Tensor};

/// The elements of `t`, broadcast to the shape of `out`, in a wide type.
fn wide<T: Element + Default>(t: &Tensor, out: &Tensor) -> Result<Vec<T>> {
    let copy = Tensor::try_empty(Spec::new(out.shape(), T::DTYPE, out.device())?)?;
    copy_into(&t.alias_with(expanded(t, out.shape())?), &copy)?;
    copy.try_to_vec::<T>()
}

/// Stores values in the order of elements, whatever the layout.
fn store<T: Element>(values: impl IntoIterator<Item = T>, out: &Tensor) -> Result<()> {
    let dense = Tensor::try_empty(Spec::new(out.shape(), T::DTYPE, out.device())?)?;
    lists::write(&dense, values)?;
    copy_into(&dense, out)
}

fn pairs<T: Element + Default>(a: &Tensor, b: &Tensor, out: &Tensor, f: impl Fn(T, T) -> T) -> Result<()> {
    let (a, b) = (wide::<T>(a, out)?, wide::<T>(b, out)?);
    store(a.into_iter().zip(b).map(|(a, b)| f(a, b)), out)
}

/// Euclid's algorithm; the divisor of two zeros is 0.
fn divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// The greatest common divisor.
pub(crate) fn gcd(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    pairs(a, b, out, divisor)
}

/// The least common multiple, in wrapping arithmetic.
pub(crate) fn lcm(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    pairs(a, b, out, |a: i64, b: i64| match divisor(a, b) {
        0 => 0,
        d => (a.wrapping_div(d)).wrapping_mul(b).wrapping_abs(),
    })
}

/// The neighbor of `a` on the way to `b`, of floats with this many bits in all and these after the point.
fn neighbor(a: f64, b: f64, dtype: DType) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a == b {
        return b;
    }
    let up = b > a;
    match dtype {
        DType::F64 => {
            if up {
                a.next_up()
            } else {
                a.next_down()
            }
        }
        DType::F32 => f64::from(if up { (a as f32).next_up() } else { (a as f32).next_down() }),
        half => half_neighbor(a, up, half),
    }
}

/// Like [`neighbor`], of half types: their bits count like integers on each side of zero.
fn half_neighbor(a: f64, up: bool, dtype: DType) -> f64 {
    use firebrand_kernels::{bf16, f16};
    let bits = |a: f64| if dtype == DType::F16 { f16::from_f64(a).to_bits() } else { bf16::from_f64(a).to_bits() };
    let value = |b: u16| if dtype == DType::F16 { f16::from_bits(b).to_f64() } else { bf16::from_bits(b).to_f64() };
    if a == 0.0 {
        return if up { value(1) } else { value(0x8001) };
    }
    let grows = (a > 0.0) == up;
    value(if grows { bits(a) + 1 } else { bits(a) - 1 })
}

pub(crate) fn nextafter(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    pairs(a, b, out, |a: f64, b: f64| neighbor(a, b, out.dtype()))
}

/// Mantissa in [0.5, 1) and exponent.
fn parts(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    // Small ones are moved to where they have a leading bit.
    let (x, moved) = if x.abs() < f64::MIN_POSITIVE { (x * 2f64.powi(54), 54) } else { (x, 0) };
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    let mantissa = f64::from_bits((x.to_bits() & !(0x7ff << 52)) | (1022 << 52));
    (mantissa, exponent - moved)
}

pub(crate) fn frexp(x: &Tensor, mantissa: &Tensor, exponent: &Tensor) -> Result<()> {
    let values = wide::<f64>(x, mantissa)?;
    store(values.iter().map(|&x| parts(x).0), mantissa)?;
    store(values.iter().map(|&x| parts(x).1), exponent)
}
