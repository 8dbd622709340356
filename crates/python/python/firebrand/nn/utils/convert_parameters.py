"""Parameters as one vector, and back."""

from ... import _firebrand as _C


def parameters_to_vector(parameters):
    """All parameters, one after the other."""
    return _C.op_function("cat", False)([p.view(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Parts of a vector as the data of parameters."""
    start = 0
    for p in parameters:
        p.data = vec[start : start + p.numel()].view_as(p).data
        start += p.numel()
