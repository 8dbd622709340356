//! Reductions that are composed of other ops.

use crate::limits::as_size;
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
    if n == 0 {
        return ops::clone(t, None); // nothing is joined then
    }
    let joined: Vec<Tensor> = [prepend, Some(t), append].into_iter().flatten().cloned().collect();
    if let Some(x) = joined.iter().find(|x| x.ndim() != t.ndim()) {
        let m = format!("prepend and append must have {} dimensions, found {}", t.ndim(), x.ndim());
        return Err(Error::argument(OP, m));
    }
    let mut out = if joined.len() > 1 { ops::cat(&joined, dim)? } else { t.clone() };
    let size = out.shape()[d];
    let n = as_size(n).min(size);
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
    Ok(out)
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
    let kinds = fweights.is_none_or(|w| w.dtype().is_integer()) && aweights.is_none_or(Tensor::is_floating_point);
    if !kinds {
        return Err(Error::argument(OP, "expected integers as fweights and floats as aweights"));
    }
    for w in [fweights, aweights].into_iter().flatten().filter(|w| !w.is_meta()) {
        if ops::any(&ops::lt_scalar(&ops::detach(w)?, Scalar::Int(0))?)?.try_item::<bool>()? {
            return Err(Error::argument(OP, "expected weights of at least 0, found a negative one"));
        }
    }
    let x = if x.is_floating_point() { x } else { cast(&x, crate::dtype::default_dtype())? };
    let weights = match (fweights, aweights) {
        (Some(f), Some(a)) => Some(ops::mul(f, a)?),
        (f, a) => f.or(a).cloned(),
    };
    let total = match &weights {
        Some(w) => ops::sum(w, None)?,
        None => Tensor::try_wrapped_number(Scalar::Int(n as i64))?,
    };
    let weighted = |x: &Tensor| weights.as_ref().map_or_else(|| Ok(x.clone()), |w| ops::mul(x, w));
    let mean = ops::div(&ops::sum_dim(&weighted(&x)?, Some(&[1]), true, None)?, &total)?;
    let c = Scalar::Int(correction);
    let freedom = match (&weights, aweights) {
        (Some(w), Some(a)) if correction != 0 => {
            let mean_weight = ops::div(&ops::sum(&ops::mul(w, a)?, None)?, &total)?;
            ops::sub(&total, &ops::mul_scalar(&mean_weight, c)?, Scalar::Int(1))?
        }
        _ => ops::sub(&total, &Tensor::try_wrapped_number(c)?, Scalar::Int(1))?,
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

// ---- norms under other names

/// `norm.ScalarOpt_dtype`: all elements, in another dtype.
pub(crate) fn norm_dtype(self_: &Tensor, p: Option<Scalar>, dtype: DType) -> Result<Tensor> {
    ops::linalg_vector_norm(self_, p.unwrap_or(Scalar::Int(2)), None, false, Some(dtype))
}

/// `norm.ScalarOpt_dim_dtype`.
pub(crate) fn norm_dim_dtype(
    self_: &Tensor,
    p: Option<Scalar>,
    dim: &[i64],
    keepdim: bool,
    dtype: DType,
) -> Result<Tensor> {
    let dim = Some(dim).filter(|dim| !dim.is_empty());
    ops::linalg_vector_norm(self_, p.unwrap_or(Scalar::Int(2)), dim, keepdim, Some(dtype))
}

pub(crate) fn frobenius_norm(self_: &Tensor, dim: &[i64], keepdim: bool) -> Result<Tensor> {
    if dim.len() > 2 {
        let m = format!("expected at most two dimensions, found {dim:?}");
        return Err(Error::argument("frobenius_norm", m));
    }
    let dim = Some(dim).filter(|dim| !dim.is_empty());
    ops::linalg_vector_norm(self_, Scalar::Int(2), dim, keepdim, None)
}

pub(crate) fn nuclear_norm(self_: &Tensor, keepdim: bool) -> Result<Tensor> {
    ops::linalg_matrix_norm(self_, "nuc", &[0, 1], keepdim, None)
}

pub(crate) fn nuclear_norm_dim(self_: &Tensor, dim: &[i64], keepdim: bool) -> Result<Tensor> {
    ops::linalg_matrix_norm(self_, "nuc", dim, keepdim, None)
}

/// Norms of all that shares an index of one dimension; of everything for dimension -1.
pub(crate) fn norm_except_dim(v: &Tensor, pow: i64, dim: i64) -> Result<Tensor> {
    const OP: &str = "norm_except_dim";
    let p = Scalar::Int(pow);
    if dim == -1 {
        return ops::linalg_vector_norm(v, p, None, false, None);
    }
    let d = usize::try_from(dim).ok().filter(|d| *d < v.ndim());
    let Some(d) = d else {
        return Err(Error::argument(OP, format!("expected a dimension of shape {:?} or -1, found {dim}", v.shape())));
    };
    let others: Vec<i64> = (0..v.ndim()).filter(|k| *k != d).map(|k| k as i64).collect();
    match others.is_empty() {
        true => ops::abs(v),
        false => ops::linalg_vector_norm(v, p, Some(&others), true, None),
    }
}

/// The sum of the powers of magnitudes: a norm without its root.
pub(crate) fn powsum(
    self_: &Tensor,
    ord: Scalar,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let wide = dtype.map_or_else(|| Ok(self_.clone()), |d| ops::formulas::cast(self_, d))?;
    let powers = ops::pow_scalar(&ops::abs(&wide)?, ord)?;
    ops::sum_dim(&powers, dim, keepdim, None)
}

/// The norm of each tensor of a list.
pub(crate) fn foreach_norm(tensors: &[Tensor], ord: Scalar, dtype: Option<DType>) -> Result<Vec<Tensor>> {
    need_tensors("_foreach_norm", tensors)?;
    tensors.iter().map(|t| ops::linalg_vector_norm(t, ord, None, false, dtype)).collect()
}

pub(crate) fn foreach_powsum(tensors: &[Tensor], ord: Scalar, dtype: Option<DType>) -> Result<Vec<Tensor>> {
    need_tensors("_foreach_powsum", tensors)?;
    tensors.iter().map(|t| powsum(t, ord, None, false, dtype)).collect()
}

fn need_tensors(op: &'static str, tensors: &[Tensor]) -> Result<()> {
    match tensors.is_empty() {
        true => Err(Error::argument(op, "expected at least one tensor")),
        false => Ok(()),
    }
}

pub(crate) fn aminmax_all(self_: &Tensor) -> Result<(Tensor, Tensor)> {
    ops::aminmax(self_, None, false)
}

pub(crate) fn aminmax_dim(self_: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    ops::aminmax(self_, Some(dim), keepdim)
}

/// Whether all elements of a bool tensor are true.
pub(crate) fn is_all_true(self_: &Tensor) -> Result<Tensor> {
    need_bool("_is_all_true", self_)?;
    ops::all(self_)
}

/// Whether any element of a bool tensor is true.
pub(crate) fn is_any_true(self_: &Tensor) -> Result<Tensor> {
    need_bool("_is_any_true", self_)?;
    ops::any(self_)
}

fn need_bool(op: &'static str, t: &Tensor) -> Result<()> {
    match t.dtype() {
        DType::Bool => Ok(()),
        found => Err(Error::argument(op, format!("expected a bool tensor, found {found}"))),
    }
}
