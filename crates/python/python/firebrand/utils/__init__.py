"""Checkpointing, trees, handles of hooks."""

from . import checkpoint, hooks
from ._swap import swap_tensors
from .. import _tree as pytree
