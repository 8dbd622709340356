//! Masks: elements selected by a bool or u8 tensor of the same sizes.
//!
//! Where the result is as long as the number of true elements, callers ask [`count_nonzero`] first. Chunks count on
//! their own, then each knows where its part of the result begins.

use super::{GRAIN, with_bytes};
use crate::scratch::collected;
use crate::walk::{Joined, for_runs};
use crate::{DType, Element, View, ViewMut, parallel, with_element};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of nonzero elements.
pub fn count_nonzero(input: &View) -> usize {
    counts(input).into_iter().sum()
}

/// Like [`count_nonzero`], per chunk of `GRAIN` elements.
fn counts(input: &View) -> Vec<usize> {
    let joined = Joined::new(input.sizes(), [input.strides()]);
    let n = input.numel();
    let counts: Vec<AtomicUsize> = collected((0..n.div_ceil(GRAIN)).map(|_| AtomicUsize::new(0)));
    let [step] = joined.steps();
    with_element!(input.dtype(), T => parallel::split(n, GRAIN, |range| {
        let (chunk, mut count) = (range.start / GRAIN, 0);
        joined.runs(range, |[at], len| {
            for i in 0..len {
                // SAFETY: the walk stays within the view.
                count += usize::from(is_true(unsafe { input.ptr::<T>().add(at + i * step).read() }));
            }
        });
        counts[chunk].store(count, Relaxed);
    }));
    collected(counts.into_iter().map(AtomicUsize::into_inner))
}

#[inline(always)]
fn is_true<T: Element>(v: T) -> bool {
    v != T::from_i64(0)
}

/// Calls `f(range, first)` on chunks of the input, where `first` true elements come before.
fn numbered(input: &View, room: usize, f: impl Fn(Range<usize>, usize) + Sync) {
    let mut total = 0;
    let starts: Vec<usize> = collected(counts(input).into_iter().map(|c| (total, total += c).0));
    assert!(total <= room, "{total} elements are chosen, {room} were expected");
    parallel::split(input.numel(), GRAIN, |range| {
        let first = starts[range.start / GRAIN];
        f(range, first)
    });
}

/// Sets `out` to `value` (a view without dimensions) where the mask is true.
pub fn masked_fill(out: &ViewMut, mask: &View, value: &View) {
    assert!(is_mask(mask) && mask.sizes() == out.sizes(), "a mask has the sizes of what it chooses from");
    assert!(value.dtype() == out.dtype() && value.numel() == 1, "one value of the target's dtype");
    let joined = Joined::new(out.sizes(), [mask.strides(), out.strides()]);
    let [ms, os] = joined.steps();
    let (mask, out) = (*mask, *out);
    with_bytes!(out.dtype().size(), T => {
        // SAFETY: a view without dimensions has one element.
        let value = unsafe { value.as_ptr().cast::<T>().read() };
        parallel::split(joined.numel(), GRAIN, |range| joined.runs(range, |[m, o], len| {
            for i in 0..len {
                // SAFETY: the walk stays within both views.
                unsafe {
                    if mask.as_ptr().add(m + i * ms).read() != 0 {
                        out.as_ptr().cast::<T>().add(o + i * os).write(value)
                    }
                }
            }
        }))
    });
}

/// Writes the elements where the mask is true to the one-dimensional `out`, in order.
pub fn masked_select(input: &View, mask: &View, out: &ViewMut) {
    assert!(input.dtype() == out.dtype() && out.ndim() == 1, "a list of the input's dtype");
    let (input, out, step) = (*input, *out, out.strides()[0]);
    with_bytes!(out.dtype().size(), T => chosen(input.sizes(), input.strides(), mask, out.numel(), |at, n| {
        // SAFETY: the element is one of the input's, and n is below the number that `out` holds.
        unsafe { out.as_ptr().cast::<T>().add(n * step).write(input.as_ptr().cast::<T>().add(at).read()) }
    }));
}

/// Sets the elements where the mask is true to those of the one-dimensional `src`, in order.
pub fn masked_scatter(out: &ViewMut, mask: &View, src: &View) {
    assert!(src.dtype() == out.dtype() && src.ndim() == 1, "a list of the target's dtype");
    let (src, out, step) = (*src, *out, src.strides()[0]);
    with_bytes!(out.dtype().size(), T => chosen(out.sizes(), out.strides(), mask, src.numel(), |at, n| {
        // SAFETY: as in `masked_select`, with the roles exchanged.
        unsafe { out.as_ptr().cast::<T>().add(at).write(src.as_ptr().cast::<T>().add(n * step).read()) }
    }));
}

/// Calls `f(offset, number)` for the chosen elements of a tensor; numbers are below `room`.
fn chosen(sizes: &[usize], strides: &[usize], mask: &View, room: usize, f: impl Fn(usize, usize) + Sync) {
    assert!(is_mask(mask) && mask.sizes() == sizes, "a mask has the sizes of what it chooses from");
    let joined = Joined::new(sizes, [mask.strides(), strides]);
    let [ms, os] = joined.steps();
    let mask = *mask;
    numbered(&mask, room, |range, mut n| {
        joined.runs(range, |[m, o], len| {
            for i in 0..len {
                // SAFETY: the walk stays within the mask. `n < room` is asked again: a mask may change meanwhile.
                if unsafe { mask.as_ptr().add(m + i * ms).read() } != 0 && n < room {
                    f(o + i * os, n);
                    n += 1;
                }
            }
        })
    });
}

fn is_mask(mask: &View) -> bool {
    matches!(mask.dtype(), DType::Bool | DType::U8)
}

/// Writes the coordinates of the elements that are not zero to `out` (i64, count by dimensions), in logical order.
pub fn nonzero(input: &View, out: &ViewMut) {
    let (&[room, ndim], &[row, column]) = (out.sizes(), out.strides()) else {
        unreachable!("coordinates are a matrix")
    };
    assert!(ndim == input.ndim() && out.dtype() == DType::I64, "int64 coordinates, one for each dimension");
    let (input, out) = (*input, *out);
    let step = crate::walk::last(input.strides());
    with_element!(input.dtype(), T => numbered(&input, room, |range, mut n| {
        let mut at = range.start;
        for_runs(input.sizes(), [input.strides()], range, |[offset], len| {
            let mut coordinates: SmallVec<[usize; 8]> = smallvec![0; ndim];
            let mut rest = at;
            for (c, &size) in coordinates.iter_mut().zip(input.sizes()).rev() {
                *c = rest % size;
                rest /= size;
            }
            for i in 0..len {
                // SAFETY: the walk stays within the input, and n stays below the rows of `out`.
                unsafe {
                    if is_true(input.ptr::<T>().add(offset + i * step).read()) && n < room {
                        let to = out.ptr::<i64>().add(n * row);
                        coordinates.iter().enumerate().for_each(|(k, &c)| to.add(k * column).write(c as i64));
                        n += 1;
                    }
                }
                if let Some(c) = coordinates.last_mut() {
                    *c += 1
                }
            }
            at += len;
        })
    }));
}
