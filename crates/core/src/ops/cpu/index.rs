//! Moving elements by index or by mask. Indices are checked before anything is written, so an error leaves the output
//! unchanged.
//!
//! In the in-place variants the output is `self_` itself; a source that overlaps it is copied first, an index that does
//! is an error, because it would change while it is read.

use super::{copy_into, expand, out_of_range, zero_into};
use crate::layout::{Dims, Layout};
use crate::ops::inplace::{Overlap, overlap};
use crate::ops::shape::{self, wrap_dim};
use crate::sym::SymInt;
use crate::{DType, Device, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::index as kernel;
use firebrand_kernels::pointwise::Op;

/// The tensor with at least one dimension.
pub(super) fn lifted(t: &Tensor) -> Tensor {
    if t.ndim() > 0 { t.clone() } else { t.alias_with(Layout::derived(&[1], &[1], t.layout().offset())) }
}

/// Brings the old values of an op that then writes over some of them.
fn start_from(op: &'static str, self_: &Tensor, indices: &[&Tensor], out: &Tensor) -> Result<()> {
    for index in indices {
        index.need_data(op)?;
        if overlap(out, index) != Overlap::No {
            return Err(Error::argument(
                op,
                "the index shares memory with the tensor to write; call clone_tensor() on it first",
            ));
        }
    }
    if out.is_same(self_) { Ok(()) } else { copy_into(self_, out) }
}

/// The source, out of the way of what is written.
fn apart(src: &Tensor, out: &Tensor) -> Result<Tensor> {
    if overlap(out, src) == Overlap::No {
        return Ok(src.clone());
    }
    let copy = Tensor::try_empty(Spec::new(src.shape(), src.dtype(), src.device())?)?;
    copy_into(src, &copy)?;
    Ok(copy)
}

/// A number in the dtype of `out`.
fn number(value: Scalar, out: &Tensor) -> Result<Tensor> {
    Tensor::try_full_spec(&[], value, out.dtype())
}

/// A 0-dim tensor in the dtype of `out`.
fn number_of(op: &'static str, value: &Tensor, out: &Tensor) -> Result<Tensor> {
    value.need_data(op)?;
    let copy = Tensor::try_empty(Spec::new(&[], out.dtype(), Device::Cpu)?)?;
    copy_into(value, &copy)?;
    Ok(copy)
}

/// `gather`.
pub(crate) fn gather(self_: &Tensor, dim: i64, index: &Tensor, _sparse: bool, out: &Tensor) -> Result<()> {
    const OP: &str = "gather";
    index.need_data(OP)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (input, index, out) = (lifted(self_), lifted(index), lifted(out));
    let (input, index, out) = (input.read()?, index.read()?, out.write()?);
    kernel::gather(&input.view(), d, &index.view(), &out.view_mut()).map_err(|e| out_of_range(OP, d, e))
}

/// `scatter.src`.
pub(crate) fn scatter(self_: &Tensor, dim: i64, index: &Tensor, src: &Tensor, out: &Tensor) -> Result<()> {
    const OP: &str = "scatter";
    start_from(OP, self_, &[index], out)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (to, index, src) = (lifted(out), lifted(index), lifted(&apart(src, out)?));
    let (to, index, src) = (to.write()?, index.read()?, src.read()?);
    kernel::scatter(&to.view_mut(), d, &index.view(), &src.view()).map_err(|e| out_of_range(OP, d, e))
}

/// `scatter.value`.
pub(crate) fn scatter_value(self_: &Tensor, dim: i64, index: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    const OP: &str = "scatter";
    start_from(OP, self_, &[index], out)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (to, index, value) = (lifted(out), lifted(index), number(value, out)?);
    let value = expand(&value, index.shape())?;
    let (to, index) = (to.write()?, index.read()?);
    kernel::scatter(&to.view_mut(), d, &index.view(), &value.view()).map_err(|e| out_of_range(OP, d, e))
}

/// `scatter_add`.
pub(crate) fn scatter_add(self_: &Tensor, dim: i64, index: &Tensor, src: &Tensor, out: &Tensor) -> Result<()> {
    combine("scatter_add", self_, dim, index, src, kernel::Reduce::Sum, true, out)
}

#[allow(clippy::too_many_arguments)] // the op's own, and its name
fn combine(
    op: &'static str,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: kernel::Reduce,
    include_self: bool,
    out: &Tensor,
) -> Result<()> {
    start_from(op, self_, &[index], out)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let d = wrap_dim(op, dim, self_.ndim())?;
    let (to, index, src) = (lifted(out), lifted(index), lifted(&apart(src, out)?));
    let (to, index, src) = (to.write()?, index.read()?, src.read()?);
    kernel::scatter_reduce(&to.view_mut(), d, &index.view(), &src.view(), reduce, include_self)
        .map_err(|e| out_of_range(op, d, e))
}

/// `scatter_reduce.two`.
pub(crate) fn scatter_reduce(
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    include_self: bool,
    out: &Tensor,
) -> Result<()> {
    const OP: &str = "scatter_reduce";
    let how = match reduce {
        "prod" => kernel::Reduce::Prod,
        "amax" => kernel::Reduce::Amax,
        "amin" => kernel::Reduce::Amin,
        _ => kernel::Reduce::Sum,
    };
    combine(OP, self_, dim, index, src, how, include_self, out)?;
    if reduce != "mean" || index.numel() == 0 {
        return Ok(());
    }
    // How many elements were added up where.
    let count = |t: &Tensor, v: i64| Tensor::try_full_spec(t.shape(), Scalar::Int(v), out.dtype());
    let counts = count(out, i64::from(include_self))?;
    combine(OP, &counts, dim, index, &count(index, 1)?, kernel::Reduce::Sum, true, &counts)?;
    let one = Scalar::Int(1);
    super::pointwise::scalar_op(Op::Maximum, out.dtype().compute(), &counts, one, &counts)?;
    let divide = if out.is_floating_point() { Op::Div } else { Op::FloorDivide };
    super::pointwise::binary_op(divide, out.dtype().compute(), out, &counts, out)
}

/// `index_select`.
pub(crate) fn index_select(self_: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Result<()> {
    const OP: &str = "index_select";
    index.need_data(OP)?;
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (input, index, out) = (lifted(self_), lifted(index), lifted(out));
    let (input, index, out) = (input.read()?, index.read()?, out.write()?);
    kernel::index_select(&input.view(), d, &index.view(), &out.view_mut()).map_err(|e| out_of_range(OP, d, e))
}

/// `index_add`.
pub(crate) fn index_add(
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    alpha: Scalar,
    out: &Tensor,
) -> Result<()> {
    const OP: &str = "index_add";
    start_from(OP, self_, &[index], out)?;
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (to, index, src) = (lifted(out), lifted(index), lifted(&apart(source, out)?));
    let (to, index, src) = (to.write()?, index.read()?, src.read()?);
    kernel::index_add(&to.view_mut(), d, &index.view(), &src.view(), alpha.to_f64()).map_err(|e| out_of_range(OP, d, e))
}

/// `index_copy`.
pub(crate) fn index_copy(self_: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor) -> Result<()> {
    const OP: &str = "index_copy";
    start_from(OP, self_, &[index], out)?;
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (to, index, src) = (lifted(out), lifted(index), lifted(&apart(source, out)?));
    let (to, index, src) = (to.write()?, index.read()?, src.read()?);
    kernel::index_copy(&to.view_mut(), d, &index.view(), &src.view()).map_err(|e| out_of_range(OP, d, e))
}

/// `index_reduce`: the index of every element of the source, then as `scatter_reduce`.
pub(crate) fn index_reduce(
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
    out: &Tensor,
) -> Result<()> {
    let d = wrap_dim("index_reduce", dim, self_.ndim())?;
    let src = lifted(source);
    let mut strides = Dims::from_elem(0, src.ndim());
    strides[d] = lifted(index).strides()[0];
    let spread = index.alias_with(Layout::strided(src.shape(), &strides, index.layout().offset())?);
    let (from, to) = (lifted(self_), lifted(out));
    let (from, to) = if out.is_same(self_) { (to.clone(), to) } else { (from, to) };
    scatter_reduce(&from, d as i64, &spread, &src, reduce, include_self, &to)
}

/// `index_fill` with a number.
pub(crate) fn index_fill(self_: &Tensor, dim: i64, index: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    fill_rows(self_, dim, index, &number(value, out)?, out)
}

/// `index_fill` with the number in a tensor.
pub(crate) fn index_fill_tensor(self_: &Tensor, dim: i64, index: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    fill_rows(self_, dim, index, &number_of("index_fill", value, out)?, out)
}

fn fill_rows(self_: &Tensor, dim: i64, index: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    const OP: &str = "index_fill";
    start_from(OP, self_, &[index], out)?;
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let (to, index) = (lifted(out), lifted(index));
    let (to, index, value) = (to.write()?, index.read()?, value.read()?);
    kernel::index_fill(&to.view_mut(), d, &index.view(), &value.view()).map_err(|e| out_of_range(OP, d, e))
}

/// `masked_fill` with a number.
pub(crate) fn masked_fill(self_: &Tensor, mask: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    fill_masked(self_, mask, &number(value, out)?, out)
}

/// `masked_fill` with the number in a tensor.
pub(crate) fn masked_fill_tensor(self_: &Tensor, mask: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    fill_masked(self_, mask, &number_of("masked_fill", value, out)?, out)
}

fn fill_masked(self_: &Tensor, mask: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    start_from("masked_fill", self_, &[mask], out)?;
    let mask = expand(mask, out.shape())?;
    let (to, value) = (out.write()?, value.read()?);
    kernel::masked_fill(&to.view_mut(), &mask.view(), &value.view());
    Ok(())
}

/// `masked_select`.
pub(crate) fn masked_select(self_: &Tensor, mask: &Tensor) -> Result<Tensor> {
    const OP: &str = "masked_select";
    let sizes = shape::index::masked_select(OP, self_, mask)?;
    self_.need_data(OP)?;
    mask.need_data(OP)?;
    let (input, mask) = (expand(self_, &sizes)?, expand(mask, &sizes)?);
    let n = kernel::count_nonzero(&mask.view());
    let out = Tensor::try_empty(Spec::new(&[n], self_.dtype(), self_.device())?)?;
    kernel::masked_select(&input.view(), &mask.view(), &out.write()?.view_mut());
    Ok(out)
}

/// `masked_scatter`.
pub(crate) fn masked_scatter(self_: &Tensor, mask: &Tensor, source: &Tensor, out: &Tensor) -> Result<()> {
    const OP: &str = "masked_scatter";
    mask.need_data(OP)?;
    let chosen = expand(mask, out.shape())?;
    let n = kernel::count_nonzero(&chosen.view());
    if source.numel() < n {
        let m = format!("the mask chooses {n} elements, the source has {}", source.numel());
        return Err(Error::argument(OP, m));
    }
    start_from(OP, self_, &[mask], out)?;
    let flat = Tensor::try_empty(Spec::new(&[source.numel()], source.dtype(), source.device())?)?;
    copy_into(source, &flat.alias_with(Layout::contiguous(source.shape())?))?;
    kernel::masked_scatter(&out.write()?.view_mut(), &chosen.view(), &flat.read()?.view());
    Ok(())
}

/// `take`.
pub(crate) fn take(self_: &Tensor, index: &Tensor, out: &Tensor) -> Result<()> {
    index.need_data("take")?;
    let (input, index, out) = (self_.read()?, index.read()?, out.write()?);
    kernel::take(&input.view(), &index.view(), &out.view_mut()).map_err(|e| out_of_range("take", 0, e))
}

/// `put`.
pub(crate) fn put(self_: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool, out: &Tensor) -> Result<()> {
    start_from("put", self_, &[index], out)?;
    let src = Tensor::try_empty(Spec::new(index.shape(), source.dtype(), source.device())?)?;
    copy_into(source, &src.alias_with(Layout::contiguous(source.shape())?))?;
    let (to, index, src) = (out.write()?, index.read()?, src.read()?);
    kernel::put(&to.view_mut(), &index.view(), &src.view(), accumulate).map_err(|e| out_of_range("put", 0, e))
}

/// `nonzero`.
pub(crate) fn nonzero(self_: &Tensor) -> Result<Tensor> {
    self_.need_data("nonzero")?;
    let input = self_.read()?;
    let n = kernel::count_nonzero(&input.view());
    let out = Tensor::try_empty(Spec::new(&[n, self_.ndim()], DType::I64, self_.device())?)?;
    if self_.ndim() > 0 {
        kernel::nonzero(&input.view(), &out.write()?.view_mut());
    }
    Ok(out)
}

/// `nonzero_static`: as many rows as requested, cut off or filled up.
pub(crate) fn nonzero_static(self_: &Tensor, size: SymInt, fill_value: i64) -> Result<Tensor> {
    let Some(rows) = size.to_usize() else {
        return Err(Error::argument("nonzero_static", format!("the size must not be negative, found {size}")));
    };
    let out = Tensor::try_empty(Spec::new(&[rows, self_.ndim()], DType::I64, self_.device())?)?;
    if !out.is_meta() {
        firebrand_kernels::fill(out.write()?.view_mut(), crate::Scalar::Int(fill_value).into());
        let found = nonzero(self_)?;
        let kept = crate::layout::Layout::contiguous(&[found.shape()[0].min(rows), self_.ndim()])?;
        super::copy_into(&found.alias_with(kept.clone()), &out.alias_with(kept))?;
    }
    Ok(out)
}

/// `embedding`.
pub(crate) fn embedding(
    weight: &Tensor,
    indices: &Tensor,
    _padding_idx: SymInt,
    _scale: bool,
    _sparse: bool,
    out: &Tensor,
) -> Result<()> {
    indices.need_data("embedding")?;
    let (weight, indices, out) = (weight.read()?, indices.read()?, out.write()?);
    kernel::embedding(&weight.view(), &indices.view(), &out.view_mut()).map_err(|e| out_of_range("embedding", 0, e))
}

/// `embedding_dense_backward`.
pub(crate) fn embedding_dense_backward(
    grad: &Tensor,
    indices: &Tensor,
    _num_weights: SymInt,
    padding_idx: SymInt,
    scale: bool,
    out: &Tensor,
) -> Result<()> {
    const OP: &str = "embedding_dense_backward";
    indices.need_data(OP)?;
    zero_into(out)?;
    let (grad, indices, to) = (grad.read()?, indices.read()?, out.write()?);
    kernel::embedding_dense_backward(&grad.view(), &indices.view(), &to.view_mut(), padding_idx.to_usize(), scale)
        .map_err(|e| out_of_range(OP, 0, e))
}

/// A mask has the sizes of the dimensions it stands for, from `at` on.
pub(crate) fn need_mask(op: &'static str, self_: &Tensor, at: usize, mask: &Tensor) -> Result<()> {
    if self_.shape().get(at..at + mask.ndim()) == Some(mask.shape()) {
        return Ok(());
    }
    let m = format!(
        "the mask has shape {:?}, the tensor {:?} from dimension {at} on",
        mask.shape(),
        self_.shape().get(at..).unwrap_or_default()
    );
    Err(Error::argument(op, m))
}

/// Indices as kernels take them: masks turned into positions, all of one shape.
pub(crate) struct Positions {
    indices: Vec<Option<Tensor>>,
    layouts: Vec<Option<Layout>>,
    common: Dims,
    /// Which dimensions of the tensor are indexed.
    indexed: Vec<bool>,
}

impl Positions {
    /// Reads masks (their numbers decide the result's size) and broadcasts.
    pub(crate) fn new(op: &'static str, self_: &Tensor, given: &[Option<Tensor>]) -> Result<Positions> {
        let mut indices: Vec<Option<Tensor>> = Vec::new();
        for index in given {
            match index {
                Some(mask) if matches!(mask.dtype(), DType::Bool | DType::U8) => {
                    need_mask(op, self_, indices.len(), mask)?;
                    let coordinates = nonzero(mask)?;
                    let (n, row) = (coordinates.shape()[0], mask.ndim());
                    indices.extend((0..row).map(|k| Some(coordinates.alias_with(Layout::derived(&[n], &[row], k)))));
                }
                Some(index) => {
                    shape::index::need_index(op, index)?;
                    indices.push(Some(index.clone()));
                }
                None => indices.push(None),
            }
        }
        if indices.len() > self_.ndim() {
            let m = format!("{} indices for a tensor with {} dimensions", indices.len(), self_.ndim());
            return Err(Error::argument(op, m));
        }
        let mut common = Dims::new();
        for index in indices.iter().flatten() {
            common = shape::broadcast(op, &common, index.shape())?;
        }
        let layouts = indices.iter().map(|i| i.as_ref().map(|i| shape::expanded(i, &common)).transpose());
        let layouts = layouts.collect::<Result<_>>()?;
        let indexed: Vec<bool> = indices.iter().map(Option::is_some).collect();
        let empty = (0..indices.len()).find(|&k| indexed[k] && self_.shape()[k] == 0);
        if let Some(dim) = empty.filter(|_| common.iter().product::<usize>() > 0) {
            return Err(Error::argument(op, format!("dimension {dim} has size 0: no index names an element of it")));
        }
        Ok(Positions { indices, layouts, common, indexed })
    }

    /// The shape of what the indices name.
    pub(crate) fn sizes(&self, self_: &Tensor) -> Dims {
        Dims::from_slice(&kernel::index_sizes(self_.shape(), &self.indexed, &self.common))
    }

    /// Runs a kernel on the index views.
    fn with<R>(&self, f: impl FnOnce(&[Option<firebrand_kernels::View<'_>>]) -> R) -> Result<R> {
        let accesses: Vec<_> =
            self.indices.iter().map(|i| i.as_ref().map(Tensor::read).transpose()).collect::<Result<_>>()?;
        let views: Vec<_> = accesses
            .iter()
            .zip(&self.layouts)
            .map(|(a, l)| match (a, l) {
                (Some(a), Some(l)) => Some(a.view_as(l.sizes(), l.strides())),
                _ => None,
            })
            .collect();
        Ok(f(&views))
    }
}

/// `index.Tensor`.
pub(crate) fn index(self_: &Tensor, indices: &[Option<Tensor>]) -> Result<Tensor> {
    const OP: &str = "index";
    let at = Positions::new(OP, self_, indices)?;
    let out = Tensor::try_empty(Spec::new(&at.sizes(self_), self_.dtype(), self_.device())?)?;
    if out.is_meta() {
        return Ok(out);
    }
    for i in at.indices.iter().flatten() {
        i.need_data(OP)?;
    }
    let (input, to) = (self_.read()?, out.write()?);
    at.with(|views| kernel::index(&input.view(), views, &to.view_mut()))?.map_err(|e| out_of_range(OP, 0, e))?;
    Ok(out)
}

/// `index_put`.
pub(crate) fn index_put(
    self_: &Tensor,
    indices: &[Option<Tensor>],
    values: &Tensor,
    accumulate: bool,
    out: &Tensor,
) -> Result<()> {
    const OP: &str = "index_put";
    let at = Positions::new(OP, self_, indices)?;
    let sizes = at.sizes(self_);
    if !shape::is_expandable_to(values.shape(), &sizes) {
        let m = format!("values of shape {:?} cannot be broadcast to what the indices name, {sizes:?}", values.shape());
        return Err(Error::argument(OP, m));
    }
    values.need_data(OP)?;
    let lists: Vec<&Tensor> = at.indices.iter().flatten().collect();
    start_from(OP, self_, &lists, out)?;
    let values = apart(values, out)?;
    let values = expand(&values, &sizes)?;
    let to = out.write()?;
    at.with(|views| kernel::index_put(&to.view_mut(), views, &values.view(), accumulate))?
        .map_err(|e| out_of_range(OP, 0, e))
}
