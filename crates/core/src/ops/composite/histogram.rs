//! Histograms: of values over bins of any width, and of points over a grid of them.

use crate::layout::MAX_DIMS;
use crate::ops::arith::div;
use crate::ops::formulas::sym;
use crate::ops::shape::need_float;
use crate::{Error, ErrorKind, Result, Scalar, SymInt, Tensor, ops};

/// The ends of a range: given, or of the values; a range without width gets one.
fn ends(op: &'static str, values: &Tensor, range: Option<(f64, f64)>) -> Result<(f64, f64)> {
    let (low, high) = match range {
        Some(ends) => ends,
        None if values.numel() == 0 => (0.0, 1.0),
        None => {
            let value = |t: Tensor| Ok::<f64, Error>(ops::item(&t)?.to_f64());
            (value(ops::min(values)?)?, value(ops::max(values)?)?)
        }
    };
    if !(low.is_finite() && high.is_finite()) || low > high {
        return Err(Error::argument(op, format!("expected a finite range with low <= high, found {low} to {high}")));
    }
    Ok(if low == high { (low - 0.5, high + 0.5) } else { (low, high) })
}

/// Edges of `bins` bins of one width.
fn edges(op: &'static str, values: &Tensor, bins: i64, range: Option<(f64, f64)>) -> Result<Tensor> {
    if bins <= 0 {
        return Err(Error::argument(op, format!("the number of bins must be positive, found {bins}")));
    }
    let steps = bins.checked_add(1).ok_or_else(|| Error::argument(op, format!("{bins} bins are too many")))?;
    if values.is_meta() && range.is_none() {
        return ops::new_empty(values, &[steps.into()], None, None);
    }
    let (low, high) = ends(op, values, range)?;
    ops::linspace(Scalar::Float(low), Scalar::Float(high), steps, Some(values.dtype()), Some(values.device()))
}

/// Counts, or sums of weights, of points `[n, dimensions]` in the boxes between edges.
fn count(
    op: &'static str,
    points: &Tensor,
    edges: &[Tensor],
    weight: Option<&Tensor>,
    density: bool,
) -> Result<Tensor> {
    let n = points.shape()[0];
    if let Some(e) = edges.iter().find(|e| e.ndim() != 1 || e.numel() == 0 || e.dtype() != points.dtype()) {
        let m =
            format!("expected vectors of edges in {}, found {} of shape {:?}", points.dtype(), e.dtype(), e.shape());
        return Err(Error::argument(op, m));
    }
    if let Some(w) = weight.filter(|w| w.numel() != n || w.dtype() != points.dtype()) {
        let m = format!("expected {n} weights in {}, found {} of shape {:?}", points.dtype(), w.dtype(), w.shape());
        return Err(Error::argument(op, m));
    }
    let sizes: Vec<usize> = edges.iter().map(|e| e.numel() - 1).collect();
    let total = sizes.iter().try_fold(1usize, |all, &n| all.checked_mul(n)).filter(|n| *n < i64::MAX as usize);
    let Some(total) = total else { return Err(Error::argument(op, format!("{sizes:?} bins are too many"))) };
    let mut place = ops::zeros(&sym(&[n]), Some(crate::DType::I64), Some(points.device()))?;
    let mut outside = ops::zeros(&sym(&[n]), Some(crate::DType::Bool), Some(points.device()))?;
    for (d, e) in edges.iter().enumerate() {
        let values = ops::clone(&ops::select(points, 1, d.into())?, None)?;
        let found = ops::searchsorted(&ops::clone(e, None)?, &values, false, true, None, None)?;
        let bin = ops::add_scalar(&found, Scalar::Int(-1), Scalar::Int(1))?;
        // As in PyTorch, the first and the last edge bound what is counted, even if edges are not sorted (a NaN is outside),
        // and what a search puts behind the last edge is in the last bin, which holds its right edge.
        let (low, high) = (ops::select(e, 0, 0.into())?, ops::select(e, 0, (-1).into())?);
        let inside = ops::logical_and(&ops::ge(&values, &low)?, &ops::le(&values, &high)?)?;
        let bin = ops::clamp_max(&bin, Scalar::Int(sizes[d] as i64 - 1))?;
        // A single edge bounds no bin.
        let inside = ops::logical_and(&inside, &ops::ge_scalar(&bin, Scalar::Int(0))?)?;
        outside = ops::logical_or(&outside, &ops::logical_not(&inside)?)?;
        place = ops::add(&ops::mul_scalar(&place, Scalar::Int(sizes[d] as i64))?, &bin, Scalar::Int(1))?;
    }
    // What lies outside is counted in a place of its own, which is then cut off.
    let place = ops::masked_fill(&place, &outside, Scalar::Int(total as i64))?;
    let each = match weight {
        Some(w) => ops::reshape(w, &sym(&[n]))?,
        None => ops::new_ones(points, &sym(&[n]), None, None)?,
    };
    let zeros = ops::new_zeros(points, &[SymInt::from(total + 1)], None, None)?;
    let counts = ops::index_add(&zeros, 0, &place, &each, Scalar::Int(1))?;
    let counts = ops::reshape(&ops::narrow(&counts, 0, 0.into(), total.into())?, &sym(&sizes))?;
    if !density {
        return ops::clone(&counts, None);
    }
    let mut density = div(&counts, &ops::sum(&counts, None)?)?;
    for (d, e) in edges.iter().enumerate() {
        let widths = ops::diff(e, 1, -1, None, None)?;
        let mut along = vec![1; edges.len()];
        along[d] = sizes[d];
        density = div(&density, &ops::reshape(&widths, &sym(&along))?)?;
    }
    Ok(density)
}

/// Values of one dimension as points `[n, 1]`.
fn line(op: &'static str, t: &Tensor) -> Result<Tensor> {
    need_float(op, t.dtype())?;
    ops::reshape(&t.try_detach()?, &[SymInt::from(-1i64), 1.into()])
}

fn plain(weight: Option<&Tensor>) -> Result<Option<Tensor>> {
    weight.map(Tensor::try_detach).transpose()
}

pub(crate) fn histogram_bins(
    self_: &Tensor,
    bins: &Tensor,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "histogram";
    let counts = count(OP, &line(OP, self_)?, &[bins.try_detach()?], plain(weight)?.as_ref(), density)?;
    Ok((counts, ops::clone(bins, None)?))
}

pub(crate) fn histogram_count(
    self_: &Tensor,
    bins: i64,
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "histogram";
    let points = line(OP, self_)?;
    let range = match range {
        None => None,
        Some(&[low, high]) => Some((low, high)),
        Some(other) => return Err(Error::argument(OP, format!("expected the two ends of a range, found {other:?}"))),
    };
    let edges = edges(OP, &points, bins, range)?;
    Ok((count(OP, &points, std::slice::from_ref(&edges), plain(weight)?.as_ref(), density)?, edges))
}

/// Points `[.., dimensions]` as `[n, dimensions]`.
fn points(op: &'static str, t: &Tensor, dimensions: usize) -> Result<Tensor> {
    need_float(op, t.dtype())?;
    if t.ndim() < 2 || t.shape().last() != Some(&dimensions) || dimensions == 0 {
        let m = format!("expected points of {dimensions} dimensions, found shape {:?}", t.shape());
        return Err(Error::argument(op, m));
    }
    ops::reshape(&t.try_detach()?, &[SymInt::from(-1i64), dimensions.into()])
}

pub(crate) fn bin_edges(
    self_: &Tensor,
    bins: &[i64],
    range: Option<&[f64]>,
    _weight: Option<&Tensor>,
    _density: bool,
) -> Result<Vec<Tensor>> {
    const OP: &str = "histogramdd";
    let points = points(OP, self_, bins.len())?;
    if let Some(r) = range.filter(|r| r.len() != 2 * bins.len()) {
        return Err(Error::argument(OP, format!("expected {} ends of ranges, found {}", 2 * bins.len(), r.len())));
    }
    let one = |(d, &n): (usize, &i64)| {
        let range = range.map(|r| (r[2 * d], r[2 * d + 1]));
        edges(OP, &ops::select(&points, 1, d.into())?, n, range)
    };
    bins.iter().enumerate().map(one).collect()
}

pub(crate) fn histogramdd_tensors(
    self_: &Tensor,
    bins: &[Tensor],
    weight: Option<&Tensor>,
    density: bool,
) -> Result<Tensor> {
    const OP: &str = "histogramdd";
    let bins = bins.iter().map(Tensor::try_detach).collect::<Result<Vec<_>>>()?;
    count(OP, &points(OP, self_, bins.len())?, &bins, plain(weight)?.as_ref(), density)
}

pub(crate) fn histogramdd_counts(
    self_: &Tensor,
    bins: &[i64],
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<Tensor> {
    histogramdd_tensors(self_, &bin_edges(self_, bins, range, None, false)?, weight, density)
}

pub(crate) fn histogramdd(
    self_: &Tensor,
    bins: &[i64],
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    let edges = bin_edges(self_, bins, range, None, false)?;
    Ok((histogramdd_tensors(self_, &edges, weight, density)?, edges))
}

/// As many bins along every dimension.
pub(crate) fn histogramdd_int(
    self_: &Tensor,
    bins: i64,
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    let dimensions = self_.shape().last().copied().unwrap_or(0);
    // The result has one dimension for each of the points'.
    if dimensions > MAX_DIMS {
        return Err(ErrorKind::TooManyDims { ndim: dimensions }.into());
    }
    histogramdd(self_, &vec![bins; dimensions], range, weight, density)
}

/// With edges given; a range has nothing to say then.
pub(crate) fn histogramdd_edges(
    self_: &Tensor,
    bins: &[Tensor],
    _range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    Ok((
        histogramdd_tensors(self_, bins, weight, density)?,
        bins.iter().map(Tensor::try_detach).collect::<Result<_>>()?,
    ))
}
