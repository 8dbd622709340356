"""Libraries that are not there, and switches of theirs that tests set around calls."""

import contextlib
import sys
import types

from ._absent import fallback

__path__ = []
__getattr__ = fallback("torch.backends")


def disable_global_flags():
    pass


@contextlib.contextmanager
def _flags(*_args, **_kwargs):
    yield


for _name in ("cuda", "cudnn", "cudnn.rnn", "mkl", "mkldnn", "mps", "xnnpack", "openmp", "opt_einsum", "quantized", "nnpack", "mha"):
    _module = types.ModuleType("torch.backends." + _name)
    _module.__path__ = []
    _module.__getattr__ = fallback("torch.backends." + _name)
    _module.is_available = lambda: False
    _module.is_built = lambda: False
    _module.is_acceptable = lambda _tensor: False
    _module.version = lambda: None
    _module.flags = _flags
    _module.enabled = False
    sys.modules["torch.backends." + _name] = _module
    if "." not in _name:
        globals()[_name] = _module
cuda.matmul = types.SimpleNamespace(allow_tf32=False)
mps.is_macos_or_newer = lambda *_: False
