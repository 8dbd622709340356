"""`compiled_autograd` as firebrand's compiled backward, with the counts that tests look at."""

import contextlib

import firebrand
from torch._absent import fallback
from torch._dynamo.utils import counters

__getattr__ = fallback("torch._dynamo.compiled_autograd")

_known = {}
compiled_autograd_enabled = False
in_compiled_autograd_region = False


def reset():
    _known.clear()


@contextlib.contextmanager
def _enable(compiler_fn, dynamic=False):
    """Inside, `compiler_fn` gets each backward pass as a graph and gives back what runs it."""
    global compiled_autograd_enabled
    kind = "dynamic" if dynamic else "static"
    if kind not in _known:
        _known[kind] = firebrand.compiled_backward(
            lambda graph, inputs: _known["compiler"](graph), dynamic=bool(dynamic), dynamic_graphs=True
        )
    scope, before, compiler = _known[kind], compiled_autograd_enabled, _known.get("compiler")
    seen, compiled_autograd_enabled, _known["compiler"] = scope.captures, True, compiler_fn
    try:
        with scope:
            yield
    finally:
        compiled_autograd_enabled = before
        _known["compiler"] = compiler
        _note(scope, seen)


def _note(scope, seen):
    counters["compiled_autograd"]["captures"] += scope.captures - seen


@contextlib.contextmanager
def _disable():
    global compiled_autograd_enabled
    before, compiled_autograd_enabled = compiled_autograd_enabled, False
    try:
        with firebrand.plain_backward():
            yield
    finally:
        compiled_autograd_enabled = before
