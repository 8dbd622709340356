"""The functions of PyTorch's `fft` module."""

from ._names import namespace as _namespace

globals().update(_namespace("fft"))
