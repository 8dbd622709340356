"""Makes ctc.json: losses of torch.nn.CTCLoss and gradients of scores through log_softmax.

Scores are `randn(6, 4, 5)` from seed 0 in f64. Run: python golden/nn/ctc.py > golden/nn/ctc.json
"""

import json
import torch

ROWS = [
    {"targets": [[1, 2, 3], [4, 4, 1], [2, 2, 2], [3, 0, 0]], "input": [6, 6, 5, 4], "target": [3, 3, 2, 1]},
    {"targets": [[1, 2], [3, 1], [1, 1], [2, 3]], "input": [6, 2, 4, 1], "target": [2, 1, 0, 1], "reduction": "sum"},
    {"targets": [[0, 2], [3, 1], [1, 1], [2, 3]], "input": [6, 5, 2, 6], "target": [2, 2, 2, 1], "blank": 4, "zero_infinity": True, "reduction": "none"},
]


def row(r):
    torch.manual_seed(0)
    scores = torch.randn(6, 4, 5, dtype=torch.float64).requires_grad_()
    options = {k: r[k] for k in ("blank", "zero_infinity", "reduction") if k in r}
    lengths = [torch.tensor(r[k]) for k in ("input", "target")]
    loss = torch.nn.CTCLoss(**options)(scores.log_softmax(2), torch.tensor(r["targets"]), *lengths)
    (loss * torch.arange(1, loss.numel() + 1).reshape(loss.shape)).sum().backward()
    return r | {"loss": loss.flatten().tolist(), "grad": scores.grad.flatten().tolist()}


print(json.dumps([row(r) for r in ROWS], separators=(",", ":")))
