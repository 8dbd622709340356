"""Private names of transforms."""

from torch._absent import fallback

__getattr__ = fallback(__name__)
