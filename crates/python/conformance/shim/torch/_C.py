"""Private names of PyTorch's extension that tests call, on the functions of firebrand's."""

import sys
import types

import firebrand
from firebrand import _firebrand as _own
from firebrand.autograd import Function
from firebrand.autograd.function import FunctionCtx  # noqa: F401

from ._absent import Absent, _NoChange

__path__ = []


def __getattr__(name):
    try:
        return getattr(_own, name)
    except AttributeError:
        if name.startswith("__"):
            raise
        return Absent("torch._C." + name)


def _module(name, **content):
    module = types.ModuleType("torch._C." + name)
    module.__dict__.update(content)
    module.__getattr__ = lambda attribute: _missing(name, attribute)
    sys.modules[module.__name__] = module
    return module


def _missing(name, attribute):
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    return Absent(f"torch._C.{name}.{attribute}")


def _get_privateuse1_backend_name():
    return "privateuseone"


class _DelayedErrorFunction(Function):
    @staticmethod
    def forward(ctx, message, *tensors):
        ctx.message = message
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(ctx.message)


class DelayedError(_own.node_class("DelayedError")):
    """A function that fails when it is differentiated."""

    def __init__(self, message, count):
        self._message, self._count = message, count

    def __call__(self, *tensors):
        found = _DelayedErrorFunction.apply(self._message, *tensors)
        return found[0] if self._count == 1 else found


class _UndefinedGradFunction(Function):
    @staticmethod
    def forward(ctx, *tensors):
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


class UndefinedGrad:
    """A function through which no gradient flows."""

    def __call__(self, *tensors):
        found = _UndefinedGradFunction.apply(*tensors)
        return found[0] if len(found) == 1 else found


_functions = _module("_functions", DelayedError=DelayedError, UndefinedGrad=UndefinedGrad, AccumulateGrad=_own.node_class("AccumulateGrad") if hasattr(_own, "node_class") else object)
def _saved_tensors_hooks_is_enabled():
    return _own.saved_tensors_hooks_disabled() is None


_autograd = _module(
    "_autograd",
    SavedTensor=_own.SavedTensor,
    _saved_tensors_hooks_is_enabled=_saved_tensors_hooks_is_enabled,
    _unsafe_set_version_counter=_own.unsafe_set_version_counter,
    _get_current_graph_task_keep_graph=_own.current_graph_task_keep_graph,
)
_functorch = _module("_functorch")
_profiler = _module("_profiler")
_nn = _module("_nn")
_will_engine_execute_node = _own.will_engine_execute_node
_current_graph_task_id = _own.current_graph_task_id
_current_autograd_node = _own.current_node
_current_graph_task_execution_order = _own.current_graph_task_execution_order
_set_fwd_grad_enabled = firebrand.autograd.grad_mode._set_fwd_grad_enabled
_is_fwd_grad_enabled = _own.is_fwd_grad_enabled
has_lapack = True


def _off(*_args):
    """A switch of something that is not there."""
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode = _get_graph_executor_optimize = _off
_get_tracing_state = lambda: None  # noqa: E731
_get_cudnn_enabled = _off


class _DisableTorchDispatch(_NoChange):
    """Upstream's helpers read the state of random numbers under these two, which neither modes nor transforms see here."""


_DisableFuncTorch = _DisableTorchDispatch


class _WeakTensorRef:
    """Whether a tensor is still there."""

    def __init__(self, tensor):
        import weakref

        self._ref = weakref.ref(tensor)

    def expired(self):
        return self._ref() is None


# Ops without a batching rule are refused, never looped over, so there is nothing to warn of.
_debug_only_are_vmap_fallback_warnings_enabled = _off
_debug_only_display_vmap_fallback_warnings = _off
_functorch.__dict__.update(_is_vmap_fallback_enabled=lambda: False, _set_vmap_fallback_enabled=_off)
