"""The database of modules is not used by the files that run."""

from torch._absent import fallback

module_db = []
__getattr__ = fallback(__name__)
