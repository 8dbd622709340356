"""Transforms that PyTorch keeps under this name; those that firebrand has not are absent."""

from torch._absent import fallback

from firebrand.func import chunk_vmap  # noqa: F401

__getattr__ = fallback("functorch.experimental")
