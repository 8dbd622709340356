"""The graph: nodes, edges, hooks on several gradients and on saved tensors."""

from collections import namedtuple

from .. import _firebrand as _C


class _NodeType(type):
    """What recorded operations are instances of, whatever their classes."""

    def __instancecheck__(cls, value):
        return isinstance(value, _C.Node)

    def __subclasscheck__(cls, other):
        return other is cls or issubclass(other, _C.Node)


class Node(metaclass=_NodeType):
    """A recorded operation: `name`, `next_functions`, `metadata`, `register_hook`, `register_prehook`."""


GradientEdge = namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=[None])

InputMetadata = namedtuple("InputMetadata", ["shape", "dtype", "device"])


def get_gradient_edge(tensor):
    """The node that receives the gradient of a tensor, and at which of its inputs."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node, output_nr = _C.gradient_edge(tensor)
    return GradientEdge(node, output_nr, None)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls `fn` once per run: with all gradients of the tensors, or with the first that arrives."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    return _C.register_multi_grad_hook(list(tensors), fn, mode == "any")


def increment_version(tensor):
    """Counts a write that was made by other means."""
    _C.increment_version([tensor] if isinstance(tensor, _C.Tensor) else list(tensor))


class saved_tensors_hooks:
    """Every tensor that is saved goes through `pack_hook`, and through `unpack_hook` when it is read."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self):
        self._scope = _C.SavedHooksScope(self.pack_hook, self.unpack_hook)
        return self

    def __exit__(self, *_):
        self._scope.leave()


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in host memory, where they are already; with `pin_memory`, copies of them."""

    def __init__(self, pin_memory=False, device_type=None):
        super().__init__(lambda t: t.clone() if pin_memory else t.detach(), lambda t: t)


class disable_saved_tensors_hooks:
    """Opening a scope of hooks fails with this message."""

    def __init__(self, error_message):
        self._message = error_message

    def __enter__(self):
        self._scope = _C.DisabledHooksScope(self._message)

    def __exit__(self, *_):
        self._scope.leave()


def current_node():
    """The node that runs on this thread, if one does."""
    return _C.current_node()


class _MutationContext:
    """What saved tensors of a block became."""

    def __init__(self, scope):
        self._scope = scope

    def counts(self):
        """How many saved tensors were cloned because they were about to be written, and how many were not."""
        return self._scope.counts()

    def clear(self):
        """Drops everything that was saved."""
        self._scope.clear()


class allow_mutation_on_saved_tensors:
    """Tensors that are saved in the block may be written in it: they are cloned before."""

    def __enter__(self):
        self._scope = _C.MutationScope()
        return _MutationContext(self._scope)

    def __exit__(self, *_):
        self._scope.leave()


class _unsafe_preserve_version_counter:
    """Writes of the block leave no trace in the versions of tensors."""

    def __init__(self, tensors):
        self._tensors = (tensors,) if isinstance(tensors, _C.Tensor) else tuple(tensors)
        self._versions = [t._version for t in self._tensors]

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _C.unsafe_set_version_counter(list(self._tensors), self._versions)
