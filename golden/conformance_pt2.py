"""Loads programs that firebrand wrote with PyTorch and compares what they compute with what the originals compute.

    python golden/conformance_pt2.py FOLDER       run by `cargo xtask conformance pt2`

FOLDER holds <name>.<file>.pt2 for every program of golden/programs.
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


def main(folder):
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
