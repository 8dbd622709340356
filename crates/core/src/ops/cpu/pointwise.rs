//! Pointwise ops: which instruction, in which dtype.
//!
//! Arithmetic computes in the dtype of its result (the shape function's promotion), comparisons in the promoted dtype of
//! their operands. Errors that depend on values (an integer division by zero) come before anything is written.

use super::expand;
use super::fused::{Fused, Input};
use crate::dtype::{Promotion, result_type};
use crate::races::{self, Role};
use crate::{DType, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::pointwise::{self as kernel, Op, Operand};
use std::f64::consts::{LN_2, PI};

/// One operand, computed in `compute`.
#[inline]
pub(crate) fn unary_op(op: Op, compute: DType, a: &Tensor, out: &Tensor) -> Result<()> {
    kernel::unary(op, compute, a.read()?.view(), out.write()?.view_mut());
    Ok(())
}

/// Two operands, broadcast, computed in `compute`.
#[inline]
pub(crate) fn binary_op(op: Op, compute: DType, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    // Row-major operands with as many elements as the result: broadcasting has nothing to do.
    if let (Some(x), Some(y), Some(z)) = (a.flat(compute), b.flat(compute), out.flat(compute))
        && x.len == z.len
        && y.len == z.len
    {
        let _held = (races::hold(a, Role::Reads)?, races::hold(b, Role::Reads)?, races::hold(out, Role::Writes)?);
        if kernel::binary_flat(op, compute, x, y, z) {
            return Ok(());
        }
    }
    let sizes = out.shape();
    if a.shape() == sizes && b.shape() == sizes {
        let (a, b, out) = (a.read()?, b.read()?, out.write()?);
        kernel::binary(op, compute, a.view().into(), b.view().into(), out.view_mut());
        return Ok(());
    }
    let (a, b, out) = (expand(a, sizes)?, expand(b, sizes)?, out.write()?);
    kernel::binary(op, compute, a.view().into(), b.view().into(), out.view_mut());
    Ok(())
}

/// A tensor of the result's shape and a number.
#[inline]
pub(crate) fn scalar_op(op: Op, compute: DType, a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
    let (a, out) = (a.read()?, out.write()?);
    kernel::binary(op, compute, a.view().into(), Operand::Value(b.into()), out.view_mut());
    Ok(())
}

/// A number and a tensor of the result's shape.
pub(crate) fn reversed_scalar_op(op: Op, compute: DType, a: Scalar, b: &Tensor, out: &Tensor) -> Result<()> {
    let (b, out) = (b.read()?, out.write()?);
    kernel::binary(op, compute, Operand::Value(a.into()), b.view().into(), out.view_mut());
    Ok(())
}

/// Three operands, broadcast.
pub(crate) fn ternary_op(op: Op, compute: DType, a: &Tensor, b: &Tensor, c: &Tensor, out: &Tensor) -> Result<()> {
    let sizes = out.shape();
    let (a, b, c, out) = (expand(a, sizes)?, expand(b, sizes)?, expand(c, sizes)?, out.write()?);
    kernel::ternary(op, compute, a.view().into(), b.view().into(), c.view().into(), out.view_mut());
    Ok(())
}

/// A tensor of the result's shape and two numbers.
pub(crate) fn scalars_op(op: Op, compute: DType, a: &Tensor, b: Scalar, c: Scalar, out: &Tensor) -> Result<()> {
    let (a, out) = (a.read()?, out.write()?);
    let (b, c) = (Operand::Value(b.into()), Operand::Value(c.into()));
    kernel::ternary(op, compute, a.view().into(), b, c, out.view_mut());
    Ok(())
}

// ---- one instruction

/// Functions of one operand, in the dtype of the result.
macro_rules! functions {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, out: &Tensor) -> Result<()> {
            unary_op(Op::$op, out.dtype(), a, out)
        }
    )*};
}
functions! {
    neg Neg, sgn Sign, sign Sign, floor Floor, ceil Ceil, round Round, trunc Trunc, frac Frac,
    reciprocal Reciprocal, sqrt Sqrt, rsqrt Rsqrt, exp Exp, exp2 Exp2, expm1 Expm1, log Log, log2 Log2, log10 Log10,
    log1p Log1p, sin Sin, cos Cos, tan Tan, asin Asin, acos Acos, atan Atan, sinh Sinh, cosh Cosh, tanh Tanh,
    asinh Asinh, acosh Acosh, atanh Atanh, sigmoid Sigmoid, erf Erf, erfc Erfc, erfinv Erfinv, lgamma Lgamma,
    digamma Digamma, bitwise_not BitwiseNot,
}

/// The conjugate; a real operand is its own.
pub(crate) fn conj_physical(a: &Tensor, out: &Tensor) -> Result<()> {
    if a.is_complex() { unary_op(Op::Conj, out.dtype(), a, out) } else { super::copy_into(a, out) }
}

/// Functions with a real result, also of a complex operand.
macro_rules! measures {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, out: &Tensor) -> Result<()> {
            unary_op(Op::$op, if a.is_complex() { a.dtype() } else { out.dtype() }, a, out)
        }
    )*};
}
measures! { abs Abs, angle Angle }

/// `real + i imag`.
pub(crate) fn complex(real: &Tensor, imag: &Tensor, out: &Tensor) -> Result<()> {
    for (k, part) in [real, imag].into_iter().enumerate() {
        super::copy_into(part, &super::complex::part(out, k)?)?;
    }
    Ok(())
}

/// Questions about one operand.
macro_rules! questions {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, out: &Tensor) -> Result<()> {
            unary_op(Op::$op, a.dtype(), a, out)
        }
    )*};
}
questions! { isnan Isnan, isinf Isinf, isfinite Isfinite, signbit Signbit, logical_not LogicalNot }

/// Functions of two operands, in the dtype of the result.
macro_rules! functions2 {
    ($($name:ident $op:ident),* $(,)?) => {$(
        #[inline]
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary_op(Op::$op, out.dtype(), a, b, out)
        }
    )*};
}
functions2! {
    mul Mul, div Div, pow Pow, maximum Maximum, minimum Minimum, fmax Fmax, fmin Fmin, hypot Hypot, atan2 Atan2,
    copysign Copysign, bitwise_and BitwiseAnd, bitwise_or BitwiseOr, bitwise_xor BitwiseXor,
    bitwise_left_shift ShiftLeft, bitwise_right_shift ShiftRight,
}

/// Functions of a tensor and a number, in the dtype of the result.
macro_rules! functions_scalar {
    ($($name:ident $op:ident),* $(,)?) => {$(
        #[inline]
        pub(crate) fn $name(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
            scalar_op(Op::$op, out.dtype(), a, b, out)
        }
    )*};
}
functions_scalar! {
    mul_scalar Mul, div_scalar Div, copysign_scalar Copysign, clamp_min Maximum, clamp_max Minimum,
    bitwise_and_scalar BitwiseAnd, bitwise_or_scalar BitwiseOr, bitwise_xor_scalar BitwiseXor,
    bitwise_left_shift_scalar ShiftLeft, bitwise_right_shift_scalar ShiftRight,
}

/// Comparisons, in the promoted dtype of the operands.
macro_rules! comparisons {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary_op(Op::$op, result_type(a, b), a, b, out)
        }
    )*};
}
comparisons! { eq Eq, ne Ne, lt Lt, le Le, gt Gt, ge Ge }

/// Comparisons with a number.
macro_rules! comparisons_scalar {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
            scalar_op(Op::$op, Promotion::default().tensor(a).scalar(b).result(), a, b, out)
        }
    )*};
}
comparisons_scalar! { eq_scalar Eq, ne_scalar Ne, lt_scalar Lt, le_scalar Le, gt_scalar Gt, ge_scalar Ge }

/// Logical ops: every operand is read as a bool of its own, so nothing is promoted.
macro_rules! logical {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary_op(Op::$op, DType::Bool, a, b, out)
        }
    )*};
}
logical! { logical_and LogicalAnd, logical_or LogicalOr, logical_xor LogicalXor }

// ---- sums and differences

/// `a + alpha b`.
#[inline]
pub(crate) fn add(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return binary_op(Op::Add, out.dtype(), a, b, out);
    }
    scaled_sum(a, b, alpha, out)
}

/// `a - alpha b`.
#[inline]
pub(crate) fn sub(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return binary_op(Op::Sub, out.dtype(), a, b, out);
    }
    scaled_sum(a, b, alpha.negated(), out)
}

/// `b - alpha a`.
pub(crate) fn rsub(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    sub(b, a, alpha, out)
}

fn scaled_sum(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    let sizes = out.shape();
    let (a, b, target) = (expand(a, sizes)?, expand(b, sizes)?, out.write()?);
    if out.dtype() == DType::Bool {
        // Bools: a or (alpha and b).
        let b = if alpha.to_bool() { &b } else { &a };
        kernel::binary(Op::Add, DType::Bool, a.view().into(), b.view().into(), target.view_mut());
        return Ok(());
    }
    let alpha = Operand::Value(alpha.into());
    kernel::ternary(Op::MulAdd, out.dtype(), b.view().into(), alpha, a.view().into(), target.view_mut());
    Ok(())
}

/// `alpha b` as a number of the result's kind.
fn times(dtype: DType, b: Scalar, alpha: Scalar) -> Scalar {
    if alpha.equals(1.0) {
        return b;
    }
    match dtype {
        d if d.is_complex() => Scalar::Complex(b.to_complex() * alpha.to_complex()),
        d if d.is_floating_point() => Scalar::Float(b.to_f64() * alpha.to_f64()),
        DType::Bool => Scalar::Bool(b.to_bool() && alpha.to_bool()),
        _ => Scalar::Int(b.to_i64().wrapping_mul(alpha.to_i64())),
    }
}

/// `a + alpha b`.
#[inline]
pub(crate) fn add_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    scalar_op(Op::Add, out.dtype(), a, times(out.dtype(), b, alpha), out)
}

/// `a - alpha b`.
pub(crate) fn sub_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    scalar_op(Op::Sub, out.dtype(), a, times(out.dtype(), b, alpha), out)
}

/// `b - alpha a`.
pub(crate) fn rsub_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return reversed_scalar_op(Op::Sub, out.dtype(), b, a, out);
    }
    scalars_op(Op::MulAdd, out.dtype(), a, alpha.negated(), b, out)
}

// ---- quotients and remainders

/// Fails if integers would be divided by zero.
fn check_divisor(op: &'static str, b: &Tensor, out: &Tensor) -> Result<()> {
    if out.dtype().is_differentiable() || out.numel() == 0 {
        return Ok(());
    }
    let zero = Tensor::try_empty(Spec::new(b.shape(), DType::Bool, b.device())?)?;
    unary_op(Op::LogicalNot, b.dtype(), b, &zero)?;
    let any = firebrand_kernels::index::count_nonzero(&zero.read()?.view()) > 0;
    if any { Err(by_zero(op)) } else { Ok(()) }
}

fn check_divisor_scalar(op: &'static str, b: Scalar, out: &Tensor) -> Result<()> {
    if out.dtype().is_differentiable() || out.numel() == 0 || b.to_i64() != 0 {
        return Ok(());
    }
    Err(by_zero(op))
}

fn by_zero(op: &'static str) -> Error {
    Error::argument(op, "integer division by zero; convert to a float dtype to get infinities")
}

/// Divisions that round, and remainders: three forms of each.
macro_rules! rounded {
    ($($name:ident $with_scalar:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            check_divisor(stringify!($name), b, out)?;
            binary_op(Op::$op, out.dtype(), a, b, out)
        }
        pub(crate) fn $with_scalar(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
            check_divisor_scalar(stringify!($name), b, out)?;
            scalar_op(Op::$op, out.dtype(), a, b, out)
        }
    )*};
}
rounded! {
    floor_divide floor_divide_scalar FloorDivide,
    trunc_divide trunc_divide_scalar TruncDivide,
    fmod fmod_scalar Fmod,
    remainder remainder_scalar Remainder,
}

/// `remainder` of a number.
pub(crate) fn scalar_remainder(a: Scalar, b: &Tensor, out: &Tensor) -> Result<()> {
    check_divisor("remainder", b, out)?;
    reversed_scalar_op(Op::Remainder, out.dtype(), a, b, out)
}

/// `div` with a rounding mode.
pub(crate) fn div_mode(a: &Tensor, b: &Tensor, mode: Option<&str>, out: &Tensor) -> Result<()> {
    match mode {
        None => div(a, b, out),
        Some("trunc") => trunc_divide(a, b, out),
        Some(_) => floor_divide(a, b, out),
    }
}

/// `div` by a number with a rounding mode.
pub(crate) fn div_scalar_mode(a: &Tensor, b: Scalar, mode: Option<&str>, out: &Tensor) -> Result<()> {
    match mode {
        None => div_scalar(a, b, out),
        Some("trunc") => trunc_divide_scalar(a, b, out),
        Some(_) => floor_divide_scalar(a, b, out),
    }
}

// ---- powers

static CUBE: Fused<1> = Fused::new(|[x]| x * x * x);
static INVERSE_SQUARE: Fused<1> = Fused::new(|[x]| (x * x).one(Op::Reciprocal));

/// `a^exponent`; frequent exponents have their own instructions.
pub(crate) fn pow_scalar(a: &Tensor, exponent: Scalar, out: &Tensor) -> Result<()> {
    let dtype = out.dtype();
    if exponent.is_complex() && !exponent.equals(exponent.to_f64()) {
        return scalar_op(Op::Pow, dtype, a, exponent, out);
    }
    let e = exponent.to_f64();
    if e == 1.0 {
        return unary_op(Op::Copy, dtype, a, out);
    }
    if dtype == DType::Bool {
        return scalar_op(Op::LogicalOr, dtype, a, Scalar::Bool(true), out);
    }
    if e == 2.0 {
        return unary_op(Op::Square, dtype, a, out);
    }
    if e == 3.0 {
        return CUBE.run(dtype, [a.into()], out);
    }
    if dtype.is_differentiable() {
        if e == 0.5 {
            return unary_op(Op::Sqrt, dtype, a, out);
        }
        if e == -0.5 {
            return unary_op(Op::Rsqrt, dtype, a, out);
        }
        if e == -1.0 {
            return unary_op(Op::Reciprocal, dtype, a, out);
        }
        if e == -2.0 {
            return INVERSE_SQUARE.run(dtype, [a.into()], out);
        }
    }
    scalar_op(Op::Pow, dtype, a, exponent, out)
}

/// A number to a power.
pub(crate) fn scalar_pow(a: Scalar, exponent: &Tensor, out: &Tensor) -> Result<()> {
    reversed_scalar_op(Op::Pow, out.dtype(), a, exponent, out)
}

// ---- formulas of one number

static SINC: Fused<1> = Fused::new(|[x]| {
    let y = x * PI;
    x.eq(0.0).select(1.0, y.one(Op::Sin) / y)
});

/// `sin(pi a) / (pi a)`.
pub(crate) fn sinc(a: &Tensor, out: &Tensor) -> Result<()> {
    SINC.run(out.dtype(), [a.into()], out)
}

/// Degrees to radians.
pub(crate) fn deg2rad(a: &Tensor, out: &Tensor) -> Result<()> {
    scalar_op(Op::Mul, out.dtype(), a, Scalar::Float(PI / 180.0), out)
}

/// Radians to degrees.
pub(crate) fn rad2deg(a: &Tensor, out: &Tensor) -> Result<()> {
    scalar_op(Op::Mul, out.dtype(), a, Scalar::Float(180.0 / PI), out)
}

static LOGIT: Fused<1> = Fused::new(|[x]| (x / (1.0 - x)).one(Op::Log));
static LOGIT_CLAMPED: Fused<3> = Fused::new(|[x, low, high]| {
    // Above one half the bounds cross; then what is not below the lower one becomes the upper one.
    let x = x.lt(low).select(low, x.two(Op::Minimum, high));
    (x / (1.0 - x)).one(Op::Log)
});

/// `log(a / (1 - a))`, with `a` kept `eps` away from 0 and 1.
pub(crate) fn logit(a: &Tensor, eps: Option<f64>, out: &Tensor) -> Result<()> {
    match eps {
        Some(eps) if eps >= 0.0 => LOGIT_CLAMPED.run(out.dtype(), [a.into(), eps.into(), (1.0 - eps).into()], out),
        _ => LOGIT.run(out.dtype(), [a.into()], out),
    }
}

static ROUND_FRACTION: Fused<2> = Fused::new(|[x, scale]| (x * scale).one(Op::Round) / scale);
static ROUND_WHOLE: Fused<2> = Fused::new(|[x, scale]| (x / scale).one(Op::Round) * scale);

/// Rounds to a number of decimals; a negative one rounds to tens, hundreds, …
pub(crate) fn round_decimals(a: &Tensor, decimals: i64, out: &Tensor) -> Result<()> {
    let scale = 10f64.powf(decimals.unsigned_abs() as f64);
    let formula = if decimals < 0 { &ROUND_WHOLE } else { &ROUND_FRACTION };
    formula.run(out.dtype(), [a.into(), scale.into()], out)
}

static POLYGAMMA: Fused<3> = Fused::new(|[order, x, factor]| factor * order.two(Op::Zeta, x));

/// The `n`-th derivative of `digamma`.
pub(crate) fn polygamma(n: i64, a: &Tensor, out: &Tensor) -> Result<()> {
    if n == 0 {
        return digamma(a, out);
    }
    // (-1)^(n+1) n! zeta(n + 1, a)
    let factorial: f64 = (2..=n.min(200)).map(|k| k as f64).product();
    let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
    POLYGAMMA.run(out.dtype(), [(n as f64 + 1.0).into(), a.into(), (sign * factorial).into()], out)
}

static NAN_TO_NUM: Fused<4> = Fused::new(|[x, nan, high, low]| {
    let finite = x.eq(f64::INFINITY).select(high, x.eq(f64::NEG_INFINITY).select(low, x));
    x.one(Op::Isnan).select(nan, finite)
});

/// Replaces NaN and infinities; by default with zero and the largest finite numbers.
pub(crate) fn nan_to_num(
    a: &Tensor,
    nan: Option<f64>,
    posinf: Option<f64>,
    neginf: Option<f64>,
    out: &Tensor,
) -> Result<()> {
    if out.is_complex() {
        return nan_to_num(&super::complex::parts(a)?, nan, posinf, neginf, &super::complex::parts(out)?);
    }
    let largest = match out.dtype() {
        DType::F64 => f64::MAX,
        DType::F32 => f64::from(f32::MAX),
        DType::BF16 => firebrand_kernels::bf16::MAX.to_f64(),
        DType::F16 => firebrand_kernels::f16::MAX.to_f64(),
        dtype => return unary_op(Op::Copy, dtype, a, out),
    };
    let (nan, high, low) = (nan.unwrap_or(0.0), posinf.unwrap_or(largest), neginf.unwrap_or(-largest));
    NAN_TO_NUM.run(out.dtype(), [a.into(), nan.into(), high.into(), low.into()], out)
}

fn is_infinity(a: &Tensor, which: f64, out: &Tensor) -> Result<()> {
    if a.dtype().is_floating_point() {
        return scalar_op(Op::Eq, a.dtype(), a, Scalar::Float(which), out);
    }
    isinf(a, out)
}

/// Whether plus infinity.
pub(crate) fn isposinf(a: &Tensor, out: &Tensor) -> Result<()> {
    is_infinity(a, f64::INFINITY, out)
}

/// Whether minus infinity.
pub(crate) fn isneginf(a: &Tensor, out: &Tensor) -> Result<()> {
    is_infinity(a, f64::NEG_INFINITY, out)
}

// ---- formulas of two numbers

static LOGADDEXP: Fused<2> = Fused::new(|[a, b]| {
    let far = (-(a - b).one(Op::Abs)).one(Op::Exp);
    // Equal infinities have no difference.
    a.eq(b).and(a.one(Op::Isinf)).select(a, a.two(Op::Maximum, b) + far.one(Op::Log1p))
});
static LOGADDEXP2: Fused<2> = Fused::new(|[a, b]| {
    let far = (-(a - b).one(Op::Abs)).one(Op::Exp2);
    a.eq(b).and(a.one(Op::Isinf)).select(a, far.one(Op::Log1p).mul_add(1.0 / LN_2, a.two(Op::Maximum, b)))
});
static XLOGY: Fused<2> = Fused::new(|[a, b]| b.one(Op::Isnan).select(b, a.eq(0.0).select(0.0, a * b.one(Op::Log))));
static HEAVISIDE: Fused<2> = Fused::new(|[a, values]| a.eq(0.0).select(values, a.gt(0.0).select(1.0, 0.0)));

/// `log(e^a + e^b)`.
pub(crate) fn logaddexp(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    if out.is_complex() {
        return super::complex::logaddexp(a, b, out);
    }
    LOGADDEXP.run(out.dtype(), [a.into(), b.into()], out)
}

/// `log2(2^a + 2^b)`.
pub(crate) fn logaddexp2(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    LOGADDEXP2.run(out.dtype(), [a.into(), b.into()], out)
}

/// `a log(b)`, 0 where `a` is.
pub(crate) fn xlogy(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    XLOGY.run(out.dtype(), [a.into(), b.into()], out)
}

/// `a log(b)` with a number `b`.
pub(crate) fn xlogy_scalar(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
    XLOGY.run(out.dtype(), [a.into(), b.into()], out)
}

/// `a log(b)` with a number `a`.
pub(crate) fn scalar_xlogy(a: Scalar, b: &Tensor, out: &Tensor) -> Result<()> {
    XLOGY.run(out.dtype(), [a.into(), b.into()], out)
}

static LDEXP: Fused<2> = Fused::new(|[a, b]| a * b.one(Op::Exp2));

/// `a 2^b`.
pub(crate) fn ldexp(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    LDEXP.run(out.dtype(), [a.into(), b.into()], out)
}

/// 0 below zero, 1 above, `values` at zero.
pub(crate) fn heaviside(a: &Tensor, values: &Tensor, out: &Tensor) -> Result<()> {
    HEAVISIDE.run(out.dtype(), [a.into(), values.into()], out)
}

// ---- three operands

/// `b` where `condition`, else `c`.
pub(crate) fn where_self(condition: &Tensor, b: &Tensor, c: &Tensor, out: &Tensor) -> Result<()> {
    ternary_op(Op::Where, out.dtype(), condition, b, c, out)
}

/// Between numbers.
pub(crate) fn clamp(a: &Tensor, min: Option<Scalar>, max: Option<Scalar>, out: &Tensor) -> Result<()> {
    match (min, max) {
        (Some(min), Some(max)) => scalars_op(Op::Clamp, out.dtype(), a, min, max, out),
        (Some(min), None) => clamp_min(a, min, out),
        (None, Some(max)) => clamp_max(a, max, out),
        (None, None) => unary_op(Op::Copy, out.dtype(), a, out),
    }
}

/// Between tensors.
pub(crate) fn clamp_tensor(a: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>, out: &Tensor) -> Result<()> {
    match (min, max) {
        (Some(min), Some(max)) => ternary_op(Op::Clamp, out.dtype(), a, min, max, out),
        (Some(min), None) => maximum(a, min, out),
        (None, Some(max)) => minimum(a, max, out),
        (None, None) => unary_op(Op::Copy, out.dtype(), a, out),
    }
}

/// From `a` to `end`.
pub(crate) fn lerp(a: &Tensor, end: &Tensor, weight: &Tensor, out: &Tensor) -> Result<()> {
    ternary_op(Op::Lerp, out.dtype(), a, end, weight, out)
}

/// From `a` to `end`.
pub(crate) fn lerp_scalar(a: &Tensor, end: &Tensor, weight: Scalar, out: &Tensor) -> Result<()> {
    let sizes = out.shape();
    let (a, end, target) = (expand(a, sizes)?, expand(end, sizes)?, out.write()?);
    let weight = Operand::Value(weight.into());
    kernel::ternary(Op::Lerp, out.dtype(), a.view().into(), end.view().into(), weight, target.view_mut());
    Ok(())
}

static ADDCMUL: Fused<4> = Fused::new(|[t, a, b, value]| (value * a).mul_add(b, t));
static ADDCDIV: Fused<4> = Fused::new(|[t, a, b, value]| t + value * a / b);

/// `t + value a b`.
pub(crate) fn addcmul(t: &Tensor, a: &Tensor, b: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    ADDCMUL.run(out.dtype(), [t.into(), a.into(), b.into(), Input::S(value)], out)
}

/// `t + value a / b`.
pub(crate) fn addcdiv(t: &Tensor, a: &Tensor, b: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    ADDCDIV.run(out.dtype(), [t.into(), a.into(), b.into(), Input::S(value)], out)
}
