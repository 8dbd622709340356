//! Filling memory from a [`Generator`], in logical (row-major) order whatever the strides.
//!
//! The caller checks parameters (`from <= to`, `0 <= p <= 1`, positive rates). What PyTorch computes in double
//! and then stores narrower is computed in double here too.
#![allow(unsafe_code)]

use super::Generator;
use crate::walk::{for_runs, last};
use crate::{DType, Element, View, ViewMut, bf16, f16, with_element};

/// Stores draws one after the other.
pub(crate) fn fill<T: Element>(out: &ViewMut, mut draw: impl FnMut() -> T) {
    let (p, step) = (out.ptr::<T>(), last(out.strides()));
    for_runs(out.sizes(), [out.strides()], 0..out.numel(), |[at], len| {
        for i in 0..len {
            // SAFETY: the walk stays within the view's sizes.
            unsafe { p.add(at + i * step).write(draw()) }
        }
    });
}

/// Stores one value as an element of some type: draws cost more than the call, so most loops are compiled once and not
/// once a dtype.
///
/// # Safety
/// The pointer is that of a writable element of that type.
type Write<V> = unsafe fn(*mut u8, V);

/// # Safety
/// As for [`Write`].
unsafe fn write_narrow<T: Element>(p: *mut u8, v: f64) {
    // SAFETY: the caller's promise.
    unsafe { p.cast::<T>().write(narrow(v)) }
}

/// # Safety
/// As for [`Write`].
unsafe fn write_int<T: Element>(p: *mut u8, v: i64) {
    // SAFETY: the caller's promise.
    unsafe { p.cast::<T>().write(T::from_i64(v)) }
}

/// # Safety
/// The pointer is that of a readable element of type `T`.
unsafe fn read_float<T: Element>(p: *const u8) -> f64 {
    // SAFETY: the caller's promise.
    unsafe { p.cast::<T>().read() }.to_f64()
}

/// Like [`fill`], for numbers that are stored as [`narrow`] says.
pub(super) fn fill_floats(out: &ViewMut, draw: impl FnMut() -> f64) {
    fill_as(out, with_element!(out.dtype(), T => write_narrow::<T> as Write<f64>), draw)
}

/// Like [`fill`], for whole numbers.
fn fill_ints(out: &ViewMut, draw: impl FnMut() -> i64) {
    fill_as(out, with_element!(out.dtype(), T => write_int::<T> as Write<i64>), draw)
}

/// `write` is the one of the dtype of `out`.
fn fill_as<V>(out: &ViewMut, write: Write<V>, mut draw: impl FnMut() -> V) {
    let (p, size, step) = (out.as_ptr(), out.dtype().size(), last(out.strides()));
    for_runs(out.sizes(), [out.strides()], 0..out.numel(), |[at], len| {
        for i in 0..len {
            // SAFETY: the walk stays within the view's sizes.
            unsafe { write(p.add((at + i * step) * size), draw()) }
        }
    });
}

/// Like [`fill_ints`], with one float of the same sizes per output.
fn map_ints(input: &View, out: &ViewMut, mut draw: impl FnMut(f64) -> i64) {
    assert_eq!(input.sizes(), out.sizes());
    let read = with_element!(input.dtype(), P => read_float::<P> as unsafe fn(*const u8) -> f64);
    let write = with_element!(out.dtype(), T => write_int::<T> as Write<i64>);
    let (p, q) = (input.as_ptr(), out.as_ptr());
    let (s, t) = (last(input.strides()), last(out.strides()));
    let (from, to) = (input.dtype().size(), out.dtype().size());
    for_runs(out.sizes(), [input.strides(), out.strides()], 0..out.numel(), |[a, b], len| {
        for i in 0..len {
            // SAFETY: the walk stays within the sizes, which both views share; reader and writer are those of their dtypes.
            unsafe { write(q.add((b + i * t) * to), draw(read(p.add((a + i * s) * from)))) }
        }
    });
}

/// A double as PyTorch stores it: half types are rounded by way of `f32`.
#[inline]
pub(super) fn narrow<T: Element>(v: f64) -> T {
    match T::DTYPE {
        DType::F16 | DType::BF16 => T::from_f64(f64::from(v as f32)),
        _ => T::from_f64(v),
    }
}

/// What was rounded up to the open end goes to the closed one.
#[inline]
fn below<T: PartialOrd>(v: T, from: T, to: T) -> T {
    if v >= to { from } else { v }
}

impl Generator {
    /// Uniform in `[from, to)`, as `uniform_`: 53 bits for f64, 24 bits for f32 and (rounded) for half types.
    pub fn uniform(&mut self, out: &ViewMut, from: f64, to: f64) {
        if out.dtype() == DType::F64 {
            return fill(out, || below(self.uniform_f64().mul_add(to - from, from), from, to));
        }
        let (from, to) = (from as f32, to as f32);
        let unit = from == 0.0 && to == 1.0;
        // A fused multiply-add is a function call if the instruction set lacks it; on [0, 1) it would change nothing.
        let mut draw = || if unit { self.uniform_f32() } else { self.uniform_f32().mul_add(to - from, from) };
        match out.dtype() {
            DType::F32 => fill(out, || below(draw(), from, to)),
            DType::F16 => fill(out, || below(f16::from_f32(draw()), f16::from_f32(from), f16::from_f32(to))),
            DType::BF16 => fill(out, || below(bf16::from_f32(draw()), bf16::from_f32(from), bf16::from_f32(to))),
            dtype => unreachable!("uniform on {dtype}: callers check for floating point"),
        }
    }

    /// Integers in `[low, high)`, as `randint` and `random_(low, high)`; the bounds must fit the dtype.
    pub fn random_from_to(&mut self, out: &ViewMut, low: i64, high: i64) {
        let range = high.wrapping_sub(low) as u64;
        assert!(low < high, "an empty range from {low} to {high}");
        // A small range takes the remainder of 32 bits. PyTorch moved the border down to 2^28 to lessen the bias.
        let wide = range >= 1 << 28;
        fill_ints(out, || {
            let v = if wide { self.random64() } else { u64::from(self.random()) };
            (v % range).wrapping_add(low as u64) as i64
        })
    }

    /// Any 64-bit integer, as `random_(i64::MIN, None)`.
    pub fn random_full(&mut self, out: &ViewMut) {
        fill_ints(out, || self.random64() as i64)
    }

    /// Non-negative integers up to the largest the dtype has, or up to which a float counts exactly, as `random_()`.
    pub fn random_any(&mut self, out: &ViewMut) {
        let (wide, count) = match out.dtype() {
            DType::Bool => (false, 2),
            DType::U8 => (false, 1 << 8),
            DType::F16 => (false, (1 << 11) + 1),
            DType::BF16 => (false, (1 << 8) + 1),
            DType::F32 => (false, (1 << 24) + 1),
            DType::F64 => (true, (1 << 53) + 1),
            DType::C64 | DType::C128 => unreachable!("whole numbers are drawn for real dtypes"),
            signed => (signed.size() == 8, 1 << (8 * signed.size() - 1)),
        };
        fill_ints(out, || {
            let v = if wide { self.random64() } else { u64::from(self.random()) };
            (v % count) as i64
        })
    }

    /// A random permutation of `0..n`, as `randperm`; `out` has one dimension.
    pub fn randperm(&mut self, out: &ViewMut) {
        assert_eq!(out.ndim(), 1, "a permutation has one dimension");
        let n = out.numel();
        let step = last(out.strides());
        let mut next = 0;
        fill_ints(out, || {
            next += 1;
            next - 1
        });
        with_element!(out.dtype(), T => {
            let p = out.ptr::<T>();
            // SAFETY: every index below is less than n, the size of the only dimension.
            unsafe {
                // Beyond this PyTorch draws 64 bits, against bias, and builds the permutation from the front.
                if n < u32::MAX as usize / 20 {
                    for i in 0..n.saturating_sub(1) {
                        let j = i + self.random() as usize % (n - i);
                        p.add(i * step).swap(p.add(j * step));
                    }
                } else {
                    for i in 0..n {
                        let j = (self.random64() % (i as u64 + 1)) as usize;
                        p.add(i * step).write(T::from_i64(i as i64));
                        p.add(i * step).swap(p.add(j * step));
                    }
                }
            }
        })
    }

    /// 1 with probability `p`, else 0, as `bernoulli_(p)`. Dropout's mask is this with `1 - p`.
    pub fn bernoulli(&mut self, out: &ViewMut, p: f64) {
        match out.dtype() {
            // Dropout's.
            DType::F32 => fill::<f32>(out, || f32::from(self.uniform_f64() < p)),
            _ => fill_ints(out, || (self.uniform_f64() < p).into()),
        }
    }

    /// Like [`Generator::bernoulli`] with a probability per element (floating point, the sizes of `out`).
    pub fn bernoulli_tensor(&mut self, out: &ViewMut, p: &View) {
        match p.dtype() {
            DType::F64 => map_ints(p, out, |p| (self.uniform_f64() < p).into()),
            _ => map_ints(p, out, |p| (self.uniform_f32() < p as f32).into()),
        }
    }

    /// Exponentially distributed with rate `lambda`, as `exponential_`.
    pub fn exponential(&mut self, out: &ViewMut, lambda: f64) {
        fill_floats(out, || -1.0 / lambda * (-self.uniform_f64()).ln_1p())
    }

    /// Trials up to the first success of probability `p`, as `geometric_`.
    pub fn geometric(&mut self, out: &ViewMut, p: f64) {
        fill_floats(out, || (self.uniform_f64().ln() / (-p).ln_1p()).ceil())
    }

    /// The Cauchy distribution, as `cauchy_`.
    pub fn cauchy(&mut self, out: &ViewMut, median: f64, sigma: f64) {
        fill_floats(out, || median + sigma * (std::f64::consts::PI * (self.uniform_f64() - 0.5)).tan())
    }

    /// Rows of category indices drawn with replacement, as `multinomial(weights, n, replacement=True)`.
    ///
    /// `weights` is rows by categories (floating point, finite, not negative, each row with a positive sum), `out` is
    /// i64, rows by n. Without replacement PyTorch takes the largest of `weights / exponential`, which callers compose.
    pub fn multinomial(&mut self, out: &ViewMut, weights: &View) {
        let (&[rows, categories], &[s0, s1]) = (weights.sizes(), weights.strides()) else {
            unreachable!("multinomial takes rows by categories")
        };
        let (&[out_rows, n], &[t0, t1]) = (out.sizes(), out.strides()) else {
            unreachable!("multinomial fills rows by n")
        };
        assert!(out_rows == rows && out.dtype() == DType::I64, "a row of int64 draws for each row of weights");
        assert!(categories > 0 || rows * n == 0, "draws need categories");
        let q = out.ptr::<i64>();
        let mut cumulative = crate::scratch::filled(0.0, categories);
        for row in 0..rows {
            match weights.dtype() {
                // SAFETY: a row of the weights, which has as many elements as there are sums.
                DType::F64 => unsafe { cumulate(weights.ptr::<f64>(), row * s0, s1, &mut cumulative, |v| v) },
                // SAFETY: as above.
                narrower => with_element!(narrower, P => unsafe {
                    cumulate(weights.ptr::<P>(), row * s0, s1, &mut cumulative, |v| f64::from(v as f32))
                }),
            }
            for i in 0..n {
                let u = self.uniform_f64();
                let pick = cumulative.partition_point(|&c| c < u).min(categories - 1);
                // SAFETY: row and i are within the sizes of `out`.
                unsafe { q.add(row * t0 + i * t1).write(pick as i64) }
            }
        }
    }
}

/// Running sums of one row divided by the last, each rounded by `round`; the last is 1 whatever rounding did.
///
/// # Safety
/// `sums.len()` elements lie behind `p`, from element `at` on in steps of `step`.
unsafe fn cumulate<P: Element>(p: *const P, at: usize, step: usize, sums: &mut [f64], round: impl Fn(f64) -> f64) {
    let mut sum = 0.0;
    for (i, s) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        sum = round(sum + unsafe { p.add(at + i * step).read() }.to_f64());
        *s = sum;
    }
    sums.iter_mut().for_each(|s| *s = round(*s / sum));
    if let Some(s) = sums.last_mut() {
        *s = 1.0
    }
}
