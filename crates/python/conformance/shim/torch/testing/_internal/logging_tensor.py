"""A class over tensors, without the dispatch that upstream's has: firebrand's subclasses do not see ops (its modes do)."""

import torch
from torch._absent import fallback

__getattr__ = fallback(__name__)


class LoggingTensor(torch.Tensor):
    @staticmethod
    def __new__(cls, elem, *args, requires_grad=False, **kwargs):
        return torch.Tensor._make_subclass(cls, elem.detach(), requires_grad or elem.requires_grad)
