"""Private names of PyTorch's extension that tests call, on the functions of firebrand's."""

import sys
import types

import firebrand
from firebrand import _firebrand as _own
from firebrand.autograd import Function
from firebrand.autograd.function import FunctionCtx  # noqa: F401

from ._absent import Absent

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


class DelayedError:
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


_functions = _module("_functions", DelayedError=DelayedError, UndefinedGrad=UndefinedGrad, AccumulateGrad=getattr(_own, "AccumulateGrad", None))
_autograd = _module("_autograd")
_functorch = _module("_functorch")
_profiler = _module("_profiler")
_nn = _module("_nn")
_will_engine_execute_node = _own.will_engine_execute_node
_current_graph_task_id = _own.current_graph_task_id
_current_autograd_node = _own.current_node
has_lapack = True
