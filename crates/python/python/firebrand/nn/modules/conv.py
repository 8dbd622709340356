"""Convolutions and transposed convolutions of sequences, images and volumes."""

import math

from .. import functional as F
from .. import init
from ..parameter import Parameter, _empty
from .module import Module
from .utils import _ntuple, _reverse_repeat_tuple

_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    _dims = 0

    def __init__(
        self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias,
        padding_mode, device=None, dtype=None,
    ):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {sorted(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding = transposed, output_padding
        self.groups, self.padding_mode = groups, padding_mode
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(dilation, kernel_size)]
            self._reversed_padding_repeated_twice = [n for t in reversed(total) for n in (t // 2, t - t // 2)]
        elif padding == "valid":
            self._reversed_padding_repeated_twice = [0, 0] * len(kernel_size)
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(self.padding, 2)
        ends = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(_empty(*ends, *kernel_size, dtype=dtype, device=device))
        if bias:
            self.bias = Parameter(_empty(out_channels, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new parameters."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        n = len(self.kernel_size)
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
        padding_mode="zeros", device=None, dtype=None,
    ):
        each = _ntuple(self._dims)
        padding = padding if isinstance(padding, str) else each(padding)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), padding, each(dilation), False, each(0), groups, bias,
            padding_mode, device, dtype,
        )

    def _conv_forward(self, input, weight, bias):
        convolve = getattr(F, f"conv{self._dims}d")
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return convolve(input, weight, bias, self.stride, (0,) * self._dims, self.dilation, self.groups)
        return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """A convolution of sequences."""

    _dims = 1


class Conv2d(_Conv):
    """A convolution of images."""

    _dims = 2


class Conv3d(_Conv):
    """A convolution of volumes."""

    _dims = 3


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
        padding_mode="zeros", device=None, dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation), True,
            each(output_padding), groups, bias, padding_mode, device, dtype,
        )

    def _output_padding(self, input, output_size):
        """How much is added at one side to get the size that was asked for."""
        n = self._dims
        if output_size is None:
            return self.output_padding
        has_batch = input.dim() == n + 2
        extra = 2 if has_batch else 1
        if len(output_size) == n + extra:
            output_size = output_size[extra:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {n + extra} elements (got "
                f"{len(output_size)})"
            )
        low = [
            (input.size(d + extra) - 1) * self.stride[d] - 2 * self.padding[d] + self.dilation[d] * (self.kernel_size[d] - 1) + 1
            for d in range(n)
        ]
        high = [a + s - 1 for a, s in zip(low, self.stride)]
        if any(not a <= size <= b for size, a, b in zip(output_size, low, high)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {low} to {high} (for an input of "
                f"{input.size()[2:]})"
            )
        return tuple(size - a for size, a in zip(output_size, low))

    def forward(self, input, output_size=None):
        return getattr(F, f"conv_transpose{self._dims}d")(
            input, self.weight, self.bias, self.stride, self.padding, self._output_padding(input, output_size), self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution of sequences."""

    _dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution of images."""

    _dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution of volumes."""

    _dims = 3
