//! LU factors with partial pivoting: `P A = L U`, and systems, inverses and determinants from them.
#![allow(unsafe_code)]

use super::product::{Part, add_product};
use super::{Number, Triangle, add_scaled, batched, solve_triangular};
use crate::real::per_isa;
use crate::scratch::Scratch;

/// Up to this size nothing is gained by halves.
const SMALL: usize = 32;
/// Columns that are factored one by one.
const PANEL: usize = 16;

/// Replaces `a` (m × n) by its factors: `U` on and above the diagonal, `L` without its unit diagonal below.
/// Step k exchanged rows `k` and `pivots[k] - 1`. Returns the first k (from 1) with `U[k, k] = 0`, else 0.
///
/// By halves of columns: what the left half is to the right one is computed on several threads, block of columns by block of columns.
/// Which blocks those are depends on the sizes only, and so does every sum.
pub fn factor<T: Number>(a: &mut [T], m: usize, n: usize, pivots: &mut [i32]) -> i32 {
    let (steps, mut info) = (m.min(n), 0);
    if steps <= SMALL {
        let factor = if m <= PANEL { one_by_one } else { long_ones };
        factor(a, m, 0, pivots, &mut info);
        return info;
    }
    let (square, rest) = a.split_at_mut(steps * m);
    by_halves(square, m, 0, pivots, &mut info);
    eliminate(square, rest, m, 0, pivots);
    info
}

/// Factors the columns `a` (of `m` rows) from row `top` on.
fn by_halves<T: Number>(a: &mut [T], m: usize, top: usize, pivots: &mut [i32], info: &mut i32) {
    if pivots.len() <= PANEL {
        return long_ones(a, m, top, pivots, info);
    }
    let half = (pivots.len() / 2).next_multiple_of(PANEL);
    let (left, right) = a.split_at_mut(half * m);
    let (first, second) = pivots.split_at_mut(half);
    by_halves(left, m, top, first, info);
    eliminate(left, right, m, top, first);
    by_halves(right, m, top + half, second, info);
    blocks(left, m, |columns| exchange_rows(columns, m, top + half, second));
}

/// Factors the first columns of `a` (of `m` rows), as many as there are pivots, from row `top` on, and eliminates them from the others.
#[inline(always)]
pub(super) fn one_by_one<T: Number>(a: &mut [T], m: usize, top: usize, pivots: &mut [i32], info: &mut i32) {
    for k in 0..pivots.len() {
        let row = top + k;
        let p = row + T::heaviest(&a[k * m + row..(k + 1) * m]);
        pivots[k] = (p + 1) as i32;
        if p != row {
            a.chunks_exact_mut(m).for_each(|column| column.swap(row, p));
        }
        let pivot = a[k * m + row];
        if pivot == T::ZERO {
            if *info == 0 {
                *info = (row + 1) as i32;
            }
        } else {
            let (inverse, below) = (T::ONE / pivot, &mut a[k * m + row + 1..(k + 1) * m]);
            // As in LAPACK: by the reciprocal, unless it overflows.
            match inverse.finite() {
                true => below.iter_mut().for_each(|x| *x = *x * inverse),
                false => below.iter_mut().for_each(|x| *x = *x / pivot),
            }
        }
        let (done, others) = a.split_at_mut((k + 1) * m);
        let l = &done[k * m + row + 1..];
        for column in others.chunks_exact_mut(m) {
            let (head, below) = column.split_at_mut(row + 1);
            add_scaled(-head[row], l, below);
        }
    }
}

per_isa! {
    /// [`one_by_one`] for columns that are longer than a vector.
    fn long_ones<T: Number>(a: &mut [T], m: usize, top: usize, pivots: &mut [i32], info: &mut i32) {
        one_by_one(a, m, top, pivots, info)
    }
}

/// Calls `f` for blocks of columns (of `m` rows), on several threads.
fn blocks<T: Number>(columns: &mut [T], m: usize, f: impl Fn(&mut [T]) + Sync) {
    // Wide enough for a product, and some for each thread.
    let width = (columns.len() / m / 8).next_multiple_of(16).clamp(32, 128) * m;
    let (whole, rest) = columns.split_at_mut(columns.len() / width * width);
    batched::<T, T, 0, 1, 0>(whole.len() / width, [], [(whole, width)], [], |_, [], [columns], []| {
        f(columns);
        0
    });
    if !rest.is_empty() {
        f(rest);
    }
}

/// Exchanges rows from `top` on as the factorisation did.
fn exchange_rows<T>(columns: &mut [T], m: usize, top: usize, pivots: &[i32]) {
    for column in columns.chunks_exact_mut(m) {
        for (k, p) in pivots.iter().enumerate() {
            column.swap(top + k, *p as usize - 1);
        }
    }
}

/// Eliminates factored columns, which begin in row `top`, from those right of them.
fn eliminate<T: Number>(left: &[T], right: &mut [T], m: usize, top: usize, pivots: &[i32]) {
    let (k, below) = (pivots.len(), top + pivots.len());
    blocks(right, m, |columns| {
        exchange_rows(columns, m, top, pivots);
        let width = columns.len() / m;
        let mut upper = Scratch::<T>::new(k * width);
        turn(columns, [m, 1], top, &mut upper, [1, width], 0, [width, k]);
        solve_rows(&left[top..], m, &mut upper, width);
        turn(&upper, [1, width], 0, columns, [m, 1], top, [width, k]);
        if below < m {
            // The transpose: columns are rows then.
            let u = Part { data: &upper, sizes: [width, k], strides: [1, width] };
            let l = Part { data: &left[below..], sizes: [k, m - below], strides: [m, 1] };
            add_product(-1.0, u, l, &mut columns[below..], m);
        }
    });
}

/// Copies a block of some columns and rows between two matrices that lie differently, by squares that fit a cache.
fn turn<T: Copy>(
    from: &[T],
    from_steps: [usize; 2],
    from_at: usize,
    to: &mut [T],
    to_steps: [usize; 2],
    to_at: usize,
    [columns, rows]: [usize; 2],
) {
    const SQUARE: usize = 16;
    for c0 in (0..columns).step_by(SQUARE) {
        for r0 in (0..rows).step_by(SQUARE) {
            for c in c0..(c0 + SQUARE).min(columns) {
                for r in r0..(r0 + SQUARE).min(rows) {
                    to[to_at + c * to_steps[0] + r * to_steps[1]] =
                        from[from_at + c * from_steps[0] + r * from_steps[1]];
                }
            }
        }
    }
}

/// Replaces the rows `b` (of `width` numbers each) by the solution of `L X = B`, where `l` begins at a unit lower triangle in columns of `m` rows.
fn solve_rows<T: Number>(l: &[T], m: usize, b: &mut [T], width: usize) {
    let rows = b.len() / width;
    if rows <= SMALL {
        return solve_few_rows(l, m, b, width);
    }
    let half = (rows / 2).next_multiple_of(PANEL);
    let (known, rest) = b.split_at_mut(half * width);
    solve_rows(l, m, known, width);
    let below = Part { data: &l[half..], sizes: [rows - half, half], strides: [1, m] };
    add_product(-1.0, below, Part { data: known, sizes: [half, width], strides: [width, 1] }, rest, width);
    solve_rows(&l[half * (m + 1)..], m, rest, width);
}

per_isa! {
    /// [`solve_rows`], one by one.
    fn solve_few_rows<T: Number>(l: &[T], m: usize, b: &mut [T], width: usize) {
        const LANES: usize = 32;
        for i in 1..b.len() / width {
            let (known, row) = b.split_at_mut(i * width);
            let (lanes, rest) = row[..width].as_chunks_mut::<LANES>();
            for (at, lanes) in lanes.iter_mut().enumerate() {
                let mut sums = *lanes;
                for (j, x) in known.chunks_exact(width).enumerate() {
                    let by = l[j * m + i];
                    let x = &x.as_chunks::<LANES>().0[at];
                    for (sum, x) in sums.iter_mut().zip(x) {
                        *sum = *sum - by * *x;
                    }
                }
                *lanes = sums;
            }
            let at = width - rest.len();
            for (j, x) in known.chunks_exact(width).enumerate() {
                add_scaled(-l[j * m + i], &x[at..], rest);
            }
        }
    }
}

/// Exchanges the rows of `b` (n rows) as the factorisation did, or undoes that.
fn exchange<T>(pivots: &[i32], n: usize, b: &mut [T], back: bool) {
    for x in b.chunks_exact_mut(n.max(1)) {
        let mut swap = |i: usize| {
            // Pivots may be a caller's own: what lies outside moves nothing.
            let p = (pivots[i].max(1) - 1) as usize;
            if p != i && p < n {
                x.swap(i, p);
            }
        };
        if back { (0..pivots.len()).rev().for_each(&mut swap) } else { (0..pivots.len()).for_each(&mut swap) }
    }
}

/// Replaces `b` (n × k) by the solution of `A X = B`, or of `Aᴴ X = B`, given the factors of `A`.
pub fn solve_factored<T: Number>(lu: &[T], pivots: &[i32], n: usize, adjoint: bool, b: &mut [T], k: usize) {
    let lower = Triangle { upper: false, unit: true, transposed: false, conjugated: false };
    let upper = Triangle { upper: true, unit: false, ..lower };
    let turned = |t: Triangle| Triangle { upper: !t.upper, transposed: true, conjugated: true, ..t };
    if adjoint {
        solve_triangular(lu, n, turned(upper), b, k);
        solve_triangular(lu, n, turned(lower), b, k);
        exchange(pivots, n, b, true);
    } else {
        exchange(pivots, n, b, false);
        solve_triangular(lu, n, lower, b, k);
        solve_triangular(lu, n, upper, b, k);
    }
}

/// The inverse of `a`; its elements are not finite where `a` is singular.
pub fn inverse<T: Number>(a: &[T], n: usize, out: &mut [T]) -> i32 {
    let (mut lu, mut pivots) = (Scratch::copy_of(a), Scratch::<i32>::zeroed(n));
    let info = factor(&mut lu, n, n, &mut pivots);
    super::fill_identity(out, n);
    solve_factored(&lu, &pivots, n, false, out, n);
    info
}

/// Sign and logarithm of the absolute value of the determinant, and the determinant itself, from the factors.
pub fn log_abs_determinant<T: Number>(lu: &[T], pivots: &[i32], n: usize) -> (T, f64, T) {
    let swaps = pivots.iter().enumerate().filter(|(i, p)| **p != *i as i32 + 1).count();
    let odd = if swaps % 2 == 1 { -T::ONE } else { T::ONE };
    let (mut sign, mut log, mut product) = (odd, 0.0, odd);
    for d in lu.iter().step_by(n + 1) {
        let size = d.size();
        sign = sign * if size == 0.0 { T::ZERO } else { *d / T::real(size) };
        log += size.ln();
        product = product * *d;
    }
    (sign, log, product)
}
