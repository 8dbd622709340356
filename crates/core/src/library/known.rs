//! Ops of other libraries that exported programs carry. They are registered when a program first names them, as if its
//! author had done so; a name that someone has registered before stays theirs.

use super::define;
use crate::dispatch::{Args, Op};
use crate::{DType, Error, Result, Spec, Tensor, ops};

/// Registers the op of this name if it is one of them.
pub(super) fn by_name(name: &str) -> Option<Op> {
    match name {
        "transformers::grouped_mm_fallback" => grouped_mm().ok(),
        _ if name.starts_with("torch_nn::") => super::linear_cross_entropy::by_name(name),
        #[cfg(feature = "torchvision")]
        _ => super::vision::by_name(name),
        #[cfg(not(feature = "torchvision"))]
        _ => None,
    }
}

/// Rows of the input times the matrix of their group: the core of mixture-of-experts layers in `transformers`.
fn grouped_mm() -> Result<Op> {
    fn parts<'a>(a: &Args<'a>) -> Result<(&'a Tensor, &'a Tensor, Tensor)> {
        let offs = ops::formulas::cast(a.tensor(2, "offs")?, DType::I32)?;
        Ok((a.tensor(0, "input")?, a.tensor(1, "weight")?, offs))
    }
    let op = define("transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        .shape(|a| {
            let (input, weight) = (a.tensor(0, "input")?, a.tensor(1, "weight")?);
            let (&[rows, k], &[_, l, columns]) = (input.shape(), weight.shape()) else {
                let m = format!(
                    "expected [rows, k] and [groups, k, n], found {:?} and {:?}",
                    input.shape(),
                    weight.shape()
                );
                return Err(Error::argument("grouped_mm_fallback", m));
            };
            if k != l {
                let m = format!("rows of {k} do not fit matrices of {l} rows");
                return Err(Error::argument("grouped_mm_fallback", m));
            }
            Ok(vec![Spec::new(&[rows, columns], input.dtype(), input.device())?])
        })
        .kernel(|a| {
            let (input, weight, offs) = parts(a)?;
            Ok(vec![ops::grouped_mm(input, weight, Some(&offs), None, None)?])
        })
        .backward(|call, grads| {
            let (input, weight, offs) = parts(&call.args())?;
            let Some(g) = grads[0].as_ref() else { return Ok(vec![None, None, None]) };
            let turned = |t: &Tensor| ops::transpose(t, -2, -1);
            let to_input = ops::grouped_mm(g, &turned(weight)?, Some(&offs), None, None)?;
            let to_weight = ops::grouped_mm(&turned(input)?, g, Some(&offs), None, None)?;
            Ok(vec![Some(to_input), Some(to_weight), None])
        })
        .jvp(|call, tangents| {
            let (input, weight, offs) = parts(&call.args())?;
            let product = |a: &Tensor, b: &Tensor| ops::grouped_mm(a, b, Some(&offs), None, None);
            let by_input = tangents[0].as_ref().map(|t| product(t, weight)).transpose()?;
            let by_weight = tangents[1].as_ref().map(|t| product(input, t)).transpose()?;
            Ok(vec![match (by_input, by_weight) {
                (Some(a), Some(b)) => Some(ops::add(&a, &b, crate::Scalar::Int(1))?),
                (a, b) => a.or(b),
            }])
        })
        .registered()?;
    Ok(op.op())
}
