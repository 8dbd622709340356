"""Parameters and buffers as functions of others: a module computes the tensor anew whenever it is read.

A parametrized module gets a class of its own with a property per tensor; what the tensor is computed from is kept in
`module.parametrizations`, under `original` or, if there are several, `original0`, `original1`, ...
"""

import collections
import contextlib
import copy

from ... import __future__
from ..._firebrand import Tensor
from ...autograd.grad_mode import no_grad
from ...utils._swap import swap_tensors
from ..modules.container import ModuleDict, ModuleList
from ..parameter import Parameter

_cache, _cached = {}, 0


@contextlib.contextmanager
def cached():
    """Within this block every parametrized tensor is computed once."""
    global _cached
    _cached += 1
    try:
        yield
    finally:
        _cached -= 1
        if not _cached:
            _cache.clear()


def _register(module, name, tensor):
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _put(old, new):
    """Other values in a tensor that stays the same object."""
    with no_grad():
        new = new.detach()
        if not __future__.get_swap_module_params_on_conversion():
            old.data = new
            return
        if isinstance(old, Parameter):
            new = Parameter(new, requires_grad=old.requires_grad)
        swap_tensors(old, new)


class ParametrizationList(ModuleList):
    """The steps from the originals to the tensor, and the originals."""

    def __init__(self, modules, original, unsafe=False):
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        try:
            with no_grad():
                found = self._inverted(original)
        except NotImplementedError:
            # A step that cannot be inverted begins with the tensor as it is.
            found = original
        if not isinstance(found, Tensor) and not isinstance(found, collections.abc.Sequence):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(found).__name__}"
            )
        self.is_tensor = isinstance(found, Tensor)
        self.ntensors = 1 if self.is_tensor else len(found)
        if self.is_tensor:
            if original.dtype != found.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {found.dtype}"
                )
            # The tensor itself stays: optimizers may hold it.
            _put(original, found)
            _register(self, "original", original)
        else:
            for k, tensor in enumerate(found):
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {k} of the sequence with type {type(tensor).__name__}."
                    )
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, tensor.is_floating_point() or tensor.is_complex())
                _register(self, f"original{k}", tensor.requires_grad_(original.requires_grad))
        if not unsafe:
            result = self()
            if not isinstance(result, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
            _check_same("Registering a parametrization may not change the {} of the tensor, unless `unsafe` flag is enabled.", result, shape, dtype)

    def _inverted(self, value):
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                value = module.right_inverse(value)
        return value

    def right_inverse(self, value):
        """Sets the originals so that the tensor is computed as this value, by the inverses of the steps."""
        with no_grad():
            found = self._inverted(value)
            if self.is_tensor:
                if not isinstance(found, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(found).__name__}")
                if found.dtype != self.original.dtype:
                    raise ValueError(
                        "The tensor returned by `right_inverse` has dtype "
                        f"{found.dtype} while `original` has dtype {self.original.dtype}"
                    )
                _put(self.original, found)
                return
            if not isinstance(found, collections.abc.Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(found)}.")
            if len(found) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(found)}."
                )
            for k, tensor in enumerate(found):
                original = getattr(self, f"original{k}")
                if not isinstance(tensor, Tensor):
                    raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {k} of type {type(tensor).__name__}")
                if original.dtype != tensor.dtype:
                    raise ValueError(f"Tensor {k} returned by `right_inverse` has dtype {tensor.dtype} while `original{k}` has dtype {original.dtype}")
                _put(original, tensor)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def forward(self):
        steps = iter(self)
        value = next(steps)(*self._originals())
        for step in steps:
            value = step(value)
        return value


def _check_same(text, found, shape, dtype):
    for what, wanted, value in (("dtype", dtype, found.dtype), ("shape", shape, found.shape)):
        if wanted != value:
            raise ValueError(f"{text.format(what)}\nunparametrized {what}: {wanted}\nparametrized {what}: {value}")


def _refuse_pickle(self):
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")


def _deep_copy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    found = self.__new__(type(self))
    memo[id(self)] = found
    found.__dict__ = copy.deepcopy(self.__dict__, memo)
    return found


def _inject_class(module):
    """A class of its own for a module, which properties can be added to."""
    cls = type(module)
    members = {"__getstate__": _refuse_pickle}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deep_copy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module, name):
    """Reads compute the tensor, writes set its originals."""

    def read(self):
        if not _cached:
            return self.parametrizations[name]()
        key = (id(module) if self is module else id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def is_parametrized(module, tensor_name=None):
    """Whether a module, or one of its tensors, is parametrized."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Computes a parameter or buffer by a module from now on; further ones are applied to its result."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        steps = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            found = parametrization(before)
            if not isinstance(found, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
            _check_same("Registering a parametrization may not change the {} of the `module.%s` tensor." % tensor_name, found, before.shape, before.dtype)
            if hasattr(parametrization, "right_inverse"):
                inverse = parametrization.right_inverse(found)
                if not isinstance(inverse, Tensor):
                    raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}")
                for what in ("dtype", "shape"):
                    if getattr(inverse, what) != getattr(before, what):
                        raise ValueError(
                            f"The tensor returned by parametrization.right_inverse must have the same {what} as "
                            f"`module.{tensor_name}`.\nunparametrized {what}: {getattr(before, what)}\n"
                            f"returned {what}: {getattr(inverse, what)}"
                        )
        steps.append(parametrization)
        steps.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        steps = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = steps
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes a tensor a plain parameter or buffer again, with the value computed last or with its original's."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    steps = module.parametrizations[tensor_name]
    if steps.is_tensor:
        original = steps.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            if type(original) is Tensor or isinstance(original, Parameter):
                _put(original, value)
            else:
                original = Parameter(value) if original.requires_grad else value
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """The class of a module without its parametrizations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Gives a module the parametrizations of another one, and what they are computed from."""
    if not is_parametrized(from_module):
        return to_module
    names = from_module.parametrizations if tensor_name is None else [tensor_name]
    for name in list(names):
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        source = from_module.parametrizations[name]
        for step in source:
            register_parametrization(to_module, name, copy.deepcopy(step), unsafe=source.unsafe)
        target = to_module.parametrizations[name]
        for k in range(source.ntensors):
            key = "original" if source.is_tensor else f"original{k}"
            value = getattr(source, key)
            setattr(target, key, Parameter(value.detach().clone()) if isinstance(value, Parameter) else value.clone())
    return to_module
