//! Cholesky and QR factors, and triangular systems.

use crate::{Orthogonal, OutOfMemory, PAR, Scalar, Triangle, Workspace, conj, filled};
use faer::linalg::{cholesky::llt, householder, qr::no_pivoting, triangular_solve};
use faer::traits::ext::ComplexFieldExt;
use faer::{Conj, MatMut, MatRef};

pub(crate) fn cholesky<T: Scalar>(a: &mut [T], n: usize) -> Result<bool, OutOfMemory> {
    let params = Default::default();
    let mut work = Workspace::new(llt::factor::cholesky_in_place_scratch::<T>(n, PAR, params))?;
    let matrix = MatMut::from_column_major_slice_mut(a, n, n);
    Ok(llt::factor::cholesky_in_place(matrix, Default::default(), PAR, work.stack(), params).is_ok())
}

pub(crate) fn solve_triangular<T: Scalar>(a: &[T], n: usize, triangle: Triangle, b: &mut [T], k: usize) {
    let stored = MatRef::from_column_major_slice(a, n, n);
    let matrix = if triangle.transposed { stored.transpose() } else { stored };
    let rhs = MatMut::from_column_major_slice_mut(b, n, k);
    let conj = conj(triangle.conjugated);
    match (triangle.upper, triangle.unit) {
        (false, false) => triangular_solve::solve_lower_triangular_in_place_with_conj(matrix, conj, rhs, PAR),
        (false, true) => triangular_solve::solve_unit_lower_triangular_in_place_with_conj(matrix, conj, rhs, PAR),
        (true, false) => triangular_solve::solve_upper_triangular_in_place_with_conj(matrix, conj, rhs, PAR),
        (true, true) => triangular_solve::solve_unit_upper_triangular_in_place_with_conj(matrix, conj, rhs, PAR),
    }
}

/// How many reflections are applied at once. For matrices up to some hundred rows more than `faer` recommends (8 and 32):
/// measured, 16 is the best at 64 and at 256.
fn block_size<T: Scalar>(m: usize, n: usize) -> usize {
    if m * n <= 256 * 256 { 16.min(m).min(n) } else { no_pivoting::factor::recommended_block_size::<T>(m, n) }
}

pub(crate) fn qr<T: Scalar>(
    a: &mut [T],
    m: usize,
    n: usize,
    wanted: Orthogonal<'_, T>,
    tau: &mut [T],
) -> Result<bool, OutOfMemory> {
    let steps = m.min(n);
    if steps == 0 {
        return Ok(false);
    }
    let params = Default::default();
    let block = block_size::<T>(m, n);
    let columns = match &wanted {
        Orthogonal::Unused => 0,
        Orthogonal::Columns(c) | Orthogonal::AdjointTimes(c) => c.len() / m,
    };
    let needed = no_pivoting::factor::qr_in_place_scratch::<T>(m, n, block, PAR, params).or(
        householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(m, block, columns).or(
            householder::apply_block_householder_sequence_transpose_on_the_left_in_place_scratch::<T>(
                m, block, columns,
            ),
        ),
    );
    let (mut work, mut coefficients) = (Workspace::new(needed)?, filled(T::zero_impl(), block * steps)?);
    let mut matrix = MatMut::from_column_major_slice_mut(a, m, n);
    let mut coefficients = MatMut::from_column_major_slice_mut(&mut coefficients, block, steps);
    let info = no_pivoting::factor::qr_in_place(matrix.as_mut(), coefficients.as_mut(), PAR, work.stack(), params);
    if info.rank < steps {
        return Ok(false);
    }
    for (k, tau) in tau.iter_mut().enumerate() {
        *tau = coefficients[(k % block, k)].recip();
    }
    let (basis, coefficients) = (matrix.as_ref().subcols(0, steps), coefficients.as_ref());
    match wanted {
        Orthogonal::Unused => {}
        Orthogonal::AdjointTimes(c) => {
            householder::apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj(
                basis,
                coefficients,
                Conj::Yes,
                MatMut::from_column_major_slice_mut(c, m, columns),
                PAR,
                work.stack(),
            );
        }
        Orthogonal::Columns(c) => {
            c.fill(T::zero_impl());
            c.iter_mut().step_by(m + 1).for_each(|d| *d = T::one_impl());
            let mut c = MatMut::from_column_major_slice_mut(c, m, columns);
            // From the last block on: columns before a block's own are still those of the identity, without anything in its rows.
            for first in (0..steps).step_by(block).rev() {
                let size = block.min(steps - first);
                householder::apply_block_householder_on_the_left_in_place_with_conj(
                    basis.submatrix(first, first, m - first, size),
                    coefficients.submatrix(0, first, size, size),
                    Conj::No,
                    c.as_mut().submatrix_mut(first, first, m - first, columns - first),
                    PAR,
                    work.stack(),
                );
            }
        }
    }
    Ok(true)
}
