"""Function transforms that nest in any order, over nested tuples, lists and dictionaries of tensors."""

import functools

from . import _firebrand as _C
from ._firebrand import Tensor
from ._tree import broadcast, flatten, unflatten

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"]

_transforms = _C.transforms


def _need_tensors(leaves, transform, what):
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"{transform}: Expected {what} to be a Tensor or a nest of Tensors, found {type(leaf).__name__}")
    return leaves


def _chosen(args, argnums, transform):
    """The arguments to differentiate, and a function that puts others in their place."""
    several = isinstance(argnums, (tuple, list))
    places = []
    for k in argnums if several else [argnums]:
        if not isinstance(k, int) or not -len(args) <= k < len(args):
            raise RuntimeError(f"{transform}: Got argnum={k}, but only {len(args)} positional inputs")
        places.append(k % len(args))
    if several and not places:
        raise RuntimeError("argnums must be non-empty")
    if len(set(places)) != len(places):
        raise RuntimeError(f"argnums elements must be unique: {argnums}")
    chosen = tuple(args[k] for k in places) if several else args[places[0]]

    def put(values):
        whole = list(args)
        for k, value in zip(places, values if several else [values]):
            whole[k] = value
        return whole

    return chosen, put


class _Flat:
    """A function of trees as one of flat lists; remembers the tree it returned."""

    def __init__(self, call, spec, transform, has_aux=False):
        self.call, self.spec, self.transform, self.has_aux = call, spec, transform, has_aux

    def __call__(self, leaves):
        found = self.call(unflatten(leaves, self.spec))
        if self.has_aux:
            if not isinstance(found, tuple) or len(found) != 2:
                raise RuntimeError(
                    f"{self.transform}: output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            found, aux = found
            aux, self.aux_spec = flatten(aux)
            self.aux_kept = [None if isinstance(v, Tensor) else v for v in aux]
            self.aux_is_tensor = [isinstance(v, Tensor) for v in aux]
            aux = [v for v in aux if isinstance(v, Tensor)]
        else:
            aux = []
        outputs, self.out_spec = flatten(found)
        for leaf in outputs:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(
                    f"{self.transform}: Expected f(*args) to return only tensors, got unsupported type {type(leaf)}"
                )
        self.count = len(outputs)
        return outputs + aux

    def outputs(self, leaves):
        return unflatten(leaves[: self.count], self.out_spec)

    def aux(self, leaves):
        tensors = iter(leaves[self.count :])
        whole = [next(tensors) if yes else kept for yes, kept in zip(self.aux_is_tensor, self.aux_kept)]
        return unflatten(whole, self.aux_spec)


def vjp(func, *primals, has_aux=False):
    """The outputs of `func`, and a function from their cotangents to those of the inputs."""
    if not primals:
        raise ValueError("vjp(f, *primals): expected at least one primal")
    leaves, spec = flatten(primals)
    _need_tensors(leaves, "vjp", "primals")
    flat = _Flat(lambda args: func(*args), spec, "vjp", has_aux)
    found, pullback = _transforms.vjp(flat, leaves)

    def pull(*cotangents):
        given, given_spec = flatten(cotangents[0] if len(cotangents) == 1 else cotangents)
        if given_spec != flat.out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function."
            )
        _need_tensors(given, "vjp", "cotangents")
        return unflatten(pullback(given + [_zeros_like(aux) for aux in found[flat.count :]]), spec)

    if has_aux:
        return flat.outputs(found), pull, flat.aux(found)
    return flat.outputs(found), pull


def _zeros_like(t):
    return _C.op_overload("aten::zeros_like")(t)


def _ones_like(t):
    return _C.op_overload("aten::ones_like")(t)


def _grad_and_value(transform, func, argnums, has_aux, args, kwargs):
    chosen, put = _chosen(args, argnums, transform)
    leaves, spec = flatten(chosen)
    _need_tensors(leaves, transform, "the arguments to differentiate")
    flat = _Flat(lambda values: func(*put(values), **kwargs), spec, transform, has_aux)
    found, pullback = _transforms.vjp(flat, leaves)
    if flat.out_spec.kind is not None:
        raise RuntimeError("Expected the function given to grad_and_value to return a single tensor")
    output = found[0]
    if output.dim() != 0:
        raise RuntimeError(
            f"grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} dims. "
            "Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    seeds = [_ones_like(output)] + [_zeros_like(aux) for aux in found[1:]]
    grads = unflatten(pullback(seeds), spec)
    return grads, output, (flat.aux(found) if has_aux else None)


def grad(func, argnums=0, has_aux=False):
    """The gradient of a function that returns one number."""

    @functools.wraps(func)
    def run(*args, **kwargs):
        grads, _, aux = _grad_and_value("grad", func, argnums, has_aux, args, kwargs)
        return (grads, aux) if has_aux else grads

    return run


def grad_and_value(func, argnums=0, has_aux=False):
    """The gradient of a function that returns one number, and the number."""

    @functools.wraps(func)
    def run(*args, **kwargs):
        grads, value, aux = _grad_and_value("grad_and_value", func, argnums, has_aux, args, kwargs)
        return (grads, (value, aux)) if has_aux else (grads, value)

    return run


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The outputs of `func`, and their tangents."""
    if strict:
        raise NotImplementedError("jvp(strict=True) is not supported")
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples")
    leaves, spec = flatten(primals)
    directions, other = flatten(tangents)
    if spec != other:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same python structure.")
    _need_tensors(leaves, "jvp", "primals")
    _need_tensors(directions, "jvp", "tangents")
    flat = _Flat(lambda args: func(*args), spec, "jvp", has_aux)
    found, pushed = _transforms.jvp(flat, leaves, directions)
    if has_aux:
        return flat.outputs(found), flat.outputs(pushed), flat.aux(found)
    return flat.outputs(found), flat.outputs(pushed)


def _jacobian(transform, name, func, argnums, has_aux, chunk_size):
    if has_aux:
        raise NotImplementedError(f"{name}(has_aux=True) is not supported")
    if chunk_size is not None:
        raise NotImplementedError(f"{name}(chunk_size=...) is not supported")

    @functools.wraps(func)
    def run(*args, **kwargs):
        chosen, put = _chosen(args, argnums, name)
        leaves, spec = flatten(chosen)
        _need_tensors(leaves, name, "the arguments to differentiate")
        flat = _Flat(lambda values: func(*put(values), **kwargs), spec, name)
        rows = transform(flat, leaves)
        return unflatten([unflatten(row, spec) for row in rows], flat.out_spec)

    return run


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None):
    """The Jacobian, by reverse mode."""
    return _jacobian(_transforms.jacrev, "jacrev", func, argnums, has_aux, chunk_size)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The Jacobian, by forward mode."""
    return _jacobian(_transforms.jacfwd, "jacfwd", func, argnums, has_aux, None)


def hessian(func, argnums=0):
    """The second derivatives of a function that returns one number."""
    return jacfwd(jacrev(func, argnums), argnums)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """Maps `func` over a dimension of its tensors, without a loop."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    label = f"vmap({getattr(func, '__name__', repr(func))}, in_dims={in_dims}, ...)"

    @functools.wraps(func)
    def run(*args, **kwargs):
        if not isinstance(in_dims, (int, tuple, list)):
            raise ValueError(
                f"{label}(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
                f"inputs, got: {type(in_dims)}."
            )
        if not args:
            raise ValueError(
                f"{label}(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function "
                "with no inputs. The latter is unsupported."
            )
        leaves, spec = flatten(args)
        given = tuple(in_dims) if isinstance(in_dims, list) else in_dims
        dims = broadcast(given, spec)
        if dims is None:
            raise ValueError(
                f"{label}(<inputs>): in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{given} but inputs has a different one."
            )
        for leaf, dim in zip(leaves, dims):
            if dim is not None and not isinstance(dim, int):
                raise ValueError(
                    f"{label}(<inputs>): Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
                )
            if isinstance(dim, int) and not isinstance(leaf, Tensor):
                raise ValueError(
                    f"{label}(<inputs>): Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                    "non-Tensor arguments, please use None as the respective in_dim"
                )
            if dim is not None and not -leaf.dim() <= dim < leaf.dim():
                raise ValueError(
                    f"{label}(<inputs>): Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                    f"{leaf.dim()} so expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
                )
        sizes = {leaf.shape[dim] for leaf, dim in zip(leaves, dims) if dim is not None}
        if not sizes:
            raise ValueError(f"{label}(<inputs>): At least one of the inputs must have a batch dimension: in_dims are all None")
        if len(sizes) > 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} for the "
                "mapped dimension"
            )
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        shape = None

        def call(tensors):
            nonlocal shape
            whole = list(leaves)
            for k, t in zip(places, tensors):
                whole[k] = t
            found, shape = flatten(func(*unflatten(whole, spec), **kwargs))
            for leaf in found:
                if not isinstance(leaf, Tensor):
                    raise ValueError(
                        f"{label}: `{getattr(func, '__name__', func)}` must only return Tensors, got type {type(leaf)} as a return."
                    )
            return found

        found = _transforms.vmap(call, [leaves[k] for k in places], [dims[k] for k in places], randomness, chunk_size)
        wanted = broadcast(tuple(out_dims) if isinstance(out_dims, list) else out_dims, shape)
        if wanted is None:
            raise ValueError(f"{label}(<inputs>): out_dims is not compatible with the structure of `outputs`.")
        moved = []
        for t, dim in zip(found, wanted):
            if dim is None:
                raise NotImplementedError("vmap(out_dims=None): results always have the batch; take result[0]")
            moved.append(t if dim == 0 else t.movedim(0, dim))
        return unflatten(moved, shape)

    return run


def functional_call(module, parameters, args=None, kwargs=None):
    """Calls a module with other tensors in the place of its parameters and buffers."""
    if isinstance(parameters, (tuple, list)):
        parameters = {name: t for one in parameters for name, t in one.items()}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with module._replaced(parameters):
        return module(*args, **(kwargs or {}))
