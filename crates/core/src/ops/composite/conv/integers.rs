//! Convolutions of integers: windows of the padded input as the rows of a matrix, times the filters. Exact, with wrapping sums as in
//! PyTorch, and not made to be fast. Arguments have been checked.

use crate::dispatch::MemoryFormat;
use crate::limits::as_size;
use crate::{Result, Scalar, SymInt, Tensor, ops};

/// How a convolution is laid out.
pub(super) struct Taps<'a> {
    pub(super) stride: &'a [SymInt],
    pub(super) padding: &'a [SymInt],
    pub(super) dilation: &'a [SymInt],
    pub(super) groups: usize,
    /// Of the result.
    pub(super) shape: &'a [usize],
}

/// One number for each dimension; a single one counts for all.
fn at(list: &[SymInt], d: usize) -> i64 {
    list[d.min(list.len() - 1)].int()
}

fn sized(sizes: &[usize]) -> Vec<SymInt> {
    sizes.iter().map(|&n| n.into()).collect()
}

/// `(before, after)` of every spatial dimension, in the order of `constant_pad_nd`.
fn padded(x: &Tensor, n: usize, pads: impl Fn(usize) -> (i64, i64)) -> Result<Tensor> {
    let pads: Vec<SymInt> = (0..n).rev().flat_map(|d| [pads(d).0.into(), pads(d).1.into()]).collect();
    ops::constant_pad_nd(x, &pads, Scalar::Int(0))
}

/// With `output_padding` the adjoint: zeros between the elements, then a plain one with the filters turned around.
pub(super) fn convolve(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    taps: &Taps<'_>,
    output_padding: Option<&[SymInt]>,
) -> Result<Tensor> {
    let n = weight.ndim() - 2;
    let kernel = weight.shape()[2..].to_vec();
    let out = match output_padding {
        None => {
            let x = padded(input, n, |d| (at(taps.padding, d), at(taps.padding, d)))?;
            plain(&x, weight, taps, |d| as_size(at(taps.stride, d)))?
        }
        Some(extra) => {
            let mut sizes = input.shape().to_vec();
            for d in 0..n {
                sizes[d + 2] = (sizes[d + 2] - 1) * as_size(at(taps.stride, d)) + 1;
            }
            let spread = ops::new_zeros(input, &sized(&sizes), None, None)?;
            let mut places = spread.clone();
            for d in 0..n {
                places = ops::slice(&places, d as i64 + 2, None, None, at(taps.stride, d).into())?;
            }
            ops::copy_(&places, input, false)?;
            let reach = |d: usize| at(taps.dilation, d) * (kernel[d] as i64 - 1) - at(taps.padding, d);
            let x = padded(&spread, n, |d| (reach(d), reach(d) + at(extra, d)))?;
            let (g, c, o) = (taps.groups, weight.shape()[0], weight.shape()[1]);
            let split = ops::reshape(weight, &sized(&[&[g, c / g, o], &kernel[..]].concat()))?;
            let sizes = [&[g * o, c / g], &kernel[..]].concat();
            let swapped = ops::reshape(&ops::transpose(&split, 1, 2)?, &sized(&sizes))?;
            let dims: Vec<i64> = (0..n).map(|d| d as i64 + 2).collect();
            plain(&x, &ops::flip(&swapped, &dims)?, taps, |_| 1)?
        }
    };
    let Some(bias) = bias else { return Ok(out) };
    let mut column = vec![SymInt::from(1); n + 2];
    column[1] = bias.numel().into();
    ops::add(&out, &ops::reshape(bias, &column)?, Scalar::Int(1))
}

fn plain(x: &Tensor, weight: &Tensor, taps: &Taps<'_>, stride: impl Fn(usize) -> usize) -> Result<Tensor> {
    let x = ops::contiguous(x, MemoryFormat::Contiguous)?;
    let (kernel, space) = (&weight.shape()[2..], &taps.shape[2..]);
    let (batch, channels, out_channels, g) = (x.shape()[0], x.shape()[1], weight.shape()[0], taps.groups);
    if taps.shape.contains(&0) || channels == 0 {
        return ops::new_zeros(&x, &sized(taps.shape), None, None);
    }
    let steps = x.layout().strides();
    let spatial = |f: &dyn Fn(usize) -> usize| (0..space.len()).map(|d| steps[d + 2] * f(d)).collect::<Vec<_>>();
    let strides = [&steps[..2], &spatial(&stride)[..], &spatial(&|d| as_size(at(taps.dilation, d)))[..]].concat();
    let sizes = [&[batch, channels], space, kernel].concat();
    let windows = ops::as_strided(&x, &sized(&sizes), &sized(&strides), None)?;
    let (places, width): (usize, usize) = (space.iter().product(), kernel.iter().product());
    let per_group = channels / g;
    let rows = ops::reshape(&windows, &sized(&[batch, g, per_group, places, width]))?;
    let rows = ops::permute(&rows, &[1, 0, 3, 2, 4])?;
    let rows = ops::reshape(&rows, &sized(&[g, batch * places, per_group * width]))?;
    let filters = ops::reshape(weight, &sized(&[g, out_channels / g, per_group * width]))?;
    let products = ops::bmm(&rows, &ops::transpose(&filters, 1, 2)?)?;
    let products = ops::reshape(&products, &sized(&[g, batch, places, out_channels / g]))?;
    ops::reshape(&ops::permute(&products, &[1, 0, 3, 2])?, &sized(taps.shape))
}
