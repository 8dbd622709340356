"""Switches of a compiler that tests do not run unless they ask for it."""

from ._absent import _NoChange, fallback

__getattr__ = fallback("torch.compiler")


def set_stance(*_args, **_kwargs):
    return _NoChange()


def is_compiling():
    return False


def is_dynamo_compiling():
    return False


def disable(fn=None, recursive=True):
    return fn if fn is not None else (lambda f: f)
