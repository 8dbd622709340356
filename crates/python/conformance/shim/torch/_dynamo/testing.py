"""Backends that count the graphs they get."""

from torch._absent import fallback

__getattr__ = fallback("torch._dynamo.testing")


class CompileCounter:
    """Counts graphs and their calls, and runs them op by op."""

    def __init__(self):
        self.frame_count = self.op_count = 0

    def __call__(self, graph, inputs):
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in graph.graph.nodes)
        return self.made(graph)

    def made(self, graph):
        return graph.forward

    def clear(self):
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """Counts, and gives the graphs to another backend."""

    def __init__(self, backend):
        super().__init__()
        self.backend, self.graphs = backend, []

    def made(self, graph):
        import torch

        self.graphs.append(graph)
        return torch.compile(graph, backend=self.backend)


EagerAndRecordGraphs = AotEagerAndRecordGraphs = CompileCounterWithBackend
