"""Writes golden/archives: small files of torch.save and safetensors, and programs in the layouts of older releases.

    python golden/make_archives.py

The older layouts are made from golden/programs/strided_state/model.pt2 by moving its content to where releases 2.8 and
2.7 put it; PyTorch 2.15 loads both.
"""

import collections
import io
import json
import pathlib
import zipfile

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
OUT = HERE / "archives"
OUT.mkdir(exist_ok=True)

# torch.save: containers, sharing, a parameter, every dtype.
base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
dtypes = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
torch.save(
    {
        "epoch": 3,
        "lr": 0.5,
        "name": "täst",
        "none": None,
        "flags": [True, False],
        "big": 1 << 40,
        "negative": -5,
        "pair": (1, [2.0, "x"]),
        "base": base,
        "row": base[1],
        "transposed": base.t(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "empty": torch.zeros(0, 3),
        "ordered": collections.OrderedDict(a=torch.tensor(7)),
        "dtypes": {d: torch.tensor([0, 1, 3]).to(getattr(torch, d)) for d in dtypes},
    },
    OUT / "containers.pt",
)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
torch.save(model.state_dict(), OUT / "state_dict.pt")
torch.save(model, OUT / "module.pt")

save_file(
    {
        "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "half": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        "count": torch.tensor(4),
        "mask": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 2),
    },
    str(OUT / "tensors.safetensors"),
)

# Older layouts of exported programs.
program = torch.export.load(HERE / "programs/strided_state/model.pt2")
source = zipfile.ZipFile(HERE / "programs/strided_state/model.pt2")


def saved(value):
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


state = {k: v for k, v in program.state_dict.items()}
constants = {k: v for k, v in program.constants.items()}
model_json = json.loads(source.read("model/models/model.json"))


def versioned(minor):
    changed = json.loads(json.dumps(model_json))
    changed["schema_version"]["minor"] = minor
    return json.dumps(changed)


with zipfile.ZipFile(OUT / "layout_2_8.pt2", "w") as z:
    for name in ["archive_format", "archive_version", ".data/version", "byteorder"]:
        z.writestr(f"model/{name}", source.read(f"model/{name}"))
    z.writestr("model/data/weights/model.pt", saved(state))
    z.writestr("model/data/constants/model.pt", saved(constants))
    z.writestr("model/data/sample_inputs/model.pt", source.read("model/data/sample_inputs/model.pt"))
    z.writestr("model/models/model.json", versioned(8))

with zipfile.ZipFile(OUT / "layout_2_7.pt2", "w") as z:
    z.writestr("version", "8.7")
    z.writestr("serialized_exported_program.json", versioned(7))
    z.writestr("serialized_state_dict.pt", saved(state))
    z.writestr("serialized_constants.pt", saved(constants))
    z.writestr("serialized_example_inputs.pt", source.read("model/data/sample_inputs/model.pt"))

for name in ["layout_2_8", "layout_2_7"]:
    again = torch.export.load(OUT / f"{name}.pt2")
    assert all(torch.equal(again.state_dict[k], v) for k, v in state.items()), name
