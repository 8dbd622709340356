"""Checkpointing: what backward needs is dropped and recomputed.

Selective checkpointing keeps the results of some ops: a mode around the first run stores what the policy names, and one around
the rerun hands it out again instead of calling the op.
"""

import contextlib
import enum
import warnings
from collections import defaultdict

from .. import _firebrand as _C
from .._firebrand import Tensor
from .._tree import flatten, map_tree, unflatten
from ._python_dispatch import TorchDispatchMode

__all__ = [
    "CheckpointError",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

CheckpointError = _C.CheckpointError

_EARLY_STOP = True
_DEBUG = None


class set_checkpoint_early_stop:
    """Whether recomputation stops at the last value that is needed."""

    def __init__(self, enable):
        self._enable = enable

    def __enter__(self):
        global _EARLY_STOP
        self._before, _EARLY_STOP = _EARLY_STOP, self._enable

    def __exit__(self, *_):
        global _EARLY_STOP
        _EARLY_STOP = self._before


class set_checkpoint_debug_enabled:
    """Whether differing runs are explained op by op, whatever `debug` says; `None` leaves it to the call."""

    def __init__(self, enabled):
        self._enabled = enabled

    def __enter__(self):
        global _DEBUG
        self._before, _DEBUG = _DEBUG, self._enabled

    def __exit__(self, *_):
        global _DEBUG
        _DEBUG = self._before


def noop_context_fn():
    """Contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function,
    *args,
    use_reentrant=None,
    context_fn=noop_context_fn,
    determinism_check="default",
    debug=False,
    preserve_rng_state=True,
    **kwargs,
):
    """Runs `function` without saving what its backward needs; it runs again during backward."""
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: the use_reentrant parameter should be passed explicitly. The default is True, and will change; "
            "use_reentrant=False is recommended",
            stacklevel=2,
        )
        use_reentrant = True
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be 'default' or 'none', found {determinism_check!r}")
    contexts = None if context_fn is noop_context_fn else tuple(context_fn())
    leaves, spec = flatten((args, kwargs))
    # A reentrant checkpoint looks only at tensors that are arguments themselves.
    if use_reentrant:
        leaves, spec = list(args), None
    places = [k for k, v in enumerate(leaves) if isinstance(v, Tensor)]
    kept = [None if k in set(places) else v for k, v in enumerate(leaves)]
    shape = None

    def run(tensors):
        nonlocal shape
        whole = list(kept)
        for k, t in zip(places, tensors):
            whole[k] = t
        given, words = (whole, {}) if use_reentrant else unflatten(whole, spec)
        result = function(*given, **words)
        found, out_spec = flatten(result)
        if shape is None:
            shape = (out_spec, [None if isinstance(v, Tensor) else v for v in found], [isinstance(v, Tensor) for v in found])
        return [v for v in found if isinstance(v, Tensor)]

    found = _C.run_checkpoint(
        run,
        [leaves[k] for k in places],
        use_reentrant,
        preserve_rng_state,
        determinism_check == "default",
        _EARLY_STOP,
        contexts,
        debug if _DEBUG is None else _DEBUG,
    )
    out_spec, others, is_tensor = shape
    tensors = iter(found)
    return unflatten([next(tensors) if yes else other for yes, other in zip(is_tensor, others)], out_spec)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Runs functions one after the other, in checkpointed segments; the last segment is not checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: the use_reentrant parameter should be passed explicitly. The default is True, and will "
            "change; use_reentrant=False is recommended",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def segment(first, last):
        def run(value):
            for k in range(first, last):
                value = functions[k](value)
            return value

        return run

    size, start = len(functions) // segments, 0
    for _ in range(segments - 1):
        part = segment(start, start + size)
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        start += size
    return segment(start, len(functions))(input)


# ---- selective checkpointing


class CheckpointPolicy(enum.Enum):
    """What becomes of the results of an op. `MUST` and `PREFER` do the same here."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy is told about the run."""

    def __init__(self, *, is_recompute):
        self.is_recompute = is_recompute


def _saved(policy):
    if isinstance(policy, bool):
        return policy
    return policy in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


# Ops that autograd itself calls when it saves a tensor, and ops that only look at one.
_IGNORED = {"aten::detach", "aten::sym_size", "aten::sym_stride", "aten::sym_numel", "aten::sym_storage_offset", "aten::is_pinned"}


class _Entry:
    """One stored result, with the version it had."""

    def __init__(self, value):
        self.val = value.detach() if isinstance(value, Tensor) else value
        self.version = value._version if isinstance(value, Tensor) else None

    def read(self, allow_mutation):
        if self.version is not None and not allow_mutation and self.val._version != self.version:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated; recompute it, or allow it with "
                "allow_cache_entry_mutation=True"
            )
        return self.val


class _CachingTorchDispatchMode(TorchDispatchMode):
    """Around the first run: stores what the policy names."""

    def __init__(self, policy, storage):
        self.policy, self.storage = policy, storage

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.name() in _IGNORED:
            return func(*args, **kwargs)
        policy = self.policy(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs)
        found = func(*args, **kwargs)
        if _saved(policy):
            self.storage[func].append(map_tree(_Entry, found))
        return found


class _CachedTorchDispatchMode(TorchDispatchMode):
    """Around a rerun: hands out what was stored, in the same order."""

    def __init__(self, policy, storage, allow_cache_entry_mutation):
        self.policy, self.storage, self.allow = policy, storage, allow_cache_entry_mutation

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.name() in _IGNORED:
            return func(*args, **kwargs)
        policy = self.policy(SelectiveCheckpointContext(is_recompute=True), func, *args, **kwargs)
        if not _saved(policy):
            return func(*args, **kwargs)
        if func not in self.storage:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        stored = self.storage[func]
        if not stored:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        return map_tree(lambda entry: entry.read(self.allow), stored.pop(0))


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """Contexts for `checkpoint(context_fn=)` that keep the results of the ops listed, or of those a policy names."""
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, _C.OpOverload):
                advice = ""
                if hasattr(op, "overloads"):
                    advice = "Please update the OpOverloadPacket to a specific OpOverload: " + ", ".join(op.overloads())
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {advice}")
        listed = list(policy_fn_or_list)

        def policy(ctx, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if op in listed else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage = defaultdict(list)
    return (
        _CachingTorchDispatchMode(policy, storage),
        _CachedTorchDispatchMode(policy, storage, allow_cache_entry_mutation),
    )
