"""Checkpointing: what backward needs is dropped and recomputed."""

from .. import _firebrand as _C
from .._firebrand import Tensor
from .._tree import flatten, unflatten

_EARLY_STOP = True


class set_checkpoint_early_stop:
    """Whether recomputation stops at the last value that is needed."""

    def __init__(self, enable):
        self._enable = enable

    def __enter__(self):
        global _EARLY_STOP
        self._before, _EARLY_STOP = _EARLY_STOP, self._enable

    def __exit__(self, *_):
        global _EARLY_STOP
        _EARLY_STOP = self._before


def checkpoint(
    function, *args, use_reentrant=None, context_fn=None, determinism_check="default", debug=False, preserve_rng_state=True, **kwargs
):
    """Runs `function` without saving what its backward needs; it runs again during backward."""
    if context_fn is not None:
        raise NotImplementedError("checkpoint(context_fn=...) is not supported")
    if debug:
        raise NotImplementedError("checkpoint(debug=True) is not supported")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be 'default' or 'none', found {determinism_check!r}")
    if kwargs and use_reentrant is not False:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    leaves, spec = flatten((args, kwargs))
    places = [k for k, v in enumerate(leaves) if isinstance(v, Tensor)]
    kept = [None if k in set(places) else v for k, v in enumerate(leaves)]
    shape = None

    def run(tensors):
        nonlocal shape
        whole = list(kept)
        for k, t in zip(places, tensors):
            whole[k] = t
        args, kwargs = unflatten(whole, spec)
        found, out_spec = flatten(function(*args, **kwargs))
        shape = (out_spec, [None if isinstance(v, Tensor) else v for v in found], [isinstance(v, Tensor) for v in found])
        return [v for v in found if isinstance(v, Tensor)]

    found = _C.run_checkpoint(
        run, [leaves[k] for k in places], use_reentrant, preserve_rng_state, determinism_check == "default", _EARLY_STOP
    )
    out_spec, others, is_tensor = shape
    tensors = iter(found)
    return unflatten([next(tensors) if yes else other for yes, other in zip(is_tensor, others)], out_spec)
