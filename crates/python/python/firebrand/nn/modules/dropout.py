"""Layers that leave something out at random."""

from .. import functional as F
from .module import Module


class _Dropout(Module):
    _function = "dropout"

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return getattr(F, self._function)(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zeros some elements while training."""


class Dropout1d(_Dropout):
    """Zeros whole channels of sequences while training."""

    _function = "dropout1d"


class Dropout2d(_Dropout):
    """Zeros whole channels of images while training."""

    _function = "dropout2d"


class Dropout3d(_Dropout):
    """Zeros whole channels of volumes while training."""

    _function = "dropout3d"


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance of SELU's outputs."""

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels."""

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)
