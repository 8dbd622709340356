//! Batched matrix products: `out = beta * term + alpha * a @ b`, any strides, every dtype.
//!
//! Floats of some size go through the `gemm` crate on blocks of rows or columns that we split over threads; so does
//! [`packed`], the kernel for `x @ wᵀ` in f32, and [`vector`], that for one row of it. Vectors and tiny matrices have loops of their own, because the set-up
//! would cost more than the product. Half types have a packing kernel of their own ([`half`]). Integers wrap, bool is or-of-ands.
//! On ARM, bf16 and bytes have instructions of their own where the machine has them (`pairs`).
//!
//! Guarantees: bit-equal for any number of threads: which loop runs and how the depth is cut depends on the sizes
//! only (see `cut`); with `beta == 0` the term, or the old content of `out`, is not read.
//! The crate chooses its instruction set itself: [`crate::cpu::isa`] governs only our own loops.
#![allow(unsafe_code)]

use crate::real::{Real, per_isa};
use crate::{Complex, DType, Element, Truth, View, ViewMut, bf16, f16, parallel};
use std::marker::PhantomData;

mod half;
mod packed;
#[cfg(target_arch = "aarch64")]
mod pairs;
mod vector;

/// Multiply-adds that are worth a thread (about two microseconds of vector arithmetic).
const GRAIN: usize = 1 << 17;
/// Products up to this many multiply-adds are done by plain loops.
const SMALL: usize = 1 << 10;
/// Rows of a matrix-vector product that are summed at once.
const ROWS: usize = 256;

/// `out = beta * out + alpha * a @ b` over the last two dimensions; leading dimensions agree (a stride of 0 repeats).
/// `out` aliases neither input.
///
/// # Panics
/// If dtypes or sizes disagree: the caller has checked them.
pub fn matmul(a: View<'_>, b: View<'_>, out: ViewMut<'_>, alpha: f64, beta: f64) {
    addmm(out.as_view(), a, b, out, alpha, beta)
}

/// `out = beta * term + alpha * a @ b`: as [`matmul`], with a term of the same sizes that is `out` itself or does not
/// overlap it.
///
/// # Panics
/// If dtypes or sizes disagree: the caller has checked them.
pub fn addmm(term: View<'_>, a: View<'_>, b: View<'_>, out: ViewMut<'_>, alpha: f64, beta: f64) {
    let (nd, dtype) = (out.ndim(), out.dtype());
    assert!(nd >= 2 && a.ndim() == nd && b.ndim() == nd, "matrices or batches of them");
    assert!(a.dtype() == dtype && b.dtype() == dtype && term.dtype() == dtype, "one dtype");
    assert!(term.sizes() == out.sizes(), "sizes of the term");
    let (m, n, k) = (out.sizes()[nd - 2], out.sizes()[nd - 1], a.sizes()[nd - 1]);
    assert!(a.sizes()[nd - 2] == m && b.sizes()[nd - 2] == k && b.sizes()[nd - 1] == n, "sizes of the product");
    assert!(a.sizes()[..nd - 2] == out.sizes()[..nd - 2] && b.sizes()[..nd - 2] == out.sizes()[..nd - 2], "batch");
    if out.numel() == 0 {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    if pairs::run(Given { term, a, b, out }, alpha, beta) {
        return;
    }
    match dtype {
        DType::F32 => floats::<f32>(Given { term, a, b, out }, alpha, beta),
        DType::F64 => floats::<f64>(Given { term, a, b, out }, alpha, beta),
        DType::C64 => complexes::<Complex<f32>>(Given { term, a, b, out }, alpha, beta),
        DType::C128 => complexes::<Complex<f64>>(Given { term, a, b, out }, alpha, beta),
        DType::F16 => half::products::<f16>(Given { term, a, b, out }, alpha, beta),
        DType::BF16 => half::products::<bf16>(Given { term, a, b, out }, alpha, beta),
        DType::Bool => ring::<Truth>(Given { term, a, b, out }, alpha, beta),
        DType::U8 => ring::<u8>(Given { term, a, b, out }, alpha, beta),
        DType::I8 => ring::<i8>(Given { term, a, b, out }, alpha, beta),
        DType::I16 => ring::<i16>(Given { term, a, b, out }, alpha, beta),
        DType::I32 => ring::<i32>(Given { term, a, b, out }, alpha, beta),
        DType::I64 => ring::<i64>(Given { term, a, b, out }, alpha, beta),
    }
}

/// The views that a product is made of.
#[derive(Clone, Copy)]
struct Given<'a> {
    term: View<'a>,
    a: View<'a>,
    b: View<'a>,
    out: ViewMut<'a>,
}

/// One matrix: first element, and the steps between rows and between columns.
#[derive(Clone, Copy)]
struct Mat<T> {
    ptr: *mut T,
    row: usize,
    col: usize,
}

impl<T: Copy> Mat<T> {
    #[inline(always)]
    fn at(self, i: usize, j: usize) -> *mut T {
        self.ptr.wrapping_add(i * self.row + j * self.col)
    }
    fn from(self, i: usize, j: usize) -> Self {
        Mat { ptr: self.at(i, j), ..self }
    }
    fn transposed(self) -> Self {
        Mat { row: self.col, col: self.row, ..self }
    }
}

/// One product of matrices.
#[derive(Clone, Copy)]
struct Product<T> {
    m: usize,
    n: usize,
    k: usize,
    a: Mat<T>,
    b: Mat<T>,
    /// What `beta` multiplies: often `out` itself.
    term: Mat<T>,
    out: Mat<T>,
    alpha: T,
    beta: T,
}
// SAFETY: pointers into views that may be used from any thread; parts given to threads write disjoint elements.
unsafe impl<T> Send for Product<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Product<T> {}

impl<T: Element> Product<T> {
    fn rows(self, r: std::ops::Range<usize>) -> Self {
        let [a, term, out] = [self.a, self.term, self.out].map(|m| m.from(r.start, 0));
        Product { m: r.len(), a, term, out, ..self }
    }
    fn cols(self, r: std::ops::Range<usize>) -> Self {
        let [b, term, out] = [self.b, self.term, self.out].map(|m| m.from(0, r.start));
        Product { n: r.len(), b, term, out, ..self }
    }
    /// The same product with the roles of rows and columns exchanged.
    fn transposed(self) -> Self {
        let [a, b, term, out] = [self.b, self.a, self.term, self.out].map(Mat::transposed);
        Product { m: self.n, n: self.m, a, b, term, out, ..self }
    }
    fn work(&self) -> usize {
        self.m * self.n * self.k
    }
}

/// All products of a batch: the first one, and where the others lie.
struct Batch<'a, T> {
    first: Product<T>,
    count: usize,
    sizes: &'a [usize],
    /// Batch strides of a, b, term and out.
    strides: [&'a [usize]; 4],
}

impl<'a, T: Element> Batch<'a, T> {
    fn new(Given { term, a, b, out }: Given<'a>, alpha: T, beta: T) -> Self {
        let nd = out.ndim();
        let mat = |ptr: *const T, s: &[usize]| Mat { ptr: ptr.cast_mut(), row: s[nd - 2], col: s[nd - 1] };
        let first = Product {
            m: out.sizes()[nd - 2],
            n: out.sizes()[nd - 1],
            k: a.sizes()[nd - 1],
            a: mat(a.ptr(), a.strides()),
            b: mat(b.ptr(), b.strides()),
            term: mat(term.ptr(), term.strides()),
            out: mat(out.ptr::<T>(), out.strides()),
            alpha,
            beta,
        };
        let sizes = &out.sizes()[..nd - 2];
        let strides = [a.strides(), b.strides(), term.strides(), out.strides()].map(|s| &s[..nd - 2]);
        Batch { first, count: sizes.iter().product(), sizes, strides }
    }

    fn get(&self, mut i: usize) -> Product<T> {
        let mut p = self.first;
        for d in (0..self.sizes.len()).rev() {
            let at = i % self.sizes[d];
            i /= self.sizes[d];
            p.a = Mat { ptr: p.a.ptr.wrapping_add(at * self.strides[0][d]), ..p.a };
            p.b = Mat { ptr: p.b.ptr.wrapping_add(at * self.strides[1][d]), ..p.b };
            p.term = Mat { ptr: p.term.ptr.wrapping_add(at * self.strides[2][d]), ..p.term };
            p.out = Mat { ptr: p.out.ptr.wrapping_add(at * self.strides[3][d]), ..p.out };
        }
        p
    }
}

fn floats<T: Real>(given: Given<'_>, alpha: f64, beta: f64) {
    let batch = Batch::<T>::new(given, T::from_f64(alpha), T::from_f64(beta));
    let work = batch.first.work();
    // A batch is split as such unless it has fewer products than there are threads and they are large.
    if batch.count > 1 && (batch.count >= parallel::num_threads() || work < 4 * GRAIN) {
        let grain = (GRAIN / work.max(1)).max(1);
        parallel::split(batch.count, grain, |r| r.for_each(|i| one(batch.get(i), false)));
    } else {
        (0..batch.count).for_each(|i| one(batch.get(i), true));
    }
}

/// Complex numbers: through the crate, a whole product on one thread.
#[cfg(feature = "linalg")]
fn complexes<T: Element + std::ops::Mul<Output = T>>(given: Given<'_>, alpha: f64, beta: f64) {
    let zero = T::from_f64(0.0);
    let batch = Batch::<T>::new(given, T::from_f64(alpha), T::from_f64(beta));
    let grain = (GRAIN / 4 / batch.first.work().max(1)).max(1);
    parallel::split(batch.count, grain, |r| {
        for p in r.map(|i| batch.get(i)) {
            // A depth of 0 multiplies nothing, and the crate leaves the output alone.
            if p.k > 0 {
                through_crate(p, p.beta != zero);
                continue;
            }
            for (i, j) in (0..p.m).flat_map(|i| (0..p.n).map(move |j| (i, j))) {
                // SAFETY: inside `out` and the term.
                unsafe { *p.out.at(i, j) = if p.beta == zero { zero } else { p.beta * *p.term.at(i, j) } }
            }
        }
    });
}

/// A matrix that other kernels multiply with [`product`].
pub(crate) struct Matrix<'a, T> {
    mat: Mat<T>,
    rows: usize,
    cols: usize,
    of: PhantomData<&'a T>,
}

impl<'a, T: Real> Matrix<'a, T> {
    /// A dense row-major matrix to read.
    pub(crate) fn new(s: &'a [T], rows: usize, cols: usize) -> Self {
        assert_eq!(s.len(), rows * cols);
        Matrix { mat: Mat { ptr: s.as_ptr().cast_mut(), row: cols, col: 1 }, rows, cols, of: PhantomData }
    }

    /// A dense row-major matrix to write.
    pub(crate) fn new_mut(s: &'a mut [T], rows: usize, cols: usize) -> Self {
        assert_eq!(s.len(), rows * cols);
        Matrix { mat: Mat { ptr: s.as_mut_ptr(), row: cols, col: 1 }, rows, cols, of: PhantomData }
    }

    /// A row-major matrix whose rows are `step` apart.
    ///
    /// # Safety
    /// All elements are valid, and for writing ours alone, while the lifetime lasts.
    pub(crate) unsafe fn from_raw(ptr: *mut T, rows: usize, cols: usize, step: usize) -> Self {
        Matrix { mat: Mat { ptr, row: step, col: 1 }, rows, cols, of: PhantomData }
    }

    pub(crate) fn columns(self, r: std::ops::Range<usize>) -> Self {
        assert!(r.end <= self.cols);
        Matrix { mat: self.mat.from(0, r.start), cols: r.len(), ..self }
    }

    pub(crate) fn transposed(self) -> Self {
        Matrix { mat: self.mat.transposed(), rows: self.cols, cols: self.rows, of: PhantomData }
    }
}

/// `out = a @ b`, or `out += a @ b`, on this thread. `out` was made by `new_mut` or `from_raw`.
pub(crate) fn product<T: Real>(a: Matrix<'_, T>, b: Matrix<'_, T>, out: Matrix<'_, T>, add: bool) {
    assert!(a.rows == out.rows && b.cols == out.cols && a.cols == b.rows);
    let beta = if add { T::ONE } else { T::ZERO };
    let (m, n, k) = (a.rows, b.cols, a.cols);
    one(Product { m, n, k, a: a.mat, b: b.mat, term: out.mat, out: out.mat, alpha: T::ONE, beta }, false)
}

/// One product, on this thread or on several.
fn one<T: Real>(p: Product<T>, threads: bool) {
    if p.k == 0 {
        return scale(p);
    }
    if p.n == 1 || p.m == 1 {
        let p = if p.n == 1 { p } else { p.transposed() };
        let grain = if threads { (GRAIN / 2 / p.k).next_multiple_of(ROWS) } else { p.m };
        return parallel::split(p.m, grain, |r| matrix_vector(p.rows(r)));
    }
    if p.work() <= SMALL {
        return small(p);
    }
    let block = choose(&p);
    let Some((by_rows, step)) = cut(&p).filter(|_| threads) else { return block(p) };
    let len = if by_rows { p.m } else { p.n };
    let parts = len / step;
    parallel::run(parts, &|i| {
        let r = i * step..if i + 1 == parts { len } else { (i + 1) * step };
        block(if by_rows { p.rows(r) } else { p.cols(r) })
    });
}

/// Where to cut a product for threads: along rows or columns, and the least length of a part.
///
/// Each element is the sum over its own row and column, in order, cut in depth by a rule that knows the depth and
/// whether both sides are at most 64; very small areas and vectors are summed differently. So the parts give the
/// bits of the whole if they stay on the same side of these limits, wherever the cuts are.
fn cut<T>(p: &Product<T>) -> Option<(bool, usize)> {
    let threads = parallel::num_threads();
    if threads == 1 || p.m * p.n * p.k < 2 * GRAIN {
        return None;
    }
    let by_rows = p.m >= p.n;
    let (len, other) = if by_rows { (p.m, p.n) } else { (p.n, p.m) };
    // Two parts a thread even out a busy machine, when packing the other side again costs little.
    let parts = if len >= threads * 1024 { 2 * threads } else { threads };
    let step = (len / parts / 16 * 16).max(16);
    let same_depth = p.k <= 512 || len <= 64 || other > 64 || step > 64;
    (len >= 2 * step && step * other > 256 && same_depth).then_some((by_rows, step))
}

/// The same product, where the numbers are f32.
fn f32s<T: Real>(p: &Product<T>) -> Option<&Product<f32>> {
    // SAFETY: f32 is the only type with this dtype.
    (T::DTYPE == DType::F32).then(|| unsafe { &*std::ptr::from_ref(p).cast() })
}

/// What multiplies the parts of a product on one thread: chosen for the whole, so that a cut does not change the bits.
fn choose<T: Real>(p: &Product<T>) -> fn(Product<T>) {
    if f32s(p).is_some_and(packed::takes) {
        return |p| packed::product(f32s(&p).expect("chosen for f32"));
    }
    |p| through_crate(p, p.beta != T::ZERO)
}

/// A product through the crate, on this thread; `read` says whether the term counts.
fn through_crate<T: Element>(p: Product<T>, read: bool) {
    if read && p.term.ptr != p.out.ptr {
        // The crate adds to what is in `out`.
        for i in 0..p.m {
            // SAFETY: inside `out` and the term, which do not overlap.
            unsafe {
                if p.term.col == 1 && p.out.col == 1 {
                    std::ptr::copy_nonoverlapping(p.term.at(i, 0), p.out.at(i, 0), p.n);
                } else {
                    (0..p.n).for_each(|j| *p.out.at(i, j) = *p.term.at(i, j));
                }
            }
        }
    }
    let s = |v: usize| v as isize;
    // SAFETY: the three matrices lie inside their views; `T` is f32, f64 or a complex number of these.
    unsafe {
        gemm::gemm(
            p.m,
            p.n,
            p.k,
            p.out.ptr,
            s(p.out.col),
            s(p.out.row),
            read,
            p.a.ptr.cast_const(),
            s(p.a.col),
            s(p.a.row),
            p.b.ptr.cast_const(),
            s(p.b.col),
            s(p.b.row),
            p.beta,
            p.alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Writes a finished sum.
///
/// # Safety
/// `out` has this element.
#[inline(always)]
unsafe fn put<T: Real>(p: &Product<T>, i: usize, j: usize, sum: T) {
    let sum = p.alpha * sum;
    // SAFETY: the caller's promise; the term has the sizes of `out`.
    unsafe { *p.out.at(i, j) = if p.beta == T::ZERO { sum } else { p.beta * *p.term.at(i, j) + sum } }
}

/// `out = beta * term`: the product of depth 0.
fn scale<T: Real>(p: Product<T>) {
    for i in 0..p.m {
        for j in 0..p.n {
            // SAFETY: inside `out`.
            unsafe { put(&p, i, j, T::ZERO) }
        }
    }
}

per_isa! {
    /// Plain loops, 16 columns at a time.
    fn small<T: Real>(p: Product<T>) {
        for j0 in (0..p.n).step_by(16) {
            let width = (p.n - j0).min(16);
            for i in 0..p.m {
                let mut acc = [T::ZERO; 16];
                for l in 0..p.k {
                    // SAFETY: inside `a` and `b`.
                    unsafe {
                        let a = *p.a.at(i, l);
                        let b = p.b.at(l, j0);
                        for (j, acc) in acc[..width].iter_mut().enumerate() {
                            *acc += a * *b.add(j * p.b.col);
                        }
                    }
                }
                for (j, sum) in acc[..width].iter().enumerate() {
                    // SAFETY: inside `out`.
                    unsafe { put(&p, i, j0 + j, *sum) }
                }
            }
        }
    }
}

/// `out[m, 1]`: a row's sum never depends on which rows are computed together.
fn matrix_vector<T: Real>(p: Product<T>) {
    let x: Vec<T>;
    // SAFETY: the k elements of the vector lie inside `b`, one after another or `row` apart.
    let x: &[T] = unsafe {
        if p.b.row == 1 || p.k == 1 {
            std::slice::from_raw_parts(p.b.ptr, p.k)
        } else {
            x = crate::scratch::collected((0..p.k).map(|l| *p.b.at(l, 0)));
            &x
        }
    };
    match f32s(&p).filter(|p| p.a.col == 1 || p.a.row == 1) {
        // SAFETY: the elements are f32, as those of the product.
        Some(p) => vector::product(p, unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) }),
        None if p.a.row == 1 && p.m > 1 => columns(p, x),
        None => dots(p, x),
    }
}

per_isa! {
    /// Matrix times vector where columns are contiguous: sums of scaled columns.
    fn columns<T: Real>(p: Product<T>, x: &[T]) {
        for i0 in (0..p.m).step_by(ROWS) {
            let mut acc = [T::ZERO; ROWS];
            let acc = &mut acc[..(p.m - i0).min(ROWS)];
            for (l, &x) in x.iter().enumerate() {
                // SAFETY: a stretch of column `l`, contiguous as the row step is 1.
                let column = unsafe { std::slice::from_raw_parts(p.a.at(i0, l), acc.len()) };
                for (acc, &a) in acc.iter_mut().zip(column) {
                    *acc += a * x;
                }
            }
            for (i, sum) in acc.iter().enumerate() {
                // SAFETY: inside `out`.
                unsafe { put(&p, i0 + i, 0, *sum) }
            }
        }
    }
}

per_isa! {
    /// Matrix times vector by rows: each a dot product in 64 partial sums.
    fn dots<T: Real>(p: Product<T>, x: &[T]) {
        const LANES: usize = 64;
        for i in 0..p.m {
            let mut acc = [T::ZERO; LANES];
            let mut tail = T::ZERO;
            if p.a.col == 1 {
                // SAFETY: row `i` of `a`, contiguous.
                let row = unsafe { std::slice::from_raw_parts(p.a.at(i, 0), p.k) };
                let (chunks, xs) = (row.chunks_exact(LANES), x.chunks_exact(LANES));
                for (&a, &x) in chunks.remainder().iter().zip(xs.remainder()) {
                    tail += a * x;
                }
                for (a, x) in chunks.zip(xs) {
                    for l in 0..LANES {
                        acc[l] += a[l] * x[l];
                    }
                }
            } else {
                for (l, &x) in x.iter().enumerate() {
                    // SAFETY: inside `a`.
                    tail += unsafe { *p.a.at(i, l) } * x;
                }
            }
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for l in 0..width {
                    acc[l] += acc[l + width];
                }
            }
            // SAFETY: inside `out`.
            unsafe { put(&p, i, 0, acc[0] + tail) }
        }
    }
}

/// Writes a finished sum, which `alpha` has multiplied.
///
/// # Safety
/// `out` has this element.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn put_half<T: Element>(p: &Product<T>, i: usize, j: usize, sum: f32, beta: f64) {
    let v = f64::from(sum);
    // SAFETY: the caller's promise; the term has the sizes of `out`.
    unsafe {
        let sum = if beta == 0.0 { v } else { beta * (*p.term.at(i, j)).to_f64() + v };
        *p.out.at(i, j) = T::from_f64(sum);
    }
}

/// Complex numbers by plain loops: the crate's kernels for them are large.
#[cfg(not(feature = "linalg"))]
use ring as complexes;

/// Integers with wrapping arithmetic, or bool with or and and; complex numbers where no library multiplies them.
trait Ring: Element {
    const ZERO: Self;
    fn mul_add(self, a: Self, b: Self) -> Self;
}

macro_rules! ring {
    ($($t:ty),*) => {$(
        impl Ring for $t {
            const ZERO: $t = 0;
            #[inline(always)]
            fn mul_add(self, a: $t, b: $t) -> $t {
                self.wrapping_add(a.wrapping_mul(b))
            }
        }
    )*};
}
ring!(u8, i8, i16, i32, i64);

impl Ring for Truth {
    const ZERO: Truth = Truth::new(false);
    #[inline(always)]
    fn mul_add(self, a: Truth, b: Truth) -> Truth {
        (self.get() | (a.get() & b.get())).into()
    }
}

#[cfg(not(feature = "linalg"))]
macro_rules! complex_ring {
    ($($t:ty),*) => {$(
        impl Ring for Complex<$t> {
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                self + a * b
            }
        }
    )*};
}
#[cfg(not(feature = "linalg"))]
complex_ring!(f32, f64);

/// Blocks of 64 columns: copied once, then each row adds up scaled rows of the copy.
fn ring<T: Ring>(given: Given<'_>, alpha: f64, beta: f64) {
    const COLS: usize = 64;
    const STRIPE: usize = 64;
    let batch = Batch::<T>::new(given, T::from_f64(alpha), T::from_f64(beta));
    let stripes = batch.first.m.div_ceil(STRIPE);
    let grain = (GRAIN / 8 / (batch.first.work() / stripes).max(1)).max(1);
    parallel::split(batch.count * stripes, grain, |r| {
        let mut panel = crate::scratch::filled([T::ZERO; COLS], batch.first.k);
        for at in r {
            let p = batch.get(at / stripes);
            let start = at % stripes * STRIPE;
            let p = p.rows(start..(start + STRIPE).min(p.m));
            for j0 in (0..p.n).step_by(COLS) {
                let width = (p.n - j0).min(COLS);
                for (l, row) in panel.iter_mut().enumerate() {
                    for (j, to) in row[..width].iter_mut().enumerate() {
                        // SAFETY: inside `b`.
                        *to = unsafe { *p.b.at(l, j0 + j) };
                    }
                }
                for i in 0..p.m {
                    let mut acc = [T::ZERO; COLS];
                    for (l, row) in panel.iter().enumerate() {
                        // SAFETY: inside `a`.
                        let a = unsafe { *p.a.at(i, l) };
                        for (acc, &b) in acc.iter_mut().zip(row) {
                            *acc = acc.mul_add(a, b);
                        }
                    }
                    for (j, &sum) in acc[..width].iter().enumerate() {
                        // SAFETY: inside `out`; stripes are disjoint.
                        unsafe { put_ring(&p, i, j0 + j, sum) }
                    }
                }
            }
        }
    });
}

/// Writes a finished sum.
///
/// # Safety
/// `out` has this element.
#[inline(always)]
unsafe fn put_ring<T: Ring>(p: &Product<T>, i: usize, j: usize, sum: T) {
    // SAFETY: the caller's promise; the term has the sizes of `out`.
    unsafe {
        let old = if p.beta == T::ZERO { T::ZERO } else { T::ZERO.mul_add(p.beta, *p.term.at(i, j)) };
        *p.out.at(i, j) = old.mul_add(p.alpha, sum);
    }
}

#[cfg(test)]
mod tests;
