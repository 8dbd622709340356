//! The named convolutions: all are `convolution`, after images without a batch got one.

use crate::{Error, Result, SymInt, Tensor, ops};

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
    with_batch(op, n, input, |x| ops::convolution(x, weight, bias, stride, padding, dilation, false, &none, groups))
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
    with_batch(op, n, input, |x| {
        ops::convolution(x, weight, bias, stride, padding, dilation, true, output_padding, groups)
    })
}

macro_rules! convolutions {
    ($(($n:literal, $conv:ident, $transposed:ident)),*) => {$(
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
convolutions!((1, conv1d, conv_transpose1d), (2, conv2d, conv_transpose2d), (3, conv3d, conv_transpose3d));

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
