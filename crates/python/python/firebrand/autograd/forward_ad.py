"""Forward mode: tensors that carry tangents."""

from collections import namedtuple

from .. import _firebrand as _C

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])


def __getattr__(name):
    if name == "_current_level":
        # The level that is open here; negative if there is none.
        return 0 if _C.is_dual_level_active() else -1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level():
    """Opens a level, in which tensors may carry tangents."""
    return _C.enter_dual_level()


def exit_dual_level(*, level=None):
    """Ends a level: tangents of it are gone."""
    _C.exit_dual_level(level)


def make_dual(tensor, tangent, *, level=None):
    """A view of the tensor that carries the tangent."""
    for what, value in (("primal", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {value.dtype}")
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
