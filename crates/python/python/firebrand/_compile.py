"""Compiled functions.

A compiled function is captured at every call, on meta tensors, and its graph is looked up among those compiled before: Python
code runs at every call as it does without, so nothing it reads can go stale. With `static=True` it is captured only when the
tensors it gets are of another kind, and Python code in it runs only then.
"""

import functools
import weakref
from typing import NamedTuple

from . import _firebrand as _C
from ._firebrand import Tensor
from ._tree import flatten, unflatten


def compile(function=None, *, backend="firebrand", fullgraph=False, dynamic=None, static=False, disable=False):
    """Compiles a function of tensors, a module, or a graph; a decorator if no function is given.

    A backend is a name, or a function of a captured graph and tensors like its inputs that gives back what runs the graph."""
    if function is None:
        return functools.partial(
            compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic, static=static, disable=disable
        )
    if disable:
        return function
    if isinstance(function, Graph):
        return function.compiled(backend)
    from .nn import Module

    if isinstance(function, Module):
        return CompiledModule(function, backend, fullgraph, dynamic, static)
    return _compiled(function, getattr(function, "__qualname__", repr(function)), backend, fullgraph, dynamic, static)


# What backends that are Python functions compiled. It goes with them.
_GRAPHS = weakref.WeakKeyDictionary()


def _graphs(backend):
    """Where the graphs of a backend are kept: those of a Python function are shared by everything it compiles."""
    if isinstance(backend, str):
        return _C.Graphs(backend)
    try:
        if backend not in _GRAPHS:
            # Weak, or the graphs would keep the function that is to take them along.
            _GRAPHS[backend] = _C.Graphs(_weakly(backend))
        return _GRAPHS[backend]
    except TypeError:
        return _C.Graphs(backend)


def _weakly(backend):
    ref = weakref.ref(backend)

    def call(graph, inputs):
        return ref()(graph, inputs)

    return call


def _compiled(function, name, backend, fullgraph, dynamic, static):
    inner = _C.CompiledFunction(name, _graphs(backend), fullgraph, dynamic)
    shapes = {}

    @functools.wraps(function)
    def run(*args, **kwargs):
        leaves, spec = flatten((args, kwargs))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        given = [leaves[k] for k in places]
        others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        key = f"{spec!r}{others!r}" if static else None
        result = []

        def flat(tensors):
            whole = list(others)
            for k, t in zip(places, tensors):
                whole[k] = t
            args, kwargs = unflatten(whole, spec)
            found, out_spec = flatten(function(*args, **kwargs))
            result[:] = [out_spec, [None if isinstance(v, Tensor) else (v,) for v in found]]
            if static:
                shapes[key] = list(result)
            return [v for v in found if isinstance(v, Tensor)]

        tensors = inner.call_static(key, flat, given) if static else inner.call(flat, given)
        out_spec, kept = result or shapes[key]
        tensors = iter(tensors)
        return unflatten([next(tensors) if value is None else value[0] for value in kept], out_spec)

    run._compiled, run._backend = inner, backend
    return run


def CompiledModule(module, backend, fullgraph, dynamic, static):
    """A module that shares everything with another one and runs compiled."""
    from .nn import Module

    class OptimizedModule(Module):
        """A compiled module."""

        def __init__(self, original):
            super().__init__()
            self._orig_mod = original
            call = _compiled(original.__call__, type(original).__name__, backend, fullgraph, dynamic, static)
            object.__setattr__(self, "_call", call)

        def forward(self, *args, **kwargs):
            return self._call(*args, **kwargs)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("_orig_mod"), name)

    return OptimizedModule(module)


class compiled_backward:
    """Backward passes of this thread are compiled until the end of the block. Entered again, it knows what it compiled.

    With `dynamic` a capture is for all sizes; without, the first is for its sizes and a second for all, whose graph is compiled for
    all at once if `dynamic_graphs` is set, or else for the sizes of its first run and at the next for all."""

    def __init__(self, backend="firebrand", *, dynamic=True, dynamic_graphs=False, fullgraph=False):
        self._compiled = _C.CompiledBackward(backend, dynamic, dynamic_graphs, fullgraph)
        self._scopes = []

    def __enter__(self):
        self._scopes.append(self._compiled.enter())
        return self

    def __exit__(self, *_):
        self._scopes.pop().leave()

    @property
    def captures(self):
        """How many structures were captured so far."""
        return self._compiled.captures()


class plain_backward(compiled_backward):
    """Backward passes of this thread are not compiled until the end of the block."""

    def __init__(self):
        self._scopes = []

    def __enter__(self):
        self._scopes.append(_C.plain_backward())
        return self

    captures = 0


class Node(NamedTuple):
    """A node of a captured graph."""

    op: str
    name: str
    target: str


Graph = _C.Graph
Graph.graph = property(lambda self: self, doc="The graph itself: a graph and its module are one object.")
Graph.nodes = property(lambda self: [Node(*node) for node in self.node_list()], doc="Its nodes, in their order.")
