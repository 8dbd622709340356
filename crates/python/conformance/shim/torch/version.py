"""Of a build without devices."""

__version__ = "2.15.0"
cuda = hip = xpu = None
debug = False
git_version = "unknown"
