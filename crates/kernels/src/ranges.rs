//! arange, linspace and eye, rounded as PyTorch rounds them on x86.
//!
//! PyTorch's vector code counts on from the first element of each vector, so the width of its vectors (32 bytes) shows
//! in the last bit of floats; these fills keep it.
#![allow(unsafe_code)]

use crate::{DType, Element, ViewMut, with_element};

/// Stores `f(i)` at position i of a one-dimensional view.
fn fill<T: Element>(out: &ViewMut, f: impl Fn(usize) -> T) {
    assert_eq!(out.ndim(), 1, "a range has one dimension");
    for i in 0..out.sizes()[0] {
        // SAFETY: within the only dimension.
        unsafe { out.ptr::<T>().add(i * out.strides()[0]).write(f(i)) }
    }
}

/// `start + i * step` in integers, for integer bounds and an integer dtype.
pub fn arange_integer(out: &ViewMut, start: i64, step: i64) {
    with_element!(out.dtype(), T => fill::<T>(out, |i| T::from_i64(start.wrapping_add(step.wrapping_mul(i as i64)))))
}

/// `start + i * step` for floats; integers are truncated.
pub fn arange(out: &ViewMut, start: f64, step: f64) {
    let n = out.numel();
    let lanes = 32 / out.dtype().size();
    let vector = if out.dtype().is_floating_point() { n / lanes * lanes } else { 0 };
    with_element!(out.dtype(), T => fill::<T>(out, |i| {
        if i >= vector {
            return narrow(step.mul_add(i as f64, start));
        }
        let lane = i % lanes;
        let first = narrow::<T>(step.mul_add((i - lane) as f64, start)).to_f64();
        narrow(step.mul_add(lane as f64, first))
    }))
}

/// From `start` to `end` inclusive in equal steps, the second half counted back from the end.
pub fn linspace(out: &ViewMut, start: f64, end: f64) {
    let n = out.numel();
    match out.dtype() {
        DType::F64 => fill(out, spaced(n, start, end, (end - start) / (n as f64 - 1.0), f64::mul_add)),
        DType::F32 | DType::F16 | DType::BF16 => with_element!(out.dtype(), T => {
            let [start, end] = [start, end].map(|v| T::from_f64(v).to_f64() as f32);
            let value = spaced(n, start, end, (end - start) / (n as f32 - 1.0), f32::mul_add);
            fill::<T>(out, |i| T::from_f64(f64::from(value(i))))
        }),
        _ => with_element!(out.dtype(), T => {
            let [start, end] = [start, end].map(|v| T::from_f64(v).to_f64());
            let value = spaced(n, start, end, (end - start) / (n as f64 - 1.0), f64::mul_add);
            fill::<T>(out, |i| T::from_f64(value(i)))
        }),
    }
}

/// The i-th of n values.
fn spaced<R>(n: usize, start: R, end: R, step: R, fused: impl Fn(R, R, R) -> R) -> impl Fn(usize) -> R
where
    R: Copy + std::ops::Neg<Output = R> + Element,
{
    move |i| {
        let count = |k: usize| R::from_i64(k as i64);
        match i {
            0 => start, // also where a single value has no step
            _ if i < n / 2 => fused(step, count(i), start),
            _ => fused(-step, count(n - 1 - i), end),
        }
    }
}

/// Ones on the main diagonal of a matrix, zeros elsewhere.
pub fn eye(out: &ViewMut) {
    let (&[rows, columns], &[row, column]) = (out.sizes(), out.strides()) else { unreachable!("eye is a matrix") };
    with_element!(out.dtype(), T => for i in 0..rows {
        for j in 0..columns {
            // SAFETY: within both dimensions.
            unsafe { out.ptr::<T>().add(i * row + j * column).write(T::from_i64((i == j).into())) }
        }
    })
}

/// Half types are rounded by way of `f32`.
fn narrow<T: Element>(v: f64) -> T {
    if T::DTYPE.size() == 2 { T::from_f64(f64::from(v as f32)) } else { T::from_f64(v) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tensors::{Lie, Tensor};

    fn run(dtype: DType, n: usize, f: impl Fn(&ViewMut)) -> Vec<f64> {
        let t = Tensor::zeros(dtype, &[n], Lie::Reversed);
        f(&t.view_mut());
        t.values()
    }

    /// Printed by PyTorch 2.15 for -3.3 to 7.7, as bit patterns.
    const LINSPACE_F32: &str = "c0533333 c0412612 c02f18f1 c01d0bd0 c00afeb0 bff1e31d bfcdc8dc bfa9ae9a bf859458 bf42f42c bef57f52 \
        be4a2c96 3dad4af0 3ebbbbc3 3f261265 3f6e46e8 3f9b3db6 3fbf57f8 3fe3723a 4003c63e 4015d35b 4027e07c \
        4039ed9d 404bfabe 405e07df 40701500 40811110 408a17a1 40931e31 409c24c2 40a52b52 40ae31e2 40b73873 \
        40c03f03 40c94594 40d24c24 40db52b5 40e45945 40ed5fd6 40f66666";
    const LINSPACE_F64: &str = "c00a666666666666 c004888888888888 bffd555555555555 bff199999999999a bfd7777777777778 \
        3fd7777777777776 3ff1999999999999 3ffd555555555554 400488888888888a 400a666666666668 \
        4010222222222223 4013111111111112 4016000000000000 4018eeeeeeeeeeef 401bddddddddddde \
        401ecccccccccccd";
    const ARANGE_F32: &str = "c0533333 c0419999 c0300000 c01e6666 c00ccccd bff66666 bfd33333 bfb00000 bf8ccccd bf533334 bf0ccccd \
        be8cccce b2cccccd 3e8ccccc 3f0ccccc 3f533333 3f8ccccd 3fb00000 3fd33333 3ff66667 400ccccd 401e6666 \
        40300000 4041999a 40533333 4064cccd 40766666 40840000 408ccccd 4095999a 409e6666 40a73333 40b00000 \
        40b8cccd 40c1999a 40ca6666 40d33333 40dc0000 40e4cccd 40ed999a";
    const ARANGE_F64: &str = "c00a666666666666 c005393939393939 c0000c0c0c0c0c0c bff5bdbdbdbdbdbc bfe6c6c6c6c6c6c4 \
        bfb0909090909078 3fe2a2a2a2a2a2a6 3ff3abababababae 3ffe060606060608 4004303030303031 \
        40095d5d5d5d5d5e 400e8a8a8a8a8a8c 4011dbdbdbdbdbdc 4014727272727273 4017090909090909 \
        40199f9f9f9f9fa0 401c363636363637";
    const ARANGE_F16: &str = "c29a c20d c180 c0f4 c067 bfb4 be9a bd81 bc67 ba9b b868 b46a 9266 3463 3865 3a98 3c66 3d80 3e99 3fb3 \
        4066 40f3 4180 420d 4299 4326 43b3 4420 4466 44ad 44f3 453a 4580 45c6 460d 4653 469a 46e0 4726 476d";

    #[test]
    fn the_last_bit_is_pytorchs() {
        let hex = |v: &str| u64::from_str_radix(v, 16).expect("hex");
        let single = |s: &str| s.split(' ').map(|v| f64::from(f32::from_bits(hex(v) as u32))).collect::<Vec<f64>>();
        let double = |s: &str| s.split(' ').map(|v| f64::from_bits(hex(v))).collect::<Vec<f64>>();
        let half = |s: &str| s.split(' ').map(|v| half::f16::from_bits(hex(v) as u16).to_f64()).collect::<Vec<f64>>();
        assert_eq!(run(DType::F32, 40, |o| linspace(o, -3.3, 7.7)), single(LINSPACE_F32));
        assert_eq!(run(DType::F64, 16, |o| linspace(o, -3.3, 7.7)), double(LINSPACE_F64));
        assert_eq!(run(DType::F32, 40, |o| arange(o, -3.3, 11.0 / 40.0)), single(ARANGE_F32));
        assert_eq!(run(DType::F64, 17, |o| arange(o, -3.3, 11.0 / 17.0)), double(ARANGE_F64));
        assert_eq!(run(DType::F16, 40, |o| arange(o, -3.3, 11.0 / 40.0)), half(ARANGE_F16));
    }

    #[test]
    fn integers_and_short_ranges() {
        assert_eq!(run(DType::I32, 8, |o| linspace(o, -5.0, 5.0)), [-5.0, -3.0, -2.0, 0.0, 0.0, 2.0, 3.0, 5.0]);
        assert_eq!(run(DType::U8, 4, |o| linspace(o, 0.0, 10.0)), [0.0, 3.0, 6.0, 10.0]);
        assert_eq!(run(DType::I64, 6, |o| linspace(o, 0.5, -7.0)), [0.0, -1.0, -2.0, -4.0, -5.0, -7.0]);
        assert_eq!(run(DType::F32, 1, |o| linspace(o, 3.0, 9.0)), [3.0]);
        assert_eq!(run(DType::F32, 0, |o| linspace(o, 3.0, 9.0)), [0.0; 0]);
        assert_eq!(run(DType::I64, 4, |o| arange_integer(o, 5, -2)), [5.0, 3.0, 1.0, -1.0]);
    }

    #[test]
    fn eye_of_any_shape() {
        let t = Tensor::new(DType::BF16, &[2, 3], Lie::Reversed, &[5.0; 6]);
        eye(&t.view_mut());
        assert_eq!(t.values(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }
}
