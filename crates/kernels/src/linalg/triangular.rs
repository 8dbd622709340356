//! Systems with a triangular matrix.

use super::{LIBRARY, Number, Triangle, add_scaled, batched, dot};

/// Up to this size the plain loops are faster.
const SMALL: usize = 32;

/// Replaces `b` (n × k) by the solution of `A X = B`; only the named triangle of `a` (n × n) is read.
pub fn solve_triangular<T: Number>(a: &[T], n: usize, triangle: Triangle, b: &mut [T], k: usize) {
    if n == 0 || k == 0 {
        return;
    }
    if LIBRARY && n > SMALL && k > 1 {
        return T::solve_triangular(a, n, triangle, b, k);
    }
    for x in b.chunks_exact_mut(n) {
        if triangle.transposed { by_rows(a, n, triangle, x) } else { by_columns(a, n, triangle, x) }
    }
}

/// Right-hand sides that one thread solves for at a time. Fixed, so that results do not depend on threads.
const CHUNK: usize = 64;

/// The library's [`solve_triangular`] of many right-hand sides, on several threads.
pub(super) fn solve_columns<T: Number>(a: &[T], n: usize, triangle: Triangle, b: &mut [T], k: usize) {
    let (whole, rest) = b.split_at_mut(k / CHUNK * CHUNK * n);
    batched::<T, T, 0, 1, 0>(k / CHUNK, [], [(whole, CHUNK * n)], [], |_, [], [b], []| {
        T::solve_triangular(a, n, triangle, b, CHUNK);
        0
    });
    if !k.is_multiple_of(CHUNK) {
        T::solve_triangular(a, n, triangle, rest, k % CHUNK);
    }
}

fn conj_if<T: Number>(yes: bool, x: T) -> T {
    if yes { x.conj() } else { x }
}

/// One right-hand side; every unknown is taken out of the others as soon as it is found.
fn by_columns<T: Number>(a: &[T], n: usize, triangle: Triangle, x: &mut [T]) {
    for step in 0..n {
        let j = if triangle.upper { n - 1 - step } else { step };
        let column = &a[j * n..(j + 1) * n];
        if !triangle.unit {
            x[j] = x[j] / conj_if(triangle.conjugated, column[j]);
        }
        let found = x[j];
        let others = if triangle.upper { 0..j } else { j + 1..n };
        if triangle.conjugated {
            x[others.clone()].iter_mut().zip(&column[others]).for_each(|(x, a)| *x = *x - found * a.conj());
        } else {
            add_scaled(-found, &column[others.clone()], &mut x[others]);
        }
    }
}

/// The same for a matrix whose rows are the columns that are stored.
fn by_rows<T: Number>(a: &[T], n: usize, triangle: Triangle, x: &mut [T]) {
    for step in 0..n {
        let i = if triangle.upper { n - 1 - step } else { step };
        let row = &a[i * n..(i + 1) * n];
        let known = if triangle.upper { i + 1..n } else { 0..i };
        let sum = if triangle.conjugated {
            dot(&row[known.clone()], &x[known])
        } else {
            row[known.clone()].iter().zip(&x[known]).fold(T::ZERO, |s, (a, x)| s + *a * *x)
        };
        x[i] = x[i] - sum;
        if !triangle.unit {
            x[i] = x[i] / conj_if(triangle.conjugated, row[i]);
        }
    }
}
