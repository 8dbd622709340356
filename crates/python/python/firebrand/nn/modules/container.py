"""Modules that hold modules or parameters."""

import operator
from collections import OrderedDict

from ..._firebrand import Tensor
from ..parameter import Parameter
from .module import Module


def _place(index, length, what="index"):
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"{what} {index} is out of range")
    return index % length if length else 0


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], (OrderedDict, dict)):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for k, module in enumerate(args):
                self.add_module(str(k), module)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, index):
        items = list(self._modules.items())
        if isinstance(index, slice):
            return type(self)(OrderedDict(items[index]))
        return items[_place(index, len(items))][1]

    def __setitem__(self, index, module):
        setattr(self, list(self._modules)[_place(index, len(self))], module)

    def __delitem__(self, index):
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [names[_place(index, len(names))]]:
            delattr(self, name)
        kept = list(self._modules.values())
        self.__dict__["_modules"] = {str(k): module for k, module in enumerate(kept)}

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Adds a module in between."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        whole = list(self._modules.values())
        if not -len(whole) <= index <= len(whole):
            raise IndexError(f"Index out of range: {index}")
        whole.insert(index, module)
        self.__dict__["_modules"] = {str(k): m for k, m in enumerate(whole)}
        return self

    def pop(self, key):
        """Takes a module out."""
        found = self[key]
        del self[key]
        return found


def _kind(value):
    """A line about something that a list or dictionary of parameters has."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"{kind} containing: [{value.dtype} of size {'x'.join(str(n) for n in value.shape)}]"


def _listed(container, items):
    """A container with a line for each item."""
    lines = [f"    ({name}): {_kind(value)}" for name, value in items]
    return "\n".join([f"{container._get_name()}(", *lines, ")"]) if lines else f"{container._get_name()}()"


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __repr__(self):
        # Neighbours that print alike are one line.
        groups = []
        for k, module in enumerate(self):
            text = repr(module).replace("\n", "\n  ")
            if groups and groups[-1][2] == text:
                groups[-1][1] = k
            else:
                groups.append([k, k, text])
        lines = [f"  ({a}): {text}" if a == b else f"  ({a}-{b}): {b - a + 1} x {text}" for a, b, text in groups]
        return "\n".join([f"{self._get_name()}(", *lines, ")"]) if lines else f"{self._get_name()}()"

    def __getitem__(self, index):
        whole = list(self._modules.values())
        return type(self)(whole[index]) if isinstance(index, slice) else whole[_place(index, len(whole))]

    def __setitem__(self, index, module):
        setattr(self, str(_place(index, len(self))), module)

    __delitem__ = Sequential.__delitem__
    pop = Sequential.pop

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __iadd__(self, modules):
        return self.extend(modules)

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Adds modules at the end."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Adds a module in between."""
        Sequential.insert(self, index, module)


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Takes all out."""
        self._modules.clear()

    def pop(self, key):
        """Takes one out."""
        return self._modules.pop(key)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        """Adds modules from a dictionary or from pairs."""
        for name, module in modules.items() if hasattr(modules, "items") else modules:
            self[name] = module


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __len__(self):
        return self._size

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __repr__(self):
        return _listed(self, enumerate(self))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(self[k] for k in range(*index.indices(len(self))))
        return getattr(self, str(_place(index, len(self))))

    def __setitem__(self, index, value):
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_place(index, len(self))), value)

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        """Adds a parameter at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Adds parameters at the end."""
        for value in values:
            self.append(value)
        return self


class ParameterDict(Module):
    """Parameters by name."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key):
        return getattr(self, str(key))

    def __repr__(self):
        return _listed(self, self.items())

    def __setitem__(self, key, value):
        self._keys[key] = None
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(key), value)

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def keys(self):
        return self._keys.keys()

    def items(self):
        return ((key, self[key]) for key in self._keys)

    def values(self):
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Adds parameters from a dictionary or from pairs."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value
