"""Makes ddp.json: twenty steps of DistributedDataParallel on two processes (gloo), in f64 and f32.

Rank r trains on half r of every batch. Model and data are drawn from seed 0 in the order of `run` below, so that a reader with
PyTorch's generator needs no data. Losses are the mean over both ranks.
Run: python golden/nn/ddp.py > golden/nn/ddp.json
"""

import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
RANKS = 2
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def run(rank, optimizer, dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(dtype)
    x, y = torch.randn(STEPS, 24, 6), torch.randint(0, 3, (STEPS, 24))
    replica = DistributedDataParallel(model)
    step = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for k in range(STEPS):
        half = slice(rank * 12, rank * 12 + 12)
        loss = torch.nn.functional.cross_entropy(replica(x[k, half].to(dtype)), y[k, half])
        step.zero_grad()
        loss.backward()
        step.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    return {"losses": losses, "parameters": [p.flatten().tolist() for p in model.parameters()]}


def worker(rank, folder):
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meeting"), rank=rank, world_size=RANKS)
    rows = []
    for optimizer in OPTIMIZERS:
        for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
            rows.append({"optimizer": optimizer, "dtype": name, **run(rank, optimizer, dtype)})
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "rows": rows}))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(folder,), nprocs=RANKS)
