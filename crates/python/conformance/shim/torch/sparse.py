"""Sparse tensors are out of scope; the switch that every test sets is not."""

from ._absent import _NoChange, fallback

__getattr__ = fallback("torch.sparse")


class check_sparse_tensor_invariants(_NoChange):
    def __init__(self, enable=True):
        pass

    @staticmethod
    def is_enabled():
        return False

    @staticmethod
    def enable():
        pass

    @staticmethod
    def disable():
        pass
