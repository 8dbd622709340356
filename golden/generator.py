"""Makes generator.json: what PyTorch's CPU generator draws, as bit patterns.

A case is a seed and steps that run one after the other on the same generator, so that a wrong number of draws or a
lost cached normal shows in every later step. `state` is an FNV-1a hash of torch.get_rng_state() after the last step.

PyTorch on Intel CPUs draws bernoulli_(float), exponential_ from MKL's own streams; run this on another x86 or ARM machine.
Run: python golden/generator.py > golden/generator.json
"""

import json
import torch

SIZES = [1, 3, 15, 16, 17, 31, 32, 40, 100]
SEEDS = [0, 1, 123456789]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


def bits(t):
    t = t.contiguous()
    size = t.element_size()
    ints = t.view(WIDTH[size]) if t.dtype != torch.bool else t.to(torch.uint8)
    return " ".join(f"{v % 256**size:x}" for v in ints.flatten().tolist())


def step(op, n, dtype, *args):
    t = torch.empty(n, dtype=getattr(torch, dtype))
    if op == "uniform":
        t.uniform_(*args)
    elif op == "normal":
        t.normal_(*args)
    elif op == "normal_strided":  # not contiguous: never the blocks of sixteen
        t = torch.empty(2 * n, dtype=t.dtype)[::2].normal_(*args)
    elif op == "bernoulli":
        t.bernoulli_(*args)
    elif op == "bernoulli_tensor":  # p = (i mod 10) / 10, in the dtype of the output where it is floating point
        p = (torch.arange(n) % 10).to(torch.float64) / 10
        t = torch.bernoulli(p.to(t.dtype)) if t.dtype.is_floating_point else t.bernoulli_(p)
    elif op == "exponential":
        t.exponential_(*args)
    elif op == "geometric":
        t.geometric_(*args)
    elif op == "cauchy":
        t.cauchy_(*args)
    elif op == "log_normal":
        t.log_normal_(*args)
    elif op == "random_from_to":
        t.random_(*args)
    elif op == "random":
        t.random_()
    elif op == "random_full":
        t.random_(-(2**63), None)
    elif op == "randperm":
        t = torch.randperm(n, dtype=t.dtype)
    elif op == "multinomial":  # three rows of weights 1..=7, rotated; n draws each
        w = torch.stack([torch.roll(torch.arange(1, 8), r) for r in range(3)]).to(t.dtype)
        t = torch.multinomial(w, n, replacement=True)
    return {"op": op, "n": n, "dtype": dtype, "args": list(args), "bits": bits(t)}


def case(seed, steps):
    torch.manual_seed(seed)
    done = [step(*s) for s in steps]
    return {"seed": seed, "steps": done, "state": fnv(torch.get_rng_state().tolist())}


cases = []
for dtype in FLOATS:
    cases.append(case(0, [("uniform", n, dtype) for n in SIZES]))
    cases.append(case(1, [("uniform", n, dtype, -2.5, 3.25) for n in (3, 17)]))
    cases.append(case(0, [("normal", n, dtype) for n in SIZES]))
    cases.append(case(1, [("normal", n, dtype, 2.5, 0.3) for n in (3, 17, 1)]))
for seed in SEEDS:
    mixed = [
        ("uniform", 3, "float32"), ("normal", 1, "float32"), ("random_from_to", 5, "int64", 0, 10),
        ("normal", 2, "float64"), ("random_from_to", 3, "int64", -5, 2**40), ("bernoulli", 7, "float32", 0.3),
        ("exponential", 5, "float32", 1.5), ("exponential", 5, "float64", 1.0), ("normal", 17, "float32"),
        ("normal_strided", 17, "float32"), ("normal", 3, "float16"), ("randperm", 10, "int64"), ("randperm", 1, "int32"),
        ("bernoulli_tensor", 12, "float32"), ("bernoulli_tensor", 12, "float64"), ("bernoulli_tensor", 12, "float16"),
        ("uniform", 2, "bfloat16"), ("normal", 31, "float64"), ("multinomial", 6, "float32"),
        ("multinomial", 3, "float64"), ("randperm", 40, "int16"), ("uniform", 1, "float64"),
        ("normal", 700, "float16"), ("normal", 1, "bfloat16"), ("uniform", 4, "float32"),
    ]
    if seed != 0:
        mixed = [s for s in mixed if s[1] != 700]
    cases.append(case(seed, mixed))
cases.append(case(0, [("random", 6, d) for d in
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]]
    + [("random_full", 4, "int64")]))
cases.append(case(1, [
    ("random_from_to", 6, "uint8", 3, 200), ("random_from_to", 6, "float32", -4, 9), ("random_from_to", 6, "float16", 0, 100),
    ("random_from_to", 6, "bool", 0, 2), ("random_from_to", 6, "int32", 0, 2**28 - 1), ("random_from_to", 6, "int32", 0, 2**28),
    ("random_from_to", 6, "int64", 0, 2**32 - 1), ("random_from_to", 6, "int64", 0, 2**32),
    ("random_from_to", 6, "int64", -(2**63), 2**63 - 1), ("random_from_to", 6, "float64", -7, 2**50),
]))
cases.append(case(123456789, [("bernoulli", 9, d, 0.5) for d in ["bool", "uint8", "int64", "float16", "bfloat16", "float64"]]
    + [("bernoulli_tensor", 12, d) for d in ["bool", "int64"]]))
cases.append(case(0, [(op, n, d, *args) for d in FLOATS for n in (5, 20) for op, args in
    [("exponential", (0.7,)), ("geometric", (0.2,)), ("cauchy", (1.0, 2.0)), ("log_normal", (0.5, 0.25))]]))
cases.append(case(1, [("geometric", 12, "int64", 0.1)] + [("randperm", n, "int64") for n in SIZES]))
# Where rounding would reach the open end.
cases.append(case(1, [("uniform", 16, d, 1.0, 1.0 + 4 * torch.finfo(getattr(torch, d)).eps) for d in FLOATS]))
cases.append(case(2**40 + 7, [("uniform", 3, "float32"), ("randperm", 5, "uint8")]))
print('{"torch": ' + json.dumps(torch.__version__.split("+")[0]) + ', "cases": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
