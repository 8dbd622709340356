//! tril and triu: one side of the last two dimensions' diagonal, zeros on the other.
#![allow(unsafe_code)]

use crate::index::with_bytes;
use crate::walk::{for_runs, last};
use crate::{View, ViewMut, parallel};

/// Elements that one thread handles at once.
const GRAIN: usize = 1 << 14;

/// Keeps what lies on or below the `diagonal`-th diagonal of each matrix (positive: above the main one).
pub fn tril(input: &View, diagonal: i64, out: &ViewMut) {
    with_bytes!(out.dtype().size(), T => triangle::<T>(input, out, |row, columns| (0, row.saturating_add(diagonal).saturating_add(1).clamp(0, columns))))
}

/// Keeps what lies on or above the `diagonal`-th diagonal of each matrix.
pub fn triu(input: &View, diagonal: i64, out: &ViewMut) {
    with_bytes!(out.dtype().size(), T => triangle::<T>(input, out, |row, columns| (row.saturating_add(diagonal).clamp(0, columns), columns)))
}

/// Keeps columns `kept(row, columns)` of every row. The output may be the input.
fn triangle<T: Copy + Default>(input: &View, out: &ViewMut, kept: impl Fn(i64, i64) -> (i64, i64) + Sync) {
    assert!(input.sizes() == out.sizes() && input.dtype() == out.dtype() && input.ndim() >= 2, "matrices alike");
    let outer = out.ndim() - 1;
    let (rows, columns) = (out.sizes()[outer - 1], out.sizes()[outer]);
    let strides = [&input.strides()[..outer], &out.strides()[..outer]];
    let (steps, by) = (strides.map(last), [last(input.strides()), last(out.strides())]);
    let (input, out) = (*input, *out);
    parallel::split(out.sizes()[..outer].iter().product(), (GRAIN / columns.max(1)).max(1), |range| {
        let mut at = range.start;
        for_runs(&out.sizes()[..outer], strides, range, |[i, o], len| {
            for k in 0..len {
                let (first, end) = kept(((at + k) % rows) as i64, columns as i64);
                let (first, end) = (first as usize, end.max(first) as usize);
                // SAFETY: row and columns are within both views, which share sizes and dtype.
                unsafe {
                    let from = input.as_ptr().cast::<T>().add(i + k * steps[0]);
                    let to = out.as_ptr().cast::<T>().add(o + k * steps[1]);
                    (0..first).for_each(|c| to.add(c * by[1]).write(T::default()));
                    (first..end).for_each(|c| to.add(c * by[1]).write(from.add(c * by[0]).read()));
                    (end..columns).for_each(|c| to.add(c * by[1]).write(T::default()));
                }
            }
            at += len;
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::test_tensors::{LIES, Tensor, any_threads, coordinates};

    #[test]
    fn triangles_of_any_diagonal() {
        for sizes in [&[4, 4][..], &[3, 5], &[2, 5, 3], &[2, 0, 3], &[300, 150]] {
            for diagonal in [i64::MIN, -9, -1, 0, 2, 9, i64::MAX] {
                for (lie, dtype) in LIES.into_iter().zip([DType::F32, DType::I8]) {
                    let input = Tensor::random(1, dtype, sizes, lie, 1, 100);
                    let got = any_threads(|| {
                        let (low, up) = (Tensor::zeros(dtype, sizes, lie), Tensor::zeros(dtype, sizes, lie));
                        tril(&input.view(), diagonal, &low.view_mut());
                        triu(&input.view(), diagonal, &up.view_mut());
                        [low.values(), up.values()]
                    });
                    let keep = |f: &dyn Fn(i128) -> bool| -> Vec<f64> {
                        let above = |c: &[usize]| c[c.len() - 1] as i128 - c[c.len() - 2] as i128;
                        coordinates(sizes)
                            .zip(input.values())
                            .map(|(c, v)| if f(above(&c)) { v } else { 0.0 })
                            .collect()
                    };
                    let d = i128::from(diagonal);
                    assert_eq!(got, [keep(&|a| a <= d), keep(&|a| a >= d)], "{sizes:?} {diagonal}");
                }
            }
        }
    }
}
