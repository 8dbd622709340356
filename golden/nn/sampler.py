"""Writes golden/nn/sampler.json: shares of 10 samples among 3 ranks in epoch 2, as PyTorch's DistributedSampler draws them, without its padding.

Run: python golden/nn/sampler.py
"""

import json
import pathlib

from torch.utils.data import DistributedSampler

shares = []
for rank in range(3):
    sampler = DistributedSampler(range(10), num_replicas=3, rank=rank, seed=5)
    sampler.set_epoch(2)
    shares.append(list(sampler)[: (10 - rank + 2) // 3])
(pathlib.Path(__file__).parent / "sampler.json").write_text(json.dumps(shares) + "\n")
