//! Copies whose every dimension is re-read by its own map: flip, roll and padding in all modes.
//!
//! For each dimension a map says which position of the source an output position reads, or that it takes the fill
//! value. The forward copy is compiled per element size. The backward adds an output's gradient to where it was read
//! from, in logical order for each source element, so that it does not depend on the number of threads.
#![allow(unsafe_code)]

use crate::index::{Arithmetic, with_bytes};
use crate::walk::{for_runs, last};
use crate::{View, ViewMut, parallel, scratch, with_element};

/// How [`pad`] fills the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// With a value, or zero.
    Constant,
    /// Mirrored without repeating the edge.
    Reflect,
    /// The edge repeated.
    Replicate,
    /// From the other end.
    Circular,
}

/// Elements that one thread handles at once.
const GRAIN: usize = 1 << 14;
/// An output position that reads nothing.
const FILL: usize = usize::MAX;

/// Per dimension, the source position that each output position reads.
type Maps = Vec<Vec<usize>>;

fn identity(sizes: &[usize]) -> Maps {
    sizes.iter().map(|&n| scratch::collected(0..n)).collect()
}

/// Maps of padding by `(before, after)` on the trailing dimensions; negative amounts crop.
fn pad_maps(sizes: &[usize], pads: &[(i64, i64)], mode: PadMode) -> Maps {
    let (leading, padded) = sizes.split_at(sizes.len() - pads.len());
    let mut maps = identity(leading);
    for (&n, &(before, after)) in padded.iter().zip(pads) {
        let n = n as i128;
        // Wider than the amounts, which may be any: only their sum is known to be a size.
        let (before, after) = (i128::from(before), i128::from(after));
        let read = |at: i128| match mode {
            _ if (0..n).contains(&at) => at as usize,
            PadMode::Constant => FILL,
            PadMode::Reflect if at < 0 => -at as usize,
            PadMode::Reflect => (2 * (n - 1) - at) as usize,
            PadMode::Replicate => at.clamp(0, n - 1) as usize,
            PadMode::Circular => at.rem_euclid(n) as usize,
        };
        let mut map = scratch::room((before + n + after) as usize);
        map.extend((-before..n + after).map(read));
        assert!(map.iter().all(|&at| at == FILL || at < n as usize), "padding {before} and {after} of {n} by {mode:?}");
        maps.push(map);
    }
    maps
}

/// Calls `f(outer, dense)` for rows of the dense operand: the offset of the mapped operand's row, or `FILL`.
fn rows(maps: &Maps, mapped: &[usize], dense: &View, range: std::ops::Range<usize>, mut f: impl FnMut(usize, usize)) {
    let outer = dense.ndim() - 1;
    let mut at = range.start;
    let step = last(&dense.strides()[..outer]);
    for_runs(&dense.sizes()[..outer], [&dense.strides()[..outer]], range, |[offset], len| {
        for i in 0..len {
            let (mut rest, mut source) = (at + i, 0usize);
            for k in (0..outer).rev() {
                let from = maps[k][rest % maps[k].len()];
                rest /= maps[k].len();
                source = if from == FILL || source == FILL { FILL } else { source + from * mapped[k] };
            }
            f(source, offset + i * step);
        }
        at += len;
    });
}

fn remap<T: Copy + Send + Sync>(input: &View, maps: &Maps, fill: T, out: &ViewMut) {
    assert!(maps.iter().map(Vec::len).eq(out.sizes().iter().copied()), "the maps are those of the output's sizes");
    let Some((inner, outer)) = maps.split_last() else {
        // SAFETY: both have exactly one element: they have no dimensions, as the maps.
        return unsafe { out.as_ptr().cast::<T>().write(input.as_ptr().cast::<T>().read()) };
    };
    let count = outer.iter().map(Vec::len).product();
    let (step, to_step) = (last(input.strides()), last(out.strides()));
    let (input, out) = (*input, *out);
    parallel::split(count, (GRAIN / inner.len().max(1)).max(1), |range| {
        rows(maps, input.strides(), &out.as_view(), range, |source, to| {
            for (j, &from) in inner.iter().enumerate() {
                // SAFETY: maps name positions within the input's sizes, and j is within the output's.
                unsafe {
                    let v = if source == FILL || from == FILL {
                        fill
                    } else {
                        input.as_ptr().cast::<T>().add(source + from * step).read()
                    };
                    out.as_ptr().cast::<T>().add(to + j * to_step).write(v);
                }
            }
        })
    });
}

/// A copy through `maps`; the fill value has no dimensions.
fn copy(input: &View, maps: &Maps, fill: Option<&View>, out: &ViewMut) {
    assert_eq!(input.dtype(), out.dtype());
    if let Some(v) = fill {
        assert!(v.dtype() == out.dtype() && v.numel() == 1, "one value of the output's dtype");
    }
    with_bytes!(out.dtype().size(), T => {
        // SAFETY: a view of one element of this size.
        let fill = fill.map_or(T::default(), |v| unsafe { v.as_ptr().cast::<T>().read() });
        remap::<T>(input, maps, fill, out)
    })
}

/// Reverses the order along `dims`.
pub fn flip(input: &View, dims: &[usize], out: &ViewMut) {
    if input.numel() == 0 {
        return;
    }
    let mut maps = identity(input.sizes());
    dims.iter().for_each(|&d| maps[d].reverse());
    copy(input, &maps, None, out)
}

/// Shifts elements by `shifts` along `dims`, wrapping around.
pub fn roll(input: &View, shifts: &[i64], dims: &[usize], out: &ViewMut) {
    if input.numel() == 0 {
        return;
    }
    let mut maps = identity(input.sizes());
    for (&shift, &d) in shifts.iter().zip(dims) {
        let n = maps[d].len().max(1) as i64;
        maps[d].rotate_right(shift.rem_euclid(n) as usize);
    }
    copy(input, &maps, None, out)
}

/// Pads the trailing dimensions, one `(before, after)` for each, first to last; negative amounts crop.
///
/// Reflecting wants less than the size on each side, circular at most the size. Without `value` a constant is zero.
pub fn pad(input: &View, pads: &[(i64, i64)], mode: PadMode, value: Option<&View>, out: &ViewMut) {
    if out.numel() > 0 {
        copy(input, &pad_maps(input.sizes(), pads, mode), value, out)
    }
}

/// Adds the gradient of [`pad`]'s output to `grad_input`, which starts as zeros.
pub fn pad_backward(grad: &View, pads: &[(i64, i64)], mode: PadMode, grad_input: &ViewMut) {
    assert_eq!(grad.dtype(), grad_input.dtype());
    if grad.numel() == 0 {
        return;
    }
    let maps = pad_maps(grad_input.sizes(), pads, mode);
    assert!(maps.iter().map(Vec::len).eq(grad.sizes().iter().copied()), "the maps are those of the gradient's sizes");
    with_element!(grad.dtype(), T => add_back::<T>(grad, &maps, grad_input.ndim() - pads.len(), grad_input))
}

/// Threads share the leading dimensions, which are not padded, so no two add to one element.
fn add_back<T: Arithmetic>(grad: &View, maps: &Maps, leading: usize, grad_input: &ViewMut) {
    let Some((inner, outer)) = maps.split_last() else {
        // SAFETY: both have exactly one element.
        return unsafe {
            let p = grad_input.ptr::<T>();
            p.write(p.read().plus(grad.ptr::<T>().read()))
        };
    };
    let leading = leading.min(outer.len());
    let batches: usize = outer[..leading].iter().map(Vec::len).product();
    let each: usize = outer[leading..].iter().map(Vec::len).product();
    let (step, to_step) = (last(grad.strides()), last(grad_input.strides()));
    let (grad, grad_input) = (*grad, *grad_input);
    parallel::split(batches, (GRAIN / (each * inner.len()).max(1)).max(1), |range| {
        rows(maps, grad_input.strides(), &grad, range.start * each..range.end * each, |to, from| {
            if to == FILL {
                return;
            }
            for (j, &at) in inner.iter().enumerate().filter(|(_, at)| **at != FILL) {
                // SAFETY: maps name positions within grad_input's sizes, and j is within grad's.
                unsafe {
                    let p = grad_input.ptr::<T>().add(to + at * to_step);
                    p.write(p.read().plus(grad.ptr::<T>().add(from + j * step).read()));
                }
            }
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::test_tensors::{LIES, Tensor, any_threads, coordinates, linear, with};

    fn positions(t: &[Option<usize>], values: &[f64], fill: f64) -> Vec<f64> {
        t.iter().map(|p| p.map_or(fill, |p| values[p])).collect()
    }

    #[test]
    fn flip_and_roll_follow_their_definitions() {
        for sizes in [&[][..], &[5], &[3, 4], &[2, 3, 4], &[3, 0], &[150, 200]] {
            for lie in LIES {
                for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
                    let input = Tensor::random(1, dtype, sizes, lie, 0, 100);
                    let values = input.values();
                    for dim in 0..sizes.len().max(1) {
                        let dims: Vec<usize> = if sizes.is_empty() { vec![] } else { vec![dim] };
                        for shift in [-7i64, 0, 2] {
                            let got = any_threads(|| {
                                let (a, b) = (Tensor::zeros(dtype, sizes, lie), Tensor::zeros(dtype, sizes, lie));
                                flip(&input.view(), &dims, &a.view_mut());
                                roll(&input.view(), &vec![shift; dims.len()], &dims, &b.view_mut());
                                [a.values(), b.values()]
                            });
                            let from = |f: &dyn Fn(i64, i64) -> i64| -> Vec<f64> {
                                let at = |c: Vec<usize>| match dims.first() {
                                    None => Some(0),
                                    Some(&d) => {
                                        let n = sizes[d] as i64;
                                        Some(linear(sizes, &with(&c, d, f(c[d] as i64, n).rem_euclid(n) as usize)))
                                    }
                                };
                                positions(&coordinates(sizes).map(at).collect::<Vec<_>>(), &values, 0.0)
                            };
                            assert_eq!(
                                got,
                                [from(&|c, n| n - 1 - c), from(&|c, _| c - shift)],
                                "{sizes:?} {dim} {lie:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn padding_and_its_gradient() {
        type Row = (&'static [usize], &'static [(i64, i64)]);
        let table: [Row; 7] = [
            (&[5], &[(2, 3)]),
            (&[3, 4], &[(0, 2)]),
            (&[2, 3, 4], &[(2, 1), (3, 3)]),
            (&[2, 3, 3, 4], &[(1, 2), (0, 1), (3, 0)]),
            (&[2, 5, 6], &[(-1, 2), (1, -2)]),
            (&[40, 8, 60], &[(3, 4), (5, 5)]),
            (&[2, 3], &[]),
        ];
        for (sizes, pads) in table {
            for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
                for lie in LIES {
                    let input = Tensor::random(2, DType::F32, sizes, lie, 0, 100);
                    let seven = Tensor::new(DType::F32, &[], lie, &[7.0]);
                    let skip = sizes.len() - pads.len();
                    let amount = |k: usize| if k < skip { (0, 0) } else { pads[k - skip] };
                    let shape: Vec<usize> =
                        (0..sizes.len()).map(|k| (sizes[k] as i64 + amount(k).0 + amount(k).1) as usize).collect();
                    let grad = Tensor::random(3, DType::F32, &shape, lie, 0, 9);
                    let got = any_threads(|| {
                        let (out, back) =
                            (Tensor::zeros(DType::F32, &shape, lie), Tensor::zeros(DType::F32, sizes, lie));
                        pad(&input.view(), pads, mode, Some(&seven.view()), &out.view_mut());
                        pad_backward(&grad.view(), pads, mode, &back.view_mut());
                        [out.values(), back.values()]
                    });
                    let source: Vec<Option<usize>> = coordinates(&shape)
                        .map(|c| {
                            let from: Option<Vec<usize>> = (0..sizes.len())
                                .map(|k| {
                                    let (at, n) = (c[k] as i64 - amount(k).0, sizes[k] as i64);
                                    let inside = (0..n).contains(&at);
                                    match mode {
                                        PadMode::Constant => inside.then_some(at as usize),
                                        PadMode::Reflect => {
                                            let period = (2 * (n - 1)).max(1);
                                            let m = at.rem_euclid(period);
                                            Some(m.min(period - m) as usize)
                                        }
                                        PadMode::Replicate => Some(at.clamp(0, n - 1) as usize),
                                        PadMode::Circular => Some(at.rem_euclid(n) as usize),
                                    }
                                })
                                .collect();
                            from.map(|f| linear(sizes, &f))
                        })
                        .collect();
                    let mut back = vec![0.0; input.values().len()];
                    source.iter().zip(grad.values()).for_each(|(s, g)| s.iter().for_each(|&s| back[s] += g));
                    assert_eq!(got, [positions(&source, &input.values(), 7.0), back], "{sizes:?} {pads:?} {mode:?}");
                }
            }
        }
    }
}
