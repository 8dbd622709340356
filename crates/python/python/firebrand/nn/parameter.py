"""Trainable tensors, state that is not trained, and both before their sizes are known."""

from collections import OrderedDict

from .. import _firebrand as _C
from .._firebrand import Tensor


def _empty(*sizes, dtype=None, device=None):
    return _C.op_function("empty", False)(sizes, dtype=dtype, device=device)


class _ParameterMeta(type(Tensor)):
    """A tensor of another class that says so is a parameter too."""

    def __instancecheck__(cls, value):
        if super().__instancecheck__(value):
            return True
        return cls is Parameter and isinstance(value, Tensor) and getattr(value, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A leaf that requires grad, which modules list among their parameters."""

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        # A tensor of another class stays one, and is marked.
        found = data.detach().requires_grad_(requires_grad)
        if type(found) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an instance of "
                f"the same type, but return type {type(found).__name__} was found instead. To use the type as a Parameter, please "
                "correct the detach() semantics defined by its __torch_dispatch__() implementation."
            )
        found._is_param = True
        return found

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        found = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = found
        return found

    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (type(self), self.data, self.requires_grad, self.__dict__ or None)

    def __repr__(self):
        return "Parameter containing:\n" + Tensor.__repr__(self)


def _rebuild_parameter(cls, data, requires_grad, attributes):
    found = cls(data, requires_grad)
    if attributes:
        found.__dict__.update(attributes)
    return found


class _BufferMeta(type(Tensor)):
    def __instancecheck__(cls, value):
        if super().__instancecheck__(value):
            return True
        return cls is Buffer and isinstance(value, Tensor) and getattr(value, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that modules list among their buffers."""

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _empty(0)
        found = data.detach().requires_grad_(data.requires_grad)
        found.persistent = persistent
        found._is_buffer = True
        return found


# ---- sizes that are not known yet


def is_lazy(param):
    """Whether a parameter or buffer has no size yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedTensorMixin:
    """A tensor without a size: it can be converted, copied and materialized, and nothing else."""

    _allowed = {"__hash__", "__repr__", "cls_to_become", "materialize", "to", "cpu", "share_memory_"}

    def materialize(self, shape, device=None, dtype=None):
        """Gives it a size; it becomes an ordinary parameter or buffer."""
        device = self._made.device if device is None else device
        dtype = self._made.dtype if dtype is None else dtype
        requires_grad = self._requires_grad
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        Tensor.data.__set__(self, _empty(*sizes, dtype=dtype, device=device))
        self.__dict__.pop("_made", None)
        self.__dict__.pop("_requires_grad", None)
        self.__class__ = self.cls_to_become
        if requires_grad:
            self.requires_grad_()

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when "
            "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters "
            "before accessing their attributes."
        )

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling "
            "`module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self._requires_grad,) if isinstance(self, UninitializedParameter) else ()


def _refuse(name):
    def refused(self, *args, **kwargs):
        raise ValueError(
            "Attempted to use an uninitialized parameter in {}. This error happens when you are using a `LazyModule` or explicitly "
            "manipulating `firebrand.nn.parameter.{}` objects. When using LazyModules Call `forward` with a dummy batch to initialize "
            "the parameters before calling torch functions".format(name, type(self).__name__)
        )

    return refused


def _refuse_ops(cls):
    """What a tensor can do, this one refuses."""
    kept = {"data", "grad", "grad_fn", "requires_grad", "requires_grad_", "is_leaf", "dtype", "device", "layout", "is_meta", "detach",
            "register_hook", "_make_subclass", "__class__", "__new__", "__init__", "__hash__", "__dict__", "__weakref__", "_version",
            "is_floating_point", "is_complex", "copy_", "output_nr", "retains_grad"}
    for name in dir(Tensor):
        if name in kept or name in UninitializedTensorMixin.__dict__ or name in cls.__dict__ or hasattr(object, name):
            continue
        if callable(getattr(Tensor, name, None)):
            setattr(cls, name, _refuse(f"Tensor.{name}"))


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose size a lazy module finds out."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        made = _empty(0, dtype=dtype, device=device)
        found = Tensor._make_subclass(cls, made, requires_grad)
        found.__dict__.update(_made=made, _requires_grad=requires_grad)
        return found

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self._requires_grad, self._made.device, self._made.dtype)
        return memo[id(self)]

    def _converted(self, change):
        made = change(self._made)
        self.__dict__["_made"] = made
        return made


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose size a lazy module finds out."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        made = _empty(0, dtype=dtype, device=device)
        found = Tensor._make_subclass(cls, made, requires_grad)
        found.__dict__.update(_made=made, _requires_grad=requires_grad, persistent=persistent, _is_buffer=True)
        return found


_DEFERRED = (UninitializedParameter, UninitializedBuffer)
