//! Concatenating, repeating, flipping and padding, composed of other ops.

use crate::dispatch::MemoryFormat;
use crate::layout::Dims;
use crate::limits::as_size;
use crate::ops::formulas::sym;
use crate::ops::lists;
use crate::ops::shape::{self, wrap_dim};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Error, Result, Scalar, Tensor, ops};

const ONE: SymInt = SymInt::ONE;

pub(crate) fn concat(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    ops::cat(tensors, dim)
}

/// Positions made here, on the device of the tensor they are used with.
fn positions(list: Vec<i64>, like: &Tensor) -> Result<Tensor> {
    let n = list.len();
    let t = Tensor::try_from_vec(list, [n])?;
    if like.is_meta() { ops::to_copy(&t, None, Some(like.device()), false, None) } else { Ok(t) }
}

fn each(tensors: &[Tensor], f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    tensors.iter().map(f).collect()
}

pub(crate) fn hstack(tensors: &[Tensor]) -> Result<Tensor> {
    let all = each(tensors, ops::atleast_1d)?;
    ops::cat(&all, if all.first().is_some_and(|t| t.ndim() == 1) { 0 } else { 1 })
}

pub(crate) fn vstack(tensors: &[Tensor]) -> Result<Tensor> {
    ops::cat(&each(tensors, ops::atleast_2d)?, 0)
}

pub(crate) fn dstack(tensors: &[Tensor]) -> Result<Tensor> {
    ops::cat(&each(tensors, ops::atleast_3d)?, 2)
}

pub(crate) fn column_stack(tensors: &[Tensor]) -> Result<Tensor> {
    let column = |t: &Tensor| {
        if t.ndim() <= 1 { ops::reshape(t, &[t.numel().into(), ONE]) } else { Ok(t.clone()) }
    };
    hstack(&each(tensors, column)?)
}

pub(crate) fn tile(self_: &Tensor, dims: &[SymInt]) -> Result<Tensor> {
    let missing = self_.ndim().saturating_sub(dims.len());
    let repeats: SymInts = (0..missing).map(|_| ONE).chain(dims.iter().copied()).collect();
    ops::repeat(self_, &repeats)
}

pub(crate) fn repeat_interleave(
    self_: &Tensor,
    repeats: SymInt,
    dim: Option<i64>,
    _output_size: Option<SymInt>,
) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    if repeats < 0i64 {
        return Err(Error::argument(OP, format!("the number of repeats must not be negative, found {repeats}")));
    }
    let (input, d) = match dim {
        Some(dim) => (ops::atleast_1d(self_)?, wrap_dim(OP, dim, self_.ndim())?),
        None => (ops::flatten(self_, 0, -1)?, 0),
    };
    let mut sizes = input.sym_sizes();
    sizes.insert(d + 1, repeats);
    let spread = ops::expand(&ops::unsqueeze(&input, d as i64 + 1)?, &sizes, false)?;
    ops::flatten(&ops::clone(&spread, Some(MemoryFormat::Contiguous))?, d as i64, d as i64 + 1)
}

pub(crate) fn repeat_interleave_tensor(
    self_: &Tensor,
    repeats: &Tensor,
    dim: Option<i64>,
    output_size: Option<SymInt>,
) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    shape::index::need_index(OP, repeats)?;
    let (input, d) = match dim {
        Some(dim) => (ops::atleast_1d(self_)?, wrap_dim(OP, dim, self_.ndim())?),
        None => (ops::flatten(self_, 0, -1)?, 0),
    };
    repeats.need_data(OP)?;
    let wide = ops::to_dtype(repeats, DType::I64, false, false, None)?;
    let mut counts = wide.try_to_vec::<i64>()?;
    let n = input.shape()[d];
    if repeats.ndim() == 0 || (repeats.ndim() == 1 && counts.len() == 1) {
        counts = lists::filled(counts[0], n)?;
    }
    if repeats.ndim() > 1 || counts.len() != n || counts.iter().any(|&c| c < 0) {
        let m = format!("expected {n} non-negative repeats, found {counts:?} of shape {:?}", repeats.shape());
        return Err(Error::argument(OP, m));
    }
    let total = counts.iter().try_fold(0i64, |sum, &c| sum.checked_add(c));
    let total = total.ok_or_else(|| Error::argument(OP, "the repeats add up to more than a tensor can hold"))?;
    if let Some(expected) = output_size.filter(|s| *s != total) {
        return Err(Error::argument(OP, format!("the repeats add up to {total}, output_size says {expected}")));
    }
    let repeated = counts.iter().enumerate().flat_map(|(k, &c)| std::iter::repeat_n(k as i64, as_size(c)));
    ops::index_select(&input, d as i64, &positions(lists::collected(as_size(total), repeated)?, self_)?)
}

pub(crate) fn fliplr(self_: &Tensor) -> Result<Tensor> {
    if self_.ndim() < 2 {
        return Err(Error::argument("fliplr", "needs at least 2 dimensions"));
    }
    ops::flip(self_, &[1])
}

pub(crate) fn flipud(self_: &Tensor) -> Result<Tensor> {
    if self_.ndim() < 1 {
        return Err(Error::argument("flipud", "needs at least 1 dimension"));
    }
    ops::flip(self_, &[0])
}

pub(crate) fn rot90(self_: &Tensor, k: i64, dims: &[i64]) -> Result<Tensor> {
    const OP: &str = "rot90";
    let &[a, b] = dims else { return Err(Error::argument(OP, format!("takes two dimensions, found {dims:?}"))) };
    if self_.ndim() < 2 || wrap_dim(OP, a, self_.ndim())? == wrap_dim(OP, b, self_.ndim())? {
        return Err(Error::argument(OP, format!("takes two different dimensions, found {dims:?}")));
    }
    match k.rem_euclid(4) {
        1 => ops::transpose(&ops::flip(self_, &[b])?, a, b),
        2 => ops::flip(self_, dims),
        3 => ops::transpose(&ops::flip(self_, &[a])?, a, b),
        _ => ops::clone(self_, Some(MemoryFormat::Contiguous)),
    }
}

/// Pads by positions: negative amounts cut first, then positions outside are filled from the other end of the rest.
pub(crate) fn pad_circular(self_: &Tensor, pad: &[SymInt]) -> Result<Tensor> {
    const OP: &str = "pad";
    let mut out = self_.clone();
    let first = self_.ndim() - pad.len() / 2;
    for (k, (before, after)) in shape::join::pads(pad).into_iter().enumerate() {
        let d = first + k;
        let n = self_.shape()[d] as i64;
        let (cut, left) = (before.min(0), n.saturating_add(before.min(0)).saturating_add(after.min(0)));
        if before > n || after > n || left < 0 || (left == 0 && (before > 0 || after > 0)) {
            let m = format!("padding {before} and {after} wraps more than once around dimension {d} with size {n}");
            return Err(Error::argument(OP, m));
        }
        if before == 0 && after == 0 {
            continue;
        }
        // By ops: a list would have to exist on the host, also where a meta tensor needs none.
        let (from, to) = (Scalar::Int(-before.max(0)), Scalar::Int(left + after.max(0)));
        let along = ops::arange_start(from, to, Some(DType::I64), Some(self_.device()))?;
        let wrapped = ops::remainder_scalar(&along, Scalar::Int(left.max(1)))?;
        let at = ops::sub_scalar(&wrapped, Scalar::Int(cut), Scalar::Int(1))?;
        out = ops::index_select(&out, d as i64, &at)?;
    }
    Ok(out)
}

pub(crate) fn pad(self_: &Tensor, pad: &[SymInt], mode: &str, value: Option<f64>) -> Result<Tensor> {
    const OP: &str = "pad";
    if mode == "constant" {
        return ops::constant_pad_nd(self_, pad, Scalar::Float(value.unwrap_or(0.0)));
    }
    if let Some(v) = value.filter(|v| *v != 0.0) {
        return Err(Error::argument(OP, format!("mode {mode:?} takes no value, found {v}")));
    }
    let dims = pad.len() / 2;
    if !pad.len().is_multiple_of(2) || !(1..=3).contains(&dims) || !(dims + 1..=dims + 2).contains(&self_.ndim()) {
        let m = format!(
            "mode {mode:?} pads the last 1 to 3 dimensions of a tensor with one or two more, found {} amounts and shape {:?}",
            pad.len(),
            self_.shape()
        );
        return Err(Error::argument(OP, m));
    }
    match (mode, dims) {
        ("reflect", 1) => ops::reflection_pad1d(self_, pad),
        ("reflect", 2) => ops::reflection_pad2d(self_, pad),
        ("reflect", _) => ops::reflection_pad3d(self_, pad),
        ("replicate", 1) => ops::replication_pad1d(self_, pad),
        ("replicate", 2) => ops::replication_pad2d(self_, pad),
        ("replicate", _) => ops::replication_pad3d(self_, pad),
        ("circular", _) => pad_circular(self_, pad),
        _ => {
            let m = format!("mode is \"constant\", \"reflect\", \"replicate\" or \"circular\", found {mode:?}");
            Err(Error::argument(OP, m))
        }
    }
}

pub(crate) fn cartesian_prod(tensors: &[Tensor]) -> Result<Tensor> {
    if let Some(t) = tensors.iter().find(|t| t.ndim() != 1) {
        let m = format!("takes vectors, found shape {:?}", t.shape());
        return Err(Error::argument("cartesian_prod", m));
    }
    if let [only] = tensors {
        return Ok(only.clone());
    }
    let columns = each(&ops::meshgrid(tensors)?, |g| ops::reshape(g, &[(-1).into()]))?;
    ops::stack(&columns, 1)
}

pub(crate) fn combinations(self_: &Tensor, r: i64, with_replacement: bool) -> Result<Tensor> {
    if self_.ndim() != 1 || r < 0 {
        let m = format!("takes a vector and a non-negative count, found shape {:?} and {r}", self_.shape());
        return Err(Error::argument("combinations", m));
    }
    if r == 0 {
        return ops::new_zeros(self_, &[0.into()], None, None);
    }
    let n = self_.numel() as i64;
    let top = if with_replacement { n.saturating_add(r).saturating_sub(1) } else { n };
    let count = binomial(top, r).ok_or_else(|| {
        Error::argument("combinations", format!("{r} of {n} elements have more combinations than a tensor can hold"))
    })?;
    if self_.is_meta() {
        return ops::new_empty(self_, &[count.into(), r.into()], None, None);
    }
    if count == 0 {
        return ops::take(self_, &Tensor::try_from_vec(Vec::<i64>::new(), [0, r])?);
    }
    // Ascending lists of positions in order: the last place that can be raised is, and those after it start over.
    let places = as_size(count).checked_mul(as_size(r));
    let mut all: Vec<i64> = lists::room(places.unwrap_or(usize::MAX))?;
    let step = i64::from(!with_replacement);
    let mut list = lists::collected(as_size(r), (0..r).map(|k| k * step))?;
    loop {
        all.extend_from_slice(&list);
        let most = |k: usize| n - 1 - (r - 1 - k as i64) * step;
        let Some(k) = (0..list.len()).rev().find(|&k| list[k] < most(k)) else { break };
        let first = list[k] + 1;
        list[k..].iter_mut().zip(0..).for_each(|(p, j)| *p = first + j * step);
    }
    ops::take(self_, &Tensor::try_from_vec(all, [count, r])?)
}

/// The number of ways to choose `r` of `n`, if it is a size.
fn binomial(n: i64, r: i64) -> Option<i64> {
    let r = r.min(n.checked_sub(r)?);
    if r < 0 {
        return Some(0);
    }
    // Each step at least doubles it until then, so this ends soon.
    (0..r).try_fold(1i64, |c, k| i64::try_from(i128::from(c) * i128::from(n - k) / i128::from(k + 1)).ok())
}

pub(crate) fn block_diag(tensors: &[Tensor]) -> Result<Tensor> {
    let blocks = each(tensors, ops::atleast_2d)?;
    if let Some(t) = blocks.iter().find(|t| t.ndim() != 2) {
        let m = format!("takes at most 2 dimensions, found shape {:?}", t.shape());
        return Err(Error::argument("block_diag", m));
    }
    let width: usize = blocks.iter().map(|b| b.shape()[1]).sum();
    let mut left = 0;
    let mut rows = Vec::with_capacity(blocks.len());
    for b in &blocks {
        let right = width - left - b.shape()[1];
        rows.push(ops::constant_pad_nd(b, &sym(&Dims::from_slice(&[left, right])), Scalar::Int(0))?);
        left += b.shape()[1];
    }
    ops::cat(&rows, 0)
}
