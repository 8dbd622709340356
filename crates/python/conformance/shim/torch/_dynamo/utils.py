"""Counts of compilations."""

import collections

from torch._absent import fallback

__getattr__ = fallback("torch._dynamo.utils")

counters = collections.defaultdict(collections.Counter)


def same(a, b, **_kwargs):
    import torch

    torch.testing.assert_close(a, b)
    return True
