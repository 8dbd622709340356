//! Making tensors: constants, ranges, copies.

use super::copy_into;
use crate::dispatch::MemoryFormat;
use crate::dtype::default_dtype;
use crate::layout::{Dims, Layout};
use crate::ops::shape::{creation as shape, wrap_dims};
use crate::sym::SymInt;
use crate::{DType, Device, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::{fill as fill_kernel, ranges};

fn filled(spec: Spec, value: Scalar) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        fill_kernel(out.access().view_mut(), value.into());
    }
    Ok(out)
}

/// A new tensor whose numbers a function writes, unless it is on the meta device.
fn made(spec: Spec, write: impl FnOnce(&Tensor)) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        write(&out);
    }
    Ok(out)
}

/// A vector of numbers computed in double precision.
fn computed(spec: Spec, values: impl FnOnce() -> Vec<f64>) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        let values = Tensor::try_from_vec(values(), [out.numel()])?;
        copy_into(&values, &out)?;
    }
    Ok(out)
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
    fill_kernel(out.access().view_mut(), value.into());
    Ok(())
}

pub(crate) fn fill_tensor(_self: &Tensor, value: &Tensor, out: &Tensor) -> Result<()> {
    value.need_data("fill")?;
    copy_into(value, out)
}

pub(crate) fn zero(_self: &Tensor, out: &Tensor) -> Result<()> {
    super::zero_into(out);
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
        let out = out.access();
        if dtype.is_floating_point() {
            ranges::arange(&out.view_mut(), a, by)
        } else {
            ranges::arange_integer(&out.view_mut(), start.to_i64(), step.to_i64())
        }
    })
}

fn steps_of(op: &'static str, steps: i64) -> Result<usize> {
    usize::try_from(steps)
        .map_err(|_| Error::argument(op, format!("the number of steps must not be negative, found {steps}")))
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
    made(spec, |out| ranges::linspace(&out.access().view_mut(), start.to_f64(), end.to_f64()))
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
    let (a, b) = (start.to_f64(), end.to_f64());
    computed(shape::fresh(OP, &length(n), dtype, device)?, || {
        let step = if n > 1 { (b - a) / (n - 1) as f64 } else { 0.0 };
        (0..n)
            .map(|i| base.powf(if i < n / 2 || n == 1 { a + step * i as f64 } else { b - step * (n - 1 - i) as f64 }))
            .collect()
    })
}

pub(crate) fn eye(n: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    eye_m(n, n, dtype, device)
}

pub(crate) fn eye_m(n: SymInt, m: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    made(shape::fresh("eye", &[n, m], dtype, device)?, |out| ranges::eye(&out.access().view_mut()))
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
    computed(spec, || {
        let period = if periodic || n < 2 { n } else { n - 1 } as f64;
        let turn = |i: usize| 2.0 * std::f64::consts::PI * i as f64 / period;
        if n == 1 { vec![1.0] } else { (0..n).map(|i| 0.5 - 0.5 * turn(i).cos()).collect() }
    })
}

/// Row and column numbers of a triangle of a matrix.
fn triangle(
    op: &'static str,
    (row, col): (i64, i64),
    dtype: Option<DType>,
    device: Option<Device>,
    columns: impl Fn(i64) -> std::ops::Range<i64>,
) -> Result<Tensor> {
    let (rows, _) = (steps_of(op, row)?, steps_of(op, col)?);
    let cells: Vec<(i64, i64)> = (0..rows as i64).flat_map(|r| columns(r).map(move |c| (r, c))).collect();
    let sizes = [2.into(), cells.len().into()];
    let spec = shape::fresh(op, &sizes, Some(dtype.unwrap_or(DType::I64)), device)?;
    made(spec, |_| ()).and_then(|out| {
        if !out.is_meta() {
            let all: Vec<i64> = cells.iter().map(|c| c.0).chain(cells.iter().map(|c| c.1)).collect();
            copy_into(&Tensor::try_from_vec(all, [2, cells.len()])?, &out)?;
        }
        Ok(out)
    })
}

pub(crate) fn tril_indices(
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let end = move |r: i64| r.saturating_add(offset).saturating_add(1).clamp(0, col.max(0));
    triangle("tril_indices", (row, col), dtype, device, |r| 0..end(r))
}

pub(crate) fn triu_indices(
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let start = move |r: i64| r.saturating_add(offset).clamp(0, col.max(0));
    triangle("triu_indices", (row, col), dtype, device, |r| start(r)..col.max(0))
}

// ---- numbers of a tensor

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
    Ok(self_.storage_offset().into())
}

fn one_of(op: &'static str, list: &[usize], dim: i64) -> Result<SymInt> {
    let d = crate::ops::shape::wrap_dim(op, dim, list.len())?;
    let n = list.get(d).ok_or_else(|| Error::argument(op, "a tensor without dimensions has no sizes"))?;
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

/// Fails with the message of the program unless the only element is true. Tensors without memory pass.
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
