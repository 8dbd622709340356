//! The named convolutions: all are `convolution`, after images without a batch got one.

use crate::limits::as_size;
use crate::ops::arith::{add, sub};
use crate::{DType, Device, Error, Result, Spec, SymInt, Tensor, ops};
use integers::Taps;

mod integers;

/// Runs `f` on a batch; an input with one dimension less is a batch of one.
fn with_batch(op: &'static str, n: usize, input: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match input.ndim() {
        d if d == n + 2 => f(input),
        d if d == n + 1 => ops::squeeze_dim(&f(&ops::unsqueeze(input, 0)?)?, 0),
        _ => {
            let message = format!("expected {} or {} dimensions, found shape {:?}", n + 1, n + 2, input.shape());
            Err(Error::argument(op, message))
        }
    }
}

/// `convolution`; of complex values by three of real ones, as PyTorch computes it.
fn convolve(
    (input, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    let run = |x: &Tensor, w: &Tensor, b: Option<&Tensor>| {
        ops::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)
    };
    if let Some(b) = bias.filter(|b| b.dtype() != input.dtype()) {
        let (expected, found) = (input.dtype(), b.dtype());
        return Err(Error::argument("convolution", format!("expected a bias of dtype {expected}, found {found}")));
    }
    if input.dtype().is_integer() && input.dtype() != DType::Bool && weight.dtype() == input.dtype() {
        let outline = |t: &Tensor| Tensor::try_empty(Spec::new(t.shape(), DType::F32, Device::Meta)?);
        let shape = run(&outline(input)?, &outline(weight)?, bias.map(outline).transpose()?.as_ref())?;
        let taps = Taps { stride, padding, dilation, groups: as_size(groups.int()), shape: shape.shape() };
        return integers::convolve(input, weight, bias, &taps, transposed.then_some(output_padding));
    }
    if !(input.is_complex() && weight.is_complex()) {
        return run(input, weight, bias);
    }
    let parts = |t: &Tensor| -> Result<[Tensor; 3]> {
        let (re, im) = (ops::real(t)?, ops::imag(t)?);
        let sum = add(&re, &im)?;
        Ok([re, im, sum])
    };
    let (x, w, b) = (parts(input)?, parts(weight)?, bias.map(parts).transpose()?);
    let part = |k: usize| b.as_ref().map(|b| &b[k]);
    let (real, imag, both) = (run(&x[0], &w[0], part(0))?, run(&x[1], &w[1], None)?, run(&x[2], &w[2], part(2))?);
    ops::complex(&sub(&real, &imag)?, &sub(&both, &add(&real, &imag)?)?)
}

fn conv(
    op: &'static str,
    n: usize,
    (input, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    if weight.ndim() != n + 2 {
        let message = format!("expected a weight with {} dimensions, found shape {:?}", n + 2, weight.shape());
        return Err(Error::argument(op, message));
    }
    let none = [SymInt::from(0i64)];
    with_batch(op, n, input, |x| convolve((x, weight, bias), stride, padding, dilation, false, &none, groups))
}

/// With padding `"valid"` (none) or `"same"` (so that the result has the size of the input).
fn conv_named(
    op: &'static str,
    n: usize,
    operands: (&Tensor, &Tensor, Option<&Tensor>),
    stride: &[SymInt],
    padding: &str,
    dilation: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    let (input, weight, bias) = operands;
    match padding {
        "valid" => conv(op, n, operands, stride, &[SymInt::from(0i64)], dilation, groups),
        "same" => {
            let per_dim = dilation.len() == n || dilation.len() == 1;
            if stride.iter().any(|s| s.int() != 1) || !per_dim || weight.ndim() != n + 2 {
                let message =
                    format!("padding \"same\" expects stride 1 and {n} dilations, found {stride:?}, {dilation:?}");
                return Err(Error::argument(op, message));
            }
            let total =
                |d: usize| dilation[d.min(dilation.len() - 1)].int().saturating_mul(weight.shape()[d + 2] as i64 - 1);
            let before: Vec<SymInt> = (0..n).map(|d| SymInt::from(total(d) / 2)).collect();
            // An odd number of zeros: one more at the end, in the memory of the input.
            let extra: Vec<SymInt> =
                (0..n).rev().flat_map(|d| [SymInt::from(0i64), SymInt::from(total(d) % 2)]).collect();
            if extra.iter().all(|n| n.int() == 0) {
                return conv(op, n, operands, stride, &before, dilation, groups);
            }
            let padded = ops::constant_pad_nd(input, &extra, crate::Scalar::Int(0))?;
            conv(op, n, (&padded, weight, bias), stride, &before, dilation, groups)
        }
        other => Err(Error::argument(op, format!("expected padding \"same\" or \"valid\", found {other:?}"))),
    }
}

fn conv_transpose(
    op: &'static str,
    n: usize,
    (input, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    stride: &[SymInt],
    padding: &[SymInt],
    output_padding: &[SymInt],
    groups: SymInt,
    dilation: &[SymInt],
) -> Result<Tensor> {
    if weight.ndim() != n + 2 {
        let message = format!("expected a weight with {} dimensions, found shape {:?}", n + 2, weight.shape());
        return Err(Error::argument(op, message));
    }
    with_batch(op, n, input, |x| convolve((x, weight, bias), stride, padding, dilation, true, output_padding, groups))
}

macro_rules! convolutions {
    ($(($n:literal, $conv:ident, $padded:ident, $transposed:ident)),*) => {$(
        pub(crate) fn $conv(
            input: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: &[SymInt],
            padding: &[SymInt],
            dilation: &[SymInt],
            groups: SymInt,
        ) -> Result<Tensor> {
            conv(stringify!($conv), $n, (input, weight, bias), stride, padding, dilation, groups)
        }

        pub(crate) fn $padded(
            input: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: &[SymInt],
            padding: &str,
            dilation: &[SymInt],
            groups: SymInt,
        ) -> Result<Tensor> {
            conv_named(stringify!($conv), $n, (input, weight, bias), stride, padding, dilation, groups)
        }

        pub(crate) fn $transposed(
            input: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: &[SymInt],
            padding: &[SymInt],
            output_padding: &[SymInt],
            groups: SymInt,
            dilation: &[SymInt],
        ) -> Result<Tensor> {
            let operands = (input, weight, bias);
            conv_transpose(stringify!($transposed), $n, operands, stride, padding, output_padding, groups, dilation)
        }
    )*};
}
convolutions!(
    (1, conv1d, conv1d_padding, conv_transpose1d),
    (2, conv2d, conv2d_padding, conv_transpose2d),
    (3, conv3d, conv3d_padding, conv_transpose3d)
);

/// As `convolution`; the switches at the end choose between libraries elsewhere.
pub(crate) fn _convolution(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    _benchmark: bool,
    _deterministic: bool,
    _cudnn_enabled: bool,
    _allow_tf32: bool,
) -> Result<Tensor> {
    ops::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
}

/// As `_convolution`, before there was a switch for another format of numbers.
pub(crate) fn convolution_deprecated(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[i64],
    groups: SymInt,
    _benchmark: bool,
    _deterministic: bool,
    _cudnn_enabled: bool,
) -> Result<Tensor> {
    let output_padding: Vec<SymInt> = output_padding.iter().map(|&n| n.into()).collect();
    ops::convolution(input, weight, bias, stride, padding, dilation, transposed, &output_padding, groups)
}

/// With padding by name, for as many dimensions as the weight has.
pub(crate) fn convolution_mode(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[SymInt],
    padding: &str,
    dilation: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    let n = weight.ndim().saturating_sub(2);
    conv_named("_convolution_mode", n, (input, weight, bias), stride, padding, dilation, groups)
}

/// As `convolution`, with the arguments in the order of one library.
pub(crate) fn mkldnn_convolution(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    padding: &[SymInt],
    stride: &[SymInt],
    dilation: &[SymInt],
    groups: SymInt,
) -> Result<Tensor> {
    ops::convolution(input, weight, bias, stride, padding, dilation, false, &[0.into()], groups)
}

/// The kernel sizes that an op takes besides the weight that determines them.
fn check_kernel(op: &'static str, weight: &Tensor, kernel: &[SymInt]) -> Result<()> {
    let space = weight.shape().get(2..).unwrap_or_default();
    let named = |k: usize| kernel.get(k).or(kernel.first()).map(|n| n.int());
    if space.len() < kernel.len() || !space.iter().enumerate().all(|(k, &n)| named(k) == Some(n as i64)) {
        let message = format!("expected the kernel sizes of the weight {:?}, found {kernel:?}", weight.shape());
        return Err(Error::argument(op, message));
    }
    Ok(())
}

macro_rules! kernel_sizes {
    ($(($n:literal, $name:ident, $($argument:ident),*)),*) => {$(
        pub(crate) fn $name(
            self_: &Tensor,
            weight: &Tensor,
            kernel_size: &[SymInt],
            bias: Option<&Tensor>,
            stride: &[SymInt],
            padding: &[SymInt],
            $($argument: &[SymInt],)*
        ) -> Result<Tensor> {
            check_kernel(stringify!($name), weight, kernel_size)?;
            let dilation = [&[SymInt::from(1i64)][..], $($argument),*];
            let dilation = dilation[dilation.len() - 1];
            conv(stringify!($name), $n, (self_, weight, bias), stride, padding, dilation, 1.into())
        }
    )*};
}
kernel_sizes!(
    (2, slow_conv2d,),
    (3, slow_conv3d,),
    (2, slow_conv_dilated2d, dilation),
    (3, slow_conv_dilated3d, dilation)
);

macro_rules! transposed_kernel_sizes {
    ($(($n:literal, $name:ident)),*) => {$(
        pub(crate) fn $name(
            self_: &Tensor,
            weight: &Tensor,
            kernel_size: &[SymInt],
            bias: Option<&Tensor>,
            stride: &[SymInt],
            padding: &[SymInt],
            output_padding: &[SymInt],
            dilation: &[SymInt],
        ) -> Result<Tensor> {
            check_kernel(stringify!($name), weight, kernel_size)?;
            let operands = (self_, weight, bias);
            conv_transpose(stringify!($name), $n, operands, stride, padding, output_padding, 1.into(), dilation)
        }
    )*};
}
transposed_kernel_sizes!((2, slow_conv_transpose2d), (3, slow_conv_transpose3d));

/// The gradients of `_slow_conv2d_forward`.
pub(crate) fn slow_conv2d_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    weight: &Tensor,
    kernel_size: &[SymInt],
    stride: &[SymInt],
    padding: &[SymInt],
    output_mask: [bool; 3],
) -> Result<(Tensor, Tensor, Tensor)> {
    check_kernel("_slow_conv2d_backward", weight, kernel_size)?;
    let (one, none) = ([1.into(), 1.into()], [0.into(), 0.into()]);
    ops::convolution_backward(
        grad_output,
        self_,
        weight,
        None,
        stride,
        padding,
        &one,
        false,
        &none,
        1.into(),
        output_mask,
    )
}

/// Sequences `[time, batch, channels]` with weights `[width, in, out]`.
pub(crate) fn conv_tbc(self_: &Tensor, weight: &Tensor, bias: &Tensor, pad: i64) -> Result<Tensor> {
    const OP: &str = "conv_tbc";
    if self_.ndim() != 3 || weight.ndim() != 3 || bias.shape() != &weight.shape()[2..] {
        let message = format!(
            "expected an input [time, batch, in], a weight [width, in, out] and a bias [out], found {:?}, {:?} and {:?}",
            self_.shape(),
            weight.shape(),
            bias.shape()
        );
        return Err(Error::argument(OP, message));
    }
    let (x, w) = (ops::permute(self_, &[1, 2, 0])?, ops::permute(weight, &[2, 1, 0])?);
    let none = [SymInt::from(0i64)];
    let one = [SymInt::from(1i64)];
    let out = ops::convolution(&x, &w, Some(bias), &one, &[pad.into()], &one, false, &none, 1.into())?;
    ops::clone(&ops::permute(&out, &[2, 0, 1])?, Some(crate::dispatch::MemoryFormat::Contiguous))
}

/// Gradients of input, weight and bias of `conv_tbc`.
pub(crate) fn conv_tbc_backward(
    grad: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    _bias: &Tensor,
    pad: i64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (g, x, w) =
        (ops::permute(grad, &[1, 2, 0])?, ops::permute(input, &[1, 2, 0])?, ops::permute(weight, &[2, 1, 0])?);
    let (one, none) = ([SymInt::from(1i64)], [SymInt::from(0i64)]);
    let (gx, gw, gb) =
        ops::convolution_backward(&g, &x, &w, None, &one, &[pad.into()], &one, false, &none, 1.into(), [true; 3])?;
    let back = |t: &Tensor, order: &[i64]| {
        ops::clone(&ops::permute(t, order)?, Some(crate::dispatch::MemoryFormat::Contiguous))
    };
    Ok((back(&gx, &[2, 0, 1])?, back(&gw, &[2, 1, 0])?, gb))
}
