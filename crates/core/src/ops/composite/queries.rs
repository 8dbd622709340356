//! Queries about tensors and dtypes that programs make through ops; elsewhere they are Rust methods. They read no values.

use crate::dispatch::MemoryFormat;
use crate::dtype::{self, Promotion};
use crate::{DType, Device, Error, ErrorKind, Result, Scalar, Tensor, ops};

macro_rules! facts {
    ($($name:ident -> $t:ty: |$x:ident| $e:expr;)*) => {$(
        pub(crate) fn $name($x: &Tensor) -> Result<$t> {
            Ok($e)
        }
    )*};
}
facts! {
    is_leaf -> bool: |t| t.is_leaf();
    is_floating_point -> bool: |t| t.is_floating_point();
    is_complex -> bool: |t| t.is_complex();
    is_signed -> bool: |t| !matches!(t.dtype(), DType::Bool | DType::U8);
    is_inference -> bool: |t| t.is_inference();
    is_contiguous -> bool: |t| t.is_contiguous();
    retains_grad -> bool: |t| t.retains_grad();
    dim -> i64: |t| t.ndim() as i64;
    storage_offset -> i64: |t| t.storage_offset() as i64;
    output_nr -> i64: |t| t.output_nr() as i64;
    version -> i64: |t| i64::from(t.try_version()?);
    // 0 if no two elements share memory, 1 if some do, 2 if that would have to be worked out.
    has_internal_overlap -> i64: |t| match t.layout() {
        l if l.is_non_overlapping_and_dense() => 0,
        l if l.sizes().iter().zip(l.strides()).any(|(&n, &s)| n > 1 && s == 0) => 1,
        _ => 2,
    };
}

/// Never: values are conjugated and negated when they are asked to be, zeros are memory, and there is one process.
pub(crate) fn never(_: &Tensor) -> Result<bool> {
    Ok(false)
}

/// The CPU has no index.
pub(crate) fn get_device(t: &Tensor) -> Result<i64> {
    match t.device() {
        Device::Cpu => Ok(-1),
        other => Err(Error::argument("get_device", format!("expected a tensor on the CPU, found {other}"))),
    }
}

pub(crate) fn is_pinned(_: &Tensor, _device: Option<Device>) -> Result<bool> {
    Ok(false)
}

pub(crate) fn is_contiguous_in(t: &Tensor, format: MemoryFormat) -> Result<bool> {
    let wanted = ops::shape::creation::memory(t, Some(format));
    Ok(wanted.is_ok_and(|wanted| wanted.same_geometry(t.layout())))
}

pub(crate) fn is_same_size(a: &Tensor, b: &Tensor) -> Result<bool> {
    Ok(a.shape() == b.shape())
}

/// Whether both show the same memory in the same way.
pub(crate) fn is_set_to(a: &Tensor, b: &Tensor) -> Result<bool> {
    let same = a.shape() == b.shape() && a.strides() == b.strides();
    Ok(a.shares_storage(b) && same && a.storage_offset() == b.storage_offset())
}

/// Whether the memory behind both holds as many elements.
pub(crate) fn has_same_storage_numel(a: &Tensor, b: &Tensor) -> Result<bool> {
    let elements = |t: &Tensor| t.storage().nbytes() / t.dtype().size();
    Ok(elements(a) == elements(b))
}

pub(crate) fn size(t: &Tensor, dim: i64) -> Result<i64> {
    Ok(ops::sym_size(t, dim)?.int())
}

pub(crate) fn stride(t: &Tensor, dim: i64) -> Result<i64> {
    Ok(ops::sym_stride(t, dim)?.int())
}

/// The sizes as a vector of integers.
pub(crate) fn shape_as_tensor(t: &Tensor) -> Result<Tensor> {
    Tensor::try_from_vec(t.shape().iter().map(|&n| n as i64).collect(), [t.ndim()])
}

// ---- dtypes

pub(crate) fn can_cast(from: DType, to: DType) -> Result<bool> {
    Ok(dtype::can_cast(from, to))
}

pub(crate) fn promote_types(a: DType, b: DType) -> Result<DType> {
    Ok(dtype::promote(a, b))
}

pub(crate) fn result_type(a: &Tensor, b: &Tensor) -> Result<DType> {
    Ok(dtype::result_type(a, b))
}

pub(crate) fn result_type_scalar(t: &Tensor, n: Scalar) -> Result<DType> {
    Ok(Promotion::default().tensor(t).number(n.dtype()).result())
}

pub(crate) fn result_type_scalar_tensor(n: Scalar, t: &Tensor) -> Result<DType> {
    result_type_scalar(t, n)
}

pub(crate) fn result_type_scalars(a: Scalar, b: Scalar) -> Result<DType> {
    Ok(Promotion::default().number(a.dtype()).number(b.dtype()).result())
}

macro_rules! casts {
    ($($name:ident $dtype:ident),*) => {$(
        pub(crate) fn $name(t: &Tensor, non_blocking: bool) -> Result<Tensor> {
            ops::to_dtype(t, DType::$dtype, non_blocking, false, None)
        }
    )*};
}
casts!(
    cast_byte U8, cast_char I8, cast_double F64, cast_float F32, cast_int I32, cast_long I64, cast_short I16,
    cast_half F16
);

// ---- history

pub(crate) fn data(t: &Tensor) -> Result<Tensor> {
    ops::detach(t)
}

// ---- assertions that return a token, so that they have a place in pure programs

pub(crate) fn make_dep_token(
    dtype: Option<DType>,
    device: Option<Device>,
    _format: Option<MemoryFormat>,
) -> Result<Tensor> {
    ops::zeros(&[], dtype, device)
}

pub(crate) fn functional_assert_scalar(value: Scalar, message: &str, token: &Tensor) -> Result<Tensor> {
    ops::_assert_scalar(value, message)?;
    ops::clone(token, None)
}

pub(crate) fn functional_assert_async(t: &Tensor, message: &str, token: &Tensor) -> Result<Tensor> {
    if t.device() != token.device() {
        return Err(ErrorKind::DeviceMismatch {
            op: "_functional_assert_async",
            argument: "dep_token".into(),
            device: token.device(),
            reference: "self".into(),
            expected: t.device(),
        }
        .into());
    }
    ops::_assert_async_msg(t, message)?;
    ops::clone(token, None)
}

pub(crate) fn functional_sym_constrain_range(
    size: Scalar,
    min: Option<i64>,
    max: Option<i64>,
    token: &Tensor,
) -> Result<Tensor> {
    ops::sym_constrain_range(size, min, max)?;
    ops::clone(token, None)
}

pub(crate) fn functional_sym_constrain_range_for_size(
    size: Scalar,
    min: Option<i64>,
    max: Option<i64>,
    token: &Tensor,
) -> Result<Tensor> {
    ops::sym_constrain_range_for_size(size, min, max)?;
    ops::clone(token, None)
}
