"""Memory shared with other libraries."""

from . import _firebrand as _C


def from_dlpack(source):
    """A tensor over the memory of an object with `__dlpack__`, or of a capsule."""
    if not hasattr(source, "__dlpack__"):
        return _C.from_capsule(source)
    try:
        capsule = source.__dlpack__(max_version=(1, 0))
    except TypeError:
        # An exporter from before versions.
        capsule = source.__dlpack__()
    return _C.from_capsule(capsule)


def as_tensor(data, dtype=None, device=None):
    """A tensor over the data if it can be shared, otherwise a copy."""
    if isinstance(data, _C.Tensor):
        return data.to(dtype=dtype, device=device)
    if hasattr(data, "__array_interface__") and getattr(data, "ndim", 0) > 0:
        _, read_only = data.__array_interface__["data"]
        if not read_only:
            return _C.from_numpy(data).to(dtype=dtype, device=device)
    return _C.tensor(data, dtype=dtype, device=device)
