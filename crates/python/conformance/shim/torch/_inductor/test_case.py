"""The class that tests of the compiler inherit from."""

from torch._dynamo.test_case import TestCase, run_tests  # noqa: F401
