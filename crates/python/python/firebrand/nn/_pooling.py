"""Pooling, as functions: PyTorch's arguments over the ops of the table."""

import builtins

from .. import _firebrand as _C
from .. import _names

_ops = _names.functions("nn")


def _op(name):
    return _C.op_function(name, False)


def _pool(name, with_indices, input, return_indices, *args):
    if return_indices:
        return with_indices(input, *args)
    return _op(name)(input, *args)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest value of each window."""
    args = (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)
    return _pool("max_pool1d", _op("max_pool1d_with_indices"), input, return_indices, *args)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest value of each window."""
    args = (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)
    return _pool("max_pool2d", _ops["max_pool2d_with_indices"], input, return_indices, *args)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest value of each window."""
    args = (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)
    return _pool("max_pool3d", _ops["max_pool3d_with_indices"], input, return_indices, *args)


max_pool1d_with_indices = lambda *args, **kwargs: max_pool1d(*args, **{**kwargs, "return_indices": True})  # noqa: E731


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window."""
    return _op("avg_pool1d")(input, kernel_size, [] if stride is None else stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of each window."""
    return _ops["avg_pool2d"](
        input, kernel_size, [] if stride is None else stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of each window."""
    return _ops["avg_pool3d"](
        input, kernel_size, [] if stride is None else stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _output_size(size, input, dims):
    """Sizes of the output, those that are none taken from the input."""
    if isinstance(size, builtins.int):
        return [size] * dims
    if len(input.size()) <= len(size):
        raise ValueError(f"Input dimension should be at least {len(size) + 1}")
    return [d if v is None else v for v, d in zip(size, input.size()[-len(size) :])]


def adaptive_avg_pool2d(input, output_size):
    """Means of as many windows as asked for."""
    return _ops["adaptive_avg_pool2d"](input, _output_size(output_size, input, 2))


def adaptive_avg_pool3d(input, output_size):
    """Means of as many windows as asked for."""
    return _ops["adaptive_avg_pool3d"](input, _output_size(output_size, input, 3))


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """The largest values of as many windows as asked for."""
    found = _op("adaptive_max_pool1d")(input, output_size)
    return tuple(found) if return_indices else found[0]


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """The largest values of as many windows as asked for."""
    found = _ops["adaptive_max_pool2d"](input, _output_size(output_size, input, 2))
    return tuple(found) if return_indices else found[0]


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """The largest values of as many windows as asked for."""
    found = _ops["adaptive_max_pool3d"](input, _output_size(output_size, input, 3))
    return tuple(found) if return_indices else found[0]


def _fractional(name, dims, input, kernel_size, output_size, output_ratio, return_indices, samples):
    if output_size is None and output_ratio is None:
        raise ValueError(f"fractional_max_pool{dims}d requires specifying either an output_size or an output_ratio")
    if output_size is None:
        ratio = (output_ratio,) * dims if isinstance(output_ratio, builtins.float) else tuple(output_ratio)
        output_size = [builtins.int(n * r) for n, r in zip(input.shape[-dims:], ratio)]
    if samples is None:
        batch = 1 if input.dim() == dims + 1 else input.size(0)
        samples = _op("rand")(batch, input.size(-dims - 1), dims, dtype=input.dtype, device=input.device)
    found = _ops[name](input, kernel_size, output_size, samples)
    return tuple(found) if return_indices else found[0]


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The largest values of windows at random places."""
    return _fractional("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The largest values of windows at random places."""
    return _fractional("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """A power mean of each window."""
    out = avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * out.abs().relu()).mul(kernel_size).pow(1.0 / norm_type)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """A power mean of each window."""
    height, width = kernel_size if isinstance(kernel_size, (tuple, list)) else (kernel_size, kernel_size)
    out = avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * out.abs().relu()).mul(height * width).pow(1.0 / norm_type)


def _tuple_of(value, n):
    return (value,) * n if isinstance(value, builtins.int) else tuple(value)


def _unpool_size(input, kernel_size, stride, padding, output_size):
    spatial = input.size()[-len(kernel_size) :]
    default = [(d - 1) * s + k - 2 * p for d, s, k, p in zip(spatial, stride, kernel_size, padding)]
    if output_size is None:
        return default
    if len(output_size) == len(kernel_size) + 2:
        output_size = output_size[2:]
    if len(output_size) != len(kernel_size):
        raise ValueError(
            f"output_size should be a sequence containing {len(kernel_size)} or {len(kernel_size) + 2} elements, but it has a "
            f"length of '{len(output_size)}'"
        )
    for d, (wanted, usual, s) in enumerate(zip(output_size, default, stride)):
        low, high = usual - s, usual + s
        if not low < wanted < high:
            raise ValueError(f"invalid output_size '{output_size}' (dim {d} must be between {low} and {high})")
    return list(output_size)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Values back at the places they were taken from."""
    kernel, padding = _tuple_of(kernel_size, 1), _tuple_of(padding, 1)
    stride = kernel if stride is None else _tuple_of(stride, 1)
    size = _unpool_size(input, kernel, stride, padding, output_size)
    return _ops["max_unpool2d"](input.unsqueeze(-1), indices.unsqueeze(-1), [*size, 1]).squeeze(-1)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Values back at the places they were taken from."""
    kernel, padding = _tuple_of(kernel_size, 2), _tuple_of(padding, 2)
    stride = kernel if stride is None else _tuple_of(stride, 2)
    return _ops["max_unpool2d"](input, indices, _unpool_size(input, kernel, stride, padding, output_size))


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Values back at the places they were taken from."""
    kernel, padding = _tuple_of(kernel_size, 3), _tuple_of(padding, 3)
    stride = kernel if stride is None else _tuple_of(stride, 3)
    return _ops["max_unpool3d"](
        input, indices, _unpool_size(input, kernel, stride, padding, output_size), list(stride), list(padding)
    )
