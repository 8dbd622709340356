"""What a module saves and loads: its state dictionary, the hooks around it, and other tensors in the place of its own."""

import contextlib
import functools
import warnings
import weakref
from collections import OrderedDict, namedtuple

from ... import __future__
from ..._firebrand import Tensor
from ...autograd.grad_mode import no_grad
from ...utils._swap import swap_tensors
from ..parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` did not find, and what it could not place."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


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


class ModuleState:
    """The part of `Module` that saves, loads and replaces."""

    # ---- hooks

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

    # ---- saving and loading

    def get_extra_state(self):
        """State beside parameters and buffers, to be kept in the state dictionary."""
        raise RuntimeError("a module that has extra state must override get_extra_state and set_extra_state")

    def set_extra_state(self, state):
        """Takes the extra state back."""
        raise RuntimeError("a module that has extra state must override get_extra_state and set_extra_state")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not ModuleState.get_extra_state:
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
                    if __future__.get_swap_module_params_on_conversion() and not is_lazy(own):
                        loaded = own.module_load(given, assign=assign)
                        if loaded is own or loaded is given:
                            raise RuntimeError(
                                "module_load returned one of self or other, please .detach() the result if returning one of "
                                "the inputs in module_load"
                            )
                        if isinstance(own, Parameter):
                            if not isinstance(loaded, Parameter):
                                loaded = Parameter(loaded, requires_grad=own.requires_grad)
                            else:
                                loaded.requires_grad_(own.requires_grad)
                        swap_tensors(own, loaded)
                    elif assign:
                        if isinstance(own, Parameter):
                            if not isinstance(given, Parameter):
                                given = Parameter(given, requires_grad=own.requires_grad)
                            else:
                                given.requires_grad_(own.requires_grad)
                        setattr(self, name, given)
                    else:
                        own.copy_(given)
            except Exception as error:
                swaps = __future__.get_swap_module_params_on_conversion()
                action = "swapping" if swaps else "assigning" if assign else "copying"
                error_msgs.append(
                    f'While {action} the parameter named "{key}", whose dimensions in the model are {own.size()} and whose '
                    f"dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
                )
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not ModuleState.set_extra_state:
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
        del load  # it refers to itself
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
