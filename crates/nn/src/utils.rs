//! Small tools for the parameters of a model.

use firebrand_core::autograd::no_grad;
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

/// All parameters as one vector, in order.
pub fn parameters_to_vector<T: AsRef<Tensor>>(parameters: impl IntoIterator<Item = T>) -> Result<Tensor> {
    let flat = parameters.into_iter().map(|p| ops::reshape(p.as_ref(), &[SymInt::from(-1)]));
    ops::cat(&flat.collect::<Result<Vec<_>>>()?, 0)
}

/// Writes the elements of a vector into the parameters, in order.
pub fn vector_to_parameters<T: AsRef<Tensor>>(vector: &Tensor, parameters: impl IntoIterator<Item = T>) -> Result<()> {
    let parameters: Vec<T> = parameters.into_iter().collect();
    let wanted: usize = parameters.iter().map(|p| p.as_ref().numel()).sum();
    if vector.shape() != [wanted] {
        let message = format!("expected a vector of {wanted} elements, found shape {:?}", vector.shape());
        return Err(Error::argument("vector_to_parameters", message));
    }
    let mut at = 0;
    no_grad(|| {
        for p in &parameters {
            let p = p.as_ref();
            let part = ops::narrow(vector, 0, at.into(), p.numel().into())?;
            ops::copy_(p, &ops::view_as(&part, p)?, false)?;
            at += p.numel();
        }
        Ok(())
    })
}
