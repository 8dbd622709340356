"""Handles of hooks, and the nodes that show a module's hooks the gradients at both of its ends."""

import warnings
import weakref
from collections import OrderedDict

from .. import _firebrand as _C
from .._firebrand import RemovableHandle as _TensorHandle
from .._firebrand import Tensor
from ..autograd.function import Function


class _HandleType(type):
    """Handles of hooks on tensors and nodes are handles too."""

    def __instancecheck__(cls, value):
        return type.__instancecheck__(cls, value) or isinstance(value, _TensorHandle)


class RemovableHandle(metaclass=_HandleType):
    """Removes a hook from the dictionary it is in, and what belongs to it from others."""

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = () if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def remove(self):
        """Takes the hook out; a second time does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return (self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state):
        hooks, self.id, extra = state
        # What it was taken from may be gone; then there is nothing to remove.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class BackwardHookFunction(Function):
    """Gives its inputs back: the place in the graph where a module begins or ends."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        return grads


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


class BackwardHook:
    """Shows the gradients at both ends of one call of a module to its hooks."""

    def __init__(self, module, user_hooks, user_pre_hooks):
        self.module = module
        self.user_hooks, self.user_pre_hooks = user_hooks, user_pre_hooks
        self.grad_outputs = None
        self.n_inputs = self.n_outputs = -1
        self.input_places = self.output_places = None

    def _spread(self, places, values, count, default):
        whole = [default] * count
        for place, value in zip(places, values):
            whole[place] = value
        return tuple(whole)

    def _through(self, attach, values):
        """The values with their tensors passed through a node, and where the tensors are; `attach` hooks the node."""
        places = [k for k, v in enumerate(values) if isinstance(v, Tensor)]
        tensors = [values[k] for k in places]
        requires = any(t.requires_grad for t in tensors)
        if not requires or not _C.is_grad_enabled():
            return values, None
        passed = BackwardHookFunction.apply(*tensors)
        nodes = [t.grad_fn for t in passed if t.grad_fn is not None]
        attach(nodes[0])
        whole = list(values)
        for place, t in zip(places, passed):
            whole[place] = t
        kind = type(values)
        return (kind(*whole) if hasattr(kind, "_fields") else kind(whole)), places

    def setup_input_hook(self, args):
        """Called with the arguments; gives those to call the module with."""

        def attach(node):
            node.register_hook(self._at_inputs)

        found, self.input_places = self._through(attach, args)
        self.n_inputs = len(args)
        return found

    def _at_inputs(self, grad_inputs, _grad_outputs):
        if self.grad_outputs is None:
            # The outputs have no part in this run.
            return None
        whole = self._spread(self.input_places, grad_inputs, self.n_inputs, None)
        for hook in self.user_hooks:
            found = hook(self.module, whole, self.grad_outputs)
            if found is None:
                continue
            found = _tuple(found)
            if len(found) != len(whole):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(found)}, but expected {len(whole)}"
                )
            whole = found
        self.grad_outputs = None
        return tuple(whole[k] for k in self.input_places)

    def setup_output_hook(self, output):
        """Called with the output; gives that to return."""

        def attach(node):
            node.register_prehook(self._at_outputs)

        single = not isinstance(output, tuple)
        found, self.output_places = self._through(attach, (output,) if single else output)
        self.n_outputs = len(found)
        return found[0] if single else found

    def _at_outputs(self, grad_outputs):
        whole = self._spread(self.output_places, grad_outputs, self.n_outputs, None)
        for hook in self.user_pre_hooks:
            found = hook(self.module, whole)
            if found is None:
                continue
            found = _tuple(found)
            if len(found) != len(whole):
                raise RuntimeError(
                    f"Backward pre hook returned an invalid number of grad_output, got {len(found)}, but expected {len(whole)}"
                )
            whole = found
        self.grad_outputs = whole
        replaced = tuple(whole[k] for k in self.output_places)
        if self.input_places is None:
            # No input requires grad: nothing will call the hooks later.
            none = (None,) * self.n_inputs
            for hook in self.user_hooks:
                found = hook(self.module, none, whole)
                if found is not None and not (isinstance(found, tuple) and all(g is None for g in found)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None or None for all gradients."
                    )
            self.grad_outputs = None
        return replaced


def warn_if_has_hooks(tensor):
    """Warns about hooks that pickling drops."""
    if getattr(tensor, "_backward_hooks", None):
        for hook in tensor._backward_hooks.values():
            if not hasattr(hook, "__torch_unserializable__"):
                warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.", stacklevel=2)


def unserializable_hook(function):
    """Marks a hook whose absence after pickling needs no warning."""
    function.__torch_unserializable__ = True
    return function
