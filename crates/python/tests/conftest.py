"""Cases run twice: on firebrand, and on PyTorch, whose results are stored for machines without it.

A case is a function of the module (`firebrand` or `torch`) that returns numbers, texts, lists and dictionaries. With PyTorch
installed the stored results are compared with fresh ones too; `pytest --store` writes them.
"""

import json
import pathlib
import warnings

import pytest

try:
    import torch
except ImportError:
    torch = None

STORED = pathlib.Path(__file__).parent / "stored.json"


def pytest_addoption(parser):
    parser.addoption("--store", action="store_true", help="write PyTorch's results to stored.json")


class Oracle:
    def __init__(self, store):
        self.store = store
        self.stored = json.loads(STORED.read_text()) if STORED.exists() else {}

    def expected(self, name, case):
        if torch is None:
            return self.stored[name]
        found = plain(run(case, torch))
        if self.store:
            self.stored[name] = found
        else:
            assert close(found, self.stored.get(name)), f"{name}: stored.json is stale; run pytest --store"
        return found

    def write(self):
        if self.store:
            STORED.write_text(json.dumps(dict(sorted(self.stored.items())), indent=0) + "\n")


@pytest.fixture(scope="session")
def oracle(request):
    oracle = Oracle(request.config.getoption("--store"))
    yield oracle
    oracle.write()


def run(case, module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case(module)


def plain(value):
    """A result as JSON has it, without the name of the module."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.detach().tolist() if hasattr(value, "detach") else value.tolist())
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value).replace("torch.", "firebrand.").replace("torch/", "firebrand/")


def close(a, b):
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None or isinstance(a, str) or isinstance(b, str):
            return a == b
        return a == pytest.approx(b, rel=2e-5, abs=2e-6, nan_ok=True)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(close(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def raised(call):
    """The class and the text of what a call raises."""
    try:
        call()
    except Exception as e:
        return [type(e).__name__, str(e)]
    return ["nothing raised"]


def check(oracle, name, case):
    import firebrand

    expected = oracle.expected(name, case)
    found = plain(run(case, firebrand))
    assert close(found, expected), f"\nexpected {expected}\nfound    {found}"


def cases(table):
    """Parametrizes a test over the functions of a class."""
    functions = [(n, f) for n, f in vars(table).items() if not n.startswith("_")]
    return pytest.mark.parametrize("name, case", functions, ids=[n for n, _ in functions])
