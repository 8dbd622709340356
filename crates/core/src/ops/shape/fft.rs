//! Shape functions of Fourier transforms.

use super::wrap_dims;
use crate::layout::Dims;
use crate::{DType, Error, ErrorKind, Result, Spec, SymInt, Tensor};

fn need_complex(op: &'static str, t: &Tensor) -> Result<()> {
    if t.is_complex() {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "a complex dtype" }.into())
}

/// The dimensions transformed, in the order given; each has elements.
fn checked(op: &'static str, t: &Tensor, dims: &[i64]) -> Result<Dims> {
    if dims.is_empty() {
        return Ok(Dims::new());
    }
    if t.ndim() == 0 {
        return Err(Error::argument(
            op,
            format!("a tensor without dimensions has no dimension {} to transform", dims[0]),
        ));
    }
    let dims = wrap_dims(op, dims, t.ndim())?;
    match dims.iter().find(|&&d| t.shape()[d] == 0) {
        None => Ok(dims),
        Some(d) => Err(Error::argument(op, format!("dimension {d} of shape {:?} has nothing to transform", t.shape()))),
    }
}

fn normalized(op: &'static str, normalization: i64) -> Result<()> {
    if (0..=2).contains(&normalization) {
        return Ok(());
    }
    Err(Error::argument(
        op,
        format!("normalization should be 0 (none), 1 (by root n) or 2 (by n), found {normalization}"),
    ))
}

pub(crate) fn c2c(op: &'static str, t: &Tensor, dim: &[SymInt], normalization: i64, _forward: bool) -> Result<Spec> {
    need_complex(op, t)?;
    normalized(op, normalization)?;
    checked(op, t, &dim.iter().map(|d| d.int()).collect::<Vec<_>>())?;
    Spec::new(t.shape(), t.dtype(), t.device())
}

pub(crate) fn r2c(op: &'static str, t: &Tensor, dim: &[i64], normalization: i64, onesided: bool) -> Result<Spec> {
    if !matches!(t.dtype(), DType::F32 | DType::F64) {
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "float32 or float64" }.into());
    }
    normalized(op, normalization)?;
    let mut sizes = t.dims();
    if dim.is_empty() {
        return Err(Error::argument(op, "expected one dimension or more to transform, found none"));
    }
    if let (Some(&last), true) = (checked(op, t, dim)?.last(), onesided) {
        sizes[last] = sizes[last] / 2 + 1;
    }
    Spec::new(&sizes, t.dtype().to_complex(), t.device())
}

pub(crate) fn c2r(op: &'static str, t: &Tensor, dim: &[i64], normalization: i64, last: SymInt) -> Result<Spec> {
    need_complex(op, t)?;
    normalized(op, normalization)?;
    let mut sizes = t.dims();
    if dim.is_empty() {
        return Err(Error::argument(op, "expected one dimension or more to transform, found none"));
    }
    if let Some(&d) = checked(op, t, dim)?.last() {
        let n = last.to_usize().filter(|&n| n > 0 && n / 2 < sizes[d]);
        sizes[d] = n.ok_or_else(|| {
            let message =
                format!("{} frequencies cannot give {last} values; expected from 1 to twice as many", sizes[d]);
            Error::argument(op, message)
        })?;
    }
    Spec::new(&sizes, t.dtype().to_real(), t.device())
}
