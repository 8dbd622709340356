"""PyTorch's side of examples/set_grad_scale.rs: the same chain through replace_set_grad_with_hop_pass, in seconds."""

import sys
import time

import torch
from torch._export.passes.replace_set_grad_with_hop_pass import replace_set_grad_with_hop_pass
from torch.fx import Graph, GraphModule


def chain(n):
    graph = Graph()
    value = graph.placeholder("x")
    value.meta["val"] = 0
    for i in range(n):
        if i % 2 == 0:
            value = graph.call_function(torch.ops.aten.sin.default, (value,))
            value.meta["val"] = 0
        else:
            graph.call_function(torch._C._set_grad_enabled, (i % 4 == 3,))
    graph.output((value,))
    return GraphModule({}, graph)


for n in [int(a) for a in sys.argv[1:]] or [1000]:
    module = chain(n)
    begin = time.perf_counter()
    replace_set_grad_with_hop_pass(module, None)
    print(f"{n:>8} nodes: {time.perf_counter() - begin:.2f} s")
