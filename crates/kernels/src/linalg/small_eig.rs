//! Eigenvalues and right vectors of small real matrices: Hessenberg form by reflections, then the implicit double-shift QR iteration (the classical
//! `orthes` and `hqr2`), one matrix at a time without blocks. In the precision of the matrix, but the vectors of the triangular form, which take
//! little time, in f64. Does not scale, does not look at values that are not finite.
#![allow(unsafe_code)]

use super::spectral::SMALL_EIG;
use super::{Number, fill_identity};
use crate::Complex;
use crate::real::{Real, per_isa};
use crate::scratch::{collected, filled};
use std::ops::{Index, IndexMut};

/// A real number of the matrix.
pub(super) trait Float: Number + Real {
    fn abs(self) -> Self;
    fn hypot(self, other: Self) -> Self;
    fn from(x: f64) -> Self;
    const EPS: Self;
}

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Float for $t {
            #[inline(always)]
            fn abs(self) -> $t {
                <$t>::abs(self)
            }
            #[inline(always)]
            fn hypot(self, other: $t) -> $t {
                <$t>::hypot(self, other)
            }
            #[inline(always)]
            fn from(x: f64) -> $t {
                x as $t
            }
            const EPS: $t = <$t>::EPSILON;
        }
    )*};
}
float!(f32, f64);

/// Column-major and square; empty if not needed.
struct Matrix<T> {
    n: usize,
    data: Vec<T>,
}

impl<T> Matrix<T> {
    #[inline(always)]
    fn column(&self, j: usize) -> &[T] {
        &self.data[j * self.n..(j + 1) * self.n]
    }
}

impl<T> Index<(usize, usize)> for Matrix<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, (i, j): (usize, usize)) -> &T {
        &self.data[j * self.n + i]
    }
}

impl<T> IndexMut<(usize, usize)> for Matrix<T> {
    #[inline(always)]
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut T {
        &mut self.data[j * self.n + i]
    }
}

impl<T: Float> Matrix<T> {
    fn widened(&self) -> Matrix<f64> {
        Matrix { n: self.n, data: collected(self.data.iter().map(|x| x.re())) }
    }
}

/// Steps for one eigenvalue; two or three are usual.
const MOST_STEPS: usize = 60;

/// Eigenvalues of `a` (n × n, finite) and vectors, without a norm, as the columns of `vectors` (n × n, or empty if not needed).
/// Returns 0, or how many eigenvalues did not converge.
pub(super) fn eig<T: Float>(a: &[T], n: usize, values: &mut [Complex<f64>], vectors: &mut [Complex<f64>]) -> i32 {
    if n == 0 {
        return 0;
    }
    let mut h = Matrix { n, data: collected(a.iter().copied()) };
    let mut v = Matrix { n, data: filled(<T as Number>::ZERO, if vectors.is_empty() { 0 } else { n * n }) };
    fill_identity(&mut v.data, n);
    let left = schur(&mut h, &mut v, values);
    if left > 0 || vectors.is_empty() {
        return left as i32;
    }
    vectors_of(&mut h.widened(), &v.widened(), values, vectors);
    0
}

per_isa! {
    /// Replaces `h` by its real Schur form, and `v`, unless it is empty, by the vectors of that; returns how many eigenvalues are missing.
    fn schur<T: Float>(h: &mut Matrix<T>, v: &mut Matrix<T>, values: &mut [Complex<f64>]) -> usize {
        hessenberg(h, v);
        let norm = norm(h);
        iterate(h, v, norm, values)
    }
}

/// The sum of all absolute values of a Hessenberg matrix.
#[inline(always)]
fn norm<T: Float>(h: &Matrix<T>) -> T {
    let all = (0..h.n).flat_map(|j| h.column(j)[..h.n.min(j + 2)].iter());
    all.fold(<T as Number>::ZERO, |sum, x| sum + Float::abs(*x))
}

per_isa! {
    /// Vectors of the triangular matrix `h`, turned back by `v`: two neighbors hold the parts of those of a pair of conjugate values.
    fn vectors_of(h: &mut Matrix<f64>, v: &Matrix<f64>, values: &[Complex<f64>], vectors: &mut [Complex<f64>]) {
        let n = h.n;
        triangular_vectors(h, norm(h), values);
        let (mut re, mut im) = (filled(0.0, n), filled(0.0, n));
        let mut j = 0;
        while j < n {
            let pair = values[j].im != 0.0 && j + 1 < n;
            let kept = j + if pair { 2 } else { 1 };
            turned(v, &h.column(j)[..kept], &mut re);
            if pair {
                turned(v, &h.column(j + 1)[..kept], &mut im);
            }
            for i in 0..n {
                let x = Complex::new(re[i], if pair { im[i] } else { 0.0 });
                vectors[j * n + i] = x;
                if pair {
                    vectors[(j + 1) * n + i] = x.conj();
                }
            }
            j = kept;
        }
    }
}

/// `V x`, for an `x` whose further numbers are zero.
#[inline(always)]
fn turned(v: &Matrix<f64>, x: &[f64], to: &mut [f64]) {
    to.fill(0.0);
    x.iter().enumerate().for_each(|(k, x)| super::add_scaled(*x, v.column(k), to));
}

/// Replaces `h` by its Hessenberg form `Vᵀ H V`; multiplies `v`, unless it is empty, by `V` from the right.
#[inline(always)]
fn hessenberg<T: Float>(h: &mut Matrix<T>, v: &mut Matrix<T>) {
    let n = h.n;
    for m in 1..n.saturating_sub(1) {
        let tau = super::householder::reflector(&mut h.data[(m - 1) * n + m..m * n]);
        if tau == T::from(0.0) {
            continue;
        }
        let mut w = [T::from(0.0); SMALL_EIG];
        let w = &mut w[..n - m];
        w[0] = T::from(1.0);
        w[1..].copy_from_slice(&h.column(m - 1)[m + 1..]);
        h.data[(m - 1) * n + m + 1..m * n].fill(T::from(0.0));
        super::householder::reflect(&w[1..], tau, &mut h.data[m * n..], n, m);
        reflect_right(h, w, tau, m);
        if !v.data.is_empty() {
            reflect_right(v, w, tau, m);
        }
    }
}

/// `A (I - tau w wᵀ)`, `w` from column `m` on.
#[inline(always)]
fn reflect_right<T: Float>(a: &mut Matrix<T>, w: &[T], tau: T, m: usize) {
    let n = a.n;
    let mut sums = [T::from(0.0); SMALL_EIG];
    let sums = &mut sums[..n];
    for (k, x) in w.iter().enumerate() {
        super::add_scaled(*x * tau, a.column(m + k), sums);
    }
    for (k, x) in w.iter().enumerate() {
        super::add_scaled(-*x, sums, &mut a.data[(m + k) * n..(m + k + 1) * n]);
    }
}

/// Replaces the Hessenberg matrix by its real Schur form; returns how many eigenvalues are missing.
#[inline(always)]
fn iterate<T: Float>(h: &mut Matrix<T>, v: &mut Matrix<T>, norm: T, values: &mut [Complex<f64>]) -> usize {
    // `end`: eigenvalues from there on are found. `shifted`: what was taken off the diagonal by exceptional shifts.
    let (mut end, mut shifted, mut steps) = (h.n, T::from(0.0), 0);
    while end > 0 {
        let last = end - 1;
        let small = |l: usize| {
            let s = h[(l - 1, l - 1)].abs() + h[(l, l)].abs();
            h[(l, l - 1)].abs() <= T::EPS * if s == T::from(0.0) { norm } else { s }
        };
        let first = (1..end).rev().find(|&l| small(l)).unwrap_or(0);
        if first == last {
            h[(last, last)] += shifted;
            values[last] = Complex::new(h[(last, last)].re(), 0.0);
            (end, steps) = (end - 1, 0);
        } else if first + 1 == last {
            block(h, v, last, shifted, values);
            (end, steps) = (end - 2, 0);
        } else {
            if steps == MOST_STEPS {
                return end;
            }
            let shift = next_shift(h, last, steps, &mut shifted);
            step(h, v, first, last, shift);
            steps += 1;
        }
    }
    0
}

/// The two eigenvalues of the block that ends at `k`; one of real ones is made triangular.
fn block<T: Float>(h: &mut Matrix<T>, v: &mut Matrix<T>, k: usize, shifted: T, values: &mut [Complex<f64>]) {
    let w = h[(k, k - 1)] * h[(k - 1, k)];
    let p = (h[(k - 1, k - 1)] - h[(k, k)]) * T::from(0.5);
    let q = p * p + w;
    let z = q.abs().root();
    h[(k, k)] += shifted;
    h[(k - 1, k - 1)] += shifted;
    let x = h[(k, k)];
    if q < T::from(0.0) {
        let (re, im) = ((x + p).re(), z.re());
        (values[k - 1], values[k]) = (Complex::new(re, im), Complex::new(re, -im));
        return;
    }
    let z = if p >= T::from(0.0) { p + z } else { p - z };
    values[k - 1] = Complex::new((x + z).re(), 0.0);
    values[k] = if z == T::from(0.0) { values[k - 1] } else { Complex::new((x - w / z).re(), 0.0) };
    let x = h[(k, k - 1)];
    let r = x.hypot(z);
    let (p, q) = (x / r, z / r);
    for j in k - 1..h.n {
        let (a, b) = (h[(k - 1, j)], h[(k, j)]);
        (h[(k - 1, j)], h[(k, j)]) = (q * a + p * b, q * b - p * a);
    }
    let n = h.n;
    for (matrix, rows) in [(h, k + 1), (v, n)] {
        if matrix.data.is_empty() {
            continue;
        }
        let (left, right) = super::two_columns(&mut matrix.data, n, k - 1, k);
        for (a, b) in left[..rows].iter_mut().zip(&mut right[..rows]) {
            (*a, *b) = (q * *a + p * *b, q * *b - p * *a);
        }
    }
}

/// The block that the next double shift is made of: its diagonal, and the product of the other two. Exceptional after many steps.
fn next_shift<T: Float>(h: &mut Matrix<T>, k: usize, steps: usize, shifted: &mut T) -> (T, T, T) {
    let (x, y, w) = (h[(k, k)], h[(k - 1, k - 1)], h[(k, k - 1)] * h[(k - 1, k)]);
    let shift = |h: &mut Matrix<T>, shifted: &mut T, by: T| {
        (0..=k).for_each(|i| h[(i, i)] = h[(i, i)] - by);
        *shifted += by;
    };
    if steps % 20 == 10 {
        shift(h, shifted, x);
        let s = h[(k, k - 1)].abs() + h[(k - 1, k - 2)].abs();
        return (T::from(0.75) * s, T::from(0.75) * s, T::from(-0.4375) * s * s);
    }
    let half = (y - x) * T::from(0.5);
    let square = half * half + w;
    if steps.is_multiple_of(20) && steps > 0 && square > T::from(0.0) {
        let root = if y < x { -square.root() } else { square.root() };
        shift(h, shifted, x - w / (half + root));
        return (T::from(0.964), T::from(0.964), T::from(0.964));
    }
    (x, y, w)
}

/// One double-shift QR step on rows and columns `first..=last`.
#[inline(always)]
fn step<T: Float>(h: &mut Matrix<T>, v: &mut Matrix<T>, first: usize, last: usize, (x, y, w): (T, T, T)) {
    let n = h.n;
    let mut m = last - 2;
    let mut start;
    loop {
        let z = h[(m, m)];
        let (r, s) = (x - z, y - z);
        start = [(r * s - w) / h[(m + 1, m)] + h[(m, m + 1)], h[(m + 1, m + 1)] - z - r - s, h[(m + 2, m + 1)]];
        scale(&mut start);
        let [p, q, r] = start.map(Float::abs);
        let around = h[(m + 1, m + 1)].abs() + z.abs();
        if m == first || h[(m, m - 1)].abs() * (q + r) < T::EPS * (p * (h[(m - 1, m - 1)].abs() + around)) {
            break;
        }
        m -= 1;
    }
    for i in m + 2..=last {
        h[(i, i - 2)] = T::from(0.0);
        if i > m + 2 {
            h[(i, i - 3)] = T::from(0.0);
        }
    }
    for k in m..last {
        let three = k + 1 < last;
        let mut size = T::from(1.0);
        if k > m {
            start = [h[(k, k - 1)], h[(k + 1, k - 1)], if three { h[(k + 2, k - 1)] } else { T::from(0.0) }];
            size = scale(&mut start);
            if size == T::from(0.0) {
                continue;
            }
        }
        let [p, q, r] = start;
        let norm = (p * p + q * q + r * r).root();
        let s = if p < T::from(0.0) { -norm } else { norm };
        if s == T::from(0.0) {
            continue;
        }
        if k > m {
            h[(k, k - 1)] = -s * size;
        } else if first != m {
            h[(k, k - 1)] = -h[(k, k - 1)];
        }
        // I - (1, q, r)ᵀ (x, y, z).
        let p = p + s;
        let ([x, y, z], [q, r]) = ([p / s, q / s, r / s], [q / p, r / p]);
        for column in h.data[k * n..].chunks_exact_mut(n) {
            if three {
                let [a, b, c, ..] = &mut column[k..] else { break };
                let sum = *a + q * *b + r * *c;
                (*a, *b, *c) = (*a - sum * x, *b - sum * y, *c - sum * z);
            } else {
                let [a, b, ..] = &mut column[k..] else { break };
                let sum = *a + q * *b;
                (*a, *b) = (*a - sum * x, *b - sum * y);
            }
        }
        turn_right(h, k, (last + 1).min(k + 4), three, [x, y, z], [q, r]);
        if !v.data.is_empty() {
            turn_right(v, k, n, three, [x, y, z], [q, r]);
        }
    }
}

/// Divides three numbers by the sum of their absolute values, which it returns.
#[inline(always)]
fn scale<T: Float>(x: &mut [T; 3]) -> T {
    let size = x[0].abs() + x[1].abs() + x[2].abs();
    x.iter_mut().for_each(|x| *x = *x / size);
    size
}

/// `A (I - (x, y, z)ᵀ (1, q, r))` on the first rows and on two or three columns from `k` on.
#[inline(always)]
fn turn_right<T: Float>(a: &mut Matrix<T>, k: usize, rows: usize, three: bool, [x, y, z]: [T; 3], [q, r]: [T; 2]) {
    let n = a.n;
    let (first, rest) = a.data[k * n..].split_at_mut(n);
    let (second, third) = rest.split_at_mut(n);
    let (first, second) = (&mut first[..rows], &mut second[..rows]);
    if three {
        for ((a, b), c) in first.iter_mut().zip(second).zip(&mut third[..rows]) {
            let sum = x * *a + y * *b + z * *c;
            (*a, *b, *c) = (*a - sum, *b - sum * q, *c - sum * r);
        }
    } else {
        for (a, b) in first.iter_mut().zip(second) {
            let sum = x * *a + y * *b;
            (*a, *b) = (*a - sum, *b - sum * q);
        }
    }
}

/// Replaces the Schur form by the vectors of it, by back substitution; each column is made once those right of it are.
#[inline(always)]
fn triangular_vectors(h: &mut Matrix<f64>, norm: f64, values: &[Complex<f64>]) {
    // What the unknowns that are found contribute to each row.
    let (mut re, mut im) = (filled(0.0, h.n), filled(0.0, h.n));
    for k in (0..h.n).rev() {
        if values[k].im == 0.0 {
            real_vector(h, norm, values, k, &mut re);
        } else if values[k].im < 0.0 && k > 0 {
            complex_vector(h, norm, values, k, [&mut re, &mut im]);
        }
    }
}

#[inline(always)]
fn real_vector(h: &mut Matrix<f64>, norm: f64, values: &[Complex<f64>], k: usize, sums: &mut [f64]) {
    let p = values[k].re;
    sums[..k].copy_from_slice(&h.column(k)[..k]);
    h[(k, k)] = 1.0;
    // Row and sum of the lower half of a block, until its upper half is there.
    let (mut z, mut s) = (0.0, 0.0);
    for i in (0..k).rev() {
        let (w, r) = (h[(i, i)] - p, sums[i]);
        if values[i].im < 0.0 {
            (z, s) = (w, r);
            continue;
        }
        let block = values[i].im != 0.0;
        if block {
            let (x, y) = (h[(i, i + 1)], h[(i + 1, i)]);
            let q = (values[i].re - p).powi(2) + values[i].im.powi(2);
            let t = (x * s - z * r) / q;
            h[(i, k)] = t;
            h[(i + 1, k)] = if x.abs() > z.abs() { (-r - w * t) / x } else { (-s - y * t) / z };
        } else {
            h[(i, k)] = -r / if w == 0.0 { (f64::EPSILON * norm).max(f64::MIN_POSITIVE) } else { w };
        }
        let t = h[(i, k)].abs();
        for j in i..i + 1 + usize::from(block) {
            super::add_scaled(h[(j, k)], &h.column(j)[..i], &mut sums[..i]);
        }
        if f64::EPSILON * t * t > 1.0 {
            (i..=k).for_each(|j| h[(j, k)] /= t);
            sums[..i].iter_mut().for_each(|s| *s /= t);
        }
    }
}

/// The vector of a pair of values; columns `k - 1` and `k` hold its parts. Its last element is imaginary.
#[inline(always)]
fn complex_vector(h: &mut Matrix<f64>, norm: f64, values: &[Complex<f64>], k: usize, [re, im]: [&mut [f64]; 2]) {
    let (p, q) = (values[k].re, values[k].im);
    let get = |h: &Matrix<f64>, i: usize| Complex::new(h[(i, k - 1)], h[(i, k)]);
    fn put(h: &mut Matrix<f64>, k: usize, i: usize, x: Complex<f64>) {
        (h[(i, k - 1)], h[(i, k)]) = (x.re, x.im);
    }
    let (below, above) = (h[(k, k - 1)], h[(k - 1, k)]);
    let before = if below.abs() > above.abs() {
        Complex::new(q / below, -(h[(k, k)] - p) / below)
    } else {
        Complex::new(0.0, -above) / Complex::new(h[(k - 1, k - 1)] - p, q)
    };
    for i in 0..k - 1 {
        (re[i], im[i]) = (before.re * h[(i, k - 1)], before.im * h[(i, k - 1)] + h[(i, k)]);
    }
    put(h, k, k - 1, before);
    put(h, k, k, Complex::new(0.0, 1.0));
    let (mut z, mut lower) = (0.0, Complex::ZERO);
    for i in (0..k - 1).rev() {
        let (sum, w) = (Complex::new(re[i], im[i]), h[(i, i)] - p);
        if values[i].im < 0.0 {
            (z, lower) = (w, sum);
            continue;
        }
        let block = values[i].im != 0.0;
        if block {
            let (x, y) = (h[(i, i + 1)], h[(i + 1, i)]);
            let d = values[i].re - p;
            let mut by = Complex::new(d * d + values[i].im.powi(2) - q * q, 2.0 * d * q);
            if by == Complex::ZERO {
                by.re = f64::EPSILON * norm * (w.abs() + q.abs() + x.abs() + y.abs() + z.abs());
            }
            let upper = (lower * x - sum * Complex::new(z, q)) / by;
            put(h, k, i, upper);
            let second = if x.abs() > z.abs() + q.abs() {
                (-sum - upper * Complex::new(w, q)) / x
            } else {
                (-lower - upper * y) / Complex::new(z, q)
            };
            put(h, k, i + 1, second);
        } else {
            put(h, k, i, -sum / Complex::new(w, q));
        }
        for j in i..i + 1 + usize::from(block) {
            let x = get(h, j);
            super::add_scaled(x.re, &h.column(j)[..i], &mut re[..i]);
            super::add_scaled(x.im, &h.column(j)[..i], &mut im[..i]);
        }
        let t = h[(i, k - 1)].abs().max(h[(i, k)].abs());
        if f64::EPSILON * t * t > 1.0 {
            for j in i..=k {
                let x = get(h, j) / t;
                put(h, k, j, x);
            }
            re[..i].iter_mut().chain(&mut im[..i]).for_each(|s| *s /= t);
        }
    }
}
