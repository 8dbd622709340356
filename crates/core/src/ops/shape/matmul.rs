//! Shape functions of matrix products.

use super::device;
use crate::{Error, ErrorKind, Result, Spec, Tensor};

fn product(op: &'static str, a: &Tensor, b: &Tensor, sizes: &[usize], inner: (usize, usize)) -> Result<Spec> {
    if inner.0 != inner.1 {
        let message =
            format!("shapes {:?} and {:?} cannot be multiplied: {} is not {}", a.shape(), b.shape(), inner.0, inner.1);
        return Err(Error::argument(op, message));
    }
    if a.dtype() != b.dtype() {
        return Err(Error::argument(
            op,
            format!("expects one dtype, found {} and {}; convert one", a.dtype(), b.dtype()),
        ));
    }
    if !a.is_floating_point() {
        return Err(ErrorKind::DTypeUnsupported { op, found: a.dtype(), expected: "a floating point dtype" }.into());
    }
    Ok(Spec::new(sizes, a.dtype(), device(op, &[a, b])?))
}

pub(crate) fn mm(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[m, k], &[l, n]) => product(op, a, b, &[m, n], (k, l)),
        (a, b) => Err(Error::argument(op, format!("expects two matrices, found shapes {a:?} and {b:?}"))),
    }
}

pub(crate) fn mv(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[m, k], &[l]) => product(op, a, b, &[m], (k, l)),
        (a, b) => Err(Error::argument(op, format!("expects a matrix and a vector, found shapes {a:?} and {b:?}"))),
    }
}
