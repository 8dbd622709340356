//! Reductions of consecutive segments along a dimension, with given lengths.

use super::sequences::integers;
use crate::ops::arith::{div, mul};
use crate::ops::formulas::{self, sym};
use crate::{Error, Result, Scalar, Tensor, ops};

const OP: &str = "segment_reduce";

/// The data as `[rows, along, rest]`, and for each row where its segments begin and end.
struct Segments {
    data: Tensor,
    lead: Vec<usize>,
    rest: Vec<usize>,
    bounds: Vec<Vec<(usize, usize)>>,
}

impl Segments {
    fn new(
        data: &Tensor,
        lengths: Option<&Tensor>,
        offsets: Option<&Tensor>,
        axis: i64,
        unsafe_: bool,
    ) -> Result<Segments> {
        let wrong = |m: String| Err(Error::argument(OP, m));
        let (given, is_offsets) = match (lengths, offsets) {
            (Some(t), None) => (t, false),
            (None, Some(t)) => (t, true),
            _ => return wrong("expected lengths or offsets, and not both".into()),
        };
        let dim = given.ndim().wrapping_sub(1);
        if given.ndim() == 0 || axis != dim as i64 || data.ndim() <= dim || data.shape()[..dim] != given.shape()[..dim]
        {
            let m = format!(
                "expected segments of data {:?} along its dimension {axis}, found {:?}",
                data.shape(),
                given.shape()
            );
            return wrong(m);
        }
        let (along, per_row) = (data.shape()[dim], given.shape()[dim]);
        let numbers = integers(OP, given)?;
        let mut bounds = Vec::new();
        for row in numbers.chunks(per_row.max(1)) {
            let row = match is_offsets {
                true => row.windows(2).map(|w| (w[0], w[1])).collect::<Vec<_>>(),
                false => row
                    .iter()
                    .scan(0i64, |at, &n| {
                        let from = *at;
                        *at = at.saturating_add(n);
                        Some((from, *at))
                    })
                    .collect(),
            };
            let whole = row.last().map_or(0, |r| r.1) == along as i64;
            if row.iter().any(|(a, b)| *a < 0 || b < a || *b > along as i64) || !(whole || unsafe_ || is_offsets) {
                let m = format!("segments {row:?} do not cover {along} elements one after another");
                return wrong(m);
            }
            bounds.push(row.into_iter().map(|(a, b)| (a as usize, b as usize)).collect());
        }
        let (lead, rest) = (data.shape()[..dim].to_vec(), data.shape()[dim + 1..].to_vec());
        let rows: usize = lead.iter().product();
        let data = ops::reshape(data, &sym(&[rows, along, rest.iter().product()]))?;
        Ok(Segments { data, lead, rest, bounds })
    }

    fn count(&self) -> usize {
        self.bounds.first().map_or(0, Vec::len)
    }

    /// Every segment as `[length, rest]`.
    fn part(&self, row: usize, (from, to): (usize, usize)) -> Result<Tensor> {
        ops::narrow(&ops::select(&self.data, 0, row.into())?, 0, from.into(), (to - from).into())
    }

    /// Results `[rest]` of all segments in the shape of the data.
    fn gathered(&self, results: Vec<Tensor>) -> Result<Tensor> {
        let sizes = sym(&[&self.lead[..], &[self.count()], &self.rest].concat());
        if results.is_empty() {
            return ops::new_zeros(&self.data, &sizes, None, None);
        }
        ops::reshape(&ops::stack(&results, 0)?, &sizes)
    }
}

/// What a segment without elements gives.
fn empty_value(reduce: &str) -> Result<f64> {
    match reduce {
        "sum" => Ok(0.0),
        "prod" => Ok(1.0),
        "mean" => Ok(f64::NAN),
        "max" => Ok(f64::NEG_INFINITY),
        "min" => Ok(f64::INFINITY),
        other => Err(Error::argument(OP, format!("expected sum, mean, max, min or prod, found {other:?}"))),
    }
}

/// One segment `[length, rest]` to `[rest]`.
fn reduced(part: &Tensor, reduce: &str, initial: Option<Scalar>) -> Result<Tensor> {
    let first = initial.map(Scalar::to_f64);
    if part.shape()[0] == 0 {
        let value = first.map_or_else(|| empty_value(reduce), Ok)?;
        return ops::new_full(part, &sym(&part.shape()[1..]), Scalar::Float(value), None, None);
    }
    let plus = |t: Tensor| first.map_or(Ok(t.clone()), |v| ops::add_scalar(&t, Scalar::Float(v), Scalar::Int(1)));
    // An initial value that is equal leaves the gradient to the elements.
    let or_initial = |t: Tensor, beaten: fn(&Tensor, Scalar) -> Result<Tensor>| match first {
        None => Ok(t),
        Some(v) => ops::where_scalar_self(&beaten(&t, Scalar::Float(v))?, Scalar::Float(v), &t),
    };
    match reduce {
        "sum" => plus(ops::sum_dim(part, Some(&[0]), false, None)?),
        "mean" => div(&plus(ops::sum_dim(part, Some(&[0]), false, None)?)?, &(part.shape()[0] as f64)),
        "max" => or_initial(ops::amax(part, &[0], false)?, ops::lt_scalar),
        "min" => or_initial(ops::amin(part, &[0], false)?, ops::gt_scalar),
        _ => {
            let product = ops::prod_dim(part, 0, false, None)?;
            first.map_or(Ok(product.clone()), |v| ops::mul_scalar(&product, Scalar::Float(v)))
        }
    }
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn segment_reduce(
    data: &Tensor,
    reduce: &str,
    lengths: Option<&Tensor>,
    indices: Option<&Tensor>,
    offsets: Option<&Tensor>,
    axis: i64,
    unsafe_: bool,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    empty_value(reduce)?;
    ops::shape::need_float(OP, data.dtype())?;
    if indices.is_some() {
        return Err(Error::argument(OP, "segments by indices are not supported; give lengths or offsets"));
    }
    let segments = Segments::new(data, lengths, offsets, axis, unsafe_)?;
    let mut results = Vec::new();
    for (row, bounds) in segments.bounds.iter().enumerate() {
        for &bound in bounds {
            results.push(reduced(&segments.part(row, bound)?, reduce, initial)?);
        }
    }
    segments.gathered(results)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn segment_reduce_backward(
    grad: &Tensor,
    output: &Tensor,
    data: &Tensor,
    reduce: &str,
    lengths: Option<&Tensor>,
    offsets: Option<&Tensor>,
    axis: i64,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    empty_value(reduce)?;
    let segments = Segments::new(data, lengths, offsets, axis, true)?;
    let (rows, count) = (segments.bounds.len(), segments.count());
    let flat = |t: &Tensor| ops::reshape(t, &sym(&[rows, count, segments.rest.iter().product()]));
    let (grad, output) = (flat(grad)?, flat(output)?);
    let mut parts = Vec::new();
    for (row, bounds) in segments.bounds.iter().enumerate() {
        let mut at = 0;
        let one = |t: &Tensor, k: usize| ops::select(&ops::select(t, 0, row.into())?, 0, k.into());
        let gap = |n: usize| ops::new_zeros(&segments.data, &sym(&[n, segments.data.shape()[2]]), None, None);
        for (k, &bound) in bounds.iter().enumerate() {
            if bound.1 == bound.0 {
                continue;
            }
            parts.push(gap(bound.0 - at)?);
            at = bound.1;
            let (part, g, out) = (segments.part(row, bound)?, one(&grad, k)?, one(&output, k)?);
            let wide = |t: &Tensor| ops::expand(&ops::unsqueeze(t, 0)?, &part.sym_sizes(), false);
            parts.push(match reduce {
                "sum" => wide(&g)?,
                "mean" => div(&wide(&g)?, &((bound.1 - bound.0) as f64))?,
                "prod" => {
                    // The product of the others, times what the product began with.
                    let begin = initial.map_or(1.0, Scalar::to_f64);
                    let own = ops::prod_dim(&part, 0, false, None)?;
                    formulas::prod_dim_backward(&mul(&g, &begin)?, &part, &own, 0, false)?
                }
                _ => {
                    let equal = formulas::cast(&ops::eq(&part, &wide(&out)?)?, part.dtype())?;
                    let share =
                        div(&equal, &ops::clamp_min(&ops::sum_dim(&equal, Some(&[0]), true, None)?, Scalar::Int(1))?)?;
                    mul(&share, &wide(&g)?)?
                }
            });
        }
        parts.push(gap(segments.data.shape()[1] - at)?);
    }
    let all = if parts.is_empty() { ops::zeros_like(&segments.data, None, None, None)? } else { ops::cat(&parts, 0)? };
    ops::reshape(&all, &data.sym_sizes())
}
