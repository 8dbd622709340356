//! Resizing and sampling at points. Kernels read dense planes; only tensors that are not are copied.

use super::dense;
use crate::ops::shape::grid_geometry;
use crate::{Result, SymInt, Tensor};
use firebrand_kernels::grid_sample;
use firebrand_kernels::upsample::{self, Mode};

fn resize(mode: Mode, t: &Tensor, scales: &[Option<f64>], out: &Tensor) -> Result<()> {
    let planes = t.shape()[..2].iter().product();
    let x = dense(t)?;
    upsample::upsample(
        mode,
        planes,
        &t.shape()[2..],
        &out.shape()[2..],
        scales,
        x.read()?.view(),
        out.write()?.view_mut(),
    );
    Ok(())
}

fn resize_backward(mode: Mode, grad: &Tensor, scales: &[Option<f64>], out: &Tensor) -> Result<()> {
    let planes = out.shape()[..2].iter().product();
    let dy = dense(grad)?;
    let (input, output) = (&out.shape()[2..], &grad.shape()[2..]);
    upsample::upsample_backward(mode, planes, input, output, scales, dy.read()?.view(), out.write()?.view_mut());
    Ok(())
}

macro_rules! resizes {
    ($($name:ident $backward:ident $mode:expr, [$($corners:ident)?] [$($scale:ident)*];)*) => {$(
        pub(crate) fn $name(
            t: &Tensor,
            _output_size: &[SymInt],
            $($corners: bool,)?
            $($scale: Option<f64>,)*
            out: &Tensor,
        ) -> Result<()> {
            resize($mode, t, &[$($scale),*], out)
        }

        pub(crate) fn $backward(
            grad: &Tensor,
            _output_size: &[SymInt],
            _input_size: &[SymInt],
            $($corners: bool,)?
            $($scale: Option<f64>,)*
            out: &Tensor,
        ) -> Result<()> {
            resize_backward($mode, grad, &[$($scale),*], out)
        }
    )*};
}
resizes! {
    nearest1d nearest1d_backward Mode::Nearest, [] [w];
    nearest2d nearest2d_backward Mode::Nearest, [] [h w];
    nearest3d nearest3d_backward Mode::Nearest, [] [d h w];
    nearest_exact1d nearest_exact1d_backward Mode::NearestExact, [] [w];
    nearest_exact2d nearest_exact2d_backward Mode::NearestExact, [] [h w];
    nearest_exact3d nearest_exact3d_backward Mode::NearestExact, [] [d h w];
    linear1d linear1d_backward Mode::Linear { align_corners }, [align_corners] [w];
    bilinear2d bilinear2d_backward Mode::Linear { align_corners }, [align_corners] [h w];
    bicubic2d bicubic2d_backward Mode::Cubic { align_corners }, [align_corners] [h w];
    trilinear3d trilinear3d_backward Mode::Linear { align_corners }, [align_corners] [d h w];
}

macro_rules! grids {
    ($($n:literal: $name:ident $backward:ident;)*) => {$(
        pub(crate) fn $name(
            input: &Tensor,
            grid: &Tensor,
            interpolation: i64,
            padding: i64,
            align_corners: bool,
            out: &Tensor,
        ) -> Result<()> {
            let s = grid_geometry(stringify!($name), $n, (input, grid), interpolation, padding, align_corners)?;
            let (x, g) = (dense(input)?, dense(grid)?);
            grid_sample::grid_sample(&s, [0; 3], x.read()?.view(), g.read()?.view(), out.write()?.view_mut());
            Ok(())
        }

        pub(crate) fn $backward(
            grad: &Tensor,
            input: &Tensor,
            grid: &Tensor,
            interpolation: i64,
            padding: i64,
            align_corners: bool,
            output_mask: [bool; 2],
            grad_input: &Tensor,
            grad_grid: &Tensor,
        ) -> Result<()> {
            let s = grid_geometry(stringify!($backward), $n, (input, grid), interpolation, padding, align_corners)?;
            let (dy, x, g) = (dense(grad)?, dense(input)?, dense(grid)?);
            let (dy, x, g) = (dy.read()?, x.read()?, g.read()?);
            let none = [0; 3];
            if output_mask[0] {
                grid_sample::grid_sample_grad_input(&s, none, dy.view(), g.view(), grad_input.write()?.view_mut());
            }
            if output_mask[1] {
                let to = grad_grid.write()?;
                grid_sample::grid_sample_grad_grid(&s, none, dy.view(), x.view(), g.view(), to.view_mut());
            }
            Ok(())
        }
    )*};
}
grids! {
    2: grid_sampler_2d grid_sampler_2d_backward;
    3: grid_sampler_3d grid_sampler_3d_backward;
}

/// An order per spatial dimension as the kernels take it.
fn wide(order: &[i64]) -> [usize; 3] {
    let mut out = [0; 3];
    out[3 - order.len()..].iter_mut().zip(order).for_each(|(o, &k)| *o = k as usize);
    out
}

pub(crate) fn grid_sampler_derivative(
    input: &Tensor,
    grid: &Tensor,
    order: &[i64],
    interpolation: i64,
    padding: i64,
    align_corners: bool,
    out: &Tensor,
) -> Result<()> {
    let s = grid_geometry("grid_sampler", order.len(), (input, grid), interpolation, padding, align_corners)?;
    let (x, g) = (dense(input)?, dense(grid)?);
    grid_sample::grid_sample(&s, wide(order), x.read()?.view(), g.read()?.view(), out.write()?.view_mut());
    Ok(())
}

pub(crate) fn grid_sampler_derivative_backward(
    grad: &Tensor,
    grid: &Tensor,
    _input_size: &[SymInt],
    order: &[i64],
    interpolation: i64,
    padding: i64,
    align_corners: bool,
    out: &Tensor,
) -> Result<()> {
    let s = grid_geometry("grid_sampler", order.len(), (out, grid), interpolation, padding, align_corners)?;
    let (dy, g) = (dense(grad)?, dense(grid)?);
    grid_sample::grid_sample_grad_input(&s, wide(order), dy.read()?.view(), g.read()?.view(), out.write()?.view_mut());
    Ok(())
}
