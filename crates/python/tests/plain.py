"""Runs the package's tests with Python alone: no pytest, no numpy, no PyTorch, whose stored results it compares with.

    python3 plain.py

What needs one of them is counted as left out. For continuous integration; `cargo xtask conformance python` runs everything.
"""

import importlib
import inspect
import pathlib
import re
import sys
import tempfile
import traceback
import types
import warnings

HERE = pathlib.Path(__file__).parent


class LeftOut(Exception):
    """The test needs something that is not installed."""


class Close:
    """A number that is equal to those near it."""

    def __init__(self, value, rel, abs, nan_ok):
        self.value, self.bound = value, max(rel * builtin_abs(value), abs)

    def __eq__(self, other):
        return other == self.value or (other != other and self.value != self.value) or builtin_abs(other - self.value) <= self.bound


builtin_abs = abs


class Raises:
    """The little of `pytest.raises` that tests use."""

    def __init__(self, kind, match=None):
        self.kind, self.match = kind, match

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _trace):
        if kind is None:
            raise AssertionError(f"{self.kind.__name__} was not raised")
        if not issubclass(kind, self.kind):
            return False
        self.value = value
        if self.match is not None and not re.search(self.match, str(value)):
            raise AssertionError(f"{self.match!r} does not match {str(value)!r}")
        return True


class Warns(warnings.catch_warnings):
    """The little of `pytest.warns` that tests use."""

    def __init__(self, kind):
        super().__init__(record=True)
        self.kind = kind

    def __enter__(self):
        self.shown = super().__enter__()
        warnings.simplefilter("always")
        return self.shown

    def __exit__(self, kind, *rest):
        super().__exit__(kind, *rest)
        if kind is None and not any(issubclass(w.category, self.kind) for w in self.shown):
            raise AssertionError(f"{self.kind.__name__} was not shown")


def parametrize(names, values, ids=None):
    def mark(test):
        test.parameters = ([n.strip() for n in names.split(",")], list(values))
        return test

    return mark


def importorskip(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise LeftOut(name) from None


def small_pytest():
    """What tests take from pytest."""
    module = types.ModuleType("pytest")
    module.raises, module.warns, module.importorskip = Raises, Warns, importorskip
    module.approx = lambda value, rel=1e-6, abs=1e-12, nan_ok=False: Close(value, rel, abs, nan_ok)
    module.mark = types.SimpleNamespace(parametrize=parametrize)
    module.fixture = lambda *args, **kwargs: args[0] if args and callable(args[0]) else (lambda f: f)
    return module


def calls(test):
    """Every call of a test: its label and its arguments by name."""
    if not hasattr(test, "parameters"):
        return [(test.__name__, {})]
    names, values = test.parameters
    rows = [v if len(names) > 1 else (v,) for v in values]
    return [(f"{test.__name__}[{row[0]}]", dict(zip(names, row))) for row in rows]


def main():
    sys.path[:0] = [str(HERE.parent / "python"), str(HERE)]
    sys.modules["pytest"] = small_pytest()
    conftest = importlib.import_module("conftest")
    oracle = conftest.Oracle(False)
    passed, left_out, failed = 0, [], []
    for path in sorted(HERE.glob("test_*.py")):
        try:
            module = importlib.import_module(path.stem)
        except (ImportError, LeftOut) as e:
            left_out.append(f"{path.stem} ({e})")
            continue
        for name, test in list(vars(module).items()):
            if not name.startswith("test_") or not inspect.isfunction(test):
                continue
            for label, given in calls(test):
                wanted = inspect.signature(test).parameters
                with tempfile.TemporaryDirectory() as folder:
                    have = {"oracle": oracle, "tmp_path": pathlib.Path(folder), **given}
                    try:
                        test(**{k: have[k] for k in wanted})
                        passed += 1
                    except (LeftOut, ModuleNotFoundError) as e:
                        left_out.append(f"{path.stem}::{label} ({e})")
                    except Exception:
                        failed.append(f"{path.stem}::{label}\n{traceback.format_exc()}")
    for text in failed:
        print(text, file=sys.stderr)
    print(f"{passed} passed, {len(failed)} failed, {len(left_out)} left out")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
