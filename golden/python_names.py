"""Where PyTorch shows each op to Python: writes schema/python.yaml.

    python golden/python_names.py > schema/python.yaml

One line a name: `method` if tensors have it, `function` if it is a function of the package, and `nn`, `linalg`, `fft`,
`special` for the modules whose functions begin with that word. Only builtin names count; what PyTorch writes in Python
on top of them (`split`, `einsum`) is written in Python here too.
"""

import pathlib
import re

import torch

ROOT = pathlib.Path(__file__).parent.parent
PLACES = [
    ("method", torch._C.TensorBase),
    ("function", torch._C._VariableFunctions),
    ("nn", torch._C._nn),
    ("linalg", torch._C._linalg),
    ("fft", torch._C._fft),
    ("special", torch._C._special),
]


def names():
    text = (ROOT / "crates/core/src/ops/generated/schema.rs").read_text()
    return sorted(set(re.findall(r'"aten::([a-zA-Z0-9_]+)[.(]', text)))


def main():
    print(f"# Where PyTorch {torch.__version__.split('+')[0]} shows each op to Python; written by golden/python_names.py.")
    for name in names():
        if name.endswith("_backward"):
            continue
        found = [place for place, owner in PLACES if hasattr(owner, name)]
        if found:
            print(f"{name}: [{', '.join(found)}]")


if __name__ == "__main__":
    main()
