//! Gradients of convolution. A convolution is linear in input and in weight, and so are its gradients: every higher
//! derivative is a convolution or a gradient of one, with the same arguments.

use crate::ops::shape::ConvArgs;
use crate::{Error, Result, Scalar, SymInt, Tensor, ops};

/// What every formula below passes on.
fn conv(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, a: ConvArgs<'_>) -> Result<Tensor> {
    ops::convolution(input, weight, bias, a.stride, a.padding, a.dilation, a.transposed, a.output_padding, a.groups)
}

fn backward(
    grad: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    a: ConvArgs<'_>,
    mask: [bool; 3],
) -> Result<(Tensor, Tensor, Tensor)> {
    ops::convolution_backward(
        grad,
        input,
        weight,
        None,
        a.stride,
        a.padding,
        a.dilation,
        a.transposed,
        a.output_padding,
        a.groups,
        mask,
    )
}

/// The sum of those that are there.
fn total(terms: impl IntoIterator<Item = Result<Option<Tensor>>>) -> Result<Option<Tensor>> {
    let mut sum: Option<Tensor> = None;
    for term in terms {
        sum = match (sum, term?) {
            (Some(a), Some(b)) => Some(ops::add(&a, &b, Scalar::Int(1))?),
            (a, b) => a.or(b),
        };
    }
    Ok(sum)
}

/// Gradients of input, weight and bias, as far as they are needed.
pub(crate) fn conv_backward(
    grad: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    mask: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let (i, w, b) = backward(grad, input, weight, args, mask)?;
    Ok((mask[0].then_some(i), mask[1].then_some(w), mask[2].then_some(b)))
}

/// One number per channel, in the shape of the channels of a batch of images.
fn per_channel(bias: &Tensor, ndim: usize) -> Result<Tensor> {
    let mut sizes = vec![SymInt::from(1i64); ndim];
    let Some(channels) = sizes.get_mut(1) else {
        let m = format!("expected a gradient with a batch and a channel dimension, found {ndim} dimensions");
        return Err(Error::argument("convolution_backward", m));
    };
    *channels = SymInt::from(-1i64);
    ops::reshape(bias, &sizes)
}

/// Gradients of the arguments of `convolution_backward`, from those of its results.
pub(crate) fn conv_double_backward(
    grads: &[Option<Tensor>],
    grad_output: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    output_mask: [bool; 3],
    mask: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let cotangent = |k: usize| grads.get(k).and_then(Option::as_ref).filter(|_| output_mask[k]);
    let (for_input, for_weight, for_bias) = (cotangent(0), cotangent(1), cotangent(2));
    let wanted = |mask: bool, t: Option<&Tensor>| t.filter(|_| mask).cloned();
    let to_grad = total([
        wanted(mask[0], for_input).map(|g| conv(&g, weight, None, args)).transpose(),
        wanted(mask[0], for_weight).map(|g| conv(input, &g, None, args)).transpose(),
        wanted(mask[0], for_bias)
            .map(|g| ops::expand(&per_channel(&g, grad_output.ndim())?, &grad_output.sym_sizes(), false))
            .transpose(),
    ])?;
    let to_input = wanted(mask[1], for_weight)
        .map(|g| backward(grad_output, input, &g, args, [true, false, false]).map(|r| r.0))
        .transpose()?;
    let to_weight = wanted(mask[2], for_input)
        .map(|g| backward(grad_output, &g, weight, args, [false, true, false]).map(|r| r.1))
        .transpose()?;
    Ok((to_grad, to_input, to_weight))
}

/// The tangent of a convolution.
pub(crate) fn conv_jvp(
    input: (&Tensor, &Tensor),
    weight: (&Tensor, &Tensor),
    bias_t: Option<&Tensor>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let by_input = conv(input.1, weight.0, None, args)?;
    ops::add(&by_input, &conv(input.0, weight.1, bias_t, args)?, Scalar::Int(1))
}

/// The tangent of result `k` of `convolution_backward`.
pub(crate) fn conv_backward_jvp(
    k: usize,
    grad: (&Tensor, &Tensor),
    input: (&Tensor, &Tensor),
    weight: (&Tensor, &Tensor),
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    output_mask: [bool; 3],
) -> Result<Tensor> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let mask = [0, 1, 2].map(|i| i == k && output_mask[k]);
    let pick = |r: (Tensor, Tensor, Tensor)| [r.0, r.1, r.2].into_iter().nth(k).expect("three results");
    let by_grad = pick(backward(grad.1, input.0, weight.0, args, mask)?);
    let by_other = match k {
        0 if mask[0] => pick(backward(grad.0, input.0, weight.1, args, mask)?),
        1 if mask[1] => pick(backward(grad.0, input.1, weight.0, args, mask)?),
        _ => return Ok(by_grad),
    };
    ops::add(&by_grad, &by_other, Scalar::Int(1))
}
