//! Creating tensors: constants, ranges, copies.

use super::copy_into;
use crate::dispatch::MemoryFormat;
use crate::dtype::default_dtype;
use crate::layout::{Dims, Layout};
use crate::limits::as_size;
use crate::ops::lists;
use crate::ops::shape::{creation as shape, wrap_dims};
use crate::sym::SymInt;
use crate::{DType, Device, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::{fill as fill_kernel, ranges};

fn filled(spec: Spec, value: Scalar) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        fill_kernel(out.write()?.view_mut(), value.into());
    }
    Ok(out)
}

/// A new tensor whose numbers a function writes, unless it is on the meta device.
fn made(spec: Spec, write: impl FnOnce(&Tensor) -> Result<()>) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        write(&out)?;
    }
    Ok(out)
}

/// A vector of numbers computed in double precision.
pub(super) fn computed(spec: Spec, value: impl Fn(usize) -> f64) -> Result<Tensor> {
    made(spec, |out| lists::write(out, (0..out.numel()).map(value)))
}

// ---- copies

pub(crate) fn clone(self_: &Tensor, _: Option<MemoryFormat>, out: &Tensor) -> Result<()> {
    copy_into(self_, out)
}

pub(crate) fn lift_fresh_copy(self_: &Tensor, out: &Tensor) -> Result<()> {
    copy_into(self_, out)
}

pub(crate) fn to_copy(
    self_: &Tensor,
    _: Option<DType>,
    _: Option<Device>,
    _: bool,
    _: Option<MemoryFormat>,
    out: &Tensor,
) -> Result<()> {
    copy_into(self_, out)
}

pub(crate) fn copy(_self: &Tensor, src: &Tensor, _: bool, out: &Tensor) -> Result<()> {
    src.need_data("copy")?;
    copy_into(src, out)
}

pub(crate) fn fill(_self: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    fill_kernel(out.write()?.view_mut(), value.into());
    Ok(())
}

pub(crate) fn fill_tensor(_self: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    value.need_data("fill")?;
    copy_into(value, out)
}

pub(crate) fn zero(_self: &Tensor, out: &Tensor) -> Result<()> {
    super::zero_into(out)?;
    Ok(())
}

// ---- constants

pub(crate) fn zeros(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    filled(shape::fresh("zeros", size, dtype, device)?, Scalar::Int(0))
}

pub(crate) fn ones(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    filled(shape::fresh("ones", size, dtype, device)?, Scalar::Int(1))
}

pub(crate) fn full(
    size: &[SymInt],
    fill_value: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    filled(shape::fresh("full", size, Some(dtype.unwrap_or(fill_value.dtype())), device)?, fill_value)
}

pub(crate) fn scalar_tensor(s: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    filled(shape::fresh("scalar_tensor", &[], dtype, device)?, s)
}

pub(crate) fn empty(
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let spec = shape::fresh("empty", size, dtype, device)?;
    let layout = shape::ordered("empty", spec.layout.sizes(), format)?;
    Tensor::try_unwritten(Spec { layout, ..spec })
}

pub(crate) fn empty_permuted(
    size: &[SymInt],
    physical_layout: &[i64],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "empty_permuted";
    let spec = shape::fresh(OP, size, dtype, device)?;
    let sizes = Dims::from_slice(spec.layout.sizes());
    if physical_layout.len() != sizes.len() {
        let m = format!("{} sizes and a memory order of {} dimensions", sizes.len(), physical_layout.len());
        return Err(Error::argument(OP, m));
    }
    let order = if sizes.is_empty() { Dims::new() } else { wrap_dims(OP, physical_layout, sizes.len())? };
    let mut strides = Dims::from_elem(0, sizes.len());
    let mut step = 1;
    for &d in order.iter().rev() {
        strides[d] = step;
        step *= sizes[d].max(1);
    }
    Tensor::try_unwritten(Spec { layout: Layout::strided(&sizes, &strides, 0)?, ..spec })
}

pub(crate) fn empty_strided(
    size: &[SymInt],
    stride: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let dtype = dtype.unwrap_or_else(default_dtype);
    Tensor::try_unwritten(shape::strided("empty_strided", size, stride, dtype, device.unwrap_or_default())?)
}

pub(crate) fn new_empty_strided(
    self_: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let (dtype, device) = (dtype.unwrap_or(self_.dtype()), device.unwrap_or(self_.device()));
    Tensor::try_unwritten(shape::strided("new_empty_strided", size, stride, dtype, device)?)
}

pub(crate) fn empty_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    Tensor::try_unwritten(shape::like(self_, dtype, device, format)?)
}

pub(crate) fn zeros_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    filled(shape::like(self_, dtype, device, format)?, Scalar::Int(0))
}

pub(crate) fn ones_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    filled(shape::like(self_, dtype, device, format)?, Scalar::Int(1))
}

pub(crate) fn full_like(
    self_: &Tensor,
    fill_value: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    filled(shape::like(self_, dtype, device, format)?, fill_value)
}

pub(crate) fn new_empty(
    self_: &Tensor,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    Tensor::try_unwritten(shape::new("new_empty", self_, size, dtype, device)?)
}

pub(crate) fn new_zeros(
    self_: &Tensor,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    filled(shape::new("new_zeros", self_, size, dtype, device)?, Scalar::Int(0))
}

pub(crate) fn new_ones(
    self_: &Tensor,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    filled(shape::new("new_ones", self_, size, dtype, device)?, Scalar::Int(1))
}

pub(crate) fn new_full(
    self_: &Tensor,
    size: &[SymInt],
    fill_value: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    filled(shape::new("new_full", self_, size, dtype, device)?, fill_value)
}

// ---- ranges

/// A length as a size list of one.
fn length(n: usize) -> [SymInt; 1] {
    [n.into()]
}

pub(crate) fn arange(end: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    arange_step(Scalar::Int(0), end, Scalar::Int(1), dtype, device)
}

pub(crate) fn arange_start(start: Scalar, end: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    arange_step(start, end, Scalar::Int(1), dtype, device)
}

pub(crate) fn arange_step(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "arange";
    let float = [start, end, step].iter().any(|s| s.is_float());
    let dtype = dtype.unwrap_or_else(|| if float { default_dtype() } else { DType::I64 });
    let (a, b, by) = (start.to_f64(), end.to_f64(), step.to_f64());
    if !(a.is_finite() && b.is_finite() && by.is_finite()) || by == 0.0 {
        let m = format!("bounds {a} and {b} must be finite and the step {by} finite and not 0");
        return Err(Error::argument(OP, m));
    }
    if (by > 0.0 && b < a) || (by < 0.0 && b > a) {
        return Err(Error::argument(OP, format!("the step {by} does not lead from {a} to {b}")));
    }
    let n = if dtype == DType::I64 && !float {
        let (a, b, by) = (i128::from(start.to_i64()), i128::from(end.to_i64()), i128::from(step.to_i64()));
        ((b - a + by - by.signum()) / by) as f64
    } else {
        ((b - a) / by).ceil()
    };
    if n >= (1u64 << 62) as f64 {
        return Err(Error::argument(OP, format!("{n} elements are too many")));
    }
    made(shape::fresh(OP, &length(n as usize), Some(dtype), device)?, |out| {
        let out = out.write()?;
        if dtype.is_floating_point() {
            ranges::arange(&out.view_mut(), a, by)
        } else {
            ranges::arange_integer(&out.view_mut(), start.to_i64(), step.to_i64())
        }
        Ok(())
    })
}

fn steps_of(op: &'static str, steps: i64) -> Result<usize> {
    if steps < 0 {
        return Err(Error::argument(op, format!("the number of steps must not be negative, found {steps}")));
    }
    Ok(as_size(steps))
}

pub(crate) fn linspace(
    start: Scalar,
    end: Scalar,
    steps: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "linspace";
    let spec = shape::fresh(OP, &length(steps_of(OP, steps)?), dtype, device)?;
    if steps == 1 {
        return filled(spec, start);
    }
    made(spec, |out| {
        ranges::linspace(&out.write()?.view_mut(), start.to_f64(), end.to_f64());
        Ok(())
    })
}

pub(crate) fn logspace(
    start: Scalar,
    end: Scalar,
    steps: i64,
    base: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "logspace";
    let n = steps_of(OP, steps)?;
    let spec = shape::fresh(OP, &length(n), dtype, device)?;
    // Exponents have the dtype of the result.
    let exponent = |s: Scalar| if spec.dtype.is_integer() { s.to_f64().trunc() } else { s.to_f64() };
    let (a, b) = (exponent(start), exponent(end));
    let step = if n > 1 { (b - a) / (n - 1) as f64 } else { 0.0 };
    computed(spec, |i| base.powf(if i < n / 2 || n == 1 { a + step * i as f64 } else { b - step * (n - 1 - i) as f64 }))
}

pub(crate) fn eye(n: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    eye_m(n, n, dtype, device)
}

pub(crate) fn eye_m(n: SymInt, m: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    made(shape::fresh("eye", &[n, m], dtype, device)?, |out| {
        ranges::eye(&out.write()?.view_mut());
        Ok(())
    })
}

pub(crate) fn hann_window(window_length: i64, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    hann_window_periodic(window_length, true, dtype, device)
}

pub(crate) fn hann_window_periodic(
    window_length: i64,
    periodic: bool,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let n = steps_of("hann_window", window_length)?;
    let spec = shape::fresh("hann_window", &length(n), dtype, device)?;
    crate::ops::shape::need_float("hann_window", spec.dtype)?;
    let period = if periodic || n < 2 { n } else { n - 1 } as f64;
    let turn = |i: usize| 2.0 * std::f64::consts::PI * i as f64 / period;
    computed(spec, |i| if n == 1 { 1.0 } else { 0.5 - 0.5 * turn(i).cos() })
}

/// How many cells `(r, c)` of a matrix have `c <= r + offset`.
fn cells_below(rows: i128, columns: i128, offset: i128) -> i128 {
    // Rows before `first` have none, those from `full` on have all; between them each has one more than the last.
    let first = (-offset).clamp(0, rows);
    let full = (columns - offset - 1).clamp(first, rows);
    let (shortest, longest) = (first + offset + 1, full + offset);
    let growing = full - first;
    (shortest + longest) * growing / 2 + (rows - full) * columns
}

/// Row and column numbers of the cells of a triangle, row by row: `columns` of each row.
fn triangle(
    op: &'static str,
    cells: i128,
    dtype: Option<DType>,
    device: Option<Device>,
    rows: std::ops::Range<i64>,
    columns: impl Fn(i64) -> std::ops::Range<i64>,
) -> Result<Tensor> {
    let count = i64::try_from(cells).map_err(|_| Error::argument(op, format!("{cells} cells are too many")))?;
    let sizes = [2.into(), count.into()];
    let spec = shape::fresh(op, &sizes, Some(dtype.unwrap_or(DType::I64)), device)?;
    made(spec, |out| {
        let each_row = rows.clone().flat_map(|r| columns(r).map(move |_| r));
        lists::write(out, each_row.chain(rows.clone().flat_map(&columns)))
    })
}

pub(crate) fn tril_indices(
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "tril_indices";
    steps_of(OP, row)?;
    steps_of(OP, col)?;
    let cells = cells_below(row.into(), col.into(), offset.into());
    let end = move |r: i64| r.saturating_add(offset).saturating_add(1).clamp(0, col);
    // Rows above the triangle are skipped: there may be many more of them than cells.
    let first = if col == 0 { row } else { offset.saturating_neg().clamp(0, row) };
    triangle(OP, cells, dtype, device, first..row, |r| 0..end(r))
}

pub(crate) fn triu_indices(
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "triu_indices";
    steps_of(OP, row)?;
    steps_of(OP, col)?;
    let cells = i128::from(row) * i128::from(col) - cells_below(row.into(), col.into(), i128::from(offset) - 1);
    let start = move |r: i64| r.saturating_add(offset).clamp(0, col);
    let last = col.saturating_sub(offset).clamp(0, row);
    triangle(OP, cells, dtype, device, 0..if col == 0 { 0 } else { last }, |r| start(r)..col)
}

// ---- values of a tensor

pub(crate) fn item(self_: &Tensor) -> Result<Scalar> {
    self_.need_data("item")?;
    self_.try_scalar_value()
}

pub(crate) fn is_nonzero(self_: &Tensor) -> Result<bool> {
    Ok(item(self_)?.to_bool())
}

pub(crate) fn numel(self_: &Tensor) -> Result<i64> {
    Ok(self_.numel() as i64)
}

pub(crate) fn sym_numel(self_: &Tensor) -> Result<SymInt> {
    Ok(self_.numel().into())
}

pub(crate) fn sym_size(self_: &Tensor, dim: i64) -> Result<SymInt> {
    one_of("sym_size", self_.shape(), dim)
}

pub(crate) fn sym_stride(self_: &Tensor, dim: i64) -> Result<SymInt> {
    one_of("sym_stride", self_.strides(), dim)
}

pub(crate) fn sym_storage_offset(self_: &Tensor) -> Result<SymInt> {
    Ok(self_.layout().offset().into())
}

fn one_of(op: &'static str, list: &[usize], dim: i64) -> Result<SymInt> {
    let d = crate::ops::shape::wrap_dim(op, dim, list.len())?;
    let n = list.get(d).ok_or_else(|| Error::argument(op, "a 0-dim tensor has no sizes"))?;
    Ok((*n).into())
}

pub(crate) fn assert_tensor_metadata(
    a: &Tensor,
    size: Option<&[SymInt]>,
    stride: Option<&[SymInt]>,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<()> {
    let same = |expected: &[SymInt], found: &[usize]| {
        expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| *e == *f)
    };
    let wrong = |what: &str, expected: String, found: String| {
        Err(Error::argument("_assert_tensor_metadata", format!("expected {what} {expected}, found {found}")))
    };
    if let Some(s) = size.filter(|s| !same(s, a.shape())) {
        return wrong("sizes", format!("{s:?}"), format!("{:?}", a.shape()));
    }
    if let Some(s) = stride.filter(|s| !same(s, a.strides())) {
        return wrong("strides", format!("{s:?}"), format!("{:?}", a.strides()));
    }
    if let Some(d) = dtype.filter(|d| *d != a.dtype()) {
        return wrong("dtype", d.to_string(), a.dtype().to_string());
    }
    if let Some(d) = device.filter(|d| *d != a.device()) {
        return wrong("device", d.to_string(), a.device().to_string());
    }
    Ok(())
}

/// Fails with the message of the program unless the number is true.
pub(crate) fn assert_scalar(value: Scalar, message: &str) -> Result<()> {
    if value.to_bool() { Ok(()) } else { Err(Error::argument("_assert_scalar", message.to_string())) }
}

/// Fails with the message of the program unless the only element is true. Meta tensors pass.
pub(crate) fn assert_async_msg(t: &Tensor, message: &str) -> Result<()> {
    const OP: &str = "_assert_async";
    if t.numel() != 1 {
        return Err(Error::argument(OP, format!("expected one element, found shape {:?}", t.shape())));
    }
    let holds = t.is_meta() || crate::ops::item(&t.detach())?.to_bool();
    if holds { Ok(()) } else { Err(Error::argument(OP, message.to_string())) }
}

pub(crate) fn assert_async(t: &Tensor) -> Result<()> {
    assert_async_msg(t, "expected an element that is not zero")
}

fn in_range(op: &'static str, size: Scalar, min: Option<i64>, max: Option<i64>) -> Result<()> {
    let n = size.to_i64();
    if min.is_some_and(|m| n < m) || max.is_some_and(|m| n > m) {
        let end = |bound: Option<i64>| bound.map_or_else(|| "any".to_string(), |b| b.to_string());
        return Err(Error::argument(op, format!("expected a number from {} to {}, found {n}", end(min), end(max))));
    }
    Ok(())
}

pub(crate) fn sym_constrain_range(size: Scalar, min: Option<i64>, max: Option<i64>) -> Result<()> {
    in_range("sym_constrain_range", size, min, max)
}

pub(crate) fn sym_constrain_range_for_size(size: Scalar, min: Option<i64>, max: Option<i64>) -> Result<()> {
    in_range("sym_constrain_range_for_size", size, Some(min.unwrap_or(0)), max)
}
