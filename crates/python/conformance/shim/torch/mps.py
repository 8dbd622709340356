"""No such device."""

from .cuda import device_count, is_available  # noqa: F401
