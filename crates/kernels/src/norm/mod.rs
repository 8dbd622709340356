//! Normalization: layer norm over trailing elements, group norm and batch norm over channels; values and derivatives.
//!
//! Inputs are contiguous; half types are computed in f32 and rounded once; statistics and sums over rows or samples are
//! joined in f64. Work is cut by sizes and joined in order, so results do not depend on the number of threads.
//! Running averages, momentum and training mode are up to the caller.
#![allow(unsafe_code)]

mod channel;
pub(crate) mod layer;
#[cfg(test)]
mod tests;

pub use channel::{batch_norm, batch_norm_backward, batch_norm_stats, group_norm, group_norm_backward};
pub use layer::{layer_norm, layer_norm_backward};

use crate::lanes::{Compute, apart, load, load_into, store};
use crate::real::{Reals, Scratch};
use crate::{View, ViewMut};

/// Elements that are worth a thread.
const GRAIN: usize = 1 << 14;
/// Elements summed in the compute type before their sum is added to an f64 total.
const BLOCK: usize = 2048;
/// Accumulators of a sum.
const LANES: usize = 32;

/// All elements of a contiguous view as `X`.
fn vector<'a, X: Compute>(v: View<'a>) -> Reals<'a, X> {
    if let Some(s) = v.as_slice::<X>() {
        return Reals::Borrowed(s);
    }
    assert!(v.is_contiguous());
    let mut s = Scratch::<X>::new(v.numel());
    // SAFETY: as many elements as the scratch has.
    unsafe { load_into(v.as_ptr(), v.dtype(), 1, v.numel(), s.as_mut_ptr()) }
    Reals::Widened(s)
}

/// Like [`vector`]; `n` times `fill` if there is none.
fn vector_or<'a, X: Compute>(v: Option<View<'a>>, n: usize, fill: X) -> Reals<'a, X> {
    v.map_or_else(|| Reals::Widened(made(n, |_| fill)), vector)
}

fn made<X: Compute>(n: usize, f: impl Fn(usize) -> X) -> Scratch<X> {
    let mut s = Scratch::<X>::new(n);
    s.iter_mut().enumerate().for_each(|(i, x)| *x = f(i));
    s
}

/// Stretches of a contiguous view, converted through scratch memory if the dtype is not the compute type's.
struct Stretch<X> {
    scratch: Option<Scratch<X>>,
}

impl<X: Compute> Stretch<X> {
    /// For stretches of up to `n` elements of `v`.
    fn new(dtype: crate::DType, n: usize) -> Self {
        Stretch { scratch: (dtype != X::DTYPE).then(|| Scratch::new(n)) }
    }

    /// Elements `at..at + n` to read.
    fn read(&mut self, v: &View, at: usize, n: usize) -> &[X] {
        debug_assert!(v.is_contiguous() && at + n <= v.numel());
        let buf = self.scratch.as_mut().map_or(std::ptr::null_mut(), |s| s.as_mut_ptr());
        // SAFETY: inside the view; there is scratch if the dtype differs.
        unsafe { load(v.as_ptr().add(at * v.dtype().size()), v.dtype(), 1, n, buf) }
    }

    /// Lets `f` fill elements `at..at + n`.
    fn write(&mut self, v: &ViewMut, at: usize, n: usize, f: impl FnOnce(&mut [X])) {
        debug_assert!(v.is_contiguous() && at + n <= v.numel());
        // SAFETY: inside the view; only this task writes the stretch.
        unsafe {
            let to = v.as_ptr().add(at * v.dtype().size());
            match &mut self.scratch {
                None => f(std::slice::from_raw_parts_mut(to.cast(), n)),
                Some(s) => {
                    f(&mut s[..n]);
                    store(&s[..n], to, v.dtype(), 1)
                }
            }
        }
    }
}

/// Writes a whole contiguous view, if it is needed.
fn put<X: Compute>(v: Option<ViewMut>, values: &[X]) {
    if let Some(v) = v {
        assert!(v.is_contiguous() && v.numel() == values.len(), "one place for each value");
        // SAFETY: as many elements as values.
        unsafe { store(values, v.as_ptr(), v.dtype(), 1) }
    }
}

/// Asserts that stretches of `n` elements can be cut from the views: all are contiguous and have as many.
fn need_flat(n: usize, read: &[&View], written: &[Option<ViewMut>]) {
    let flat = |v: &View| v.is_contiguous() && v.numel() == n;
    let fits = read.iter().all(|v| flat(v)) && written.iter().flatten().all(|v| flat(&v.as_view()));
    assert!(fits, "operands of {n} elements in row-major order");
}

/// The sum of both parts of `f(i)` for `i` below `n`: four at a time in the compute type, joined in lanes of f64.
#[inline(always)]
fn sum_pairs<X: Compute>(n: usize, f: impl Fn(usize) -> (X, X)) -> (f64, f64) {
    const L: usize = 16;
    let (mut p, mut q) = (0.0, 0.0);
    let mut at = 0;
    if n >= L {
        let (mut a, mut b) = ([0.0; L], [0.0; L]);
        while at + 4 * L <= n {
            for l in 0..L {
                let ((x, y), (u, v)) = (f(at + l), f(at + l + L));
                let ((z, w), (s, t)) = (f(at + l + 2 * L), f(at + l + 3 * L));
                a[l] += x.add(u).add(z.add(s)).to_f64();
                b[l] += y.add(v).add(w.add(t)).to_f64();
            }
            at += 4 * L;
        }
        while at + L <= n {
            for l in 0..L {
                let (x, y) = f(at + l);
                a[l] += x.to_f64();
                b[l] += y.to_f64();
            }
            at += L;
        }
        for (x, y) in apart(a).into_iter().zip(apart(b)) {
            p += x;
            q += y;
        }
    }
    for i in at..n {
        let (x, y) = f(i);
        p += x.to_f64();
        q += y.to_f64();
    }
    (p, q)
}
