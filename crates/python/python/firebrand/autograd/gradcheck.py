"""Derivatives against finite differences."""

from .. import _firebrand as _C
from .._firebrand import GradcheckError, Tensor


def _flat(values):
    if isinstance(values, Tensor):
        return [values]
    return [v for v in values if isinstance(v, Tensor)]


def _function(func, inputs):
    """The function of the tensors among the inputs."""
    whole = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    places = [k for k, v in enumerate(whole) if isinstance(v, Tensor)]

    def run(tensors):
        args = list(whole)
        for k, t in zip(places, tensors):
            args[k] = t
        return _flat(func(*args))

    return run, [whole[k] for k in places]


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
    check_batched_forward_grad=False,
    masked=None,
):
    """Whether the first derivatives of `func` at the inputs are what finite differences say."""
    run, tensors = _function(func, inputs)
    flags = [check_undefined_grad, check_grad_dtypes, check_batched_grad, check_forward_ad, check_backward_ad, fast_mode, check_batched_forward_grad]
    try:
        return _C.run_gradcheck(run, tensors, None, False, eps, atol, rtol, raise_exception, nondet_tol, flags)
    except RuntimeError as error:
        batched = check_batched_grad or check_batched_forward_grad
        if batched and str(error).startswith("vmap: called random operation"):
            raise GradcheckError(
                "While computing batched gradients, got: vmap: We do not yet support calling random operations inside of vmap. Please "
                "perform random operations outside of vmap as a workaround"
            ) from error
        raise


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_fwd_over_rev=False,
    check_rev_over_rev=True,
    fast_mode=False,
    gen_non_contig_grad_outputs=False,
    masked=False,
):
    """Whether the second derivatives of `func` at the inputs are what finite differences say."""
    run, tensors = _function(func, inputs)
    seeds = None if grad_outputs is None else _flat(grad_outputs)
    flags = [check_undefined_grad, check_grad_dtypes, check_batched_grad, check_fwd_over_rev, check_rev_over_rev, fast_mode, False]
    return _C.run_gradcheck(run, tensors, seeds, True, eps, atol, rtol, raise_exception, nondet_tol, flags)
