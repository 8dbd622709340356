"""Modules, layers and losses."""

from . import functional, init
from .module import Module
from .parameter import Buffer, Parameter
from .layers import (
    BCEWithLogitsLoss,
    Conv2d,
    CrossEntropyLoss,
    Dropout,
    Flatten,
    GELU,
    Identity,
    L1Loss,
    Linear,
    MSELoss,
    ModuleList,
    ReLU,
    Sequential,
    Sigmoid,
    Tanh,
)
