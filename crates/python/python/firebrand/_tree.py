"""Nested tuples, lists and dictionaries as flat lists and back."""

from collections import OrderedDict, namedtuple

Spec = namedtuple("Spec", ["kind", "context", "children"])
_LEAF = Spec(None, None, ())


def _is_namedtuple(tree):
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def flatten(tree):
    """The leaves of a tree, and what is needed to build it again."""
    leaves = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree, leaves):
    if type(tree) in (tuple, list) or _is_namedtuple(tree):
        return Spec(type(tree), None, tuple(_flatten(child, leaves) for child in tree))
    if type(tree) in (dict, OrderedDict):
        return Spec(type(tree), tuple(tree), tuple(_flatten(child, leaves) for child in tree.values()))
    leaves.append(tree)
    return _LEAF


def unflatten(leaves, spec):
    """The tree with these leaves."""
    leaves = iter(leaves)
    return _unflatten(leaves, spec)


def _unflatten(leaves, spec):
    if spec.kind is None:
        return next(leaves)
    children = [_unflatten(leaves, child) for child in spec.children]
    if spec.context is not None:
        return spec.kind(zip(spec.context, children))
    return spec.kind(*children) if hasattr(spec.kind, "_fields") else spec.kind(children)


def broadcast(prefix, spec):
    """One value per leaf from a tree that may end earlier; `None` if it does not fit."""
    if spec.kind is None:
        return [prefix]
    if not isinstance(prefix, (tuple, list, dict)):
        return [prefix] * _count(spec)
    if not isinstance(prefix, dict) and not isinstance(prefix, spec.kind):
        return None
    values = list(prefix.values()) if isinstance(prefix, dict) else list(prefix)
    if len(values) != len(spec.children) or isinstance(prefix, dict) != (spec.context is not None):
        return None
    found = [broadcast(value, child) for value, child in zip(values, spec.children)]
    return None if any(f is None for f in found) else [v for f in found for v in f]


def _count(spec):
    return 1 if spec.kind is None else sum(_count(child) for child in spec.children)


def map_tree(function, tree):
    """The tree with `function` applied to its leaves."""
    leaves, spec = flatten(tree)
    return unflatten([function(leaf) for leaf in leaves], spec)
