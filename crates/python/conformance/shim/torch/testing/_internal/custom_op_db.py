"""Ops registered from Python are not part of firebrand."""

from torch._absent import fallback

custom_op_db = []
__getattr__ = fallback(__name__)
