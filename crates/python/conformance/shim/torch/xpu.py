"""No such device."""

from .cuda import device_count, is_available, manual_seed_all  # noqa: F401
