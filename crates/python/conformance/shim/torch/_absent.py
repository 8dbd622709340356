"""What PyTorch has and firebrand has not: names that import, and skip the test that uses them, saying so.

A skipped test never counts as passed, so nothing here can make one pass.
"""

import contextlib
import importlib
import os
import types
from unittest import SkipTest


HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# While a test file is loaded, nothing is tested yet: absent things may be called and decorate.
LOADING = False


class _Base:
    """What a class written over an absent one inherits."""

    def __new__(cls, *args, **kwargs):
        if not LOADING:
            raise SkipTest(f"{cls.__name__} inherits from something that firebrand does not have")
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        if LOADING:
            return None
        raise SkipTest(f"{type(self).__name__} inherits from something that firebrand does not have")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{type(self).__name__}.{name}")


class _NoChange(contextlib.ContextDecorator):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Absent:
    """A name of PyTorch's that stands for nothing here."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def _skip(self, *_args, **_kwargs):
        raise SkipTest(f"{self._name} is not in firebrand")

    def __call__(self, *args, **kwargs):
        if self._name.split(".")[-1] in ("is_available", "is_built", "is_initialized", "device_count", "is_compiled"):
            return False
        if self._name.endswith("config.patch"):
            return _NoChange()  # settings of a compiler that is not there
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return self._skip  # a decorator: what it decorates skips when called
        if LOADING:
            return Absent(self._name + "()")
        self._skip()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __mro_entries__(self, bases):
        return (_Base,)

    def __getitem__(self, _key):
        return self

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __instancecheck__(self, _value):
        return False

    def __subclasscheck__(self, _cls):
        return False

    def __bool__(self):
        return False

    def __repr__(self):
        return f"<absent {self._name}>"

    def __setattr__(self, _name, _value):
        pass

    __enter__ = __exit__ = __iter__ = __len__ = __setitem__ = _skip


def fallback(module_name):
    """A module's `__getattr__` that makes names absent."""

    def lookup(name):
        if name.startswith("__"):
            raise AttributeError(f"module '{module_name}' has no attribute '{name}'")
        # A part of this package that nobody has imported yet.
        if os.path.exists(os.path.join(HERE, *module_name.split("."), name + ".py")):
            return importlib.import_module(f"{module_name}.{name}")
        return Absent(f"{module_name}.{name}")

    return lookup
