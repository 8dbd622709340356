"""Custom functions: a forward with its own backward, and with forward-mode and batching rules if wanted."""

import functools
import inspect
import warnings
from collections import namedtuple

from .. import _firebrand as _C
from .grad_mode import no_grad

VmapInfo = namedtuple("VmapInfo", ["batch_size", "randomness"])


class FunctionCtx:
    """What a custom function knows about its call, and what it keeps for later."""

    to_save = None
    saved_for_forward = None
    dirty_tensors = None
    non_differentiable = None
    materialize_grads = True
    _materialize_non_diff_grads = True
    needs_input_grad = ()
    _at_hand = None
    _in_jvp = False

    def save_for_backward(self, *tensors):
        """Keeps tensors for `backward`; they are version-checked when read."""
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        """Keeps tensors for `jvp`."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args):
        """Says that `forward` wrote these inputs in place."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args):
        """Says that no gradient flows through these outputs."""
        self.non_differentiable = args

    def set_materialize_grads(self, value):
        """Whether undefined gradients arrive as zeros or as `None`."""
        self.materialize_grads = value


class BackwardCFunction(_C.Node, FunctionCtx):
    """The context of a call, which is also its node."""

    @property
    def saved_tensors(self):
        """The tensors kept for `backward`, or in `jvp` those kept for it."""
        if self._in_jvp:
            return () if self.saved_for_forward is None else self.saved_for_forward
        if self._at_hand is not None:
            return self._at_hand
        if self.to_save is not None:
            return self.to_save
        found = self._function_saved()
        return () if found is None else found


def _once(name):
    """A property that was renamed."""

    def read(self):
        warnings.warn(f"'{name}' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    return property(read)


BackwardCFunction.saved_variables = _once("saved_variables")


def _invalid(attribute):
    raise RuntimeError(
        f"Attribute '{attribute}' is invalid for this instance of a custom function. Accessing this attribute directly on an "
        "instance of autograd.Function is a legacy access pattern that is no longer supported."
    )


class Function:
    """Base of custom functions: write `forward` and `backward` as static methods, call `apply`."""

    generate_vmap_rule = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(cls.__name__ + "Backward", (BackwardCFunction,), {"_forward_cls": cls})

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on the "
            "class itself.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with "
            "static forward method."
        )

    # The node of a call is its context; an instance of the function has none.

    def _register_hook_dict(self, *_args):
        _invalid("_register_hook_dict")

    def register_hook(self, *_args):
        _invalid("register_hook")

    def register_prehook(self, *_args):
        _invalid("register_prehook")

    def name(self):
        _invalid("name")

    @property
    def next_functions(self):
        _invalid("next_functions")

    @property
    def metadata(self):
        raise RuntimeError(
            "You attempted to access the anomaly metadata of a custom autograd function but the underlying PyNode has already been "
            "deallocated."
        )

    @staticmethod
    def forward(*args, **kwargs):
        """Computes the outputs; nothing in here is recorded."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps what is needed later, if `forward` takes no `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """The gradients of the inputs."""
        function = ctx._forward_cls
        if function.vjp is not Function.vjp:
            return function.vjp(ctx, *grad_outputs)
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx, *grad_outputs):
        """Another name of `backward`."""
        raise NotImplementedError("vjp is not implemented; implement backward")

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """The tangents of the outputs."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info, in_dims, *args):
        """The outputs for a batch, and where they have it."""
        raise RuntimeError(
            "You tried to vmap over a custom Function, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs `forward` and records it."""
        if cls is Function:
            raise NotImplementedError("You must implement the forward function for custom autograd.Function.")
        setup = cls.setup_context is not Function.setup_context
        if setup:
            # What is left to its default is an input too.
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if any(isinstance(value, _C.Tensor) for value in kwargs.values()):
            raise NotImplementedError("a custom function with kwarg-only Tensor args is not supported; pass them by position")
        if kwargs:
            raise TypeError(f"apply() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if cls.backward is not Function.backward and cls.vjp is not Function.vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
            )
        if cls.generate_vmap_rule and cls.vmap is not Function.vmap:
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap staticmethod. "
                "Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid ambiguity."
            )
        return _C.apply(cls, cls._backward_cls, args, setup, bool(cls.generate_vmap_rule))


def once_differentiable(backward):
    """Marks a `backward` that cannot itself be differentiated: its gradients have a history that fails."""

    @functools.wraps(backward)
    def run(ctx, *grads):
        recording = _C.is_grad_enabled() and any(isinstance(g, _C.Tensor) and g.requires_grad for g in grads)
        with no_grad():
            found = backward(ctx, *grads)
        if not recording:
            return found
        values = found if isinstance(found, tuple) else (found,)
        # Leaves that nobody else has stand for what the gradients were computed from.
        leaves = [None if v is None else v.detach().requires_grad_() for v in values]
        message = "trying to differentiate twice a function that was marked with @once_differentiable"
        failing = _C.delayed_error(message, list(values), leaves)
        return failing if isinstance(found, tuple) else failing[0]

    return run


class InplaceFunction(Function):
    """A function that may write its inputs; `inplace` is its own setting."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace
