//! Attention without materializing the weights: `softmax(scale · Q Kᵀ) V` and its derivative, a block of queries at a time.
//!
//! Only one block's weights exist at a time, in scratch memory; the derivative recomputes them. A block looks at the keys
//! that one of its queries may see, and at few others. Several heads of queries may share one of keys and values. Blocks are
//! cut by size, and the sums of a head's gradients run over its blocks in order, so results do not depend on the number of
//! threads.
//! Supports no dropout. Elements along the last dimension are contiguous.
#![allow(unsafe_code)]

use crate::lanes::{Compute, Kernel, apart, dispatch, fold, sum_of};
use crate::matmul::{Matrix, product};
use crate::real::{Real, Scratch};
use crate::{DType, View, ViewMut, parallel};
use std::ops::Range;

/// Queries handled at once.
const BLOCK: usize = 64;

/// Keys whose mask is looked at together to find out whether they are seen.
const STRETCH: usize = 64;

/// How the weights are computed.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Factor of the products of queries and keys.
    pub scale: f64,
    /// Whether query `i` sees the keys up to `i` only.
    pub causal: bool,
    /// Of `[batch, heads, length, keys]`: bools that say which keys are seen, or what is added to the products. A query that
    /// sees no key has zeros as its result.
    pub mask: Option<View<'a>>,
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

/// `out = softmax(scale · query keyᵀ + mask) value` for `[batch, heads, length, size]`, of f32 or f64. The heads of queries are a
/// multiple of those of keys and values; neighbors share one.
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

    /// Fills rows of a head with zeros.
    ///
    /// # Safety
    /// They are of a view that may be written, and belong to the caller alone.
    unsafe fn clear(&self, head: usize, rows: Range<usize>) {
        for i in rows {
            // SAFETY: a row inside the view; the rest is the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(self.row(head, i), self.sizes[3]) }.fill(T::default());
        }
    }

    /// Rows of one head as a matrix.
    ///
    /// # Safety
    /// The view that this was made of lives on, and rows that are written belong to the caller alone.
    unsafe fn rows<'a>(&self, head: usize, rows: Range<usize>) -> Matrix<'a, T> {
        let [_, heads, length, size] = self.sizes;
        assert!(rows.end <= length && head < self.sizes[0] * heads, "rows of a head");
        let at = head / heads * self.strides[0] + head % heads * self.strides[1] + rows.start * self.strides[2];
        // SAFETY: inside the view by the check; the rest is the caller's promise.
        unsafe { Matrix::from_raw(self.ptr.wrapping_add(at), rows.len(), size, self.strides[2]) }
    }
}

/// Queries, keys and values of all heads.
struct Heads<'a, T> {
    of: Attention<'a>,
    query: Operand<T>,
    key: Operand<T>,
    value: Operand<T>,
}

impl<'a, T: Real + Compute> Heads<'a, T> {
    fn new(of: Attention<'a>, query: View, key: View, value: View) -> Heads<'a, T> {
        let (query, key, value) = (Operand::read(query), Operand::read(key), Operand::<T>::read(value));
        let [batch, heads, length, size] = query.sizes;
        let [_, own, keys, _] = key.sizes;
        assert!(key.sizes == [batch, own, keys, size] && value.sizes[..3] == key.sizes[..3], "sizes of attention");
        assert!(query.sizes.iter().chain(&value.sizes).all(|&n| n > 0), "nothing is empty");
        assert!(heads.is_multiple_of(own), "heads of keys for heads of queries");
        if let Some(m) = &of.mask {
            assert!(m.sizes() == [batch, heads, length, keys], "sizes of the mask");
            assert!(m.strides()[3] == 1 || keys == 1, "a last dimension without gaps");
            assert!(m.dtype() == DType::Bool || m.dtype().size() == size_of::<T>(), "a mask of bools or of this type");
        }
        Heads { of, query, key, value }
    }

    /// How many heads of queries share one of keys.
    fn group(&self) -> usize {
        self.query.sizes[1] / self.key.sizes[1]
    }

    /// What the mask says of query `i` and some keys.
    fn mask_row(&self, head: usize, i: usize, keys: Range<usize>) -> MaskRow<'a, T> {
        let Some(m) = self.of.mask else { return MaskRow::None };
        let (heads, strides) = (self.query.sizes[1], m.strides());
        assert!(i < m.sizes()[2] && head < m.sizes()[0] * heads && keys.end <= m.sizes()[3], "a row of the mask");
        let at = head / heads * strides[0] + head % heads * strides[1] + i * strides[2] + keys.start;
        let at = m.as_ptr().wrapping_add(at * m.dtype().size());
        // SAFETY: keys of this row are contiguous and inside the view, of its dtype; any byte is a `u8`.
        unsafe {
            match m.dtype() {
                DType::Bool => MaskRow::Seen(std::slice::from_raw_parts(at, keys.len())),
                _ => MaskRow::Added(std::slice::from_raw_parts(at.cast(), keys.len())),
            }
        }
    }

    /// Queries of the block `k`, and which keys at least one of them sees, in whole stretches.
    fn block(&self, head: usize, k: usize) -> (Range<usize>, Range<usize>) {
        let rows = k * BLOCK..((k + 1) * BLOCK).min(self.query.sizes[2]);
        let keys = self.key.sizes[2];
        let end = if self.of.causal { keys.min(rows.end) } else { keys };
        if self.of.mask.is_none() {
            return (rows, 0..end);
        }
        let stretches = end.div_ceil(STRETCH);
        let (mut low, mut high) = (stretches, 0);
        for i in rows.clone() {
            let row = self.mask_row(head, i, 0..end);
            low = (0..low).find(|&c| row.shows(c)).unwrap_or(low);
            high = (high..stretches).rev().find(|&c| row.shows(c)).map_or(high, |c| c + 1);
        }
        (rows, (low * STRETCH).min(high * STRETCH)..end.min(high * STRETCH))
    }

    /// The weights of a block of queries, row by row, each to be multiplied with its share: a row of results or gradients is
    /// shorter than one of weights.
    fn weights<'s>(
        &self,
        head: usize,
        rows: Range<usize>,
        seen: Range<usize>,
        space: &'s mut [T],
        shares: &mut [T; BLOCK],
    ) -> &'s mut [T] {
        let keys = seen.len();
        let weights = &mut space[..rows.len() * keys];
        // SAFETY: these operands are read only.
        let (q, k) = unsafe { (self.query.rows(head, rows.clone()), self.key.rows(head / self.group(), seen.clone())) };
        product(q, k.transposed(), Matrix::new_mut(weights, rows.len(), keys), false);
        let scale = T::from_f64(self.of.scale);
        for ((i, row), share) in rows.zip(weights.chunks_exact_mut(keys)).zip(shares) {
            let shown = if self.of.causal { (i + 1).saturating_sub(seen.start).min(keys) } else { keys };
            let mask = self.mask_row(head, i, seen.clone());
            *share = dispatch(Softmax { row, shown, scale, mask });
        }
        weights
    }

    fn forward(&self, out: ViewMut) {
        let out = Operand::<T>::write(out);
        assert!(out.sizes[..3] == self.query.sizes[..3] && out.sizes[3] == self.value.sizes[3], "sizes of the result");
        let blocks = self.query.sizes[2].div_ceil(BLOCK);
        parallel::run(self.query.sizes[0] * self.query.sizes[1] * blocks, &|task| {
            let head = task / blocks;
            let (rows, seen) = self.block(head, task % blocks);
            if seen.is_empty() {
                // SAFETY: every task writes rows of its own.
                return unsafe { out.clear(head, rows) };
            }
            let mut space = Scratch::<T>::new(rows.len() * seen.len());
            let mut shares = [T::default(); BLOCK];
            let weights = self.weights(head, rows.clone(), seen.clone(), &mut space, &mut shares);
            let weights = Matrix::new(weights, rows.len(), seen.len());
            // SAFETY: values are read only; every task writes rows of its own.
            let (v, to) = unsafe { (self.value.rows(head / self.group(), seen), out.rows(head, rows.clone())) };
            product(weights, v, to, false);
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
        let (length, keys, group) = (self.query.sizes[2], self.key.sizes[2], self.group());
        parallel::run(self.key.sizes[0] * self.key.sizes[1], &|own| {
            let room = BLOCK.min(length) * keys;
            let (mut space, mut more) = (Scratch::<T>::new(room), Scratch::<T>::new(room));
            let (size, mut shares) = (self.value.sizes[3], [T::default(); BLOCK]);
            let mut shared = Scratch::<T>::new(BLOCK * size);
            // What the first block writes, others add to; of a mask it may not see what they see.
            let mut add = self.of.mask.is_some();
            if add {
                // SAFETY: these gradients belong to this task alone.
                unsafe { [&dk, &dv].into_iter().for_each(|t| t.clear(own, 0..keys)) };
            }
            for head in own * group..(own + 1) * group {
                // The last block sees most, and goes first.
                for k in (0..length.div_ceil(BLOCK)).rev() {
                    let (rows, seen) = self.block(head, k);
                    if seen.is_empty() {
                        // SAFETY: as above.
                        unsafe { dq.clear(head, rows) };
                        continue;
                    }
                    let (n, m) = (rows.len(), seen.len());
                    let weights = self.weights(head, rows.clone(), seen.clone(), &mut space, &mut shares);
                    let slopes = &mut more[..n * m];
                    for ((i, to), &by) in rows.clone().zip(shared.chunks_exact_mut(size)).zip(&shares) {
                        // SAFETY: read only.
                        to.copy_from_slice(unsafe { std::slice::from_raw_parts(grad.row(head, i), size) });
                        dispatch(Scale { row: to, by });
                    }
                    let shared = Matrix::new(&shared[..n * size], n, size);
                    // SAFETY: operands are read only; the gradients of these heads belong to this task alone.
                    unsafe {
                        let g = grad.rows(head, rows.clone());
                        let v = self.value.rows(own, seen.clone());
                        product(Matrix::new(weights, n, m).transposed(), shared, dv.rows(own, seen.clone()), add);
                        product(g, v.transposed(), Matrix::new_mut(slopes, n, m), false);
                        let scale = T::from_f64(self.of.scale);
                        dispatch(Slopes { weights, shares: &shares, slopes, keys: m, scale });
                        let (k, q) = (self.key.rows(own, seen.clone()), self.query.rows(head, rows.clone()));
                        product(Matrix::new(slopes, n, m), k, dq.rows(head, rows), false);
                        product(Matrix::new(slopes, n, m).transposed(), q, dk.rows(own, seen.clone()), add);
                        if !add {
                            // No query sees keys past the last one.
                            [&dk, &dv].into_iter().for_each(|t| t.clear(own, seen.end..keys));
                        }
                    }
                    add = true;
                }
            }
        });
    }
}

/// What a mask says of one query and some keys.
enum MaskRow<'a, T> {
    /// There is none.
    None,
    /// Which keys are seen: those whose byte is not 0.
    Seen(&'a [u8]),
    /// What is added to the products.
    Added(&'a [T]),
}

impl<T: Compute> MaskRow<'_, T> {
    /// Whether a key of this stretch is seen.
    fn shows(&self, stretch: usize) -> bool {
        let of = |n: usize| stretch * STRETCH..n.min((stretch + 1) * STRETCH);
        match self {
            MaskRow::None => true,
            MaskRow::Seen(m) => m[of(m.len())].iter().fold(0, |any, b| any | b) != 0,
            MaskRow::Added(m) => m[of(m.len())].iter().fold(false, |any, x| any | (*x != T::LOWEST)),
        }
    }
}

/// Products to weights in a row: `exp(scale · x)` up to a factor, and zero where a key is not seen. Gives one over the sum of the
/// row, by which nothing has been multiplied yet.
struct Softmax<'a, T> {
    row: &'a mut [T],
    /// Keys that exist for this query.
    shown: usize,
    scale: T,
    mask: MaskRow<'a, T>,
}

impl<T: Compute> Kernel for Softmax<'_, T> {
    type Out = T;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> T {
        let Softmax { row, shown, scale, mask } = self;
        let (row, hidden) = row.split_at_mut(shown);
        hidden.fill(T::ZERO);
        let mut top = T::LOWEST.rank();
        match &mask {
            MaskRow::None => {
                for x in row.iter_mut() {
                    *x = x.mul(scale);
                    top = top.max(x.rank());
                }
            }
            MaskRow::Seen(seen) => {
                for (x, &seen) in row.iter_mut().zip(*seen) {
                    *x = if seen != 0 { x.mul(scale) } else { T::LOWEST };
                    top = top.max(x.rank());
                }
            }
            MaskRow::Added(added) => {
                for (x, &by) in row.iter_mut().zip(*added) {
                    *x = x.mul(scale).add(by);
                    top = top.max(x.rank());
                }
            }
        }
        let top = T::of_rank(top);
        if !matches!(mask, MaskRow::None) && top == T::LOWEST {
            row.fill(T::ZERO);
            return T::ZERO;
        }
        T::from_f64(1.0 / exponentials::<T, FMA>(row, top).to_f64())
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

    /// What the weights are of, for one head: products of queries and keys, scaled and masked.
    struct Plain<'a> {
        scale: f64,
        causal: bool,
        /// What is added to each product.
        mask: Option<&'a [f64]>,
        size: usize,
    }

    impl Plain<'_> {
        /// The definition, element by element.
        fn run(&self, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
            let (size, keys) = (self.size, k.len() / self.size);
            let mut out = Vec::new();
            for (i, q) in q.chunks(size).enumerate() {
                let seen = if self.causal { keys.min(i + 1) } else { keys };
                let product = |j: usize| {
                    let mask = self.mask.map_or(0.0, |m| m[i * keys + j]);
                    (0..size).map(|d| q[d] * k[j * size + d]).sum::<f64>() * self.scale + mask
                };
                let weights: Vec<f64> = (0..seen).map(|j| product(j).exp()).collect();
                let total: f64 = weights.iter().sum();
                let by = if total == 0.0 { 0.0 } else { 1.0 / total };
                out.extend((0..size).map(|d| (0..seen).map(|j| weights[j] * v[j * size + d]).sum::<f64>() * by));
            }
            out
        }
    }

    /// What a test does with a mask: none, a random sum, a window in which some queries see nothing, the same as bools.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Masked {
        No,
        Added,
        Window,
        Seen,
    }

    /// Several blocks, with fewer and with more keys than queries, shared heads and masks, against the definition and its
    /// difference quotients.
    #[test]
    fn blocks_are_the_definition() {
        use Masked::*;
        let plain = [(false, 70, 1, No), (true, 150, 1, No), (true, 70, 1, No), (true, 170, 1, No)];
        let more = [
            (true, 170, 3, No),
            (false, 70, 3, Added),
            (false, 170, 1, Window),
            (false, 170, 3, Seen),
            (true, 150, 3, Seen),
        ];
        for (causal, keys, group, masked) in plain.into_iter().chain(more) {
            let [batch, heads, length, size] = SIZES;
            let own = heads / group;
            let (nq, nk) = (length * size, keys * size);
            let all = batch * heads;
            let window = |i: usize, j: usize| i % 50 > 8 && j.abs_diff(i) < 20;
            // One mask for all heads of a sample.
            let mask: Vec<f64> = (0..batch * length * keys)
                .map(|at| match masked {
                    No => 0.0,
                    Added => (at % 17) as f64 * 0.1,
                    _ if window(at / keys % length, at % keys) => 0.0,
                    _ => f64::NEG_INFINITY,
                })
                .collect();
            let bools: Vec<u8> = mask.iter().map(|m| u8::from(*m == 0.0) * 3).collect();
            let mask_storage = match masked {
                Seen => Storage::from_bytes(&bools).expect("memory"),
                _ => storage(mask.iter().copied()),
            };
            let (msizes, mstrides) = ([batch, heads, length, keys], [length * keys, 0, keys, 1]);
            let mask_dtype = if masked == Seen { DType::Bool } else { DType::F64 };
            let view_of_mask = (masked != No).then(|| mask_storage.view(mask_dtype, 0, &msizes, &mstrides));
            let o = Attention { scale: 0.4, causal, mask: view_of_mask };
            let [q, g] = [1, 2].map(|s| numbers(s, all * nq));
            let [k, v] = [3, 4].map(|s| numbers(s, batch * own * nk));
            let ksizes = [batch, own, keys, size];
            let (qs, ks) = ([heads * nq, nq, size, 1], [own * nk, nk, size, 1]);
            let [qt, gt, kt, vt] = [&q, &g, &k, &v].map(|x| storage(x.iter().copied()));
            let out = Storage::new(all * nq * 8).expect("memory");
            let view = |s, q: bool| -> (View<'_>, ViewMut<'_>) {
                let s: &Storage = s;
                let (sizes, strides): (&[usize], &[usize]) = if q { (&SIZES, &qs) } else { (&ksizes, &ks) };
                (s.view(DType::F64, 0, sizes, strides), s.view_mut(DType::F64, 0, sizes, strides))
            };
            forward(o, view(&qt, true).0, view(&kt, false).0, view(&vt, false).0, view(&out, true).1);
            let found = view(&out, true).0.as_slice::<f64>().expect("dense");
            let of = |x: &[f64], head: usize, n: usize| x[head * n..(head + 1) * n].to_vec();
            let run = |head: usize, q: &[f64], k: &[f64], v: &[f64]| {
                let from = head / heads * length * keys;
                let mask = (masked != No).then(|| &mask[from..from + length * keys]);
                Plain { scale: 0.4, causal, mask, size }.run(q, k, v)
            };
            let case = format!("causal {causal}, {keys} keys, {group} heads share one, mask {masked:?}");
            for head in [0, all - 1] {
                let expected = run(head, &of(&q, head, nq), &of(&k, head / group, nk), &of(&v, head / group, nk));
                for (f, e) in found[head * nq..].iter().zip(&expected) {
                    assert!((f - e).abs() < 1e-12, "{case}: {f} {e}");
                }
            }
            // Old numbers in the targets must not matter.
            let [dq, dk, dv] = [&q, &k, &v].map(|x| storage(x.iter().map(|_| 77.0)));
            let into = Gradients { query: view(&dq, true).1, key: view(&dk, false).1, value: view(&dv, false).1 };
            backward(o, view(&gt, true).0, view(&qt, true).0, view(&kt, false).0, view(&vt, false).0, into);
            // The last head of keys, and the queries that share it.
            let last = batch * own - 1;
            let inputs = [q[last * group * nq..].to_vec(), of(&k, last, nk), of(&v, last, nk)];
            let loss = |x: &[Vec<f64>; 3]| -> f64 {
                let one = |(h, q): (usize, &[f64])| {
                    let head = last * group + h;
                    run(head, q, &x[1], &x[2]).iter().zip(&of(&g, head, nq)).map(|(a, b)| a * b).sum::<f64>()
                };
                x[0].chunks(nq).enumerate().map(one).sum()
            };
            for (which, (target, from)) in
                [(&dq, last * group * nq), (&dk, last * nk), (&dv, last * nk)].into_iter().enumerate()
            {
                let slopes = view(target, which == 0).0.as_slice::<f64>().expect("dense");
                let n = inputs[which].len();
                for at in [0, 3, n / 3, n / 2, n - 1] {
                    let moved = |by: f64| {
                        let mut x = inputs.clone();
                        x[which][at] += by;
                        loss(&x)
                    };
                    let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    let found = slopes[from + at];
                    assert!((found - expected).abs() < 1e-7, "{case}: {found} {expected}");
                }
            }
        }
    }
}
