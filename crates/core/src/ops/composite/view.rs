//! Views composed of views, and copies of views.

use crate::dispatch::MemoryFormat;
use crate::layout::Dims;
use crate::limits::as_size;
use crate::ops::formulas::sym;
use crate::ops::lists;
use crate::ops::shape::{self, view::infer_size, wrap_dim};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Error, Result, Tensor, ops};

/// The same elements with other sizes: a view if the memory allows it, else a copy.
pub(crate) fn reshape(self_: &Tensor, shape: &[SymInt]) -> Result<Tensor> {
    let sizes = infer_size("reshape", shape, self_.numel())?;
    if self_.layout().view_strides(&sizes).is_some() {
        return ops::view(self_, &sym(&sizes));
    }
    let dense = ops::clone(self_, Some(MemoryFormat::Contiguous))?;
    ops::unsafe_view(&dense, &sym(&sizes))
}

pub(crate) fn reshape_as(self_: &Tensor, other: &Tensor) -> Result<Tensor> {
    ops::reshape(self_, &other.sym_sizes())
}

pub(crate) fn view_as(self_: &Tensor, other: &Tensor) -> Result<Tensor> {
    ops::view(self_, &other.sym_sizes())
}

pub(crate) fn expand_as(self_: &Tensor, other: &Tensor) -> Result<Tensor> {
    ops::expand(self_, &other.sym_sizes(), false)
}

pub(crate) fn broadcast_to(self_: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    ops::expand(self_, size, false)
}

pub(crate) fn broadcast_tensors(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut sizes = Dims::new();
    for t in tensors {
        sizes = shape::broadcast("broadcast_tensors", &sizes, t.shape())?;
    }
    tensors.iter().map(|t| ops::expand(t, &sym(&sizes), false)).collect()
}

pub(crate) fn swapaxes(self_: &Tensor, axis0: i64, axis1: i64) -> Result<Tensor> {
    ops::transpose(self_, axis0, axis1)
}

/// All dimensions in reverse.
pub(crate) fn numpy_t(self_: &Tensor) -> Result<Tensor> {
    let dims: Vec<i64> = (0..self_.ndim() as i64).rev().collect();
    ops::permute(self_, &dims)
}

/// The transpose of each matrix.
pub(crate) fn mt(self_: &Tensor) -> Result<Tensor> {
    if self_.ndim() < 2 {
        let m = format!("a tensor with {} dimensions holds no matrices; it needs at least 2", self_.ndim());
        return Err(Error::argument("mT", m));
    }
    ops::transpose(self_, -2, -1)
}

pub(crate) fn narrow(self_: &Tensor, dim: i64, start: SymInt, length: SymInt) -> Result<Tensor> {
    const OP: &str = "narrow";
    if self_.ndim() == 0 {
        return Err(Error::argument(OP, "a 0-dim tensor cannot be narrowed"));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let n = self_.shape()[d] as i64;
    let at = if start.int() < 0 { start.int().saturating_add(n) } else { start.int() };
    let length = length.int();
    if length < 0 || at < 0 || at > n || length > n - at {
        let m = format!("start {start} and length {length} reach outside dimension {d} with size {n}");
        return Err(Error::argument(OP, m));
    }
    ops::slice(self_, dim, Some(at.into()), Some((at + length).into()), 1.into())
}

pub(crate) fn flatten(self_: &Tensor, start_dim: i64, end_dim: i64) -> Result<Tensor> {
    const OP: &str = "flatten";
    let (a, b) = (wrap_dim(OP, start_dim, self_.ndim())?, wrap_dim(OP, end_dim, self_.ndim())?);
    if a > b {
        return Err(Error::argument(OP, format!("the first dimension ({a}) comes after the last ({b})")));
    }
    if self_.ndim() == 0 {
        return ops::reshape(self_, &[1.into()]);
    }
    if a == b {
        return Ok(self_.clone());
    }
    let s = self_.shape();
    let mut sizes = sym(&s[..a]);
    sizes.push(s[a..=b].iter().product::<usize>().into());
    sizes.extend(sym(&s[b + 1..]));
    ops::reshape(self_, &sizes)
}

pub(crate) fn unflatten(self_: &Tensor, dim: i64, sizes: &[SymInt]) -> Result<Tensor> {
    const OP: &str = "unflatten";
    let d = wrap_dim(OP, dim, self_.ndim())?;
    if sizes.is_empty() || self_.ndim() == 0 {
        return Err(Error::argument(OP, "give at least one size for a tensor with dimensions"));
    }
    let inner = infer_size(OP, sizes, self_.shape()[d])?;
    let s = self_.shape();
    let mut all = sym(&s[..d]);
    all.extend(sym(&inner));
    all.extend(sym(&s[d + 1..]));
    ops::view(self_, &all)
}

pub(crate) fn ravel(self_: &Tensor) -> Result<Tensor> {
    let dense = ops::contiguous(self_, MemoryFormat::Contiguous)?;
    ops::view(&dense, &[(-1).into()])
}

pub(crate) fn split_sizes(self_: &Tensor, split_size: &[SymInt], dim: i64) -> Result<Vec<Tensor>> {
    ops::split_with_sizes(self_, split_size, dim)
}

/// The size of every chunk but the last.
fn chunk_size(op: &'static str, self_: &Tensor, chunks: i64, dim: i64) -> Result<(usize, usize)> {
    if self_.ndim() == 0 {
        return Err(Error::argument(op, "a 0-dim tensor cannot be split"));
    }
    if chunks <= 0 {
        return Err(Error::argument(op, format!("the number of chunks must be positive, found {chunks}")));
    }
    let d = wrap_dim(op, dim, self_.ndim())?;
    let n = self_.shape()[d];
    Ok((n, n.div_ceil(as_size(chunks))))
}

pub(crate) fn chunk(self_: &Tensor, chunks: i64, dim: i64) -> Result<Vec<Tensor>> {
    let (n, size) = chunk_size("chunk", self_, chunks, dim)?;
    if n == 0 {
        lists::room_for_views(as_size(chunks))?;
        let sizes: SymInts = (0..chunks).map(|_| SymInt::from(0i64)).collect();
        return ops::split_with_sizes(self_, &sizes, dim);
    }
    ops::split(self_, size.into(), dim)
}

pub(crate) fn unsafe_chunk(self_: &Tensor, chunks: i64, dim: i64) -> Result<Vec<Tensor>> {
    let (_, size) = chunk_size("unsafe_chunk", self_, chunks, dim)?;
    ops::unsafe_split(self_, size.into(), dim)
}

pub(crate) fn tensor_split(self_: &Tensor, sections: SymInt, dim: i64) -> Result<Vec<Tensor>> {
    const OP: &str = "tensor_split";
    if self_.ndim() == 0 {
        return Err(Error::argument(OP, "a 0-dim tensor cannot be split"));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let parts = sections.int();
    if parts <= 0 {
        return Err(Error::argument(OP, format!("the number of sections must be positive, found {parts}")));
    }
    let (n, parts) = (self_.shape()[d], as_size(parts));
    lists::room_for_views(parts)?;
    let mut at = 0;
    (0..parts)
        .map(|k| {
            let start = at;
            at += n / parts + usize::from(k < n % parts);
            ops::slice(self_, d as i64, Some(start.into()), Some(at.into()), 1.into())
        })
        .collect()
}

pub(crate) fn tensor_split_indices(self_: &Tensor, indices: &[SymInt], dim: i64) -> Result<Vec<Tensor>> {
    const OP: &str = "tensor_split";
    if self_.ndim() == 0 {
        return Err(Error::argument(OP, "a 0-dim tensor cannot be split"));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let mut start = SymInt::from(0i64);
    let mut parts = Vec::with_capacity(indices.len() + 1);
    for end in indices.iter().copied().map(Some).chain([None]) {
        parts.push(ops::slice(self_, d as i64, Some(start), end, 1.into())?);
        start = end.unwrap_or_default();
    }
    Ok(parts)
}

pub(crate) fn movedim_int(self_: &Tensor, source: i64, destination: i64) -> Result<Tensor> {
    movedim(self_, &[source], &[destination])
}

pub(crate) fn movedim(self_: &Tensor, source: &[i64], destination: &[i64]) -> Result<Tensor> {
    const OP: &str = "movedim";
    if source.len() != destination.len() {
        let m = format!("{} dimensions to move to {} places", source.len(), destination.len());
        return Err(Error::argument(OP, m));
    }
    if source.is_empty() {
        return ops::alias(self_);
    }
    let from = shape::wrap_dims(OP, source, self_.ndim())?;
    let to = shape::wrap_dims(OP, destination, self_.ndim())?;
    let mut rest = (0..self_.ndim()).filter(|k| !from.contains(k));
    let order: Vec<i64> = (0..self_.ndim())
        .map(|place| match to.iter().position(|&t| t == place) {
            Some(k) => from[k] as i64,
            None => rest.next().expect("as many dimensions are left as places") as i64,
        })
        .collect();
    ops::permute(self_, &order)
}

pub(crate) fn atleast_1d(self_: &Tensor) -> Result<Tensor> {
    if self_.ndim() == 0 { ops::reshape(self_, &[1.into()]) } else { Ok(self_.clone()) }
}

pub(crate) fn atleast_2d(self_: &Tensor) -> Result<Tensor> {
    match self_.ndim() {
        0 => ops::reshape(self_, &[1.into(), 1.into()]),
        1 => ops::unsqueeze(self_, 0),
        _ => Ok(self_.clone()),
    }
}

pub(crate) fn atleast_3d(self_: &Tensor) -> Result<Tensor> {
    match self_.ndim() {
        0 => ops::reshape(self_, &[1.into(), 1.into(), 1.into()]),
        1 => ops::unsqueeze(&ops::unsqueeze(self_, 0)?, -1),
        2 => ops::unsqueeze(self_, -1),
        _ => Ok(self_.clone()),
    }
}

/// The tensor itself if it has this memory order, else a copy.
pub(crate) fn contiguous(self_: &Tensor, memory_format: MemoryFormat) -> Result<Tensor> {
    if self_.is_batched() {
        crate::func::rules::pointwise::need_plain_format("contiguous", memory_format)?;
    }
    let wanted = shape::creation::memory(self_, Some(memory_format))?;
    if wanted.same_geometry(self_.layout()) {
        return Ok(self_.clone());
    }
    ops::clone(self_, Some(memory_format))
}

/// The tensor itself.
pub(crate) fn lift(self_: &Tensor) -> Result<Tensor> {
    Ok(self_.clone())
}

pub(crate) fn meshgrid(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    const OP: &str = "meshgrid";
    let Some(first) = tensors.first() else { return Err(Error::argument(OP, "at least one tensor is needed")) };
    if let Some(t) = tensors.iter().find(|t| t.ndim() > 1) {
        return Err(Error::argument(OP, format!("tensors must have at most 1 dimension, found shape {:?}", t.shape())));
    }
    if let Some(t) = tensors.iter().find(|t| t.dtype() != first.dtype()) {
        let m = format!("all tensors must have one dtype, found {} and {}", first.dtype(), t.dtype());
        return Err(Error::argument(OP, m));
    }
    let sizes: SymInts = tensors.iter().map(|t| t.numel().into()).collect();
    let grid = |(k, t): (usize, &Tensor)| {
        let own: SymInts =
            (0..tensors.len()).map(|j| if j == k { t.numel().into() } else { SymInt::from(1i64) }).collect();
        ops::expand(&ops::view(t, &own)?, &sizes, false)
    };
    tensors.iter().enumerate().map(grid).collect()
}

pub(crate) fn meshgrid_indexing(tensors: &[Tensor], indexing: &str) -> Result<Vec<Tensor>> {
    match indexing {
        "ij" => meshgrid(tensors),
        "xy" if tensors.len() >= 2 => {
            let mut swapped = tensors.to_vec();
            swapped.swap(0, 1);
            let mut grids = meshgrid(&swapped)?;
            grids.swap(0, 1);
            Ok(grids)
        }
        "xy" => meshgrid(tensors),
        other => Err(Error::argument("meshgrid", format!("indexing is \"ij\" or \"xy\", found {other:?}"))),
    }
}

/// Splits `dim` sizes and permutes: the core of the shuffles.
fn regroup(self_: &Tensor, sizes: &[usize], order: &[i64], result: &[usize]) -> Result<Tensor> {
    let split = ops::reshape(self_, &sym(sizes))?;
    ops::reshape(&ops::permute(&split, order)?, &sym(result))
}

pub(crate) fn pixel_shuffle(self_: &Tensor, upscale_factor: i64) -> Result<Tensor> {
    const OP: &str = "pixel_shuffle";
    let s = self_.shape();
    if s.len() < 3 || upscale_factor <= 0 {
        let m = format!("needs at least 3 dimensions and a positive factor, found {s:?} and {upscale_factor}");
        return Err(Error::argument(OP, m));
    }
    let r = as_size(upscale_factor);
    let lead = s.len() - 3;
    let (c, h, w) = (s[lead], s[lead + 1], s[lead + 2]);
    if r.checked_mul(r).is_none_or(|rr| c % rr != 0) {
        return Err(Error::argument(OP, format!("{c} channels cannot be divided by the factor {r} squared")));
    }
    let batch: usize = s[..lead].iter().product();
    let mut result = s[..lead].to_vec();
    // Without channels any factor divides them.
    result.extend([c / (r * r), h.saturating_mul(r), w.saturating_mul(r)]);
    regroup(self_, &[batch, c / (r * r), r, r, h, w], &[0, 1, 4, 2, 5, 3], &result)
}

pub(crate) fn pixel_unshuffle(self_: &Tensor, downscale_factor: i64) -> Result<Tensor> {
    const OP: &str = "pixel_unshuffle";
    let s = self_.shape();
    if s.len() < 3 || downscale_factor <= 0 {
        let m = format!("needs at least 3 dimensions and a positive factor, found {s:?} and {downscale_factor}");
        return Err(Error::argument(OP, m));
    }
    let r = as_size(downscale_factor);
    let lead = s.len() - 3;
    let (c, h, w) = (s[lead], s[lead + 1], s[lead + 2]);
    if h % r != 0 || w % r != 0 {
        return Err(Error::argument(OP, format!("height {h} and width {w} cannot be divided by the factor {r}")));
    }
    let batch: usize = s[..lead].iter().product();
    let mut result = s[..lead].to_vec();
    result.extend([c.saturating_mul(r).saturating_mul(r), h / r, w / r]);
    regroup(self_, &[batch, c, h / r, r, w / r, r], &[0, 1, 3, 5, 2, 4], &result)
}

pub(crate) fn channel_shuffle(self_: &Tensor, groups: SymInt) -> Result<Tensor> {
    const OP: &str = "channel_shuffle";
    let s = self_.shape();
    let Some(g) = groups.to_usize().filter(|g| *g > 0) else {
        return Err(Error::argument(OP, format!("the number of groups must be positive, found {groups}")));
    };
    if s.len() < 3 || !s[1].is_multiple_of(g) {
        return Err(Error::argument(OP, format!("the channels of {s:?} cannot be divided into {g} groups")));
    }
    let rest: usize = s[2..].iter().product();
    regroup(self_, &[s[0], g, s[1] / g, rest], &[0, 2, 1, 3], s)
}

/// The diagonal of a matrix as a copy, or a matrix with the vector on its diagonal.
pub(crate) fn diag(self_: &Tensor, diagonal: i64) -> Result<Tensor> {
    match self_.ndim() {
        1 => ops::diag_embed(self_, diagonal, 0, 1),
        2 => ops::diagonal_copy(self_, diagonal, 0, 1),
        n => Err(Error::argument("diag", format!("takes a vector or a matrix, found {n} dimensions"))),
    }
}

pub(crate) fn diag_embed(self_: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    const OP: &str = "diag_embed";
    let n = self_.ndim() + 1;
    let (a, b) = (wrap_dim(OP, dim1, n)?, wrap_dim(OP, dim2, n)?);
    if a == b || self_.ndim() == 0 {
        return Err(Error::argument(
            OP,
            format!("takes a tensor with dimensions and two different positions, found {a} and {b}"),
        ));
    }
    let last = self_.shape()[n - 2].saturating_add(as_size(offset.saturating_abs()));
    let mut sizes = Dims::from_slice(&self_.shape()[..n - 2]);
    sizes.insert(a.min(b), last);
    sizes.insert(a.max(b), last);
    let zeros = ops::new_zeros(self_, &sym(&sizes), None, None)?;
    ops::diagonal_scatter(&zeros, self_, offset, a as i64, b as i64)
}

fn copied(view: Result<Tensor>) -> Result<Tensor> {
    ops::clone(&view?, Some(MemoryFormat::Contiguous))
}

fn all_copied(views: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    views?.iter().map(|v| ops::clone(v, Some(MemoryFormat::Contiguous))).collect()
}

pub(crate) fn alias_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::alias(self_))
}

pub(crate) fn detach_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::detach(self_))
}

pub(crate) fn view_copy(self_: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    copied(ops::reshape(self_, size))
}

pub(crate) fn t_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::t(self_))
}

pub(crate) fn transpose_copy(self_: &Tensor, dim0: i64, dim1: i64) -> Result<Tensor> {
    copied(ops::transpose(self_, dim0, dim1))
}

pub(crate) fn permute_copy(self_: &Tensor, dims: &[i64]) -> Result<Tensor> {
    copied(ops::permute(self_, dims))
}

pub(crate) fn expand_copy(self_: &Tensor, size: &[SymInt], implicit: bool) -> Result<Tensor> {
    copied(ops::expand(self_, size, implicit))
}

pub(crate) fn unsqueeze_copy(self_: &Tensor, dim: i64) -> Result<Tensor> {
    copied(ops::unsqueeze(self_, dim))
}

pub(crate) fn squeeze_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::squeeze(self_))
}

pub(crate) fn squeeze_dim_copy(self_: &Tensor, dim: i64) -> Result<Tensor> {
    copied(ops::squeeze_dim(self_, dim))
}

pub(crate) fn squeeze_dims_copy(self_: &Tensor, dim: &[i64]) -> Result<Tensor> {
    copied(ops::squeeze_dims(self_, dim))
}

pub(crate) fn select_copy(self_: &Tensor, dim: i64, index: SymInt) -> Result<Tensor> {
    copied(ops::select(self_, dim, index))
}

pub(crate) fn slice_copy(
    self_: &Tensor,
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Tensor> {
    copied(ops::slice(self_, dim, start, end, step))
}

pub(crate) fn unbind_copy(self_: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    all_copied(ops::unbind(self_, dim))
}

pub(crate) fn split_copy(self_: &Tensor, split_size: SymInt, dim: i64) -> Result<Vec<Tensor>> {
    all_copied(ops::split(self_, split_size, dim))
}

pub(crate) fn split_with_sizes_copy(self_: &Tensor, split_sizes: &[SymInt], dim: i64) -> Result<Vec<Tensor>> {
    all_copied(ops::split_with_sizes(self_, split_sizes, dim))
}

pub(crate) fn as_strided_copy(
    self_: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    copied(ops::as_strided(self_, size, stride, storage_offset))
}

pub(crate) fn diagonal_copy(self_: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    copied(ops::diagonal(self_, offset, dim1, dim2))
}

pub(crate) fn unfold_copy(self_: &Tensor, dimension: i64, size: i64, step: i64) -> Result<Tensor> {
    copied(ops::unfold(self_, dimension, size, step))
}

pub(crate) fn narrow_copy(self_: &Tensor, dim: i64, start: SymInt, length: SymInt) -> Result<Tensor> {
    ops::clone(&narrow(self_, dim, start, length)?, Some(MemoryFormat::Contiguous))
}

/// Splits along a dimension that depends on how many there are.
fn split_along(
    op: &'static str,
    t: &Tensor,
    least: usize,
    dim: i64,
    parts: &[i64],
    equal: bool,
) -> Result<Vec<Tensor>> {
    if t.ndim() < least {
        let m = format!("expected at least {least} dimensions, found shape {:?}", t.shape());
        return Err(Error::argument(op, m));
    }
    if !equal {
        let indices: SymInts = parts.iter().map(|&i| SymInt::from(i)).collect();
        return tensor_split_indices(t, &indices, dim);
    }
    let (n, sections) = (t.shape()[dim as usize] as i64, parts[0]);
    if sections <= 0 || n % sections != 0 {
        return Err(Error::argument(op, format!("size {n} is not {sections} equal sections")));
    }
    tensor_split(t, sections.into(), dim)
}

fn hsplit_dim(t: &Tensor) -> i64 {
    (t.ndim() > 1).into()
}

pub(crate) fn hsplit_int(self_: &Tensor, sections: i64) -> Result<Vec<Tensor>> {
    split_along("hsplit", self_, 1, hsplit_dim(self_), &[sections], true)
}

pub(crate) fn hsplit_array(self_: &Tensor, indices: &[i64]) -> Result<Vec<Tensor>> {
    split_along("hsplit", self_, 1, hsplit_dim(self_), indices, false)
}

pub(crate) fn vsplit_int(self_: &Tensor, sections: i64) -> Result<Vec<Tensor>> {
    split_along("vsplit", self_, 2, 0, &[sections], true)
}

pub(crate) fn vsplit_array(self_: &Tensor, indices: &[i64]) -> Result<Vec<Tensor>> {
    split_along("vsplit", self_, 2, 0, indices, false)
}

pub(crate) fn dsplit_int(self_: &Tensor, sections: i64) -> Result<Vec<Tensor>> {
    split_along("dsplit", self_, 3, 2, &[sections], true)
}

pub(crate) fn dsplit_array(self_: &Tensor, indices: &[i64]) -> Result<Vec<Tensor>> {
    split_along("dsplit", self_, 3, 2, indices, false)
}

pub(crate) fn atleast_1d_sequence(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(ops::atleast_1d).collect()
}

pub(crate) fn atleast_2d_sequence(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(ops::atleast_2d).collect()
}

pub(crate) fn atleast_3d_sequence(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(ops::atleast_3d).collect()
}

/// The diagonal of each matrix, in the order of arguments that linear algebra has.
pub(crate) fn linalg_diagonal(self_: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    ops::diagonal(self_, offset, dim1, dim2)
}

/// A square matrix with all elements on a diagonal.
pub(crate) fn diagflat(self_: &Tensor, offset: i64) -> Result<Tensor> {
    ops::diag(&ops::reshape(self_, &[(-1).into()])?, offset)
}

// ---- views by other names

/// A copy; memory is never shared until it is written.
pub(crate) fn lazy_clone(self_: &Tensor) -> Result<Tensor> {
    ops::clone(self_, None)
}

/// A view with strides that were worked out before.
pub(crate) fn reshape_alias(self_: &Tensor, size: &[SymInt], stride: &[SymInt]) -> Result<Tensor> {
    ops::as_strided(self_, size, stride, Some(self_.layout().offset().into()))
}

pub(crate) fn reshape_alias_copy(self_: &Tensor, size: &[SymInt], stride: &[SymInt]) -> Result<Tensor> {
    copied(reshape_alias(self_, size, stride))
}

pub(crate) fn reshape_copy(self_: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    let sizes = infer_size("_reshape_copy", size, self_.numel())?;
    let dense = ops::clone(self_, Some(MemoryFormat::Contiguous))?;
    ops::unsafe_view(&dense, &sym(&sizes))
}

pub(crate) fn view_as_real_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::view_as_real(self_))
}

pub(crate) fn view_as_complex_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::view_as_complex(self_))
}

pub(crate) fn conj_copy(self_: &Tensor) -> Result<Tensor> {
    copied(ops::conj(self_))
}

pub(crate) fn view_dtype_copy(self_: &Tensor, dtype: DType) -> Result<Tensor> {
    copied(ops::view_dtype(self_, dtype))
}

/// The only element of an integer tensor; a truth value is none.
fn integer(op: &'static str, t: &Tensor) -> Result<i64> {
    if t.dtype() == DType::Bool {
        return Err(Error::argument(op, "expected an integer, found bool"));
    }
    match super::sequences::integers(op, t)?.as_slice() {
        [one] if t.ndim() == 0 => Ok(*one),
        _ => Err(Error::argument(op, format!("expected a tensor without dimensions, found shape {:?}", t.shape()))),
    }
}

/// `narrow` with the start in a tensor.
pub(crate) fn narrow_at(self_: &Tensor, dim: i64, start: &Tensor, length: SymInt) -> Result<Tensor> {
    narrow(self_, dim, integer("narrow", start)?.into(), length)
}

/// Sections or indices in a tensor: a number, or a vector.
pub(crate) fn tensor_split_tensor(self_: &Tensor, at: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    const OP: &str = "tensor_split";
    if at.dtype() != DType::I64 || at.ndim() > 1 {
        let m = format!("expected sections or indices as i64, found {} of shape {:?}", at.dtype(), at.shape());
        return Err(Error::argument(OP, m));
    }
    if at.ndim() == 0 {
        return tensor_split(self_, integer(OP, at)?.into(), dim);
    }
    let indices: SymInts = super::sequences::integers(OP, at)?.into_iter().map(SymInt::from).collect();
    tensor_split_indices(self_, &indices, dim)
}

/// `reshape` with the sizes in a vector.
pub(crate) fn reshape_from_tensor(self_: &Tensor, shape: &Tensor) -> Result<Tensor> {
    let sizes: SymInts =
        super::sequences::integers("_reshape_from_tensor", shape)?.into_iter().map(SymInt::from).collect();
    ops::reshape(self_, &sizes)
}

/// The positions along a dimension.
pub(crate) fn dim_arange(like: &Tensor, dim: i64) -> Result<Tensor> {
    let d = wrap_dim("_dim_arange", dim, like.ndim())?;
    let n = like.shape().get(d).copied().unwrap_or(1);
    ops::arange(crate::Scalar::Int(n as i64), Some(DType::I64), Some(like.device()))
}

pub(crate) fn pad_circular(self_: &Tensor, pad: &[SymInt]) -> Result<Tensor> {
    ops::pad(self_, pad, "circular", None)
}

/// `pad` with the mode as a number.
pub(crate) fn pad_enum(self_: &Tensor, pad: &[SymInt], mode: i64, value: Option<f64>) -> Result<Tensor> {
    let mode = match mode {
        0 => "reflect",
        1 => "replicate",
        2 => "circular",
        3 => "constant",
        other => return Err(Error::argument("_pad_enum", format!("expected a mode from 0 to 3, found {other}"))),
    };
    ops::pad(self_, pad, mode, value)
}
