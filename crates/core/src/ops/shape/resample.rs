//! Shape functions of resizing and of sampling at points, and the geometry that kernels need.

use super::conv::{ints, spatial};
use super::need_float;
use crate::layout::Dims;
use crate::{Error, Result, Spec, SymInt, Tensor};
use firebrand_kernels::grid_sample::{GridSample, Interpolation, Padding};

/// The sizes of images resized in `n` dimensions.
fn resized(op: &'static str, n: usize, input: &[usize], output_size: &[SymInt]) -> Result<Dims> {
    if input.len() != n + 2 || input[1..].contains(&0) {
        let message = format!("expected [batch, channels, {n} sizes], only the batch empty, found {input:?}");
        return Err(Error::argument(op, message));
    }
    if output_size.len() != n {
        return Err(Error::argument(op, format!("expected {n} output sizes, found {output_size:?}")));
    }
    let output = spatial(op, "output_size", &ints(output_size), n, 1)?;
    Ok(input[..2].iter().chain(&output).copied().collect())
}

fn resize(op: &'static str, n: usize, t: &Tensor, output_size: &[SymInt]) -> Result<Spec> {
    need_float(op, t.dtype())?;
    Spec::new(&resized(op, n, t.shape(), output_size)?, t.dtype(), t.device())
}

fn resize_backward(
    op: &'static str,
    n: usize,
    grad: &Tensor,
    output_size: &[SymInt],
    input_size: &[SymInt],
) -> Result<Spec> {
    need_float(op, grad.dtype())?;
    let input = spatial(op, "input_size", &ints(input_size), n + 2, 0)?;
    let expected = resized(op, n, &input, output_size)?;
    if grad.shape() != &expected[..] {
        let message = format!("expected a gradient of the result's shape {expected:?}, found {:?}", grad.shape());
        return Err(Error::argument(op, message));
    }
    Spec::new(&input, grad.dtype(), grad.device())
}

macro_rules! resizes {
    ($($n:literal: $name:ident $backward:ident ($($extra:ident: $ty:ty),*);)*) => {$(
        pub(crate) fn $name(op: &'static str, t: &Tensor, output_size: &[SymInt], $($extra: $ty),*) -> Result<Spec> {
            resize(op, $n, t, output_size)
        }

        pub(crate) fn $backward(
            op: &'static str,
            grad: &Tensor,
            output_size: &[SymInt],
            input_size: &[SymInt],
            $($extra: $ty),*
        ) -> Result<Spec> {
            resize_backward(op, $n, grad, output_size, input_size)
        }
    )*};
}
resizes! {
    1: upsample_nearest1d upsample_nearest1d_backward (_w: Option<f64>);
    2: upsample_nearest2d upsample_nearest2d_backward (_h: Option<f64>, _w: Option<f64>);
    3: upsample_nearest3d upsample_nearest3d_backward (_d: Option<f64>, _h: Option<f64>, _w: Option<f64>);
    1: upsample_linear1d upsample_linear1d_backward (_corners: bool, _w: Option<f64>);
    2: upsample_linear2d upsample_linear2d_backward (_corners: bool, _h: Option<f64>, _w: Option<f64>);
    3: upsample_linear3d upsample_linear3d_backward (_corners: bool, _d: Option<f64>, _h: Option<f64>, _w: Option<f64>);
}

/// A sampling whose arguments fit.
pub(crate) fn grid_geometry(
    op: &'static str,
    n: usize,
    (input, grid): (&Tensor, &Tensor),
    interpolation: i64,
    padding: i64,
    align_corners: bool,
) -> Result<GridSample> {
    need_float(op, input.dtype())?;
    if input.dtype() != grid.dtype() {
        let (a, b) = (input.dtype(), grid.dtype());
        return Err(Error::argument(op, format!("expected images and points of one dtype, found {a} and {b}")));
    }
    grid_sizes(op, n, (input.shape(), grid.shape()), interpolation, padding, align_corners)
}

fn grid_sizes(
    op: &'static str,
    n: usize,
    (x, g): (&[usize], &[usize]),
    interpolation: i64,
    padding: i64,
    align_corners: bool,
) -> Result<GridSample> {
    let fits = x.len() == n + 2 && g.len() == n + 2 && x[0] == g[0] && g[n + 1] == n && !x[1..].contains(&0);
    if !fits {
        let message = format!(
            "expected images [batch, channels, {n} sizes] and points [batch, {n} sizes, {n}], found {x:?}, {g:?}"
        );
        return Err(Error::argument(op, message));
    }
    let interpolation = match interpolation {
        0 => Interpolation::Linear,
        1 => Interpolation::Nearest,
        2 => Interpolation::Cubic,
        m => return Err(Error::argument(op, format!("expected interpolation mode 0, 1 or 2, found {m}"))),
    };
    let padding = match padding {
        0 => Padding::Zeros,
        1 => Padding::Border,
        2 => Padding::Reflection,
        m => return Err(Error::argument(op, format!("expected padding mode 0, 1 or 2, found {m}"))),
    };
    let mut space = [1; 3];
    space[3 - n..].copy_from_slice(&x[2..]);
    let points = g[1..=n].iter().product();
    Ok(GridSample { batch: x[0], channels: x[1], dims: n, input: space, points, interpolation, padding, align_corners })
}

macro_rules! grids {
    ($($n:literal: $name:ident $backward:ident;)*) => {$(
        pub(crate) fn $name(
            op: &'static str,
            input: &Tensor,
            grid: &Tensor,
            interpolation: i64,
            padding: i64,
            align_corners: bool,
        ) -> Result<Spec> {
            let s = grid_geometry(op, $n, (input, grid), interpolation, padding, align_corners)?;
            let sizes: Dims = [s.batch, s.channels].iter().chain(&grid.shape()[1..=$n]).copied().collect();
            Spec::new(&sizes, input.dtype(), input.device())
        }

        /// Gradients of images and points; one that is not needed has no elements.
        pub(crate) fn $backward(
            op: &'static str,
            grad: &Tensor,
            input: &Tensor,
            grid: &Tensor,
            interpolation: i64,
            padding: i64,
            align_corners: bool,
            output_mask: [bool; 2],
        ) -> Result<(Spec, Spec)> {
            let out = $name(op, input, grid, interpolation, padding, align_corners)?;
            if grad.shape() != out.layout.sizes() || grad.dtype() != out.dtype {
                let (expected, found) = (out.layout.sizes(), grad.shape());
                let message = format!("expected a gradient of the result's shape {expected:?}, found {found:?}");
                return Err(Error::argument(op, message));
            }
            let spec = |wanted: bool, t: &Tensor| Spec::new(if wanted { t.shape() } else { &[0] }, out.dtype, out.device);
            Ok((spec(output_mask[0], input)?, spec(output_mask[1], grid)?))
        }
    )*};
}
grids! {
    2: grid_sampler_2d grid_sampler_2d_backward;
    3: grid_sampler_3d grid_sampler_3d_backward;
}

/// How often to differentiate by each coordinate: two or three numbers.
fn need_order(op: &'static str, order: &[i64]) -> Result<usize> {
    if !matches!(order.len(), 2 | 3) || order.iter().any(|&k| k < 0) {
        return Err(Error::argument(
            op,
            format!("expected an order for each of two or three coordinates, found {order:?}"),
        ));
    }
    Ok(order.len())
}

pub(crate) fn grid_sampler_derivative(
    op: &'static str,
    input: &Tensor,
    grid: &Tensor,
    order: &[i64],
    interpolation: i64,
    padding: i64,
    align_corners: bool,
) -> Result<Spec> {
    match need_order(op, order)? {
        2 => grid_sampler_2d(op, input, grid, interpolation, padding, align_corners),
        _ => grid_sampler_3d(op, input, grid, interpolation, padding, align_corners),
    }
}

pub(crate) fn grid_sampler_derivative_backward(
    op: &'static str,
    grad: &Tensor,
    grid: &Tensor,
    input_size: &[SymInt],
    order: &[i64],
    interpolation: i64,
    padding: i64,
    align_corners: bool,
) -> Result<Spec> {
    let n = need_order(op, order)?;
    let input = spatial(op, "input_size", &ints(input_size), n + 2, 0)?;
    let s = grid_sizes(op, n, (&input, grid.shape()), interpolation, padding, align_corners)?;
    let expected: Dims = [s.batch, s.channels].iter().chain(&grid.shape()[1..=n]).copied().collect();
    if grad.shape() != &expected[..] || grad.dtype() != grid.dtype() {
        let message = format!("expected a gradient of the result's shape {expected:?}, found {:?}", grad.shape());
        return Err(Error::argument(op, message));
    }
    need_float(op, grad.dtype())?;
    Spec::new(&input, grad.dtype(), grad.device())
}
