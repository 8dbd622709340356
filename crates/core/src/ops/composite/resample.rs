//! Resizing by factors, anti-aliased resizing, and grids for sampling.

use crate::ops::formulas::{cast, sym};
use crate::ops::lists;
use crate::sym::SymInts;
use crate::{Error, Result, SymInt, Tensor, ops};

/// The output size from sizes or factors: exactly one of them is given. With factors, they are also the scales.
fn size_of(
    op: &'static str,
    n: usize,
    input: &Tensor,
    output_size: Option<&[SymInt]>,
    factors: Option<&[f64]>,
) -> Result<(SymInts, [Option<f64>; 3])> {
    let message = match (output_size, factors) {
        (Some(sizes), None) => return Ok((sizes.iter().copied().collect(), [None; 3])),
        (None, Some(factors)) if factors.len() == n && input.ndim() == n + 2 => {
            let sizes = factors.iter().zip(&input.shape()[2..]).map(|(f, &s)| SymInt::from((s as f64 * f) as i64));
            let mut scales = [None; 3];
            scales.iter_mut().zip(factors).for_each(|(s, &f)| *s = Some(f));
            return Ok((sizes.collect(), scales));
        }
        (None, Some(f)) => format!("expected {n} scale factors for {:?}, found {f:?}", input.shape()),
        _ => "expected either output_size or scale_factors".to_string(),
    };
    Err(Error::argument(op, message))
}

macro_rules! by_factors {
    ($($n:literal: $name:ident $op:ident ($($corners:ident)?) ($($k:literal)*);)*) => {$(
        pub(crate) fn $name(
            input: &Tensor,
            output_size: Option<&[SymInt]>,
            $($corners: bool,)?
            factors: Option<&[f64]>,
        ) -> Result<Tensor> {
            let (sizes, scales) = size_of(stringify!($op), $n, input, output_size, factors)?;
            ops::$op(input, &sizes, $($corners,)? $(scales[$k]),*)
        }
    )*};
}
by_factors! {
    1: upsample_nearest1d_vec upsample_nearest1d () (0);
    2: upsample_nearest2d_vec upsample_nearest2d () (0 1);
    3: upsample_nearest3d_vec upsample_nearest3d () (0 1 2);
    1: _upsample_nearest_exact1d_vec _upsample_nearest_exact1d () (0);
    2: _upsample_nearest_exact2d_vec _upsample_nearest_exact2d () (0 1);
    3: _upsample_nearest_exact3d_vec _upsample_nearest_exact3d () (0 1 2);
    1: upsample_linear1d_vec upsample_linear1d (align_corners) (0);
    2: upsample_bilinear2d_vec upsample_bilinear2d (align_corners) (0 1);
    2: upsample_bicubic2d_vec upsample_bicubic2d (align_corners) (0 1);
    3: upsample_trilinear3d_vec upsample_trilinear3d (align_corners) (0 1 2);
    2: upsample_bilinear2d_aa_vec _upsample_bilinear2d_aa (align_corners) (0 1);
    2: upsample_bicubic2d_aa_vec _upsample_bicubic2d_aa (align_corners) (0 1);
    2: upsample_lanczos2d_aa_vec _upsample_lanczos2d_aa (align_corners) (0 1);
}

pub(crate) fn grid_sampler(
    input: &Tensor,
    grid: &Tensor,
    interpolation: i64,
    padding: i64,
    align_corners: bool,
) -> Result<Tensor> {
    match input.ndim() {
        5 => ops::grid_sampler_3d(input, grid, interpolation, padding, align_corners),
        _ => ops::grid_sampler_2d(input, grid, interpolation, padding, align_corners),
    }
}

/// A tensor of these numbers, with the dtype and device of `like`.
fn constant(values: Vec<f64>, sizes: &[usize], like: &Tensor) -> Result<Tensor> {
    let t = cast(&Tensor::try_from_vec(values, sizes)?, like.dtype())?;
    if t.device() == like.device() { Ok(t) } else { ops::to_copy(&t, None, Some(like.device()), false, None) }
}

/// Homogeneous coordinates `[batch, pixels, n + 1]` of the pixels of images `[batch, channels, ..]`.
fn homogeneous(op: &'static str, sizes: &[usize], align_corners: bool, like: &Tensor) -> Result<Tensor> {
    let (space, n) = (&sizes[2..], sizes.len() - 2);
    let coordinate = |k: usize, len: usize| {
        let step = if align_corners && len > 1 { 2.0 / (len as f64 - 1.0) } else { 2.0 / len as f64 };
        if align_corners { if len > 1 { k as f64 * step - 1.0 } else { 0.0 } } else { (k as f64 + 0.5) * step - 1.0 }
    };
    // x first.
    let points = space.iter().try_fold(1usize, |points, &len| points.checked_mul(len));
    let numbers = points.and_then(|p| p.checked_mul(n + 1));
    let (Some(points), Some(numbers)) = (points, numbers) else {
        return Err(Error::argument(op, format!("a grid of {space:?} points is larger than memory can be")));
    };
    let mut base = lists::room(numbers)?;
    for p in 0..points {
        let mut rest = p;
        for &len in space.iter().rev() {
            base.push(coordinate(rest % len, len));
            rest /= len;
        }
        base.push(1.0);
    }
    let base = constant(base, &[1, points, n + 1], like)?;
    ops::expand(&base, &sym(&[sizes[0], points, n + 1]), false)
}

/// The points at which an affine map sees each pixel of an image of the given size.
pub(crate) fn affine_grid_generator(theta: &Tensor, size: &[SymInt], align_corners: bool) -> Result<Tensor> {
    const OP: &str = "affine_grid_generator";
    let n = size.len().wrapping_sub(2);
    let sizes = size.iter().map(|s| s.to_usize()).collect::<Option<Vec<_>>>();
    let fits = |s: &Vec<usize>| matches!(n, 2 | 3) && theta.shape() == [s[0], n, n + 1] && !s[2..].contains(&0);
    let Some(sizes) = sizes.filter(fits) else {
        let message = format!(
            "expected maps [batch, n, n + 1] and a size of n + 2 integers, found {:?}, {size:?}",
            theta.shape()
        );
        return Err(Error::argument(OP, message));
    };
    let base = homogeneous(OP, &sizes, align_corners, theta)?;
    let grid = ops::bmm(&base, &ops::transpose(theta, 1, 2)?)?;
    let out: Vec<usize> = [&sizes[..1], &sizes[2..], &[n]].concat();
    ops::view(&grid, &sym(&out))
}

/// The gradient of the maps, from that of the points.
pub(crate) fn affine_grid_generator_backward(grad: &Tensor, size: &[SymInt], align_corners: bool) -> Result<Tensor> {
    const OP: &str = "affine_grid_generator_backward";
    let n = size.len().wrapping_sub(2);
    let sizes = size.iter().map(|s| s.to_usize()).collect::<Option<Vec<_>>>();
    let fits = |s: &Vec<usize>| {
        matches!(n, 2 | 3) && !s[2..].contains(&0) && grad.shape() == [&s[..1], &s[2..], &[n]].concat()
    };
    let Some(sizes) = sizes.filter(fits) else {
        let message = format!("expected points for images of {size:?}, found {:?}", grad.shape());
        return Err(Error::argument(OP, message));
    };
    let base = homogeneous(OP, &sizes, align_corners, grad)?;
    let points = ops::reshape(grad, &sym(&[sizes[0], base.shape()[1], n]))?;
    ops::transpose(&ops::bmm(&ops::transpose(&base, 1, 2)?, &points)?, 1, 2)
}

/// A filter of anti-aliased resizing: how far it reaches, and its weight at a distance.
#[derive(Clone, Copy)]
struct Filter {
    reach: f64,
    weight: fn(f64) -> f64,
}

const LINEAR: Filter = Filter { reach: 1.0, weight: |x| (1.0 - x.abs()).max(0.0) };

/// Keys' cubic with a = -1/2, as Pillow has it.
const CUBIC: Filter = Filter {
    reach: 2.0,
    weight: |x| {
        let (a, x) = (-0.5, x.abs());
        if x < 1.0 {
            ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        } else if x < 2.0 {
            (((x - 5.0) * x + 8.0) * x - 4.0) * a
        } else {
            0.0
        }
    },
};

/// Weights `[output, input]` of resizing with a filter at least as wide as an output pixel.
fn smooth_weights(
    filter: Filter,
    input: usize,
    output: usize,
    align_corners: bool,
    factor: Option<f64>,
) -> Result<Vec<f64>> {
    let scale = match (align_corners, factor) {
        (true, _) if output > 1 => (input as f64 - 1.0) / (output as f64 - 1.0),
        (true, _) => 0.0,
        (false, Some(f)) if f > 0.0 => 1.0 / f,
        _ => input as f64 / output as f64,
    };
    let stretch = scale.max(1.0);
    let width = filter.reach * stretch;
    let mut weights = lists::filled(0.0, output.saturating_mul(input))?;
    for (o, row) in weights.chunks_exact_mut(input.max(1)).enumerate() {
        let centre = scale * (o as f64 + 0.5);
        let first = (centre - width + 0.5).max(0.0) as usize;
        let last = ((centre + width + 0.5) as usize).min(input);
        for (i, w) in row.iter_mut().enumerate().take(last).skip(first) {
            *w = (filter.weight)((i as f64 - centre + 0.5) / stretch);
        }
        let sum: f64 = row.iter().sum();
        if sum != 0.0 {
            row.iter_mut().for_each(|w| *w /= sum);
        }
    }
    Ok(weights)
}

/// Lanczos' filter with three lobes, as Pillow has it.
const LANCZOS: Filter = Filter {
    reach: 3.0,
    weight: |x| {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
        if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
    },
};

macro_rules! smooth {
    ($($name:ident $backward:ident $filter:ident)*) => {$(
        /// Gradients of the pixels: the weights the other way round.
        pub(crate) fn $backward(
            grad_output: &Tensor,
            output_size: &[SymInt],
            input_size: &[SymInt],
            align_corners: bool,
            scale_h: Option<f64>,
            scale_w: Option<f64>,
        ) -> Result<Tensor> {
            let sizes = |list: &[SymInt]| list.iter().map(|n| n.to_usize()).collect::<Option<Vec<_>>>();
            let (&[n, c, oh, ow], Some([bn, bc, h, w])) =
                (grad_output.shape(), sizes(input_size).as_deref().and_then(|s| <[usize; 4]>::try_from(s).ok()))
            else {
                let message = format!("expected images and their sizes, found {:?} and {input_size:?}", grad_output.shape());
                return Err(Error::argument(stringify!($backward), message));
            };
            if (n, c) != (bn, bc) || sizes(output_size).as_deref() != Some(&[oh, ow]) {
                let message = format!("a gradient of shape {:?} does not fit {output_size:?}", grad_output.shape());
                return Err(Error::argument(stringify!($backward), message));
            }
            let rows = constant(smooth_weights($filter, h, oh, align_corners, scale_h)?, &[oh, h], grad_output)?;
            let columns = constant(smooth_weights($filter, w, ow, align_corners, scale_w)?, &[ow, w], grad_output)?;
            ops::matmul(&ops::t(&rows)?, &ops::matmul(grad_output, &columns)?)
        }

        pub(crate) fn $name(
            self_: &Tensor,
            output_size: &[SymInt],
            align_corners: bool,
            scale_h: Option<f64>,
            scale_w: Option<f64>,
        ) -> Result<Tensor> {
            let op = stringify!($name);
            let spec = crate::ops::shape::upsample_linear2d(op, self_, output_size, align_corners, scale_h, scale_w)?;
            let (&[_, _, h, w], &[_, _, oh, ow]) = (self_.shape(), spec.layout.sizes()) else {
                unreachable!("the shape function has seen four dimensions")
            };
            let rows = constant(smooth_weights($filter, h, oh, align_corners, scale_h)?, &[oh, h], self_)?;
            let columns = constant(smooth_weights($filter, w, ow, align_corners, scale_w)?, &[ow, w], self_)?;
            ops::matmul(&rows, &ops::matmul(self_, &ops::t(&columns)?)?)
        }
    )*};
}
smooth! {
    _upsample_bilinear2d_aa upsample_bilinear2d_aa_backward LINEAR
    _upsample_bicubic2d_aa upsample_bicubic2d_aa_backward CUBIC
    upsample_lanczos2d_aa upsample_lanczos2d_aa_backward LANCZOS
}
