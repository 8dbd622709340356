"""Functions of layers and losses, with PyTorch's names, arguments and defaults.

Names that are ops are those of the table; here is what PyTorch, too, writes in Python over them.
"""

import builtins
import math
import warnings

from .. import _firebrand as _C
from .. import _names
from . import grad
from ._attention import check_ranks as _check_attention
from ._attention import multi_head_attention_forward

_ops = _names.functions("nn")
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
globals().update({name: op for name, op in _ops.items() if not name.startswith("_")})


def _op(name):
    return _C.op_function(name, False)


for _name in (
    "relu relu_ tanh sigmoid conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc selu selu_ celu celu_ rrelu rrelu_ "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle prelu adaptive_avg_pool1d avg_pool1d bilinear pdist cosine_similarity"
).split():
    globals()[_name] = _op(_name)

# In the place of the ops of these names.
from ._pooling import (  # noqa: E402,F401
    _tuple_of,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
    lp_pool1d,
    lp_pool2d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)


def _reduction(name, size_average=None, reduce=None):
    if size_average is not None or reduce is not None:
        average, reduces = size_average is not False, reduce is not False
        name = "none" if not reduces else "mean" if average else "sum"
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.", stacklevel=3)
    if name not in _REDUCTIONS:
        raise ValueError(f"{name} is not a valid value for reduction")
    return _REDUCTIONS[name]


def _probability(p):
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _inplace(name, inplace):
    return _op(name + "_" if inplace else name)


# ---- activations


def relu(input, inplace=False):
    """The positive part."""
    return _inplace("relu", inplace)(input)


def threshold(input, threshold, value, inplace=False):
    """`value` where the input is not above the threshold."""
    return _inplace("threshold", inplace)(input, threshold, value)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """The input between two bounds."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _ops["hardtanh_" if inplace else "hardtanh"](input, min_val, max_val)


def relu6(input, inplace=False):
    """The input between 0 and 6."""
    return hardtanh(input, 0.0, 6.0, inplace)


def elu(input, alpha=1.0, inplace=False):
    """Exponential below zero."""
    return _ops["elu_" if inplace else "elu"](input, alpha)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """A small slope below zero."""
    return _ops["leaky_relu_" if inplace else "leaky_relu"](input, negative_slope)


def silu(input, inplace=False):
    """`x * sigmoid(x)`."""
    return _ops["silu_" if inplace else "silu"](input)


def mish(input, inplace=False):
    """`x * tanh(softplus(x))`."""
    return _ops["mish_" if inplace else "mish"](input)


def hardswish(input, inplace=False):
    """`x * relu6(x + 3) / 6`."""
    return _ops["hardswish_" if inplace else "hardswish"](input)


def hardsigmoid(input, inplace=False):
    """`relu6(x + 3) / 6`."""
    return _ops["hardsigmoid_" if inplace else "hardsigmoid"](input)


def selu(input, inplace=False):
    """Scaled exponential below zero."""
    return _inplace("selu", inplace)(input)


def celu(input, alpha=1.0, inplace=False):
    """Continuously differentiable exponential below zero."""
    return _inplace("celu", inplace)(input, alpha)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """A random slope below zero."""
    return _inplace("rrelu", inplace)(input, lower, upper, training)


def softsign(input):
    """`x / (1 + |x|)`."""
    return input / (input.abs() + 1)


def tanhshrink(input):
    """`x - tanh(x)`."""
    return input - input.tanh()


def hardshrink(input, lambd=0.5):
    """Zero between two bounds."""
    return _op("hardshrink")(input, lambd)


def logsigmoid(input):
    """The logarithm of the logistic function."""
    return _ops["log_sigmoid"](input)


def _dim(dim, input):
    if dim is None:
        warnings.warn("Implicit dimension choice has been deprecated. Change the call to include dim=X as an argument.", stacklevel=3)
        return 0 if input.dim() in (0, 1, 3) else 1
    return dim


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Exponentials that sum to one."""
    return _op("softmax")(input, _dim(dim, input), dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """The softmax of the negated input."""
    return _op("softmax")(-input, _dim(dim, input), dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """The logarithm of the softmax."""
    return _op("log_softmax")(input, _dim(dim, input), dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A differentiable sample of classes."""
    noise = -_op("empty_like")(logits).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    return _op("zeros_like")(logits).scatter_(dim, index, 1.0) - soft.detach() + soft


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """The input divided by its norm."""
    found = input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return found if out is None else out.copy_(found)


# ---- dropout


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeros some elements at random."""
    _probability(p)
    return _inplace("dropout", inplace)(input, p, training)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of SELU's outputs."""
    _probability(p)
    return _inplace("alpha_dropout", inplace)(input, p, training)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Alpha dropout of whole channels."""
    _probability(p)
    return _inplace("feature_alpha_dropout", inplace)(input, p, training)


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Zeros whole channels of sequences."""
    _probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to provide "
            "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. "
            "2D or 3D inputs)."
        )
    single = input.dim() == 2
    if single:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    found = _inplace("feature_dropout", inplace)(input, p, training)
    return (found.squeeze_(0) if inplace else found.squeeze(0)) if single else found


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Zeros whole channels of images."""
    _probability(p)
    if input.dim() not in (3, 4):
        warnings.warn(
            f"dropout2d: Received a {input.dim()}-D input to dropout2d, which is deprecated and will result in an error in a future "
            "release. To retain the behavior and silence this warning, please use dropout instead. Note that dropout2d exists to "
            "provide channel-wise dropout on inputs with 2 spatial dimensions, a channel dimension, and an optional batch dimension "
            "(i.e. 3D or 4D inputs).",
            stacklevel=2,
        )
    if input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is "
            "interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret "
            "the input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, "
            "please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _inplace("feature_dropout", inplace)(input, p, training)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Zeros whole channels of volumes."""
    _probability(p)
    if input.dim() not in (4, 5):
        warnings.warn(
            f"dropout3d: Received a {input.dim()}-D input to dropout3d, which is deprecated and will result in an error in a future "
            "release. To retain the behavior and silence this warning, please use dropout instead. Note that dropout3d exists to "
            "provide channel-wise dropout on inputs with 3 spatial dimensions, a channel dimension, and an optional batch dimension "
            "(i.e. 4D or 5D inputs).",
            stacklevel=2,
        )
    single = input.dim() == 4
    if single:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    found = _inplace("feature_dropout", inplace)(input, p, training)
    return (found.squeeze_(0) if inplace else found.squeeze(0)) if single else found


# ---- losses


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The squared difference."""
    _same_size(input, target)
    if weight is not None:
        return _reduce((input - target) ** 2 * weight, reduction)
    return _ops["mse_loss"](*_together(input, target), _reduction(reduction, size_average, reduce))


def _same_size(input, target):
    if target.size() != input.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). This will likely lead to "
            "incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )


def _together(input, target):
    from .._functions import broadcast_tensors

    return broadcast_tensors(input, target)


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The absolute difference."""
    _same_size(input, target)
    _reduction(reduction, size_average, reduce)
    input, target = _together(input, target)
    loss = (input - target).abs()
    return _reduce(loss if weight is None else loss * weight, reduction)


def _reduce(loss, reduction):
    _reduction(reduction)
    return loss if reduction == "none" else getattr(loss, reduction)()


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared near zero, absolute beyond `beta`."""
    _same_size(input, target)
    input, target = _together(input, target)
    if beta == 0.0:
        return l1_loss(input, target, reduction=reduction)
    return _ops["smooth_l1_loss"](input, target, _reduction(reduction, size_average, reduce), beta)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Squared near zero, linear beyond `delta`."""
    input, target = _together(input, target)
    return _ops["huber_loss"](input, target, _reduction(reduction), delta)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Logistic loss of two classes."""
    return _ops["soft_margin_loss"](input, target, _reduction(reduction, size_average, reduce))


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Hinge loss of several classes."""
    return _ops["multi_margin_loss"](input, target, p, margin, weight, _reduction(reduction, size_average, reduce))


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Hinge loss of several labels."""
    return _ops["multilabel_margin_loss"](input, target, _reduction(reduction, size_average, reduce))


def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):
    """The negative log-likelihood of the target under the softmax of the input."""
    return _ops["cross_entropy_loss"](
        input, target, weight, _reduction(reduction, size_average, reduce), ignore_index, label_smoothing
    )


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """The negative log-likelihood of the target."""
    return _ops["nll_loss_nd"](input, target, weight, _reduction(reduction, size_average, reduce), ignore_index)


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The cross entropy of probabilities."""
    number = _reduction(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is deprecated. Please ensure "
            "they have the same size."
        )
    return _ops["binary_cross_entropy"](input, target, weight, number)


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """The cross entropy of probabilities given as logits."""
    number = _reduction(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _op("binary_cross_entropy_with_logits")(input, target, weight, pos_weight, number)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """The divergence of distributions given as logarithms."""
    if reduction == "batchmean":
        return _op("kl_div")(input, target, 2, log_target=log_target) / input.size()[0]
    return _op("kl_div")(input, target, _reduction(reduction, size_average, reduce), log_target=log_target)


def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    """The negative log-likelihood of counts."""
    return _op("poisson_nll_loss")(input, target, log_input, full, eps, _reduction(reduction, size_average, reduce))


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log-likelihood under normal distributions."""
    if isinstance(var, builtins.float):
        var = input.new_full(input.shape, var)
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    if reduction not in _REDUCTIONS:
        raise ValueError(reduction + " is not valid")
    safe = var.clone()
    from ..autograd.grad_mode import no_grad

    with no_grad():
        safe.clamp_(min=eps)
    loss = 0.5 * (safe.log() + (input - target) ** 2 / safe)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """Whether two embeddings point the same way."""
    return _op("cosine_embedding_loss")(input1, input2, target, margin, _reduction(reduction, size_average, reduce))


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """Whether distances are small or large."""
    return _op("hinge_embedding_loss")(input, target, margin, _reduction(reduction, size_average, reduce))


def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """Which of two is larger."""
    return _op("margin_ranking_loss")(input1, input2, target, margin, _reduction(reduction, size_average, reduce))


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """Which of two is closer."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _op("triplet_margin_loss")(
        anchor, positive, negative, margin, p, eps, swap, _reduction(reduction, size_average, reduce)
    )


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The likelihood of a sequence under all its alignments."""
    return _op("ctc_loss")(log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction), zero_infinity)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Logistic loss of several labels."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduce(loss.sum(dim=input.dim() - 1) / input.size(input.dim() - 1), reduction)


# ---- embeddings


def embedding(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):
    """Rows of a table."""
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if padding_idx is not None:
        if not -weight.size(0) <= padding_idx < weight.size(0):
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= weight.size(0)
    else:
        padding_idx = -1
    if max_norm is not None:
        from ..autograd.grad_mode import no_grad

        input = input.contiguous()
        with no_grad():
            _op("embedding_renorm_")(weight.detach(), input, max_norm, norm_type)
    return _op("embedding")(weight, input, padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Sums, means or maxima of rows of a table."""
    if weight.dtype is _C.int64 and input.is_floating_point():
        warnings.warn("Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated")
        weight, input = input, weight
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape as the "
            f"input ({input.shape})"
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            f"expected per_sample_weights to have the same type as the weight, {weight.dtype}, found {per_sample_weights.dtype}"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, "
                f"found offsets of type {type(offsets)}"
            )
        offsets = _op("arange")(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if padding_idx is not None and not -weight.size(0) <= padding_idx < weight.size(0):
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{weight.size(0)} through {weight.size(0) - 1}, but got {padding_idx}"
        )
    modes = {"sum": 0, "mean": 1, "max": 2}
    if mode not in modes:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max":
        if scale_grad_by_freq:
            raise ValueError("max mode does not support scaling the gradient by the frequency")
        if sparse:
            raise ValueError("max mode does not support sparse weights")
    if max_norm is not None:
        from ..autograd.grad_mode import no_grad

        with no_grad():
            _op("embedding_renorm_")(weight.detach(), input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode="
            f"'{mode}'). Please open a feature request on GitHub."
        )
    return _op("embedding_bag")(
        weight, input, offsets, scale_grad_by_freq, modes[mode], sparse, per_sample_weights, include_last_offset, padding_idx
    )[0]


def one_hot(tensor, num_classes=-1):
    """A one at the place of each class."""
    return _op("one_hot")(tensor, num_classes)


# ---- norms


def _more_than_one_value(size):
    n = size[0]
    for extent in size[2:]:
        n *= extent
    if n == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05
):
    """Each channel normalized over the batch."""
    if training:
        _more_than_one_value(input.size())
    return _op("batch_norm")(input, weight, bias, running_mean, running_var, training, momentum, eps, False)


def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05
):
    """Each channel of each sample normalized."""
    if use_input_stats:
        if math.prod(input.size()[2:]) == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    return _op("instance_norm")(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """Normalized over the last dimensions."""
    return _op("layer_norm")(input, normalized_shape, weight, bias, eps, False)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divided by the root mean square of the last dimensions."""
    return _op("rms_norm")(input, normalized_shape, weight, eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Normalized over groups of channels."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    return _op("group_norm")(input, num_groups, weight, bias, eps, False)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divided by the strength of neighboring channels."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    squares = (input * input).unsqueeze(1)
    sizes = input.size()
    if input.dim() == 3:
        squares = _op("avg_pool2d")(pad(squares, (0, 0, size // 2, (size - 1) // 2)), (size, 1), 1).squeeze(1)
    else:
        squares = squares.view(sizes[0], 1, sizes[1], sizes[2], -1)
        squares = pad(squares, (0, 0, 0, 0, size // 2, (size - 1) // 2))
        squares = _ops["avg_pool3d"](squares, (size, 1, 1), 1).squeeze(1).view(sizes)
    return input / (squares * alpha + k) ** beta


# ---- shapes


def pad(input, pad, mode="constant", value=None):
    """More elements at the ends of the last dimensions."""
    if mode == "constant":
        return _op("constant_pad_nd")(input, list(pad), 0 if value is None else value)
    return _ops["pad"](input, list(pad), mode, value)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Windows as columns."""
    return _ops["im2col"](*(input, *(_tuple_of(v, 2) for v in (kernel_size, dilation, padding, stride))))


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns back into windows, overlaps added."""
    return _ops["col2im"](
        *(input, *(_tuple_of(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)))
    )


_LINEAR = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """The input at another resolution."""
    dims = input.dim() - 2
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales = None
    if size is not None:
        size = [size] * dims if isinstance(size, builtins.int) else list(size)
        if len(size) != dims:
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
                f"{list(input.shape[2:])} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
                "output size in (o1, o2, ...,oK) format."
            )
    else:
        scales = [builtins.float(scale_factor)] * dims if not isinstance(scale_factor, (tuple, list)) else [*map(builtins.float, scale_factor)]
        if recompute_scale_factor or mode == "area":
            size = [math.floor(n * s) for n, s in zip(input.shape[2:], scales)]
            scales = None
    if mode == "area":
        return {1: _op("adaptive_avg_pool1d"), 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}[dims](input, size)
    if mode in ("nearest", "nearest-exact"):
        name = ("upsample_nearest" if mode == "nearest" else "_upsample_nearest_exact") + f"{dims}d"
        return _upsample(name, input, size, scales, ())
    if _LINEAR.get(mode) != input.dim():
        if mode not in _LINEAR:
            raise NotImplementedError(
                "Input Error: Only 3D, 4D and 5D input Tensors supported (got {}D) for the modes: nearest | linear | bilinear | bicubic "
                "| trilinear | area | nearest-exact (got {})".format(input.dim(), mode)
            )
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {_LINEAR[mode]}D input")
    name = f"upsample_{mode}{dims}d"
    if antialias:
        name = f"_{name}_aa"
    return _upsample(name, input, size, scales, (align_corners,))


def _upsample(name, input, size, scales, more):
    from .. import ops

    packet = getattr(ops.aten, name)
    if "vec" in packet.overloads():
        return packet.vec(input, size, *more, scales)
    if size is None:
        size = [math.floor(n * s) for n, s in zip(input.shape[2:], scales)]
    return packet.default(input, size, *more, *(scales or [None] * len(size)))


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Another name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The input at given places."""
    modes, paddings = {"bilinear": 0, "nearest": 1, "bicubic": 2}, {"zeros": 0, "border": 1, "reflection": 2}
    if mode not in modes:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in paddings:
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    return _op("grid_sampler")(input, grid, modes[mode], paddings[padding_mode], bool(align_corners))


def affine_grid(theta, size, align_corners=None):
    """The places that affine maps give."""
    return _op("affine_grid_generator")(theta, list(size), bool(align_corners))


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """Distances of corresponding rows."""
    return _op("pairwise_distance")(x1, x2, p, eps, keepdim)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """`softmax(q @ k.T / sqrt(d) + mask) @ v`."""
    return _ops["scaled_dot_product_attention"](
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
