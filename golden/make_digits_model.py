"""Writes crates/firebrand/data/digits.pt2: a small network that PyTorch taught the digits 0 to 4, exported with any batch.

The example `fine_tune` teaches it the others.
Run: python golden/make_digits_model.py
"""

import pathlib

import torch
from sklearn.datasets import load_digits

OUT = pathlib.Path(__file__).parents[1] / "crates/firebrand/data/digits.pt2"


def main():
    torch.manual_seed(0)
    data = load_digits()
    order = torch.randperm(1797)[:1437]  # the training samples of `firebrand::digits`
    images = torch.tensor(data.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(data.target)[order]
    known = labels < 5
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[known]), labels[known]).backward()
        optimizer.step()
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    program = torch.export.export(model, (images[:8].clone(),), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:  # paths of the machine that made it
        node.meta.pop("stack_trace", None)
    torch.export.save(program, OUT)
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


main()
