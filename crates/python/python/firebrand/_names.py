"""Puts the ops of the table where PyTorch has them: methods of tensors, functions of the package and of its modules."""

from . import _firebrand as _C

# Attributes that are no methods, and methods that are written in Python or need no op.
_BY_HAND = {"T", "H", "mT", "mH", "real", "imag", "data", "is_leaf", "grad", "to", "numpy_T", "matrix_H"}


def install(package, tensor):
    """Adds every name of the table that is not there already."""
    for name, places in _C.op_names():
        if "method" in places and name not in _BY_HAND and name not in tensor.__dict__:
            setattr(tensor, name, _C.op_function(name, True))
        if "function" in places and name not in package:
            package[name] = _C.op_function(name, False)


def namespace(place):
    """The functions of a module such as `linalg`, under their names without the prefix."""
    prefix = place + "_"
    return {
        name.removeprefix(prefix): _C.op_function(name, False)
        for name, places in _C.op_names()
        if place in places and name.startswith(prefix)
    }


def functions(place):
    """The functions of a place whose names have no prefix."""
    return {name: _C.op_function(name, False) for name, places in _C.op_names() if place in places}
