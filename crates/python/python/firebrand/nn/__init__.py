"""Modules, layers and losses."""

from . import functional, init
from .modules import *  # noqa: F403
from .modules import module as _module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from . import utils
