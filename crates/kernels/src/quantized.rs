//! Quantized weights: integers in groups along each row, each group with a scale.
//!
//! Eight bits are bytes; of four bits two share a byte, the even column in the lower half, stored with 8 added.
#![allow(unsafe_code)]

use crate::real::per_isa;
use crate::{Element, View, ViewMut, parallel};

/// Elements that one thread handles at once.
const GRAIN: usize = 1 << 14;

/// The number of bits of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// A byte each, from -127 to 127.
    Eight,
    /// Half a byte each, from -7 to 7.
    Four,
}

/// A number that weights are computed in.
trait Real: Element + std::ops::Mul<Output = Self> {
    fn of(v: i8) -> Self;
}

impl Real for f32 {
    fn of(v: i8) -> f32 {
        v.into()
    }
}

impl Real for f64 {
    fn of(v: i8) -> f64 {
        v.into()
    }
}

/// Writes `[rows, columns]` weights: each integer times the scale of its group. All operands are row-major.
///
/// # Panics
/// If sizes, element types or layouts do not match.
pub fn dequantize(bits: Bits, weight: View, scale: View, out: ViewMut) {
    match out.dtype() {
        crate::DType::F64 => rows::<f64>(bits, weight, scale, out),
        _ => rows::<f32>(bits, weight, scale, out),
    }
}

fn rows<T: Real>(bits: Bits, weight: View, scale: View, out: ViewMut) {
    let (&[count, columns], &[scale_rows, groups]) = (out.sizes(), scale.sizes()) else {
        panic!("matrices of weights and scales");
    };
    assert!(out.dtype() == T::DTYPE && out.is_contiguous(), "row-major memory of the scales' type");
    assert!(scale_rows == count && groups > 0 && columns.is_multiple_of(groups), "groups of one length");
    let packed = if bits == Bits::Four { columns / 2 } else { columns };
    assert!(
        weight.sizes() == [count, packed] && (bits == Bits::Eight || columns.is_multiple_of(2)),
        "as many integers as weights"
    );
    if out.numel() == 0 {
        return;
    }
    let scales = scale.as_slice::<T>().expect("row-major scales of the result's type");
    let grain = (GRAIN / columns).max(1);
    // Rows lie one after another, and so do their groups.
    let of = |range: &std::ops::Range<usize>| {
        // SAFETY: rows of `count` rows of row-major memory that was asserted above; ranges of threads do not overlap.
        let out =
            unsafe { std::slice::from_raw_parts_mut(out.ptr::<T>().add(range.start * columns), range.len() * columns) };
        (&scales[range.start * groups..range.end * groups], out)
    };
    match bits {
        Bits::Eight => {
            let weight = weight.as_slice::<i8>().expect("row-major bytes");
            parallel::split(count, grain, |range| {
                let (scales, out) = of(&range);
                bytes(&weight[range.start * columns..range.end * columns], scales, out);
            });
        }
        Bits::Four => {
            let weight = weight.as_slice::<u8>().expect("row-major bytes");
            parallel::split(count, grain, |range| {
                let (scales, out) = of(&range);
                halves(&weight[range.start * packed..range.end * packed], scales, out);
            });
        }
    }
}

per_isa! {
    /// Whole groups of integers, each with a scale.
    fn bytes<T: Real>(integers: &[i8], scales: &[T], out: &mut [T]) {
        let group = out.len() / scales.len();
        for ((out, integers), &s) in out.chunks_exact_mut(group).zip(integers.chunks_exact(group)).zip(scales) {
            for (o, &q) in out.iter_mut().zip(integers) {
                *o = T::of(q) * s;
            }
        }
    }
}

per_isa! {
    /// Whole groups of integers, two in a byte, each with a scale.
    fn halves<T: Real>(integers: &[u8], scales: &[T], out: &mut [T]) {
        let group = out.len() / scales.len();
        if group.is_multiple_of(2) {
            for ((out, integers), &s) in out.chunks_exact_mut(group).zip(integers.chunks_exact(group / 2)).zip(scales) {
                for (pair, &byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(integers) {
                    *pair = [T::of((byte & 15) as i8 - 8) * s, T::of((byte >> 4) as i8 - 8) * s];
                }
            }
            return;
        }
        // A byte may belong to two groups.
        for (k, (pair, &byte)) in out.as_chunks_mut::<2>().0.iter_mut().zip(integers).enumerate() {
            let low = T::of((byte & 15) as i8 - 8) * scales[2 * k / group];
            *pair = [low, T::of((byte >> 4) as i8 - 8) * scales[(2 * k + 1) / group]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Storage};

    fn stored<T: Element>(values: &[T]) -> Storage {
        let storage = Storage::zeroed(size_of_val(values)).expect("a few bytes");
        crate::slices::write_slice(values, storage.view_mut(T::DTYPE, 0, &[values.len()], &[1]));
        storage
    }

    fn run(bits: Bits, weight: &Storage, dtype: DType, packed: usize, scale: &[f32]) -> Vec<f32> {
        let (scale, out) = (stored(scale), stored(&[9f32; 8]));
        dequantize(
            bits,
            weight.view(dtype, 0, &[2, packed], &[packed, 1]),
            scale.view(DType::F32, 0, &[2, 2], &[2, 1]),
            out.view_mut(DType::F32, 0, &[2, 4], &[4, 1]),
        );
        let mut values = vec![0f32; 8];
        crate::slices::read_slice(out.view(DType::F32, 0, &[8], &[1]), &mut values);
        values
    }

    #[test]
    fn bytes_and_halves_of_bytes() {
        let expected = [0.5, -1.0, 14.0, 0.0, -7.0, 7.0, 3.0, -3.0];
        let scale = [0.5, 2.0, 1.0, 3.0];
        let bytes = stored(&[1i8, -2, 7, 0, -7, 7, 1, -1]);
        assert_eq!(run(Bits::Eight, &bytes, DType::I8, 4, &scale), expected);
        let halves = stored(&[9u8 | 6 << 4, 15 | 8 << 4, 1 | 15 << 4, 9 | 7 << 4]);
        assert_eq!(run(Bits::Four, &halves, DType::U8, 2, &scale), expected);
        // Groups of one: a byte belongs to two of them.
        let (scale, out) = (stored(&[0.5f32, 2.0]), stored(&[9f32; 2]));
        let byte = stored(&[9u8 | 6 << 4]);
        dequantize(
            Bits::Four,
            byte.view(DType::U8, 0, &[1, 1], &[1, 1]),
            scale.view(DType::F32, 0, &[1, 2], &[2, 1]),
            out.view_mut(DType::F32, 0, &[1, 2], &[2, 1]),
        );
        let mut values = [0f32; 2];
        crate::slices::read_slice(out.view(DType::F32, 0, &[2], &[1]), &mut values);
        assert_eq!(values, [0.5, -4.0]);
    }
}
