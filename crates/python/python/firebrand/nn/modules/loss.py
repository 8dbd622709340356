"""Losses as modules."""

from .. import functional as F
from .module import Module


class _Loss(Module):
    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        if size_average is not None or reduce is not None:
            number = F._reduction(reduction, size_average, reduce)
            reduction = {v: k for k, v in F._REDUCTIONS.items()}[number]
        self.reduction = reduction


def _make(name, function, arguments=(), defaults=(), doc="", inputs=2):
    """A module of a loss and its arguments, which come before the reduction."""

    def __init__(self, *args, size_average=None, reduce=None, reduction="mean", **kwargs):
        _Loss.__init__(self, size_average, reduce, reduction)
        given = dict(zip(arguments, args))
        for key, value in kwargs.items():
            if key not in arguments or key in given:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            given[key] = value
        for key, default in zip(arguments, defaults):
            value = given.get(key, default)
            if key in ("weight", "pos_weight"):
                self.register_buffer(key, value)
            else:
                setattr(self, key, value)

    def forward(self, *tensors):
        if len(tensors) != inputs:
            raise TypeError(f"{name}.forward() takes {inputs} tensors, found {len(tensors)}")
        return getattr(F, function)(*tensors, reduction=self.reduction, **{key: getattr(self, key) for key in arguments})

    return type(name, (_Loss,), {"__init__": __init__, "forward": forward, "__doc__": doc, "__module__": __name__})


MSELoss = _make("MSELoss", "mse_loss", doc="The squared difference.")
L1Loss = _make("L1Loss", "l1_loss", doc="The absolute difference.")
SmoothL1Loss = _make("SmoothL1Loss", "smooth_l1_loss", ("beta",), (1.0,), "Squared near zero, absolute beyond `beta`.")
HuberLoss = _make("HuberLoss", "huber_loss", ("delta",), (1.0,), "Squared near zero, linear beyond `delta`.")
CrossEntropyLoss = _make(
    "CrossEntropyLoss", "cross_entropy", ("weight", "ignore_index", "label_smoothing"), (None, -100, 0.0),
    "The negative log-likelihood of classes under the softmax of logits.",
)
NLLLoss = _make("NLLLoss", "nll_loss", ("weight", "ignore_index"), (None, -100), "The negative log-likelihood of classes.")
BCELoss = _make("BCELoss", "binary_cross_entropy", ("weight",), (None,), "The cross entropy of probabilities.")
BCEWithLogitsLoss = _make(
    "BCEWithLogitsLoss", "binary_cross_entropy_with_logits", ("weight", "pos_weight"), (None, None),
    "The cross entropy of probabilities given as logits.",
)
KLDivLoss = _make("KLDivLoss", "kl_div", ("log_target",), (False,), "The divergence of distributions given as logarithms.")
PoissonNLLLoss = _make(
    "PoissonNLLLoss", "poisson_nll_loss", ("log_input", "full", "eps"), (True, False, 1e-8), "The negative log-likelihood of counts."
)
GaussianNLLLoss = _make(
    "GaussianNLLLoss", "gaussian_nll_loss", ("full", "eps"), (False, 1e-6), "The negative log-likelihood under normal distributions.", 3
)
HingeEmbeddingLoss = _make("HingeEmbeddingLoss", "hinge_embedding_loss", ("margin",), (1.0,), "Whether distances are small or large.")
CosineEmbeddingLoss = _make(
    "CosineEmbeddingLoss", "cosine_embedding_loss", ("margin",), (0.0,), "Whether two embeddings point the same way.", 3
)
MarginRankingLoss = _make("MarginRankingLoss", "margin_ranking_loss", ("margin",), (0.0,), "Which of two is larger.", 3)
SoftMarginLoss = _make("SoftMarginLoss", "soft_margin_loss", doc="Logistic loss of two classes.")
MultiMarginLoss = _make(
    "MultiMarginLoss", "multi_margin_loss", ("p", "margin", "weight"), (1, 1.0, None), "Hinge loss of several classes."
)
MultiLabelMarginLoss = _make("MultiLabelMarginLoss", "multilabel_margin_loss", doc="Hinge loss of several labels.")
MultiLabelSoftMarginLoss = _make(
    "MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", ("weight",), (None,), "Logistic loss of several labels."
)
TripletMarginLoss = _make(
    "TripletMarginLoss", "triplet_margin_loss", ("margin", "p", "eps", "swap"), (1.0, 2.0, 1e-6, False), "Which of two is closer.", 3
)
CTCLoss = _make(
    "CTCLoss", "ctc_loss", ("blank", "zero_infinity"), (0, False), "The likelihood of a sequence under all its alignments.", 4
)
