"""The table of names against PyTorch: which overloads a name has, and in which order they are tried."""

import re

import pytest

import firebrand
from firebrand import _firebrand as _C


class Nothing:
    pass


def order(m, name, method):
    """The overloads that PyTorch lists when nothing fits, or none if it names one argument only."""
    owner = m.ones(2) if method else m
    try:
        getattr(owner, name)(Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing(), Nothing())
    except TypeError as e:
        return re.findall(r"^ \* (\(.*\))$", str(e), re.M)
    except Exception:
        return []
    return []


def arguments(signature):
    """The types and names of a signature, as far as both packages have them."""
    parts = re.sub(r" = [^,)]*(\([^)]*\))?", "", signature.strip("()")).split(", ")
    return [p.replace("torch.", "firebrand.") for p in parts if p and p != "*" and not p.endswith(" out")]


@pytest.mark.parametrize("method", [False, True])
def test_overloads_are_tried_in_pytorchs_order(method):
    torch = pytest.importorskip("torch")
    compared, wrong = 0, []
    for name, places in _C.op_names():
        if ("method" if method else "function") not in places:
            continue
        theirs = [arguments(s) for s in order(torch, name, method)]
        ours = [arguments(s) for s in _C.op_function(name, method)._signatures]
        common = [s for s in theirs if s in ours]
        if len(common) < 2:
            continue
        compared += 1
        if [s for s in ours if s in theirs] != common:
            wrong.append((name, ours, theirs))
    assert not wrong and compared > 30, (compared, wrong)


def test_every_name_can_be_looked_up():
    for name, places in _C.op_names():
        assert places
        assert _C.op_function(name, False)._signatures, name


def test_no_name_of_the_table_is_lost():
    for name, places in _C.op_names():
        if "function" in places:
            assert hasattr(firebrand, name), name
        if "method" in places:
            assert hasattr(firebrand.Tensor, name), name
