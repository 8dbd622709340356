"""The classes of several named results, by the name of the op."""

from collections import namedtuple

_known = {}


def _repr(self):
    fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"{__name__}.{type(self).__name__}(\n{fields})"


def _class(name, fields):
    """The class of the results of an op; made when it is first asked for."""
    key = (name, tuple(fields))
    if key not in _known:
        found = namedtuple(name, fields)
        found.__module__ = __name__
        found.__repr__ = _repr
        _known[key] = found
        globals().setdefault(name, found)
    return _known[key]


def __getattr__(name):
    """An op that has not run yet runs once, on nothing, to make its class known."""
    raise AttributeError(f"module '{__name__}' has no attribute '{name}': the class is made by the first call of the op")
