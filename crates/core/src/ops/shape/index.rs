//! Shape functions of indexing by tensors of indices.

use super::{device, wrap_dim};
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

fn need_index(op: &'static str, index: &Tensor) -> Result<()> {
    if !matches!(index.dtype(), DType::I64 | DType::I32) {
        return Err(ErrorKind::DTypeUnsupported { op, found: index.dtype(), expected: "indices of i64 or i32" }.into());
    }
    if index.ndim() > 1 {
        return Err(Error::argument(
            op,
            format!("expects indices of at most one dimension, found {:?}", index.shape()),
        ));
    }
    Ok(())
}

pub(crate) fn index_select(op: &'static str, t: &Tensor, dim: i64, index: &Tensor) -> Result<Spec> {
    need_index(op, index)?;
    let d = wrap_dim(op, dim, t.ndim())?;
    let mut sizes = t.shape().to_vec();
    if let Some(n) = sizes.get_mut(d) {
        *n = index.numel();
    }
    Ok(Spec::new(&sizes, t.dtype(), device(op, &[t, index])?))
}

pub(crate) fn index_add(
    op: &'static str,
    t: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    _alpha: Scalar,
) -> Result<Spec> {
    need_index(op, index)?;
    let d = wrap_dim(op, dim, t.ndim())?;
    if source.dtype() != t.dtype() {
        return Err(Error::argument(op, format!("expects a source of {}, found {}", t.dtype(), source.dtype())));
    }
    let fits = source.ndim() == t.ndim()
        && (0..t.ndim()).all(|k| source.shape()[k] == if k == d { index.numel() } else { t.shape()[k] });
    if !fits {
        let message = format!(
            "a source of shape {:?} does not fit {} indices along dimension {d} of shape {:?}",
            source.shape(),
            index.numel(),
            t.shape()
        );
        return Err(Error::argument(op, message));
    }
    device(op, &[t, index, source])?;
    super::unary(op, t)
}
