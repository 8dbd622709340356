//! Shape functions of ops that join tensors.

use super::{device, wrap_dim};
use crate::dtype::Promotion;
use crate::sym::SymInt;
use crate::{Error, Result, Spec, Tensor};

/// Whether `cat` leaves a tensor out: a 1-dim one without elements fits everywhere.
pub(crate) fn is_skipped_by_cat(sizes: &[SymInt]) -> bool {
    sizes.len() == 1 && sizes[0].int() == 0
}

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn need_some(op: &'static str, tensors: &[Tensor]) -> Result<()> {
    match tensors.is_empty() {
        true => Err(Error::argument(op, "expects at least one tensor, found an empty list")),
        false => Ok(()),
    }
}

pub(crate) fn cat(op: &'static str, tensors: &[Tensor], dim: i64) -> Result<Spec> {
    need_some(op, tensors)?;
    let dtype = tensors.iter().fold(Promotion::default(), |p, t| p.tensor(t)).result();
    let device = device(op, &refs(tensors))?;
    let mut joined: Option<Vec<usize>> = None;
    for (k, t) in tensors.iter().enumerate() {
        if t.ndim() == 0 {
            return Err(Error::argument(op, format!("tensor {k} has no dimension to join along; unsqueeze it first")));
        }
        if t.shape() == [0] {
            continue;
        }
        let Some(sizes) = &mut joined else {
            wrap_dim(op, dim, t.ndim())?;
            joined = Some(t.shape().to_vec());
            continue;
        };
        let d = wrap_dim(op, dim, sizes.len())?;
        let fits = t.ndim() == sizes.len() && (0..sizes.len()).all(|i| i == d || t.shape()[i] == sizes[i]);
        if !fits {
            let message = format!("tensor {k} has shape {:?}, expected {sizes:?} except in dimension {d}", t.shape());
            return Err(Error::argument(op, message));
        }
        sizes[d] += t.shape()[d];
    }
    Ok(Spec::new(&joined.unwrap_or_else(|| vec![0]), dtype, device))
}

pub(crate) fn stack(op: &'static str, tensors: &[Tensor], dim: i64) -> Result<Spec> {
    need_some(op, tensors)?;
    let first = tensors[0].shape();
    if let Some((k, t)) = tensors.iter().enumerate().find(|(_, t)| t.shape() != first) {
        let message = format!("tensor {k} has shape {:?}, the first {first:?}; all must be equal", t.shape());
        return Err(Error::argument(op, message));
    }
    let dtype = tensors.iter().fold(Promotion::default(), |p, t| p.tensor(t)).result();
    let mut sizes = first.to_vec();
    sizes.insert(wrap_dim(op, dim, first.len() + 1)?, tensors.len());
    Ok(Spec::new(&sizes, dtype, device(op, &refs(tensors))?))
}
