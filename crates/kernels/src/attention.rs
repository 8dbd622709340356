//! Attention without materializing the weights: `softmax(scale · Q Kᵀ) V` and its derivative, a block of queries at a time.
//!
//! Only one block's weights exist at a time, in scratch memory; the derivative recomputes them. A causal block looks
//! at the keys it may see and at no others. Blocks are cut by size, and the sums of a head's gradients run over its blocks
//! in order, so results do not depend on the number of threads.
//! Supports no mask besides the causal one and no dropout. Elements along the last dimension are contiguous.
#![allow(unsafe_code)]

use crate::lanes::{Compute, Kernel, apart, dispatch, fold, sum_of};
use crate::matmul::{Matrix, product};
use crate::real::{Real, Scratch};
use crate::{DType, View, ViewMut, parallel};

/// Queries handled at once.
const BLOCK: usize = 64;

/// How the weights are computed.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Factor of the products of queries and keys.
    pub scale: f64,
    /// Whether query `i` sees the keys up to `i` only.
    pub causal: bool,
}

/// The derivatives' targets, of the shapes of queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Gradients<'a> {
    /// Of the queries.
    pub query: ViewMut<'a>,
    /// Of the keys.
    pub key: ViewMut<'a>,
    /// Of the values.
    pub value: ViewMut<'a>,
}

/// `out = softmax(scale · query keyᵀ) value` for `[batch, heads, length, size]`, of f32 or f64.
///
/// # Panics
/// If sizes or dtypes disagree, something is empty, or a last dimension is strided: the caller has checked this.
pub fn forward(o: Attention, query: View, key: View, value: View, out: ViewMut) {
    match out.dtype() {
        DType::F32 => Heads::<f32>::new(o, query, key, value).forward(out),
        DType::F64 => Heads::<f64>::new(o, query, key, value).forward(out),
        d => panic!("attention of {d}"),
    }
}

/// The gradients with respect to `query`, `key` and `value`, given that of the result of [`forward`].
///
/// # Panics
/// See [`forward`].
pub fn backward(o: Attention, grad: View, query: View, key: View, value: View, into: Gradients) {
    match grad.dtype() {
        DType::F32 => Heads::<f32>::new(o, query, key, value).backward(grad, into),
        DType::F64 => Heads::<f64>::new(o, query, key, value).backward(grad, into),
        d => panic!("attention of {d}"),
    }
}

/// One operand: `[batch, heads, length, size]`, rows contiguous.
#[derive(Clone, Copy)]
struct Operand<T> {
    ptr: *mut T,
    sizes: [usize; 4],
    strides: [usize; 4],
}
// SAFETY: a pointer into a view that may be used from any thread; threads write disjoint heads or rows.
unsafe impl<T> Send for Operand<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Operand<T> {}

impl<T: Real> Operand<T> {
    fn new(ptr: *const T, sizes: &[usize], strides: &[usize]) -> Operand<T> {
        let four = |v: &[usize]| <[usize; 4]>::try_from(v).expect("four dimensions");
        let (sizes, strides) = (four(sizes), four(strides));
        assert!(strides[3] == 1 || sizes[3] == 1, "a last dimension without gaps");
        Operand { ptr: ptr.cast_mut(), sizes, strides }
    }

    fn read(v: View<'_>) -> Operand<T> {
        Operand::new(v.ptr(), v.sizes(), v.strides())
    }

    fn write(v: ViewMut<'_>) -> Operand<T> {
        Operand::new(v.ptr::<T>(), v.sizes(), v.strides())
    }

    /// Where a row of a head begins; its elements have no gaps.
    fn row(&self, head: usize, row: usize) -> *mut T {
        let [_, heads, length, _] = self.sizes;
        assert!(row < length && head < self.sizes[0] * heads, "a row of a head");
        let at = head / heads * self.strides[0] + head % heads * self.strides[1] + row * self.strides[2];
        self.ptr.wrapping_add(at)
    }

    /// Rows of one head as a matrix.
    ///
    /// # Safety
    /// The view that this was made of lives on, and rows that are written belong to the caller alone.
    unsafe fn rows<'a>(&self, head: usize, rows: std::ops::Range<usize>) -> Matrix<'a, T> {
        let [_, heads, length, size] = self.sizes;
        assert!(rows.end <= length && head < self.sizes[0] * heads, "rows of a head");
        let at = head / heads * self.strides[0] + head % heads * self.strides[1] + rows.start * self.strides[2];
        // SAFETY: inside the view by the check; the rest is the caller's promise.
        unsafe { Matrix::from_raw(self.ptr.wrapping_add(at), rows.len(), size, self.strides[2]) }
    }
}

/// Queries, keys and values of all heads.
struct Heads<T> {
    of: Attention,
    query: Operand<T>,
    key: Operand<T>,
    value: Operand<T>,
}

impl<T: Real + Compute> Heads<T> {
    fn new(of: Attention, query: View, key: View, value: View) -> Heads<T> {
        let (query, key, value) = (Operand::read(query), Operand::read(key), Operand::<T>::read(value));
        let [batch, heads, _, size] = query.sizes;
        let keys = key.sizes[2];
        assert!(key.sizes == [batch, heads, keys, size] && value.sizes[..3] == key.sizes[..3], "sizes of attention");
        assert!(query.sizes.iter().chain(&value.sizes).all(|&n| n > 0), "nothing is empty");
        Heads { of, query, key, value }
    }

    fn count(&self) -> usize {
        self.query.sizes[0] * self.query.sizes[1]
    }

    /// Queries of the block `k`, and how many keys at least one of them sees.
    fn block(&self, k: usize) -> (std::ops::Range<usize>, usize) {
        let rows = k * BLOCK..((k + 1) * BLOCK).min(self.query.sizes[2]);
        let keys = self.key.sizes[2];
        let seen = if self.of.causal { keys.min(rows.end) } else { keys };
        (rows, seen)
    }

    /// The weights of a block of queries, row by row, each to be multiplied with its share: a row of results or gradients is
    /// shorter than one of weights.
    fn weights<'s>(
        &self,
        head: usize,
        rows: std::ops::Range<usize>,
        seen: usize,
        space: &'s mut [T],
        shares: &mut [T; BLOCK],
    ) -> &'s mut [T] {
        let weights = &mut space[..rows.len() * seen];
        // SAFETY: these operands are read only.
        let (q, k) = unsafe { (self.query.rows(head, rows.clone()), self.key.rows(head, 0..seen)) };
        product(q, k.transposed(), Matrix::new_mut(weights, rows.len(), seen), false);
        let first = self.of.causal.then_some(rows.start);
        dispatch(Softmax { rows: weights, keys: seen, scale: T::from_f64(self.of.scale), first, shares });
        weights
    }

    fn forward(&self, out: ViewMut) {
        let out = Operand::<T>::write(out);
        assert!(out.sizes[..3] == self.query.sizes[..3] && out.sizes[3] == self.value.sizes[3], "sizes of the result");
        let blocks = self.query.sizes[2].div_ceil(BLOCK);
        parallel::run(self.count() * blocks, &|task| {
            let (head, (rows, seen)) = (task / blocks, self.block(task % blocks));
            let mut space = Scratch::<T>::new(rows.len() * seen);
            let mut shares = [T::default(); BLOCK];
            let weights = self.weights(head, rows.clone(), seen, &mut space, &mut shares);
            // SAFETY: values are read only; every task writes rows of its own.
            let (v, to) = unsafe { (self.value.rows(head, 0..seen), out.rows(head, rows.clone())) };
            product(Matrix::new(weights, rows.len(), seen), v, to, false);
            for (i, &share) in rows.zip(&shares) {
                // SAFETY: as above.
                let row = unsafe { std::slice::from_raw_parts_mut(out.row(head, i), out.sizes[3]) };
                dispatch(Scale { row, by: share });
            }
        });
    }

    fn backward(&self, grad: View, into: Gradients) {
        let grad = Operand::<T>::read(grad);
        let [dq, dk, dv] = [into.query, into.key, into.value].map(Operand::<T>::write);
        assert!(
            grad.sizes[..3] == self.query.sizes[..3] && grad.sizes[3] == self.value.sizes[3],
            "sizes of the gradient"
        );
        assert!(
            dq.sizes == self.query.sizes && dk.sizes == self.key.sizes && dv.sizes == self.value.sizes,
            "sizes of the gradients"
        );
        let keys = self.key.sizes[2];
        parallel::run(self.count(), &|head| {
            let room = BLOCK.min(self.query.sizes[2]) * keys;
            let (mut space, mut more) = (Scratch::<T>::new(room), Scratch::<T>::new(room));
            let (size, mut shares) = (self.value.sizes[3], [T::default(); BLOCK]);
            let mut shared = Scratch::<T>::new(BLOCK * size);
            // The last block sees most, and goes first: it writes what the others add to.
            for k in (0..self.query.sizes[2].div_ceil(BLOCK)).rev() {
                let (rows, seen) = self.block(k);
                let add = rows.end < self.query.sizes[2];
                let n = rows.len();
                let weights = self.weights(head, rows.clone(), seen, &mut space, &mut shares);
                let slopes = &mut more[..n * seen];
                for ((i, to), &by) in rows.clone().zip(shared.chunks_exact_mut(size)).zip(&shares) {
                    // SAFETY: read only.
                    to.copy_from_slice(unsafe { std::slice::from_raw_parts(grad.row(head, i), size) });
                    dispatch(Scale { row: to, by });
                }
                let shared = Matrix::new(&shared[..n * size], n, size);
                // SAFETY: operands are read only; the head's gradients belong to this task alone.
                unsafe {
                    let g = grad.rows(head, rows.clone());
                    product(Matrix::new(weights, n, seen).transposed(), shared, dv.rows(head, 0..seen), add);
                    product(g, self.value.rows(head, 0..seen).transposed(), Matrix::new_mut(slopes, n, seen), false);
                    dispatch(Slopes {
                        weights,
                        shares: &shares,
                        slopes,
                        keys: seen,
                        scale: T::from_f64(self.of.scale),
                    });
                    product(
                        Matrix::new(slopes, n, seen),
                        self.key.rows(head, 0..seen),
                        dq.rows(head, rows.clone()),
                        false,
                    );
                    let q = self.query.rows(head, rows.clone());
                    product(Matrix::new(slopes, n, seen).transposed(), q, dk.rows(head, 0..seen), add);
                    if !add && seen < keys {
                        self.clear(head, seen, [&dk, &dv]);
                    }
                }
            }
        });
    }

    /// Nothing sees keys past the last query: their gradients are zero.
    ///
    /// # Safety
    /// The head's gradients belong to the caller alone.
    unsafe fn clear(&self, head: usize, from: usize, targets: [&Operand<T>; 2]) {
        for t in targets {
            let [_, heads, length, size] = t.sizes;
            let start = head / heads * t.strides[0] + head % heads * t.strides[1];
            for row in from..length {
                // SAFETY: a row inside the view, ours alone.
                unsafe { std::slice::from_raw_parts_mut(t.ptr.add(start + row * t.strides[2]), size) }
                    .fill(T::default());
            }
        }
    }
}

/// Products to weights: `exp(scale · x)` in every row, up to a factor; nothing where a key is not seen.
struct Softmax<'a, T> {
    rows: &'a mut [T],
    keys: usize,
    scale: T,
    /// Of a causal block: the number of its first query.
    first: Option<usize>,
    /// One over the sum of each row, by which nothing has been multiplied yet.
    shares: &'a mut [T; BLOCK],
}

impl<T: Compute> Kernel for Softmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Softmax { rows, keys, scale, first, shares } = self;
        for (i, row) in rows.chunks_exact_mut(keys).enumerate() {
            let seen = first.map_or(keys, |first| keys.min(first + i + 1));
            let (row, hidden) = row.split_at_mut(seen);
            let mut top = T::LOWEST.rank();
            for x in row.iter_mut() {
                *x = x.mul(scale);
                top = top.max(x.rank());
            }
            shares[i] = T::from_f64(1.0 / exponentials::<T, FMA>(row, T::of_rank(top)).to_f64());
            hidden.fill(T::ZERO);
        }
    }
}

/// Makes each `x` of a row `exp(x - top)` and returns their sum.
#[inline(always)]
fn exponentials<T: Compute, const FMA: bool>(row: &mut [T], top: T) -> T {
    const LANES: usize = 64;
    let mut sums = [T::ZERO; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for x in chunks {
        for l in 0..LANES {
            let e = x[l].sub(top).exp::<FMA>();
            x[l] = e;
            sums[l] = sums[l].add(e);
        }
    }
    let sums = apart(sums);
    let mut sum = fold(&sums, T::ZERO, |x| x, T::add);
    for x in rest.iter_mut() {
        *x = x.sub(top).exp::<FMA>();
    }
    for &x in rest.iter() {
        sum = sum.add(x);
    }
    sum
}

/// A row times a number.
struct Scale<'a, T> {
    row: &'a mut [T],
    by: T,
}

impl<T: Compute> Kernel for Scale<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.row {
            *x = x.mul(self.by);
        }
    }
}

/// Derivatives by weights to those by products: `scale · w (g - Σ w g)`, in every row; the weights lack their shares.
struct Slopes<'a, T> {
    weights: &'a [T],
    shares: &'a [T; BLOCK],
    slopes: &'a mut [T],
    keys: usize,
    scale: T,
}

impl<T: Compute> Kernel for Slopes<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let rows = self.weights.chunks_exact(self.keys).zip(self.slopes.chunks_exact_mut(self.keys));
        for ((w, g), &share) in rows.zip(self.shares) {
            let total = T::from_f64(sum_of(w, g, |s, w, g| w.mul_add::<FMA>(g, s))).mul(share);
            let factor = self.scale.mul(share);
            for (g, &w) in g.iter_mut().zip(w) {
                *g = g.sub(total).mul(w).mul(factor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Storage;

    const SIZES: [usize; 4] = [2, 3, 150, 5];

    fn storage(values: impl Iterator<Item = f64>) -> Storage {
        let values: Vec<u8> = values.flat_map(f64::to_ne_bytes).collect();
        Storage::from_bytes(&values).expect("memory")
    }

    fn numbers(seed: u64, n: usize) -> Vec<f64> {
        (0..n as u64).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0).collect()
    }

    /// The definition, element by element, for one head.
    fn plain(o: Attention, q: &[f64], k: &[f64], v: &[f64], size: usize) -> Vec<f64> {
        let keys = k.len() / size;
        let mut out = Vec::new();
        for (i, q) in q.chunks(size).enumerate() {
            let seen = if o.causal { keys.min(i + 1) } else { keys };
            let product = |j: usize| (0..size).map(|d| q[d] * k[j * size + d]).sum::<f64>() * o.scale;
            let weights: Vec<f64> = (0..seen).map(|j| product(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            out.extend((0..size).map(|d| (0..seen).map(|j| weights[j] * v[j * size + d]).sum::<f64>() / total));
        }
        out
    }

    /// Several blocks, with fewer and with more keys than queries, against the definition and its difference quotients.
    #[test]
    fn blocks_are_the_definition() {
        for (causal, keys) in [(false, 70), (true, 150), (true, 70), (true, 170)] {
            let [batch, heads, length, size] = SIZES;
            let o = Attention { scale: 0.4, causal };
            let (nq, nk) = (length * size, keys * size);
            let all = batch * heads;
            let [q, g] = [1, 2].map(|s| numbers(s, all * nq));
            let [k, v] = [3, 4].map(|s| numbers(s, all * nk));
            let ksizes = [batch, heads, keys, size];
            let (qs, ks) = ([heads * nq, nq, size, 1], [heads * nk, nk, size, 1]);
            let [qt, gt, kt, vt] = [&q, &g, &k, &v].map(|x| storage(x.iter().copied()));
            let out = Storage::new(all * nq * 8).expect("memory");
            let view = |s, q: bool| -> (View<'_>, ViewMut<'_>) {
                let s: &Storage = s;
                let (sizes, strides): (&[usize], &[usize]) = if q { (&SIZES, &qs) } else { (&ksizes, &ks) };
                (s.view(DType::F64, 0, sizes, strides), s.view_mut(DType::F64, 0, sizes, strides))
            };
            forward(o, view(&qt, true).0, view(&kt, false).0, view(&vt, false).0, view(&out, true).1);
            let found = view(&out, true).0.as_slice::<f64>().expect("dense");
            for head in [0, all - 1] {
                let of = |x: &[f64], n: usize| x[head * n..(head + 1) * n].to_vec();
                let expected = plain(o, &of(&q, nq), &of(&k, nk), &of(&v, nk), size);
                for (f, e) in found[head * nq..].iter().zip(&expected) {
                    assert!((f - e).abs() < 1e-12, "causal {causal}, {keys} keys: {f} {e}");
                }
            }
            // Old numbers in the targets must not matter.
            let [dq, dk, dv] = [&q, &k, &v].map(|x| storage(x.iter().map(|_| 77.0)));
            let into = Gradients { query: view(&dq, true).1, key: view(&dk, false).1, value: view(&dv, false).1 };
            backward(o, view(&gt, true).0, view(&qt, true).0, view(&kt, false).0, view(&vt, false).0, into);
            let head = all - 1;
            let of = |x: &[f64], n: usize| x[head * n..(head + 1) * n].to_vec();
            let inputs = [of(&q, nq), of(&k, nk), of(&v, nk)];
            let loss = |x: &[Vec<f64>; 3]| -> f64 {
                plain(o, &x[0], &x[1], &x[2], size).iter().zip(&of(&g, nq)).map(|(a, b)| a * b).sum()
            };
            for (which, (target, n)) in [(&dq, nq), (&dk, nk), (&dv, nk)].into_iter().enumerate() {
                let slopes = view(target, which == 0).0.as_slice::<f64>().expect("dense");
                for at in [0, 3, n / 2, n - 1] {
                    let moved = |by: f64| {
                        let mut x = inputs.clone();
                        x[which][at] += by;
                        loss(&x)
                    };
                    let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    let found = slopes[head * n + at];
                    assert!((found - expected).abs() < 1e-7, "causal {causal}, {keys} keys: {found} {expected}");
                }
            }
        }
    }
}
