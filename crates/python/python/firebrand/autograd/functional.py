"""Jacobians, Hessians and their products with vectors, of functions of tensors.

Inputs and outputs are a tensor or a tuple of tensors. With `create_graph` the results can be differentiated again; with `strict`
it is an error if an output does not depend on an input, which otherwise gives zeros.
"""

from .. import _firebrand as _C
from .._firebrand import Tensor
from .grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values, what, name):
    """The tensors as a tuple, and whether they came in one."""
    if what == "inputs":
        _refuse_inside_transform()
    several = isinstance(values, tuple)
    found = values if several else (values,)
    for k, value in enumerate(found):
        if not isinstance(value, Tensor):
            if several:
                raise TypeError(
                    f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the value at index {k} has "
                    f"type {type(value)}."
                )
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the given {what} has type {type(value)}."
            )
    return several, found


def _refuse_inside_transform():
    if _C.transforms.active():
        raise RuntimeError(
            "You are attempting to use firebrand.autograd.functional.* APIs inside of a function transform. This is unsupported, "
            "please use the transforms of firebrand.func (e.g. grad, vjp, jacrev, jacfwd, hessian) instead."
        )


def _fresh(tensors, create_graph, required=True):
    """Tensors to differentiate with respect to: in the graph of the given ones, or cut off from it."""
    fresh = []
    for t in tensors:
        if create_graph and t.requires_grad:
            fresh.append(t.view_as(t))
        else:
            fresh.append(t.detach().requires_grad_(required))
    return tuple(fresh)


def _done(tensors, several, create_graph):
    found = tensors if create_graph else tuple(t.detach() for t in tensors)
    return found if several else found[0]


def _check_vector(v, like, like_is_tuple):
    if len(v) != len(like):
        if like_is_tuple:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for k, (one, other) in enumerate(zip(v, like)):
        if one.size() != other.size():
            where = f"Entry {k} in " if like_is_tuple else ""
            raise RuntimeError(f"{where}v has invalid size: should be {other.size()} but got {one.size()}.")


# What must require grad in strict mode, by the stage that computed it.
_DEPENDENCE = {
    "outputs": "Output {k} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {k} is independent of the inputs of the user-provided function. This is not "
    "allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to input {k} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice differentiable "
    "and that the jacobian depends on the inputs (this would be violated by a linear function for example).",
}

# What an undefined gradient means in strict mode, by the stage that computed it.
_INDEPENDENCE = {
    "back": "The output of the user-provided function is independent of input {k}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {k} in the grad_outputs when using the double "
    "backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {k}. This is not allowed in strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {k} in the grad_jacobian. This is not "
    "allowed in strict mode as it prevents from using the double backward trick to replace forward mode AD.",
}


def _require(tensors, what, strict):
    if strict:
        for k, t in enumerate(tensors):
            if t is None:
                raise RuntimeError(_INDEPENDENCE["back"].format(k=k))
            if not t.requires_grad:
                raise RuntimeError(_DEPENDENCE[what].format(k=k))


def _filled(grads, like, strict, create_graph, stage):
    """Zeros for gradients that are undefined, or an error in strict mode."""
    whole = []
    for k, (grad, other) in enumerate(zip(grads, like)):
        if grad is None:
            if strict:
                raise RuntimeError(_INDEPENDENCE[stage].format(k=k))
            grad = other.new_zeros(other.shape)
        elif strict and create_graph and not grad.requires_grad:
            what = "jacobian" if stage in ("back", "back_trick") else "hessian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {k}. This is not allowed in strict mode when "
                "create_graph=True."
            )
        whole.append(grad)
    return tuple(whole)


def _gradients(outputs, inputs, seeds, create_graph=False, retain_graph=None, batched=False):
    """Gradients of those outputs that have any; none for inputs that no output depends on."""
    seeds = (None,) * len(outputs) if seeds is None else seeds
    used = [(o, s) for o, s in zip(outputs, seeds) if o is not None and o.requires_grad]
    if not used:
        return (None,) * len(inputs)
    return _C.run_grad(
        [o for o, _ in used], list(inputs), [s for _, s in used], retain_graph, create_graph, True, batched, False
    )


def _seed(v, outputs, outputs_are_tuple, message):
    if v is not None:
        _, v = _tuple(v, "v", message[0])
        v = _fresh(v, False, required=False) if not message[2] else v
        _check_vector(v, outputs, outputs_are_tuple)
        return v
    if len(outputs) != 1 or outputs[0].nelement() != 1:
        raise RuntimeError(message[1])
    return (outputs[0].new_ones(outputs[0].shape),)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs of `func` and the product of the vector `v` with its Jacobian."""
    with enable_grad():
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "vjp")
        inputs = _fresh(inputs, create_graph)
        outputs_are_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "vjp")
        _require(outputs, "outputs", strict)
        text = "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
        v = _seed(v, outputs, outputs_are_tuple, ("vjp", text, create_graph))
    with enable_grad() if create_graph else _Same():
        found = _gradients(outputs, inputs, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, "back")
    return _done(outputs, outputs_are_tuple, create_graph), _done(found, inputs_are_tuple, create_graph)


class _Same:
    """The mode as it is."""

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The outputs of `func` and the product of its Jacobian with the vector `v`, by differentiating twice."""
    with enable_grad():
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "jvp")
        inputs = _fresh(inputs, create_graph)
        text = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
        v = _seed(v, inputs, inputs_are_tuple, ("jvp", text, create_graph))
        outputs_are_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "jvp")
        _require(outputs, "outputs", strict)
        # The Jacobian-transpose product is linear in its cotangents; its derivative with respect to them is the product we want.
        cotangents = tuple(o.new_zeros(o.shape).requires_grad_() for o in outputs)
        pulled = _gradients(outputs, inputs, cotangents, create_graph=True)
        _require(pulled, "grad_inputs", strict)
    with enable_grad() if create_graph else _Same():
        found = _gradients(pulled, cotangents, v, create_graph)
        found = _filled(found, outputs, strict, create_graph, "back_trick")
    return _done(outputs, outputs_are_tuple, create_graph), _done(found, outputs_are_tuple, create_graph)


def _unit_vectors(outputs):
    """For each output, one row per element of all outputs."""
    sizes = [o.nelement() for o in outputs]
    total, start, blocks = sum(sizes), 0, []
    for output, size in zip(outputs, sizes):
        block = output.new_zeros((total, size))
        block.diagonal(-start).fill_(1)
        blocks.append(block.view((total, *output.shape)))
        start += size
    return tuple(blocks)


def _jacobian_forward(func, inputs, inputs_are_tuple):
    from ..func import vmap
    from . import forward_ad

    details = {}

    def push(tangents):
        with forward_ad.dual_level():
            duals = tuple(forward_ad.make_dual(x, t.view_as(x)) for x, t in zip(inputs, tangents))
            several, outputs = _tuple(func(*duals), "outputs of the user-provided function", "jacobian")
            details["several"] = several
            pushed, primals = [], []
            for output in outputs:
                primal, tangent = forward_ad.unpack_dual(output)
                primals.append(primal)
                pushed.append(tangent if tangent is not None else primal.new_zeros(primal.shape))
            details["shapes"] = [p.shape for p in primals]
            return tuple(pushed)

    columns = vmap(push)(_unit_vectors(inputs))
    sizes, rows = [x.nelement() for x in inputs], []
    for shape, column in zip(details["shapes"], columns):
        parts = column.movedim(0, -1).split(sizes, dim=-1)
        rows.append(tuple(part.reshape((*shape, *x.shape)) for part, x in zip(parts, inputs)))
    return _grid(tuple(rows), details["several"], inputs_are_tuple)


def _grid(rows, rows_are_tuple, columns_are_tuple):
    """Rows by outputs, columns by inputs; what was one tensor has no tuple."""
    rows = rows if columns_are_tuple else tuple(row[0] for row in rows)
    return rows if rows_are_tuple else rows[0]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian: for each output and each input a tensor of both shapes, one after the other."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError("Expected strategy to be either 'forward-mode' or 'reverse-mode'.")
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError("jacobian(create_graph=True, strategy='forward-mode') is not supported")
        if strict:
            raise RuntimeError("strict=True and strategy='forward-mode' are not supported together.")
        if not vectorize:
            raise NotImplementedError("jacobian(strategy='forward-mode') needs vectorize=True")
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "jacobian")
        return _jacobian_forward(func, inputs, inputs_are_tuple)
    if strict and vectorize:
        raise RuntimeError("strict=True and vectorize=True are not supported together.")
    with enable_grad():
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "jacobian")
        inputs = _fresh(inputs, create_graph)
        outputs_are_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "jacobian")
        _require(outputs, "outputs", strict)
        if vectorize:
            rows = _rows_at_once(outputs, inputs, create_graph)
        else:
            rows = _rows_one_by_one(outputs, inputs, create_graph, strict)
        if not create_graph:
            rows = tuple(tuple(t.detach() for t in row) for row in rows)
        return _grid(rows, outputs_are_tuple, inputs_are_tuple)


def _rows_at_once(outputs, inputs, create_graph):
    sizes = [o.nelement() for o in outputs]
    flat = tuple(o.reshape(-1) for o in outputs)
    units = tuple(unit.reshape(unit.shape[0], -1) for unit in _unit_vectors(outputs))
    found = _gradients(flat, inputs, units, create_graph, retain_graph=create_graph or None, batched=True)
    columns = []
    for grad, x in zip(found, inputs):
        columns.append(x.new_zeros((sum(sizes), *x.shape)) if grad is None else grad)
    rows = [[] for _ in outputs]
    for column, x in zip(columns, inputs):
        for row, part, output in zip(rows, column.split(sizes, dim=0), outputs):
            row.append(part.view((*output.shape, *x.shape)))
    return tuple(map(tuple, rows))


def _rows_one_by_one(outputs, inputs, create_graph, strict):
    from .._firebrand import op_function

    stack, rows = op_function("stack", False), []
    for i, output in enumerate(outputs):
        row = [[] for _ in inputs]
        flat = output.reshape(-1)
        for j in range(output.nelement()):
            found = _gradients((flat[j],), inputs, None, create_graph, retain_graph=True)
            for k, (grad, x) in enumerate(zip(found, inputs)):
                if grad is None:
                    if strict:
                        raise RuntimeError(
                            f"Output {i} of the user-provided function is independent of input {k}. This is not allowed in strict mode."
                        )
                    grad = x.new_zeros(x.shape)
                elif strict and create_graph and not grad.requires_grad:
                    raise RuntimeError(
                        f"The jacobian of the user-provided function is independent of input {k}. This is not allowed in strict mode "
                        "when create_graph=True."
                    )
                row[k].append(grad)
        whole = []
        for parts, x in zip(row, inputs):
            whole.append(stack(parts, dim=0).view((*output.shape, *x.shape)) if parts else x.new_zeros((*output.shape, *x.shape)))
        rows.append(tuple(whole))
    return tuple(rows)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function that returns one number: for each pair of inputs a tensor of both shapes."""
    inputs_are_tuple, inputs = _tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError("Expected strategy to be either 'forward-mode' or 'reverse-mode'.")

    def checked(*args):
        several, outputs = _tuple(func(*args), "outputs of the user-provided function", "hessian")
        _require(outputs, "outputs", strict)
        if several:
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if outputs[0].nelement() != 1:
            raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")
        return outputs[0].reshape(())

    def first(*args):
        if outer_jacobian_strategy == "forward-mode":
            # Forward mode needs a graph that hangs on the duals.
            args = tuple(x.detach().requires_grad_() if not x.requires_grad else x for x in args)
        found = jacobian(checked, args, create_graph=True)
        _require(found, "jacobian", strict)
        return found

    if outer_jacobian_strategy == "forward-mode":
        from ..func import jacfwd, jacrev

        if strict:
            raise RuntimeError("strict=True and strategy='forward-mode' are not supported together.")
        places = tuple(range(len(inputs)))
        found = jacfwd(jacrev(checked, places), places)(*inputs)
    else:
        found = jacobian(
            first, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize, strategy=outer_jacobian_strategy
        )
    return _grid(found, inputs_are_tuple, inputs_are_tuple)


def _scalar(outputs, several, name):
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """The output of `func` and the product of the vector `v` with its Hessian."""
    with enable_grad():
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "vhp")
        inputs = _fresh(inputs, create_graph)
        text = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
        v = _seed(v, inputs, inputs_are_tuple, ("vhp", text, create_graph))
        several, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "vhp")
        _require(outputs, "outputs", strict)
        _scalar(outputs, several, "vhp")
        first = _gradients(outputs, inputs, None, create_graph=True)
        _require(first, "jacobian", strict)
    with enable_grad() if create_graph else _Same():
        found = _gradients(first, inputs, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, "double_back")
    return _done(outputs, several, create_graph), _done(found, inputs_are_tuple, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The output of `func` and the product of its Hessian with the vector `v`, by differentiating three times."""
    with enable_grad():
        inputs_are_tuple, inputs = _tuple(inputs, "inputs", "hvp")
        inputs = _fresh(inputs, create_graph)
        text = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
        v = _seed(v, inputs, inputs_are_tuple, ("hvp", text, create_graph))
        several, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "hvp")
        _require(outputs, "outputs", strict)
        _scalar(outputs, several, "hvp")
        first = _gradients(outputs, inputs, None, create_graph=True)
        _require(first, "jacobian", strict)
        cotangents = tuple(x.new_zeros(x.shape).requires_grad_() for x in inputs)
        pulled = _gradients(first, inputs, cotangents, create_graph=True)
        _require(pulled, "grad_inputs", strict)
    with enable_grad() if create_graph else _Same():
        found = _gradients(pulled, cotangents, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, "double_back_trick")
    return _done(outputs, several, create_graph), _done(found, inputs_are_tuple, create_graph)
