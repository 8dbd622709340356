"""Settings of PyTorch's compiler that tests change around themselves. Those that mean something here are read (`compile`); the rest are
kept, as attributes that can be set and patched."""

import contextlib
import sys
import types

from torch._absent import fallback

__getattr__ = fallback("torch._dynamo")


class Config(types.SimpleNamespace):
    """Settings by name, all off until they are set."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def patch(self, arg=None, value=None, /, **changes):
        """Sets for a block, or a decorated function."""
        if isinstance(arg, str):
            changes[arg] = value
        elif arg:
            changes.update(arg)
        return _Patch(self, changes)


class _Patch(contextlib.ContextDecorator):
    def __init__(self, config, changes):
        self._config, self._changes, self._before = config, changes, []

    def __enter__(self):
        self._before.append({name: self._config.__dict__.get(name) for name in self._changes})
        self._config.__dict__.update(self._changes)
        return self

    def __exit__(self, *_):
        self._config.__dict__.update(self._before.pop())


config = Config(suppress_errors=False, compiled_autograd=False)
sys.modules[__name__ + ".config"] = config  # helpers import it as a module


def reset():
    from torch._dynamo import compiled_autograd

    compiled_autograd.reset()


def disable(fn=None, recursive=True):
    """What it decorates runs as it is inside compiled functions too: every Python function does, as they are not analyzed."""
    return fn if fn is not None else (lambda f: f)


def mark_dynamic(_tensor, _index, **_bounds):
    """A hint: sizes that vary are noticed without it."""


def allow_in_graph(fn):
    return fn


def graph_break(*_args, **_kwargs):
    """Nothing breaks: Python code that records no ops is not part of the graph."""


def optimize(backend="inductor", **kwargs):
    import torch

    return lambda fn: torch.compile(fn, backend=backend)
