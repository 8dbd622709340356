//! Linear algebra: tensors to row-major f64 matrices and back, and the errors of matrices that cannot be decomposed.
//!
//! Errors come before anything is written.

use super::copy_into;
use crate::ops::shape::{self, expanded, linalg::is_vector, view};
use crate::{ErrorKind, Result, Tensor};
use firebrand_kernels::linalg as kernel;
use firebrand_kernels::linalg::{Triangle, batched};

/// The last two dimensions exchanged.
fn transposed(t: &Tensor) -> Result<Tensor> {
    Ok(t.alias_with(view::transpose(t, -2, -1)?))
}

fn transposed_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { transposed(t) } else { Ok(t.clone()) }
}

/// Number of matrices, rows and columns.
fn extents(t: &Tensor) -> (usize, usize, usize) {
    let [batch @ .., m, n] = t.shape() else { return (0, 0, 0) };
    (batch.iter().product(), *m, *n)
}

/// Stores numbers, rounded to the result's dtype.
fn write<T: firebrand_kernels::Element>(numbers: &[T], out: &Tensor) -> Result<()> {
    copy_into(&Tensor::try_from_slice(numbers, out.shape())?, out)
}

/// Fails for the first matrix of which `info` says that something went wrong.
fn check(op: &'static str, info: &[i32], batch: bool, why: impl Fn(i32) -> String) -> Result<()> {
    match info.iter().position(|i| *i != 0) {
        None => Ok(()),
        Some(k) => Err(ErrorKind::Linalg { op, batch: batch.then_some(k), message: why(info[k]) }.into()),
    }
}

fn singular(info: i32) -> String {
    format!("the matrix is singular: element {info} of the diagonal of its factor U is zero")
}

/// `linalg_inv_ex`.
pub(crate) fn inv_ex(a: &Tensor, check_errors: bool, inverse: &Tensor, info: &Tensor) -> Result<()> {
    let ((count, n, _), from) = (extents(a), a.try_to_vec()?);
    let mut to = vec![0.0; from.len()];
    let found = batched(count, [(&from, n * n)], [(&mut to, n * n)], |[a], [out]| kernel::inverse(a, n, out));
    if check_errors {
        check("linalg_inv", &found, a.ndim() > 2, singular)?;
    }
    write(&to, inverse)?;
    write(&found, info)
}

/// Factors and pivots of every matrix.
struct Factors {
    lu: Vec<f64>,
    pivots: Vec<f64>,
    info: Vec<i32>,
}

impl Factors {
    fn of(a: &Tensor) -> Result<Factors> {
        let (count, n, _) = extents(a);
        let (mut lu, mut pivots) = (a.try_to_vec()?, vec![0.0; count * n]);
        let info =
            batched(count, [], [(&mut lu, n * n), (&mut pivots, n)], |[], [lu, pivots]| kernel::factor(lu, n, pivots));
        Ok(Factors { lu, pivots, info })
    }

    fn write(&self, lu: &Tensor, pivots: &Tensor) -> Result<()> {
        write(&self.lu, lu)?;
        write(&self.pivots, pivots)
    }

    /// Sign, logarithm of the absolute value, and value of every determinant.
    fn determinants(&self, n: usize) -> [Vec<f64>; 3] {
        let mut out = [Vec::new(), Vec::new(), Vec::new()];
        for k in 0..self.info.len() {
            let (lu, pivots) = (&self.lu[k * n * n..(k + 1) * n * n], &self.pivots[k * n..(k + 1) * n]);
            let (sign, log, value) = kernel::log_abs_determinant(lu, pivots, n);
            [sign, log, value].into_iter().zip(&mut out).for_each(|(v, out)| out.push(v));
        }
        out
    }
}

/// `_linalg_det`.
pub(crate) fn det(a: &Tensor, result: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<()> {
    let factors = Factors::of(a)?;
    let [_, _, value] = factors.determinants(extents(a).1);
    write(&value, result)?;
    factors.write(lu, pivots)
}

/// `_linalg_slogdet`.
pub(crate) fn slogdet(a: &Tensor, sign: &Tensor, logabsdet: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<()> {
    let factors = Factors::of(a)?;
    let [signs, logs, _] = factors.determinants(extents(a).1);
    write(&signs, sign)?;
    write(&logs, logabsdet)?;
    factors.write(lu, pivots)
}

/// Numbers of a tensor whose leading dimensions are broadcast to those of `batch`.
fn spread(t: &Tensor, batch: &[usize], own: usize) -> Result<Vec<f64>> {
    let sizes: Vec<usize> = batch.iter().chain(&t.shape()[t.ndim() - own..]).copied().collect();
    t.alias_with(expanded(t, &sizes)?).try_to_vec()
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
    let n = extents(a).1;
    let factors = Factors::of(&transposed_if(!left, a)?)?;
    if check_errors {
        check("linalg_solve", &factors.info, a.ndim() > 2, singular)?;
    }
    let columns = |t: &Tensor| -> Result<Tensor> {
        let matrices = if is_vector(a.shape(), b.shape()) { t.alias_with(view::unsqueeze(t, -1)?) } else { t.clone() };
        transposed_if(!left, &matrices)
    };
    let (b, result) = (columns(b)?, columns(result)?);
    let batch = &result.shape()[..result.ndim() - 2];
    let own = &a.shape()[..a.ndim() - 2];
    let per_matrix = |numbers: &[f64], sizes: &[usize]| -> Result<Vec<f64>> {
        spread(&Tensor::try_from_slice(numbers, [own, sizes].concat())?, batch, sizes.len())
    };
    let (all_lu, all_pivots) = (per_matrix(&factors.lu, &[n, n])?, per_matrix(&factors.pivots, &[n])?);
    let mut x = spread(&b, batch, 2)?;
    let (count, _, k) = extents(&result);
    batched(count, [(&all_lu, n * n), (&all_pivots, n)], [(&mut x, n * k)], |[lu, pivots], [x]| {
        kernel::solve_factored(lu, pivots, n, x, k);
        0
    });
    write(&x, &result)?;
    factors.write(lu, pivots)?;
    write(&factors.info, info)
}

/// `linalg_cholesky_ex`.
pub(crate) fn cholesky_ex(a: &Tensor, upper: bool, check_errors: bool, l: &Tensor, info: &Tensor) -> Result<()> {
    let ((count, n, _), from) = (extents(a), transposed_if(upper, a)?.try_to_vec()?);
    let mut to = vec![0.0; from.len()];
    let found = batched(count, [(&from, n * n)], [(&mut to, n * n)], |[a], [l]| kernel::cholesky(a, n, l));
    if check_errors {
        check("linalg_cholesky", &found, a.ndim() > 2, |order| {
            format!("the matrix is not positive-definite: its leading minor of order {order} is not positive")
        })?;
    }
    write(&to, &transposed_if(upper, l)?)?;
    write(&found, info)
}

/// `linalg_qr`.
pub(crate) fn qr(a: &Tensor, _mode: &str, q: &Tensor, r: &Tensor) -> Result<()> {
    let ((count, m, n), from) = (extents(a), a.try_to_vec()?);
    let (mut to_q, mut to_r) = (vec![0.0; q.numel()], vec![0.0; r.numel()]);
    let (each_q, each_r) = (to_q.len() / count.max(1), to_r.len() / count.max(1));
    batched(count, [(&from, m * n)], [(&mut to_q, each_q), (&mut to_r, each_r)], |[a], [q, r]| {
        kernel::qr(a, m, n, q, r);
        0
    });
    write(&to_q, q)?;
    write(&to_r, r)
}

/// `_linalg_eigh`.
pub(crate) fn eigh(a: &Tensor, uplo: &str, _compute_v: bool, values: &Tensor, vectors: &Tensor) -> Result<()> {
    let upper = uplo.eq_ignore_ascii_case("u");
    let ((count, n, _), from) = (extents(a), transposed_if(upper, a)?.try_to_vec()?);
    let (mut to, mut turned) = (vec![0.0; values.numel()], vec![0.0; vectors.numel()]);
    let each = turned.len() / count.max(1);
    let info = batched(count, [(&from, n * n)], [(&mut to, n), (&mut turned, each)], |[a], [values, vectors]| {
        kernel::eigh(a, n, values, vectors)
    });
    check("linalg_eigh", &info, a.ndim() > 2, |left| {
        format!("the iteration did not converge: {left} eigenvalues are missing; is the matrix badly scaled?")
    })?;
    write(&to, values)?;
    write(&turned, vectors)
}

/// `_linalg_svd`.
pub(crate) fn svd(
    a: &Tensor,
    _full_matrices: bool,
    _compute_uv: bool,
    _driver: Option<&str>,
    u: &Tensor,
    s: &Tensor,
    vh: &Tensor,
) -> Result<()> {
    let ((count, m, n), from) = (extents(a), a.try_to_vec()?);
    let (mut to_u, mut to_s, mut to_v) = (vec![0.0; u.numel()], vec![0.0; s.numel()], vec![0.0; vh.numel()]);
    let [each_u, each_s, each_v] = [&to_u, &to_s, &to_v].map(|x| x.len() / count.max(1));
    let targets = [(&mut to_u[..], each_u), (&mut to_s[..], each_s), (&mut to_v[..], each_v)];
    let info = batched(count, [(&from, m * n)], targets, |[a], [u, s, vh]| kernel::svd(a, m, n, u, s, vh));
    check("linalg_svd", &info, a.ndim() > 2, |_| {
        "the iteration did not converge; does the matrix hold numbers that are not finite?".to_string()
    })?;
    write(&to_u, u)?;
    write(&to_s, s)?;
    write(&to_v, vh)
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
    let batch = shape::linalg::systems("linalg_solve_triangular", a, b, left)?;
    let from = spread(&transposed_if(!left, a)?, &batch, 2)?;
    let mut x = spread(&transposed_if(!left, b)?, &batch, 2)?;
    let target = transposed_if(!left, out)?;
    let ((count, n, k), triangle) = (extents(&target), Triangle { upper: upper == left, unit: unitriangular });
    batched(count, [(&from, n * n)], [(&mut x, n * k)], |[a], [x]| {
        kernel::solve_triangular(a, n, triangle, x, k);
        0
    });
    write(&x, &target)
}
