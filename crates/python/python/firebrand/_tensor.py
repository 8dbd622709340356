"""What a tensor has beside its ops: printing, conversion, copying, pickling, sharing, running backward."""

import builtins
import re
import sys
import textwrap

from . import _firebrand as _C
from ._firebrand import Tensor
from ._size import Size

_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, sys.maxsize, 3, 80)}
_SUFFIX = re.compile(r",\s*((?:dtype=\w+)|(?:size=\([^()]*\))|(?:device='\w+'))$")


class _Print:
    """How tensors are printed."""

    precision, threshold, edgeitems, linewidth = _PROFILES["default"]
    sci_mode = None


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets how tensors are printed: digits, from how many elements on they are summarized, how many of these are shown at each end,
    the length of a line; `profile` is "default", "short" or "full". Scientific notation is chosen by the values unless `sci_mode`
    says so."""
    options = (precision, threshold, edgeitems, linewidth)
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, found {profile!r}")
        options = [own if own is not None else given for own, given in zip(options, _PROFILES[profile])]
    for name, value in zip(("precision", "threshold", "edgeitems", "linewidth"), options):
        if value is not None:
            setattr(_Print, name, builtins.min(builtins.int(value), sys.maxsize) if value != float("inf") else sys.maxsize)
    _Print.sci_mode = sci_mode


def _repr(self):
    if (batch := self._all_samples()) is not None:
        self.clone()  # refuses a sample that is used outside of its vmap
        samples, dim, level = batch
        return f"BatchedTensor(lvl={level}, bdim={dim}, value=\n{textwrap.indent(repr(samples), '    ')}\n)"
    options = (_Print.precision, _Print.threshold, _Print.edgeitems, _Print.linewidth, _Print.sci_mode)
    body = self._text(options)[len("tensor(") : -1]
    suffixes = []
    while found := _SUFFIX.search(body):
        suffixes.insert(0, re.sub(r"^dtype=", "dtype=firebrand.", found.group(1)))
        body = body[: found.start()]
    try:
        node = self.grad_fn
    except RuntimeError:
        # A view whose history cannot be rebuilt.
        suffixes.append("grad_fn=<Invalid>")
        node = None
    if node is not None:
        suffixes.append(f"grad_fn=<{type(node).__name__}>")
    elif suffixes and suffixes[-1] == "grad_fn=<Invalid>":
        pass
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    if _C.is_dual_level_active() and (tangent := _C.unpack_dual(self)[1]) is not None:
        suffixes.append(f"tangent={tangent!r}")
    text = "tensor(" + body
    last = len(text) - text.rfind("\n") - 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > _Print.linewidth:
            text += ",\n" + " " * len("tensor(") + suffix
            last = len("tensor(") + len(suffix)
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text + ")"


def _iter(self):
    if self.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return builtins.iter(self.unbind(0))


def _format(self, spec):
    if self.dim() == 0 and not self.is_meta and type(self) is Tensor:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def _contains(self, element):
    if isinstance(element, (Tensor, builtins.int, builtins.float, builtins.complex, builtins.bool)):
        return builtins.bool((element == self).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def _backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Computes gradients of this tensor and accumulates them into the leaves."""
    from . import autograd

    autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


# ---- conversion

_DTYPES = {
    "float": _C.float32,
    "double": _C.float64,
    "half": _C.float16,
    "bfloat16": _C.bfloat16,
    "int": _C.int32,
    "long": _C.int64,
    "short": _C.int16,
    "char": _C.int8,
    "byte": _C.uint8,
    "bool": _C.bool,
    "cfloat": _C.complex64,
    "cdouble": _C.complex128,
}
_KINDS = (_C.dtype, builtins.type)
_KIND_NAMES = {
    _C.float32: "FloatTensor",
    _C.float64: "DoubleTensor",
    _C.float16: "HalfTensor",
    _C.bfloat16: "BFloat16Tensor",
    _C.int64: "LongTensor",
    _C.int32: "IntTensor",
    _C.int16: "ShortTensor",
    _C.int8: "CharTensor",
    _C.uint8: "ByteTensor",
    _C.bool: "BoolTensor",
    _C.complex64: "ComplexFloatTensor",
    _C.complex128: "ComplexDoubleTensor",
}


def _to(self, *args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """This tensor with another dtype or on another device; itself if it has them already."""
    for position, value in enumerate(args):
        if isinstance(value, Tensor) and position == 0:
            dtype, device = value.dtype, value.device
        elif isinstance(value, _KINDS):
            dtype = value
        elif isinstance(value, (str, _C.device)) and position == 0:
            device = value
        elif value is None and position < 2:
            continue
        elif isinstance(value, builtins.bool):
            copy = value if position == len(args) - 1 and builtins.sum(isinstance(a, builtins.bool) for a in args) == 2 else copy
        else:
            kinds = ", ".join(type(a).__name__ for a in args)
            raise TypeError(
                f"to() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
                " * (firebrand.device device = None, firebrand.dtype dtype = None, bool non_blocking = False, bool copy = False, *, "
                "firebrand.memory_format memory_format = None)\n"
                " * (firebrand.dtype dtype, bool non_blocking = False, bool copy = False, *, "
                "firebrand.memory_format memory_format = None)\n"
                " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, "
                "firebrand.memory_format memory_format = None)\n"
            )
    same_device = device is None or _C.device(device) == self.device
    if not copy and same_device and memory_format is None and (dtype is None or dtype is self.dtype):
        return self
    return _TO_COPY(self, dtype=dtype, device=device, memory_format=memory_format)


def _type(self, dtype=None):
    """The name of the kind of tensor; with a dtype, or such a name, the tensor as that kind."""
    if dtype is None:
        return "firebrand." + _KIND_NAMES[self.dtype]
    if isinstance(dtype, str):
        found = [kind for kind, name in _KIND_NAMES.items() if dtype.rpartition(".")[2] == name]
        if not found:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = found[0]
    return self.to(dtype)


def _converter(name, dtype):
    def convert(self):
        return self.to(dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"This tensor as {dtype}."
    return convert


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    dtype = self.dtype if dtype is None else dtype
    return _C.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


# ---- sharing


def _numpy(self, *, force=False):
    """An array over the memory of this tensor."""
    import numpy

    plain = force or not _C.is_grad_enabled()
    return numpy.asarray(_C.array_view(self.detach() if plain else self))


def _array(self, dtype=None, copy=None):
    found = self.numpy()
    if dtype is not None and found.dtype != dtype:
        if copy is False:
            raise ValueError("another dtype needs a copy")
        return found.astype(dtype)
    return found.copy() if copy else found


def _array_wrap(self, array, context=None, return_scalar=False):
    """What a function of numpy's gives that was called on a tensor: a tensor again."""
    return _C.from_numpy(array)


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError("tensors are in host memory: dl_device can only be (1, 0)")
    source = self.clone() if copy else self
    return _C.to_dlpack(source, max_version is not None and max_version[0] >= 1)


def _dlpack_device(self):
    return (1, 0)


# ---- copies


def _deepcopy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    from copy import deepcopy

    copy = self._deep_copy()
    if type(self) is not Tensor:
        grad = copy.grad
        copy = Tensor._make_subclass(type(self), copy, self.requires_grad)
        copy.grad = grad
    memo[id(self)] = copy
    copy.__dict__.update(deepcopy(self.__dict__, memo))
    return copy


def _module_load(self, other, assign=False):
    """What `load_state_dict` puts in the place of this tensor when parameters are exchanged."""
    return other.detach() if assign else self.copy_(other).detach()


def _rebuild(cls, data, dtype, sizes, requires_grad, attributes):
    found = _C.tensor_from_bytes(data, dtype, sizes)
    found = found.requires_grad_(requires_grad) if cls is Tensor else Tensor._make_subclass(cls, found, requires_grad)
    found.__dict__.update(attributes)
    return found


def _reduce(self, protocol):
    attributes = dict(self.__dict__)
    return _rebuild, (type(self), _C.tensor_bytes(self), self.dtype, tuple(self.shape), self.requires_grad, attributes)


def _norm(self, p="fro", dim=None, keepdim=False, dtype=None):
    """A norm of vectors or matrices."""
    from ._functions import norm

    return norm(self, p, dim, keepdim, dtype=dtype)


def _unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The values that occur, each once."""
    from ._functions import unique

    return unique(self, sorted, return_inverse, return_counts, dim)


def _unique_consecutive(self, return_inverse=False, return_counts=False, dim=None):
    """The values without repetitions of neighbours."""
    from ._functions import unique_consecutive

    return unique_consecutive(self, return_inverse, return_counts, dim)


def _rmatmul(self, other):
    return other.matmul(self) if isinstance(other, Tensor) else NotImplemented


def _reversed(self):
    return self if self.dim() == 0 else self.flip(0)


def _property(name):
    op = _C.op_overload(name)
    return property(lambda self: op(self))


_REAL, _TO_COPY = _C.op_overload("aten::real"), _C.op_overload("aten::_to_copy")


Tensor.__repr__ = _repr
Tensor.__iter__ = _iter
Tensor.__format__ = _format
Tensor.__contains__ = _contains
Tensor.__deepcopy__ = _deepcopy
Tensor.__reduce_ex__ = _reduce
Tensor.module_load = _module_load
Tensor.norm = _norm
Tensor.unique = _unique
Tensor.unique_consecutive = _unique_consecutive
Tensor.__rmatmul__ = _rmatmul
Tensor.__reversed__ = _reversed
Tensor.__array__ = _array
Tensor.__array_wrap__ = _array_wrap
Tensor.__array_priority__ = 1000
Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = _dlpack_device
Tensor.backward = _backward
Tensor.numpy = _numpy
Tensor.to = _to
Tensor.cpu = lambda self: self.to(device="cpu")
Tensor.type = _type
Tensor.new_tensor = _new_tensor
Tensor.T = _property("aten::numpy_T")
Tensor.mT = _property("aten::mT")
Tensor.mH = _property("aten::mH")
Tensor.H = _property("aten::matrix_H")
Tensor.real = property(lambda self: _REAL(self) if self.is_complex() else self)
Tensor.imag = _property("aten::imag")
for _name, _dtype in _DTYPES.items():
    setattr(Tensor, _name, _converter(_name, _dtype))

# ---- few entries: gradients of embeddings


def _to_sparse(self):
    """The entries that are not zero, as coordinates and values. Not recorded."""
    if self.requires_grad and _C.is_grad_enabled():
        raise NotImplementedError("to_sparse() is not recorded: detach() the tensor, or use it under no_grad()")
    positions = self.detach().nonzero()
    return _C.make_sparse_coo(positions.t().contiguous(), self.detach()[tuple(positions.unbind(1))], self.shape)


def _raw(read):
    """Of entries as they are, each position once."""
    return lambda self: read(self if _C.sparse_is_coalesced(self) else _C.sparse_coalesce(self))


Tensor.to_sparse = _to_sparse
Tensor.to_dense = lambda self: _C.sparse_to_dense(self) if self.is_sparse else self
Tensor.coalesce = lambda self: _C.sparse_coalesce(self)
Tensor.is_coalesced = lambda self: _C.sparse_is_coalesced(self)
Tensor.indices, Tensor.values = (lambda self: _C.sparse_indices(self)), (lambda self: _C.sparse_values(self))
Tensor._indices, Tensor._values = _raw(_C.sparse_indices), _raw(_C.sparse_values)
Tensor._nnz = lambda self: self._values().size(0)
Tensor.sparse_dim = lambda self: self._indices().size(0) if self.is_sparse else 0
Tensor.dense_dim = lambda self: self.dim() - self.sparse_dim()

# Kinds of tensors that are not there.
for _name in ("is_nested", "is_quantized", "is_mkldnn", "is_cuda", "is_xpu", "is_mps", "is_sparse_csr", "is_ipu", "is_xla", "is_vulkan", "is_maia", "is_mtia"):
    setattr(Tensor, _name, False)
Tensor.names = property(lambda self: (None,) * self.dim())
Tensor.is_shared = lambda self: False
Tensor.is_pinned = lambda self: False
Tensor.is_conj = lambda self: False
Tensor.is_neg = lambda self: False
Tensor.resolve_conj = lambda self: self
Tensor.resolve_neg = lambda self: self
Tensor.has_names = lambda self: False
Tensor.volatile = property(lambda self: _volatile(), lambda self, _value: _volatile())


def _volatile():
    import warnings

    warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=3)
    return False


def _new(self, *args):
    if len(args) == 1 and isinstance(args[0], Size):
        return self.new_empty(args[0])
    if len(args) == 1 and not isinstance(args[0], builtins.int):
        return _C.tensor(args[0], dtype=self.dtype)
    return self.new_empty(args)


Tensor.new = _new


def _undeletable(self):
    raise RuntimeError("data, history and hooks of tensors cannot be deleted; detach() the tensor")


def _delete_grad(self):
    self.grad = None


def _set_data(self, value):
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    _DATA.__set__(self, value)


_GRAD, _DATA, _REQUIRES = Tensor.grad, Tensor.data, Tensor.requires_grad
Tensor.grad = property(_GRAD.__get__, _GRAD.__set__, _delete_grad)
Tensor.data = property(_DATA.__get__, _set_data, _undeletable)
Tensor.requires_grad = property(_REQUIRES.__get__, _REQUIRES.__set__, _undeletable)
Tensor._grad = property(lambda self: self.grad, None, _delete_grad)
Tensor._grad_fn = property(lambda self: self.grad_fn, None, _undeletable)


def _set_hooks(self, hooks):
    self.__dict__["_backward_hooks"] = hooks


class _Storage:
    """The memory of a tensor, which others may show too."""

    def __init__(self, tensor, item):
        self._tensor, self._item = tensor, item

    def nbytes(self):
        """How many bytes there are."""
        return self._tensor._storage_bytes()

    def data_ptr(self):
        """The address of the first byte."""
        return self._tensor.data_ptr() - self._tensor.storage_offset() * self._tensor.element_size()

    def size(self):
        """How many elements there are."""
        return self.nbytes() // self._item

    __len__ = size


Tensor.storage = lambda self: _Storage(self, self.element_size())
Tensor.untyped_storage = lambda self: _Storage(self, 1)
Tensor._backward_hooks = property(lambda self: self.__dict__.get("_backward_hooks"), _set_hooks, _undeletable)


def _construct(*args, dtype=None, device=None):
    """A tensor of the default dtype: of data, or of sizes and without values."""
    if dtype is not None:
        raise TypeError("Tensor() makes tensors of the default dtype; use tensor(data, dtype=...)")
    if len(args) == 1 and isinstance(args[0], Tensor):
        return args[0].detach()
    dtype = _C.get_default_dtype()
    sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
    if all(isinstance(n, builtins.int) and not isinstance(n, builtins.bool) for n in sizes):
        return _EMPTY(list(sizes) if args else [0], dtype=dtype, device=device)
    if len(args) == 1:
        return _C.tensor(args[0], dtype=dtype, device=device)
    raise TypeError("new(): expected sizes, a sequence or a Tensor")


_EMPTY = _C.op_overload("aten::empty.memory_format")
Tensor.__init__ = lambda self, *_args, **_kwargs: self._register()
