"""The class that tests of the compiler inherit from."""

from torch.testing._internal.common_utils import TestCase as _TestCase, run_tests  # noqa: F401


class TestCase(_TestCase):
    def setUp(self):
        import torch

        super().setUp()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
