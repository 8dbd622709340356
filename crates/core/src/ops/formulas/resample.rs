//! Gradients of sampling at points.

use crate::{Result, Tensor, ops};

/// Gradients of images and points, as far as they are wanted.
pub(crate) fn grid_sampler_grads(
    grad: &Tensor,
    input: &Tensor,
    grid: &Tensor,
    interpolation: i64,
    padding: i64,
    align_corners: bool,
    mask: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let run = if input.ndim() == 4 { ops::grid_sampler_2d_backward } else { ops::grid_sampler_3d_backward };
    let (i, g) = run(grad, input, grid, interpolation, padding, align_corners, mask)?;
    Ok((mask[0].then_some(i), mask[1].then_some(g)))
}
