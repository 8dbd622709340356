"""The functions of PyTorch's `special` module."""

from ._names import namespace as _namespace

globals().update(_namespace("special"))
