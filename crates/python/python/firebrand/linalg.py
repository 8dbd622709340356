"""The functions of PyTorch's `linalg` module."""

from ._firebrand import LinAlgError as LinAlgError
from ._names import namespace as _namespace

globals().update(_namespace("linalg"))
