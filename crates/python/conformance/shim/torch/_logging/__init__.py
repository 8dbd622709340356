"""Logs of a compiler that is not there."""

from torch._absent import fallback

__getattr__ = fallback("torch._logging")


def set_logs(*_args, **_kwargs):
    """Chooses what PyTorch's compiler logs; it is not there."""
