"""`torch.compile` over firebrand's: backends by PyTorch's names, and the setting that compiles backward passes too."""

import functools

import firebrand
from firebrand import _compile as _own

_NAMES = {"inductor": "firebrand"}


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    from torch._dynamo import compiled_autograd, config

    name = _NAMES.get(backend, backend) if isinstance(backend, str) else backend
    compiled = firebrand.compile(model, backend=name, fullgraph=fullgraph, dynamic=dynamic, disable=disable)
    if not config.compiled_autograd or isinstance(model, _own.Graph):
        return compiled

    @functools.wraps(compiled)
    def with_backward(*args, **kwargs):
        with compiled_autograd._enable(lambda graph: graph.compiled(name), dynamic):
            return compiled(*args, **kwargs)

    return with_backward
