"""Trainable tensors."""

from .._firebrand import Tensor


class Parameter(Tensor):
    """A leaf that requires grad, which modules list among their parameters."""

    def __new__(cls, data, requires_grad=True):
        return Tensor._make_subclass(cls, data, requires_grad)

    def __repr__(self):
        return "Parameter containing:\n" + Tensor.__repr__(self)


class Buffer(Tensor):
    """A tensor that modules list among their buffers."""

    def __new__(cls, data, *, persistent=True):
        found = Tensor._make_subclass(cls, data, data.requires_grad)
        found.persistent = persistent
        return found
