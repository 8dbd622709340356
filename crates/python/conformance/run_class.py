"""Runs the tests of one class of one upstream file, and writes a line of JSON per event.

    run_class.py FILE CLASS < definitions, one a line
    run_class.py --list SOURCE FILE...      prints path::Class::test of every definition

A definition is a test as it stands in the source; the tests it becomes by parameters and device types are its instances. Events:
{"begin": definition}, {"instance": name} as each ends, and {"end": definition, "outcome": ..., "message": ...}. A definition passes if
all its instances pass.
"""

import ast
import contextlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
os.environ["PYTORCH_TEST_WITH_SLOW"] = "1"


# Names that the test files of 2.6 import and that later releases of PyTorch renamed or dropped, with what they stood for. Only for
# calibration: without them PyTorch itself would fail to import the files.
RENAMED = {
    "torch.testing._internal.common_cuda": {"tf32_is_not_fp32": lambda: False},
    "torch.testing._internal.inductor_utils": {"HAS_CUDA": False},
    "torch.export": {"export_for_training": "export"},
}


# A library of test classes that releases do not have; tests that use it fail without it, and others need not.
RENAMED["torch.testing._internal.torchbind_impls"] = {"init_torchbind_implementations": lambda: None}
UNBUILT = {"init_torchbind_implementations"}

# Optimizers that later releases of PyTorch added to the database that tests of 2.6 run over; they do not take its parameters.
LATER_OPTIMIZERS = {"Muon"}


def complete():
    """Gives PyTorch the names that its older tests import."""
    for name, content in RENAMED.items():
        module = importlib.import_module(name)
        for key, value in content.items():
            if not hasattr(module, key) or key in UNBUILT:
                setattr(module, key, getattr(module, value) if isinstance(value, str) else value)
    from torch.testing._internal.common_optimizers import optim_db

    optim_db[:] = [entry for entry in optim_db if entry.optim_cls.__name__ not in LATER_OPTIMIZERS]


def load(path):
    """The test file as a module, in the directories that it expects."""
    folder, name = os.path.split(os.path.abspath(path))
    sys.path.pop(0)  # where this file is
    parent = os.path.dirname(folder)
    if os.path.basename(parent) == "tools":
        parent = os.path.dirname(parent)  # such tests import `tools` itself
    if os.path.isdir(os.path.join(parent, "torch")):
        sys.path.append(parent)  # the root of the checkout, whose unbuilt `torch` must not be found first
    else:
        sys.path.insert(0, parent)
    sys.path.insert(0, folder)
    os.chdir(folder)
    sys.argv = [path]
    bridge = between(path)
    oracle = "FIREBRAND_ORACLE" in os.environ
    if oracle or bridge:
        if oracle or not hasattr(bridge, "without_pytorch"):
            complete()
        if not oracle:
            bridge()
        return importlib.import_module(name.removesuffix(".py"))
    return load_on_shim(name.removesuffix(".py"), folder)


def between(path):
    """What puts firebrand between PyTorch and the tests of a file, if that is how the file is run."""
    file = os.path.relpath(path, os.environ["FIREBRAND_UPSTREAM"])
    spec = importlib.util.spec_from_file_location("bridge", os.path.join(HERE, "bridge.py"))
    bridge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bridge)
    found = bridge.FILES.get(file)
    if found:
        sys.path[:] = [place for place in sys.path if place != os.path.join(HERE, "shim")]
    return found


def load_on_shim(name, folder):
    """The test file over the package that stands for PyTorch."""
    from torch.testing._internal import common_device_type

    absent = sys.modules["torch._absent"]
    absent.LOADING = True
    sys.modules["torchvision"] = None  # made for PyTorch's own binary; tests do without it
    parametrize = common_device_type.ops._parametrize_test

    def without_database(self, *args):
        """Without upstream's database of ops a test over it has no instances, and counts as not collected."""
        try:
            yield from parametrize(self, *args)
        except ValueError as error:
            if "empty op_list" not in str(error):
                raise

    common_device_type.ops._parametrize_test = without_database
    if os.path.basename(folder) == "functorch":
        of_known_ops(importlib.import_module("common_utils"))
    module = importlib.import_module(name)
    absent.LOADING = False
    return module


def of_known_ops(helpers):
    """The helpers look every op up that a test names; those of the database that is not loaded are passed over."""
    mark = helpers.skipOps
    databases = (helpers.op_db, helpers.additional_op_db, helpers.autograd_function_db, helpers.custom_op_db)
    known = {(op.name, op.variant_test_name) for database in databases for op in database}

    def skip_ops(test_case_name, base_test_name, to_skip):
        return mark(test_case_name, base_test_name, {m for m in to_skip if (m.op_name, m.variant_name) in known})

    helpers.skipOps = skip_ops
    helpers.opsToleranceOverride = lambda *_args, **_kwargs: lambda test: test


def instances(module, class_name, names):
    """The tests that each definition becomes: methods of the class, or of classes instantiated from it for the CPU. `names` are all
    definitions of the class: the longest that fits an instance is its own."""
    found = {name: [] for name in names}
    by_length = sorted(names, key=len, reverse=True)
    for key, cls in vars(module).items():
        if not isinstance(cls, type) or not issubclass(cls, unittest.TestCase):
            continue
        if key not in (class_name, class_name + "CPU"):
            continue
        for test in unittest.TestLoader().getTestCaseNames(cls):
            for name in by_length:
                if test == name or test.startswith(name + "_"):
                    found[name].append((cls, test))
                    break
    return found


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


class Result(unittest.TestResult):
    """Of one definition: the worst outcome of its instances and its message."""

    def __init__(self, event):
        super().__init__()
        self.passed, self.skips, self.event = 0, [], event

    def stopTest(self, test):
        super().stopTest(test)
        self.event(instance=str(test))

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.passed += 1

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.skips.append(reason)

    def verdict(self):
        def first(problems):
            test, text = problems[0]
            if os.environ.get("FIREBRAND_TRACE"):
                sys.stderr.write(f"--- {test}\n{text}\n")
            return last_line(text)

        if self.errors:
            return "error", first(self.errors)
        if self.failures:
            return "fail", first(self.failures)
        if self.unexpectedSuccesses:
            return "fail", "passes, but is marked as an expected failure"
        # Instances that upstream itself skips say nothing; those that lack something here do.
        lacking = [reason for reason in self.skips if "firebrand" in str(reason)]
        if lacking or (self.skips and not self.passed):
            return "skip", str((lacking or self.skips)[0])[:500]
        if self.passed:
            return "pass", ""
        return "skip", "not collected"


def definitions(path):
    """Every test of a file as it stands in the source, as (class, test)."""

    def tests(body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                yield node.name
            elif isinstance(node, (ast.If, ast.With)):
                yield from tests(node.body)

    with open(path) as text:
        tree = ast.parse(text.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name in dict.fromkeys(tests(node.body)):
                yield node.name, name


def backward_passes():
    """As they are, or compiled."""
    if "FIREBRAND_COMPILED_BACKWARD" not in os.environ:
        return contextlib.nullcontext()
    import firebrand

    return firebrand.compiled_backward()


def main():
    if sys.argv[1] == "--list":
        for file in sys.argv[3:]:
            for found in definitions(os.path.join(sys.argv[2], file)):
                print(file, *found, sep="::")
        return
    path, class_name = sys.argv[1:3]
    names = [line.strip() for line in sys.stdin if line.strip()]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print is no event

    def event(**content):
        out.write(json.dumps(content) + "\n")
        out.flush()

    try:
        defined = [test for cls, test in definitions(path) if cls == class_name]
        module = load(path)
        found = instances(module, class_name, defined)
    except unittest.SkipTest as reason:
        for name in names:
            event(end=name, outcome="skip", message=str(reason))
        return
    except BaseException as error:
        if os.environ.get("FIREBRAND_TRACE"):
            traceback.print_exc()
        for name in names:
            event(end=name, outcome="error", message=f"import: {type(error).__name__}: {error}"[:500])
        return
    for name in names:
        event(begin=name)
        result, suite = Result(event), unittest.TestSuite()
        for cls, test in found[name]:
            suite.addTest(cls(test))
        try:
            with backward_passes():
                suite.run(result)
            outcome, message = result.verdict()
        except BaseException as error:
            outcome, message = "error", f"{type(error).__name__}: {error}"[:500]
        event(end=name, outcome=outcome, message=message)
    out.flush()
    os._exit(0)  # threads of a test that never end do not keep the process


if __name__ == "__main__":
    main()
