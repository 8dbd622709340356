"""Messages and printed objects say `firebrand` where PyTorch's tests look for `torch`: the one difference in wording that is ours."""

import unittest.case

import firebrand


def torch_words(text):
    return text.replace("firebrand.", "torch.")


def _worded(value):
    return torch_words(value) if isinstance(value, str) else value


class _Regex:
    """A regular expression over PyTorch's words."""

    def __init__(self, inner):
        self._inner, self.pattern = inner, inner.pattern

    def search(self, text):
        return self._inner.search(torch_words(text)) or self._inner.search(text)


_init = unittest.case._AssertRaisesBaseContext.__init__


def _wrapped(self, expected, test_case, expected_regex=None):
    _init(self, expected, test_case, expected_regex)
    if self.expected_regex is not None:
        self.expected_regex = _Regex(self.expected_regex)


def install():
    unittest.case._AssertRaisesBaseContext.__init__ = _wrapped
    size = firebrand.Size.__repr__
    firebrand.Size.__repr__ = lambda self: torch_words(size(self))
    for name in ("__repr__", "__str__"):
        printed = getattr(firebrand.Tensor, name)
        setattr(firebrand.Tensor, name, lambda self, *a, printed=printed, **k: torch_words(printed(self, *a, **k)))
    import expecttest

    inline = expecttest.TestCase.assertExpectedInline
    expecttest.TestCase.assertExpectedInline = lambda self, actual, expect, skip=0: inline(self, torch_words(actual), expect, skip + 1)
    equal = unittest.TestCase.assertEqual
    unittest.TestCase.assertEqual = lambda self, first, second, msg=None: equal(self, _worded(first), second, msg)
    typed = firebrand.Tensor.type

    def kind_of(self, kind=None):
        found = typed(self, getattr(kind, "dtype", kind))
        return torch_words(found) if kind is None else found

    firebrand.Tensor.type = kind_of
