"""No such device."""

from ._absent import fallback

__getattr__ = fallback("torch.cuda")


def is_available():
    return False


def device_count():
    return 0


def is_initialized():
    return False


def empty_cache():
    pass


def manual_seed_all(_seed):
    pass
