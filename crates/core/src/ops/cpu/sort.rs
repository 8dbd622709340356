//! Sorting, selection by rank, search and distinct elements.

use super::copy_into;
use super::index::lifted;
use crate::layout::Layout;
use crate::ops::lists;
use crate::ops::shape::{view, wrap_dim};
use crate::sym::SymInt;
use crate::{DType, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::sort as kernel;

/// `sort`.
pub(crate) fn sort(self_: &Tensor, dim: i64, descending: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    let d = wrap_dim("sort", dim, self_.ndim())?;
    let (input, values, indices) = (lifted(self_), lifted(values), lifted(indices));
    let (input, values, indices) = (input.read()?, values.write()?, indices.write()?);
    kernel::sort(&input.view(), d, descending, Some(&values.view_mut()), &indices.view_mut());
    Ok(())
}

/// `sort.stable`; every sort is.
pub(crate) fn sort_stable(
    self_: &Tensor,
    _stable: Option<bool>,
    dim: i64,
    descending: bool,
    values: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    sort(self_, dim, descending, values, indices)
}

/// `topk`.
pub(crate) fn topk(
    self_: &Tensor,
    _k: SymInt,
    dim: i64,
    largest: bool,
    sorted: bool,
    values: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    let d = wrap_dim("topk", dim, self_.ndim())?;
    if values.numel() == 0 {
        return Ok(());
    }
    let (input, values, indices) = (lifted(self_), lifted(values), lifted(indices));
    let (input, values, indices) = (input.read()?, values.write()?, indices.write()?);
    kernel::topk(&input.view(), d, largest, sorted, &values.view_mut(), &indices.view_mut());
    Ok(())
}

/// An output with the reduced dimension back in its place.
fn kept(out: &Tensor, d: usize, ndim: usize) -> Result<Tensor> {
    if out.ndim() == ndim.max(1) {
        return Ok(out.clone());
    }
    Ok(out.alias_with(view::unsqueeze(out, d as i64)?))
}

/// `kthvalue`.
pub(crate) fn kthvalue(
    self_: &Tensor,
    k: SymInt,
    dim: i64,
    _keepdim: bool,
    values: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    let d = wrap_dim("kthvalue", dim, self_.ndim())?;
    let (v, i) = (kept(values, d, self_.ndim())?, kept(indices, d, self_.ndim())?);
    let input = lifted(self_);
    let (input, v, i) = (input.read()?, v.write()?, i.write()?);
    kernel::kthvalue(&input.view(), d, k.to_usize().unwrap_or(1), &v.view_mut(), &i.view_mut());
    Ok(())
}

fn median_along(self_: &Tensor, dim: i64, ignore_nan: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    let d = wrap_dim("median", dim, self_.ndim())?;
    let (v, i) = (kept(values, d, self_.ndim())?, kept(indices, d, self_.ndim())?);
    let input = lifted(self_);
    let (input, v, i) = (input.read()?, v.write()?, i.write()?);
    kernel::median(&input.view(), d, ignore_nan, &v.view_mut(), &i.view_mut());
    Ok(())
}

/// `median.dim`.
pub(crate) fn median_dim(self_: &Tensor, dim: i64, _: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    median_along(self_, dim, false, values, indices)
}

/// `nanmedian.dim`.
pub(crate) fn nanmedian_dim(self_: &Tensor, dim: i64, _: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    median_along(self_, dim, true, values, indices)
}

fn median_of_all(self_: &Tensor, ignore_nan: bool, out: &Tensor) -> Result<()> {
    if self_.numel() == 0 {
        firebrand_kernels::fill(out.write()?.view_mut(), Scalar::Float(f64::NAN).into());
        return Ok(());
    }
    let flat = Tensor::try_empty(Spec::new(&[self_.numel()], self_.dtype(), self_.device())?)?;
    copy_into(self_, &flat.alias_with(Layout::contiguous(self_.shape())?))?;
    let index = Tensor::try_empty(Spec::new(&[], DType::I64, self_.device())?)?;
    median_along(&flat, 0, ignore_nan, out, &index)
}

/// `median`.
pub(crate) fn median(self_: &Tensor, out: &Tensor) -> Result<()> {
    median_of_all(self_, false, out)
}

/// `nanmedian`.
pub(crate) fn nanmedian(self_: &Tensor, out: &Tensor) -> Result<()> {
    median_of_all(self_, true, out)
}

/// `mode`.
pub(crate) fn mode(self_: &Tensor, dim: i64, _: bool, values: &Tensor, indices: &Tensor) -> Result<()> {
    let d = wrap_dim("mode", dim, self_.ndim())?;
    let (v, i) = (kept(values, d, self_.ndim())?, kept(indices, d, self_.ndim())?);
    let input = lifted(self_);
    let (input, v, i) = (input.read()?, v.write()?, i.write()?);
    kernel::mode(&input.view(), d, &v.view_mut(), &i.view_mut());
    Ok(())
}

/// `searchsorted`.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn searchsorted(
    sorted_sequence: &Tensor,
    self_: &Tensor,
    _out_int32: bool,
    right: bool,
    side: Option<&str>,
    sorter: Option<&Tensor>,
    out: &Tensor,
) -> Result<()> {
    let mut sequence = sorted_sequence.clone();
    if let Some(order) = sorter {
        sequence = Tensor::try_empty(Spec::new(order.shape(), sorted_sequence.dtype(), order.device())?)?;
        super::index::gather(sorted_sequence, -1, order, false, &sequence)?;
    }
    if sequence.dtype() != self_.dtype() {
        let same = Tensor::try_empty(Spec::new(self_.shape(), sequence.dtype(), self_.device())?)?;
        copy_into(self_, &same)?;
        return search(&sequence, &same, right || side == Some("right"), out);
    }
    search(&sequence, self_, right || side == Some("right"), out)
}

fn search(sequence: &Tensor, values: &Tensor, right: bool, out: &Tensor) -> Result<()> {
    let (sequence, values, out) = (sequence.read()?, values.read()?, out.write()?);
    kernel::searchsorted(&sequence.view(), &values.view(), right, &out.view_mut());
    Ok(())
}

/// `bucketize`.
pub(crate) fn bucketize(self_: &Tensor, boundaries: &Tensor, out_int32: bool, right: bool, out: &Tensor) -> Result<()> {
    searchsorted(boundaries, self_, out_int32, right, None, None, out)
}

/// Values, places and counts of distinct elements.
fn distinct(
    op: &'static str,
    self_: &Tensor,
    consecutive: bool,
    (inverse, counts): (bool, bool),
) -> Result<(Tensor, Tensor, Tensor)> {
    self_.need_data(op)?;
    let found = kernel::unique(&self_.read()?.view(), consecutive);
    let n = found.positions.len();
    let positions = Tensor::try_from_vec(found.positions, [n])?;
    let values = Tensor::try_empty(Spec::new(&[n], self_.dtype(), self_.device())?)?;
    super::index::take(self_, &positions, &values)?;
    let inverse = match inverse {
        true => Tensor::try_from_vec(found.inverse, self_.shape())?,
        false => Tensor::try_from_vec(Vec::<i64>::new(), [0])?,
    };
    let counts = Tensor::try_from_vec(if counts { found.counts } else { Vec::new() }, [if counts { n } else { 0 }])?;
    Ok((values, inverse, counts))
}

/// `_unique2`.
pub(crate) fn unique2(
    self_: &Tensor,
    _sorted: bool,
    return_inverse: bool,
    return_counts: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    distinct("unique", self_, false, (return_inverse, return_counts))
}

/// `unique_consecutive`.
pub(crate) fn unique_consecutive(
    self_: &Tensor,
    return_inverse: bool,
    return_counts: bool,
    dim: Option<i64>,
) -> Result<(Tensor, Tensor, Tensor)> {
    match dim {
        None => distinct("unique_consecutive", self_, true, (return_inverse, return_counts)),
        Some(dim) => distinct_slices("unique_consecutive", self_, dim, true, (return_inverse, return_counts)),
    }
}

/// `unique_dim`.
pub(crate) fn unique_dim(
    self_: &Tensor,
    dim: i64,
    _sorted: bool,
    return_inverse: bool,
    return_counts: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    distinct_slices("unique_dim", self_, dim, false, (return_inverse, return_counts))
}

/// Like [`distinct`], for whole slices along `dim`, compared element by element.
fn distinct_slices(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    consecutive: bool,
    (inverse, counts): (bool, bool),
) -> Result<(Tensor, Tensor, Tensor)> {
    self_.need_data(op)?;
    if self_.ndim() == 0 {
        return Err(Error::argument(op, "a 0-dim tensor has no slices"));
    }
    let d = wrap_dim(op, dim, self_.ndim())?;
    let n = self_.shape()[d];
    // Ranks of all elements stand for the elements: they compare alike, whatever the dtype.
    let ranks = kernel::unique(&self_.read()?.view(), false).inverse;
    let inner: usize = self_.shape()[d + 1..].iter().product();
    let outer: usize = self_.shape()[..d].iter().product();
    let slice = |k: usize| -> Result<Vec<i64>> {
        let places = (0..outer).flat_map(|o| (0..inner).map(move |i| (o * n + k) * inner + i));
        lists::collected(outer * inner, places.map(|at| ranks[at]))
    };
    let mut order: Vec<(Vec<i64>, usize)> = lists::room(n)?;
    for k in 0..n {
        order.push((slice(k)?, k));
    }
    if !consecutive {
        order.sort_unstable(); // each has its number, so there are no equals
    }
    let (mut positions, mut group, mut sizes) = (lists::room(n)?, lists::filled(0i64, n)?, lists::room::<i64>(n)?);
    for (at, (ranks, k)) in order.iter().enumerate() {
        if at == 0 || order[at - 1].0 != *ranks {
            positions.push(*k as i64);
            sizes.push(0);
        }
        group[*k] = sizes.len() as i64 - 1;
        if let Some(s) = sizes.last_mut() {
            *s += 1;
        }
    }
    let count = positions.len();
    let mut shape = self_.dims();
    shape[d] = count;
    let values = Tensor::try_empty(Spec::new(&shape, self_.dtype(), self_.device())?)?;
    super::index::index_select(self_, d as i64, &Tensor::try_from_vec(positions, [count])?, &values)?;
    let list = |wanted: bool, v: Vec<i64>| {
        let v = if wanted { v } else { Vec::new() };
        let len = v.len();
        Tensor::try_from_vec(v, [len])
    };
    Ok((values, list(inverse, group)?, list(counts, sizes)?))
}

/// `isin`.
pub(crate) fn isin(elements: &Tensor, test_elements: &Tensor, _assume_unique: bool, invert: bool) -> Result<Tensor> {
    const OP: &str = "isin";
    if elements.is_meta() {
        return Tensor::try_empty(Spec::new(elements.shape(), DType::Bool, elements.device())?);
    }
    test_elements.need_data(OP)?;
    let dtype = crate::dtype::result_type(elements, test_elements);
    let as_common = |t: &Tensor| -> Result<Tensor> {
        let out = Tensor::try_empty(Spec::new(&[t.numel()], dtype, t.device())?)?;
        copy_into(t, &out.alias_with(Layout::contiguous(t.shape())?))?;
        Ok(out)
    };
    let (wanted, tests) = (as_common(elements)?, as_common(test_elements)?);
    let order = Tensor::try_empty(Spec::new(tests.shape(), DType::I64, tests.device())?)?;
    let sorted = Tensor::try_empty(Spec::new(tests.shape(), dtype, tests.device())?)?;
    sort(&tests, 0, false, &sorted, &order)?;
    // An element occurs if it would be inserted at different places before and after its equals.
    let place = |right: bool| -> Result<Vec<i64>> {
        let out = Tensor::try_empty(Spec::new(wanted.shape(), DType::I64, wanted.device())?)?;
        search(&sorted, &wanted, right, &out)?;
        out.try_to_vec()
    };
    let found = Tensor::try_empty(Spec::new(elements.shape(), DType::Bool, elements.device())?)?;
    lists::write(&found, place(false)?.iter().zip(place(true)?).map(|(a, b)| (*a != b) != invert))?;
    Ok(found)
}
