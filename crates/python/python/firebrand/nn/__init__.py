"""Modules, layers and losses."""

from . import functional, grad, init
from .modules import *  # noqa: F403
from .modules import module as _module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from . import utils
from .parallel import DataParallel

# After the modules, which they are made of.
from .utils import parametrizations, parametrize
