"""The base of all modules: parameters, buffers, children, hooks and state."""

import contextlib
import functools
import inspect
import warnings
import weakref
from collections import OrderedDict, namedtuple

from ... import _firebrand as _C
from ..._firebrand import Tensor
from ...autograd.grad_mode import no_grad
from ...utils.hooks import BackwardHook, RemovableHandle
from ..parameter import Buffer, Parameter, UninitializedTensorMixin, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` did not find, and what it could not place."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


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


class _WrappedHook:
    """A hook that is called with its module, held weakly, if it asks for it."""

    def __init__(self, hook, module=None):
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        self.module = weakref.ref(module) if module is not None else None

    def __call__(self, *args, **kwargs):
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        return {"hook": self.hook, "with_module": self.with_module, "module": self.module() if self.with_module else None}

    def __setstate__(self, state):
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


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


class Module:
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
        from ...autograd.graph import get_gradient_edge

        if isinstance(result, (tuple, list)):
            warnings.warn(
                "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed "
                "in future versions. This hook will be missing some grad_input. Please use register_full_backward_hook to get the "
                "documented behavior."
                if not isinstance(result, Tensor) and len(result) == 1
                else "Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors is "
                "deprecated and will be removed in future versions. This hook will be missing some of the grad_output. Please use "
                "register_full_backward_hook to get the documented behavior."
                if isinstance(result, list)
                else "Using a non-full backward hook when outputs are generated by different autograd Nodes is deprecated and will "
                "be removed in future versions. This hook will be missing some grad_output. Please use "
                "register_full_backward_hook to get the documented behavior.",
                FutureWarning,
                stacklevel=4,
            )
            return
        if any(not isinstance(x, Tensor) for x in inputs):
            warnings.warn(
                "Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of Tensors is "
                "deprecated and will be removed in future versions. This hook will be missing some of the grad_input. Please use "
                "register_full_backward_hook to get the documented behavior.",
                FutureWarning,
                stacklevel=4,
            )
            return
        nodes = {get_gradient_edge(x).node for x in inputs if x.requires_grad}
        below = {n for n, _ in node.next_functions if n is not None}
        if not nodes >= below and nodes != below:
            warnings.warn(
                "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed "
                "in future versions. This hook will be missing some grad_input. Please use register_full_backward_hook to get the "
                "documented behavior.",
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

    def register_state_dict_post_hook(self, hook):
        """Calls `hook(module, state_dict, prefix, local_metadata)` after `state_dict`; it changes the dictionary in place."""
        hook._from_public_api = True
        return self._add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return self._add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook):
        """Calls `hook(module, prefix, keep_vars)` before `state_dict`."""
        return self._add_hook(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Calls `hook(module, state_dict, prefix, ...)` before the module's own part of `load_state_dict`."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        wrapped = _WrappedHook(hook, self if with_module else None)
        return self._add_hook(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_post_hook(self, hook):
        """Calls `hook(module, incompatible_keys)` after `load_state_dict`; it may change the lists."""
        return self._add_hook(self._load_state_dict_post_hooks, hook)

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

    def get_submodule(self, target):
        """The module at a path."""
        found = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(f"{_typename(found)} has no attribute `{name}`")
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def _member(self, target, kind, fits):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{_typename(owner)} has no attribute `{name}`")
        found = getattr(owner, name)
        if not fits(owner, name, found):
            raise AttributeError(f"`{name}` is not {kind}")
        return found

    def get_parameter(self, target):
        """The parameter at a path."""
        return self._member(target, "an nn.Parameter", lambda owner, name, p: isinstance(p, Parameter))

    def get_buffer(self, target):
        """The buffer at a path."""
        return self._member(target, "a buffer", lambda owner, name, b: name in owner._buffers)

    def get_extra_state(self):
        """State beside parameters and buffers, to be kept in the state dictionary."""
        raise RuntimeError("a module that has extra state must override get_extra_state and set_extra_state")

    def set_extra_state(self, state):
        """Takes the extra state back."""
        raise RuntimeError("a module that has extra state must override get_extra_state and set_extra_state")

    # ---- walks

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
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self):
        """The modules directly below this one."""
        return (module for _, module in self.named_children())

    def _named_members(self, members, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in walk:
            for name, value in members(module):
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Parameters by path, each once."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Buffers by path, each once."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Buffers, each once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    # ---- state

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Parameters and persistent buffers by path."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args) :])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            found = hook(self, destination, prefix, metadata)
            if found is not None:
                if getattr(hook, "_from_public_api", False):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = found
        return destination

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        buffers = {n: b for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set}
        for name, own in (*self._parameters.items(), *buffers.items()):
            if own is None:
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            given = state_dict[key]
            if not isinstance(given, Tensor):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected firebrand.Tensor or Tensor-like object from checkpoint but '
                    f"received {type(given)}"
                )
                continue
            if not is_lazy(own) and own.dim() == 0 and given.dim() == 1 and len(given) == 1:
                given = given[0]
            if not is_lazy(own) and given.shape != own.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in current "
                    f"model is {own.shape}."
                )
                continue
            if not is_lazy(own) and own.is_meta and not given.is_meta and not assign:
                warnings.warn(
                    f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which "
                    "is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their corresponding "
                    "key in the module instead of copying them in place?)"
                )
            try:
                with no_grad():
                    if assign:
                        if isinstance(own, Parameter):
                            if not isinstance(given, Parameter):
                                given = Parameter(given, requires_grad=own.requires_grad)
                            else:
                                given.requires_grad_(own.requires_grad)
                        setattr(self, name, given)
                    else:
                        own.copy_(given)
            except Exception as error:
                action = "assigning" if assign else "copying"
                error_msgs.append(
                    f'While {action} the parameter named "{key}", whose dimensions in the model are {own.size()} and whose '
                    f"dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
                )
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, _, rest = key[len(prefix) :].partition(".")
                    if first not in self._modules and (rest or first not in {*self._parameters, *buffers}):
                        if first not in self._modules:
                            unexpected_keys.append(key)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies values by path into parameters and persistent buffers, or puts them in their place."""
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module, local_state, prefix=""):
            local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = assign
            module._load_from_state_dict(local_state, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    below = prefix + name + "."
                    load(child, {k: v for k, v in local_state.items() if k.startswith(below)}, below)
            incompatible = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if "
                        "incompatible_keys need to be modified, it should be done inplace."
                    )

        load(self, state_dict)
        if strict:
            if unexpected:
                errors.insert(0, "Unexpected key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in unexpected)))
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in missing)))
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    @contextlib.contextmanager
    def _replaced(self, tensors, tie_weights=True, strict=False):
        """Other tensors in the place of parameters and buffers, until the end of the block."""
        own = {**dict(self.named_parameters(remove_duplicate=False)), **dict(self.named_buffers(remove_duplicate=False))}
        if strict:
            missing = [name for name in own if name not in tensors]
            unexpected = [name for name in tensors if name not in own]
            if missing or unexpected:
                text = "Missing key(s): {}.".format(", ".join(map(repr, missing))) if missing else ""
                text += "Unexpected key(s): {}.".format(", ".join(map(repr, unexpected))) if unexpected else ""
                raise RuntimeError(f"Error(s) in reparametrizing for {type(self).__name__}: {text}")
        wanted = dict(tensors)
        if tie_weights:
            # A tensor that stands at several places is replaced at all of them.
            groups = {}
            for name, t in own.items():
                groups.setdefault(id(t), []).append(name)
            for names in groups.values():
                given = {id(tensors[n]): n for n in names if n in tensors}
                if len(given) > 1:
                    raise ValueError(f"functional_call got multiple values for keys {names}, which are tied. Consider using tie_weights=False")
                for n in names:
                    if given:
                        wanted[n] = tensors[next(iter(given.values()))]
        before = []
        modules = dict(self.named_modules(remove_duplicate=False))
        try:
            for path, tensor in wanted.items():
                owner, _, name = path.rpartition(".")
                tables = [t for t in (modules[owner]._parameters, modules[owner]._buffers) if name in t] if owner in modules else []
                if not tables:
                    raise AttributeError(f"{type(self).__name__} has no attribute `{path}`")
                before.append((tables[0], name, tables[0][name]))
                tables[0][name] = tensor
            yield
        finally:
            for table, name, tensor in reversed(before):
                table[name] = tensor

    def train(self, mode=True):
        """Switches to training, or to evaluation."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
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
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    def apply(self, fn):
        """Calls `fn` with every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        """Converts parameters, their gradients, and buffers by a function of tensors."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, p in self._parameters.items():
            if p is None:
                continue
            with no_grad():
                converted = fn(p)
            p.data = converted
            if p.grad is not None:
                with no_grad():
                    grad = fn(p.grad)
                p.grad = grad.requires_grad_(p.grad.requires_grad)
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def to(self, *args, device=None, dtype=None, non_blocking=False, memory_format=None):
        """Converts floating point parameters and buffers, in place."""
        for value in args:
            if isinstance(value, Tensor):
                dtype, device = value.dtype, value.device
            elif isinstance(value, _C.dtype):
                dtype = value
            elif isinstance(value, (str, _C.device)):
                device = value
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t):
            floating = t.is_floating_point() or t.is_complex()
            return t.to(device=device, dtype=dtype if floating else None, memory_format=memory_format if t.dim() == 4 else None)

        return self._apply(convert)

    def double(self):
        """Floating point parameters and buffers as float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def float(self):
        """Floating point parameters and buffers as float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def half(self):
        """Floating point parameters and buffers as float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self):
        """Floating point parameters and buffers as bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def type(self, dst_type):
        """All parameters and buffers as another dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self):
        """Itself: there is no other place."""
        return self._apply(lambda t: t.cpu())

    def to_empty(self, *, device, recurse=True):
        """The same parameters and buffers on a device, without values."""
        return self._apply(lambda t: _C.op_function("empty_like", False)(t, device=device), recurse)

    def share_memory(self):
        """Itself: tensors are not shared between processes."""
        return self

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


def _typename(value):
    """How messages call the type of a value."""
    cls = type(value)
    if isinstance(value, Tensor):
        return "firebrand." + _TENSOR_NAMES.get(value.dtype, "Tensor") if cls is Tensor else f"{cls.__module__}.{cls.__qualname__}"
    module = "" if cls.__module__ in ("builtins", None) else cls.__module__ + "."
    return module + cls.__qualname__


_TENSOR_NAMES = {
    _C.float32: "FloatTensor",
    _C.float64: "DoubleTensor",
    _C.float16: "HalfTensor",
    _C.bfloat16: "BFloat16Tensor",
    _C.int64: "LongTensor",
    _C.int32: "IntTensor",
    _C.int16: "ShortTensor",
    _C.int8: "CharTensor",
    _C.uint8: "ByteTensor",
    _C.bool: "BoolTensor",
    _C.complex64: "ComplexFloatTensor",
    _C.complex128: "ComplexDoubleTensor",
}
