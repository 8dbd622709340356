"""Makes sparse.json: gradients that PyTorch keeps sparse, their sums, and how they print.

Run: python golden/sparse.py > golden/sparse.json
"""

import json

import torch
import torch.nn.functional as F

TABLE = (5, 2)
INDICES = [[0, 2, 0], [3, 2, 1]]
OFFSETS = [0, 2, 2]
FLAT = [4, 1, 1, 0, 3]
PICKED = [[0, 1, 1], [2, 0, 1]]


def table():
    return (torch.arange(10, dtype=torch.float64).reshape(TABLE) / 8 - 0.5).requires_grad_()


def weighted(y):
    """A loss whose gradient differs from element to element."""
    return (y * torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)).sum()


def bag(w, **options):
    weights = torch.tensor([0.5, 2.0, -1.0, 1.5, 3.0], dtype=torch.float64) if options.pop("weights", False) else None
    return F.embedding_bag(torch.tensor(FLAT), w, torch.tensor(OFFSETS), sparse=True, per_sample_weights=weights, **options)


CASES = {
    "embedding": lambda w: F.embedding(torch.tensor(INDICES), w, sparse=True),
    "embedding padding_idx=2": lambda w: F.embedding(torch.tensor(INDICES), w, padding_idx=2, sparse=True),
    "embedding_bag sum": lambda w: bag(w, mode="sum"),
    "embedding_bag mean padding_idx=1": lambda w: bag(w, mode="mean", padding_idx=1),
    "embedding_bag sum weights": lambda w: bag(w, mode="sum", weights=True),
    "gather": lambda w: torch.gather(w, 0, torch.tensor(PICKED).T[:, :2], sparse_grad=True),
}


def parts(g):
    if not g.is_sparse:
        return {"dense": g.flatten().tolist()}
    c = g.coalesce()
    return {
        "nnz": g._nnz(),
        "indices": g._indices().flatten().tolist(),
        "coalesced": [c.indices().flatten().tolist(), c.values().flatten().tolist()],
        "dense": g.to_dense().flatten().tolist(),
    }


rows = {}
for name, f in CASES.items():
    w = table()
    weighted(f(w)).backward()
    row = {"once": parts(w.grad)}
    weighted(f(w)).backward()
    row["twice"] = parts(w.grad)
    (w * w).sum().backward()
    row["and dense"] = parts(w.grad)
    w = table()
    (weighted(f(w)) + (w * w).sum()).backward()
    row["beside dense"] = parts(w.grad)
    w = table()
    (weighted(f(w)) + weighted(f(w))).backward()
    row["two uses"] = parts(w.grad)
    rows[name] = row
t = torch.sparse_coo_tensor([[2, 0]], torch.tensor([[1.5, 2.0], [3.0, -1.0]]), (4, 2))
print(json.dumps({"cases": rows, "printed": str(t)}))
