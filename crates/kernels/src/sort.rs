//! Order along a dimension: sort, topk, kthvalue, median, mode, and search in what is sorted.
//!
//! Elements become unsigned keys whose order is PyTorch's: NaN largest, both zeros equal. A key and its position are
//! packed into one integer, so sorting is always stable and two widths of integer serve all dtypes. Equal elements come
//! in the order of their positions everywhere, which PyTorch leaves open for the selections.
//! Lanes along the dimension are shared between threads, one lane is one thread's.
#![allow(unsafe_code)]

mod unique;

pub use unique::{Unique, unique};

use crate::index::with_bytes;
use crate::walk::{for_runs, last, without};
use crate::{DType, View, ViewMut, bf16, f16, parallel, scratch};

/// Elements that one thread handles at once.
const GRAIN: usize = if cfg!(miri) { 64 } else { 1 << 12 };

/// The largest key of a dtype that has NaN is NaN's.
fn nan_key(dtype: DType) -> Option<u64> {
    dtype.is_floating_point().then(|| u64::MAX >> (64 - 8 * dtype.size()))
}

macro_rules! float_key {
    ($v:expr, $bits:ty) => {{
        let v = $v;
        let sign = 1 << (<$bits>::BITS - 1);
        let bits = v.to_bits();
        u64::from(if v.is_nan() {
            <$bits>::MAX
        } else if bits & !sign == 0 {
            sign // both zeros
        } else if bits & sign != 0 {
            !bits
        } else {
            bits | sign
        })
    }};
}

/// Appends the keys of `n` elements.
///
/// # Safety
/// `n` elements of the view lie at `offset` and steps of `step`.
unsafe fn keys(view: &View, offset: usize, step: usize, n: usize, mut push: impl FnMut(u64)) {
    macro_rules! each {
        ($t:ty, |$v:ident| $key:expr) => {
            for i in 0..n {
                // SAFETY: the caller's promise.
                let $v = unsafe { view.as_ptr().cast::<$t>().add(offset + i * step).read() };
                push($key)
            }
        };
    }
    match view.dtype() {
        DType::Bool => each!(u8, |v| u64::from(v != 0)),
        DType::U8 => each!(u8, |v| u64::from(v)),
        DType::I8 => each!(i8, |v| u64::from(v as u8 ^ 1 << 7)),
        DType::I16 => each!(i16, |v| u64::from(v as u16 ^ 1 << 15)),
        DType::I32 => each!(i32, |v| u64::from(v as u32 ^ 1 << 31)),
        DType::I64 => each!(i64, |v| v as u64 ^ 1 << 63),
        DType::F16 => each!(f16, |v| float_key!(v, u16)),
        DType::BF16 => each!(bf16, |v| float_key!(v, u16)),
        DType::F32 => each!(f32, |v| float_key!(v, u32)),
        DType::F64 => each!(f64, |v| float_key!(v, u64)),
        DType::C64 | DType::C128 => unreachable!("complex numbers have no order"),
    }
}

/// A key above a position.
trait Packed: Copy + Ord + Send {
    fn pack(key: u64, at: usize) -> Self;
    fn key(self) -> u64;
    fn at(self) -> usize;
}

impl Packed for u64 {
    fn pack(key: u64, at: usize) -> u64 {
        key << 32 | at as u64
    }
    fn key(self) -> u64 {
        self >> 32
    }
    fn at(self) -> usize {
        self as u32 as usize
    }
}

impl Packed for u128 {
    fn pack(key: u64, at: usize) -> u128 {
        u128::from(key) << 64 | at as u128
    }
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
    fn at(self) -> usize {
        self as u64 as usize
    }
}

/// Runs `$body` with `$p` standing for the narrowest integer that packs the lanes of a view.
macro_rules! with_packed {
    ($dtype:expr, $n:expr, $p:ident => $body:expr) => {
        if $dtype.size() <= 4 && $n <= u32::MAX as usize {
            type $p = u64;
            $body
        } else {
            type $p = u128;
            $body
        }
    };
}
use with_packed;

/// Keys turned over, so that ascending order of the result is descending order of the elements.
fn flip_of(dtype: DType, descending: bool) -> u64 {
    if descending { u64::MAX >> (64 - 8 * dtype.size()) } else { 0 }
}

/// For every lane along `dim`: packs it, lets `choose` reorder it and name how many to keep, and writes those.
///
/// `values` (of the input's dtype) and `indices` (i64) have the input's sizes but along `dim`.
fn by_lane<P: Packed>(
    input: &View,
    dim: usize,
    flip: u64,
    values: Option<&ViewMut>,
    indices: &ViewMut,
    choose: impl Fn(&mut [P]) -> &[P] + Sync,
) {
    let n = input.sizes()[dim];
    let rest = without(input.sizes(), dim);
    let fits = |v: &ViewMut| v.ndim() == input.ndim() && without(v.sizes(), dim) == rest;
    assert!(fits(indices) && indices.dtype() == DType::I64, "int64 indices, in the input's sizes but along {dim}");
    if let Some(v) = values {
        assert!(v.sizes() == indices.sizes() && v.dtype() == input.dtype(), "values as many as indices");
    }
    // Without values the indices' strides stand in; nothing is written there.
    let values = values.copied();
    let value_strides = values.map_or(indices.strides(), |v| v.strides());
    let strides = [input.strides(), value_strides, indices.strides()].map(|s| without(s, dim));
    let by = [input.strides()[dim], value_strides[dim], indices.strides()[dim]];
    let steps = [0, 1, 2].map(|k| last(&strides[k]));
    let room = indices.sizes()[dim];
    let (input, indices, size) = (*input, *indices, input.dtype().size());
    parallel::split(rest.iter().product(), (GRAIN / n.max(1)).max(1), |lanes| {
        let mut lane: Vec<P> = scratch::room(n);
        for_runs(&rest, [0, 1, 2].map(|k| &strides[k][..]), lanes, |at, len| {
            for j in 0..len {
                let [from, to, to_index] = std::array::from_fn(|k| at[k] + j * steps[k]);
                lane.clear();
                // SAFETY: a lane of the input.
                unsafe { keys(&input, from, by[0], n, |key| lane.push(P::pack(key ^ flip, lane.len()))) };
                for (k, p) in choose(&mut lane).iter().take(room).enumerate() {
                    // SAFETY: positions are below n, and k is below the outputs' size along `dim`.
                    unsafe {
                        if let Some(v) = values {
                            let source = input.as_ptr().add((from + p.at() * by[0]) * size);
                            let target = v.as_ptr().add((to + k * by[1]) * size);
                            with_bytes!(size, T => target.cast::<T>().write(source.cast::<T>().read()));
                        }
                        indices.ptr::<i64>().add(to_index + k * by[2]).write(p.at() as i64);
                    }
                }
            }
        })
    });
}

/// Sorts along `dim`, always stably; `argsort` leaves the values out. The outputs do not overlap the input.
pub fn sort(input: &View, dim: usize, descending: bool, values: Option<&ViewMut>, indices: &ViewMut) {
    let flip = flip_of(input.dtype(), descending);
    with_packed!(input.dtype(), input.sizes()[dim], P => by_lane::<P>(input, dim, flip, values, indices, |lane| {
        lane.sort_unstable();
        lane
    }))
}

/// The `k` largest or smallest along `dim`, where `k` is the outputs' size there; in order if `sorted`.
pub fn topk(input: &View, dim: usize, largest: bool, sorted: bool, values: &ViewMut, indices: &ViewMut) {
    let (n, k) = (input.sizes()[dim], indices.sizes()[dim]);
    assert!(k <= n, "{k} of {n} elements");
    let flip = flip_of(input.dtype(), largest);
    with_packed!(input.dtype(), n, P => by_lane::<P>(input, dim, flip, Some(values), indices, |lane| {
        if 0 < k && k < n {
            lane.select_nth_unstable(k - 1);
        }
        if sorted {
            lane[..k].sort_unstable();
        }
        &lane[..k]
    }))
}

/// The `k`-th smallest along `dim`, counting from 1; the outputs have size 1 there.
pub fn kthvalue(input: &View, dim: usize, k: usize, values: &ViewMut, indices: &ViewMut) {
    let n = input.sizes()[dim];
    assert!((1..=n).contains(&k), "number {k} of {n} elements");
    with_packed!(input.dtype(), n, P => by_lane::<P>(input, dim, 0, Some(values), indices, |lane| {
        lane.select_nth_unstable(k - 1);
        &lane[k - 1..k]
    }))
}

/// The lower median along `dim`, which is not empty; the outputs have size 1 there.
///
/// A lane with NaN gives its first NaN, unless `ignore_nan`: then only a lane of nothing else does.
pub fn median(input: &View, dim: usize, ignore_nan: bool, values: &ViewMut, indices: &ViewMut) {
    let nan = nan_key(input.dtype());
    with_packed!(input.dtype(), input.sizes()[dim], P => by_lane::<P>(input, dim, 0, Some(values), indices, |lane| {
        let first_nan = lane.iter().position(|p| Some(p.key()) == nan);
        let k = match first_nan {
            Some(at) if !ignore_nan => return &lane[at..=at],
            Some(_) => lane.iter().filter(|p| Some(p.key()) != nan).count().saturating_sub(1) / 2,
            None => (lane.len() - 1) / 2,
        };
        lane.select_nth_unstable(k);
        &lane[k..=k]
    }))
}

/// The most frequent element along `dim`, which is not empty: the smallest such, at its last position.
pub fn mode(input: &View, dim: usize, values: &ViewMut, indices: &ViewMut) {
    with_packed!(input.dtype(), input.sizes()[dim], P => by_lane::<P>(input, dim, 0, Some(values), indices, |lane| {
        lane.sort_unstable();
        let mut best = 0..0;
        let mut start = 0;
        for end in 1..=lane.len() {
            if end == lane.len() || lane[end].key() != lane[start].key() {
                if end - start > best.len() {
                    best = start..end;
                }
                start = end;
            }
        }
        &lane[best.end - 1..best.end]
    }))
}

/// Where each of `values` would be inserted into `sorted` to keep the order: before equal elements, or after if `right`.
///
/// Both have one dtype. `sorted` has one dimension, or the same leading sizes as `values`. `out` is i64 or i32.
/// `bucketize` is this with one dimension of boundaries.
pub fn searchsorted(sorted: &View, values: &View, right: bool, out: &ViewMut) {
    assert!(sorted.dtype() == values.dtype() && values.sizes() == out.sizes(), "an index for each value");
    assert!(matches!(out.dtype(), DType::I32 | DType::I64), "indices are i32 or i64");
    if let [lead @ .., _] = sorted.sizes()
        && !lead.is_empty()
    {
        assert!(values.sizes().split_last().is_some_and(|(_, v)| v == lead), "a sorted row for each row of values");
    }
    let n = sorted.sizes().last().copied().unwrap_or(1);
    let shared = sorted.ndim() <= 1;
    let per_row = if shared { 0 } else { values.sizes().last().copied().unwrap_or(1) };
    let (lead, lead_strides) = match sorted.ndim() {
        0 | 1 => (&[][..], &[][..]),
        d => (&sorted.sizes()[..d - 1], &sorted.strides()[..d - 1]),
    };
    let mut rows: Vec<usize> = scratch::room(lead.iter().product());
    for_runs(lead, [lead_strides], 0..lead.iter().product(), |[at], len| {
        rows.extend((0..len).map(|i| at + i * last(lead_strides)));
    });
    let step = last(sorted.strides());
    let (sorted, values, out) = (*sorted, *values, *out);
    let steps = [last(values.strides()), last(out.strides())];
    parallel::split(values.numel(), GRAIN, |range| {
        let mut position = range.start;
        for_runs(values.sizes(), [values.strides(), out.strides()], range, |[v, o], len| {
            let row = rows[if shared { 0 } else { position / per_row }];
            position += len;
            let mut k = 0;
            // SAFETY: a run of the values; every element of a row of `sorted`; the same run of the output.
            unsafe {
                keys(&values, v, steps[0], len, |key| {
                    let (mut low, mut high) = (0, n);
                    while low < high {
                        let middle = (low + high) / 2;
                        keys(&sorted, row + middle * step, 0, 1, |there| {
                            if there < key || right && there == key { low = middle + 1 } else { high = middle }
                        });
                    }
                    let at = o + k * steps[1];
                    match out.dtype() {
                        DType::I32 => out.ptr::<i32>().add(at).write(low as i32),
                        _ => out.ptr::<i64>().add(at).write(low as i64),
                    }
                    k += 1;
                })
            }
        })
    });
}

#[cfg(test)]
mod tests;
