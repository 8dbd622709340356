"""Inputs that PyTorch refuses, as programs: the op that fails, called with the very arguments.

Such a call cannot be exported. So the call is watched until an op of ATen fails, and a program that hands its inputs through gets
that op as one more node, with outputs that nobody reads. Errors that arise before an op is called (in Python, or in
the parser of arguments) have no program.
"""

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """Remembers the call of the op that fails."""

    def __init__(self):
        super().__init__()
        self.failed = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        before = pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
        try:
            return func(*args, **kwargs)
        except Exception:
            self.failed = self.failed or (func, *before)
            raise


def by_name(op, input, args, kwargs):
    """The overload of the op's own name that takes such arguments and refuses these."""
    packet = getattr(torch.ops.aten, op.aten_name or op.name.split(".")[-1], None)
    for overload in packet.overloads() if packet else ():
        call = getattr(packet, overload)
        try:
            call(input, *args, **kwargs)
        except Exception as e:
            text = str(e)
            if "Declaration:" not in text and "Expected a value of type" not in text and "Unknown keyword" not in text:
                return call, (input, *args), kwargs
    return None


def fails(func, args, kwargs):
    """Whether the call fails with copies of its arguments too."""
    copy = lambda x: x.clone() if isinstance(x, torch.Tensor) else x
    try:
        func(*pytree.tree_map(copy, args), **pytree.tree_map(copy, kwargs))
    except Exception:
        return True
    return False


def failing_call(op, sample):
    """The call that fails, or None. Copies of arguments that overlap do not: such a call is none."""
    input, args, kwargs = sample.input, tuple(sample.args), dict(sample.kwargs)
    watch = Watch()
    try:
        with watch:
            op(input, *args, **kwargs)
    except Exception:
        try:
            call = watch.failed or by_name(op, input, args, kwargs)
        except Exception:
            return None
        return call if call and fails(*call) else None
    return None


class Through(torch.nn.Module):
    def forward(self, *tensors):
        return [t.clone() for t in tensors]


def program(call):
    """A program with this call in it, and its inputs."""
    func, args, kwargs = call
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
    if not tensors or any(t.layout != torch.strided or t.device.type != "cpu" for t in tensors):
        return None
    exported = torch.export.export(Through(), tuple(tensors), strict=False)
    graph = exported.graph
    users = [s.arg.name for s in exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    nodes = {n.name: n for n in graph.nodes}
    inputs = [nodes[name] for name in users]
    waiting = list(inputs)
    args, kwargs = pytree.tree_unflatten([waiting.pop(0) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
    output = next(n for n in graph.nodes if n.op == "output")
    like = inputs[0].meta["val"]
    with graph.inserting_before(output):
        node = graph.call_function(func, args, kwargs)
    returns = [[like] if "[]" in str(r.type) else like for r in func._schema.returns]
    node.meta["val"] = returns[0] if len(returns) == 1 else tuple(returns)
    return exported, {n: t.resolve_conj().resolve_neg().contiguous().numpy() for n, t in zip(users, tensors)}


def judge(firebrand, op, scratch, run, refused):
    """Status and reason for every input of the database that PyTorch refuses."""
    import numpy as np

    if op.error_inputs_func is None:
        return
    for error in op.error_inputs("cpu"):
        try:
            call = failing_call(op, error.sample_input)
            made = call and program(call)
            if not made:
                yield "no program", ""
                continue
            torch.export.save(made[0], scratch / "refused.pt2")
            np.savez(scratch / "refused.npz", **made[1])
        except Exception:
            yield "no program", ""
            continue
        try:
            run(firebrand, "run", scratch / "refused.pt2", "--inputs", scratch / "refused.npz", "-o", scratch / "out.npz")
        except refused:
            yield "refusal", ""
        else:
            yield "accepted", f"{call[0]} of an input that PyTorch refuses ({str(error.error_regex)[:60]})"
