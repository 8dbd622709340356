//! Pooling. Kernels read dense planes; only tensors that are not are copied.

use super::{as_floats, dense};
use crate::ops::shape::{PoolArgs, planes};
use crate::{Error, Result, SymInt, Tensor};
use firebrand_kernels::pooling;

fn max(n: usize, t: &Tensor, args: PoolArgs<'_>, out: &Tensor, indices: &Tensor) -> Result<()> {
    let shape = args.geometry("max_pool", n, t.shape())?.shape;
    as_floats("max_pool", t, out, |t, out| {
        pooling::max_pool(&shape, dense(t)?.read()?.view(), out.write()?.view_mut(), indices.write()?.view_mut());
        Ok(())
    })
}

/// Adds each gradient to the pixel its index names.
fn scatter(op: &'static str, n: usize, grad: &Tensor, indices: &Tensor, out: &Tensor) -> Result<()> {
    let (count, space) = planes(op, n, out.shape())?;
    let indices = dense(indices)?;
    let pixels: usize = space.iter().product();
    let access = indices.read()?;
    if let Err(bad) = firebrand_kernels::index::check(&access.view(), pixels) {
        return Err(Error::argument(op, format!("index {} is outside the plane of {pixels} elements", bad.index)));
    }
    pooling::max_pool_backward(count, dense(grad)?.read()?.view(), access.view(), out.write()?.view_mut());
    Ok(())
}

fn average(
    n: usize,
    t: &Tensor,
    args: PoolArgs<'_>,
    count_include_pad: bool,
    divisor: Option<i64>,
    out: &Tensor,
) -> Result<()> {
    let shape = args.geometry("avg_pool", n, t.shape())?.shape;
    as_floats("avg_pool", t, out, |t, out| {
        pooling::avg_pool(&shape, count_include_pad, divisor, dense(t)?.read()?.view(), out.write()?.view_mut());
        Ok(())
    })
}

fn average_backward(
    n: usize,
    grad: &Tensor,
    args: PoolArgs<'_>,
    count_include_pad: bool,
    divisor: Option<i64>,
    out: &Tensor,
) -> Result<()> {
    let shape = args.geometry("avg_pool_backward", n, out.shape())?.shape;
    let grad = dense(grad)?;
    pooling::avg_pool_backward(&shape, count_include_pad, divisor, grad.read()?.view(), out.write()?.view_mut());
    Ok(())
}

macro_rules! pools {
    ($($n:literal: $max:ident $max_backward:ident $avg:ident $avg_backward:ident
        $adaptive_avg:ident $adaptive_avg_backward:ident $adaptive_max:ident $adaptive_max_backward:ident;)*) => {$(
        pub(crate) fn $max(
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            dilation: &[i64],
            ceil_mode: bool,
            out: &Tensor,
            indices: &Tensor,
        ) -> Result<()> {
            max($n, self_, PoolArgs { kernel, stride, padding, dilation, ceil_mode }, out, indices)
        }

        pub(crate) fn $max_backward(
            grad: &Tensor,
            _self: &Tensor,
            _kernel: &[i64],
            _stride: &[i64],
            _padding: &[i64],
            _dilation: &[i64],
            _ceil_mode: bool,
            indices: &Tensor,
            out: &Tensor,
        ) -> Result<()> {
            scatter(stringify!($max_backward), $n, grad, indices, out)
        }

        pub(crate) fn $avg(
            self_: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            ceil_mode: bool,
            count_include_pad: bool,
            divisor: Option<i64>,
            out: &Tensor,
        ) -> Result<()> {
            let args = PoolArgs { kernel, stride, padding, dilation: &[1], ceil_mode };
            average($n, self_, args, count_include_pad, divisor, out)
        }

        pub(crate) fn $avg_backward(
            grad: &Tensor,
            _self: &Tensor,
            kernel: &[i64],
            stride: &[i64],
            padding: &[i64],
            ceil_mode: bool,
            count_include_pad: bool,
            divisor: Option<i64>,
            out: &Tensor,
        ) -> Result<()> {
            let args = PoolArgs { kernel, stride, padding, dilation: &[1], ceil_mode };
            average_backward($n, grad, args, count_include_pad, divisor, out)
        }

        pub(crate) fn $adaptive_avg(self_: &Tensor, _output_size: &[SymInt], out: &Tensor) -> Result<()> {
            let (count, input) = planes(stringify!($adaptive_avg), $n, self_.shape())?;
            let output = &out.shape()[out.ndim() - $n..];
            let x = dense(self_)?;
            pooling::adaptive_avg_pool(count, input, output, x.read()?.view(), out.write()?.view_mut());
            Ok(())
        }

        pub(crate) fn $adaptive_avg_backward(grad: &Tensor, self_: &Tensor, out: &Tensor) -> Result<()> {
            let (count, input) = planes(stringify!($adaptive_avg_backward), $n, self_.shape())?;
            let output = &grad.shape()[grad.ndim() - $n..];
            let dy = dense(grad)?;
            pooling::adaptive_avg_pool_backward(count, input, output, dy.read()?.view(), out.write()?.view_mut());
            Ok(())
        }

        pub(crate) fn $adaptive_max(
            self_: &Tensor,
            _output_size: &[i64],
            out: &Tensor,
            indices: &Tensor,
        ) -> Result<()> {
            let (count, input) = planes(stringify!($adaptive_max), $n, self_.shape())?;
            let output = &out.shape()[out.ndim() - $n..];
            let (x, to) = (dense(self_)?, indices.write()?);
            pooling::adaptive_max_pool(count, input, output, x.read()?.view(), out.write()?.view_mut(), to.view_mut());
            Ok(())
        }

        pub(crate) fn $adaptive_max_backward(
            grad: &Tensor,
            _self: &Tensor,
            indices: &Tensor,
            out: &Tensor,
        ) -> Result<()> {
            scatter(stringify!($adaptive_max_backward), $n, grad, indices, out)
        }
    )*};
}
pools! {
    2: max_pool2d max_pool2d_backward avg_pool2d avg_pool2d_backward
        adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_max_pool2d adaptive_max_pool2d_backward;
    3: max_pool3d max_pool3d_backward avg_pool3d avg_pool3d_backward
        adaptive_avg_pool3d adaptive_avg_pool3d_backward adaptive_max_pool3d adaptive_max_pool3d_backward;
}

/// Puts each element where its index says, zero elsewhere; of several at one place the last counts.
pub(crate) fn max_unpool2d(self_: &Tensor, indices: &Tensor, _output_size: &[SymInt], out: &Tensor) -> Result<()> {
    let flat = |t: &Tensor| -> Result<Tensor> {
        let (count, space) = planes("max_unpool2d", 2, t.shape())?;
        let sizes = [count, space.iter().product()];
        let t = dense(t)?;
        Ok(t.alias_with(crate::layout::Layout::contiguous(&sizes)?.with_offset(t.layout().offset())?))
    };
    firebrand_kernels::fill(out.write()?.view_mut(), crate::Scalar::Int(0).into());
    let (from, at, to) = (flat(self_)?, flat(indices)?, flat(out)?);
    let done = firebrand_kernels::index::scatter(&to.write()?.view_mut(), 1, &at.read()?.view(), &from.read()?.view());
    done.map_err(|e| Error::argument("max_unpool2d", e.to_string()))
}
