//! Derivatives of sampling at points. With `G[k]` the sample differentiated `k` times with respect to the coordinates, the gradient of
//! a coordinate is `G[k + 1]`, so every derivative of any order is composed of `G` and its transpose.

use crate::sym::SymInt;
use crate::{Result, Scalar, Spec, Tensor, ops};

/// Interpolation, padding, whether corners are aligned.
type Modes = (i64, i64, bool);

fn sampled(input: &Tensor, grid: &Tensor, order: &[i64], m: Modes) -> Result<Tensor> {
    ops::_grid_sampler_derivative(input, grid, order, m.0, m.1, m.2)
}

fn transposed(grad: &Tensor, grid: &Tensor, size: &[SymInt], order: &[i64], m: Modes) -> Result<Tensor> {
    ops::_grid_sampler_derivative_backward(grad, grid, size, order, m.0, m.1, m.2)
}

/// One more derivative by spatial dimension `d`.
fn raised(order: &[i64], d: usize) -> Vec<i64> {
    order.iter().enumerate().map(|(k, &o)| o + i64::from(k == d)).collect()
}

/// The coordinate of spatial dimension `d` (points list them last first), for every channel.
fn coordinate(grid: &Tensor, d: usize) -> Result<Tensor> {
    let n = grid.ndim() - 2;
    ops::unsqueeze(&ops::select(grid, -1, SymInt::from(n - 1 - d))?, 1)
}

/// The sum of one term per spatial dimension.
fn over_dims(n: usize, term: impl Fn(usize) -> Result<Tensor>) -> Result<Tensor> {
    (1..n).try_fold(term(0)?, |sum, d| ops::add(&sum, &term(d)?, Scalar::Int(1)))
}

/// One value per coordinate of the points: sums over channels.
fn per_coordinate(n: usize, term: impl Fn(usize) -> Result<Tensor>) -> Result<Tensor> {
    let parts = (0..n).rev().map(|d| ops::sum_dim(&term(d)?, Some(&[1]), false, None));
    ops::stack(&parts.collect::<Result<Vec<_>>>()?, -1)
}

/// The change of a sample when the points move along `direction`.
pub(crate) fn grid_along(
    input: &Tensor,
    grid: &Tensor,
    direction: &Tensor,
    order: &[i64],
    interpolation: i64,
    padding: i64,
    corners: bool,
) -> Result<Tensor> {
    let m = (interpolation, padding, corners);
    over_dims(order.len(), |d| ops::mul(&sampled(input, grid, &raised(order, d), m)?, &coordinate(direction, d)?))
}

/// The change of the gradient by the input when the points move along `direction`.
pub(crate) fn grid_backward_along(
    grad: &Tensor,
    grid: &Tensor,
    direction: &Tensor,
    size: &[SymInt],
    order: &[i64],
    interpolation: i64,
    padding: i64,
    corners: bool,
) -> Result<Tensor> {
    let m = (interpolation, padding, corners);
    over_dims(order.len(), |d| {
        transposed(&ops::mul(grad, &coordinate(direction, d)?)?, grid, size, &raised(order, d), m)
    })
}

/// The gradient of a sample by the points.
pub(crate) fn grid_points_backward(
    grad: &Tensor,
    input: &Tensor,
    grid: &Tensor,
    order: &[i64],
    interpolation: i64,
    padding: i64,
    corners: bool,
) -> Result<Tensor> {
    let m = (interpolation, padding, corners);
    per_coordinate(order.len(), |d| ops::mul(grad, &sampled(input, grid, &raised(order, d), m)?))
}

/// The change of the gradient by the points when they move along `direction`.
fn points_along(grad: &Tensor, input: &Tensor, grid: &Tensor, direction: &Tensor, m: Modes) -> Result<Tensor> {
    let plain = none(input);
    per_coordinate(plain.len(), |d| {
        ops::mul(grad, &grid_along(input, grid, direction, &raised(&plain, d), m.0, m.1, m.2)?)
    })
}

/// No derivative by any coordinate.
fn none(input: &Tensor) -> Vec<i64> {
    vec![0; input.ndim() - 2]
}

/// Gradients of images and points, as far as they are needed.
pub(crate) fn grid_sampler_grads(
    grad: &Tensor,
    input: &Tensor,
    grid: &Tensor,
    interpolation: i64,
    padding: i64,
    corners: bool,
    mask: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let run = if input.ndim() == 4 { ops::grid_sampler_2d_backward } else { ops::grid_sampler_3d_backward };
    let (i, g) = run(grad, input, grid, interpolation, padding, corners, mask)?;
    Ok((mask[0].then_some(i), mask[1].then_some(g)))
}

/// The tangent of a sample.
pub(crate) fn grid_sampler_jvp(
    input: (&Tensor, &Tensor),
    grid: (&Tensor, &Tensor),
    interpolation: i64,
    padding: i64,
    corners: bool,
) -> Result<Tensor> {
    let by_input = ops::grid_sampler(input.1, grid.0, interpolation, padding, corners)?;
    let by_grid = grid_along(input.0, grid.0, grid.1, &none(input.0), interpolation, padding, corners)?;
    ops::add(&by_input, &by_grid, Scalar::Int(1))
}

/// The sum of those that are there.
fn total(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => ops::add(&a, &b, Scalar::Int(1)).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// Gradients of the arguments of the gradients, from those of its results.
pub(crate) fn grid_sampler_double_backward(
    grads: &[Option<Tensor>],
    grad_output: &Tensor,
    input: &Tensor,
    grid: &Tensor,
    interpolation: i64,
    padding: i64,
    corners: bool,
    output_mask: [bool; 2],
    mask: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let (i, p, c) = (interpolation, padding, corners);
    let cotangent = |k: usize| grads.get(k).and_then(Option::as_ref).filter(|_| output_mask[k]);
    let (for_input, for_grid, plain) = (cotangent(0), cotangent(1), none(input));
    let to_grad = |wanted: bool| {
        let a = for_input.filter(|_| wanted).map(|t| ops::grid_sampler(t, grid, i, p, c)).transpose()?;
        let b = for_grid.filter(|_| wanted).map(|t| grid_along(input, grid, t, &plain, i, p, c)).transpose()?;
        total(a, b)
    };
    let to_input = |wanted: bool| {
        let along = |t| grid_backward_along(grad_output, grid, t, &input.sym_sizes(), &plain, i, p, c);
        for_grid.filter(|_| wanted).map(along).transpose()
    };
    let to_grid = |wanted: bool| {
        let by_input = |t| grid_points_backward(grad_output, t, grid, &plain, i, p, c);
        let a = for_input.filter(|_| wanted).map(by_input).transpose()?;
        let b =
            for_grid.filter(|_| wanted).map(|t| points_along(grad_output, input, grid, t, (i, p, c))).transpose()?;
        total(a, b)
    };
    Ok((to_grad(mask[0])?, to_input(mask[1])?, to_grid(mask[2])?))
}

/// The tangent of result `k` of the gradients.
pub(crate) fn grid_sampler_backward_jvp(
    k: usize,
    grad: (&Tensor, &Tensor),
    input: (&Tensor, &Tensor),
    grid: (&Tensor, &Tensor),
    interpolation: i64,
    padding: i64,
    corners: bool,
    output_mask: [bool; 2],
) -> Result<Tensor> {
    if !output_mask[k] {
        return Tensor::try_empty(Spec::new(&[0], grad.0.dtype(), grad.0.device())?);
    }
    let (i, p, c) = (interpolation, padding, corners);
    let (plain, one) = (none(input.0), Scalar::Int(1));
    if k == 0 {
        let size = input.0.sym_sizes();
        let by_grad = transposed(grad.1, grid.0, &size, &plain, (i, p, c))?;
        return ops::add(&by_grad, &grid_backward_along(grad.0, grid.0, grid.1, &size, &plain, i, p, c)?, one);
    }
    let by_grad = grid_points_backward(grad.1, input.0, grid.0, &plain, i, p, c)?;
    let by_input = grid_points_backward(grad.0, input.1, grid.0, &plain, i, p, c)?;
    let by_grid = points_along(grad.0, input.0, grid.0, grid.1, (i, p, c))?;
    ops::add(&ops::add(&by_grad, &by_input, one)?, &by_grid, one)
}
