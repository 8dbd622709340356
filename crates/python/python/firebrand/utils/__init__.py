"""Checkpointing, trees, handles of hooks."""

from . import checkpoint, hooks
from .. import _tree as pytree
