//! Linear algebra: tensors to column-major matrices and back, and the errors of matrices that cannot be decomposed.
//!
//! f32 and f64 are computed in their own precision, complex numbers in f64. Errors come before anything is written.

mod exp;
mod lstsq;
mod spectral;
mod systems;

pub(crate) use exp::matrix_exp;
pub(crate) use lstsq::{lstsq, pinv};
pub(crate) use spectral::{eig, eigh, eigvals, geqrf, householder_product, ormqr, qr, svd};
pub(crate) use systems::{
    cholesky_ex, det, inv_ex, ldl_factor_ex, ldl_solve, lu, lu_factor_ex, lu_solve, lu_unpack, slogdet, solve_ex,
    solve_triangular,
};

use crate::ops::lists;
use crate::ops::shape::{self, expanded, view};
use crate::{Error, ErrorKind, Result, Scalar, Tensor, ops};
use firebrand_kernels::linalg::{LIBRARY, Number};
use firebrand_kernels::scratch::Scratch;
use firebrand_kernels::{Element, read_slice, write_slice};

/// Runs `$body` with `$t` standing for the type that matrices of a dtype are decomposed in.
macro_rules! with_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            crate::DType::F32 => {
                type $t = f32;
                $body
            }
            crate::DType::C64 | crate::DType::C128 => {
                type $t = firebrand_kernels::Complex<f64>;
                $body
            }
            _ => {
                type $t = f64;
                $body
            }
        }
    };
}
use with_number;

/// The last two dimensions exchanged.
fn transposed(t: &Tensor) -> Result<Tensor> {
    Ok(t.alias_with(view::transpose(t, -2, -1)?))
}

fn transposed_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { transposed(t) } else { Ok(t.clone()) }
}

/// Drops the imaginary parts on the diagonals of square matrices: of Hermitian ones they are zero, and LAPACK does not read them.
fn real_diagonals<T: Number>(matrices: &mut [T], n: usize) {
    if T::COMPLEX && n > 0 {
        let diagonals = matrices.chunks_exact_mut(n * n).flat_map(|a| a.iter_mut().step_by(n + 1));
        diagonals.for_each(|x| *x = T::real(x.re()));
    }
}

/// Number of matrices, rows and columns.
fn extents(t: &Tensor) -> (usize, usize, usize) {
    let [batch @ .., m, n] = t.shape() else { return (0, 0, 0) };
    (batch.iter().product(), *m, *n)
}

/// The elements, row by row.
fn rows<T: Element>(t: &Tensor) -> Result<Scratch<T>> {
    let mut out = Scratch::try_new(t.numel())?;
    read_slice(t.read()?.view(), &mut out);
    Ok(out)
}

/// The elements of each matrix, column by column.
fn columns<T: Element>(t: &Tensor) -> Result<Scratch<T>> {
    rows(&transposed(t)?)
}

/// The same of a tensor whose leading dimensions are broadcast.
fn spread<T: Element>(t: &Tensor, batch: &[usize]) -> Result<Scratch<T>> {
    let sizes: Vec<usize> = batch.iter().chain(&t.shape()[t.ndim() - 2..]).copied().collect();
    columns(&t.alias_with(expanded(t, &sizes)?))
}

/// Stores numbers row by row, rounded to the result's dtype.
fn write<T: Element>(numbers: &[T], out: &Tensor) -> Result<()> {
    write_slice(numbers, out.write()?.view_mut());
    Ok(())
}

/// Stores matrices given column by column.
fn write_columns<T: Element>(numbers: &[T], out: &Tensor) -> Result<()> {
    write(numbers, &transposed(out)?)
}

fn zeros<T: Element + Default>(n: usize) -> Result<Scratch<T>> {
    let mut out = Scratch::try_new(n)?;
    out.fill(T::default());
    Ok(out)
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

/// Refuses what has no plain loops in a build without the library.
fn need_library(op: &'static str, needed: bool) -> Result<()> {
    match LIBRARY || !needed {
        true => Ok(()),
        false => Err(Error::argument(op, "this build has no such decomposition; build with the feature `linalg`")),
    }
}

/// For each item of `batch`, which item of a batch of sizes `own` it is broadcast from.
fn sources(own: &[usize], batch: &[usize]) -> Result<Vec<usize>> {
    let count = batch.iter().product();
    let lead = batch.len() - own.len();
    let source = |mut item: usize| {
        let (mut from, mut step) = (0, 1);
        for (d, size) in batch.iter().enumerate().rev() {
            let place = item % size;
            item /= size;
            if let Some(&mine) = d.checked_sub(lead).map(|d| &own[d]) {
                from += if mine == 1 { 0 } else { place * step };
                step *= mine;
            }
        }
        from
    };
    lists::collected(count, (0..count).map(source))
}

/// `linalg_matrix_sqrth`: the root of a Hermitian matrix, of which the lower half is read. Negative eigenvalues count as zero.
pub(crate) fn matrix_sqrth(a: &Tensor) -> Result<Tensor> {
    let _plain = crate::autograd::NoGrad::new();
    let (values, vectors) = ops::_linalg_eigh(a, "L", true)?;
    let roots = ops::sqrt(&ops::clamp_min(&values, Scalar::Int(0))?)?;
    let scaled = ops::mul(&vectors, &ops::unsqueeze(&roots, -2)?)?;
    ops::matmul(&scaled, &ops::adjoint(&vectors)?)
}

/// `linalg_polar`: a matrix with orthonormal columns times a positive one.
pub(crate) fn polar(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let _plain = crate::autograd::NoGrad::new();
    if a.ndim() < 2 || a.shape()[a.ndim() - 2] < a.shape()[a.ndim() - 1] {
        let m = format!("expected matrices with at least as many rows as columns, found shape {:?}", a.shape());
        return Err(Error::argument("linalg_polar", m));
    }
    let (w, s, vh) = ops::_linalg_svd(a, false, true, None)?;
    let v = ops::adjoint(&vh)?;
    let h = ops::matmul(&ops::mul(&v, &ops::unsqueeze(&s, -2)?)?, &vh)?;
    Ok((ops::matmul(&w, &vh)?, h))
}

/// Fails for factorizations that failed.
pub(crate) fn linalg_check_errors(info: &Tensor, api_name: &str, _is_matrix: bool) -> Result<()> {
    if info.is_meta() || info.numel() == 0 {
        return Ok(());
    }
    match info.try_detach()?.try_to_dtype(crate::DType::I64)?.try_to_vec::<i64>()?.into_iter().find(|i| *i != 0) {
        None => Ok(()),
        Some(found) => Err(Error::argument(
            "_linalg_check_errors",
            format!(
                "{api_name}: expected factorizations that succeeded, found one with info {found}; is the matrix singular?"
            ),
        )),
    }
}
