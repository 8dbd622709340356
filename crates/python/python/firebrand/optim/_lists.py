"""Several tensors that take part in a formula as one: each op runs for all of them at once."""

from .. import _firebrand as _C


class Lists:
    """Tensors at the same place of the same formula, for different parameters.

    A method is the op of that name with `_foreach_` in front; it gives a `Lists` again, in place the same one.
    """

    def __init__(self, tensors):
        self.tensors = list(tensors)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        op = _C.op_function("_foreach_" + name, False)

        def call(*args, **kwargs):
            found = op(self.tensors, *(a.tensors if isinstance(a, Lists) else a for a in args), **kwargs)
            return self if name.endswith("_") else Lists(found)

        return call

    def each(self, function, *others):
        """The function of every tensor, for what is no op of lists."""
        return Lists(function(*tensors) for tensors in zip(self.tensors, *(other.tensors for other in others)))

    def is_complex(self):
        return self.tensors[0].is_complex()

    def detach(self):
        return self.each(lambda t: t.detach())

    def clone(self):
        return self.each(lambda t: t.clone())


class States:
    """The states of several parameters as one."""

    def __init__(self, states):
        self._states = states

    def __getitem__(self, name):
        return Lists(state[name] for state in self._states)

    def __setitem__(self, name, values):
        for state, value in zip(self._states, values.tensors):
            state[name] = value

    def __contains__(self, name):
        return all(name in state for state in self._states)


def view_as_real(value):
    """Complex tensors as pairs of numbers; others as they are."""
    if not value.is_complex():
        return value
    op = _C.op_function("view_as_real", False)
    return value.each(op) if isinstance(value, Lists) else op(value)


def each(function, first, *others):
    """The function of a tensor, or of every tensor of lists."""
    return first.each(function, *others) if isinstance(first, Lists) else function(first, *others)


def maximum(a, b):
    """The larger element of both."""
    return a.maximum(b) if isinstance(a, Lists) else _C.op_function("maximum", False)(a, b)
