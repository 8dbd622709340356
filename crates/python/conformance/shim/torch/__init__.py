"""firebrand under PyTorch's name, for PyTorch's own tests. Never shipped.

What is here is what only tests look for: private names, legacy constructors, switches of hardware that is not there.
"""

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


from . import cuda, backends, autograd, testing, _C, version  # noqa: E402,F401
