//! Reductions that are built of other ops.

use crate::ops::formulas::cast;
use crate::ops::shape::wrap_dim;
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

fn bessel(unbiased: bool) -> Option<Scalar> {
    Some(Scalar::Int(unbiased.into()))
}

pub(crate) fn var(t: &Tensor, unbiased: bool) -> Result<Tensor> {
    ops::var_correction(t, None, bessel(unbiased), false)
}

pub(crate) fn var_dim(t: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool) -> Result<Tensor> {
    ops::var_correction(t, dim, bessel(unbiased), keepdim)
}

pub(crate) fn std(t: &Tensor, unbiased: bool) -> Result<Tensor> {
    ops::std_correction(t, None, bessel(unbiased), false)
}

pub(crate) fn std_dim(t: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool) -> Result<Tensor> {
    ops::std_correction(t, dim, bessel(unbiased), keepdim)
}

pub(crate) fn var_mean(t: &Tensor, unbiased: bool) -> Result<(Tensor, Tensor)> {
    ops::var_mean_correction(t, None, bessel(unbiased), false)
}

pub(crate) fn var_mean_dim(t: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool) -> Result<(Tensor, Tensor)> {
    ops::var_mean_correction(t, dim, bessel(unbiased), keepdim)
}

pub(crate) fn std_mean(t: &Tensor, unbiased: bool) -> Result<(Tensor, Tensor)> {
    ops::std_mean_correction(t, None, bessel(unbiased), false)
}

pub(crate) fn std_mean_dim(t: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool) -> Result<(Tensor, Tensor)> {
    ops::std_mean_correction(t, dim, bessel(unbiased), keepdim)
}

/// The mean of what is not NaN.
pub(crate) fn nanmean(t: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    if !t.is_floating_point() {
        return Err(Error::argument("nanmean", format!("expected a floating point dtype, found {}", t.dtype())));
    }
    let numbers = ops::eq(t, t)?;
    let count = ops::sum_dim(&numbers, dim, keepdim, None)?;
    ops::div(&ops::nansum(t, dim, keepdim, dtype)?, &count)
}

/// Differences of neighbors, `n` times.
pub(crate) fn diff(t: &Tensor, n: i64, dim: i64, prepend: Option<&Tensor>, append: Option<&Tensor>) -> Result<Tensor> {
    const OP: &str = "diff";
    if t.ndim() == 0 {
        return Err(Error::argument(OP, "expected a tensor with at least one dimension"));
    }
    if n < 0 {
        return Err(Error::argument(OP, format!("the order must not be negative, found {n}")));
    }
    let d = wrap_dim(OP, dim, t.ndim())?;
    let dim = d as i64;
    let joined: Vec<Tensor> = [prepend, Some(t), append].into_iter().flatten().cloned().collect();
    if let Some(x) = joined.iter().find(|x| x.ndim() != t.ndim()) {
        let m = format!("prepend and append must have {} dimensions, found {}", t.ndim(), x.ndim());
        return Err(Error::argument(OP, m));
    }
    let mut out = if joined.len() > 1 { ops::cat(&joined, dim)? } else { t.clone() };
    let size = out.shape()[d];
    let n = (n as usize).min(size);
    if n == size {
        // Nothing is left after the last difference, whatever came before.
        let empty = ops::slice(&out, dim, Some(SymInt::from(0)), Some(SymInt::from(0)), SymInt::from(1))?;
        return ops::clone(&empty, None);
    }
    const HIGHEST: usize = 1 << 16;
    if n > HIGHEST {
        return Err(Error::argument(OP, format!("differences of order {n}; at most {HIGHEST} are taken")));
    }
    for _ in 0..n {
        let size = out.shape()[d];
        let part = |from: usize, to: usize| {
            ops::slice(&out, dim, Some(SymInt::from(from)), Some(SymInt::from(to)), SymInt::from(1))
        };
        let (low, high) = (part(0, size.saturating_sub(1))?, part(1.min(size), size)?);
        out = if out.dtype() == DType::Bool { ops::ne(&high, &low)? } else { ops::sub(&high, &low, Scalar::Int(1))? };
    }
    Ok(if n == 0 { ops::clone(&out, None)? } else { out })
}

/// The covariance of variables (rows) over observations (columns).
pub(crate) fn cov(t: &Tensor, correction: i64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
    const OP: &str = "cov";
    if t.ndim() > 2 || t.dtype() == DType::Bool {
        let m = format!("expected values in at most 2 dimensions, found {} {:?}", t.dtype(), t.shape());
        return Err(Error::argument(OP, m));
    }
    let x = if t.ndim() < 2 { ops::reshape(t, &[SymInt::from(1), SymInt::from(-1)])? } else { t.clone() };
    let n = x.shape()[1];
    for w in [fweights, aweights].into_iter().flatten() {
        if w.shape() != [n] {
            let m = format!("expected one weight for each of {n} observations, found shape {:?}", w.shape());
            return Err(Error::argument(OP, m));
        }
    }
    let x = if x.is_floating_point() { x } else { cast(&x, crate::dtype::default_dtype())? };
    let weights = match (fweights, aweights) {
        (Some(f), Some(a)) => Some(ops::mul(f, a)?),
        (f, a) => f.or(a).cloned(),
    };
    let total = match &weights {
        Some(w) => ops::sum(w, None)?,
        None => Tensor::wrapped_number(Scalar::Int(n as i64))?,
    };
    let weighted = |x: &Tensor| weights.as_ref().map_or_else(|| Ok(x.clone()), |w| ops::mul(x, w));
    let mean = ops::div(&ops::sum_dim(&weighted(&x)?, Some(&[1]), true, None)?, &total)?;
    let c = Scalar::Int(correction);
    let freedom = match (&weights, aweights) {
        (Some(w), Some(a)) if correction != 0 => {
            let mean_weight = ops::div(&ops::sum(&ops::mul(w, a)?, None)?, &total)?;
            ops::sub(&total, &ops::mul_scalar(&mean_weight, c)?, Scalar::Int(1))?
        }
        _ => ops::sub(&total, &Tensor::wrapped_number(c)?, Scalar::Int(1))?,
    };
    let freedom = ops::relu(&freedom)?;
    let centred = ops::sub(&x, &mean, Scalar::Int(1))?;
    let products = ops::mm(&centred, &ops::t(&weighted(&centred)?)?)?;
    let out = ops::div(&products, &freedom)?;
    if t.ndim() < 2 { ops::squeeze(&out) } else { Ok(out) }
}

/// The mean of each two neighbors along a dimension, times their distance.
fn trapezoids(op: &'static str, y: &Tensor, x: Option<&Tensor>, dx: Scalar, dim: i64) -> Result<Tensor> {
    if y.ndim() == 0 {
        return Err(Error::argument(op, "expected a tensor with at least one dimension"));
    }
    let d = wrap_dim(op, dim, y.ndim())?;
    let n = y.shape()[d];
    let part =
        |t: &Tensor, dim: i64, from: usize, to: usize| ops::slice(t, dim, Some(from.into()), Some(to.into()), 1.into());
    let low = part(y, d as i64, 0, n.saturating_sub(1))?;
    let sums = ops::add(&low, &part(y, d as i64, n.min(1), n)?, Scalar::Int(1))?;
    let Some(x) = x else { return ops::mul_scalar(&sums, Scalar::Float(dx.to_f64() / 2.0)) };
    // A vector of places belongs to the dimension; anything else broadcasts with y.
    let (places, along) =
        if x.ndim() == 1 { (x.clone(), 0) } else { (x.clone(), x.ndim() as i64 - (y.ndim() - d) as i64) };
    if along < 0 || places.shape()[along as usize] != n {
        let m = format!("places of shape {:?} do not fit values of shape {:?}", x.shape(), y.shape());
        return Err(Error::argument(op, m));
    }
    let mut steps =
        ops::sub(&part(&places, along, n.min(1), n)?, &part(&places, along, 0, n.saturating_sub(1))?, Scalar::Int(1))?;
    if x.ndim() == 1 {
        for _ in d + 1..y.ndim() {
            steps = ops::unsqueeze(&steps, -1)?;
        }
    }
    ops::div_scalar(&ops::mul(&sums, &steps)?, Scalar::Int(2))
}

pub(crate) fn trapezoid_x(y: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    ops::sum_dim(&trapezoids("trapezoid", y, Some(x), Scalar::Int(1), dim)?, Some(&[dim]), false, None)
}

pub(crate) fn trapezoid_dx(y: &Tensor, dx: Scalar, dim: i64) -> Result<Tensor> {
    ops::sum_dim(&trapezoids("trapezoid", y, None, dx, dim)?, Some(&[dim]), false, None)
}

pub(crate) fn trapz_dx(y: &Tensor, dx: f64, dim: i64) -> Result<Tensor> {
    trapezoid_dx(y, Scalar::Float(dx), dim)
}

pub(crate) fn cumulative_trapezoid_x(y: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    ops::cumsum(&trapezoids("cumulative_trapezoid", y, Some(x), Scalar::Int(1), dim)?, dim, None)
}

pub(crate) fn cumulative_trapezoid_dx(y: &Tensor, dx: Scalar, dim: i64) -> Result<Tensor> {
    ops::cumsum(&trapezoids("cumulative_trapezoid", y, None, dx, dim)?, dim, None)
}

/// Correlations of rows.
pub(crate) fn corrcoef(t: &Tensor) -> Result<Tensor> {
    let c = ops::cov(t, 1, None, None)?;
    if c.ndim() == 0 {
        return ops::div(&c, &c);
    }
    let d = ops::sqrt(&ops::diagonal(&c, 0, 0, 1)?)?;
    ops::div(&ops::div(&c, &ops::unsqueeze(&d, 1)?)?, &ops::unsqueeze(&d, 0)?)
}
