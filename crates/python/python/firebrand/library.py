"""Ops of one's own, written in Python: `@custom_op("mylib::scale", mutates_args=())`.

An op is called as a whole: its derivative is what `register_autograd` says, not what its body does. It is found again as
`firebrand.ops.mylib.scale`.
"""

import inspect

from . import _firebrand as _C
from . import ops as _ops
from ._tree import flatten as _flatten
from .autograd.function import Function

_KNOWN = {}


def _tensors(values):
    return [v for v in _flatten(values)[0] if isinstance(v, _C.Tensor)]


class CustomOpDef:
    """A custom op: called, it runs; the other methods say more about it."""

    def __init__(self, namespace, name, function):
        self._namespace, self._name, self._function = namespace, name, function
        self._qualname = f"{namespace}::{name}"
        self._signature = inspect.signature(function)
        self._backward = self._setup = self._vmap = None
        self.__name__, self.__doc__ = name, function.__doc__
        self._apply = self._made()

    def _made(self):
        """The function that records a call."""
        op = self

        def forward(*args):
            results = op._function(*args)
            given = _tensors(args)
            if any(t._shares_storage(g) for t in _tensors(results) for g in given):
                raise RuntimeError(
                    f"{op._qualname} (with implementation in {op._function.__module__}): The output of this custom operator may not be "
                    "an input of it, or alias one. Clone it before you return it"
                )
            return results

        def setup_context(ctx, inputs, output):
            if op._setup is not None:
                op._setup(ctx=ctx, inputs=inputs, output=output)

        def backward(ctx, *grads):
            if op._backward is None:
                raise NotImplementedError(f"{op._qualname} has no derivative: give it one with register_autograd")
            return op._backward(ctx, *grads)

        content = {"forward": staticmethod(forward), "setup_context": staticmethod(setup_context), "backward": staticmethod(backward)}
        if self._vmap is not None:
            content["vmap"] = staticmethod(self._vmap)
        return type(self._name, (Function,), content).apply

    def register_autograd(self, backward, /, *, setup_context=None):
        """The derivative: `backward(ctx, *grads)` gives one gradient per argument; `setup_context` keeps what it needs."""
        if not callable(backward):
            raise TypeError("register_autograd: expected a function that computes gradients")
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, rule, /):
        """How it is mapped over a batch: `rule(info, in_dims, *args)` gives the result and its batch dimensions."""
        self._vmap = rule
        self._apply = self._made()
        return rule

    def register_fake(self, function, /):
        """What it returns for tensors without values. Its own body runs on them instead, so the function is not needed."""
        return function

    def register_kernel(self, device_types, function=None, /):
        raise NotImplementedError(f"register_kernel({device_types!r}): a custom op of firebrand has one function, which runs on the CPU")

    def __call__(self, *args, **kwargs):
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise NotImplementedError(f"{self._qualname}: keyword-only arguments are not supported; make them positional")
        return self._apply(*bound.args)

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Makes an op of a function that returns new tensors; as a decorator or called with the function."""
    namespace, _, short = name.partition("::")
    if not namespace or not short or "." in short:
        raise ValueError(f"custom_op: expected a name like 'mylib::scale', found {name!r}")
    if mutates_args:
        raise NotImplementedError(
            f"custom_op({name!r}): mutates_args={mutates_args!r} is not supported; write an autograd.Function that calls ctx.mark_dirty"
        )
    if device_types not in (None, "cpu"):
        raise NotImplementedError(f"custom_op({name!r}): device_types={device_types!r}: expected 'cpu'")

    def make(function):
        if namespace == "aten":
            raise ValueError(f"custom_op({name!r}): the namespace aten is PyTorch's; choose another")
        made = CustomOpDef(namespace, short, function)
        _KNOWN[name] = made
        _ops._register(namespace, short, made)
        return made

    return make if fn is None else make(fn)


def register_autograd(op, backward, /, *, setup_context=None):
    """The derivative of a custom op, given by name or as what `custom_op` returned."""
    found = op if isinstance(op, CustomOpDef) else _KNOWN.get(op)
    if found is None:
        raise RuntimeError(f"register_autograd: there is no custom op {op!r}; make it with custom_op")
    found.register_autograd(backward, setup_context=setup_context)
