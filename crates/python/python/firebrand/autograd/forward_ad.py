"""Forward mode: tensors that carry tangents."""

from collections import namedtuple

from .. import _firebrand as _C

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])


def enter_dual_level():
    return _C.enter_dual_level()


def exit_dual_level(*, level=None):
    _C.exit_dual_level(level)


def make_dual(tensor, tangent, *, level=None):
    """A view of the tensor that carries the tangent."""
    return _C.make_dual(tensor, tangent)


def unpack_dual(tensor, *, level=None):
    """The tensor without its tangent, and the tangent."""
    return UnpackedDualTensor(*_C.unpack_dual(tensor))


class dual_level:
    """Tangents live until the end of the block."""

    def __enter__(self):
        self._level = _C.enter_dual_level()
        return self._level

    def __exit__(self, *_):
        _C.exit_dual_level(self._level)
