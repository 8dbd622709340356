"""Checks of ops that are registered from Python, which are not part of firebrand."""

from torch._absent import fallback

__getattr__ = fallback(__name__)
