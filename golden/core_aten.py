"""Writes golden/core_aten.json: what PyTorch's export decompositions leave alone, and what they take apart.

    python golden/core_aten.py                      needs PyTorch 2.15

Only ops of schema/ops.yaml are listed. `kept` are ops that programs hold after `run_decompositions()`: neither in the table of
core_aten_decompositions nor composite. `tagged` are those of them that carry the tag `core`.
"""

import json
import pathlib

import torch
import yaml
from torch._decomp import core_aten_decompositions

HERE = pathlib.Path(__file__).resolve().parent


def main():
    table = core_aten_decompositions()
    kept, taken, tagged = [], [], []
    for entry in yaml.safe_load((HERE.parent / "schema/ops.yaml").read_text()):
        base, _, overload = entry["func"].split("(")[0].partition(".")
        packet = getattr(torch.ops.aten, base, None)
        op = packet and getattr(packet, overload or "default", None)
        if op is None:
            continue
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
        (taken if op in table or composite else kept).append(op.name())
        if torch.Tag.core in op.tags and kept[-1:] == [op.name()]:
            tagged.append(op.name())
    lists = {"kept": sorted(kept), "taken_apart": sorted(taken), "tagged": sorted(tagged)}
    lines = ",\n".join(f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(n) for n in v) + "\n]" for k, v in lists.items())
    (HERE / "core_aten.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
