"""Modes that see every op below autograd."""

import threading

from .. import _firebrand as _C

_state = threading.local()


def _stack():
    if not hasattr(_state, "modes"):
        _state.modes = []
    return _state.modes


def _get_current_dispatch_mode():
    """The innermost mode of this thread, if there is one."""
    stack = _stack()
    return stack[-1] if stack else None


class TorchDispatchMode:
    """While it is entered, `__torch_dispatch__` is called instead of each op; it calls the op itself, or not."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        scope = _C.LayerScope(self)
        self.__dict__.setdefault("_scopes", []).append(scope)
        _stack().append(self)
        return self

    def __exit__(self, *_):
        _stack().pop()
        self._scopes.pop().leave()
