//! The exponential of a matrix: its Taylor polynomial of a scaled matrix, squared as often as it was halved.

use super::product::multiply;
use super::{Number, add_scaled};
use crate::scratch::Scratch;

/// Up to which norm the polynomials of degree 4, 8, 12 and 16 are exact to rounding (as PyTorch has them; the last is a
/// little below the bound of the literature).
const SINGLE: [f64; 4] = [5.1e-2, 5.8e-1, 1.46, 2.2];
const DOUBLE: [f64; 4] = [3.39e-4, 4.99e-2, 2.99e-1, 7.5e-1];

/// The exponential of `a` (n × n). Rows and columns may change places in both.
pub fn matrix_exp<T: Number>(a: &[T], n: usize, out: &mut [T]) {
    if n == 0 {
        return;
    }
    let norm = norm(a, n);
    if !norm.is_finite() {
        return out.fill(T::real(f64::NAN));
    }
    let bounds = if T::EPSILON > 1e-10 { SINGLE } else { DOUBLE };
    let blocks = bounds.iter().position(|b| norm <= *b).map_or(4, |k| k + 1);
    // At most some 1,030: the quotient itself may overflow.
    let halvings = (norm.log2() - bounds[3].log2()).ceil().max(0.0) as i32;
    let by = T::real((-halvings as f64).exp2());
    let mut a = Scratch::copy_of(a);
    a.iter_mut().for_each(|x| *x = *x * by);
    let (mut a2, mut a3, mut a4) = (Scratch::new(n * n), Scratch::new(n * n), Scratch::new(n * n));
    product(&a, &a, n, &mut a2);
    product(&a2, &a, n, &mut a3);
    product(&a2, &a2, n, &mut a4);
    let mut inverse_factorials = [1.0; 17];
    (1..17).for_each(|k| inverse_factorials[k] = inverse_factorials[k - 1] / k as f64);
    // Horner's rule in the fourth power.
    let add_block = |block: usize, to: &mut [T]| {
        let c = |k: usize| T::real(inverse_factorials[4 * block + k]);
        add_scaled(c(1), &a, to);
        add_scaled(c(2), &a2, to);
        add_scaled(c(3), &a3, to);
        to.iter_mut().step_by(n + 1).for_each(|d| *d = *d + c(0));
    };
    let mut spare = Scratch::<T>::new(n * n);
    out.fill(T::ZERO);
    add_scaled(T::real(inverse_factorials[4 * blocks]), &a4, out);
    add_block(blocks - 1, out);
    for block in (0..blocks - 1).rev() {
        product(out, &a4, n, &mut spare);
        add_block(block, &mut spare);
        out.copy_from_slice(&spare);
    }
    for _ in 0..halvings {
        product(out, out, n, &mut spare);
        out.copy_from_slice(&spare);
    }
}

/// The largest sum of absolute values of a column (or row, where rows and columns have changed places).
fn norm<T: Number>(a: &[T], n: usize) -> f64 {
    let mut most: f64 = 0.0;
    for column in a.chunks_exact(n) {
        let sum: f64 = column.iter().map(|x| x.size()).sum();
        if sum.is_nan() {
            return f64::NAN;
        }
        most = most.max(sum);
    }
    most
}

/// Up to this size the plain loops are faster.
const SMALL: usize = 12;

/// `A B`.
fn product<T: Number>(a: &[T], b: &[T], n: usize, out: &mut [T]) {
    if n <= SMALL {
        for (row, out) in a.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            out.fill(T::ZERO);
            row.iter().zip(b.chunks_exact(n)).for_each(|(x, b)| add_scaled(*x, b, out));
        }
        return;
    }
    multiply(a, [n, 1], b, (n, n, n), out);
}
