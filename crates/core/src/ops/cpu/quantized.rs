//! Products with quantized weights, which are dequantized a few rows at a time.

use super::matmul::{addmm, mm};
use super::{dense, into_dense};
use crate::layout::Layout;
use crate::ops::shape::quantized_bits;
use crate::{Result, Spec, Tensor};
use firebrand_kernels::quantized;

/// Weights that are numbers at once: what stays in a processor's cache.
const AT_ONCE: usize = 1 << 18;

pub(crate) fn dequantize_groups(weight: &Tensor, scale: &Tensor, bits: i64, out: &Tensor) -> Result<()> {
    let bits = quantized_bits("_dequantize_groups", bits)?;
    let (weight, scale) = (dense(weight)?, dense(scale)?);
    into_dense(out, |out| {
        quantized::dequantize(bits, weight.read()?.view(), scale.read()?.view(), out.write()?.view_mut());
        Ok(())
    })
}

/// Some rows of a row-major matrix.
fn rows(t: &Tensor, first: usize, count: usize) -> Tensor {
    let columns = t.shape()[1];
    t.alias_with(Layout::derived(&[count, columns], &[columns, 1], t.layout().offset() + first * columns))
}

/// `input @ weightᵀ + bias`.
pub(crate) fn linear(
    input: &Tensor,
    weight: &Tensor,
    scale: &Tensor,
    bias: Option<&Tensor>,
    bits: i64,
    out: &Tensor,
) -> Result<()> {
    let (weight, scale, input) = (dense(weight)?, dense(scale)?, dense(input)?);
    let columns = input.shape().last().copied().unwrap_or(0);
    let (count, samples) = (weight.shape()[0], input.numel().checked_div(columns).unwrap_or(0));
    let input = input.alias_with(Layout::derived(&[samples, columns], &[columns, 1], input.layout().offset()));
    let at_once = (AT_ONCE / columns.max(1)).clamp(16, count.max(16));
    let numbers = Tensor::try_empty(Spec::new(&[at_once.min(count), columns], scale.dtype(), scale.device())?)?;
    into_dense(out, |out| {
        for first in (0..count).step_by(at_once) {
            let some = at_once.min(count - first);
            let part = rows(&numbers, 0, some);
            dequantize_groups(&rows(&weight, first, some), &rows(&scale, first, some), bits, &part)?;
            let turned = part.alias_with(Layout::derived(&[columns, some], &[1, columns], part.layout().offset()));
            let place = Layout::derived(&[samples, some], &[count, 1], out.layout().offset() + first);
            let place = out.alias_with(place);
            match bias {
                None => mm(&input, &turned, &place)?,
                Some(b) => {
                    let step = b.strides()[0];
                    let term = b.alias_with(Layout::derived(&[some], &[step], b.layout().offset() + first * step));
                    addmm(&term, &input, &turned, 1.into(), 1.into(), &place)?;
                }
            }
        }
        Ok(())
    })
}
