"""The base of all modules: parameters, buffers, children, hooks and state."""

import contextlib
import itertools
from collections import OrderedDict, namedtuple

from .. import _firebrand as _C
from .._firebrand import Tensor
from ..autograd.function import Function
from ..autograd.grad_mode import no_grad
from .parameter import Buffer, Parameter

_IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


class _Handle:
    """Removes a hook of a module."""

    _ids = itertools.count()

    def __init__(self, hooks):
        self._hooks, self.id = hooks, next(_Handle._ids)

    def remove(self):
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class _Pass(Function):
    """Gives its inputs back: the place in the graph where a module begins or ends."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return grads


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


class _BackwardHooks:
    """Shows the gradients at both ends of a module to its hooks."""

    def __init__(self, module):
        self.module = module
        self.hooks = list(module._backward_hooks.values())
        self.pre_hooks = list(module._backward_pre_hooks.values())
        self.grad_outputs = None
        self.inputs = 0
        self.places = []

    def _passed(self, values):
        """The values with their tensors passed through a node, and the node."""
        whole = _tuple(values)
        places = [k for k, v in enumerate(whole) if isinstance(v, Tensor)]
        tensors = [whole[k] for k in places]
        if not _C.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return values, None, places, len(whole)
        passed = _tuple(_Pass.apply(*tensors))
        whole = list(whole)
        for k, t in zip(places, passed):
            whole[k] = t
        node = next(t.grad_fn for t in passed if t.grad_fn is not None)
        return (tuple(whole) if isinstance(values, tuple) else whole[0]), node, places, len(whole)

    def before(self, args):
        args, self.node, self.places, self.inputs = self._passed(args)
        if self.node is not None:
            self.node.register_hook(self._at_inputs)
        return args

    def after(self, output):
        output, node, places, count = self._passed(output)
        if node is not None:
            def at_outputs(grads):
                whole = [None] * count
                for k, g in zip(places, grads):
                    whole[k] = g
                whole = tuple(whole)
                for hook in self.pre_hooks:
                    found = hook(self.module, whole)
                    if found is not None:
                        whole = _tuple(found)
                self.grad_outputs = whole
                if self.node is None:
                    for hook in self.hooks:
                        if hook(self.module, (None,) * self.inputs, whole) is not None:
                            raise RuntimeError(
                                "Backward hook for Modules where no input requires gradient should always return None or None for "
                                "all gradients."
                            )
                return tuple(whole[k] for k in places)

            node.register_prehook(at_outputs)
        return output

    def _at_inputs(self, grad_inputs, _):
        if self.grad_outputs is None:
            return None
        whole = [None] * self.inputs
        for k, g in zip(self.places, grad_inputs):
            whole[k] = g
        whole = tuple(whole)
        for hook in self.hooks:
            found = hook(self.module, whole, self.grad_outputs)
            if found is not None:
                found = _tuple(found)
                if len(found) != len(whole):
                    raise RuntimeError(
                        f"Backward hook returned an invalid number of grad_input, got {len(found)}, but expected {len(whole)}"
                    )
                whole = found
        self.grad_outputs = None
        return tuple(whole[k] for k in self.places)


class Module:
    """A part of a model: set parameters, buffers and modules as attributes, write `forward`, call it."""

    training = True

    def __init__(self):
        own = self.__dict__
        for name in ("_parameters", "_buffers", "_modules"):
            own[name] = {}
        own["_non_persistent_buffers_set"] = set()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            own[name] = OrderedDict()
        own["_with_kwargs"] = set()
        own["training"] = True

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ---- calling

    def __call__(self, *args, **kwargs):
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks):
            return self.forward(*args, **kwargs)
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._with_kwargs:
                found = hook(self, args, kwargs)
                if found is not None:
                    args, kwargs = found
            else:
                found = hook(self, args)
                if found is not None:
                    args = _tuple(found)
        backward = _BackwardHooks(self) if self._backward_hooks or self._backward_pre_hooks else None
        if backward:
            args = backward.before(args)
        output = self.forward(*args, **kwargs)
        for key, hook in list(self._forward_hooks.items()):
            found = hook(self, args, kwargs, output) if key in self._with_kwargs else hook(self, args, output)
            if found is not None:
                output = found
        return backward.after(output) if backward else output

    def _add_hook(self, hooks, hook, prepend=False, with_kwargs=False):
        handle = _Handle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        if with_kwargs:
            self._with_kwargs.add(handle.id)
        return handle

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Calls `hook(module, args)` before `forward`; it may replace the arguments."""
        return self._add_hook(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Calls `hook(module, args, output)` after `forward`; it may replace the output."""
        if always_call:
            raise NotImplementedError("register_forward_hook(always_call=True) is not supported")
        return self._add_hook(self._forward_hooks, hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook, prepend=False):
        """Calls `hook(module, grad_input, grad_output)` with the gradients at both ends; it may replace `grad_input`."""
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Calls `hook(module, grad_output)` when the gradients of the outputs are known; it may replace them."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook):
        raise NotImplementedError("register_backward_hook: use register_full_backward_hook")

    # ---- members

    def register_parameter(self, name, param):
        """Adds a parameter."""
        self._check_name(name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (nn.Parameter or None required)")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a buffer."""
        self._check_name(name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (Tensor or None required)")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        """Adds a module."""
        self._check_name(name)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name):
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign members before Module.__init__() call")
        if not isinstance(name, str) or "." in name or name == "":
            raise KeyError(f"a name is a string without '.', found {name!r}")
        taken = hasattr(self, name) and not any(name in table for table in self._tables())
        if taken:
            raise KeyError(f"attribute '{name}' already exists")

    def _tables(self):
        return self._parameters, self._buffers, self._modules

    def __getattr__(self, name):
        for table in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(table, {})
            if name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        tables = (("_parameters", Parameter), ("_buffers", Buffer), ("_modules", Module))
        for table, kind in tables:
            if isinstance(value, kind):
                if table not in self.__dict__:
                    raise AttributeError(f"cannot assign {kind.__name__.lower()} before Module.__init__() call")
                self.__dict__.pop(name, None)
                for other, _ in tables:
                    if other != table:
                        self.__dict__[other].pop(name, None)
                self.__dict__[table][name] = value
                return
        for table, kind in tables:
            found = self.__dict__.get(table, {})
            if name in found:
                if value is not None and not (table == "_buffers" and isinstance(value, Tensor)):
                    raise TypeError(
                        f"cannot assign '{type(value).__name__}' as {table[1:-1]} '{name}' ({kind.__name__} or None expected)"
                    )
                found[name] = value
                return
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        for table in self._tables():
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """This module and all below it, by path."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self):
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self):
        """The modules directly below this one."""
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def children(self):
        """The modules directly below this one."""
        return (module for _, module in self.named_children())

    def _named_members(self, table, prefix, recurse):
        seen = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, value in getattr(module, table).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix="", recurse=True):
        """Parameters by path, each once."""
        return self._named_members("_parameters", prefix, recurse)

    def parameters(self, recurse=True):
        """Parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True):
        """Buffers by path, each once."""
        return self._named_members("_buffers", prefix, recurse)

    def buffers(self, recurse=True):
        """Buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    # ---- state

    def state_dict(self, *, prefix="", keep_vars=False):
        """Parameters and persistent buffers by path."""
        found = OrderedDict()
        for path, module in self.named_modules(prefix=prefix.rstrip("."), remove_duplicate=False):
            path += "." if path else ""
            for name, p in module._parameters.items():
                if p is not None:
                    found[path + name] = p if keep_vars else p.detach()
            for name, b in module._buffers.items():
                if b is not None and name not in module._non_persistent_buffers_set:
                    found[path + name] = b if keep_vars else b.detach()
        return found

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies values by path into parameters and persistent buffers."""
        if assign:
            raise NotImplementedError("load_state_dict(assign=True) is not supported")
        own = self.state_dict(keep_vars=True)
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        errors = []
        if strict and missing:
            errors.append("Missing key(s) in state_dict: " + ", ".join(f'"{n}"' for n in missing) + ". ")
        if strict and unexpected:
            errors.append("Unexpected key(s) in state_dict: " + ", ".join(f'"{n}"' for n in unexpected) + ". ")
        for name, target in own.items():
            if name in state_dict and tuple(state_dict[name].shape) != tuple(target.shape):
                errors.append(
                    f"size mismatch for {name}: copying a param with shape {state_dict[name].shape} from checkpoint, the shape in "
                    f"current model is {target.shape}."
                )
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        with no_grad():
            for name, target in own.items():
                if name in state_dict:
                    target.copy_(state_dict[name])
        return _IncompatibleKeys(missing, unexpected)

    @contextlib.contextmanager
    def _replaced(self, tensors):
        """Other tensors in the place of parameters and buffers, until the end of the block."""
        before = []
        modules = dict(self.named_modules())
        try:
            for path, tensor in tensors.items():
                owner, _, name = path.rpartition(".")
                tables = [t for t in (modules[owner]._parameters, modules[owner]._buffers) if name in t] if owner in modules else []
                if not tables:
                    raise AttributeError(f"{type(self).__name__} has no parameter or buffer '{path}'")
                before.append((tables[0], name, tables[0][name]))
                tables[0][name] = tensor
            yield
        finally:
            for table, name, tensor in reversed(before):
                table[name] = tensor

    def train(self, mode=True):
        """Switches to training, or to evaluation."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """Switches to evaluation."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Sets whether parameters require grad."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Clears the gradients of all parameters."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad = p.grad.detach().zero_()

    def apply(self, fn):
        """Calls `fn` with every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, dtype):
        """Converts floating point parameters and buffers."""
        for module in self.modules():
            for table in (module._parameters, module._buffers):
                for name, t in table.items():
                    if t is not None and t.is_floating_point():
                        if isinstance(t, Parameter):
                            t.data = t.data.to(dtype)
                        else:
                            table[name] = t.to(dtype)
        return self

    def double(self):
        return self.to(_C.float64)

    def float(self):
        return self.to(_C.float32)

    # ---- printing

    def extra_repr(self):
        """The arguments shown when the module is printed."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        children = []
        for name, module in self._modules.items():
            text = repr(module).replace("\n", "\n  ")
            children.append(f"({name}): {text}")
        if not children:
            return f"{type(self).__name__}({extra})"
        lines = ([extra] if extra else []) + children
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"
