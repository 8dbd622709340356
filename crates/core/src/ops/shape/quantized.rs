//! Quantized weights: `[rows, columns]` bytes, or half as many columns of four bits, with `[rows, groups]` scales.

use crate::{DType, Error, Result, Spec, Tensor};
use firebrand_kernels::quantized::Bits;

/// The number of bits as kernels know it.
pub(crate) fn quantized_bits(op: &'static str, bits: i64) -> Result<Bits> {
    match bits {
        4 => Ok(Bits::Four),
        8 => Ok(Bits::Eight),
        _ => Err(Error::argument(op, format!("expected 4 or 8 bits, found {bits}"))),
    }
}

/// Rows and columns of the weights.
fn sizes(op: &'static str, weight: &Tensor, scale: &Tensor, count: i64) -> Result<(usize, usize)> {
    let (dtype, per_byte) = match quantized_bits(op, count)? {
        Bits::Eight => (DType::I8, 1),
        Bits::Four => (DType::U8, 2),
    };
    if let (&[rows, packed], &[scale_rows, groups]) = (weight.shape(), scale.shape())
        && let columns = packed.saturating_mul(per_byte)
        && weight.dtype() == dtype
        && matches!(scale.dtype(), DType::F32 | DType::F64)
        && rows == scale_rows
        && groups > 0
        && columns.is_multiple_of(groups)
    {
        return Ok((rows, columns));
    }
    let found = [weight, scale].map(|t| format!("{} {:?}", t.dtype(), t.shape())).join(" and ");
    let message =
        format!("expected {dtype} [rows, columns] and f32 or f64 [rows, groups] of equal length, found {found}");
    Err(Error::argument(op, message))
}

pub(crate) fn dequantize_groups(op: &'static str, weight: &Tensor, scale: &Tensor, bits: i64) -> Result<Spec> {
    let (rows, columns) = sizes(op, weight, scale, bits)?;
    Spec::new(&[rows, columns], scale.dtype(), scale.device())
}

pub(crate) fn linear_quantized(
    op: &'static str,
    input: &Tensor,
    weight: &Tensor,
    scale: &Tensor,
    bias: Option<&Tensor>,
    bits: i64,
) -> Result<Spec> {
    let (rows, columns) = sizes(op, weight, scale, bits)?;
    let Some((_, outer)) = input.shape().split_last().filter(|(last, _)| **last == columns) else {
        let message = format!("expected an input of {columns} features, found shape {:?}", input.shape());
        return Err(Error::argument(op, message));
    };
    if input.dtype() != scale.dtype() || bias.is_some_and(|b| b.dtype() != scale.dtype() || b.shape() != [rows]) {
        let message = format!("expected an input and a bias [{rows}] of the scales' {}", scale.dtype());
        return Err(Error::argument(op, message));
    }
    let sizes: Vec<usize> = outer.iter().copied().chain([rows]).collect();
    Spec::new(&sizes, scale.dtype(), input.device())
}
