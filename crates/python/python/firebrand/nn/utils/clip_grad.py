"""Bounds for gradients."""

from ... import _firebrand as _C
from ..._firebrand import Tensor
from ...autograd.grad_mode import no_grad


def _grads(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in parameters if p.grad is not None]


@no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as one vector."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _C.tensor(0.0)
    norm = _C.op_function("linalg_vector_norm", False)
    total = norm(_C.op_function("stack", False)([norm(t, float(norm_type)) for t in tensors]), float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales gradients so that their norm is at most `max_norm`; gives the norm they had."""
    grads = _grads(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    scale = (float(max_norm) / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale)
    return total


@no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Cuts gradients at `-clip_value` and `clip_value`."""
    for grad in _grads(parameters):
        grad.clamp_(min=-float(clip_value), max=float(clip_value))
