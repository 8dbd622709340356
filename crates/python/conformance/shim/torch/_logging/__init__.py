"""Logs of a compiler that is not there."""

from torch._absent import fallback

__getattr__ = fallback("torch._logging")
