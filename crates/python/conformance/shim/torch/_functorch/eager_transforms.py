"""Private names of transforms."""

from torch._absent import fallback

from firebrand.func import _slice_argnums  # noqa: F401

__getattr__ = fallback(__name__)
