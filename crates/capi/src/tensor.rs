//! Tensors across the boundary: copied in, looked at, copied out.

use crate::boundary::{Answer, Refusal, array, array_out, borrow, free, guard, object, status};
use firebrand::{Complex, DType, Tensor, bf16, f16};

/// Dtypes in the order of `fb_dtype`.
const DTYPES: [DType; 12] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

pub(crate) fn dtype_code(dtype: DType) -> i32 {
    DTYPES.iter().position(|&d| d == dtype).map_or(-1, |i| i as i32)
}

/// Runs `$body` with `$t` standing for the C element type of a dtype; truth values travel as bytes.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(@ $dtype, $t, $body, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64,
            C64 Complex<f32>, C128 Complex<f64>, Bool u8)
    };
    (@ $dtype:expr, $t:ident, $body:expr, $($d:ident $r:ty),*) => {
        match $dtype {$( DType::$d => { type $t = $r; $body } )*}
    };
}

/// A tensor with these elements, row by row, copied from `data`.
///
/// # Safety
/// `sizes` holds `ndim` numbers, `data` as many elements of this type as their product; see `firebrand.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_new(
    dtype: i32,
    sizes: *const i64,
    ndim: usize,
    data: *const std::ffi::c_void,
) -> *mut Tensor {
    object(|| {
        let dtype = usize::try_from(dtype).ok().and_then(|i| DTYPES.get(i)).copied();
        let dtype = dtype.ok_or_else(|| Refusal::because("unknown dtype; see fb_dtype"))?;
        // SAFETY: `sizes` holds `ndim` numbers, says the caller.
        let sizes = unsafe { array(sizes, ndim, "sizes") }?;
        let (sizes, count) = checked(sizes)?;
        let tensor = with_type!(dtype, T => {
            // SAFETY: `data` holds `count` elements of this type, says the caller.
            let elements = unsafe { array(data.cast::<T>(), count, "data") }?;
            Tensor::try_from_vec(elements.to_vec(), &sizes[..])?
        });
        Ok(tensor.try_to_dtype(dtype)?)
    })
}

/// Sizes and how many elements they make.
fn checked(sizes: &[i64]) -> Answer<(Vec<usize>, usize)> {
    let wrong = || Refusal::because(format!("sizes {sizes:?} are negative or too large"));
    let sizes: Option<Vec<usize>> = sizes.iter().map(|&n| usize::try_from(n).ok()).collect();
    let sizes = sizes.ok_or_else(wrong)?;
    let count = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).ok_or_else(wrong)?;
    Ok((sizes, count))
}

/// Frees a tensor; null is ignored.
///
/// # Safety
/// `tensor` is null, or came from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_free(tensor: *mut Tensor) {
    // SAFETY: the caller's promise is the same.
    unsafe { free(tensor) }
}

/// The dtype of a tensor, as in `fb_dtype`; -1 if it is null.
///
/// # Safety
/// `tensor` is null, or a tensor of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_dtype(tensor: *const Tensor) -> i32 {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(dtype_code(unsafe { borrow(tensor, "tensor") }?.dtype()))).unwrap_or(-1)
}

/// The number of dimensions of a tensor.
///
/// # Safety
/// `tensor` is null, or a tensor of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_ndim(tensor: *const Tensor) -> usize {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(tensor, "tensor") }?.ndim())).unwrap_or(0)
}

/// The size of one dimension; -1 if there is no such dimension.
///
/// # Safety
/// `tensor` is null, or a tensor of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_size(tensor: *const Tensor, dim: usize) -> i64 {
    let size = guard(|| {
        // SAFETY: the caller's promise is the same.
        let tensor = unsafe { borrow(tensor, "tensor") }?;
        let size = tensor.shape().get(dim).copied();
        size.ok_or_else(|| Refusal::because(format!("no dimension {dim}: the tensor has {}", tensor.ndim())))
    });
    size.map_or(-1, |n| n as i64)
}

/// The number of elements of a tensor.
///
/// # Safety
/// `tensor` is null, or a tensor of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_numel(tensor: *const Tensor) -> usize {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(tensor, "tensor") }?.numel())).unwrap_or(0)
}

/// Copies the elements of a tensor, row by row, to `out`, which has room for `count` of its type.
///
/// # Safety
/// `tensor` is null, or a tensor of this library; `out` has room for `count` elements of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_tensor_copy(tensor: *const Tensor, out: *mut std::ffi::c_void, count: usize) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let tensor = unsafe { borrow(tensor, "tensor") }?;
        if count != tensor.numel() {
            return Err(Refusal::because(format!(
                "`out` has room for {count} elements, the tensor has {}",
                tensor.numel()
            )));
        }
        let stored = if tensor.dtype() == DType::Bool { &tensor.try_to_dtype(DType::U8)? } else { tensor };
        with_type!(stored.dtype(), T => {
            // SAFETY: there is room for `count` elements of this type, says the caller.
            let out = unsafe { array_out(out.cast::<T>(), count, "out") }?;
            out.iter_mut().zip(stored.try_to_vec::<T>()?).for_each(|(o, v)| _ = o.write(v));
        });
        Ok(())
    })
}
