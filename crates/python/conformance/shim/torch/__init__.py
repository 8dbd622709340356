"""firebrand under PyTorch's name, for PyTorch's own tests. Never shipped.

What is here is what only tests look for: private names, legacy constructors, switches of hardware that is not there.
"""

import builtins
import sys

import firebrand
from firebrand import *  # noqa: F403
from firebrand import Tensor, Size  # noqa: F401

from . import _finder
from ._absent import Absent, fallback as _fallback

_finder.install()

__version__ = "2.15.0"
_absent = _fallback("torch")


def __getattr__(name):
    try:
        return getattr(firebrand, name)
    except AttributeError:
        pass
    if name.startswith("__"):
        raise AttributeError(f"module 'torch' has no attribute '{name}'")
    try:
        import importlib

        spec = sys.meta_path[0].find_spec("torch." + name)
        if spec is not None and not isinstance(spec.loader, _finder._Nowhere):
            return importlib.import_module("torch." + name)
    except ModuleNotFoundError:
        pass
    return _absent(name)


import torch.__future__  # noqa: E402,F401  (an attribute of the package, as PyTorch's own)
from . import cuda, backends, autograd, testing, _C, version  # noqa: E402,F401

# ---- legacy constructors of tensors of one dtype


class _LegacyType(type):
    """Tensors of the dtype are its instances; called, it makes one."""

    def __instancecheck__(cls, value):
        return isinstance(value, Tensor) and value.dtype is cls.dtype

    def __call__(cls, *args):
        if not args:
            return firebrand.empty(0, dtype=cls.dtype)
        if len(args) == 1 and not isinstance(args[0], builtins.int):
            return firebrand.tensor(args[0], dtype=cls.dtype)
        return firebrand.empty(*args, dtype=cls.dtype)


def _legacy(name, kind):
    return _LegacyType(name, (), {"dtype": kind})


for _name, _kind in (
    ("FloatTensor", firebrand.float32),
    ("DoubleTensor", firebrand.float64),
    ("HalfTensor", firebrand.float16),
    ("LongTensor", firebrand.int64),
    ("IntTensor", firebrand.int32),
    ("ShortTensor", firebrand.int16),
    ("CharTensor", firebrand.int8),
    ("ByteTensor", firebrand.uint8),
    ("BoolTensor", firebrand.bool),
):
    globals()[_name] = _legacy(_name, _kind)

# Upstream's tables of tolerances have keys of this dtype, which firebrand has not; no test of the files asks for it.
chalf = complex32 = firebrand.complex64

from ._compiling import compile  # noqa: E402,F401
import torch.utils._mode_utils  # noqa: E402,F401  (upstream's helpers find it without importing it)
from . import _wording as _words  # noqa: E402

_words.install()


# ---- private names of tests


def is_warn_always_enabled():
    """Warnings are Python's: its filters decide how often they are shown."""
    return True


def set_warn_always(_on):
    pass


def save(obj, f, **_kwargs):
    """The package pickles tensors with pickle."""
    import pickle

    if hasattr(f, "write"):
        pickle.dump(obj, f)
    else:
        with open(f, "wb") as file:
            pickle.dump(obj, file)


def load(f, **_kwargs):
    import pickle

    if hasattr(f, "read"):
        return pickle.load(f)
    with open(f, "rb") as file:
        return pickle.load(file)


class _VF:
    @staticmethod
    def unique_dim(*args, **kwargs):
        return firebrand.ops.aten.unique_dim.default(*args, **kwargs)
