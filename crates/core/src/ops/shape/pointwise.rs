//! Shape functions of pointwise ops: broadcasting, type promotion, memory order of the result.
//!
//! They also reject dtypes that an op is not defined for, so that kernels never see them. Those of ops mainly used in
//! neural networks are in `activations`.

use super::{broadcast, device, need_float};
use crate::dtype::{Promotion, result_type, to_float};
use crate::layout::{Dims, Layout};
use crate::tensor::Shape;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

/// The layout of a pointwise result: dense, in the memory order of the operands.
#[inline]
fn pointwise_layout(sizes: &[usize], operands: &[&Tensor]) -> Result<Layout> {
    if operands.iter().all(|t| t.is_contiguous() && t.shape() == sizes) {
        return Layout::contiguous(sizes);
    }
    mixed_layout(sizes, operands)
}

/// As above, if some operand is broadcast or not contiguous. The dims are sorted by stride; where operands disagree the
/// first that has an opinion decides.
#[inline(never)]
fn mixed_layout(sizes: &[usize], operands: &[&Tensor]) -> Result<Layout> {
    let first = operands[0].layout();
    if first.is_non_overlapping_and_dense()
        && operands.iter().all(|t| t.shape() == sizes && t.strides() == first.strides())
    {
        return Ok(first.dense_like());
    }
    let stride = |t: &Tensor, d: usize| {
        let lead = sizes.len() - t.ndim();
        if d < lead || (t.shape()[d - lead] == 1 && sizes[d] != 1) { 0 } else { t.strides()[d - lead] }
    };
    // Whether dim `a` must lie outside dim `b`: yes, no, or no opinion.
    let outside = |a: usize, b: usize| {
        for t in operands {
            let (sa, sb) = (stride(t, a), stride(t, b));
            if sa == 0 || sb == 0 {
                continue;
            }
            if sa != sb {
                return Some(sa > sb);
            }
            if sizes[a] > sizes[b] {
                return Some(true);
            }
        }
        None
    };
    // Innermost first; an insertion sort, because opinions need not be transitive.
    let n = sizes.len();
    let mut order: Dims = (0..n).rev().collect();
    for i in 1..n {
        let mut at = i;
        for j in (0..i).rev() {
            match outside(order[j], order[at]) {
                Some(true) => {
                    order.swap(j, at);
                    at = j;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    let mut strides: Dims = smallvec::smallvec![0; n];
    let mut step = 1;
    for &d in &order {
        strides[d] = step;
        step = usize::saturating_mul(step, sizes[d].max(1));
    }
    Layout::strided(sizes, &strides, 0)
}

/// Fails for bool.
pub(super) fn need_number(op: &'static str, dtype: DType) -> Result<()> {
    if dtype != DType::Bool {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: dtype, expected: "an integer or floating point dtype" }.into())
}

fn need_whole(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_integer() || dtype == DType::Bool {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: dtype, expected: "an integer dtype or bool" }.into())
}

fn need_integer(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_integer() {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: dtype, expected: "an integer dtype" }.into())
}

#[inline]
pub(super) fn like(t: &Tensor, dtype: DType) -> Result<Spec> {
    Ok(Spec { layout: pointwise_layout(t.shape(), &[t])?, dtype, device: t.device() })
}

/// A result that equals the operand in all but its numbers.
#[inline]
fn same(t: &Tensor) -> Result<Shape<'_>> {
    let spec = t.spec();
    Ok(if spec.layout.is_canonical() { Shape::Like(spec) } else { like(t, spec.dtype)?.into() })
}

/// The dtype of a tensor combined with a number.
#[inline]
fn scalar_type(t: &Tensor, s: Scalar) -> DType {
    if t.dtype() == s.dtype() { t.dtype() } else { Promotion::default().tensor(t).scalar(s).result() }
}

// ---- one operand

/// One operand of any dtype, result of the same.
#[inline]
pub(crate) fn unary<'a>(_op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    same(t)
}

/// Like [`unary`], but not for bool.
#[inline]
pub(crate) fn unary_no_bool<'a>(op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    need_number(op, t.dtype())?;
    same(t)
}

/// One operand of a float dtype.
#[inline]
pub(crate) fn unary_floating<'a>(op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    need_float(op, t.dtype())?;
    same(t)
}

/// One operand of a float or complex dtype.
pub(crate) fn unary_floating_or_complex<'a>(op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    super::need_float_or_complex(op, t.dtype())?;
    same(t)
}

/// One operand of an integer dtype or bool.
pub(crate) fn unary_bits(op: &'static str, t: &Tensor) -> Result<Spec> {
    need_whole(op, t.dtype())?;
    like(t, t.dtype())
}

/// One operand; integers give the default float dtype.
#[inline]
pub(crate) fn unary_float<'a>(_op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    let dtype = to_float(t.dtype());
    if dtype == t.dtype() { same(t) } else { Ok(like(t, dtype)?.into()) }
}

/// Like [`unary_no_bool`]; a complex operand gives a real result (`abs`).
pub(crate) fn unary_to_real<'a>(op: &'static str, t: &'a Tensor) -> Result<Shape<'a>> {
    need_number(op, t.dtype())?;
    if t.is_complex() { Ok(like(t, t.dtype().to_real())?.into()) } else { same(t) }
}

/// Like [`unary_float`]; a complex operand gives a real result (`angle`).
pub(crate) fn unary_float_to_real(_op: &'static str, t: &Tensor) -> Result<Spec> {
    like(t, to_float(t.dtype()).to_real())
}

/// `complex`: two float parts of one dtype.
pub(crate) fn complex(op: &'static str, real: &Tensor, imag: &Tensor) -> Result<Spec> {
    same_dtype(op, "real", real.dtype(), "imag", imag.dtype())?;
    if !matches!(real.dtype(), DType::F32 | DType::F64) {
        return Err(
            ErrorKind::DTypeUnsupported { op, found: real.dtype(), expected: "float32 or float64 parts" }.into()
        );
    }
    let spec = binary(op, real, imag)?.into_spec();
    Ok(Spec { dtype: spec.dtype.to_complex(), ..spec })
}

/// One operand, result bool.
pub(crate) fn unary_bool(_op: &'static str, t: &Tensor) -> Result<Spec> {
    like(t, DType::Bool)
}

/// `round.decimals`.
pub(crate) fn round_decimals<'a>(op: &'static str, t: &'a Tensor, _decimals: i64) -> Result<Shape<'a>> {
    unary_floating(op, t)
}

/// `polygamma`: the order is not negative.
pub(crate) fn polygamma<'a>(op: &'static str, n: i64, t: &'a Tensor) -> Result<Shape<'a>> {
    if n < 0 {
        return Err(Error::argument(op, format!("the order n must not be negative, found {n}")));
    }
    unary_float(op, t)
}

/// `logit`.
pub(crate) fn logit<'a>(op: &'static str, t: &'a Tensor, _eps: Option<f64>) -> Result<Shape<'a>> {
    unary_float(op, t)
}

/// `nan_to_num`.
pub(crate) fn nan_to_num<'a>(
    op: &'static str,
    t: &'a Tensor,
    _nan: Option<f64>,
    _posinf: Option<f64>,
    _neginf: Option<f64>,
) -> Result<Shape<'a>> {
    unary(op, t)
}

// ---- two operands

/// Two operands, promoted.
#[inline]
pub(crate) fn binary<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let (x, y) = (a.spec(), b.spec());
    if x.dtype == y.dtype
        && x.device == y.device
        && x.layout.is_canonical()
        && y.layout.is_contiguous()
        && crate::layout::same_sizes(x.layout.sizes(), y.layout.sizes())
    {
        return Ok(Shape::Like(x));
    }
    binary_mixed(op, a, b).map(Shape::New)
}

#[inline(never)]
fn binary_mixed(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    let device = a.device();
    let sizes = broadcast(op, a.shape(), b.shape())?;
    Ok(Spec { layout: pointwise_layout(&sizes, &[a, b])?, dtype: result_type(a, b), device })
}

/// Like [`binary`], but not for bool.
pub(crate) fn binary_no_bool<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let spec = binary(op, a, b)?;
    need_number(op, spec.dtype)?;
    Ok(spec)
}

/// Two operands; integers give the default float dtype.
#[inline]
pub(crate) fn binary_float<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let shape = binary(op, a, b)?;
    let dtype = to_float(shape.dtype);
    Ok(if shape.dtype == dtype { shape } else { Spec { dtype, ..shape.into_spec() }.into() })
}

/// Two operands whose promoted dtype is a float (or complex, for ops that take those).
#[inline]
pub(crate) fn binary_floating<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let spec = binary(op, a, b)?;
    super::need_float_or_complex(op, spec.dtype)?;
    Ok(spec)
}

/// A factor of the second operand must be of the result's kind.
#[inline]
fn check_alpha(op: &'static str, dtype: DType, alpha: Scalar) -> Result<()> {
    match alpha {
        Scalar::Complex(_) if !dtype.is_complex() => {
            Err(Error::argument(op, format!("alpha must not be complex ({alpha}) when the result is {dtype}")))
        }
        Scalar::Float(_) if !dtype.is_differentiable() => {
            Err(Error::argument(op, format!("alpha must not be a float ({alpha}) when the result is {dtype}")))
        }
        Scalar::Bool(_) if dtype != DType::Bool => {
            Err(Error::argument(op, format!("alpha may be a bool only when the result is bool, here it is {dtype}")))
        }
        _ => Ok(()),
    }
}

fn check_sub(op: &'static str, a: DType, b: DType) -> Result<()> {
    if a != DType::Bool && b != DType::Bool {
        return Ok(());
    }
    Err(Error::argument(op, "bools cannot be subtracted; use logical_xor or logical_not, or convert them to integers"))
}

/// `add.Tensor`.
#[inline]
pub(crate) fn binary_alpha<'a>(op: &'static str, a: &'a Tensor, b: &Tensor, alpha: Scalar) -> Result<Shape<'a>> {
    let spec = binary(op, a, b)?;
    check_alpha(op, spec.dtype, alpha)?;
    Ok(spec)
}

/// `sub.Tensor` and `rsub.Tensor`.
#[inline]
pub(crate) fn sub<'a>(op: &'static str, a: &'a Tensor, b: &Tensor, alpha: Scalar) -> Result<Shape<'a>> {
    check_sub(op, a.dtype(), b.dtype())?;
    binary_alpha(op, a, b, alpha)
}

fn check_mode(op: &'static str, mode: Option<&str>) -> Result<()> {
    match mode {
        None | Some("trunc" | "floor") => Ok(()),
        Some(m) => {
            Err(Error::argument(op, format!("rounding_mode should be None, \"trunc\" or \"floor\", found {m:?}")))
        }
    }
}

/// `div.Tensor_mode`: without a mode a true division, with one integers stay.
pub(crate) fn div_mode<'a>(op: &'static str, a: &'a Tensor, b: &Tensor, mode: Option<&str>) -> Result<Shape<'a>> {
    check_mode(op, mode)?;
    if mode.is_none() { binary_float(op, a, b) } else { binary_no_bool(op, a, b) }
}

/// `heaviside`: both of one dtype.
pub(crate) fn heaviside<'a>(op: &'static str, a: &'a Tensor, values: &Tensor) -> Result<Shape<'a>> {
    same_dtype(op, "self", a.dtype(), "values", values.dtype())?;
    binary(op, a, values)
}

pub(super) fn same_dtype(op: &'static str, x: &str, a: DType, y: &str, b: DType) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(Error::argument(op, format!("expected {x} and {y} of the same dtype, found {a} and {b}; convert one of them")))
}

/// A comparison or logical op: any dtypes, result bool.
pub(crate) fn comparison(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    Ok(Spec { dtype: DType::Bool, ..binary(op, a, b)?.into_spec() })
}

/// Bitwise ops: integers or bool.
pub(crate) fn bits<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let spec = binary(op, a, b)?;
    need_whole(op, spec.dtype)?;
    Ok(spec)
}

/// Shifts: integers.
pub(crate) fn shift<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let spec = binary(op, a, b)?;
    need_integer(op, spec.dtype)?;
    Ok(spec)
}

// ---- a tensor and a number

/// A tensor and a number, promoted.
#[inline]
pub(crate) fn with_scalar<'a>(_op: &'static str, t: &'a Tensor, s: Scalar) -> Result<Shape<'a>> {
    let dtype = scalar_type(t, s);
    if dtype == t.dtype() { same(t) } else { Ok(like(t, dtype)?.into()) }
}

/// Like [`with_scalar`], but not for bool.
pub(crate) fn with_scalar_no_bool<'a>(op: &'static str, t: &'a Tensor, s: Scalar) -> Result<Shape<'a>> {
    let spec = with_scalar(op, t, s)?;
    need_number(op, spec.dtype)?;
    Ok(spec)
}

/// Like [`with_scalar`]; integers give the default float dtype.
#[inline]
pub(crate) fn with_scalar_float<'a>(_op: &'static str, t: &'a Tensor, s: Scalar) -> Result<Shape<'a>> {
    let dtype = to_float(scalar_type(t, s));
    if dtype == t.dtype() { same(t) } else { Ok(like(t, dtype)?.into()) }
}

/// `add.Scalar`.
#[inline]
pub(crate) fn with_scalar_alpha<'a>(op: &'static str, t: &'a Tensor, s: Scalar, alpha: Scalar) -> Result<Shape<'a>> {
    let spec = with_scalar(op, t, s)?;
    check_alpha(op, spec.dtype, alpha)?;
    Ok(spec)
}

/// `sub.Scalar` and `rsub.Scalar`.
pub(crate) fn sub_scalar<'a>(op: &'static str, t: &'a Tensor, s: Scalar, alpha: Scalar) -> Result<Shape<'a>> {
    check_sub(op, t.dtype(), s.dtype())?;
    with_scalar_alpha(op, t, s, alpha)
}

/// `div.Scalar_mode`.
pub(crate) fn div_scalar_mode<'a>(op: &'static str, t: &'a Tensor, s: Scalar, mode: Option<&str>) -> Result<Shape<'a>> {
    check_mode(op, mode)?;
    if mode.is_none() { with_scalar_float(op, t, s) } else { with_scalar_no_bool(op, t, s) }
}

/// `pow.Tensor_Scalar`: integers have no negative powers among integers.
pub(crate) fn pow_scalar<'a>(op: &'static str, t: &'a Tensor, exponent: Scalar) -> Result<Shape<'a>> {
    // Of bools only the power of a bool is one.
    let spec = if matches!(exponent, Scalar::Bool(_)) {
        with_scalar(op, t, exponent)
    } else {
        with_scalar_no_bool(op, t, exponent)
    }?;
    if !spec.dtype.is_differentiable() && exponent.to_i64() < 0 {
        return Err(Error::argument(
            op,
            format!(
                "integers cannot be raised to the negative integer power {exponent}; convert the tensor to a float dtype"
            ),
        ));
    }
    Ok(spec)
}

/// A number and a tensor, promoted; not bool.
pub(crate) fn scalar_with<'a>(op: &'static str, s: Scalar, t: &'a Tensor) -> Result<Shape<'a>> {
    with_scalar_no_bool(op, t, s)
}

/// A number and a tensor; integers give the default float dtype.
pub(crate) fn scalar_with_float<'a>(op: &'static str, s: Scalar, t: &'a Tensor) -> Result<Shape<'a>> {
    with_scalar_float(op, t, s)
}

/// A comparison with a number.
pub(crate) fn comparison_scalar(_op: &'static str, t: &Tensor, _s: Scalar) -> Result<Spec> {
    like(t, DType::Bool)
}

/// Bitwise ops with a number.
pub(crate) fn bits_scalar<'a>(op: &'static str, t: &'a Tensor, s: Scalar) -> Result<Shape<'a>> {
    let spec = with_scalar(op, t, s)?;
    need_whole(op, spec.dtype)?;
    Ok(spec)
}

/// Shifts by a number.
pub(crate) fn shift_scalar<'a>(op: &'static str, t: &'a Tensor, s: Scalar) -> Result<Shape<'a>> {
    let spec = with_scalar(op, t, s)?;
    need_integer(op, spec.dtype)?;
    Ok(spec)
}

// ---- three operands

/// Any number of operands, promoted.
pub(crate) fn pointwise_of(op: &'static str, ts: &[&Tensor]) -> Result<Spec> {
    let mut sizes = Dims::new();
    let mut promotion = Promotion::default();
    for t in ts {
        sizes = broadcast(op, &sizes, t.shape())?;
        promotion = promotion.tensor(*t);
    }
    Ok(Spec { layout: pointwise_layout(&sizes, ts)?, dtype: promotion.result(), device: device(ts) })
}

/// `where.self`: the condition is bool (or, as in old programs, u8), the choices are promoted.
pub(crate) fn where_self(op: &'static str, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Spec> {
    if !matches!(condition.dtype(), DType::Bool | DType::U8) {
        let found = condition.dtype();
        return Err(ErrorKind::DTypeUnsupported { op, found, expected: "a bool condition" }.into());
    }
    let mut spec = pointwise_of(op, &[condition, a, b])?;
    spec.dtype = result_type(a, b);
    Ok(spec)
}

fn no_bounds(op: &'static str) -> Error {
    Error::argument(op, "at least one of min and max must be given")
}

/// `clamp` between numbers.
pub(crate) fn clamp(op: &'static str, t: &Tensor, min: Option<Scalar>, max: Option<Scalar>) -> Result<Spec> {
    if min.is_none() && max.is_none() {
        return Err(no_bounds(op));
    }
    let promotion = min.into_iter().chain(max).fold(Promotion::default().tensor(t), Promotion::scalar);
    let dtype = promotion.result();
    need_number(op, dtype)?;
    like(t, dtype)
}

/// `clamp` between tensors.
pub(crate) fn clamp_tensor(op: &'static str, t: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Spec> {
    let spec = match (min, max) {
        (None, None) => return Err(no_bounds(op)),
        (Some(b), None) | (None, Some(b)) => binary(op, t, b)?.into_spec(),
        (Some(a), Some(b)) => pointwise_of(op, &[t, a, b])?,
    };
    need_number(op, spec.dtype)?;
    Ok(spec)
}

/// `lerp.Scalar`.
pub(crate) fn lerp_scalar<'a>(op: &'static str, a: &'a Tensor, end: &Tensor, weight: Scalar) -> Result<Shape<'a>> {
    same_dtype(op, "self", a.dtype(), "end", end.dtype())?;
    if !a.is_complex() {
        super::need_real_number(op, weight)?;
    }
    binary_floating(op, a, end)
}

/// `lerp.Tensor`: of one dtype, but a 0-dim weight may have another.
pub(crate) fn lerp(op: &'static str, a: &Tensor, end: &Tensor, weight: &Tensor) -> Result<Spec> {
    same_dtype(op, "self", a.dtype(), "end", end.dtype())?;
    if weight.ndim() > 0 {
        same_dtype(op, "self", a.dtype(), "weight", weight.dtype())?;
    }
    super::need_float_or_complex(op, a.dtype())?;
    if !a.is_complex() {
        super::need_real(op, &[weight])?;
    }
    let mut spec = pointwise_of(op, &[a, end, weight])?;
    spec.dtype = a.dtype();
    Ok(spec)
}

/// `addcmul`.
pub(crate) fn addcmul(op: &'static str, t: &Tensor, a: &Tensor, b: &Tensor, _value: Scalar) -> Result<Spec> {
    let spec = pointwise_of(op, &[t, a, b])?;
    need_number(op, spec.dtype)?;
    Ok(spec)
}

/// `addcdiv`: not for integers, whose quotient would need a rounding mode.
pub(crate) fn addcdiv(op: &'static str, t: &Tensor, a: &Tensor, b: &Tensor, _value: Scalar) -> Result<Spec> {
    if !a.dtype().is_differentiable() && !b.dtype().is_differentiable() {
        return Err(Error::argument(
            op,
            "integers cannot be divided here; convert tensor1 or tensor2 to a float dtype",
        ));
    }
    let spec = pointwise_of(op, &[t, a, b])?;
    super::need_float_or_complex(op, spec.dtype)?;
    Ok(spec)
}

/// Two operands whose promoted dtype is an integer.
pub(crate) fn whole_numbers<'a>(op: &'static str, a: &'a Tensor, b: &Tensor) -> Result<Shape<'a>> {
    let shape = binary(op, a, b)?;
    match shape.dtype {
        found if found.is_integer() => Ok(shape),
        found => Err(ErrorKind::DTypeUnsupported { op, found, expected: "integers" }.into()),
    }
}

/// Mantissas in the operand's dtype, exponents as i32.
pub(crate) fn frexp(op: &'static str, t: &Tensor) -> Result<(Spec, Spec)> {
    need_float(op, t.dtype())?;
    Ok((like(t, t.dtype())?, like(t, DType::I32)?))
}
