"""Numbers of distributions that are sampled by trial, as PyTorch draws them from a seed.

    python golden/distributions.py > golden/distributions.json

Read by `crates/core/tests/distributions.rs`.
"""

import json
import sys

import torch

torch.set_num_threads(1)
CASES = [
    ("poisson", [[0.0, 0.3, 2.5, 9.9, 10.0, 12.5, 40.0, 1000.0]]),
    ("_standard_gamma", [[0.05, 0.5, 0.99, 1.0, 1.5, 4.0, 30.0, 500.0]]),
    ("binomial", [[10.0, 40.0, 100.0, 1000.0, 0.0, 5.0, 1000.0, 30.0], [0.2, 0.7, 0.5, 0.01, 0.5, 1.0, 0.9, 0.999]]),
    ("_sample_dirichlet", [[0.5, 1.5, 3.0, 0.2]]),
]


def main():
    rows = []
    for name, lists in CASES:
        for dtype in (torch.float64, torch.float32):
            args = [torch.tensor(x, dtype=dtype).repeat(6).reshape(6, -1) for x in lists]
            torch.manual_seed(17)
            out = getattr(torch.ops.aten, name)(*args)
            rows.append({"op": f"aten::{name}", "dtype": str(dtype).removeprefix("torch."), "args": lists, "out": out.double().flatten().tolist(), "next": torch.rand((), dtype=torch.float64).item()})
    print("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")


sys.exit(main())
