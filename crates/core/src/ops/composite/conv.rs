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
    with_batch(op, n, input, |x| {
        ops::convolution(x, weight, bias, stride, padding, dilation, true, output_padding, groups)
    })
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
