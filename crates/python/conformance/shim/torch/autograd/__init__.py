"""`firebrand.autograd` with the private names that tests use."""

import sys

import firebrand.autograd as _own
from firebrand.autograd import *  # noqa: F403
from torch._absent import Absent

_NAMES = {}


class _VariableMeta(type):
    def __instancecheck__(cls, value):
        import torch

        return isinstance(value, torch.Tensor)

    def __call__(cls, data, requires_grad=False):
        import torch

        if isinstance(data, torch.nn.Parameter) or (data.requires_grad and not requires_grad):
            return data
        return torch.Tensor._make_subclass(torch.Tensor, data, requires_grad)


class Variable(metaclass=_VariableMeta):
    """The class that was merged into tensors long ago."""

    _execution_engine = _own._execution_engine


def __getattr__(name):
    if name == "torch":
        import torch

        return torch
    try:
        return getattr(_own, name)
    except AttributeError:
        if name.startswith("__"):
            raise
        return Absent("torch.autograd." + name)


def _calculate_shape(output, grad, is_grads_batched):
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


def kineto_available():
    return False


# PyTorch's tests count what the scope keeps in its private dictionaries.
_own.graph._MutationContext.cloned = property(lambda self: dict.fromkeys(range(self.counts()[0])))
_own.graph._MutationContext.tid_to_weakhandle = property(lambda self: dict.fromkeys(range(sum(self.counts()))))

import torch.autograd.gradcheck as _module  # noqa: E402,F401  (the name is the function's, as in PyTorch)

gradcheck = _own.gradcheck
_own.forward_ad._is_fwd_grad_enabled = _own._C.is_fwd_grad_enabled
_own.forward_ad._set_fwd_grad_enabled = _own.grad_mode._set_fwd_grad_enabled
