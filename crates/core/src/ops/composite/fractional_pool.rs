//! Fractional maximum pooling: windows whose places come from random numbers that are given, so that the op itself is
//! a function of its arguments.

use crate::ops::formulas::sym;
use crate::{DType, Error, Result, Scalar, Tensor, ops};

/// Where the windows along one dimension start, as `[batch, channels, output]` of integers.
///
/// PyTorch's rule: steps of the same fractional length, shifted by a random number and cut to integers; the last window
/// ends where the input does.
fn starts(sample: &Tensor, input: usize, output: usize, window: usize) -> Result<Tensor> {
    let (device, free) = (sample.device(), (input - window) as i64);
    let last = ops::full(&[1.into()], Scalar::Int(free), Some(DType::I64), Some(device))?;
    let first = &sym(&[&sample.shape()[..2], &[1]].concat());
    let last = ops::expand(&last, first, false)?;
    if output == 1 {
        return Ok(last);
    }
    let alpha = Scalar::Float(free as f64 / (output - 1) as f64);
    let steps = ops::arange(Scalar::Int(output as i64 - 1), Some(sample.dtype()), Some(device))?;
    let whole = |t: &Tensor| ops::to_dtype(&ops::mul_scalar(t, alpha)?, DType::I64, false, false, None);
    let shift = ops::unsqueeze(sample, -1)?;
    let places = ops::sub(&whole(&ops::add(&steps, &shift, Scalar::Int(1))?)?, &whole(&shift)?, Scalar::Int(1))?;
    ops::cat(&[places, last], -1)
}

/// The places of all windows are gathered and the largest of each is taken; `order` says which random number belongs to
/// each dimension.
fn pool(
    op: &'static str,
    input: &Tensor,
    kernel: &[i64],
    output: &[i64],
    samples: &Tensor,
    order: &[usize],
) -> Result<(Tensor, Tensor)> {
    let n = kernel.len();
    let batched = if input.ndim() == n + 1 { ops::unsqueeze(input, 0)? } else { input.clone() };
    let fits = |k: usize| {
        let size = batched.shape()[2 + k] as i64;
        kernel[k] > 0 && (1..=size).contains(&output[k]) && kernel[k] - 1 <= size - output[k]
    };
    let good = (output.len(), order.len()) == (n, n)
        && batched.ndim() == n + 2
        && samples.shape() == [batched.shape()[0], batched.shape()[1], n]
        && samples.dtype() == input.dtype()
        && (0..n).all(fits);
    if !good {
        let m = format!(
            "expected [batch, channels] and {n} dimensions that hold the windows, and random numbers [batch, channels, {n}] of the same dtype; found {:?} and {:?} for kernel {kernel:?} and output {output:?}",
            input.shape(),
            samples.shape()
        );
        return Err(Error::argument(op, m));
    }
    let (lead, space) = (&batched.shape()[..2], &batched.shape()[2..]);
    // Positions in a flattened plane, one dimension after the other: [batch, channels, output.., kernel..].
    let mut places: Option<Tensor> = None;
    for k in 0..n {
        let sample = ops::select(&ops::detach(samples)?, -1, (order[k] as i64).into())?;
        let start = starts(&sample, space[k], output[k] as usize, kernel[k] as usize)?;
        let within = ops::arange(Scalar::Int(kernel[k]), Some(DType::I64), Some(input.device()))?;
        let at = ops::add(&ops::unsqueeze(&start, -1)?, &within, Scalar::Int(1))?;
        let mut sizes = lead.to_vec();
        sizes.extend((0..n).map(|j| if j == k { output[k] as usize } else { 1 }));
        sizes.extend((0..n).map(|j| if j == k { kernel[k] as usize } else { 1 }));
        let at = ops::reshape(&at, &sym(&sizes))?;
        places = Some(match places {
            None => at,
            Some(outer) => ops::add(&at, &ops::mul_scalar(&outer, Scalar::Int(space[k] as i64))?, Scalar::Int(1))?,
        });
    }
    let Some(places) = places else { return Err(Error::argument(op, "expected at least one dimension")) };
    let windows: usize = output.iter().product::<i64>() as usize;
    let count: usize = kernel.iter().product::<i64>() as usize;
    let places = ops::reshape(&places, &sym(&[lead[0], lead[1], windows * count]))?;
    let plane = ops::reshape(&batched, &sym(&[lead[0], lead[1], space.iter().product()]))?;
    let each = sym(&[lead[0], lead[1], windows, count]);
    let (largest, which) = ops::max_dim(&ops::reshape(&ops::gather(&plane, -1, &places, false)?, &each)?, -1, true)?;
    let indices = ops::gather(&ops::reshape(&places, &each)?, -1, &which, false)?;
    let mut sizes = input.shape()[..input.ndim() - n].to_vec();
    sizes.extend(output.iter().map(|&o| o as usize));
    Ok((ops::reshape(&largest, &sym(&sizes))?, ops::reshape(&indices, &sym(&sizes))?))
}

pub(crate) fn fractional_max_pool2d(
    input: &Tensor,
    kernel: &[i64],
    output: &[i64],
    samples: &Tensor,
) -> Result<(Tensor, Tensor)> {
    pool("fractional_max_pool2d", input, kernel, output, samples, &[1, 0])
}

pub(crate) fn fractional_max_pool3d(
    input: &Tensor,
    kernel: &[i64],
    output: &[i64],
    samples: &Tensor,
) -> Result<(Tensor, Tensor)> {
    pool("fractional_max_pool3d", input, kernel, output, samples, &[0, 1, 2])
}
