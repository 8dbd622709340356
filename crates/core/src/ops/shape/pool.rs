//! Shape functions of pooling, and the geometry that kernels need.

use super::conv::{ints, reach, spatial};
use super::need_float;
use crate::layout::{Dims, checked_numel};
use crate::{DType, Error, Result, Spec, SymInt, Tensor};
use firebrand_kernels::pooling::PoolShape;

/// A pooling whose arguments fit: sizes for the kernels, and the shape of the result.
pub(crate) struct PoolGeometry {
    pub(crate) shape: PoolShape,
    pub(crate) output: Dims,
}

/// Planes (batch times channels) and spatial sizes of images in `n` dimensions, with or without a batch.
pub(crate) fn planes<'a>(op: &'static str, n: usize, sizes: &'a [usize]) -> Result<(usize, &'a [usize])> {
    let lead = sizes.len().wrapping_sub(n);
    // Only a batch may be empty.
    if !matches!(lead, 1 | 2) || sizes[lead - 1..].contains(&0) {
        let message =
            format!("expected [batch, channels, {n} sizes] or [channels, {n} sizes], none of them 0, found {sizes:?}");
        return Err(Error::argument(op, message));
    }
    let (lead, space) = sizes.split_at(lead);
    Ok((lead.iter().product(), space))
}

/// Windows of a pooling, as they are passed.
#[derive(Clone, Copy)]
pub(crate) struct PoolArgs<'a> {
    pub(crate) kernel: &'a [i64],
    pub(crate) stride: &'a [i64],
    pub(crate) padding: &'a [i64],
    pub(crate) dilation: &'a [i64],
    pub(crate) ceil_mode: bool,
}

impl PoolArgs<'_> {
    /// Checks the arguments against an input with `n` spatial dimensions.
    pub(crate) fn geometry(&self, op: &'static str, n: usize, input: &[usize]) -> Result<PoolGeometry> {
        let (planes, space) = planes(op, n, input)?;
        let kernel = spatial(op, "kernel_size", self.kernel, n, 1)?;
        let stride = if self.stride.is_empty() { kernel.clone() } else { spatial(op, "stride", self.stride, n, 1)? };
        let padding = spatial(op, "padding", self.padding, n, 0)?;
        let dilation = spatial(op, "dilation", self.dilation, n, 1)?;
        let output = (0..n).map(|d| {
            let reach = reach(op, dilation[d], kernel[d])?;
            if padding[d] > reach / 2 {
                let message =
                    format!("padding {} is more than half of the window, which reaches over {reach}", padding[d]);
                return Err(Error::argument(op, message));
            }
            let padded = space[d] + 2 * padding[d];
            let Some(free) = padded.checked_sub(reach) else {
                // One window that the input does not fill, if it counts and begins before the input ends.
                if self.ceil_mode && reach - padded < stride[d] && space[d] + padding[d] > 0 {
                    return Ok(1);
                }
                let message = format!("a window that reaches over {reach} does not fit the padded input's {padded}");
                return Err(Error::argument(op, message));
            };
            if !self.ceil_mode {
                return Ok(free / stride[d] + 1);
            }
            let count = free.div_ceil(stride[d]) + 1;
            // The last window begins inside the input or its left padding.
            Ok(if (count - 1) * stride[d] >= space[d] + padding[d] { count - 1 } else { count })
        });
        let output = output.collect::<Result<Dims>>()?;
        if checked_numel(&kernel).is_none_or(|n| n > i64::MAX as usize) {
            return Err(Error::argument(op, format!("a window of {kernel:?} has more elements than can be counted")));
        }
        let shape = PoolShape::new(planes, (space, &output), &kernel, &stride, &padding, &dilation);
        let lead = &input[..input.len() - n];
        Ok(PoolGeometry { shape, output: lead.iter().chain(&output).copied().collect() })
    }
}

fn like(t: &Tensor, sizes: &[usize]) -> Result<Spec> {
    Spec::new(sizes, t.dtype(), t.device())
}

fn with_indices(t: &Tensor, sizes: &[usize]) -> Result<(Spec, Spec)> {
    Ok((like(t, sizes)?, Spec::new(sizes, DType::I64, t.device())?))
}

/// Pools of real numbers, also of integers.
fn need_number(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_integer() && dtype != DType::Bool { Ok(()) } else { need_float(op, dtype) }
}

fn same_shape(op: &'static str, t: &Tensor, expected: &[usize]) -> Result<()> {
    if t.shape() == expected {
        return Ok(());
    }
    let message = format!("expected a gradient of the result's shape {expected:?}, found {:?}", t.shape());
    Err(Error::argument(op, message))
}

/// The same dtype for a gradient and what it belongs to.
fn same_dtype(op: &'static str, grad: &Tensor, t: &Tensor) -> Result<()> {
    need_float(op, t.dtype())?;
    if grad.dtype() == t.dtype() {
        return Ok(());
    }
    let (a, b) = (grad.dtype(), t.dtype());
    Err(Error::argument(op, format!("expected gradient and input of one dtype, found {a} and {b}")))
}

macro_rules! pools {
    ($($n:literal: $max:ident $max_backward:ident $avg:ident $avg_backward:ident
        $adaptive_avg:ident $adaptive_avg_backward:ident $adaptive_max:ident $adaptive_max_backward:ident;)*) => {$(
        pub(crate) fn $max(
            op: &'static str,
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            dilation: &[i64],
            ceil_mode: bool,
        ) -> Result<(Spec, Spec)> {
            need_number(op, self_.dtype())?;
            let args = PoolArgs { kernel, stride, padding, dilation, ceil_mode };
            with_indices(self_, &args.geometry(op, $n, self_.shape())?.output)
        }

        pub(crate) fn $max_backward(
            op: &'static str,
            grad: &Tensor,
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            dilation: &[i64],
            ceil_mode: bool,
            indices: &Tensor,
        ) -> Result<Spec> {
            same_dtype(op, grad, self_)?;
            let args = PoolArgs { kernel, stride, padding, dilation, ceil_mode };
            same_shape(op, grad, &args.geometry(op, $n, self_.shape())?.output)?;
            positions(op, grad, indices)?;
            like(self_, self_.shape())
        }

        pub(crate) fn $avg(
            op: &'static str,
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            ceil_mode: bool,
            _count_include_pad: bool,
            divisor_override: Option<i64>,
        ) -> Result<Spec> {
            need_number(op, self_.dtype())?;
            need_divisor(op, divisor_override)?;
            let args = PoolArgs { kernel, stride, padding, dilation: &[1], ceil_mode };
            like(self_, &args.geometry(op, $n, self_.shape())?.output)
        }

        pub(crate) fn $avg_backward(
            op: &'static str,
            grad: &Tensor,
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            ceil_mode: bool,
            _count_include_pad: bool,
            divisor_override: Option<i64>,
        ) -> Result<Spec> {
            same_dtype(op, grad, self_)?;
            need_divisor(op, divisor_override)?;
            let args = PoolArgs { kernel, stride, padding, dilation: &[1], ceil_mode };
            same_shape(op, grad, &args.geometry(op, $n, self_.shape())?.output)?;
            like(self_, self_.shape())
        }

        pub(crate) fn $adaptive_avg(op: &'static str, self_: &Tensor, output_size: &[SymInt]) -> Result<Spec> {
            need_float(op, self_.dtype())?;
            like(self_, &adaptive(op, $n, self_.shape(), &ints(output_size))?)
        }

        pub(crate) fn $adaptive_avg_backward(op: &'static str, grad: &Tensor, self_: &Tensor) -> Result<Spec> {
            same_dtype(op, grad, self_)?;
            adaptive_backward(op, $n, grad, self_)?;
            like(self_, self_.shape())
        }

        pub(crate) fn $adaptive_max(op: &'static str, self_: &Tensor, output_size: &[i64]) -> Result<(Spec, Spec)> {
            need_float(op, self_.dtype())?;
            with_indices(self_, &adaptive(op, $n, self_.shape(), output_size)?)
        }

        pub(crate) fn $adaptive_max_backward(
            op: &'static str,
            grad: &Tensor,
            self_: &Tensor,
            indices: &Tensor,
        ) -> Result<Spec> {
            same_dtype(op, grad, self_)?;
            adaptive_backward(op, $n, grad, self_)?;
            positions(op, grad, indices)?;
            like(self_, self_.shape())
        }
    )*};
}
pools! {
    2: max_pool2d max_pool2d_backward avg_pool2d avg_pool2d_backward
        adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_max_pool2d adaptive_max_pool2d_backward;
    3: max_pool3d max_pool3d_backward avg_pool3d avg_pool3d_backward
        adaptive_avg_pool3d adaptive_avg_pool3d_backward adaptive_max_pool3d adaptive_max_pool3d_backward;
}

fn need_divisor(op: &'static str, divisor: Option<i64>) -> Result<()> {
    if divisor == Some(0) {
        return Err(Error::argument(op, "expected a divisor_override other than 0"));
    }
    Ok(())
}

/// Checks that indices belong to a pooled tensor.
fn positions(op: &'static str, pooled: &Tensor, indices: &Tensor) -> Result<()> {
    if indices.dtype() == DType::I64 && indices.shape() == pooled.shape() {
        return Ok(());
    }
    let (expected, found) = (pooled.shape(), indices.shape());
    let message = format!("expected int64 indices of shape {expected:?}, found {} of {found:?}", indices.dtype());
    Err(Error::argument(op, message))
}

/// The shape that adaptive pooling gives.
fn adaptive(op: &'static str, n: usize, input: &[usize], output_size: &[i64]) -> Result<Dims> {
    planes(op, n, input)?;
    if output_size.len() != n {
        let message = format!("expected {n} output sizes, found {output_size:?}");
        return Err(Error::argument(op, message));
    }
    let output = spatial(op, "output_size", output_size, n, 0)?;
    Ok(input[..input.len() - n].iter().chain(&output).copied().collect())
}

fn adaptive_backward(op: &'static str, n: usize, grad: &Tensor, self_: &Tensor) -> Result<()> {
    planes(op, n, self_.shape())?;
    let lead = self_.ndim() - n;
    if grad.ndim() == self_.ndim() && grad.shape()[..lead] == self_.shape()[..lead] {
        return Ok(());
    }
    let (grad, input) = (grad.shape(), self_.shape());
    Err(Error::argument(op, format!("expected a gradient for planes of {input:?}, found shape {grad:?}")))
}

pub(crate) fn max_unpool2d(op: &'static str, self_: &Tensor, indices: &Tensor, output_size: &[SymInt]) -> Result<Spec> {
    need_float(op, self_.dtype())?;
    positions(op, self_, indices)?;
    like(self_, &adaptive(op, 2, self_.shape(), &ints(output_size))?)
}
