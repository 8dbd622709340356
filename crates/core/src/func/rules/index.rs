//! Indexing: positions of all samples become positions in one larger tensor.
//!
//! Two tricks do most of it. *Offsets*: rows of all samples are laid one after another and sample `b` adds `b * rows` to
//! its positions. *A position for the batch*: an index tensor `0..B` in front picks each sample's own.

use super::{Arg, Batched, Call, Out, Outs, all, one, with_batch};
use crate::dispatch::{self, Op};
use crate::limits::as_size;
use crate::ops::shape::wrap_dim;
use crate::sym::{SymInt, SymInts};
use crate::{DType, ErrorKind, Result, Scalar, Tensor, ops};
use smallvec::{SmallVec, smallvec};

/// `0, step, 2*step, ..`, one number a sample, with ones behind up to `ndim` dimensions.
fn steps(size: usize, step: usize, ndim: usize) -> Result<Tensor> {
    let at = ops::arange(Scalar::Int(size as i64), Some(DType::I64), None)?;
    let at = if step == 1 { at } else { ops::mul_scalar(&at, Scalar::Int(step as i64))? };
    ops::view(&at, &with_batch(size, &vec![1; ndim]))
}

/// The index of every sample as positions in rows laid one after another, as one vector.
fn offsets(index: &Batched, size: usize, rows: usize) -> Result<Tensor> {
    let index = ops::formulas::cast(&index.full(size)?, DType::I64)?;
    // Positions may count from the end.
    let index = ops::remainder_scalar(&index, Scalar::Int(rows.max(1) as i64))?;
    ops::flatten(&ops::add(&index, &steps(size, rows, index.ndim() - 1)?, Scalar::Int(1))?, 0, -1)
}

/// A sample as a vector at least.
fn vector(b: &Batched) -> Result<Batched> {
    if b.ndim() > 0 {
        return Ok(b.clone());
    }
    Ok(Batched { value: ops::unsqueeze(&b.front()?, -1)?, dim: b.dim.map(|_| 0) })
}

pub(crate) fn index_select(call: &Call<'_>) -> Result<Outs> {
    let scalar = call.tensor(0)?.ndim() == 0;
    let (x, index) = (vector(call.tensor(0)?)?, vector(call.tensor(2)?)?);
    let d = wrap_dim("index_select", call.int(1).unwrap_or(0), x.ndim())?;
    let (out, dim) = if index.dim.is_none() {
        (ops::index_select(&x.front()?, d as i64 + 1, &index.value)?, 0)
    } else if x.dim.is_none() {
        let found = ops::index_select(&x.value, d as i64, &ops::flatten(&index.front()?, 0, -1)?)?;
        (ops::unflatten(&found, d as i64, &[call.size.into(), SymInt::from(-1)])?, d)
    } else {
        let rows = x.sizes()[d];
        let laid = ops::flatten(&ops::movedim(&x.front()?, d as i64 + 1, 1)?, 0, 1)?;
        let found = ops::index_select(&laid, 0, &offsets(&index, call.size, rows)?)?;
        let found = ops::unflatten(&found, 0, &[call.size.into(), SymInt::from(-1)])?;
        (ops::movedim(&found, 1, d as i64 + 1)?, 0)
    };
    let out = if scalar { ops::squeeze_dim(&out, if dim == 0 { 1 } else { 0 })? } else { out };
    one(out, dim)
}

/// `index_add` and its kin: (self, dim, index, source or value, ..).
pub(crate) fn index_write(call: &Call<'_>) -> Result<Outs> {
    let scalar = call.tensor(0)?.ndim() == 0;
    let (x, index) = (vector(call.tensor(0)?)?, vector(call.tensor(2)?)?);
    let d = wrap_dim("index_add", call.int(1).unwrap_or(0), x.ndim())?;
    let fills = call.op == Op::INDEX_FILL_INT_TENSOR;
    let source = call.opt_tensor(3).cloned();
    if fills && source.as_ref().is_some_and(|s| s.dim.is_some()) {
        return super::sample_by_sample(call);
    }
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    let source = if fills { None } else { source };
    let source = source.map(|s| if s.ndim() < x.ndim() { vector(&s) } else { Ok(s) }).transpose()?;
    if index.dim.is_none() {
        values[0] = x.full(call.size)?.into();
        values[1] = (d as i64 + 1).into();
        values[2] = index.value.clone().into();
        if let Some(s) = source {
            values[3] = s.full(call.size)?.into();
        }
        let out = dispatch::one_tensor(dispatch::call(call.op, &values)?)?;
        return one(if scalar { ops::squeeze_dim(&out, 1)? } else { out }, 0);
    }
    let rows = x.sizes()[d];
    let lay = |t: &Tensor| ops::flatten(&ops::movedim(t, d as i64 + 1, 1)?, 0, 1);
    values[0] = lay(&x.full(call.size)?)?.into();
    values[1] = 0i64.into();
    values[2] = offsets(&index, call.size, rows)?.into();
    if let Some(s) = source {
        values[3] = lay(&s.full(call.size)?)?.into();
    }
    let out = dispatch::one_tensor(dispatch::call(call.op, &values)?)?;
    let out = ops::unflatten(&out, 0, &[call.size.into(), SymInt::from(rows)])?;
    let out = ops::movedim(&out, 1, d as i64 + 1)?;
    one(if scalar { ops::squeeze_dim(&out, 1)? } else { out }, 0)
}

/// The index tensors of a call: none where a dimension is taken whole.
fn positions(call: &Call<'_>) -> Vec<Option<Batched>> {
    match call.arg(1) {
        Arg::OptList(l) => l.clone(),
        Arg::List(l) => l.iter().cloned().map(Some).collect(),
        _ => Vec::new(),
    }
}

/// Masks as lists of positions. A mask that differs from sample to sample has no shape in common.
fn without_masks(list: Vec<Option<Batched>>) -> Result<Vec<Option<Batched>>> {
    let mut out = Vec::new();
    for b in list {
        match b {
            Some(b) if matches!(b.value.dtype(), DType::Bool | DType::U8) => {
                if b.dim.is_some() {
                    return Err(ErrorKind::Vmap {
                        message: "indexing with a mask that differs between samples has a result of no fixed shape; use where_self".into(),
                    }
                    .into());
                }
                let found = ops::nonzero(&b.value)?;
                for d in 0..b.value.ndim() {
                    out.push(Some(Batched { value: ops::select(&found, 1, d.into())?, dim: None }));
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Where indexed dimensions land: they stay in place if they are neighbors, else they come first.
struct Shape {
    /// First indexed dimension, if the indexed ones are neighbors.
    start: Option<usize>,
    /// Dimensions of the index tensors after broadcasting, without the batch.
    index: SmallVec<[usize; 6]>,
}

fn shape_of(list: &[Option<Batched>]) -> Result<Shape> {
    let at: Vec<usize> = (0..list.len()).filter(|&k| list[k].is_some()).collect();
    let neighbors = at.windows(2).all(|w| w[1] == w[0] + 1);
    let mut index: SmallVec<[usize; 6]> = smallvec![];
    for b in list.iter().flatten() {
        let sizes = b.sizes();
        while index.len() < sizes.len() {
            index.insert(0, 1);
        }
        let lead = index.len() - sizes.len();
        for (k, &n) in sizes.iter().enumerate() {
            if index[lead + k] == 1 {
                index[lead + k] = n;
            }
        }
    }
    Ok(Shape { start: if neighbors { at.first().copied() } else { None }, index })
}

/// Index tensors with the batch in front, aligned; those without a batch broadcast.
fn aligned(list: &[Option<Batched>], ndim: usize) -> Result<Vec<Option<Tensor>>> {
    let align = |b: &Batched| -> Result<Tensor> {
        let mut t = b.front()?;
        if b.dim.is_some() {
            for _ in b.ndim()..ndim {
                t = ops::unsqueeze(&t, 1)?;
            }
        }
        Ok(t)
    };
    list.iter().map(|b| b.as_ref().map(align).transpose()).collect()
}

pub(crate) fn index(call: &Call<'_>) -> Result<Outs> {
    let x = call.tensor(0)?;
    let list = positions(call);
    let batched = list.iter().flatten().any(|b| b.dim.is_some());
    if !batched {
        // Only the tensor has a batch: take that dimension whole.
        let list = without_masks(list)?;
        let shape = shape_of(&list)?;
        let mut full: Vec<Option<Tensor>> = vec![None];
        full.extend(list.into_iter().map(|b| b.map(|b| b.value)));
        let out = ops::index(&x.front()?, &full)?;
        return one(out, if shape.start.is_some() { 0 } else { shape.index.len() });
    }
    let list = without_masks(list)?;
    let shape = shape_of(&list)?;
    let ndim = shape.index.len();
    let mut full = aligned(&list, ndim)?;
    if x.dim.is_none() {
        return one(ops::index(&x.value, &full)?, shape.start.unwrap_or(0));
    }
    full.insert(0, Some(steps(call.size, 1, ndim)?));
    let out = ops::index(&x.front()?, &full)?;
    // The batch is a neighbor of dimension 0 only; elsewhere the indexed dimensions came first.
    match shape.start {
        Some(p) if p > 0 => {
            let mut order: Vec<i64> = vec![0];
            order.extend((1 + ndim..1 + ndim + p).map(|k| k as i64));
            order.extend((1..1 + ndim).map(|k| k as i64));
            order.extend((1 + ndim + p..out.ndim()).map(|k| k as i64));
            one(ops::permute(&out, &order)?, 0)
        }
        _ => one(out, 0),
    }
}

pub(crate) fn index_put(call: &Call<'_>) -> Result<Outs> {
    let (x, values) = (call.tensor(0)?, call.tensor(2)?);
    let accumulate = call.bool(3);
    let list = positions(call);
    if let [Some(mask)] = &list[..]
        && mask.value.dtype() == DType::Bool
        && values.sizes().iter().product::<usize>() == 1
    {
        return masked_put(call, mask, accumulate);
    }
    let list = without_masks(list)?;
    let shape = shape_of(&list)?;
    let ndim = shape.index.len();
    let mut full = aligned(&list, ndim)?;
    full.insert(0, Some(steps(call.size, 1, ndim)?));
    // What a sample's values are broadcast to, then in the order the indexed dimensions come in.
    let rest: Vec<usize> =
        (0..x.ndim()).filter(|&d| list.get(d).is_none_or(Option::is_none)).map(|d| x.sizes()[d]).collect();
    let p = shape.start.unwrap_or(0).min(rest.len());
    let wanted: Vec<usize> = rest[..p].iter().chain(&shape.index).chain(&rest[p..]).copied().collect();
    let mut v = values.front()?;
    if values.dim.is_some() {
        for _ in values.ndim()..wanted.len() {
            v = ops::unsqueeze(&v, 1)?;
        }
    }
    let v = ops::expand(&v, &with_batch(call.size, &wanted), false)?;
    let mut order: Vec<i64> = vec![0];
    order.extend((1 + p..1 + p + ndim).map(|k| k as i64));
    order.extend((1..1 + p).map(|k| k as i64));
    order.extend((1 + p + ndim..v.ndim()).map(|k| k as i64));
    let v = ops::permute(&v, &order)?;
    one(ops::index_put(&x.full(call.size)?, &full, &v, accumulate)?, 0)
}

/// One number where a mask says so.
fn masked_put(call: &Call<'_>, mask: &Batched, accumulate: bool) -> Result<Outs> {
    let (x, values) = (call.tensor(0)?.full(call.size)?, call.tensor(2)?);
    let stretch = |b: &Batched, after: bool| -> Result<Tensor> {
        let mut t = b.front()?;
        while b.dim.is_some() && t.ndim() < x.ndim() || b.dim.is_none() && after && t.ndim() + 1 < x.ndim() {
            t = ops::unsqueeze(&t, if after { -1 } else { 1 })?;
        }
        Ok(t)
    };
    let mask = stretch(mask, true)?;
    let one_value = Batched { value: ops::reshape(&values.front()?, &flat_sizes(values, call.size))?, dim: values.dim };
    let v = ops::formulas::cast(&stretch(&one_value, false)?, x.dtype())?;
    let v = if accumulate { ops::add(&x, &v, Scalar::Int(1))? } else { v };
    one(ops::where_self(&mask, &v, &x)?, 0)
}

/// A mask the same for all picks the same number of elements from every sample.
pub(crate) fn masked_select(call: &Call<'_>) -> Result<Outs> {
    let (x, mask) = (call.tensor(0)?, call.tensor(1)?);
    if mask.dim.is_some() {
        return super::dynamic(call);
    }
    let ndim = x.ndim().max(mask.ndim());
    let mut t = x.front()?;
    while t.ndim() < ndim + 1 {
        t = ops::unsqueeze(&t, 1)?;
    }
    let wide = ops::broadcast_tensors(&[t, mask.value.clone()])?;
    let rows = ops::reshape(&wide[0], &[call.size.into(), SymInt::from(-1)])?;
    let one_mask = ops::reshape(&ops::select(&wide[1], 0, 0.into())?, &[SymInt::from(-1)])?;
    one(ops::index_select(&rows, 1, &ops::reshape(&ops::nonzero(&one_mask)?, &[SymInt::from(-1)])?)?, 0)
}

fn flat_sizes(b: &Batched, size: usize) -> SymInts {
    if b.dim.is_some() { smallvec![size.into()] } else { smallvec![] }
}

fn rows_of(b: &Batched, size: usize) -> Result<Tensor> {
    ops::reshape(&b.full(size)?, &[size.into(), SymInt::from(-1)])
}

pub(crate) fn take(call: &Call<'_>) -> Result<Outs> {
    let (x, index) = (call.tensor(0)?, call.tensor(1)?);
    let rows = rows_of(x, call.size)?;
    let n = rows.shape()[1].max(1);
    let at = ops::remainder_scalar(&rows_of(index, call.size)?, Scalar::Int(n as i64))?;
    let found = ops::gather(&rows, 1, &at, false)?;
    one(ops::reshape(&found, &with_batch(call.size, &index.sizes()))?, 0)
}

pub(crate) fn put(call: &Call<'_>) -> Result<Outs> {
    let (x, index, source) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let rows = rows_of(x, call.size)?;
    let n = rows.shape()[1].max(1);
    let at = ops::remainder_scalar(&rows_of(index, call.size)?, Scalar::Int(n as i64))?;
    let source = rows_of(source, call.size)?;
    let out =
        if call.bool(3) { ops::scatter_add(&rows, 1, &at, &source)? } else { ops::scatter(&rows, 1, &at, &source)? };
    one(ops::reshape(&out, &with_batch(call.size, &x.sizes()))?, 0)
}

pub(crate) fn embedding(call: &Call<'_>) -> Result<Outs> {
    let (w, index) = (call.tensor(0)?, call.tensor(1)?);
    if w.dim.is_none() {
        let values = call.values(|b| b.front())?;
        return Ok(all(dispatch::call(call.op, &values)?, Some(0)));
    }
    let rows = w.sizes()[0];
    let found = ops::index_select(&ops::flatten(&w.front()?, 0, 1)?, 0, &offsets(index, call.size, rows)?)?;
    let mut sizes = with_batch(call.size, &index.sizes());
    sizes.push(w.sizes()[1].into());
    one(ops::reshape(&found, &sizes)?, 0)
}

pub(crate) fn embedding_backward(call: &Call<'_>) -> Result<Outs> {
    let (g, index) = (call.tensor(0)?, call.tensor(1)?);
    let rows = as_size(call.int(2).unwrap_or(0).max(0));
    let padding = call.int(3).unwrap_or(-1);
    let mut g = g.full(call.size)?;
    if padding >= 0 {
        // Offsets would hide the padding row: its gradient is zero before they are added.
        let kept = ops::ne_scalar(&index.full(call.size)?, Scalar::Int(padding))?;
        g = ops::mul(&g, &ops::unsqueeze(&kept, -1)?)?;
    }
    let width = g.shape().last().copied().unwrap_or(1);
    let g = ops::reshape(&g, &[SymInt::from(-1), width.into()])?;
    let at = offsets(index, call.size, rows)?;
    let all_rows = SymInt::from(rows * call.size);
    let out = ops::embedding_dense_backward(&g, &at, all_rows, SymInt::from(-1), call.bool(4))?;
    one(ops::unflatten(&out, 0, &[call.size.into(), SymInt::from(rows)])?, 0)
}

/// A sorted vector the same for all, or one sorted row per row: leading dimensions correspond.
pub(crate) fn searchsorted(call: &Call<'_>) -> Result<Outs> {
    let (sorted, x) = (call.tensor(0)?, call.tensor(1)?);
    if sorted.dim.is_none() && sorted.ndim() == 1 && call.opt_tensor(5).is_none() {
        let values = call.values(|b| Ok(b.value.clone()))?;
        return Ok(all(dispatch::call(call.op, &values)?, x.dim));
    }
    if sorted.ndim() == 1 {
        // A vector per sample: what is looked up becomes one row of it.
        let mut values = call.full()?;
        values[1] = rows_of(x, call.size)?.into();
        let found = dispatch::one_tensor(dispatch::call(call.op, &values)?)?;
        let value = ops::reshape(&found, &with_batch(call.size, &x.sizes()))?.into();
        return Ok(smallvec![Out { value, dim: Some(0) }]);
    }
    Ok(all(dispatch::call(call.op, &call.full()?)?, Some(0)))
}
