//! Reductions and scans: which fold, over which dimensions, into which memory.

use super::complex::{part, parts};
use super::fused::Fused;
use super::pointwise::{binary_op, unary_op};
use crate::layout::{Dims, Layout};
use crate::limits::as_size;
use crate::ops::lists;
use crate::ops::shape::{wrap_dim, wrap_dims};
use crate::{DType, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::pointwise::Op;
use firebrand_kernels::reduce::{self as kernel, ArgReduce, Reduce};
use firebrand_kernels::scan::{Scan, ScanExtreme, scan as scan_lines, scan_extreme};
use firebrand_kernels::{Element, copy, read_slice};

/// Sizes and strides of a result with the reduced dimensions put back as dimensions of size 1.
fn kept(out: &Tensor, dims: &[usize], ndim: usize) -> (Dims, Dims) {
    if out.ndim() == ndim {
        return (Dims::from_slice(out.shape()), Dims::from_slice(out.strides()));
    }
    let (mut sizes, mut strides) = (Dims::new(), Dims::new());
    let mut own = out.shape().iter().zip(out.strides());
    for k in 0..ndim {
        let (n, s) = if dims.contains(&k) { (1, 1) } else { own.next().map_or((1, 1), |(&n, &s)| (n, s)) };
        sizes.push(n);
        strides.push(s);
    }
    (sizes, strides)
}

fn fold(op: Reduce, t: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    if t.is_complex() || out.is_complex() {
        return fold_complex(op, t, dims, out);
    }
    let (sizes, strides) = kept(out, dims, t.ndim());
    kernel::reduce(op, t.read()?.view(), dims, out.write()?.view_mut_as(&sizes, &strides));
    Ok(())
}

/// Complex numbers: sums part by part, norms of magnitudes, truths of "not zero", products by halves.
fn fold_complex(op: Reduce, t: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    match op {
        Reduce::Sum | Reduce::Mean => fold(op, &parts(&converted(t, out.dtype())?)?, dims, &parts(out)?),
        Reduce::Any | Reduce::All => fold(op, &converted(t, DType::Bool)?, dims, out),
        Reduce::Norm(_) => {
            let magnitudes = Tensor::try_empty(Spec::new(t.shape(), t.dtype().to_real(), t.device())?)?;
            super::pointwise::abs(t, &magnitudes)?;
            fold(op, &magnitudes, dims, out)
        }
        _ => super::complex::prod(&converted(t, out.dtype())?, dims, out),
    }
}

fn every_dim(t: &Tensor) -> Dims {
    (0..t.ndim()).collect()
}

fn over(op: Reduce, t: &Tensor, dim: Option<&[i64]>, out: &Tensor) -> Result<()> {
    fold(op, t, &wrap_dims("reduce", dim.unwrap_or(&[]), t.ndim())?, out)
}

/// A copy in another dtype, outside of autograd.
pub(crate) fn converted(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype {
        return Ok(t.clone());
    }
    let c = Tensor::try_empty(Spec::new(t.shape(), dtype, t.device())?)?;
    copy(t.read()?.view(), c.write()?.view_mut());
    Ok(c)
}

/// A row-major copy, or the tensor itself if it is row-major.
pub(crate) fn contiguous(t: &Tensor) -> Result<Tensor> {
    if t.is_contiguous() {
        return Ok(t.clone());
    }
    let c = Tensor::try_empty(Spec::new(t.shape(), t.dtype(), t.device())?)?;
    copy(t.read()?.view(), c.write()?.view_mut());
    Ok(c)
}

/// Elements that lose something on the way to the result's dtype (a fraction, an imaginary part) lose it one by one, not
/// in the end.
fn addends(t: &Tensor, out: &Tensor) -> Result<Tensor> {
    let (from, to) = (t.dtype(), out.dtype());
    let loses = from.is_differentiable() && !to.is_differentiable() || from.is_complex() && !to.is_complex();
    if loses { converted(t, to) } else { Ok(t.clone()) }
}

pub(crate) fn sum(t: &Tensor, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    fold(Reduce::Sum, &addends(t, out)?, &every_dim(t), out)
}

pub(crate) fn sum_dim(
    t: &Tensor,
    dim: Option<&[i64]>,
    _keepdim: bool,
    _dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    over(Reduce::Sum, &addends(t, out)?, dim, out)
}

pub(crate) fn mean(t: &Tensor, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    fold(Reduce::Mean, &addends(t, out)?, &every_dim(t), out)
}

pub(crate) fn mean_dim(
    t: &Tensor,
    dim: Option<&[i64]>,
    _keepdim: bool,
    _dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    over(Reduce::Mean, &addends(t, out)?, dim, out)
}

pub(crate) fn prod(t: &Tensor, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    fold(Reduce::Prod, &addends(t, out)?, &every_dim(t), out)
}

pub(crate) fn prod_dim(t: &Tensor, dim: i64, _keepdim: bool, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    over(Reduce::Prod, &addends(t, out)?, Some(&[dim]), out)
}

/// The sum without NaNs: they are replaced by 0 first.
pub(crate) fn nansum(t: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>, out: &Tensor) -> Result<()> {
    if !t.is_floating_point() {
        return sum_dim(t, dim, keepdim, dtype, out);
    }
    let clean = Tensor::try_empty(Spec::new(t.shape(), t.dtype(), t.device())?)?;
    static WITHOUT_NAN: super::fused::Fused<1> =
        super::fused::Fused::new(|[x]| x.one(firebrand_kernels::pointwise::Op::Isnan).select(0.0, x));
    WITHOUT_NAN.run(t.dtype(), [t.into()], &clean)?;
    sum_dim(&clean, dim, keepdim, dtype, out)
}

pub(crate) fn max(t: &Tensor, out: &Tensor) -> Result<()> {
    fold(Reduce::Max, t, &every_dim(t), out)
}

pub(crate) fn min(t: &Tensor, out: &Tensor) -> Result<()> {
    fold(Reduce::Min, t, &every_dim(t), out)
}

pub(crate) fn amax(t: &Tensor, dim: &[i64], _keepdim: bool, out: &Tensor) -> Result<()> {
    over(Reduce::Max, t, Some(dim), out)
}

pub(crate) fn amin(t: &Tensor, dim: &[i64], _keepdim: bool, out: &Tensor) -> Result<()> {
    over(Reduce::Min, t, Some(dim), out)
}

pub(crate) fn aminmax(t: &Tensor, dim: Option<i64>, _keepdim: bool, min: &Tensor, max: &Tensor) -> Result<()> {
    let dim = dim.as_ref().map(std::slice::from_ref);
    over(Reduce::Min, t, dim, min)?;
    over(Reduce::Max, t, dim, max)
}

fn extreme(op: ArgReduce, t: &Tensor, dim: Option<i64>, values: Option<&Tensor>, indices: &Tensor) -> Result<()> {
    let dim = match dim {
        Some(d) if t.ndim() > 0 => Some(wrap_dim("argmax", d, t.ndim())?),
        _ => None,
    };
    let dims: Dims = dim.map_or_else(|| every_dim(t), |d| Dims::from_slice(&[d]));
    let (isizes, istrides) = kept(indices, &dims, t.ndim());
    let access = values.map(Tensor::write).transpose()?;
    let geometry = values.map(|v| kept(v, &dims, t.ndim()));
    let values = access.as_ref().zip(geometry.as_ref()).map(|(a, (n, s))| a.view_mut_as(n, s));
    kernel::arg_reduce(op, t.read()?.view(), dim, values, indices.write()?.view_mut_as(&isizes, &istrides));
    Ok(())
}

pub(crate) fn max_dim(t: &Tensor, dim: i64, _keepdim: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    extreme(ArgReduce::Max, t, Some(dim), Some(values), indices)
}

pub(crate) fn min_dim(t: &Tensor, dim: i64, _keepdim: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    extreme(ArgReduce::Min, t, Some(dim), Some(values), indices)
}

pub(crate) fn argmax(t: &Tensor, dim: Option<i64>, _keepdim: bool, out: &Tensor) -> Result<()> {
    extreme(ArgReduce::Max, t, dim, None, out)
}

pub(crate) fn argmin(t: &Tensor, dim: Option<i64>, _keepdim: bool, out: &Tensor) -> Result<()> {
    extreme(ArgReduce::Min, t, dim, None, out)
}

/// The six forms of `any` and `all`.
macro_rules! truth {
    ($op:ident: $all:ident $dim:ident $dims:ident) => {
        pub(crate) fn $all(t: &Tensor, out: &Tensor) -> Result<()> {
            fold(Reduce::$op, t, &every_dim(t), out)
        }
        pub(crate) fn $dim(t: &Tensor, dim: i64, _keepdim: bool, out: &Tensor) -> Result<()> {
            over(Reduce::$op, t, Some(&[dim]), out)
        }
        pub(crate) fn $dims(t: &Tensor, dim: Option<&[i64]>, _keepdim: bool, out: &Tensor) -> Result<()> {
            if dim.is_some_and(<[i64]>::is_empty) {
                return fold(Reduce::$op, t, &[], out);
            }
            over(Reduce::$op, t, dim, out)
        }
    };
}
truth!(Any: any any_dim any_dims);
truth!(All: all all_dim all_dims);

pub(crate) fn count_nonzero(t: &Tensor, dim: Option<i64>, out: &Tensor) -> Result<()> {
    count(t, dim.as_ref().map(std::slice::from_ref), out)
}

pub(crate) fn count_nonzero_dims(t: &Tensor, dim: &[i64], out: &Tensor) -> Result<()> {
    count(t, Some(dim), out)
}

fn count(t: &Tensor, dim: Option<&[i64]>, out: &Tensor) -> Result<()> {
    over(Reduce::Norm(0.0), &converted(t, DType::Bool)?, dim, out)
}

/// The correction of a variance; 1 unless said otherwise.
pub(crate) fn correction(c: Option<Scalar>) -> f64 {
    c.map_or(1.0, Scalar::to_f64)
}

/// The variance of complex numbers is that of both parts together.
fn var_of_parts(t: &Tensor, dim: Option<&[i64]>, c: Option<Scalar>, out: &Tensor) -> Result<()> {
    let other = Tensor::try_empty(Spec::new(out.shape(), out.dtype(), out.device())?)?;
    let var = Reduce::Var { correction: correction(c) };
    over(var, &part(t, 0)?, dim, out)?;
    over(var, &part(t, 1)?, dim, &other)?;
    super::pointwise::add(out, &other, Scalar::Int(1), out)
}

pub(crate) fn var(t: &Tensor, dim: Option<&[i64]>, c: Option<Scalar>, _keepdim: bool, out: &Tensor) -> Result<()> {
    if t.is_complex() {
        return var_of_parts(t, dim, c, out);
    }
    over(Reduce::Var { correction: correction(c) }, t, dim, out)
}

pub(crate) fn std(t: &Tensor, dim: Option<&[i64]>, c: Option<Scalar>, _keepdim: bool, out: &Tensor) -> Result<()> {
    if t.is_complex() {
        var_of_parts(t, dim, c, out)?;
        return super::pointwise::sqrt(out, out);
    }
    over(Reduce::Std { correction: correction(c) }, t, dim, out)
}

pub(crate) fn var_mean(
    t: &Tensor,
    dim: Option<&[i64]>,
    c: Option<Scalar>,
    _keepdim: bool,
    var: &Tensor,
    mean: &Tensor,
) -> Result<()> {
    if t.is_complex() {
        var_of_parts(t, dim, c, var)?;
        return (0..2).try_for_each(|k| over(Reduce::Mean, &part(t, k)?, dim, &part(mean, k)?));
    }
    let dims = wrap_dims("var_mean", dim.unwrap_or(&[]), t.ndim())?;
    let ((vn, vs), (mn, ms)) = (kept(var, &dims, t.ndim()), kept(mean, &dims, t.ndim()));
    let (v, m) = (var.write()?, mean.write()?);
    kernel::var_mean(t.read()?.view(), &dims, correction(c), v.view_mut_as(&vn, &vs), m.view_mut_as(&mn, &ms));
    Ok(())
}

pub(crate) fn std_mean(
    t: &Tensor,
    dim: Option<&[i64]>,
    c: Option<Scalar>,
    keepdim: bool,
    std: &Tensor,
    mean: &Tensor,
) -> Result<()> {
    if t.is_complex() {
        var_mean(t, dim, c, keepdim, std, mean)?;
        return super::pointwise::sqrt(std, std);
    }
    over(Reduce::Std { correction: correction(c) }, t, dim, std)?;
    over(Reduce::Mean, t, dim, mean)
}

pub(crate) fn norm_all(t: &Tensor, p: Scalar, out: &Tensor) -> Result<()> {
    fold(Reduce::Norm(p.to_f64()), t, &every_dim(t), out)
}

pub(crate) fn norm_dim(t: &Tensor, p: Option<Scalar>, dim: &[i64], _keepdim: bool, out: &Tensor) -> Result<()> {
    over(Reduce::Norm(p.map_or(2.0, Scalar::to_f64)), t, Some(dim), out)
}

pub(crate) fn vector_norm(
    t: &Tensor,
    ord: Scalar,
    dim: Option<&[i64]>,
    _keepdim: bool,
    _dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    over(Reduce::Norm(ord.to_f64()), t, dim, out)
}

pub(crate) fn logsumexp(t: &Tensor, dim: &[i64], _keepdim: bool, out: &Tensor) -> Result<()> {
    if out.is_complex() {
        return complex_logsumexp(t, &wrap_dims("reduce", dim, t.ndim())?, out);
    }
    over(Reduce::LogSumExp, t, Some(dim), out)
}

/// The largest real parts are taken out before the exponential, so that nothing overflows.
fn complex_logsumexp(t: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    static FINITE: Fused<1> = Fused::new(|[x]| x.one(Op::Isinf).select(0.0, x));
    let dtype = out.dtype();
    let mut sizes = t.dims();
    for (d, n) in sizes.iter_mut().enumerate() {
        if dims.is_empty() || dims.contains(&d) {
            *n = 1;
        }
    }
    let largest = Tensor::try_empty(Spec::new(&sizes, dtype.to_real(), t.device())?)?;
    match t.numel() {
        0 => firebrand_kernels::fill(largest.write()?.view_mut(), Scalar::Int(0).into()),
        _ => fold(Reduce::Max, &part(t, 0)?, dims, &largest)?,
    }
    FINITE.run(largest.dtype(), [(&largest).into()], &largest)?;
    let shifted = Tensor::try_empty(Spec::new(t.shape(), dtype, t.device())?)?;
    binary_op(Op::Sub, dtype, t, &largest, &shifted)?;
    unary_op(Op::Exp, dtype, &shifted, &shifted)?;
    fold(Reduce::Sum, &shifted, dims, out)?;
    unary_op(Op::Log, dtype, out, out)?;
    // The same elements, whether or not dimensions of size 1 are kept.
    binary_op(Op::Add, dtype, out, &largest.alias_with(Layout::contiguous(out.shape())?), out)
}

fn along(op: Scan, t: &Tensor, dim: i64, out: &Tensor) -> Result<()> {
    let d = wrap_dim("scan", dim, t.ndim())?;
    if out.is_complex() {
        let t = converted(t, out.dtype())?;
        return match op {
            // The parts of a single complex number are not a row of values.
            _ if t.ndim() == 0 => super::copy_into(&t, out),
            Scan::Sum => along(op, &parts(&t)?, d as i64, &parts(out)?),
            Scan::LogSumExp => super::complex::scan(&t, d, out, super::complex::logaddexp),
            _ => super::complex::scan(&t, d, out, super::pointwise::mul),
        };
    }
    scan_lines(op, t.read()?.view(), d, out.write()?.view_mut());
    Ok(())
}

pub(crate) fn cumsum(t: &Tensor, dim: i64, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    along(Scan::Sum, &addends(t, out)?, dim, out)
}

pub(crate) fn cumprod(t: &Tensor, dim: i64, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    along(Scan::Prod, &addends(t, out)?, dim, out)
}

pub(crate) fn logcumsumexp(t: &Tensor, dim: i64, out: &Tensor) -> Result<()> {
    along(Scan::LogSumExp, t, dim, out)
}

fn extremes(op: ScanExtreme, t: &Tensor, dim: i64, values: &Tensor, indices: &Tensor) -> Result<()> {
    let d = wrap_dim("scan", dim, t.ndim())?;
    scan_extreme(op, t.read()?.view(), d, values.write()?.view_mut(), indices.write()?.view_mut());
    Ok(())
}

pub(crate) fn cummax(t: &Tensor, dim: i64, values: &Tensor, indices: &Tensor) -> Result<()> {
    extremes(ScanExtreme::Max, t, dim, values, indices)
}

pub(crate) fn cummin(t: &Tensor, dim: i64, values: &Tensor, indices: &Tensor) -> Result<()> {
    extremes(ScanExtreme::Min, t, dim, values, indices)
}

/// The sum of the diagonal: a vector with the step of both dimensions together.
pub(crate) fn trace(t: &Tensor, out: &Tensor) -> Result<()> {
    let n = t.shape().iter().copied().min().unwrap_or(0);
    let step = t.strides().iter().sum();
    fold(Reduce::Sum, &t.alias_with(Layout::strided(&[n], &[step], t.layout().offset())?), &[0], out)
}

/// All elements, row by row.
pub(crate) fn elements<T: Element + Default>(t: &Tensor) -> Result<Vec<T>> {
    let mut list = lists::filled(T::default(), t.numel())?;
    read_slice(t.read()?.view(), &mut list);
    Ok(list)
}

/// How many elements fall into each of `bins` equal intervals; equal bounds mean the extremes of the data.
pub(crate) fn histc(t: &Tensor, bins: i64, min: Scalar, max: Scalar, out: &Tensor) -> Result<()> {
    let data: Vec<f64> = elements(t)?;
    let (mut lo, mut hi) = (min.to_f64(), max.to_f64());
    if lo == hi {
        lo = data.iter().copied().fold(f64::INFINITY, f64::min);
        hi = data.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if data.is_empty() {
            (lo, hi) = (min.to_f64(), max.to_f64());
        }
        if lo.is_infinite() || hi.is_infinite() {
            return Err(Error::argument("histc", format!("the data range from {lo} to {hi} is not finite")));
        }
        if lo == hi {
            (lo, hi) = (lo - 1.0, hi + 1.0);
        }
    }
    let n = as_size(bins);
    let mut counts = lists::filled(0f64, n)?;
    // In the precision of the elements, step by step: which bin gets an element on an edge depends on it.
    let rounded = |x: f64| if t.dtype() == DType::F64 { x } else { f64::from(x as f32) };
    (lo, hi) = (rounded(lo), rounded(hi));
    let width = rounded(hi - lo);
    for x in data {
        if x >= lo && x <= hi {
            let at = rounded(rounded(rounded(x - lo) * n as f64) / width) as usize;
            counts[at.min(n - 1)] += 1.0;
        }
    }
    firebrand_kernels::write_slice(&counts, out.write()?.view_mut());
    Ok(())
}

/// How often each of 0, 1, .. occurs, or the sum of the weights of each.
pub(crate) fn bincount(t: &Tensor, weights: Option<&Tensor>, minlength: crate::SymInt) -> Result<Tensor> {
    const OP: &str = "bincount";
    if t.ndim() != 1 || !t.dtype().is_integer() {
        let m = format!("expected a vector of integers, found {} of shape {:?}", t.dtype(), t.shape());
        return Err(Error::argument(OP, m));
    }
    let Some(least) = minlength.to_usize() else {
        return Err(Error::argument(OP, format!("minlength must not be negative, found {minlength}")));
    };
    if let Some(w) = weights.filter(|w| w.shape() != t.shape()) {
        let m = format!("weights have shape {:?}, the input has {:?}; they must be equal", w.shape(), t.shape());
        return Err(Error::argument(OP, m));
    }
    t.need_data(OP)?;
    let places: Vec<i64> = elements(t)?;
    if let Some(bad) = places.iter().find(|p| **p < 0) {
        return Err(Error::argument(OP, format!("only non-negative integers can be counted, found {bad}")));
    }
    let n = places.iter().max().map_or(0, |m| as_size(*m).saturating_add(1)).max(least);
    match weights {
        None => {
            let mut counts = lists::filled(0i64, n)?;
            places.iter().for_each(|&p| counts[p as usize] += 1);
            Tensor::try_from_slice(&counts, [n])
        }
        Some(w) => {
            let mut sums = lists::filled(0f64, n)?;
            places.iter().zip(elements::<f64>(w)?).for_each(|(&p, w)| sums[p as usize] += w);
            let sums = Tensor::try_from_slice(&sums, [n])?;
            converted(&sums, if w.dtype() == DType::F32 { DType::F32 } else { DType::F64 })
        }
    }
}

/// Whether two tensors have one shape and equal elements.
pub(crate) fn equal(a: &Tensor, b: &Tensor) -> Result<bool> {
    if a.shape() != b.shape() {
        return Ok(false);
    }
    a.need_data("equal")?;
    b.need_data("equal")?;
    let same = Tensor::try_empty(Spec::new(a.shape(), DType::Bool, a.device())?)?;
    super::pointwise::eq(a, b, &same)?;
    let out = Tensor::try_empty(Spec::new(&[], DType::Bool, a.device())?)?;
    all(&same, &out)?;
    Ok(elements::<bool>(&out)?[0])
}
