//! Eigenvalues and right vectors of small real matrices: Hessenberg form by reflections, then the implicit double-shift QR iteration (the classical
//! `orthes` and `hqr2`), one matrix at a time without blocks. In f64; does not scale, does not look at values that are not finite.

use super::fill_identity;
use super::spectral::SMALL_EIG;
use crate::Complex;
use crate::scratch::{collected, filled};
use std::ops::{Index, IndexMut};

/// Column-major and square; empty if not needed.
struct Matrix {
    n: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn column(&self, j: usize) -> &[f64] {
        &self.data[j * self.n..(j + 1) * self.n]
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.data[j * self.n + i]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.data[j * self.n + i]
    }
}

/// Steps for one eigenvalue; two or three are usual.
const MOST_STEPS: usize = 60;

/// Eigenvalues of `a` (n × n, finite) and vectors, without a norm, as the columns of `vectors` (n × n, or empty if not needed).
/// Returns 0, or how many eigenvalues did not converge.
pub(super) fn eig(a: &[f64], n: usize, values: &mut [Complex<f64>], vectors: &mut [Complex<f64>]) -> i32 {
    if n == 0 {
        return 0;
    }
    let mut h = Matrix { n, data: collected(a.iter().copied()) };
    let mut v = Matrix { n, data: filled(0.0, if vectors.is_empty() { 0 } else { n * n }) };
    fill_identity(&mut v.data, n);
    hessenberg(&mut h, &mut v);
    let norm = (0..n).flat_map(|j| h.column(j)[..n.min(j + 2)].iter()).map(|x| x.abs()).sum();
    let left = schur(&mut h, &mut v, norm, values);
    if left > 0 || vectors.is_empty() {
        return left as i32;
    }
    triangular_vectors(&mut h, norm, values);
    // Vectors of the triangular matrix, turned back: two neighbors hold the parts of those of a pair of conjugate values.
    let turned = |j: usize, to: &mut [f64]| {
        to.fill(0.0);
        for k in 0..=(j + usize::from(values[j].im > 0.0)).min(n - 1) {
            super::add_scaled(h[(k, j)], v.column(k), to);
        }
    };
    let (mut re, mut im) = (filled(0.0, n), filled(0.0, n));
    let mut j = 0;
    while j < n {
        let pair = values[j].im != 0.0 && j + 1 < n;
        turned(j, &mut re);
        if pair {
            turned(j + 1, &mut im);
        }
        for i in 0..n {
            let x = Complex::new(re[i], if pair { im[i] } else { 0.0 });
            vectors[j * n + i] = x;
            if pair {
                vectors[(j + 1) * n + i] = x.conj();
            }
        }
        j += if pair { 2 } else { 1 };
    }
    0
}

/// Replaces `h` by its Hessenberg form `Vᵀ H V`; multiplies `v`, unless it is empty, by `V` from the right.
fn hessenberg(h: &mut Matrix, v: &mut Matrix) {
    let n = h.n;
    for m in 1..n.saturating_sub(1) {
        let tau = super::householder::reflector(&mut h.data[(m - 1) * n + m..m * n]);
        if tau == 0.0 {
            continue;
        }
        let mut w = [0.0; SMALL_EIG];
        let w = &mut w[..n - m];
        w[0] = 1.0;
        w[1..].copy_from_slice(&h.column(m - 1)[m + 1..]);
        h.data[(m - 1) * n + m + 1..m * n].fill(0.0);
        super::householder::reflect(&w[1..], tau, &mut h.data[m * n..], n, m);
        reflect_right(h, w, tau, m);
        if !v.data.is_empty() {
            reflect_right(v, w, tau, m);
        }
    }
}

/// `A (I - tau w wᵀ)`, `w` from column `m` on.
fn reflect_right(a: &mut Matrix, w: &[f64], tau: f64, m: usize) {
    let n = a.n;
    let mut sums = [0.0; SMALL_EIG];
    let sums = &mut sums[..n];
    for (k, x) in w.iter().enumerate() {
        super::add_scaled(*x * tau, a.column(m + k), sums);
    }
    for (k, x) in w.iter().enumerate() {
        super::add_scaled(-*x, sums, &mut a.data[(m + k) * n..(m + k + 1) * n]);
    }
}

/// Replaces the Hessenberg matrix by its real Schur form; returns how many eigenvalues are missing.
fn schur(h: &mut Matrix, v: &mut Matrix, norm: f64, values: &mut [Complex<f64>]) -> usize {
    // `end`: eigenvalues from there on are found. `shifted`: what was taken off the diagonal by exceptional shifts.
    let (mut end, mut shifted, mut steps) = (h.n, 0.0, 0);
    while end > 0 {
        let last = end - 1;
        let small = |l: usize| {
            let s = h[(l - 1, l - 1)].abs() + h[(l, l)].abs();
            h[(l, l - 1)].abs() <= f64::EPSILON * if s == 0.0 { norm } else { s }
        };
        let first = (1..end).rev().find(|&l| small(l)).unwrap_or(0);
        if first == last {
            h[(last, last)] += shifted;
            values[last] = Complex::new(h[(last, last)], 0.0);
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
fn block(h: &mut Matrix, v: &mut Matrix, k: usize, shifted: f64, values: &mut [Complex<f64>]) {
    let w = h[(k, k - 1)] * h[(k - 1, k)];
    let p = (h[(k - 1, k - 1)] - h[(k, k)]) / 2.0;
    let q = p * p + w;
    let z = q.abs().sqrt();
    h[(k, k)] += shifted;
    h[(k - 1, k - 1)] += shifted;
    let x = h[(k, k)];
    if q < 0.0 {
        (values[k - 1], values[k]) = (Complex::new(x + p, z), Complex::new(x + p, -z));
        return;
    }
    let z = if p >= 0.0 { p + z } else { p - z };
    values[k - 1] = Complex::new(x + z, 0.0);
    values[k] = if z == 0.0 { values[k - 1] } else { Complex::new(x - w / z, 0.0) };
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
fn next_shift(h: &mut Matrix, k: usize, steps: usize, shifted: &mut f64) -> (f64, f64, f64) {
    let (x, y, w) = (h[(k, k)], h[(k - 1, k - 1)], h[(k, k - 1)] * h[(k - 1, k)]);
    let shift = |h: &mut Matrix, shifted: &mut f64, by: f64| {
        (0..=k).for_each(|i| h[(i, i)] -= by);
        *shifted += by;
    };
    if steps % 20 == 10 {
        shift(h, shifted, x);
        let s = h[(k, k - 1)].abs() + h[(k - 1, k - 2)].abs();
        return (0.75 * s, 0.75 * s, -0.4375 * s * s);
    }
    let half = (y - x) / 2.0;
    let square = half * half + w;
    if steps.is_multiple_of(20) && steps > 0 && square > 0.0 {
        let root = if y < x { -square.sqrt() } else { square.sqrt() };
        shift(h, shifted, x - w / (half + root));
        return (0.964, 0.964, 0.964);
    }
    (x, y, w)
}

/// One double-shift QR step on rows and columns `first..=last`.
fn step(h: &mut Matrix, v: &mut Matrix, first: usize, last: usize, (x, y, w): (f64, f64, f64)) {
    let n = h.n;
    let mut m = last - 2;
    let mut start;
    loop {
        let z = h[(m, m)];
        let (r, s) = (x - z, y - z);
        start = [(r * s - w) / h[(m + 1, m)] + h[(m, m + 1)], h[(m + 1, m + 1)] - z - r - s, h[(m + 2, m + 1)]];
        let size: f64 = start.iter().map(|x| x.abs()).sum();
        start.iter_mut().for_each(|x| *x /= size);
        let [p, q, r] = start.map(f64::abs);
        let around = h[(m + 1, m + 1)].abs() + z.abs();
        if m == first || h[(m, m - 1)].abs() * (q + r) < f64::EPSILON * (p * (h[(m - 1, m - 1)].abs() + around)) {
            break;
        }
        m -= 1;
    }
    for i in m + 2..=last {
        h[(i, i - 2)] = 0.0;
        if i > m + 2 {
            h[(i, i - 3)] = 0.0;
        }
    }
    for k in m..last {
        let three = k + 1 < last;
        let mut size = 1.0;
        if k > m {
            start = [h[(k, k - 1)], h[(k + 1, k - 1)], if three { h[(k + 2, k - 1)] } else { 0.0 }];
            size = start.iter().map(|x| x.abs()).sum();
            if size == 0.0 {
                continue;
            }
            start.iter_mut().for_each(|x| *x /= size);
        }
        let [p, q, r] = start;
        let norm = (p * p + q * q + r * r).sqrt();
        let s = if p < 0.0 { -norm } else { norm };
        if s == 0.0 {
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
            let [a, b, rest @ ..] = &mut column[k..] else { break };
            let mut sum = *a + q * *b;
            if three {
                sum += r * rest[0];
                rest[0] -= sum * z;
            }
            *a -= sum * x;
            *b -= sum * y;
        }
        turn_right(h, k, (last + 1).min(k + 4), three, [x, y, z], [q, r]);
        if !v.data.is_empty() {
            turn_right(v, k, n, three, [x, y, z], [q, r]);
        }
    }
}

/// `A (I - (x, y, z)ᵀ (1, q, r))` on the first rows and on two or three columns from `k` on.
fn turn_right(a: &mut Matrix, k: usize, rows: usize, three: bool, [x, y, z]: [f64; 3], [q, r]: [f64; 2]) {
    let n = a.n;
    let (first, rest) = a.data[k * n..].split_at_mut(n);
    let (second, third) = rest.split_at_mut(n);
    for i in 0..rows {
        let mut sum = x * first[i] + y * second[i];
        if three {
            sum += z * third[i];
            third[i] -= sum * r;
        }
        first[i] -= sum;
        second[i] -= sum * q;
    }
}

/// Replaces the Schur form by the vectors of it, by back substitution; each column is made once those right of it are.
fn triangular_vectors(h: &mut Matrix, norm: f64, values: &[Complex<f64>]) {
    for k in (0..h.n).rev() {
        if values[k].im == 0.0 {
            real_vector(h, norm, values, k);
        } else if values[k].im < 0.0 && k > 0 {
            complex_vector(h, norm, values, k);
        }
    }
}

fn real_vector(h: &mut Matrix, norm: f64, values: &[Complex<f64>], k: usize) {
    let p = values[k].re;
    h[(k, k)] = 1.0;
    // Row and sum of the lower half of a block, until its upper half is there.
    let (mut z, mut s, mut from) = (0.0, 0.0, k);
    for i in (0..k).rev() {
        let w = h[(i, i)] - p;
        let r: f64 = (from..=k).map(|j| h[(i, j)] * h[(j, k)]).sum();
        if values[i].im < 0.0 {
            (z, s) = (w, r);
            continue;
        }
        from = i;
        if values[i].im == 0.0 {
            h[(i, k)] = -r / if w == 0.0 { (f64::EPSILON * norm).max(f64::MIN_POSITIVE) } else { w };
        } else {
            let (x, y) = (h[(i, i + 1)], h[(i + 1, i)]);
            let q = (values[i].re - p).powi(2) + values[i].im.powi(2);
            let t = (x * s - z * r) / q;
            h[(i, k)] = t;
            h[(i + 1, k)] = if x.abs() > z.abs() { (-r - w * t) / x } else { (-s - y * t) / z };
        }
        let t = h[(i, k)].abs();
        if f64::EPSILON * t * t > 1.0 {
            (i..=k).for_each(|j| h[(j, k)] /= t);
        }
    }
}

/// The vector of a pair of values; columns `k - 1` and `k` hold its parts. Its last element is imaginary.
fn complex_vector(h: &mut Matrix, norm: f64, values: &[Complex<f64>], k: usize) {
    let (p, q) = (values[k].re, values[k].im);
    let get = |h: &Matrix, i: usize| Complex::new(h[(i, k - 1)], h[(i, k)]);
    fn put(h: &mut Matrix, k: usize, i: usize, x: Complex<f64>) {
        (h[(i, k - 1)], h[(i, k)]) = (x.re, x.im);
    }
    let (below, above) = (h[(k, k - 1)], h[(k - 1, k)]);
    let before = if below.abs() > above.abs() {
        Complex::new(q / below, -(h[(k, k)] - p) / below)
    } else {
        Complex::new(0.0, -above) / Complex::new(h[(k - 1, k - 1)] - p, q)
    };
    put(h, k, k - 1, before);
    put(h, k, k, Complex::new(0.0, 1.0));
    let (mut z, mut lower, mut from) = (0.0, Complex::ZERO, k - 1);
    for i in (0..k - 1).rev() {
        let sum: Complex<f64> = (from..=k).map(|j| get(h, j) * h[(i, j)]).sum();
        let w = h[(i, i)] - p;
        if values[i].im < 0.0 {
            (z, lower) = (w, sum);
            continue;
        }
        from = i;
        if values[i].im == 0.0 {
            put(h, k, i, -sum / Complex::new(w, q));
        } else {
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
        }
        let t = h[(i, k - 1)].abs().max(h[(i, k)].abs());
        if f64::EPSILON * t * t > 1.0 {
            for j in i..=k {
                let x = get(h, j) / t;
                put(h, k, j, x);
            }
        }
    }
}
