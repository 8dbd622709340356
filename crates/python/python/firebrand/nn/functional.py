"""Functions of layers and losses."""

from .. import _firebrand as _C
from .. import _names

_ops = _names.functions("nn")
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
globals().update({name: op for name, op in _ops.items() if not name.startswith("_")})

relu = _C.op_function("relu", False)
conv1d = _C.op_function("conv1d", False)
conv2d = _C.op_function("conv2d", False)
conv3d = _C.op_function("conv3d", False)
tanh = _C.op_function("tanh", False)
sigmoid = _C.op_function("sigmoid", False)


def _reduction(name):
    if name not in _REDUCTIONS:
        raise ValueError(f"{name} is not a valid value for reduction")
    return _REDUCTIONS[name]


def softmax(input, dim=None, dtype=None):
    """Exponentials that sum to one."""
    if dim is None:
        raise NotImplementedError("softmax(dim=None): name the dimension")
    return _C.op_function("softmax", False)(input, dim, dtype=dtype)


def log_softmax(input, dim=None, dtype=None):
    """The logarithm of the softmax."""
    if dim is None:
        raise NotImplementedError("log_softmax(dim=None): name the dimension")
    return _C.op_function("log_softmax", False)(input, dim, dtype=dtype)


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeros some elements at random."""
    name = "dropout_" if inplace else "dropout"
    return _C.op_function(name, False)(input, p, training)


def mse_loss(input, target, reduction="mean"):
    """The squared difference."""
    return _ops["mse_loss"](input, target, _reduction(reduction))


def l1_loss(input, target, reduction="mean"):
    """The absolute difference."""
    return _ops["l1_loss"](input, target, _reduction(reduction)) if "l1_loss" in _ops else _reduce((input - target).abs(), reduction)


def _reduce(loss, reduction):
    _reduction(reduction)
    return loss if reduction == "none" else getattr(loss, reduction)()


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The negative log-likelihood of the target under the softmax of the input."""
    return _ops["cross_entropy_loss"](input, target, weight, _reduction(reduction), ignore_index, label_smoothing)


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """The negative log-likelihood of the target."""
    return _ops["nll_loss_nd"](input, target, weight, _reduction(reduction), ignore_index)


def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    """The cross entropy of probabilities given as logits."""
    op = _C.op_function("binary_cross_entropy_with_logits", False)
    return op(input, target, weight, pos_weight, _reduction(reduction))
