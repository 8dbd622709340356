//! `gradient`: the slope of a function given by samples along each dimension.

use crate::ops::arith::{div, mul};
use crate::{Error, Result, Scalar, Tensor, ops};

/// How far apart the samples along one dimension are.
enum Spacing {
    Step(Scalar),
    Places(Tensor),
}

/// Central differences inside, one-sided ones of the requested order at both ends.
fn slopes(t: &Tensor, dim: usize, spacing: &Spacing, edge_order: i64) -> Result<Tensor> {
    const OP: &str = "gradient";
    let (n, d) = (t.shape()[dim], dim as i64);
    if !matches!(edge_order, 1 | 2) || n <= edge_order as usize {
        let m = format!("expected an edge order of 1 or 2 and more samples than that, found {edge_order} and {n}");
        return Err(Error::argument(OP, m));
    }
    let part = |from: usize, to: usize| ops::slice(t, d, Some(from.into()), Some(to.into()), 1.into());
    let sum = |terms: [(Tensor, &Tensor); 3]| -> Result<Tensor> {
        let [a, b, c] = terms;
        let first = ops::add(&mul(a.1, &a.0)?, &mul(b.1, &b.0)?, Scalar::Int(1))?;
        ops::add(&first, &mul(c.1, &c.0)?, Scalar::Int(1))
    };
    let inner = n - 2;
    let steps = match spacing {
        Spacing::Step(step) => {
            let h = Tensor::try_wrapped_number(*step)?;
            let apart = |high: Tensor, low: Tensor, by: &Tensor| div(&ops::sub(&high, &low, Scalar::Int(1))?, by);
            let middle = ops::mul_scalar(&apart(part(2, n)?, part(0, inner)?, &h)?, Scalar::Float(0.5))?;
            let (first, last) = match edge_order {
                1 => (apart(part(1, 2)?, part(0, 1)?, &h)?, apart(part(n - 1, n)?, part(n - 2, n - 1)?, &h)?),
                _ => {
                    let one_sided = |a: Tensor, b: Tensor, c: Tensor, sign: f64| {
                        let w = [-1.5 * sign, 2.0 * sign, -0.5 * sign]
                            .map(|v| Tensor::try_wrapped_number(Scalar::Float(v)));
                        let [wa, wb, wc] = w;
                        div(&sum([(a, &wa?), (b, &wb?), (c, &wc?)])?, &h)
                    };
                    (
                        one_sided(part(0, 1)?, part(1, 2)?, part(2, 3)?, 1.0)?,
                        one_sided(part(n - 1, n)?, part(n - 2, n - 1)?, part(n - 3, n - 2)?, -1.0)?,
                    )
                }
            };
            return ops::cat(&[first, middle, last], d);
        }
        Spacing::Places(places) => {
            if places.shape() != [n] {
                let m = format!("expected {n} places along dimension {dim}, found shape {:?}", places.shape());
                return Err(Error::argument(OP, m));
            }
            let steps = ops::diff(places, 1, -1, None, None)?;
            (dim + 1..t.ndim()).try_fold(steps, |t, _| ops::unsqueeze(&t, -1))?
        }
    };
    let step = |from: usize, to: usize| ops::slice(&steps, 0, Some(from.into()), Some(to.into()), 1.into());
    let product = |a: &Tensor, b: &Tensor| ops::mul(a, b);
    let plus = |a: &Tensor, b: &Tensor| ops::add(a, b, Scalar::Int(1));
    let (h1, h2) = (step(0, n - 2)?, step(1, n - 1)?);
    let both = plus(&h1, &h2)?;
    let a = ops::neg(&div(&h2, &product(&h1, &both)?)?)?;
    let b = div(&ops::sub(&h2, &h1, Scalar::Int(1))?, &product(&h1, &h2)?)?;
    let c = div(&h1, &product(&h2, &both)?)?;
    let middle = sum([(part(0, inner)?, &a), (part(1, n - 1)?, &b), (part(2, n)?, &c)])?;
    let (first, last) = if edge_order == 1 {
        (
            div(&ops::sub(&part(1, 2)?, &part(0, 1)?, Scalar::Int(1))?, &step(0, 1)?)?,
            div(&ops::sub(&part(n - 1, n)?, &part(n - 2, n - 1)?, Scalar::Int(1))?, &step(n - 2, n - 1)?)?,
        )
    } else {
        let end = |h1: Tensor, h2: Tensor| -> Result<[Tensor; 3]> {
            let both = plus(&h1, &h2)?;
            let far = ops::neg(&div(&plus(&ops::mul_scalar(&h1, Scalar::Int(2))?, &h2)?, &product(&h1, &both)?)?)?;
            let near = div(&both, &product(&h1, &h2)?)?;
            Ok([far, near, ops::neg(&div(&h1, &product(&h2, &both)?)?)?])
        };
        let [a, b, c] = end(step(0, 1)?, step(1, 2)?)?;
        let first = sum([(part(0, 1)?, &a), (part(1, 2)?, &b), (part(2, 3)?, &c)])?;
        // The other end looks the same from the other side.
        let [a, b, c] = end(step(n - 2, n - 1)?, step(n - 3, n - 2)?)?;
        let last = sum([(part(n - 1, n)?, &a), (part(n - 2, n - 1)?, &b), (part(n - 3, n - 2)?, &c)])?;
        (first, ops::neg(&last)?)
    };
    ops::cat(&[first, middle, last], d)
}

/// Dimensions: those named, or all.
fn dims(t: &Tensor, dim: Option<&[i64]>) -> Result<Vec<usize>> {
    match dim {
        None => Ok((0..t.ndim()).collect()),
        Some(dims) => Ok(ops::shape::wrap_dims("gradient", dims, t.ndim())?.to_vec()),
    }
}

fn gradient(t: &Tensor, dim: Option<&[i64]>, spacing: Vec<Spacing>, edge_order: i64) -> Result<Vec<Tensor>> {
    let dims = dims(t, dim)?;
    if spacing.len() != dims.len() {
        let m = format!("expected one spacing for each of {} dimensions, found {}", dims.len(), spacing.len());
        return Err(Error::argument("gradient", m));
    }
    dims.iter().zip(&spacing).map(|(&d, s)| slopes(t, d, s, edge_order)).collect()
}

pub(crate) fn gradient_scalar(
    self_: &Tensor,
    spacing: Option<Scalar>,
    dim: Option<i64>,
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    let dim = dim.map(|d| [d]);
    let count = dim.map_or(self_.ndim(), |_| 1);
    let step = spacing.unwrap_or(Scalar::Int(1));
    gradient(self_, dim.as_ref().map(|d| &d[..]), (0..count).map(|_| Spacing::Step(step)).collect(), edge_order)
}

pub(crate) fn gradient_scalar_dims(
    self_: &Tensor,
    spacing: Scalar,
    dim: &[i64],
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    gradient(self_, Some(dim), dim.iter().map(|_| Spacing::Step(spacing)).collect(), edge_order)
}

pub(crate) fn gradient_dims(self_: &Tensor, dim: &[i64], edge_order: i64) -> Result<Vec<Tensor>> {
    gradient_scalar_dims(self_, Scalar::Int(1), dim, edge_order)
}

pub(crate) fn gradient_scalars(
    self_: &Tensor,
    spacing: &[Scalar],
    dim: Option<i64>,
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    let dim = dim.map(|d| [d]);
    let spacing = spacing.iter().map(|s| Spacing::Step(*s)).collect();
    gradient(self_, dim.as_ref().map(|d| &d[..]), spacing, edge_order)
}

pub(crate) fn gradient_scalars_dims(
    self_: &Tensor,
    spacing: &[Scalar],
    dim: &[i64],
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    gradient(self_, Some(dim), spacing.iter().map(|s| Spacing::Step(*s)).collect(), edge_order)
}

pub(crate) fn gradient_places(
    self_: &Tensor,
    spacing: &[Tensor],
    dim: Option<i64>,
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    let dim = dim.map(|d| [d]);
    let spacing = spacing.iter().map(|t| Spacing::Places(t.clone())).collect();
    gradient(self_, dim.as_ref().map(|d| &d[..]), spacing, edge_order)
}

pub(crate) fn gradient_places_dims(
    self_: &Tensor,
    spacing: &[Tensor],
    dim: &[i64],
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    gradient(self_, Some(dim), spacing.iter().map(|t| Spacing::Places(t.clone())).collect(), edge_order)
}
