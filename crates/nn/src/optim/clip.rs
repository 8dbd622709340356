//! Gradient clipping, in place: by total norm, or element by element.

use firebrand_core::autograd::no_grad;
use firebrand_core::{Error, Result, Tensor, ops};

fn grads(params: impl IntoIterator<Item = impl AsRef<Tensor>>) -> Vec<Tensor> {
    params.into_iter().filter_map(|p| p.as_ref().grad()).map(|g| g.detach()).collect()
}

/// The `norm_type`-norm of all tensors as one vector; `f64::INFINITY` is the largest element.
pub fn total_norm(tensors: &[Tensor], norm_type: f64) -> Result<Tensor> {
    if tensors.is_empty() {
        return Ok(Tensor::scalar(0f32));
    }
    let norm = |t: &Tensor| ops::linalg_vector_norm(t, norm_type.into(), None, false, None);
    let norms = tensors.iter().map(norm).collect::<Result<Vec<_>>>()?;
    norm(&ops::stack(&norms, 0)?)
}

/// Scales all gradients down so that their total norm is at most `max_norm`; returns the norm before.
pub fn clip_grad_norm(
    params: impl IntoIterator<Item = impl AsRef<Tensor>>,
    max_norm: f64,
    norm_type: f64,
) -> Result<f64> {
    let grads = grads(params);
    no_grad(|| {
        let total = ops::item(&total_norm(&grads, norm_type)?)?.to_f64();
        let scale = max_norm / (total + 1e-6);
        // A norm that is not a number spreads, as it does in PyTorch: better seen than hidden.
        if !grads.is_empty() && (scale < 1.0 || scale.is_nan()) {
            ops::foreach_mul_scalar_(&grads, scale.into())?;
        }
        Ok(total)
    })
}

/// Clamps every element of every gradient between `-limit` and `limit`.
pub fn clip_grad_value(params: impl IntoIterator<Item = impl AsRef<Tensor>>, limit: f64) -> Result<()> {
    if limit < 0.0 || limit.is_nan() {
        return Err(Error::argument("clip_grad_value", format!("expected a limit of at least 0, found {limit}")));
    }
    no_grad(|| {
        grads(params).iter().try_for_each(|g| ops::clamp_(g, Some((-limit).into()), Some(limit.into())).map(drop))
    })
}
