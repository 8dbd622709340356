"""Makes the models that `cargo xtask conformance mpi` trains on several ranks: a perceptron, a small GPT, a residual net with batch norm, each exported, and
samples for them. Run: python golden/train/replicas.py
"""

import pathlib
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
BATCH = torch.export.Dim("batch", min=1, max=1024)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(11, 16), nn.Parameter(0.02 * torch.randn(6, 16))
        self.blocks = nn.Sequential(Block(16, 2), Block(16, 2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.token(ids) + self.position)))[:, -1]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv1, self.norm1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)

    def forward(self, image):
        x = F.relu(self.norm(self.stem(image)))
        x = F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))
        return self.head(x.mean((2, 3)))


torch.manual_seed(4)
models = {
    "perceptron": (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)), "input", torch.randn(48, 6), 4),
    "gpt": (GPT(), "ids", torch.randint(0, 11, (48, 6)), 11),
    "residual": (Residual(), "image", torch.randn(48, 1, 6, 6), 4),
}
for name, (model, input, samples, count) in models.items():
    program = torch.export.export(model, (samples[:8],), dynamic_shapes=({0: BATCH},))
    for node in program.graph.nodes:  # paths of the machine that made it
        node.meta.pop("stack_trace", None)
    torch.export.save(program, HERE / f"{name}.pt2")
    labels = torch.randint(0, count, (len(samples),))
    np.savez(HERE / f"{name}.npz", **{input: samples.numpy(), "__target__": labels.numpy()})
