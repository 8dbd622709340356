"""Settings of a compiler that tests reset around themselves."""

import types

from torch._absent import _NoChange, fallback

__getattr__ = fallback("torch._dynamo")


class _Config(types.SimpleNamespace):
    def __getattr__(self, name):
        if name == "patch":
            return lambda *_args, **_kwargs: _NoChange()
        if name.startswith("__"):
            raise AttributeError(name)
        return None


config = _Config(suppress_errors=False)


def reset():
    pass
