"""What a module consists of: the walks over parameters, buffers and modules, and what is done to all of them."""

from ... import __future__
from ... import _firebrand as _C
from ..._firebrand import Tensor
from ..._tensor import _KIND_NAMES
from ...autograd.grad_mode import no_grad
from ...utils._swap import swap_tensors
from ..parameter import Parameter


def _typename(value):
    """How messages call the type of a value."""
    cls = type(value)
    if isinstance(value, Tensor):
        return "firebrand." + _KIND_NAMES[value.dtype] if cls is Tensor else f"{cls.__module__}.{cls.__qualname__}"
    module = "" if cls.__module__ in ("builtins", None) else cls.__module__ + "."
    return module + cls.__qualname__


class ModuleMembers:
    """The part of `Module` that finds, lists and converts its members."""

    def get_submodule(self, target):
        """The module at a path."""
        found = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(f"{_typename(found)} has no attribute `{name}`")
            found = getattr(found, name)
            if not isinstance(found, ModuleMembers):
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

    # ---- what is done to all members

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
            grad = p.grad
            if grad is not None:
                with no_grad():
                    grad = fn(grad).requires_grad_(grad.requires_grad)
            if __future__.get_swap_module_params_on_conversion():
                p.grad = None
                if converted is not p:
                    if not isinstance(converted, Parameter):
                        converted = Parameter(converted, p.requires_grad)
                    swap_tensors(p, converted)
            elif __future__.get_overwrite_module_params_on_conversion():
                p = self._parameters[name] = Parameter(converted, p.requires_grad)
            elif converted.device != p.device:
                # Memory of another device is another tensor.
                p = self._parameters[name] = Parameter(converted, p.requires_grad)
            else:
                p.grad = None
                p.data = converted
            p.grad = grad
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
