//! `A = L D Lᵀ` (or `L D Lᴴ`) of symmetric matrices that need not be definite, with Bunch and Kaufman's pivots: LAPACK's
//! `sytrf` and `hetrf` for the lower triangle, unblocked.

use super::{Number, two_columns};

/// Conjugates if the matrix is self-adjoint, not symmetric.
fn turned<T: Number>(hermitian: bool, x: T) -> T {
    if hermitian { x.conj() } else { x }
}

/// Replaces the lower triangle of `a` (n × n) by `D` (blocks of one or two on the diagonal) and `L` below it.
/// `pivots[k] > 0`: a block of one, row and column `k` exchanged with `pivots[k] - 1`; `pivots[k] = pivots[k + 1] < 0`: a
/// block of two, the second of them exchanged with `-pivots[k] - 1`. Returns the first k (from 1) with `D[k, k] = 0`,
/// else 0.
pub fn ldl<T: Number>(a: &mut [T], n: usize, hermitian: bool, pivots: &mut [i32]) -> i32 {
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let mut info = 0;
    let mut k = 0;
    while k < n {
        let diagonal = |a: &[T], i: usize| if hermitian { a[i * n + i].re().abs() } else { a[i * n + i].weight() };
        let own = diagonal(a, k);
        let (mut row, mut largest) = (k, 0.0);
        for i in k + 1..n {
            if a[k * n + i].weight() > largest {
                (row, largest) = (i, a[k * n + i].weight());
            }
        }
        let (mut step, mut pivot) = (1, k);
        if own.max(largest) == 0.0 || own.is_nan() {
            if info == 0 {
                info = (k + 1) as i32;
            }
            if hermitian {
                a[k * n + k] = T::real(a[k * n + k].re());
            }
        } else {
            if own < alpha * largest {
                let beside = (k..row).map(|j| a[j * n + row].weight());
                let below = (row + 1..n).map(|i| a[row * n + i].weight());
                let other = beside.chain(below).fold(0.0, f64::max);
                if own < alpha * largest * (largest / other) {
                    pivot = row;
                    step = if diagonal(a, row) >= alpha * other { 1 } else { 2 };
                }
            }
            exchange(a, n, hermitian, k, k + step - 1, pivot, step);
            eliminate(a, n, hermitian, k, step);
        }
        let number = (pivot + 1) as i32;
        match step {
            1 => pivots[k] = number,
            _ => (pivots[k], pivots[k + 1]) = (-number, -number),
        }
        k += step;
    }
    info
}

/// Rows and columns `place` and `pivot` (not before it) exchanged in the part from `k` on.
fn exchange<T: Number>(a: &mut [T], n: usize, hermitian: bool, k: usize, place: usize, pivot: usize, step: usize) {
    if pivot != place {
        let (x, y) = two_columns(a, n, place, pivot);
        x[pivot + 1..].swap_with_slice(&mut y[pivot + 1..]);
        for j in place + 1..pivot {
            let (one, other) = (a[place * n + j], a[j * n + pivot]);
            a[place * n + j] = turned(hermitian, other);
            a[j * n + pivot] = turned(hermitian, one);
        }
        a[place * n + pivot] = turned(hermitian, a[place * n + pivot]);
        a.swap(place * n + place, pivot * n + pivot);
        if step == 2 {
            a.swap(k * n + k + 1, k * n + pivot);
        }
    }
    if hermitian {
        for i in [k, place, pivot] {
            a[i * n + i] = T::real(a[i * n + i].re());
        }
    }
}

/// Takes the block at `k` out of the rest of the matrix.
fn eliminate<T: Number>(a: &mut [T], n: usize, hermitian: bool, k: usize, step: usize) {
    let rest = k + step..n;
    if step == 1 {
        let inverse = T::ONE / a[k * n + k];
        for j in rest.clone() {
            let (l, column) = two_columns(a, n, k, j);
            let by = turned(hermitian, l[j]) * inverse;
            (j..n).for_each(|i| column[i] = column[i] - l[i] * by);
        }
        rest.for_each(|i| a[k * n + i] = a[k * n + i] * inverse);
    } else {
        let (d11, d21, d22) = (a[k * n + k], a[k * n + k + 1], a[(k + 1) * n + k + 1]);
        let determinant = d11 * d22 - d21 * turned(hermitian, d21);
        for j in rest {
            // Row j of L for both columns: (a[j, k], a[j, k + 1]) D⁻¹.
            let (x, y) = (a[k * n + j], a[(k + 1) * n + j]);
            let one = (x * d22 - y * d21) / determinant;
            let two = (y * d11 - x * turned(hermitian, d21)) / determinant;
            let (by_one, by_two) = (turned(hermitian, one), turned(hermitian, two));
            for i in j..n {
                a[j * n + i] = a[j * n + i] - a[k * n + i] * by_one - a[(k + 1) * n + i] * by_two;
            }
            if hermitian {
                a[j * n + j] = T::real(a[j * n + j].re());
            }
            // Rows after this one still need the columns as they were, not this row.
            (a[k * n + j], a[(k + 1) * n + j]) = (one, two);
        }
    }
}

/// Replaces `b` (n × k) by the solution of `A X = B`, given what [`ldl`] made of `A`.
pub fn solve_ldl<T: Number>(ld: &[T], pivots: &[i32], n: usize, hermitian: bool, b: &mut [T]) {
    // Pivots may be a caller's own: those outside stand for no exchange.
    let other = |k: usize| ((pivots[k].unsigned_abs() as usize).max(1) - 1).min(n - 1);
    let step = |k: usize| if pivots[k] < 0 && k + 1 < n { 2 } else { 1 };
    for x in b.chunks_exact_mut(n.max(1)) {
        let mut k = 0;
        while k < n {
            let size = step(k);
            x.swap(k + size - 1, other(k));
            for c in k..k + size {
                let found = x[c];
                (k + size..n).for_each(|i| x[i] = x[i] - ld[c * n + i] * found);
            }
            if size == 1 {
                x[k] = x[k] / ld[k * n + k];
            } else {
                let (d11, d21, d22) = (ld[k * n + k], ld[k * n + k + 1], ld[(k + 1) * n + k + 1]);
                let determinant = d11 * d22 - d21 * turned(hermitian, d21);
                let (one, two) = (x[k], x[k + 1]);
                x[k] = (one * d22 - two * turned(hermitian, d21)) / determinant;
                x[k + 1] = (two * d11 - one * d21) / determinant;
            }
            k += size;
        }
        while k > 0 {
            let size = if k > 1 && pivots[k - 1] < 0 { 2 } else { 1 };
            k -= size;
            for c in k..k + size {
                let sum = (k + size..n).fold(T::ZERO, |s, i| s + turned(hermitian, ld[c * n + i]) * x[i]);
                x[c] = x[c] - sum;
            }
            x.swap(k + size - 1, other(k));
        }
    }
}
