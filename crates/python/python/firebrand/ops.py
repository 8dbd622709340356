"""Ops by their names in ATen: `ops.aten.add.Tensor(a, b)`."""

from . import _firebrand as _C


class OpOverloadPacket:
    """All overloads of an op; called, the one that fits."""

    def __init__(self, qualified):
        self._qualified_op_name = qualified
        self.__name__ = qualified.split("::")[1]

    def overloads(self):
        """The names of its overloads."""
        return _C.op_overloads(self._qualified_op_name)

    def __getattr__(self, overload):
        if overload.startswith("__"):
            raise AttributeError(overload)
        name = self._qualified_op_name + ("" if overload == "default" else f".{overload}")
        found = _C.op_overload(name)
        if found is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")
        setattr(self, overload, found)
        return found

    def __call__(self, *args, **kwargs):
        tried = []
        for overload in self.overloads():
            try:
                return getattr(self, overload)(*args, **kwargs)
            except TypeError as e:
                tried.append(str(e))
        raise TypeError("\n".join(tried))

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"


class _Namespace:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, op):
        if op.startswith("__") and op.endswith("__") and not _C.op_overloads(f"{self._name}::{op}"):
            raise AttributeError(op)
        if not _C.op_overloads(f"{self._name}::{op}") and _C.op_overload(f"{self._name}::{op}") is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{op}'")
        packet = OpOverloadPacket(f"{self._name}::{op}")
        setattr(self, op, packet)
        return packet


def _register(namespace, name, op):
    """Puts a custom op where it is found by name."""
    setattr(globals().setdefault(namespace, _Namespace(namespace)), name, op)


aten = _Namespace("aten")
torchvision = _Namespace("torchvision")
