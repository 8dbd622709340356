//! Factorizations of square matrices, and linear systems, inverses and determinants from them.

use super::*;
use crate::ops::shape::linalg::is_vector;
use firebrand_kernels::linalg::{self as kernel, Triangle, batched};

/// Columns of right-hand sides that one thread solves for at a time. Fixed, so that results do not depend on threads.
const CHUNK: usize = 256;

/// Where the item's matrix begins.
fn item<T>(all: &[T], i: usize, each: usize) -> &[T] {
    &all[i * each..(i + 1) * each]
}

/// `linalg_inv_ex`.
pub(crate) fn inv_ex(a: &Tensor, check_errors: bool, inverse: &Tensor, info: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let (count, n, _) = extents(a);
        let factors = Factors::<T>::of(a)?;
        if check_errors {
            check("linalg_inv", &factors.info, a.ndim() > 2, singular)?;
        }
        let mut x = zeros::<T>(count * n * n)?;
        x.chunks_exact_mut((n * n).max(1)).for_each(|x| x.iter_mut().step_by(n + 1).for_each(|d| *d = T::ONE));
        factors.solve(&lists::collected(count, 0..count)?, &mut x, n, false)?;
        write_columns(&x, inverse)?;
        write(&factors.info, info)
    })
}

/// Factors and pivots of every matrix.
struct Factors<T> {
    lu: Scratch<T>,
    pivots: Scratch<i32>,
    info: Vec<i32>,
    rows: usize,
    columns: usize,
}

impl<T: Number> Factors<T> {
    fn of(a: &Tensor) -> Result<Factors<T>> {
        let (count, m, n) = extents(a);
        let (mut lu, mut pivots) = (columns::<T>(a)?, zeros::<i32>(count * m.min(n))?);
        let info = batched(count, [], [(&mut lu, m * n)], [(&mut pivots, m.min(n))], |_, [], [lu], [pivots]| {
            kernel::factor(lu, m, n, pivots)
        });
        Ok(Factors { lu, pivots, info, rows: m, columns: n })
    }

    fn write(&self, lu: &Tensor, pivots: &Tensor) -> Result<()> {
        write_columns(&self.lu, lu)?;
        write(&self.pivots, pivots)
    }

    /// Sign, logarithm of the absolute value, and value of every determinant.
    fn determinants(&self) -> Result<(Scratch<T>, Scratch<f64>, Scratch<T>)> {
        let (count, n) = (self.info.len(), self.rows);
        let (mut signs, mut logs, mut values) = (zeros(count)?, zeros(count)?, zeros(count)?);
        for k in 0..count {
            let (lu, pivots) = (item(&self.lu, k, n * n), item(&self.pivots, k, n));
            (signs[k], logs[k], values[k]) = kernel::log_abs_determinant(lu, pivots, n);
        }
        Ok((signs, logs, values))
    }

    /// Replaces matrices of `k` right-hand sides; that of item i belongs to the factors `sources[i]`.
    fn solve(&self, sources: &[usize], x: &mut [T], k: usize, adjoint: bool) -> Result<()> {
        let n = self.rows;
        let solve = |i: usize, x: &mut [T], k: usize| {
            let (lu, pivots) = (item(&self.lu, i, n * self.columns), item(&self.pivots, i, n));
            kernel::solve_factored(lu, pivots, n, adjoint, x, k);
            0
        };
        if sources.len() == 1 && k > CHUNK && n > CHUNK && k.is_multiple_of(CHUNK) {
            batched::<T, T, 0, 1, 0>(k / CHUNK, [], [(x, n * CHUNK)], [], |_, [], [x], []| solve(sources[0], x, CHUNK));
        } else {
            batched::<T, T, 0, 1, 0>(sources.len(), [], [(x, n * k)], [], |i, [], [x], []| solve(sources[i], x, k));
        }
        Ok(())
    }
}

/// `_linalg_det`.
pub(crate) fn det(a: &Tensor, result: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let factors = Factors::<T>::of(a)?;
        write(&factors.determinants()?.2, result)?;
        factors.write(lu, pivots)
    })
}

/// `_linalg_slogdet`.
pub(crate) fn slogdet(a: &Tensor, sign: &Tensor, logabsdet: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let factors = Factors::<T>::of(a)?;
        let (signs, logs, _) = factors.determinants()?;
        write(&signs, sign)?;
        write(&logs, logabsdet)?;
        factors.write(lu, pivots)
    })
}

/// `_linalg_solve_ex`. Each matrix is factored once, however many right-hand sides it is broadcast to.
pub(crate) fn solve_ex(
    a: &Tensor,
    b: &Tensor,
    left: bool,
    check_errors: bool,
    result: &Tensor,
    lu: &Tensor,
    pivots: &Tensor,
    info: &Tensor,
) -> Result<()> {
    with_number!(a.dtype(), T => {
        let factors = Factors::<T>::of(&transposed_if(!left, a)?)?;
        if check_errors {
            check("linalg_solve", &factors.info, a.ndim() > 2, singular)?;
        }
        let sides = |t: &Tensor| -> Result<Tensor> {
            let vector = is_vector(a.shape(), b.shape());
            transposed_if(!left, &if vector { t.alias_with(view::unsqueeze(t, -1)?) } else { t.clone() })
        };
        let (b, result) = (sides(b)?, sides(result)?);
        let batch = &result.shape()[..result.ndim() - 2];
        let mut x = spread::<T>(&b, batch)?;
        factors.solve(&sources(&a.shape()[..a.ndim() - 2], batch)?, &mut x, extents(&result).2, false)?;
        write_columns(&x, &result)?;
        factors.write(lu, pivots)?;
        write(&factors.info, info)
    })
}

/// `linalg_lu_factor_ex`.
pub(crate) fn lu_factor_ex(
    a: &Tensor,
    _pivot: bool,
    check_errors: bool,
    lu: &Tensor,
    pivots: &Tensor,
    info: &Tensor,
) -> Result<()> {
    with_number!(a.dtype(), T => {
        let factors = Factors::<T>::of(a)?;
        if check_errors {
            check("linalg_lu_factor", &factors.info, a.ndim() > 2, singular)?;
        }
        factors.write(lu, pivots)?;
        write(&factors.info, info)
    })
}

/// `linalg_lu`.
pub(crate) fn lu(a: &Tensor, _pivot: bool, p: &Tensor, l: &Tensor, u: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let factors = Factors::<T>::of(a)?;
        unpacked(&factors.lu, extents(a), l, u)?;
        permutations::<T>(&factors.pivots, a, p)
    })
}

/// `lu_unpack`.
pub(crate) fn lu_unpack(
    lu: &Tensor,
    pivots: &Tensor,
    unpack_data: bool,
    unpack_pivots: bool,
    p: &Tensor,
    l: &Tensor,
    u: &Tensor,
) -> Result<()> {
    with_number!(lu.dtype(), T => {
        if unpack_data {
            unpacked(&columns::<T>(lu)?, extents(lu), l, u)?;
        }
        if unpack_pivots {
            permutations::<T>(&rows::<i32>(pivots)?, lu, p)?;
        }
        Ok(())
    })
}

/// Writes both factors as matrices of their own.
fn unpacked<T: Number>(lu: &[T], (count, m, n): (usize, usize, usize), l: &Tensor, u: &Tensor) -> Result<()> {
    let k = m.min(n);
    let (mut lower, mut upper) = (zeros::<T>(count * m * k)?, zeros::<T>(count * k * n)?);
    batched::<T, T, 1, 2, 0>(
        count,
        [(lu, m * n)],
        [(&mut lower, m * k), (&mut upper, k * n)],
        [],
        |_, [lu], [l, u], []| {
            for j in 0..k {
                l[j * m + j] = T::ONE;
                l[j * m + j + 1..(j + 1) * m].copy_from_slice(&lu[j * m + j + 1..(j + 1) * m]);
            }
            for j in 0..n {
                let kept = (j + 1).min(k);
                u[j * k..j * k + kept].copy_from_slice(&lu[j * m..j * m + kept]);
            }
            0
        },
    );
    write_columns(&lower, l)?;
    write_columns(&upper, u)
}

/// Writes the permutation matrices `P` of `A = P L U`.
fn permutations<T: Number>(pivots: &[i32], a: &Tensor, p: &Tensor) -> Result<()> {
    let (count, m, n) = extents(a);
    let k = m.min(n);
    if let Some(p) = pivots.iter().find(|p| **p < 1 || **p as usize > m) {
        return Err(Error::argument("lu_unpack", format!("pivots must be row numbers from 1 to {m}, found {p}")));
    }
    let (mut matrices, mut order) = (zeros::<T>(count * m * m)?, zeros::<i64>(m)?);
    for (i, matrix) in matrices.chunks_exact_mut((m * m).max(1)).enumerate() {
        order.iter_mut().enumerate().for_each(|(i, o)| *o = i as i64);
        for (row, pivot) in item(pivots, i, k).iter().enumerate() {
            order.swap(row, *pivot as usize - 1);
        }
        order.iter().enumerate().for_each(|(column, row)| matrix[column * m + *row as usize] = T::ONE);
    }
    write_columns(&matrices, p)
}

/// `linalg_lu_solve`.
pub(crate) fn lu_solve(
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    left: bool,
    adjoint: bool,
    result: &Tensor,
) -> Result<()> {
    with_number!(lu.dtype(), T => {
        let n = extents(lu).1;
        let factors = Factors::<T> {
            lu: columns(lu)?,
            pivots: rows(pivots)?,
            info: Vec::new(),
            rows: n,
            columns: n,
        };
        let batch = &result.shape()[..result.ndim() - 2];
        // X A = B is Aᴴ Xᴴ = Bᴴ.
        let turned = |t: &Tensor| transposed_if(!left, t);
        let mut x = spread::<T>(&turned(b)?, batch)?;
        let conjugate = |x: &mut [T]| if !left && T::COMPLEX { x.iter_mut().for_each(|x| *x = x.conj()) };
        conjugate(&mut x);
        let target = turned(result)?;
        factors.solve(&sources(&lu.shape()[..lu.ndim() - 2], batch)?, &mut x, extents(&target).2, adjoint == left)?;
        conjugate(&mut x);
        write_columns(&x, &target)
    })
}

/// `linalg_ldl_factor_ex`.
pub(crate) fn ldl_factor_ex(
    a: &Tensor,
    hermitian: bool,
    check_errors: bool,
    ld: &Tensor,
    pivots: &Tensor,
    info: &Tensor,
) -> Result<()> {
    with_number!(a.dtype(), T => {
        let (count, n, _) = extents(a);
        let (mut to, mut order) = (columns::<T>(a)?, zeros::<i32>(count * n)?);
        let found = batched(count, [], [(&mut to, n * n)], [(&mut order, n)], |_, [], [a], [pivots]| {
            let info = kernel::ldl(a, n, hermitian, pivots);
            // What is above the diagonal is not part of the result.
            (1..n).for_each(|j| a[j * n..j * n + j].fill(T::ZERO));
            info
        });
        if check_errors {
            check("linalg_ldl_factor", &found, a.ndim() > 2, |k| {
                format!("the matrix is singular: element {k} of the diagonal of its factor D is zero")
            })?;
        }
        write_columns(&to, ld)?;
        write(&order, pivots)?;
        write(&found, info)
    })
}

/// `linalg_ldl_solve`.
pub(crate) fn ldl_solve(ld: &Tensor, pivots: &Tensor, b: &Tensor, hermitian: bool, result: &Tensor) -> Result<()> {
    with_number!(ld.dtype(), T => {
        let n = extents(ld).1;
        let (factors, order) = (columns::<T>(ld)?, rows::<i32>(pivots)?);
        let batch = &result.shape()[..result.ndim() - 2];
        let (mut x, from) = (spread::<T>(b, batch)?, sources(&ld.shape()[..ld.ndim() - 2], batch)?);
        let k = extents(result).2;
        batched::<T, T, 0, 1, 0>(from.len(), [], [(&mut x, n * k)], [], |i, [], [x], []| {
            kernel::solve_ldl(item(&factors, from[i], n * n), item(&order, from[i], n), n, hermitian, x);
            0
        });
        write_columns(&x, result)
    })
}

/// `linalg_cholesky_ex`.
pub(crate) fn cholesky_ex(a: &Tensor, upper: bool, check_errors: bool, l: &Tensor, info: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let (count, n, _) = extents(a);
        // The upper triangle is the conjugate of the lower one, and so is its factor.
        let conjugate = |x: &mut [T]| if upper && T::COMPLEX { x.iter_mut().for_each(|x| *x = x.conj()) };
        let mut to = rows::<T>(&transposed_if(upper, a)?)?;
        conjugate(&mut to);
        real_diagonals(&mut to, n);
        let found = batched::<T, T, 0, 1, 0>(count, [], [(&mut to, n * n)], [], |_, [], [a], []| kernel::cholesky(a, n));
        if check_errors {
            check("linalg_cholesky", &found, a.ndim() > 2, |order| {
                format!("the matrix is not positive-definite: its leading minor of order {order} is not positive")
            })?;
        }
        conjugate(&mut to);
        write(&to, &transposed_if(upper, l)?)?;
        write(&found, info)
    })
}

/// `linalg_solve_triangular`.
pub(crate) fn solve_triangular(
    a: &Tensor,
    b: &Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    out: &Tensor,
) -> Result<()> {
    with_number!(a.dtype(), T => {
        let batch = shape::linalg::systems("linalg_solve_triangular", a, b, left)?;
        let (matrices, from) = (columns::<T>(a)?, sources(&a.shape()[..a.ndim() - 2], &batch)?);
        let mut x = spread::<T>(&transposed_if(!left, b)?, &batch)?;
        let target = transposed_if(!left, out)?;
        let (_, n, k) = extents(&target);
        // X A = B is Aᵀ Xᵀ = Bᵀ.
        let triangle = Triangle { upper: upper == left, unit: unitriangular, transposed: !left, conjugated: false };
        if from.len() == 1 && k > CHUNK && n > CHUNK && k.is_multiple_of(CHUNK) {
            batched::<T, T, 0, 1, 0>(k / CHUNK, [], [(&mut x, n * CHUNK)], [], |_, [], [x], []| {
                kernel::solve_triangular(&matrices, n, triangle, x, CHUNK);
                0
            });
        } else {
            batched::<T, T, 0, 1, 0>(from.len(), [], [(&mut x, n * k)], [], |i, [], [x], []| {
                kernel::solve_triangular(item(&matrices, from[i], n * n), n, triangle, x, k);
                0
            });
        }
        write_columns(&x, &target)
    })
}
