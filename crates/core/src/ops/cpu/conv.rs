//! Convolution and what is built on it. Kernels read dense memory; only tensors that are not are copied.

use super::{as_floats, dense, into_dense};
use crate::ops::shape::{ConvArgs, im2col_geometry};
use crate::{Result, Scalar, Spec, SymInt, Tensor};
use firebrand_kernels::conv::{self, ConvShape};

pub(crate) fn convolution(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    out: &Tensor,
) -> Result<()> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let shape = args.geometry("convolution", input.shape(), weight.shape())?.shape;
    let (x, w, b) = (dense(input)?, dense(weight)?, bias.map(dense).transpose()?);
    let b = b.as_ref().map(Tensor::read).transpose()?;
    let run = if transposed { conv::grad_input } else { conv::forward };
    into_dense(out, |out| {
        run(&shape, x.read()?.view(), w.read()?.view(), b.as_ref().map(|b| b.view()), out.write()?.view_mut());
        Ok(())
    })
}

pub(crate) fn convolution_backward(
    grad_output: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    _bias_sizes: Option<&[SymInt]>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    output_mask: [bool; 3],
    grad_input: &Tensor,
    grad_weight: &Tensor,
    grad_bias: &Tensor,
) -> Result<()> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let shape = args.geometry("convolution_backward", input.shape(), weight.shape())?.shape;
    let dy = dense(grad_output)?;
    let [want_input, want_weight, want_bias] = output_mask;
    if want_input {
        let (w, to) = (dense(weight)?, grad_input.write()?);
        let run = if transposed { conv::forward } else { conv::grad_input };
        run(&shape, dy.read()?.view(), w.read()?.view(), None, to.view_mut());
    }
    if want_weight {
        let x = dense(input)?;
        let (small, large) = if transposed { (&x, &dy) } else { (&dy, &x) };
        conv::grad_weight(&shape, large.read()?.view(), small.read()?.view(), grad_weight.write()?.view_mut());
    }
    if want_bias {
        let dims: Vec<i64> = (0..dy.ndim() as i64).filter(|&d| d != 1).collect();
        super::reduce::sum_dim(&dy, Some(&dims), false, None, grad_bias)?;
    }
    Ok(())
}

/// Weights that pick one pixel of the window for each output channel.
fn one_hot(shape: &ConvShape, like: &Tensor) -> Result<Tensor> {
    let k: usize = shape.kernel.iter().product();
    let w = Tensor::try_empty(Spec::new(&[shape.groups, k, k], like.dtype(), like.device())?)?;
    firebrand_kernels::fill(w.write()?.view_mut(), Scalar::Int(0).into());
    let diagonal = crate::layout::Layout::strided(&[shape.groups, k], &[k * k, k + 1], 0)?;
    firebrand_kernels::fill(w.alias_with(diagonal).write()?.view_mut(), Scalar::Int(1).into());
    Ok(w)
}

pub(crate) fn im2col(
    self_: &Tensor,
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
    out: &Tensor,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let shape = im2col_geometry("im2col", self_.shape(), kernel_size, dilation, padding, stride)?;
    as_floats("im2col", self_, out, |t, out| {
        let (x, w) = (dense(t)?, one_hot(&shape, t)?);
        conv::forward(&shape, x.read()?.view(), w.read()?.view(), None, out.write()?.view_mut());
        Ok(())
    })
}

pub(crate) fn col2im(
    self_: &Tensor,
    _output_size: &[SymInt],
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
    out: &Tensor,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let shape = im2col_geometry("col2im", out.shape(), kernel_size, dilation, padding, stride)?;
    as_floats("col2im", self_, out, |t, out| {
        let (dy, w) = (dense(t)?, one_hot(&shape, t)?);
        conv::grad_input(&shape, dy.read()?.view(), w.read()?.view(), None, out.write()?.view_mut());
        Ok(())
    })
}
