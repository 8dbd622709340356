"""Forward mode: tensors that carry tangents."""

from collections import namedtuple

from .. import _firebrand as _C

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])


# The level of this process's last `enter_dual_level`; negative if there is none.
_current_level = -1


def enter_dual_level():
    """Opens a level, in which tensors may carry tangents."""
    global _current_level
    _current_level = _C.enter_dual_level()
    return _current_level


def exit_dual_level(*, level=None):
    """Ends a level: tangents of it are gone."""
    global _current_level
    _C.exit_dual_level(level)
    _current_level -= 1


def make_dual(tensor, tangent, *, level=None):
    """A view of the tensor that carries the tangent."""
    return _C.make_dual(tensor, tangent)


def unpack_dual(tensor, *, level=None):
    """The tensor without its tangent, and the tangent."""
    return UnpackedDualTensor(*_C.unpack_dual(tensor))


class dual_level:
    """Tangents live until the end of the block."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *_):
        exit_dual_level()
