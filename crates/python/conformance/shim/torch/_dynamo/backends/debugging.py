"""Backends that run the ops of a graph one by one."""

from torch._absent import fallback

__getattr__ = fallback("torch._dynamo.backends.debugging")


def eager(graph, inputs):
    return graph.forward


def aot_eager(graph, inputs):
    return graph.compiled("aot_eager")
