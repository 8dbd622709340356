"""Ahead-of-time autograd: forward and backward passes as graphs, as `compile` with a backend that traces both does it."""

import firebrand
from torch._absent import fallback

__getattr__ = fallback("torch._functorch.aot_autograd")


def aot_module_simplified(module, inputs, fw_compiler, **_kwargs):
    return firebrand.compile(module, backend="aot_eager")
