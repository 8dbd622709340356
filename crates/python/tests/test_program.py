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


def _checkpoint(m):
    layer = m.nn.Linear(2, 2)
    optimizer = m.optim.AdamW(layer.parameters(), lr=0.5)
    layer(m.ones(1, 2)).sum().backward()
    optimizer.step()
    return layer, optimizer, {
        "model": layer.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "loss": -0.25,
        "names": ["ä", None, True],
        "sizes": (1 << 40, -5),
    }


def test_checkpoints_are_saved_and_loaded(tmp_path):
    layer, optimizer, saved = _checkpoint(firebrand)
    path = tmp_path / "checkpoint.pt"
    firebrand.save(saved, path)
    with open(tmp_path / "other.pt", "wb") as file:
        firebrand.save(saved, file)
    for found in [firebrand.load(path, map_location="cpu"), firebrand.load(open(tmp_path / "other.pt", "rb"))]:
        assert {k: found[k] for k in ("epoch", "loss", "names", "sizes")} == {
            k: saved[k] for k in ("epoch", "loss", "names", "sizes")
        }
        fresh = firebrand.nn.Linear(2, 2)
        fresh.load_state_dict(found["model"])
        assert fresh.weight.tolist() == layer.weight.tolist() and not found["model"]["weight"].requires_grad
        again = firebrand.optim.AdamW(fresh.parameters(), lr=0.5)
        again.load_state_dict(found["optimizer"])
        moments = [s["exp_avg"].tolist() for s in optimizer.state_dict()["state"].values()]
        assert [s["exp_avg"].tolist() for s in again.state_dict()["state"].values()] == moments
    with pytest.raises(TypeError, match="found a Linear; save its state_dict"):
        firebrand.save(layer, path)
    with pytest.raises(NotImplementedError, match="map_location"):
        firebrand.load(path, map_location="cuda")


def test_checkpoints_are_pytorchs(tmp_path):
    torch = pytest.importorskip("torch")
    ours, theirs = tmp_path / "ours.pt", tmp_path / "theirs.pt"
    _, _, saved = _checkpoint(firebrand)
    firebrand.save(saved, ours)
    found = torch.load(ours, weights_only=True)
    assert found["model"]["weight"].tolist() == saved["model"]["weight"].tolist() and found["names"] == saved["names"]
    _, _, saved = _checkpoint(torch)
    torch.save(saved, theirs)
    found = firebrand.load(theirs)
    assert found["optimizer"]["state"][0]["exp_avg"].tolist() == saved["optimizer"]["state"][0]["exp_avg"].tolist()
    assert found["sizes"] == saved["sizes"] and list(found["model"]) == ["weight", "bias"]


def test_refusals():
    model = firebrand.load(DIGITS)
    with pytest.raises(TypeError, match="by position"):
        model(3)
    with pytest.raises(RuntimeError, match="expected 1 tensors, found 0"):
        model()
    for missing in ["missing.pt2", "missing.pt"]:
        with pytest.raises(FileNotFoundError):
            firebrand.load(missing)


def test_ops_that_are_only_names_keep_the_names_of_their_arguments(tmp_path):
    torch = pytest.importorskip("torch")

    class Draws(torch.nn.Module):
        def forward(self, x):
            return torch.ops.aten.uniform.default(x, -1.0, 1.0)

    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    torch.export.save(torch.export.export(Draws(), (torch.ones(3),)), before)
    firebrand._C.load_program(str(before), runnable=False).save(str(after))
    assert "uniform" in str(torch.export.load(after).graph)
