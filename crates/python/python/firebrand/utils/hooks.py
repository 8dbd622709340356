"""Handles of hooks."""

from .._firebrand import RemovableHandle
