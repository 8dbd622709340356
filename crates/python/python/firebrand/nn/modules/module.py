"""The base of all modules: parameters, buffers, children, hooks and state."""

import functools
import warnings
from collections import OrderedDict

from ..._firebrand import Tensor
from ...utils.hooks import BackwardHook, RemovableHandle
from ..parameter import Buffer, Parameter
from ._members import ModuleMembers, _typename
from ._state import ModuleState

# ---- hooks of all modules

_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()
_global_forward_hooks_always_called = OrderedDict()
_global_forward_hooks_with_kwargs = OrderedDict()
_global_backward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_is_full_backward_hook = None
_global_buffer_registration_hooks = OrderedDict()
_global_module_registration_hooks = OrderedDict()
_global_parameter_registration_hooks = OrderedDict()


def _add(hooks, hook):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_module_forward_pre_hook(hook):
    """Calls `hook(module, args)` before `forward` of every module."""
    return _add(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Calls `hook(module, args, output)` after `forward` of every module."""
    handle = RemovableHandle(
        _global_forward_hooks, extra_dict=[_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called]
    )
    _global_forward_hooks[handle.id] = hook
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def _claim_global_backward(full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only one of them."
        )
    _global_is_full_backward_hook = full


def register_module_backward_hook(hook):
    """Calls `hook(module, grad_input, grad_output)` at the last node of every module. Prefer the full variant."""
    _claim_global_backward(False)
    return _add(_global_backward_hooks, hook)


def register_module_full_backward_hook(hook):
    """Calls `hook(module, grad_input, grad_output)` with the gradients at both ends of every module."""
    _claim_global_backward(True)
    return _add(_global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook):
    """Calls `hook(module, grad_output)` before the gradients of every module are computed."""
    return _add(_global_backward_pre_hooks, hook)


def register_module_buffer_registration_hook(hook):
    """Calls `hook(module, name, buffer)` whenever a buffer is registered; it may replace it."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Calls `hook(module, name, submodule)` whenever a module is registered; it may replace it."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Calls `hook(module, name, parameter)` whenever a parameter is registered; it may replace it."""
    return _add(_global_parameter_registration_hooks, hook)


def _registered(hooks, module, name, value):
    for hook in hooks.values():
        found = hook(module, name, value)
        if found is not None:
            value = found
    return value


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


# Dictionaries of every module, by name.
_TABLES = (
    "_parameters",
    "_buffers",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)


class Module(ModuleMembers, ModuleState):
    """A part of a model: set parameters, buffers and modules as attributes, write `forward`, call it."""

    dump_patches = False
    _version = 1
    call_super_init = False
    training = True

    def __init__(self, *args, **kwargs):
        if not self.call_super_init and kwargs:
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if not self.call_super_init and args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        own = self.__dict__
        own["training"] = True
        for name in _TABLES:
            own[name] = {} if name in ("_parameters", "_buffers", "_modules") else OrderedDict()
        own["_non_persistent_buffers_set"] = set()
        own["_is_full_backward_hook"] = None
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ---- calling

    def __call__(self, *args, **kwargs):
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
        ):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    _call_impl = _wrapped_call_impl = __call__

    def _call_with_hooks(self, args, kwargs):
        called, output = set(), None
        try:
            return self._call_in_order(args, kwargs, called)
        except Exception:
            # Hooks that asked for it see even a call that failed; their own failures are only warnings then.
            for key, hook in _global_forward_hooks.items():
                if key in _global_forward_hooks_always_called and key not in called:
                    self._call_after_failure(hook, "global module forward hook", key in _global_forward_hooks_with_kwargs, args, kwargs, output)
            for key, hook in self._forward_hooks.items():
                if key in self._forward_hooks_always_called and key not in called:
                    self._call_after_failure(hook, "module forward hook", key in self._forward_hooks_with_kwargs, args, kwargs, output)
            raise

    def _call_after_failure(self, hook, what, with_kwargs, args, kwargs, output):
        try:
            hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
        except Exception as error:
            warnings.warn(f"{what} with ``always_call=True`` raised an exception that was silenced as another error was raised in forward: {error}")

    def _call_in_order(self, args, kwargs, called):
        full, legacy, pre = self._chosen_backward_hooks()
        for key, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                found = hook(self, args, kwargs)
                if found is not None:
                    if not isinstance(found, tuple) or len(found) != 2:
                        raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}.")
                    args, kwargs = found
            else:
                found = hook(self, args)
                if found is not None:
                    args = _tuple(found)
        ends = BackwardHook(self, full, pre) if full or pre else None
        if ends:
            args = ends.setup_input_hook(args)
        output = self.forward(*args, **kwargs)
        for key, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
            if key in self._forward_hooks_always_called or key in _global_forward_hooks_always_called:
                called.add(key)
            with_kwargs = key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs
            found = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            if found is not None:
                output = found
        if ends:
            if not isinstance(output, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                    f"{type(output)}"
                )
            output = ends.setup_output_hook(output)
        if legacy:
            self._hook_last_node(legacy, args, output)
        return output

    def _chosen_backward_hooks(self):
        """The full hooks, the others, and the pre-hooks that apply."""
        full, legacy = [], []
        if _global_is_full_backward_hook is True:
            full += _global_backward_hooks.values()
        if self._is_full_backward_hook is True:
            full += self._backward_hooks.values()
        if _global_is_full_backward_hook is False:
            legacy += _global_backward_hooks.values()
        if self._is_full_backward_hook is False:
            legacy += self._backward_hooks.values()
        pre = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        return full, legacy, pre

    def _hook_last_node(self, hooks, inputs, result):
        """Hooks that are not full hang on the node of the output, whatever it is."""
        first = result
        while not isinstance(first, Tensor):
            if isinstance(first, dict):
                first = next(v for v in first.values() if isinstance(v, Tensor))
            else:
                first = first[0]
        node = first.grad_fn
        if node is None:
            return
        self._warn_about_last_node(inputs, result, node)
        for hook in hooks:
            node.register_hook(functools.partial(hook, self))

    def _warn_about_last_node(self, inputs, result, node):
        """Says what such a hook does not see."""
        from ...autograd.graph import get_gradient_edge

        outputs = (result,) if isinstance(result, Tensor) else result
        if not isinstance(outputs, tuple) or not all(isinstance(r, Tensor) for r in outputs):
            what, lost = "hooks on a Module that does not return a single Tensor or a tuple of Tensors", "of the grad_output"
        elif not all(isinstance(x, Tensor) for x in inputs):
            what, lost = "hooks on a Module that does not take as input a single Tensor or a tuple of Tensors", "of the grad_input"
        elif len({r.grad_fn for r in outputs}) > 1:
            what, lost = "hook when outputs are generated by different autograd Nodes", "grad_output"
        else:
            above = {get_gradient_edge(x).node for x in inputs if x.requires_grad}
            if above >= {n for n, _ in node.next_functions if n is not None}:
                return
            what, lost = "hook when the forward contains multiple autograd Nodes", "grad_input"
        article = "a " if what.startswith("hook ") else ""
        warnings.warn(
            f"Using {article}non-full backward {what} is deprecated and will be removed in future versions. This hook will be missing "
            f"some {lost}. Please use register_full_backward_hook to get the documented behavior.",
            FutureWarning,
            stacklevel=4,
        )

    # ---- registering hooks

    def _add_hook(self, hooks, hook, prepend=False, extra=()):
        handle = RemovableHandle(hooks, extra_dict=[table for table, wanted in extra])
        hooks[handle.id] = hook
        for table, wanted in extra:
            if wanted:
                table[handle.id] = True
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Calls `hook(module, args)` before `forward`; it may replace the arguments."""
        extra = [(self._forward_pre_hooks_with_kwargs, with_kwargs)]
        return self._add_hook(self._forward_pre_hooks, hook, prepend, extra)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Calls `hook(module, args, output)` after `forward`; it may replace the output."""
        extra = [(self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call)]
        return self._add_hook(self._forward_hooks, hook, prepend, extra)

    def register_full_backward_hook(self, hook, prepend=False):
        """Calls `hook(module, grad_input, grad_output)` with the gradients at both ends; it may replace `grad_input`."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
            )
        self._is_full_backward_hook = True
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Calls `hook(module, grad_output)` when the gradients of the outputs are known; it may replace them."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook):
        """Calls `hook(module, grad_input, grad_output)` at the module's last node. Prefer the full variant."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
            )
        self._is_full_backward_hook = False
        return self._add_hook(self._backward_hooks, hook)

    # ---- members

    def _check_name(self, kind, name, table):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name, param):
        """Adds a parameter."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", ()))
        if param is None:
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' (firebrand.nn.Parameter or None required)"
            )
        if param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To express "
                f"'{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = _registered(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a buffer."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", ()))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (Tensor or None required)")
        self._buffers[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        """Adds a module."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name("module", name, self.__dict__.get("_modules", ()))
        self._modules[name] = _registered(_global_module_registration_hooks, self, name, module)

    def register_module(self, name, module):
        """Adds a module."""
        self.add_module(name, module)

    def __getattr__(self, name):
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if table in own and name in own[table]:
                return own[table][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        own = self.__dict__
        parameters, buffers, modules = own.get("_parameters"), own.get("_buffers"), own.get("_modules")

        def forget(*tables):
            for table in tables:
                if table is not None:
                    table.discard(name) if isinstance(table, set) else table.pop(name, None)

        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            forget(own, buffers, modules, own.get("_non_persistent_buffers_set"))
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' (firebrand.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            forget(own, parameters, buffers, own.get("_non_persistent_buffers_set"))
            modules[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' (firebrand.nn.Module or None expected)")
            modules[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' (firebrand.nn.Buffer, firebrand.Tensor or None expected)"
                )
            if isinstance(value, Buffer):
                forget(own, parameters, modules)
                self.register_buffer(name, value, value.persistent)
            else:
                buffers[name] = _registered(_global_buffer_registration_hooks, self, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name):
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in _TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    # ---- printing

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """The arguments shown when the module is printed."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = []
        for name, module in self._modules.items():
            text = repr(module).replace("\n", "\n  ")
            children.append(f"({name}): {text}")
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"
