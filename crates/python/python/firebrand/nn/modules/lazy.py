"""Modules that find the sizes of their parameters out from their first input."""

import warnings

from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from . import batchnorm, conv, linear


class LazyModuleMixin:
    """Becomes its class `cls_to_become` when its first input shows the sizes."""

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)
        warnings.warn(
            "Lazy modules are a new feature under heavy development so changes to the API or functionality can happen at any moment."
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if is_lazy(p) or keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if is_lazy(b) or keep_vars else b.detach()

    def _lazy_load_hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """What has a size in the state gets it here."""
        for name, own in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and own is not None and is_lazy(own) and not is_lazy(given):
                own.materialize(given.shape)

    def initialize_parameters(self, *args, **kwargs):
        """Gives parameters their sizes, from the inputs."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        """Whether a size is missing."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook
        del module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self):
        raise RuntimeError("Modules with uninitialized parameters can't be used with `DataParallel`.")


class LazyLinear(LazyModuleMixin, linear.Linear):
    """A `Linear` whose number of inputs is not known yet."""

    cls_to_become = linear.Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from self.weight: "
                    f"{self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class _LazyConvMixin(LazyModuleMixin):
    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.transposed:
            sizes = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        else:
            sizes = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.weight.materialize(sizes)
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _channels(self, input):
        n = self._dims
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, but got input of size: {input.shape}"
            )
        return input.shape[1] if input.dim() == n + 2 else input.shape[0]


def _lazy_conv(base, transposed):
    def __init__(self, out_channels, kernel_size, *args, bias=True, device=None, dtype=None, **kwargs):
        names = (
            ("stride", "padding", "output_padding", "groups", "bias", "dilation", "padding_mode")
            if transposed
            else ("stride", "padding", "dilation", "groups", "bias", "padding_mode")
        )
        given = {**dict(zip(names, args)), **kwargs}
        bias = given.pop("bias", bias)
        # The numbers of channels are unknown; the layer is made without and gets them afterwards.
        base_groups = given.pop("groups", 1)
        super(cls, self).__init__(0, 0, kernel_size, bias=False, groups=1, device=device, dtype=dtype, **given)
        self.groups = base_groups
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    content = {
        "__init__": __init__,
        "cls_to_become": base,
        "__module__": __name__,
        "__doc__": f"A `{base.__name__}` whose number of input channels is not known yet.",
    }
    cls = type("Lazy" + base.__name__, (_LazyConvMixin, base), content)
    return cls


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy_conv(c, False) for c in (conv.Conv1d, conv.Conv2d, conv.Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy_conv(c, True) for c in (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d)
)


class _LazyNormBase(LazyModuleMixin):
    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        where = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **where)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(**where)
            self.bias = UninitializedParameter(**where)
        if track_running_stats:
            from ... import _firebrand as _C

            self.running_mean = UninitializedBuffer(**where)
            self.running_var = UninitializedBuffer(**where)
            self.num_batches_tracked = _C.tensor(0, dtype=_C.int64, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for t in (self.weight, self.bias, self.running_mean, self.running_var):
            if t is not None and is_lazy(t):
                t.materialize((self.num_features,))
        self.reset_parameters()


class _LazyInstanceNormBase(_LazyNormBase):
    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype)


def _lazy_norm(base, mixin):
    doc = f"A `{base.__name__}` whose number of channels is not known yet."
    return type("Lazy" + base.__name__, (mixin, base), {"cls_to_become": base, "__module__": __name__, "__doc__": doc})


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy_norm(c, _LazyNormBase) for c in (batchnorm.BatchNorm1d, batchnorm.BatchNorm2d, batchnorm.BatchNorm3d)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy_norm(c, _LazyInstanceNormBase) for c in (batchnorm.InstanceNorm1d, batchnorm.InstanceNorm2d, batchnorm.InstanceNorm3d)
)
