"""Where a module of the name `torch...` comes from: a file of this package, a pure-Python helper of the upstream checkout, the
module of firebrand with the same name, or nowhere (`_absent`), in this order."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

from ._absent import fallback

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.environ["FIREBRAND_UPSTREAM"]

# Helpers of upstream's tests. None of them is under test, and none of them has a counterpart in firebrand.
HELPERS = (
    "torch.testing._comparison",
    "torch.testing._creation",
    "torch.testing._utils",
    "torch.testing._internal",
    "torch.utils._pytree",
    "torch.utils._mode_utils",
    "torch.utils._import_utils",
    "torch.utils._config_module",
    "torch.utils._traceback",
    "torch.utils.weak",
    "torch.utils._foreach_utils",
    "torch._functorch.make_functional",
    "torch.nn.utils._named_member_accessor",
    "torch._vendor",
    "torch.autograd._functions",
    "torch.torch_version",
    "torch.version",
    "torch.types",
)
TOPS = ("torch", "functorch")


def _file(root, name):
    path = os.path.join(root, *name.split("."))
    for candidate, package in ((os.path.join(path, "__init__.py"), True), (path + ".py", False)):
        if os.path.isfile(candidate):
            return candidate, package
    return None, False


def _from_file(name, path, package):
    places = [os.path.dirname(path)] if package else None
    return importlib.util.spec_from_file_location(name, path, submodule_search_locations=places)


class _Alias(importlib.abc.Loader):
    """The module of firebrand under another name."""

    def __init__(self, module):
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        module.__spec__ = self._spec
        if "__getattr__" not in module.__dict__:
            module.__getattr__ = fallback(module.__name__.replace("firebrand", "torch", 1))


class _Nowhere(importlib.abc.Loader):
    """A module of absent names."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__path__ = []
        module.__getattr__ = fallback(module.__name__)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in TOPS or name == "torch":
            return None
        found, package = _file(HERE, name)
        if found:
            return _from_file(name, found, package)
        if any(name == h or name.startswith(h + ".") for h in HELPERS):
            found, package = _file(SOURCE, name)
            if found:
                return _from_file(name, found, package)
        if top == "torch":
            try:
                module = importlib.import_module("firebrand" + name[len("torch") :])
            except ModuleNotFoundError:
                module = None
            if module is not None:
                return importlib.machinery.ModuleSpec(name, _Alias(module), is_package=hasattr(module, "__path__"))
        return importlib.machinery.ModuleSpec(name, _Nowhere(), is_package=True)


def install():
    if not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
