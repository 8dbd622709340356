"""Records what PyTorch's own loop makes of small programs: the weights that `firebrand train` must reach from the same seed.

`classes`: cross entropy with ignored labels, class weights, label smoothing, parameter groups, clipping, warm-up and an average;
`--accumulate 3` with batches of 4 here is one batch of 12 there. `own_loss`: a model that returns its loss. `huber`: a loss that
PyTorch exported. Run: python golden/train/make.py
"""

import pathlib
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

HERE = pathlib.Path(__file__).parent


def save(program, name):
    for node in program.graph.nodes:  # paths of the machine that made it
        node.meta.pop("stack_trace", None)
    torch.export.save(program, HERE / name)


def export(model, inputs, name, dynamic):
    save(torch.export.export(model, inputs, dynamic_shapes=dynamic), name)


batch = torch.export.Dim("batch", min=1, max=1024)
torch.manual_seed(1)
x, labels = torch.randn(50, 6, dtype=torch.float64), torch.randint(0, 4, (50,))
labels[::7] = -100
np.savez(HERE / "classes.npz", input=x.numpy(), __target__=labels.numpy())


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, input):
        return self.head(self.body(input))


model = Classifier().double()
export(model, (x[:8].clone(),), "classes.pt2", {"input": {0: batch}})

EPOCHS, SIZE, K, WARM = 4, 4, 3, 3
weight = torch.tensor([1, 2, 0.5, 1], dtype=torch.float64)
named = dict(model.named_parameters())
groups = [
    {"params": [named["body.0.weight"]], "lr": 0.01, "weight_decay": 0.1},
    {"params": [named["body.0.bias"]], "lr": 0.01, "weight_decay": 0.0},
    {"params": [named["head.weight"]], "lr": 0.05, "weight_decay": 0.1},
    {"params": [named["head.bias"]], "lr": 0.05, "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups)
per_epoch = -(-(-(-50 // SIZE)) // K)
steps = EPOCHS * per_epoch
rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / (WARM + 1), 1.0, WARM)
fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - WARM)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [WARM])
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
torch.manual_seed(5)
loader = DataLoader(TensorDataset(x, labels), batch_size=SIZE, shuffle=True)
for _ in range(EPOCHS):
    batches = list(loader)
    for at in range(0, len(batches), K):
        inputs, targets = (torch.cat(part) for part in zip(*batches[at : at + K]))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets, weight=weight, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
state = {f"{k}": v.numpy() for k, v in average.module.state_dict().items()}
np.savez(HERE / "classes_trained.npz", **state)


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, input, labels):
        logits = self.fc(input)
        return {"loss": F.cross_entropy(logits, labels, ignore_index=-100), "logits": logits}


torch.manual_seed(2)
own = OwnLoss().double()
export(own, (x[:8].clone(), labels[:8].clone()), "own_loss.pt2", {"input": {0: batch}, "labels": {0: batch}})
np.savez(HERE / "own_loss.npz", input=x[:48].numpy(), labels=labels[:48].numpy())
optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(5)
for _ in range(3):
    for inputs, targets in DataLoader(TensorDataset(x[:48], labels[:48]), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        own(inputs, targets)["loss"].backward()
        optimizer.step()
np.savez(HERE / "own_loss_trained.npz", **{k: v.numpy() for k, v in own.state_dict().items()})


class Huber(nn.Module):
    def forward(self, output, target):
        return F.huber_loss(output, target, delta=0.3)


target = torch.randn(50, 4, dtype=torch.float64)
np.savez(HERE / "huber.npz", input=x.numpy(), __target__=target.numpy())
export(Huber(), (target[:8].clone(), target[:8].clone()), "huber.pt2", {"output": {0: batch}, "target": {0: batch}})
model = torch.export.load(HERE / "classes.pt2").module()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(5)
for _ in range(3):
    for inputs, targets in DataLoader(TensorDataset(x, target), batch_size=10, shuffle=True):
        optimizer.zero_grad()
        F.huber_loss(model(inputs), targets, delta=0.3).backward()
        optimizer.step()
np.savez(HERE / "huber_trained.npz", **{k: v.detach().numpy() for k, v in model.state_dict().items()})
