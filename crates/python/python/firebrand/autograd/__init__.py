"""Reverse-mode automatic differentiation."""

import warnings

from .. import _firebrand as _C
from .._firebrand import Tensor
from .anomaly import detect_anomaly, set_detect_anomaly
from .function import Function, once_differentiable
from .grad_mode import _force_original_view_tracking, enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import _unsafe_preserve_version_counter
from .._firebrand import SavedTensor
from .._firebrand import is_multithreading_enabled as _is_multithreading_enabled
from . import forward_ad, functional, graph

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def _sequence(values):
    """One tensor or edge as a list, a sequence as it is."""
    if isinstance(values, (Tensor, graph.GradientEdge)):
        return [values]
    return list(values)


def _gradients(grads, outputs):
    """One gradient per output; none where it is implied."""
    if grads is None:
        return [None] * len(outputs)
    grads = [grads] if isinstance(grads, Tensor) else list(grads)
    if len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    return grads


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Computes gradients of the tensors and accumulates them into the leaves, or into `inputs`."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "'grad_tensors' and 'grad_variables' (deprecated) arguments both passed to backward(). Please only use 'grad_tensors'."
            )
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _sequence(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors = _sequence(tensors)
    if create_graph:
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can "
            "cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak.",
            stacklevel=3,
        )
    _C.run_backward(tensors, _gradients(grad_tensors, tensors), retain_graph, create_graph, inputs)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """The gradients of the outputs with respect to the inputs, one per input."""
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    if not only_inputs:
        raise NotImplementedError("only_inputs=False: gradients are returned, never accumulated; use backward")
    outputs, inputs = _sequence(outputs), _sequence(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    seeds = _gradients(grad_outputs, outputs)
    return _C.run_grad(
        outputs, inputs, seeds, retain_graph, create_graph, allow_unused, is_grads_batched, materialize_grads
    )


def is_multithreading_enabled():
    """Whether backward uses several threads."""
    return _is_multithreading_enabled()


def is_view_replay_enabled():
    """Whether views remember the ops that made them."""
    return _C.is_view_replay_enabled()


class _Engine:
    """What PyTorch's programs ask of the engine."""

    @staticmethod
    def queue_callback(callback):
        """Calls `callback` when the run that is under way ends."""
        _C.queue_callback(callback)


_execution_engine = _Engine()
