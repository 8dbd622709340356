"""Upstream's comparison and creation of tensors."""

from torch._C import FileCheck  # noqa: F401

from . import _utils  # noqa: F401
from ._comparison import assert_close  # noqa: F401
from ._creation import make_tensor  # noqa: F401
