"""Loads programs that firebrand wrote with PyTorch and compares what they compute with what the originals compute.

    python golden/conformance_pt2.py FOLDER       run by `cargo xtask conformance pt2`

FOLDER holds <name>.<file>.pt2 for every program of golden/programs, and in `dynamic` programs that firebrand exported with
sizes that vary: <name>.pt2, with inputs and outputs at two sizes in <name>.<k>.npz.
"""

import json
import pathlib
import sys

import numpy as np
import torch

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def arrays(path, meta):
    found = {}
    for key, value in np.load(path).items():
        tensor = torch.from_numpy(value.astype(np.int32) if value.dtype == np.uint16 else value)
        found[key] = (tensor.to(torch.int16).view(torch.bfloat16)) if value.dtype == np.uint16 else tensor
    return found


def call(program, meta, inputs):
    """Calls the program with its own example structure, leaf by leaf."""
    leaves = []
    for entry in meta["inputs"]:
        leaves.append(inputs[entry["name"]].clone() if "tensor" in entry else entry["constant"])
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    results = program.module()(*args, **kwargs)
    return torch.utils._pytree.tree_leaves(results, is_leaf=lambda x: x is None)


# A call of each program with sizes that its ranges exclude.
OUT_OF_RANGE = {
    "network": [(65, 1, 8, 8)],
    "encoder": [(4, 129, 8)],
    "function": [(65, 6), (65, 6)],
    "branch": [(65, 6)],
}


def dynamic(folder):
    """Runs programs with sizes that vary at sizes they were not traced at."""
    compared = 0
    for name, shapes in OUT_OF_RANGE.items():
        program = torch.export.load(folder / f"{name}.pt2").module()
        for k in range(2):
            data = {key: torch.from_numpy(value) for key, value in np.load(folder / f"{name}.{k}.npz").items()}
            inputs = [value for key, value in data.items() if key.startswith("in_")]
            outputs = program(*inputs)
            for i, found in enumerate(outputs):
                # bfloat16 products differ in the order of their sums.
                rtol = 1.6e-2 if found.dtype == torch.bfloat16 else 1e-5
                expected = data[f"out_{i}"]
                torch.testing.assert_close(found.detach().float(), expected, rtol=rtol, atol=1e-5, msg=f"{name}.{k}: {i}")
                compared += 1
        try:
            program(*[torch.zeros(shape) for shape in shapes])
        except (AssertionError, RuntimeError):
            continue
        raise SystemExit(f"{name}: sizes {shapes} are out of range and were not refused")
    print(f"{len(OUT_OF_RANGE)} programs with sizes that vary, {compared} outputs agree")


def main(folder):
    dynamic(pathlib.Path(folder) / "dynamic")
    compared = 0
    for path in sorted(pathlib.Path(folder).glob("*.pt2")):
        name, kind = path.name.split(".")[:2]
        meta = json.loads((PROGRAMS / name / "meta.json").read_text())
        program = torch.export.load(path)
        outputs = call(program, meta, arrays(PROGRAMS / name / "inputs.npz", meta))
        expected = arrays(PROGRAMS / name / "outputs.npz", meta)
        for key, value in expected.items():
            found = outputs[int(key.removeprefix("out_"))].detach()
            torch.testing.assert_close(found, value, rtol=meta["rtol"], atol=meta["atol"], msg=f"{path.name}: {key}")
            compared += 1
    print(f"{len(list(pathlib.Path(folder).glob('*.pt2')))} programs load in PyTorch {torch.__version__}, {compared} outputs agree")


if __name__ == "__main__":
    main(sys.argv[1])
