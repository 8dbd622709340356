"""Gradients of convolutions, by themselves."""

from .. import _firebrand as _C


def _many(value, n):
    return list(value) if isinstance(value, (tuple, list)) else [value] * n


def _backward(input, weight, grad_output, n, stride, padding, dilation, groups, wanted):
    """One of the gradients of a convolution over `n` dimensions."""
    found = _C.op_overload("aten::convolution_backward")(
        grad_output, input, weight, None, _many(stride, n), _many(padding, n), _many(dilation, n), False, [0] * n, groups,
        [wanted == 0, wanted == 1, False],
    )
    return found[wanted]


def _pair(n):
    def of_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        input = grad_output.new_empty((1,)).expand(tuple(input_size))
        return _backward(input, weight, grad_output, n, stride, padding, dilation, groups, 0)

    def of_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        weight = grad_output.new_empty((1,)).expand(tuple(weight_size))
        return _backward(input, weight, grad_output, n, stride, padding, dilation, groups, 1)

    of_input.__name__, of_weight.__name__ = f"conv{n}d_input", f"conv{n}d_weight"
    of_input.__doc__ = f"The gradient of a convolution over {n} dimensions with respect to its input."
    of_weight.__doc__ = f"The gradient of a convolution over {n} dimensions with respect to its weight."
    return of_input, of_weight


conv1d_input, conv1d_weight = _pair(1)
conv2d_input, conv2d_weight = _pair(2)
conv3d_input, conv3d_weight = _pair(3)
