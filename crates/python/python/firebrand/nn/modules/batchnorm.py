"""Layers that normalize."""

import numbers

from ... import _firebrand as _C
from .. import functional as F
from .. import init
from ..parameter import Parameter, _empty
from .module import Module


class _NormBase(Module):
    """Statistics that run along, and an affine map."""

    _version = 2

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None
    ):
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(_empty(num_features, **where)) if affine else None)
        self.register_parameter("bias", Parameter(_empty(num_features, **where)) if affine else None)
        if track_running_stats:
            self.register_buffer("running_mean", _C.op_function("zeros", False)(num_features, **where))
            self.register_buffer("running_var", _C.op_function("ones", False)(num_features, **where))
            self.register_buffer("num_batches_tracked", _C.tensor(0, dtype=_C.int64, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self):
        """Forgets all batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """The first values again."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked if not self.num_batches_tracked.is_meta else _C.tensor(0, dtype=_C.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    _dims = ()

    def _check_input_dim(self, input):
        if input.dim() not in self._dims:
            raise ValueError(f"expected {' or '.join(f'{d}D' for d in self._dims)} input (got {input.dim()}D input)")

    def forward(self, input):
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        from_batch = self.training or (self.running_mean is None and self.running_var is None)
        use = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if use else None,
            self.running_var if use else None,
            self.weight,
            self.bias,
            from_batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Each channel normalized over the batch."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of images normalized over the batch."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Each channel of volumes normalized over the batch."""

    _dims = (5,)


class _InstanceNorm(_NormBase):
    _dims = ()

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def _check_input_dim(self, input):
        if input.dim() not in self._dims:
            raise ValueError(f"expected {' or '.join(f'{d}D' for d in self._dims)} input (got {input.dim()}D input)")

    def _run(self, input):
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )

    def forward(self, input):
        self._check_input_dim(input)
        single = input.dim() == self._dims[0]
        channels = input.dim() - self._dims[0]
        if input.size(channels) != self.num_features and self.affine:
            raise ValueError(f"expected input's size at dim={channels} to match num_features ({self.num_features}), but got: {input.size(channels)}.")
        return self._run(input.unsqueeze(0)).squeeze(0) if single else self._run(input)


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample normalized."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image normalized."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each volume normalized."""

    _dims = (4, 5)


class LayerNorm(Module):
    """Normalized over the last dimensions."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        where = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(_empty(*shape, **where)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(_empty(*shape, **where)) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """The first values again."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """Divided by the root mean square of the last dimensions."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        weight = Parameter(_empty(*shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        if weight is not None:
            init.ones_(weight)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalized over groups of channels."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        where = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(_empty(num_channels, **where)) if affine else None)
        self.register_parameter("bias", Parameter(_empty(num_channels, **where)) if affine else None)
        if affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """Divided by the strength of neighboring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
