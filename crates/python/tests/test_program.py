"""Exported programs: the shipped one trains, and PyTorch reads what is saved."""

import pathlib

import pytest

import firebrand

DIGITS = pathlib.Path(__file__).parents[3] / "crates/firebrand/data/digits.pt2"


def test_a_program_trains_and_is_saved(tmp_path):
    model = firebrand.load(DIGITS)
    names = [n for n, _ in model.named_parameters()]
    assert names and all(p.requires_grad and p.is_leaf for p in model.parameters())
    firebrand.manual_seed(0)
    x, labels = firebrand.rand(8, 64), firebrand.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    optimizer = firebrand.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    model.train()
    for _ in range(10):
        optimizer.zero_grad()
        loss = firebrand.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    model.eval()
    path = tmp_path / "tuned.pt2"
    firebrand.save(model, path)
    again = firebrand.load(path).eval()
    assert [n for n, _ in again.named_parameters()] == names
    assert again(x).tolist() == model(x).tolist()


def test_pytorch_reads_what_is_saved(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "saved.pt2"
    model = firebrand.load(DIGITS).eval()
    firebrand.save(model, path)
    x = firebrand.rand(3, 64)
    theirs = torch.export.load(path).module()(torch.from_dlpack(x))
    assert theirs.detach().flatten().tolist() == pytest.approx(model(x).detach().flatten().tolist(), abs=1e-5)


def test_refusals():
    model = firebrand.load(DIGITS)
    with pytest.raises(TypeError, match="by position"):
        model(3)
    with pytest.raises(RuntimeError, match="expected 1 tensors, found 0"):
        model()
    with pytest.raises(RuntimeError):
        firebrand.load("missing.pt2")


def test_ops_that_are_only_names_keep_the_names_of_their_arguments(tmp_path):
    torch = pytest.importorskip("torch")

    class Draws(torch.nn.Module):
        def forward(self, x):
            return torch.ops.aten.uniform.default(x, -1.0, 1.0)

    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    torch.export.save(torch.export.export(Draws(), (torch.ones(3),)), before)
    firebrand._C.load_program(str(before), runnable=False).save(str(after))
    assert "uniform" in str(torch.export.load(after).graph)
