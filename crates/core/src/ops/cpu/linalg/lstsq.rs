//! Least squares of every matrix of a batch, and pseudo-inverses.

use super::*;
use crate::{DType, Spec};
use firebrand_kernels::linalg::{self as kernel, Cutoff, Number, batched};

const OP: &str = "linalg_lstsq";

/// A tensor without elements, in the place of a result that a driver does not compute.
fn nothing(like: &Tensor, dtype: DType) -> Result<Tensor> {
    Tensor::try_empty(Spec::new(&[0], dtype, like.device())?)
}

/// `linalg_lstsq`.
pub(crate) fn lstsq(
    a: &Tensor,
    b: &Tensor,
    rcond: Option<f64>,
    driver: Option<&str>,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let (batch, vector) = shape::linalg::least_squares(OP, a, b)?;
    let driver = driver.unwrap_or("gelsy");
    if !matches!(driver, "gels" | "gelsy" | "gelsd" | "gelss") {
        let m = format!("the driver must be 'gels', 'gelsy', 'gelsd' or 'gelss', found {driver:?}");
        return Err(Error::argument(OP, m));
    }
    need_library(OP, a.is_complex() && driver != "gels")?;
    let (own, (_, m, n)) = (&a.shape()[..a.ndim() - 2], extents(a));
    let b = if vector { b.alias_with(view::unsqueeze(b, -1)?) } else { b.clone() };
    let k = extents(&b).2;
    let real = a.dtype().to_real();
    let make = |lead: &[usize], sizes: &[usize], dtype: DType| {
        Tensor::try_empty(Spec::new(&[lead, sizes].concat(), dtype, a.device())?)
    };
    let solution = make(&batch, &[n, k], a.dtype())?;
    let values = matches!(driver, "gelsd" | "gelss");
    let singular_values = if values { make(own, &[m.min(n)], real)? } else { nothing(a, real)? };
    let rank = if driver == "gels" { nothing(a, DType::I64)? } else { make(own, &[], DType::I64)? };
    let mut residuals = if m > n && driver != "gelsy" { make(&batch, &[k], real)? } else { nothing(a, real)? };
    if !a.is_meta() {
        let found = solve(a, &b, &batch, rcond, driver, &solution, &residuals, &singular_values)?;
        if driver != "gels" {
            write(&found, &rank)?;
            // Of a matrix without full rank there are none.
            if found.iter().any(|r| *r as usize != n) {
                residuals = nothing(a, real)?;
            }
        }
    }
    let solution = if vector { solution.alias_with(view::squeeze_dim(&solution, -1)?) } else { solution };
    Ok((solution, residuals, rank, singular_values))
}

/// Writes everything but the ranks, which it returns for each matrix.
fn solve(
    a: &Tensor,
    b: &Tensor,
    batch: &[usize],
    rcond: Option<f64>,
    driver: &str,
    solution: &Tensor,
    residuals: &Tensor,
    singular_values: &Tensor,
) -> Result<Scratch<i64>> {
    with_number!(a.dtype(), T => {
        let ((_, m, n), k) = (extents(a), extents(b).2);
        let precision = if a.dtype().to_real() == DType::F32 { f32::EPSILON as f64 } else { f64::EPSILON };
        let rcond = rcond.unwrap_or(precision * m.max(n) as f64);
        let (from, sides) = (spread::<T>(a, batch)?, spread::<T>(b, batch)?);
        let own = &a.shape()[..a.ndim() - 2];
        let (count, sources) = (batch.iter().product(), sources(own, batch)?);
        let (mut x, mut s) = (zeros::<T>(count * n * k)?, zeros::<f64>(count * m.min(n))?);
        let (values, assume) = (matches!(driver, "gelsd" | "gelss"), driver == "gels");
        let info = batched(
            count,
            [(&from, m * n), (&sides, m * k)],
            [(&mut x, n * k)],
            [(&mut s, m.min(n))],
            |_, [a, b], [x], [s]| {
                let rank = kernel::least_squares(a, b, (m, n, k), x, values.then_some(s), rcond, assume);
                rank.map_or(-1, |rank| rank as i32)
            },
        );
        check(OP, &lists::collected(count, info.iter().map(|r| (*r).min(0)))?, !batch.is_empty(), |_| {
            let why = match assume {
                true => "the matrix does not have full rank; use the driver 'gelsd'",
                false => "singular values did not converge; does the matrix contain non-finite values?",
            };
            why.to_string()
        })?;
        write_columns(&x, solution)?;
        if residuals.ndim() > 1 || residuals.numel() > 0 {
            write(&remainders(&from, &sides, &x, (m, n, k), count)?, residuals)?;
        }
        // A matrix that is broadcast answers once.
        let items = own.iter().product();
        let (mut ranks, mut spectra) = (zeros::<i64>(items)?, zeros::<f64>(items * m.min(n))?);
        for (item, source) in sources.iter().enumerate() {
            ranks[*source] = info[item].into();
            let each = m.min(n);
            spectra[source * each..(source + 1) * each].copy_from_slice(&s[item * each..(item + 1) * each]);
        }
        if values {
            write(&spectra, singular_values)?;
        }
        Ok(ranks)
    })
}

/// The sums of squares of `A X - B`, for each column.
fn remainders<T: Number>(
    a: &[T],
    b: &[T],
    x: &[T],
    (m, n, k): (usize, usize, usize),
    count: usize,
) -> Result<Scratch<f64>> {
    let (mut out, mut left) = (zeros::<f64>(count * k)?, zeros::<T>(m)?);
    for (c, out) in out.iter_mut().enumerate() {
        let i = c / k;
        left.copy_from_slice(&b[c * m..(c + 1) * m]);
        for j in 0..n {
            let by = x[c * n + j];
            let column = &a[(i * n + j) * m..(i * n + j + 1) * m];
            left.iter_mut().zip(column).for_each(|(l, a)| *l = *l - *a * by);
        }
        *out = left.iter().map(|l| l.size().powi(2)).sum();
    }
    Ok(out)
}

/// `linalg_pinv.atol_rtol_tensor`.
pub(crate) fn pinv(
    a: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
    hermitian: bool,
    out: &Tensor,
) -> Result<()> {
    need_library("linalg_pinv", a.is_complex())?;
    with_number!(a.dtype(), T => {
        let ((count, m, n), mut from) = (extents(a), columns::<T>(a)?);
        if hermitian {
            real_diagonals(&mut from, n);
        }
        let batch = &a.shape()[..a.ndim() - 2];
        let precision = if a.dtype().to_real() == DType::F32 { f32::EPSILON as f64 } else { f64::EPSILON };
        let each = |t: Option<&Tensor>| {
            t.map(|t| rows::<f64>(&t.alias_with(expanded(t, batch)?))).transpose()
        };
        let (absolute, relative) = (each(atol)?, each(rtol)?);
        let mut to = zeros::<T>(out.numel())?;
        let info = batched::<T, T, 1, 1, 0>(count, [(&from, m * n)], [(&mut to, n * m)], [], |i, [a], [out], []| {
            let absolute = absolute.as_ref().map(|t| t[i]);
            // An absolute limit alone stands for itself.
            let default = if absolute.is_some_and(|t| t > 0.0) { 0.0 } else { precision * m.max(n) as f64 };
            let relative = relative.as_ref().map_or(default, |t| t[i]);
            let cutoff = Cutoff { absolute: absolute.unwrap_or(0.0), relative };
            kernel::pseudo_inverse(a, (m, n), cutoff, hermitian, out)
        });
        check("linalg_pinv", &info, a.ndim() > 2, |_| {
            "singular values did not converge; does the matrix contain non-finite values?".to_string()
        })?;
        write_columns(&to, out)
    })
}
