//! Least squares: by QR where the rank is full beyond doubt, else by singular values.

use super::{Number, Triangle, add_scaled, dot, multiply_by_q, reflections, solve_triangular, svd};
use crate::scratch::{Scratch, collected, filled};

/// Replaces `x` (n × k) by the solution of `A X = B` of least squares and, among those, of least norm, for `a` m × n and
/// `b` m × k. Singular values up to `rcond` times the largest count as zero; `assume_full`: there are none such.
/// Returns the rank; `None` if the rank is not full as assumed, or singular values did not converge. They are written to
/// `s`, if that is given.
pub fn least_squares<T: Number>(
    a: &[T],
    b: &[T],
    sizes: (usize, usize, usize),
    x: &mut [T],
    s: Option<&mut [f64]>,
    rcond: f64,
    assume_full: bool,
) -> Option<usize> {
    let (m, n, _) = sizes;
    let full = m.min(n);
    if full == 0 {
        x.fill(T::ZERO);
        return Some(0);
    }
    if s.is_none() && by_qr(a, b, sizes, x, if assume_full { 0.0 } else { rcond }) {
        return Some(full);
    }
    if assume_full {
        return None;
    }
    by_svd(a, b, sizes, x, s, rcond)
}

/// The condition of an upper triangular matrix without zeros on its diagonal: quotient of its extreme singular values, by power
/// iterations. What they miss of it is far less than half.
pub(super) fn condition<T: Number>(r: &[T], n: usize) -> f64 {
    const STEPS: usize = 12;
    let upper = Triangle { upper: true, unit: false, transposed: false, conjugated: false };
    let adjoint = Triangle { upper: false, transposed: true, conjugated: true, ..upper };
    let norm = |x: &[T]| x.iter().map(|x| x.size().powi(2)).sum::<f64>().sqrt();
    let unit = |x: &mut [T]| {
        let by = T::real(1.0 / norm(x));
        x.iter_mut().for_each(|x| *x = *x * by);
    };
    // A vector without structure, so that it has a part of every singular vector.
    let start = || -> Vec<T> { collected((0..n).map(|i| T::real(1.0 + (i * 7919 % 1013) as f64 / 1013.0))) };
    let (mut large, mut small) = (start(), start());
    let (mut largest, mut inverse) = (0.0, 0.0);
    for _ in 0..STEPS {
        unit(&mut large);
        let mut image = filled(T::ZERO, n);
        for (j, column) in r.chunks_exact(n).enumerate() {
            add_scaled(large[j], &column[..=j], &mut image[..=j]);
        }
        largest = norm(&image);
        for (j, column) in r.chunks_exact(n).enumerate() {
            large[j] = dot(&column[..=j], &image[..=j]);
        }
        unit(&mut small);
        solve_triangular(r, n, adjoint, &mut small, 1);
        inverse = norm(&small);
        solve_triangular(r, n, upper, &mut small, 1);
    }
    largest * inverse
}

/// The solution of least norm, if the rank is full: false if the condition of `R` leaves that open.
fn by_qr<T: Number>(a: &[T], b: &[T], (m, n, k): (usize, usize, usize), x: &mut [T], rcond: f64) -> bool {
    let wide = m < n;
    // Of a wide matrix the adjoint is decomposed: A = (Q R)ᴴ = Rᴴ Qᴴ.
    let (rows, steps) = (m.max(n), m.min(n));
    let mut packed = Scratch::copy_of(a);
    if wide {
        packed.iter_mut().enumerate().for_each(|(i, x)| *x = a[(i % n) * m + i / n].conj());
    }
    let mut tau = filled(T::ZERO, steps);
    // Of a tall matrix Qᴴ B is made along the way.
    let mut y = Scratch::copy_of(b);
    reflections(&mut packed, rows, steps, &mut tau, (!wide).then_some(&mut y[..]));
    let mut r = Scratch::<T>::zeroed(steps * steps);
    for j in 0..steps {
        r[j * steps..j * steps + j + 1].copy_from_slice(&packed[j * rows..j * rows + j + 1]);
    }
    if (0..steps).any(|i| r[i * (steps + 1)] == T::ZERO) || !r.iter().all(|x| x.finite()) {
        return false;
    }
    let upper = Triangle { upper: true, unit: false, transposed: false, conjugated: false };
    if rcond > 0.0 {
        let doubt = condition(&r, steps) * rcond * 2.0;
        if doubt.is_nan() || doubt >= 1.0 {
            return false;
        }
    }
    if wide {
        // Rᴴ Y = B, X = Q (Y, 0).
        let lower = Triangle { upper: false, transposed: true, conjugated: true, ..upper };
        solve_triangular(&r, steps, lower, &mut y, k);
        x.fill(T::ZERO);
        for (x, y) in x.chunks_exact_mut(n).zip(y.chunks_exact(m)) {
            x[..m].copy_from_slice(y);
        }
        multiply_by_q(&packed, rows, &tau, false, x);
    } else {
        for (x, y) in x.chunks_exact_mut(n).zip(y.chunks_exact(m)) {
            x.copy_from_slice(&y[..n]);
        }
        solve_triangular(&r, steps, upper, x, k);
    }
    true
}

/// The solution of least norm, singular values up to `rcond` times the largest counting as zero.
fn by_svd<T: Number>(
    a: &[T],
    b: &[T],
    (m, n, k): (usize, usize, usize),
    x: &mut [T],
    s: Option<&mut [f64]>,
    rcond: f64,
) -> Option<usize> {
    let full = m.min(n);
    let (mut u, mut values, mut v) = (filled(T::ZERO, m * full), filled(0.0, full), filled(T::ZERO, n * full));
    if svd(a, m, n, &mut u, &mut values, &mut v) != 0 {
        return None;
    }
    let rank = values.iter().filter(|s| **s > rcond * values[0]).count();
    x.fill(T::ZERO);
    for c in 0..k {
        let (x, b) = (&mut x[c * n..(c + 1) * n], &b[c * m..(c + 1) * m]);
        for i in 0..rank {
            let part = u[i * m..(i + 1) * m].iter().zip(b).fold(T::ZERO, |sum, (u, b)| sum + u.conj() * *b);
            let by = part / T::real(values[i]);
            // `v` holds the conjugate.
            x.iter_mut().zip(&v[i * n..(i + 1) * n]).for_each(|(x, v)| *x = *x + v.conj() * by);
        }
    }
    if let Some(s) = s {
        s.copy_from_slice(&values);
    }
    Some(rank)
}
