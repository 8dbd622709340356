//! gather and scatter along one dimension: an index per element.
//!
//! The index has as many dimensions (at least one) as the tensors, and in every dimension but `dim` it is no longer
//! than they are. Threads share lanes along `dim`, never the elements of one lane, so equal indices cannot race.

use super::arithmetic::Arithmetic;
use super::{GRAIN, IndexOutOfRange, Indices, Negative, position, with_bytes};
use crate::walk::{for_runs, last, without};
use crate::{View, ViewMut, parallel, with_element};

/// How [`scatter_reduce`] combines elements. The mean is a sum that the caller divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest; NaN if one is.
    Amax,
    /// The smallest; NaN if one is.
    Amin,
}

/// Calls `f(indexed, dense)` with the offsets of the element that an index names and of the index's own element.
///
/// Lanes along `dim` are visited by one thread each, in ascending order.
fn pairs(
    index: &View,
    dim: usize,
    (size, indexed): (usize, &[usize]),
    dense: &[usize],
    f: impl Fn(usize, usize) + Sync,
) {
    let indices = Indices::new(index);
    let sizes = index.sizes();
    let rest = without(sizes, dim);
    let strides = [index.strides(), indexed, dense].map(|s| without(s, dim));
    let by = [index.strides()[dim], indexed[dim], dense[dim]];
    let steps = [0, 1, 2].map(|n| last(&strides[n]));
    let visit = |[i, t, d]: [usize; 3], k: usize| {
        // SAFETY: within the index's own sizes.
        let named = position(unsafe { indices.read(i + k * by[0]) }, size, Negative::Refuse);
        // Checked before; asked again because an output may share memory with its index.
        f(t + named.expect("an index that does not change") * by[1], d + k * by[2])
    };
    let count = sizes[dim];
    parallel::split(rest.iter().product(), (GRAIN / count.max(1)).max(1), |lanes| {
        for_runs(&rest, [0, 1, 2].map(|n| &strides[n][..]), lanes, |at, len| {
            let lane = |j: usize| std::array::from_fn(|n| at[n] + j * steps[n]);
            if dim + 1 == sizes.len() {
                (0..len).for_each(|j| (0..count).for_each(|k| visit(lane(j), k)));
            } else {
                (0..count).for_each(|k| (0..len).for_each(|j| visit(lane(j), k)));
            }
        })
    });
}

/// Asserts what [`pairs`] relies on: an index is nowhere longer than the dense operand, nor, but along `dim`, than the one
/// it names elements of.
fn need_fit(index: &View, dim: usize, indexed: &[usize], dense: &[usize]) {
    let (sizes, n) = (index.sizes(), index.ndim());
    let fits = n == indexed.len()
        && n == dense.len()
        && (0..n).all(|k| sizes[k] <= dense[k] && (k == dim || sizes[k] <= indexed[k]));
    assert!(fits, "an index of sizes {sizes:?} along {dim} for {indexed:?} and {dense:?}");
}

/// `out[..i..] = input[..index[..i..]..]` along `dim`; `out` has the sizes of `index`.
pub fn gather(input: &View, dim: usize, index: &View, out: &ViewMut) -> Result<(), IndexOutOfRange> {
    assert_eq!(input.dtype(), out.dtype());
    need_fit(index, dim, input.sizes(), out.sizes());
    Indices::new(index).check(input.sizes()[dim], Negative::Refuse)?;
    let (from, to) = (*input, *out);
    with_bytes!(out.dtype().size(), T => {
        pairs(index, dim, (input.sizes()[dim], input.strides()), out.strides(), |named, own| {
            // SAFETY: both offsets name elements: the index was checked and is no longer than `input` elsewhere.
            unsafe { to.as_ptr().cast::<T>().add(own).write(from.as_ptr().cast::<T>().add(named).read()) }
        })
    });
    Ok(())
}

/// `out[..index[..i..]..] = src[..i..]` along `dim`; the last of equal indices wins. `src` has the sizes of `index` or more.
pub fn scatter(out: &ViewMut, dim: usize, index: &View, src: &View) -> Result<(), IndexOutOfRange> {
    assert_eq!(src.dtype(), out.dtype());
    need_fit(index, dim, out.sizes(), src.sizes());
    Indices::new(index).check(out.sizes()[dim], Negative::Refuse)?;
    let (from, to) = (*src, *out);
    with_bytes!(out.dtype().size(), T => {
        pairs(index, dim, (out.sizes()[dim], out.strides()), src.strides(), |named, own| {
            // SAFETY: as in `gather`, with the roles exchanged.
            unsafe { to.as_ptr().cast::<T>().add(named).write(from.as_ptr().cast::<T>().add(own).read()) }
        })
    });
    Ok(())
}

/// Like [`scatter`], adding to what is there.
pub fn scatter_add(out: &ViewMut, dim: usize, index: &View, src: &View) -> Result<(), IndexOutOfRange> {
    scatter_reduce(out, dim, index, src, Reduce::Sum, true)
}

/// Like [`scatter`], combining; without `include_self` what was there before does not count where an index points.
pub fn scatter_reduce(
    out: &ViewMut,
    dim: usize,
    index: &View,
    src: &View,
    reduce: Reduce,
    include_self: bool,
) -> Result<(), IndexOutOfRange> {
    assert_eq!(src.dtype(), out.dtype());
    need_fit(index, dim, out.sizes(), src.sizes());
    Indices::new(index).check(out.sizes()[dim], Negative::Refuse)?;
    with_element!(out.dtype(), T => {
        let (start, f): (T, fn(T, T) -> T) = match reduce {
            Reduce::Sum if include_self => return { add::<T>(out, dim, index, src); Ok(()) },
            Reduce::Sum => (T::ZERO, T::plus),
            Reduce::Prod => (T::ONE, T::times),
            Reduce::Amax => (T::LOWEST, T::larger),
            Reduce::Amin => (T::HIGHEST, T::smaller),
        };
        combine::<T>(out, dim, index, src, (!include_self).then_some(start), f)
    });
    Ok(())
}

/// What [`pairs`] calls where an element costs more than the call: one loop for all types.
type Visit<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// `scatter_add`, which gradients are made of.
fn add<T: Arithmetic>(out: &ViewMut, dim: usize, index: &View, src: &View) {
    let (from, to) = (*src, *out);
    pairs(index, dim, (out.sizes()[dim], out.strides()), src.strides(), |named, own| {
        // SAFETY: as in `scatter`; lanes are not shared between threads.
        unsafe {
            let p = to.ptr::<T>().add(named);
            p.write(p.read().plus(from.ptr::<T>().add(own).read()))
        }
    });
}

fn combine<T: Arithmetic>(out: &ViewMut, dim: usize, index: &View, src: &View, start: Option<T>, f: fn(T, T) -> T) {
    let (from, to) = (*src, *out);
    let named_dim = (out.sizes()[dim], out.strides());
    if let Some(start) = start {
        let write = |named: usize, _: usize| {
            // SAFETY: as in `scatter`.
            unsafe { to.ptr::<T>().add(named).write(start) }
        };
        pairs(index, dim, named_dim, src.strides(), &write as &Visit);
    }
    let join = |named: usize, own: usize| {
        // SAFETY: as in `scatter`; lanes are not shared between threads.
        unsafe {
            let p = to.ptr::<T>().add(named);
            p.write(f(p.read(), from.ptr::<T>().add(own).read()))
        }
    };
    pairs(index, dim, named_dim, src.strides(), &join as &Visit);
}
