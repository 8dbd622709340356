"""Function transforms that nest in any order, over nested tuples, lists and dictionaries of tensors."""

import functools

from . import _firebrand as _C
from ._firebrand import Tensor
from .autograd.grad_mode import _set_fwd_grad_enabled
from ._tree import broadcast, flatten, unflatten

__all__ = [
    "chunk_vmap",
    "combine_state_for_ensemble",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "make_functional",
    "make_functional_with_buffers",
    "stack_module_state",
    "vjp",
    "vmap",
]

_transforms = _C.transforms


def _need_tensors(leaves, transform, what):
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"{transform}: Expected {what} to be a Tensor or a nest of Tensors, found {type(leaf).__name__}")
    return leaves


def _positions(count, argnums):
    """Which arguments are meant, counted from the front."""
    if not isinstance(argnums, (int, tuple)) or isinstance(argnums, bool):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {argnums}")
    several = argnums if isinstance(argnums, tuple) else (argnums,)
    if not several:
        raise RuntimeError("argnums must be non-empty")
    for k in several:
        if not isinstance(k, int):
            raise RuntimeError(f"argnums must be int or a tuple of int: each must be int, got: {k}")
        if not -count <= k < count:
            raise RuntimeError(f"Got argnum={k}, but only {count} positional inputs")
    places = [k % count for k in several]
    if len(set(places)) != len(places):
        raise RuntimeError(f"argnums elements must be unique: {argnums}")
    return places


def _slice_argnums(args, argnums, as_tuple=True):
    """The arguments at these positions."""
    places = _positions(len(args), argnums)
    if isinstance(argnums, int):
        return (args[places[0]],) if as_tuple else args[places[0]]
    return tuple(args[k] for k in places)


def _chosen(args, argnums, transform):
    """The arguments to differentiate, and a function that puts others in their place."""
    places = _positions(len(args), argnums)
    several = isinstance(argnums, tuple)
    chosen = tuple(args[k] for k in places) if several else args[places[0]]

    def put(values):
        whole = [_own(arg) for arg in args]
        for k, value in zip(places, values if several else [values]):
            whole[k] = value
        return whole

    return chosen, put


def _own(tree):
    """An argument that is not differentiated, as the function's own: it may be written."""
    leaves, spec = flatten(tree)
    return unflatten([_transforms.argument(leaf) for leaf in leaves], spec)


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
            for leaf in aux:
                if not isinstance(leaf, Tensor):
                    raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
            self.aux_kept = [None if isinstance(v, Tensor) else v for v in aux]
            self.aux_is_tensor = [isinstance(v, Tensor) for v in aux]
            aux = [v for v in aux if isinstance(v, Tensor)]
        else:
            aux = []
        outputs, self.out_spec = flatten(found)
        if not outputs or found is None:
            raise RuntimeError(
                f"{self.transform}: Expected f to be a function that has non-empty output (got output = {found})"
            )
        for leaf in outputs:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(
                    f"{self.transform}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}"
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
    flat = _Flat(lambda args: func(*args), spec, "vjp(f, *primals)", has_aux)
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
    flat = _Flat(lambda values: func(*put(values), **kwargs), spec, "grad_and_value(f)(*args)", has_aux)
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
    return _jvp("jvp", func, primals, tangents, has_aux, strict)


def _jvp(name, func, primals, tangents, has_aux=False, strict=False):
    label = f"{name}(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{label}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    if not primals:
        raise RuntimeError(f"{label}: Expected primals to have at least one Tensor")
    leaves, spec = flatten(primals)
    directions, other = flatten(tangents)
    if spec != other:
        raise RuntimeError(f"{label}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {other}")
    for what, values in (("primals", leaves), ("tangents", directions)):
        for leaf in values:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"{label}: Expected {what} to only contain Tensors (at least one Tensor), got {type(leaf)}")
        if not values:
            raise RuntimeError(f"{label}: Expected {what} to have at least one Tensor")
    if strict:
        raise NotImplementedError("jvp(strict=True) is not supported")
    flat = _Flat(lambda args: func(*args), spec, label, has_aux)
    with _set_fwd_grad_enabled(True):
        found, pushed = _transforms.jvp(flat, leaves, directions)
    if has_aux:
        return flat.outputs(found), flat.outputs(pushed), flat.aux(found)
    return flat.outputs(found), flat.outputs(pushed)


def _unit_tensors(tensors):
    """For each tensor, one row per element of all tensors."""
    sizes = [t.numel() for t in tensors]
    total, start, blocks = sum(sizes), 0, []
    for t, size in zip(tensors, sizes):
        block = _C.op_overload("aten::zeros")((total, size), dtype=t.dtype, device=t.device)
        block.diagonal(-start).fill_(1)
        blocks.append(block.view((total, *t.shape)))
        start += size
    return blocks, sizes


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """The Jacobian, by reverse mode, at most `chunk_size` rows at a time."""
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def run(*args, **kwargs):
        chosen, put = _chosen(args, argnums, "jacrev")
        leaves, spec = flatten(chosen)
        _all_tensors(leaves, "jacrev", "inputs")
        found = vjp(lambda values: func(*put(values), **kwargs), chosen, has_aux=has_aux)
        outputs, out_spec = flatten(found[0])
        _all_tensors(outputs, "jacrev", "outputs")
        rows, sizes = _unit_tensors(outputs)

        def pull(*seeds):
            return found[1](unflatten(seeds, out_spec))

        if chunk_size == 1:
            # One row at a time needs no vmap, and what cannot be mapped runs too.
            each = [flatten(pull(*seeds)[0])[0] for seeds in zip(*(row.unbind(0) for row in rows))]
            columns = [_C.op_function("stack", False)(column) for column in zip(*each)]
        else:
            columns, _ = flatten(vmap(pull, chunk_size=chunk_size)(*rows)[0])
        grid = [[] for _ in outputs]
        for column, leaf in zip(columns, leaves):
            for cell, part, output in zip(grid, column.split(sizes, dim=0), outputs):
                cell.append(part.reshape((*output.shape, *leaf.shape)))
        result = unflatten([unflatten(row, spec) for row in grid], out_spec)
        return (result, found[2]) if has_aux else result

    return run


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The Jacobian, by forward mode."""

    @functools.wraps(func)
    def run(*args, **kwargs):
        chosen, put = _chosen(args, argnums, "jacfwd")
        leaves, spec = flatten(chosen)
        _all_tensors(leaves, "jacfwd", "inputs")
        columns, sizes = _unit_tensors(leaves)

        def push(*directions):
            tangents = unflatten(directions, spec)
            found = _jvp("jvp", lambda values: func(*put(values), **kwargs), (chosen,), (tangents,), has_aux)
            outputs, push.out_spec = flatten(found[0])
            _all_tensors(outputs, "jacfwd", "outputs")
            push.shapes = [output.shape for output in outputs]
            return (tuple(flatten(found[1])[0]), *found[2:])

        found = vmap(push, randomness=randomness)(*columns)
        rows = []
        for shape, pushed in zip(push.shapes, found[0]):
            parts = pushed.movedim(0, -1).split(sizes, dim=-1)
            rows.append([part.reshape((*shape, *leaf.shape)) for part, leaf in zip(parts, leaves)])
        result = unflatten([unflatten(row, spec) for row in rows], push.out_spec)
        if not has_aux:
            return result
        # The auxiliary result is that of each direction, and the same for all.
        aux, aux_spec = flatten(found[1])
        return result, unflatten([leaf[0] for leaf in aux], aux_spec)

    return run


def _all_tensors(leaves, name, what):
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{name}: Expected all {what} to be tensors but received argument of type {type(leaf).__name__}.")
        if leaf.is_complex():
            raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {k}")


def linearize(func, *primals):
    """The outputs of `func`, and a function that maps tangents at the primals to those of the outputs."""
    leaves, spec = flatten(primals)
    _need_tensors(leaves, "linearize", "primals")
    flat = _Flat(lambda args: func(*args), spec, "linearize(f, *primals)")
    found, pushforward = _transforms.linearize(flat, leaves)

    def push(*tangents):
        directions, other = flatten(tangents)
        if spec != other:
            raise RuntimeError(
                f"Expected the tangents {tangents} to have the same argspec as the primals {primals}"
            )
        for k, (direction, leaf) in enumerate(zip(directions, leaves)):
            for what in ("shape", "dtype", "device"):
                if getattr(direction, what) != getattr(leaf, what):
                    raise RuntimeError(
                        f"{what.capitalize()}:{getattr(direction, what)} with index {k} in flattened pytree doesn't match the {what} "
                        f"{getattr(leaf, what)} of the corresponding primal."
                    )
        return flat.outputs(pushforward(directions))

    return flat.outputs(found), push


def hessian(func, argnums=0):
    """The second derivatives of a function that returns one number."""
    return jacfwd(jacrev(func, argnums), argnums)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """Maps `func` over a dimension of its tensors, without a loop."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = getattr(func, "__name__", repr(func))
    label = f"vmap({name}, in_dims={in_dims}, ...)"

    @functools.wraps(func)
    def run(*args, **kwargs):
        if not isinstance(in_dims, (int, tuple)):
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
        given = in_dims
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
            raise ValueError(f"{label}(<inputs>): expected at least one Tensor to vmap over: in_dims are all None")
        if len(sizes) > 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} for the "
                "mapped dimension"
            )
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        shape, kept, same = None, [], {}

        def call(tensors):
            nonlocal shape, kept
            whole = list(leaves)
            for k, t in zip(places, tensors):
                whole[k] = t
            result = func(*unflatten(whole, spec), **kwargs)
            found, shape = flatten(result)
            wanted = placed(found)
            # What is not a tensor is given back as it is, where no dimension is asked for.
            kept = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in found]
            for leaf, dim in zip(found, wanted):
                if not isinstance(leaf, Tensor) and dim is not None:
                    raise ValueError(f"{label}(<inputs>): `{name}` must only return Tensors, got type {type(leaf)} as a return.")
            for leaf, dim in zip(found, wanted):
                rank = leaf.dim() + 1 if isinstance(leaf, Tensor) else 0
                if dim is not None and not -rank <= dim < rank:
                    raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
            chosen = [k for k, value in enumerate(kept) if value is None]
            for k in chosen:
                # An argument that is given back as it came is the very object.
                for place, t in zip(places, tensors):
                    if found[k] is t and dims[place] is not None and wanted[k] is not None:
                        rank = leaves[place].dim()
                        if dims[place] % rank == wanted[k] % rank:
                            same[k] = leaves[place]
            return [found[k] for k in chosen], [wanted[k] for k in chosen]

        def placed(found):
            """Where each result has the batch."""
            if not _is_dims(out_dims):
                raise ValueError(
                    f"{label}(<inputs>): `out_dims` must be an int, None or a python collection of ints representing where in the "
                    f"outputs the vmapped dimension should appear. Got out_dims={out_dims}."
                )
            wanted = tuple(out_dims) if isinstance(out_dims, list) else out_dims
            if wanted is None or isinstance(wanted, int):
                return [wanted] * len(found)
            if isinstance(wanted, tuple) and len(wanted) == 1 and shape.kind is None:
                wanted = wanted[0]
            dims = broadcast(wanted, shape)
            if dims is None or not all(dim is None or isinstance(dim, int) for dim in dims):
                raise ValueError(
                    f"{label}(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has structure "
                    f"{flatten(out_dims)[1]} but outputs has structure {shape}."
                )
            return dims

        found = _transforms.vmap(call, [leaves[k] for k in places], [dims[k] for k in places], randomness, chunk_size)
        tensors = iter(found)
        whole = [next(tensors) if value is None else value[0] for value in kept]
        if chunk_size is None:
            whole = [same.get(k, value) for k, value in enumerate(whole)]
        return unflatten(whole, shape)

    return run


def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
    """`vmap` over the samples in so many parts, one after the other."""
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks must be at least 1, got {chunks}")

    @functools.wraps(func)
    def run(*args, **kwargs):
        leaves, spec = flatten(args)
        dims = broadcast(in_dims, spec) or []
        sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims) if isinstance(leaf, Tensor) and isinstance(dim, int)]
        samples = -(-sizes[0] // chunks) if sizes and sizes[0] else None
        return vmap(func, in_dims, out_dims, randomness, chunk_size=samples)(*args, **kwargs)

    return run


def _is_dims(dims):
    if isinstance(dims, (tuple, list)):
        return all(_is_dims(d) for d in dims)
    if isinstance(dims, dict):
        return all(_is_dims(d) for d in dims.values())
    return dims is None or (isinstance(dims, int) and not isinstance(dims, bool))


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls a module with other tensors in the place of its parameters and buffers."""
    given = parameter_and_buffer_dicts
    if isinstance(given, (tuple, list)):
        if not all(isinstance(one, dict) for one in given):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [name for one in given for name in one]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ValueError(f"{', '.join(twice)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: t for one in given for name, t in one.items()}
    elif not isinstance(given, dict):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
        )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with module._replaced(given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def stack_module_state(models):
    """The parameters and buffers of several models of one class, stacked by name."""
    from .nn import Module

    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    stack = _C.op_function("stack", False)

    def stacked(named):
        found = {}
        for name, first in named(models[0]):
            tensors = [dict(named(m))[name] for m in models]
            if not all(t.requires_grad == first.requires_grad for t in tensors):
                raise RuntimeError(
                    f"Expected {name} from each model to have the same .requires_grad"
                )
            found[name] = stack([t.detach() for t in tensors]).requires_grad_(first.requires_grad)
        return found

    return stacked(Module.named_parameters), stacked(Module.named_buffers)


# ---- models as functions: the older interface


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """A function of parameters, buffers and inputs that calls a copy of the model, the parameters and the buffers."""
    import copy

    names, params = zip(*model.named_parameters(remove_duplicate=False)) if any(True for _ in model.parameters()) else ((), ())
    buffer_names, buffers = zip(*model.named_buffers(remove_duplicate=False)) if any(True for _ in model.buffers()) else ((), ())
    # A tensor that stands at several places is one parameter.
    kept = [k for k, p in enumerate(params) if all(p is not q for q in params[:k])]
    kept_buffers = [k for k, b in enumerate(buffers) if all(b is not c for c in buffers[:k])]
    names, buffer_names = [names[k] for k in kept], [buffer_names[k] for k in kept_buffers]
    inner = copy.deepcopy(model)

    def call(parameters, buffers, *args, **kwargs):
        state = {**dict(zip(names, parameters)), **dict(zip(buffer_names, buffers))}
        return functional_call(inner, state, args, kwargs)

    call.stateless_model = inner
    parameters = tuple(params[k].detach() if disable_autograd_tracking else params[k] for k in kept)
    return call, parameters, tuple(buffers[k] for k in kept_buffers)


def make_functional(model, disable_autograd_tracking=False):
    """A function of parameters and inputs that calls a copy of the model, and the parameters."""
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    call, parameters, _ = make_functional_with_buffers(model, disable_autograd_tracking)

    def without_buffers(parameters, *args, **kwargs):
        return call(parameters, (), *args, **kwargs)

    without_buffers.stateless_model = call.stateless_model
    return without_buffers, parameters


def combine_state_for_ensemble(models):
    """A function of stacked parameters, stacked buffers and inputs, and both."""
    models = list(models)
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    stack = _C.op_function("stack", False)
    calls, parameters, buffers = zip(*(make_functional_with_buffers(m) for m in models))
    return calls[0], tuple(stack(p) for p in zip(*parameters)), tuple(stack(b) for b in zip(*buffers))
