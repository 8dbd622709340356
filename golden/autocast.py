"""Writes golden/autocast.json: the dtypes that ops give inside `torch.autocast("cpu", torch.bfloat16)`.

    python golden/autocast.py                       needs PyTorch 2.15

The calls are the first samples of every op in golden/opinfo, with their floating point tensors in f32, in bf16, and with the
first one in f32 and the others in bf16. `listed` are the ops of schema/ops.yaml that PyTorch's CPU autocast has a rule for, read
from its dispatcher; `rows` gives, for each sample (file:line) and each of the three, the dtypes of the results, or null where
PyTorch refuses the call. A result that is none is null. `calls` has the same for listed ops that the table samples only with
complex tensors, or under another name: each is called with one matrix, twos on the diagonal and ones elsewhere.
"""

import json
import pathlib
import re

import torch

from check_opinfo import NAME, flat, value

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = 2
MATRIX_CALLS = ["fft_hfft", "fft_fft2", "fft_ifft2", "fft_irfft2", "fft_irfftn", "svd", "linalg_eig", "linalg_eigh", "linalg_svd"]
SKIPPED = {"dtype", "promote", "noncontiguous", "random"}
VARIANTS = {"f32": (torch.float32, torch.float32), "bf16": (torch.bfloat16, torch.bfloat16), "mixed": (torch.float32, torch.bfloat16)}


def cast(v, first, rest):
    """The arguments with the first floating point tensor in one dtype and the others in another."""
    count = 0

    def one(v):
        nonlocal count
        if isinstance(v, torch.Tensor):
            if not v.is_floating_point():
                return v.detach()
            count += 1
            return v.detach().to(first if count == 1 else rest)
        return [one(x) for x in v] if isinstance(v, list) else v

    return one(v), count


def mutates(op):
    return any(a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments)


def results(op, row, first, rest):
    (args, kwargs), count = cast([[value(a) for a in row["args"]], [value(v) for v in row["kwargs"].values()]], first, rest)
    kwargs = dict(zip(row["kwargs"], kwargs))
    if count == 0 or (first != rest and count == 1):
        return "same"
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made = op(*args, **kwargs)
    except Exception:
        return None
    outs = [] if made is None else flat(made)
    return [NAME[o.dtype] if isinstance(o, torch.Tensor) else None for o in outs if o is None or isinstance(o, torch.Tensor)]


def of_matrix(name, dtype):
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made = getattr(torch.ops.aten, name).default((torch.ones(4, 4) + torch.eye(4)).to(dtype))
    except Exception:
        return None
    return [NAME[o.dtype] for o in flat(made)]


def main():
    ours = re.findall(r"^- func: ['\"]?([^(]+)\(", (HERE.parent / "schema/ops.yaml").read_text(), re.M)
    listed = [n for n in ours if torch._C._dispatch_has_kernel("aten::" + n) and torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + n, "AutocastCPU")]
    rows, seen = {}, {}
    for path in sorted((HERE / "opinfo").glob("*.json")):
        for n, row in enumerate(json.loads(path.read_text())["rows"]):
            name, _, overload = row["op"].removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, name, None), overload, None)
            if op is None or row.get("error") or SKIPPED & set(row.get("tags", [])) or mutates(op):
                continue
            found = {k: results(op, row, *v) for k, v in VARIANTS.items()}
            # Without results there is nothing to compare.
            if found["f32"] in ("same", []) or seen.get(row["op"], 0) == SAMPLES:
                continue
            seen[row["op"]] = seen.get(row["op"], 0) + 1
            rows[f"{path.stem}:{n + 2}"] = {"op": row["op"]} | {k: v for k, v in found.items() if v != "same"}
    calls = {n: {k: of_matrix(n, v[0]) for k, v in VARIANTS.items() if k != "mixed"} for n in MATRIX_CALLS}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
    (HERE / "autocast.json").write_text('{"listed": ' + json.dumps(sorted(listed)) + ',\n"calls": ' + json.dumps(calls) + ',\n"rows": {\n' + lines + "\n}}\n")
    print(len(listed), "ops on PyTorch's lists,", len(rows), "samples of", len(seen), "ops")


if __name__ == "__main__":
    main()
