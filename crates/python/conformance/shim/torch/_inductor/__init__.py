"""`inductor` as firebrand's own optimizing backend."""

import sys

from torch._absent import fallback
from torch._dynamo import Config

__getattr__ = fallback("torch._inductor")
config = Config()
sys.modules[__name__ + ".config"] = config


def compile(graph, inputs, options=None):
    return graph.compiled("firebrand")
