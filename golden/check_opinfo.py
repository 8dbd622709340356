"""Reads golden/opinfo/*.json back, as any consumer would, and runs every row on PyTorch again: proof that the files say all there is to say.

    python golden/check_opinfo.py [FAMILY...]
"""

import itertools
import json
import pathlib
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent / "opinfo"
DTYPES = dict(bool=torch.bool, u8=torch.uint8, i8=torch.int8, i16=torch.int16, i32=torch.int32, i64=torch.int64, f16=torch.float16, bf16=torch.bfloat16, f32=torch.float32, f64=torch.float64, c64=torch.complex64, c128=torch.complex128)


def tensor(o):
    numbers = [float(v) if isinstance(v, str) else v for v in o["data"]]
    if o["dtype"].startswith("c"):
        numbers = [complex(*pair) for pair in zip(numbers[::2], numbers[1::2])]
    values = torch.tensor(numbers, dtype=DTYPES[o["dtype"]]).reshape(o["shape"]).clone()
    if "strides" in o:
        view = torch.empty_strided(o["shape"], o["strides"], dtype=values.dtype)
        for index in itertools.product(*map(range, o["shape"])):
            view[index] = values[index]
        values = view
    return values.requires_grad_() if o.get("grad") else values


def value(o):
    if o is None:
        return None
    if "dtype" in o:
        return tensor(o)
    ((kind, v),) = o.items()
    match kind:
        case "float":
            return float(v)
        case "complex":
            return complex(*map(float, v))
        case "floats":
            return [float(x) for x in v]
        case "tensors":
            return [value(x) for x in v]
        case "dtype_arg":
            return DTYPES[v]
        case "memory_format" | "layout":
            return getattr(torch, v)
        case "device":
            return torch.device(v)
        case _:
            return v


def tensors(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, (list, tuple)):
        return [t for x in v for t in tensors(x)]
    return []


def flat(v):
    return [x for o in v for x in flat(o)] if isinstance(v, (list, tuple)) else [v]


def own(op, args, kwargs):
    """Clones of what the op writes to, so that leaves stay leaves."""
    writes = [a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments]
    return [a.clone() if w and isinstance(a, torch.Tensor) and a.requires_grad else a for a, w in zip(args, writes)], kwargs


def same(got, want):
    if want is None or got is None:
        return want is None and got is None
    if "dtype" not in want:
        return value(want) == got or (got != got)
    if NAME[got.dtype] != want["dtype"] or list(got.shape) != want["shape"]:
        return False
    if "data" not in want:
        return True
    w = tensor({k: v for k, v in want.items() if k != "strides"})
    tol = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}.get(want["dtype"], 0)
    return torch.allclose(got.detach(), w, rtol=tol, atol=tol, equal_nan=True) if tol else torch.equal(got, w)


NAME = {v: k for k, v in DTYPES.items()}


def check(row):
    name, _, overload = row["op"].removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, name), overload)
    args, kwargs = [value(a) for a in row["args"]], {k: value(v) for k, v in row["kwargs"].items()}
    if row.get("error"):
        try:
            op(*args, **kwargs)
        except Exception:
            return None
        return "was accepted"
    leaves = [t for t in tensors([args, list(kwargs.values())]) if t.requires_grad]
    a, k = own(op, args, kwargs)
    outs = flat(op(*a, **k))
    if len(outs) < len(row["out"]):
        return "number of outputs"
    for i, (got, want) in enumerate(zip(outs, row["out"])):
        if not same(got, want):
            return f"output {i}: {got}"
    for key, want in row.get("after", {}).items():
        at = [x.name for x in op._schema.arguments].index(key)
        pairs = zip(a[at], want["tensors"], strict=True) if "tensors" in want else [(a[at], want)]
        if not all(same(got, w) for got, w in pairs):
            return f"{key} after the call"
    if "grads" in row:
        if len(leaves) != len(row["grads"]):
            return "number of gradients"
        pairs = [(o, value(s)) for o, s in zip(outs, row["seeds"]) if s is not None]
        grads = torch.autograd.grad([o for o, _ in pairs], leaves, [s for _, s in pairs])
        for i, (got, want) in enumerate(zip(grads, row["grads"])):
            if not same(got, want):
                return f"gradient {i}"
    return None


def main():
    bad = 0
    for path in sorted(HERE.glob("*.json")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        rows = json.loads(path.read_text())["rows"]
        for n, row in enumerate(rows):
            try:
                why = check(row)
            except Exception as e:
                why = f"{type(e).__name__}: {str(e)[:200]}"
            if why:
                bad += 1
                print(f"{path.name}:{n + 2} {row['op']}: {why}")
        print(f"{path.stem}: {len(rows)} rows")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
