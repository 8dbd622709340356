"""Functions that PyTorch, too, writes in Python over its ops."""

import builtins
import math

from . import _firebrand as _C
from . import ops
from ._size import Size

__all__ = [
    "broadcast_shapes",
    "broadcast_tensors",
    "einsum",
    "finfo",
    "iinfo",
    "is_floating_point",
    "is_complex",
    "is_tensor",
    "meshgrid",
    "norm",
    "numel",
    "sparse_coo_tensor",
    "split",
    "tensordot",
    "unique",
    "unique_consecutive",
    "result_type",
    "equal",
    "allclose",
]

inf, nan, pi, e = math.inf, math.nan, math.pi, math.e


def is_tensor(obj):
    return isinstance(obj, _C.Tensor)


def sparse_coo_tensor(indices, values, size=None, *, dtype=None, device=None, requires_grad=False):
    """A tensor of few entries: positions `[sparse dimensions, entries]`, values `[entries, dense sizes...]`. For gradients."""
    if requires_grad:
        raise NotImplementedError("sparse_coo_tensor: sparse tensors are gradients here and record nothing")
    indices = (indices if is_tensor(indices) else _C.tensor(indices)).to(dtype=_C.int64, device=device)
    values = (values if is_tensor(values) else _C.tensor(values)).to(dtype=dtype, device=device)
    if size is None:
        if indices.size(1) == 0:
            raise RuntimeError("sparse_coo_tensor: without entries the size has to be given")
        size = (*(n + 1 for n in indices.amax(1).tolist()), *values.shape[1:])
    return _C.make_sparse_coo(indices, values, tuple(size))


def is_floating_point(input):
    return input.is_floating_point()


def is_complex(input):
    return input.is_complex()


def numel(input):
    return input.numel()


def broadcast_shapes(*shapes):
    """The sizes that tensors of these sizes are broadcast to."""
    shapes = [(s,) if isinstance(s, builtins.int) else tuple(s) for s in shapes]
    result = []
    for k in range(max((len(s) for s in shapes), default=0)):
        sizes = {s[-1 - k] for s in shapes if len(s) > k} - {1}
        if len(sizes) > 1:
            raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape, found sizes {sorted(sizes)}")
        result.append(sizes.pop() if sizes else 1)
    return Size(reversed(result))


def _listed(tensors):
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def broadcast_tensors(*tensors):
    """Views of the tensors with the sizes they have in common."""
    tensors = _listed(tensors)
    sizes = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(sizes) for t in tensors)


def einsum(equation, *operands):
    """Sums products of elements as the equation says."""
    return ops.aten.einsum.default(equation, _listed(operands))


def meshgrid(*tensors, indexing=None):
    """Grids of coordinates."""
    tensors = _listed(tensors)
    if indexing is None:
        return ops.aten.meshgrid.default(tensors)
    return ops.aten.meshgrid.indexing(tensors, indexing=indexing)


def split(tensor, split_size_or_sections, dim=0):
    """Views of parts of a size, or of several sizes."""
    return tensor.split(split_size_or_sections, dim)


def tensordot(a, b, dims=2, out=None):
    """The product over several dimensions at once."""
    if isinstance(dims, builtins.int):
        dims = (list(range(-dims, 0)), list(range(dims)))
    dims = [d if isinstance(d, (list, tuple)) else [d] for d in dims]
    found = ops.aten.tensordot.default(a, b, list(dims[0]), list(dims[1]))
    return found if out is None else out.copy_(found)


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """A norm of vectors or matrices."""
    if isinstance(dim, builtins.int):
        dim = (dim,)
    if p == "nuc":
        raise NotImplementedError("norm(p='nuc'): use linalg.matrix_norm(ord='nuc')")
    order = 2.0 if p in (None, "fro") else p
    found = ops.aten.linalg_vector_norm.default(input, order, dim, keepdim, dtype=dtype)
    return found if out is None else out.copy_(found)


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The values that occur, each once."""
    if dim is None:
        values, inverse, counts = ops.aten._unique2.default(input, sorted, return_inverse, return_counts)
    else:
        values, inverse, counts = ops.aten.unique_dim.default(input, dim, sorted, return_inverse, return_counts)
    found = [values] + [inverse] * return_inverse + [counts] * return_counts
    return found[0] if len(found) == 1 else tuple(found)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The values without repetitions of neighbours."""
    values, inverse, counts = ops.aten.unique_consecutive.default(input, return_inverse, return_counts, dim)
    found = [values] + [inverse] * return_inverse + [counts] * return_counts
    return found[0] if len(found) == 1 else tuple(found)


def result_type(a, b):
    """The dtype that an op of both computes in."""
    tensors = [x for x in (a, b) if is_tensor(x)]
    if not tensors:
        return _C.tensor([a, b]).dtype
    # Adding empty tensors of the same ranks shows it.
    small = [x.new_empty((0,) * builtins.min(x.ndim, 1)) if is_tensor(x) else x for x in (a, b)]
    first, second = small if is_tensor(small[0]) else small[::-1]
    return (first.to(device="meta") + (second.to(device="meta") if is_tensor(second) else second)).dtype


def equal(a, b):
    """Whether both have the same sizes and values."""
    return a.shape == b.shape and builtins.bool((a == b).all().item())


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all values are close."""
    return builtins.bool(a.isclose(b, rtol, atol, equal_nan).all().item())


class finfo:
    """The limits of a floating point dtype."""

    _BITS = {"float16": (16, 10, 15), "bfloat16": (16, 7, 127), "float32": (32, 23, 127), "float64": (64, 52, 1023)}

    def __init__(self, dtype=None):
        dtype = _C.get_default_dtype() if dtype is None else dtype
        # The limits of complex numbers are those of their parts.
        parts = {"complex64": "float32", "complex128": "float64"}
        name = repr(dtype).removeprefix("firebrand.")
        name = parts.get(name, name)
        if name not in self._BITS:
            raise TypeError(f"finfo() requires a floating point input type. Use iinfo to handle '{dtype}'")
        self.dtype = name
        self.bits, mantissa, exponent = self._BITS[name]
        self.eps = 2.0**-mantissa
        self.max = (2 - 2.0**-mantissa) * 2.0**exponent
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - exponent)
        self.resolution = 10.0 ** -math.floor(mantissa * math.log10(2))

    def __repr__(self):
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype):
        if dtype.is_floating_point or dtype.is_complex or dtype is _C.bool:
            raise TypeError(f"iinfo requires an integer input type, found {dtype}")
        self.dtype = repr(dtype).removeprefix("firebrand.")
        self.bits = dtype.itemsize * 8
        signed = dtype.is_signed
        self.min = -(2 ** (self.bits - 1)) if signed else 0
        self.max = 2 ** (self.bits - signed) - 1

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
