//! Layouts of views: which elements of the same memory a view refers to.

use super::{is_expandable_to, wrap_dim, wrap_dims};
use crate::layout::{Dims, Layout};
use crate::limits::as_size;
use crate::ops::lists;
use crate::sym::SymInt;
use crate::{DType, Error, ErrorKind, Result, Tensor};

fn negative(op: &'static str, n: SymInt) -> Error {
    Error::argument(op, format!("a size of {n} is negative; only one size may be -1, which is then inferred"))
}

/// Sizes with at most one -1, which is inferred from the number of elements.
pub(crate) fn infer_size(op: &'static str, sizes: &[SymInt], numel: usize) -> Result<Dims> {
    let mut out: Dims = smallvec::smallvec![0; sizes.len()];
    let (mut known, mut open) = (1usize, None);
    for (k, &s) in sizes.iter().enumerate() {
        if s == -1i64 {
            if open.replace(k).is_some() {
                return Err(Error::argument(op, "only one size may be -1"));
            }
            continue;
        }
        out[k] = s.to_usize().ok_or_else(|| negative(op, s))?;
        known =
            known.checked_mul(out[k]).ok_or_else(|| Error::argument(op, format!("the sizes {sizes:?} overflow")))?;
    }
    let fits = match open {
        Some(_) if known == 0 => {
            return Err(Error::argument(
                op,
                format!("the size -1 in {sizes:?} is ambiguous for a tensor of 0 elements"),
            ));
        }
        Some(k) => {
            out[k] = numel / known;
            numel.is_multiple_of(known)
        }
        None => known == numel,
    };
    if !fits {
        return Err(Error::argument(op, format!("{numel} elements do not fit the shape {sizes:?}")));
    }
    Ok(out)
}

/// `view`.
pub(crate) fn view(self_: &Tensor, size: &[SymInt]) -> Result<Layout> {
    let sizes = infer_size("view", size, self_.numel())?;
    let strides = self_.layout().view_strides(&sizes).ok_or_else(|| {
        Error::argument(
            "view",
            format!(
                "a tensor of shape {:?} and strides {:?} cannot be viewed as {sizes:?} without a copy; use reshape",
                self_.shape(),
                self_.strides()
            ),
        )
    })?;
    Layout::strided(&sizes, &strides, self_.layout().offset())
}

/// All of it.
pub(crate) fn alias(self_: &Tensor) -> Result<Layout> {
    Ok(self_.layout().clone())
}

/// `permute`.
pub(crate) fn permute(self_: &Tensor, dims: &[i64]) -> Result<Layout> {
    let l = self_.layout();
    if dims.len() != l.ndim() {
        return Err(Error::argument("permute", format!("{} dims given for a tensor with {}", dims.len(), l.ndim())));
    }
    let d = if dims.is_empty() { Dims::new() } else { wrap_dims("permute", dims, l.ndim())? };
    let sizes: Dims = d.iter().map(|&k| l.sizes()[k]).collect();
    let strides: Dims = d.iter().map(|&k| l.strides()[k]).collect();
    Layout::strided(&sizes, &strides, l.offset())
}

/// `transpose`.
pub(crate) fn transpose(self_: &Tensor, dim0: i64, dim1: i64) -> Result<Layout> {
    let l = self_.layout();
    let (a, b) = (wrap_dim("transpose", dim0, l.ndim())?, wrap_dim("transpose", dim1, l.ndim())?);
    let (mut sizes, mut strides) = (Dims::from_slice(l.sizes()), Dims::from_slice(l.strides()));
    if a != b {
        sizes.swap(a, b);
        strides.swap(a, b);
    }
    Layout::strided(&sizes, &strides, l.offset())
}

/// `t`: transpose of at most two dimensions.
pub(crate) fn t(self_: &Tensor) -> Result<Layout> {
    match self_.ndim() {
        0 | 1 => alias(self_),
        2 => transpose(self_, 0, 1),
        n => Err(Error::argument(
            "t",
            format!("a tensor with {n} dimensions has no single transpose; use transpose(a, b)"),
        )),
    }
}

/// `expand`.
pub(crate) fn expand(self_: &Tensor, size: &[SymInt], _implicit: bool) -> Result<Layout> {
    let l = self_.layout();
    if size.len() < l.ndim() {
        let m = format!("{} sizes given for a tensor with {} dimensions; give at least as many", size.len(), l.ndim());
        return Err(Error::argument("expand", m));
    }
    let lead = size.len() - l.ndim();
    let mut sizes = Dims::new();
    for (k, &s) in size.iter().enumerate() {
        sizes.push(match s.to_usize() {
            Some(n) => n,
            None if s == -1i64 && k >= lead => l.sizes()[k - lead],
            None if s > 0 => as_size(s.hint()),
            None => {
                let m = format!("the size {s} at position {k} is not allowed: -1 keeps an existing dimension");
                return Err(Error::argument("expand", m));
            }
        });
    }
    if !is_expandable_to(l.sizes(), &sizes) {
        let m = format!("a tensor of shape {:?} cannot be expanded to {sizes:?}", l.sizes());
        return Err(Error::argument("expand", m));
    }
    super::expanded(self_, &sizes)
}

/// Where `index` points in a dimension of this size.
pub(crate) fn wrap_index(op: &'static str, index: i64, dim: usize, size: usize) -> Result<usize> {
    let at = if index < 0 { index.saturating_add(size as i64) } else { index };
    if at < 0 || at >= size as i64 {
        return Err(ErrorKind::IndexOutOfRange { op, index, dim, size }.into());
    }
    Ok(at as usize)
}

/// `select`.
pub(crate) fn select(self_: &Tensor, dim: i64, index: SymInt) -> Result<Layout> {
    let l = self_.layout();
    if l.ndim() == 0 {
        return Err(Error::argument("select", "a 0-dim tensor has nothing to select"));
    }
    let d = wrap_dim("select", dim, l.ndim())?;
    let at = wrap_index("select", index.int(), d, l.sizes()[d])?;
    let (mut sizes, mut strides) = (Dims::from_slice(l.sizes()), Dims::from_slice(l.strides()));
    let step = strides.remove(d);
    sizes.remove(d);
    // Of nothing, no place is named that memory may not have.
    let offset = if sizes.contains(&0) { l.offset() } else { l.offset() + at * step };
    Layout::strided(&sizes, &strides, offset)
}

/// Start and length of a slice, clamped as in Python.
pub(crate) fn slice_bounds(size: usize, start: Option<SymInt>, end: Option<SymInt>) -> (usize, usize) {
    let n = size as i64;
    let clamp = |v: i64| if v < 0 { (v + n).max(0) } else { v.min(n) };
    let start = start.map_or(0, |s| clamp(s.int()));
    let end = end.map_or(n, |e| clamp(e.int())).max(start);
    (start as usize, (end - start) as usize)
}

/// `slice`.
pub(crate) fn slice(
    self_: &Tensor,
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Layout> {
    let l = self_.layout();
    if l.ndim() == 0 {
        return Err(Error::argument("slice", "a 0-dim tensor cannot be sliced"));
    }
    let d = wrap_dim("slice", dim, l.ndim())?;
    let step = step
        .to_usize()
        .or_else(|| (step > 0).then(|| as_size(step.hint())))
        .filter(|s| *s > 0)
        .ok_or_else(|| Error::argument("slice", format!("the step must be positive, found {step}")))?;
    let (at, len) = slice_bounds(l.sizes()[d], start, end);
    let (mut sizes, mut strides) = (Dims::from_slice(l.sizes()), Dims::from_slice(l.strides()));
    let offset = l.offset() + at * strides[d];
    sizes[d] = len.div_ceil(step);
    strides[d] = strides[d].saturating_mul(step);
    Layout::strided(&sizes, &strides, if sizes.contains(&0) { l.offset() } else { offset })
}

/// `unsqueeze`.
pub(crate) fn unsqueeze(self_: &Tensor, dim: i64) -> Result<Layout> {
    let l = self_.layout();
    let d = wrap_dim("unsqueeze", dim, l.ndim() + 1)?;
    let (mut sizes, mut strides) = (Dims::from_slice(l.sizes()), Dims::from_slice(l.strides()));
    let step = if d < sizes.len() { sizes[d].max(1).saturating_mul(strides[d]) } else { 1 };
    sizes.insert(d, 1);
    strides.insert(d, step);
    Layout::strided(&sizes, &strides, l.offset())
}

fn without(l: &Layout, gone: impl Fn(usize) -> bool) -> Layout {
    let keep: Dims = (0..l.ndim()).filter(|&k| !gone(k)).collect();
    let sizes: Dims = keep.iter().map(|&k| l.sizes()[k]).collect();
    let strides: Dims = keep.iter().map(|&k| l.strides()[k]).collect();
    Layout::derived(&sizes, &strides, l.offset())
}

/// `squeeze`.
pub(crate) fn squeeze(self_: &Tensor) -> Result<Layout> {
    let l = self_.layout();
    Ok(without(l, |k| l.sizes()[k] == 1))
}

/// `squeeze.dim`.
pub(crate) fn squeeze_dim(self_: &Tensor, dim: i64) -> Result<Layout> {
    squeeze_dims(self_, &[dim])
}

/// `squeeze.dims`.
pub(crate) fn squeeze_dims(self_: &Tensor, dim: &[i64]) -> Result<Layout> {
    let l = self_.layout();
    if dim.is_empty() {
        return alias(self_);
    }
    let d = wrap_dims("squeeze", dim, l.ndim())?;
    Ok(without(l, |k| d.contains(&k) && l.sizes()[k] == 1))
}

/// `unbind`.
pub(crate) fn unbind(self_: &Tensor, dim: i64) -> Result<Vec<Layout>> {
    if self_.ndim() == 0 {
        return Err(Error::argument("unbind", "a 0-dim tensor cannot be unbound"));
    }
    let d = wrap_dim("unbind", dim, self_.ndim())?;
    lists::room_for_views(self_.shape()[d])?;
    (0..self_.shape()[d]).map(|k| select(self_, d as i64, k.into())).collect()
}

/// `split_with_sizes`.
pub(crate) fn split_with_sizes(self_: &Tensor, split_sizes: &[SymInt], dim: i64) -> Result<Vec<Layout>> {
    const OP: &str = "split_with_sizes";
    if self_.ndim() == 0 {
        return Err(Error::argument(OP, "a 0-dim tensor cannot be split"));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let n = self_.shape()[d];
    let mut at = 0usize;
    let mut out = Vec::with_capacity(split_sizes.len());
    for &s in split_sizes {
        let len = s.to_usize().ok_or_else(|| negative(OP, s))?;
        if len > n - at {
            break;
        }
        out.push(slice(self_, d as i64, Some(at.into()), Some((at + len).into()), 1.into())?);
        at += len;
    }
    if at != n || out.len() != split_sizes.len() {
        let m = format!("the sizes {split_sizes:?} must add up to the size {n} of dimension {d}");
        return Err(Error::argument(OP, m));
    }
    Ok(out)
}

/// `split`.
pub(crate) fn split(self_: &Tensor, split_size: SymInt, dim: i64) -> Result<Vec<Layout>> {
    const OP: &str = "split";
    if self_.ndim() == 0 {
        return Err(Error::argument(OP, "a 0-dim tensor cannot be split"));
    }
    let d = wrap_dim(OP, dim, self_.ndim())?;
    let n = self_.shape()[d];
    let s = split_size.to_usize().ok_or_else(|| negative(OP, split_size))?;
    if s == 0 && n != 0 {
        return Err(Error::argument(
            OP,
            format!("a split size of 0 needs a dimension of size 0, dimension {d} has {n}"),
        ));
    }
    let parts = if s == 0 { 1 } else { n.div_ceil(s).max(1) };
    lists::room_for_views(parts)?;
    (0..parts)
        .map(|k| (k * s, (k * s).saturating_add(s).min(n)))
        .map(|(start, end)| slice(self_, d as i64, Some(start.into()), Some(end.into()), 1.into()))
        .collect()
}

/// `as_strided`.
pub(crate) fn as_strided(
    self_: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Layout> {
    const OP: &str = "as_strided";
    if size.len() != stride.len() {
        return Err(Error::argument(OP, format!("{} sizes and {} strides given", size.len(), stride.len())));
    }
    let list = |v: &[SymInt], what| {
        v.iter()
            .map(|&s| {
                s.to_usize().ok_or_else(|| Error::argument(OP, format!("a negative {what} ({s}) is not allowed")))
            })
            .collect::<Result<Dims>>()
    };
    let (sizes, strides) = (list(size, "size")?, list(stride, "stride")?);
    let offset = match storage_offset {
        None => self_.layout().offset(),
        Some(o) => {
            o.to_usize().ok_or_else(|| Error::argument(OP, format!("a negative offset ({o}) is not allowed")))?
        }
    };
    let mut last = Some(offset);
    for (&n, &s) in sizes.iter().zip(&strides) {
        last = last.and_then(|l| (n.max(1) - 1).checked_mul(s).and_then(|x| l.checked_add(x)));
    }
    let room = self_.storage().nbytes() / self_.dtype().size();
    let empty = sizes.contains(&0);
    if !empty && last.is_none_or(|l| l >= room) {
        let m = format!(
            "sizes {sizes:?}, strides {strides:?} and offset {offset} reach outside a storage of {room} elements"
        );
        return Err(Error::argument(OP, m));
    }
    Layout::strided(&sizes, &strides, if empty { 0 } else { offset })
}

/// `diagonal`.
pub(crate) fn diagonal(self_: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Layout> {
    const OP: &str = "diagonal";
    let l = self_.layout();
    let (a, b) = (wrap_dim(OP, dim1, l.ndim())?, wrap_dim(OP, dim2, l.ndim())?);
    if a == b {
        return Err(Error::argument(OP, format!("the two dimensions must differ, both are {a}")));
    }
    let (na, nb) = (l.sizes()[a] as i64, l.sizes()[b] as i64);
    let len = if offset >= 0 { na.min(nb - offset) } else { na.saturating_add(offset).min(nb) }.max(0) as usize;
    let mut start = l.offset();
    if len > 0 {
        start += if offset >= 0 { offset as usize * l.strides()[b] } else { (-offset) as usize * l.strides()[a] };
    }
    let keep: Dims = (0..l.ndim()).filter(|k| *k != a && *k != b).collect();
    let mut sizes: Dims = keep.iter().map(|&k| l.sizes()[k]).collect();
    let mut strides: Dims = keep.iter().map(|&k| l.strides()[k]).collect();
    sizes.push(len);
    strides.push(l.strides()[a] + l.strides()[b]);
    Layout::strided(&sizes, &strides, if sizes.contains(&0) { l.offset() } else { start })
}

/// `unfold`.
pub(crate) fn unfold(self_: &Tensor, dimension: i64, size: i64, step: i64) -> Result<Layout> {
    const OP: &str = "unfold";
    let l = self_.layout();
    let d = wrap_dim(OP, dimension, l.ndim())?;
    let (n, stride) = if l.ndim() == 0 { (1, 1) } else { (l.sizes()[d], l.strides()[d]) };
    if size < 0 || as_size(size) > n {
        return Err(Error::argument(OP, format!("a window of {size} does not fit dimension {d} with size {n}")));
    }
    if step <= 0 {
        return Err(Error::argument(OP, format!("the step must be positive, found {step}")));
    }
    let (mut sizes, mut strides) = (Dims::from_slice(l.sizes()), Dims::from_slice(l.strides()));
    if l.ndim() > 0 {
        sizes[d] = (n - as_size(size)) / as_size(step) + 1;
        strides[d] = stride.saturating_mul(as_size(step));
    }
    sizes.push(as_size(size));
    strides.push(stride);
    Layout::strided(&sizes, &strides, l.offset())
}

/// `view_as_real`: real and imaginary part along a new last dimension.
pub(crate) fn view_as_real(self_: &Tensor) -> Result<(Layout, DType)> {
    if !self_.is_complex() {
        let found = self_.dtype();
        return Err(ErrorKind::DTypeUnsupported { op: "view_as_real", found, expected: "a complex dtype" }.into());
    }
    Ok((as_parts(self_.layout())?, self_.dtype().to_real()))
}

/// A layout of complex numbers as one of their parts.
pub(crate) fn as_parts(l: &Layout) -> Result<Layout> {
    let sizes: Dims = l.sizes().iter().copied().chain([2]).collect();
    let strides: Dims = l.strides().iter().map(|s| 2 * s).chain([1]).collect();
    Layout::strided(&sizes, &strides, 2 * l.offset())
}

/// `view_as_complex`: pairs along the last dimension as complex numbers.
pub(crate) fn view_as_complex(self_: &Tensor) -> Result<(Layout, DType)> {
    const OP: &str = "view_as_complex";
    let (l, dtype) = (self_.layout(), self_.dtype());
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(ErrorKind::DTypeUnsupported { op: OP, found: dtype, expected: "float32 or float64" }.into());
    }
    let refused =
        |message: &str| Error::argument(OP, format!("{message}; shape {:?}, strides {:?}", l.sizes(), l.strides()));
    let (Some((&2, sizes)), Some((&step, strides))) = (l.sizes().split_last(), l.strides().split_last()) else {
        return Err(refused("the last dimension must have size 2"));
    };
    if step != 1 || !l.offset().is_multiple_of(2) || strides.iter().any(|s| !s.is_multiple_of(2)) {
        return Err(refused("the two parts of each number must be adjacent in memory; use contiguous()"));
    }
    let strides: Dims = strides.iter().map(|s| s / 2).collect();
    Ok((Layout::strided(sizes, &strides, l.offset() / 2)?, dtype.to_complex()))
}

/// `view.dtype`: the same bytes as elements of another type; the last dimension grows or shrinks with their size.
pub(crate) fn view_dtype(self_: &Tensor, dtype: DType) -> Result<(Layout, DType)> {
    const OP: &str = "view";
    let (l, from, to) = (self_.layout(), self_.dtype().size(), dtype.size());
    if from == to {
        return Ok((l.clone(), dtype));
    }
    let refused = |message: String| {
        Error::argument(OP, format!("{message}; found shape {:?}, strides {:?}", l.sizes(), l.strides()))
    };
    let (Some((&n, sizes)), Some((&step, strides))) = (l.sizes().split_last(), l.strides().split_last()) else {
        let found = self_.dtype();
        return Err(refused(format!(
            "a tensor without dimensions cannot change from {found} to {dtype}, of another size"
        )));
    };
    if step != 1 && n != 1 {
        return Err(refused(format!(
            "elements of the last dimension must be adjacent to become {dtype}; use contiguous()"
        )));
    }
    if from > to {
        let times = from / to;
        let sizes: Dims = sizes.iter().copied().chain([n.saturating_mul(times)]).collect();
        let strides: Dims = strides.iter().map(|s| s * times).chain([1]).collect();
        return Ok((Layout::strided(&sizes, &strides, l.offset() * times)?, dtype));
    }
    let times = to / from;
    let fits = n.is_multiple_of(times) && l.offset().is_multiple_of(times);
    // A stride of a dimension with one element is never taken.
    let along = |(&n, &s): (&usize, &usize)| n <= 1 || s.is_multiple_of(times);
    if !fits || !sizes.iter().zip(strides).all(along) {
        return Err(refused(format!("last size, offset and strides must be multiples of {times} to become {dtype}")));
    }
    let sizes: Dims = sizes.iter().copied().chain([n / times]).collect();
    let strides: Dims = strides.iter().map(|s| s / times).chain([1]).collect();
    Ok((Layout::strided(&sizes, &strides, l.offset() / times)?, dtype))
}
