"""Ten small models in training mode: gradients of every parameter."""

import copy
import subprocess

import numpy as np
import torch
from torch import nn

MODELS = {}
SEEDS = 7


def model(f):
    MODELS[f.__name__] = f
    return f


def conv_norm(i, o, k=3, stride=1, groups=1, norm=nn.BatchNorm2d):
    return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), norm(o))


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.first, self.second = conv_norm(i, o, stride=stride), conv_norm(o, o)
        self.skip = conv_norm(i, o, 1, stride) if (i, stride) != (o, 1) else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.skip(x))


def pooled(classes, width):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


@model
def resnet():
    blocks = [Residual(i, o, s) for i, o, s in ((16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))]
    return nn.Sequential(conv_norm(3, 16), nn.ReLU(), *blocks, pooled(10, 64)), (torch.randn(4, 3, 32, 32),)


class Inverted(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.same = (i, stride) == (o, 1)
        self.body = nn.Sequential(conv_norm(i, 4 * i, 1), nn.ReLU6(), conv_norm(4 * i, 4 * i, stride=stride, groups=4 * i), nn.ReLU6(), conv_norm(4 * i, o, 1))

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


@model
def mobilenet():
    blocks = [Inverted(i, o, s) for i, o, s in ((8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 24, 2), (24, 24, 1))]
    return nn.Sequential(conv_norm(3, 8, stride=2), nn.ReLU6(), *blocks, pooled(10, 24)), (torch.randn(4, 3, 32, 32),)


@model
def group_norm_net():
    norm = lambda o: nn.GroupNorm(4, o)
    layers = [x for i, o in ((3, 16), (16, 32), (32, 32)) for x in (conv_norm(i, o, norm=norm), nn.SiLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*layers, pooled(10, 32)), (torch.randn(4, 3, 32, 32),)


@model
def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, activation="gelu")
    # Without a head the loss, a mean square of normalised rows, would not depend on much.
    return nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(64, 10)), (torch.randn(4, 24, 64),)


class GPT(nn.Module):
    def __init__(self, vocabulary=60, width=64, heads=4, depth=3, length=32):
        super().__init__()
        self.heads = heads
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.token(tokens) + self.place.weight[:t]
        for k, (qkv, out, mlp) in enumerate(zip(self.qkv, self.out, self.mlp)):
            q, k_, v = qkv(self.norms[2 * k](x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(q, k_, v, is_causal=True)
            x = x + out(y.transpose(1, 2).reshape(b, t, -1))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x))


@model
def gpt():
    return GPT(), (torch.randint(0, 60, (4, 32)),)


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.body, self.out = nn.Embedding(50, 16), kind(16, 24, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(48, 5)

    def forward(self, x):
        return self.out(self.body(self.embed(x))[0])


@model
def lstm():
    return Tagger(nn.LSTM), (torch.randint(0, 50, (4, 20)),)


@model
def gru():
    return Tagger(nn.GRU), (torch.randint(0, 50, (4, 20)),)


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        block = lambda i, o: nn.Sequential(conv_norm(i, o), nn.ReLU(), conv_norm(o, o), nn.ReLU())
        self.down = nn.ModuleList(block(i, o) for i, o in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, stride=2) for o in widths[:-1])
        self.join = nn.ModuleList(block(2 * o, o) for o in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        seen = []
        for k, down in enumerate(self.down):
            x = down(nn.functional.max_pool2d(x, 2) if k else x)
            seen.append(x)
        for k in reversed(range(len(self.up))):
            x = self.join[k](torch.cat([seen[k], self.up[k](x)], dim=1))
        return self.head(nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False))


@model
def unet():
    return UNet(), (torch.randn(2, 3, 32, 32),)


@model
def mlp_batch_norm():
    widths = (20, 64, 64, 64, 64)
    layers = [x for i, o in zip(widths, widths[1:]) for x in (nn.Linear(i, o), nn.BatchNorm1d(o), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(64, 5)), (torch.randn(16, 20),)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.Softplus(), nn.Linear(128, 2 * 8))
        self.decode = nn.Sequential(nn.Linear(8, 128), nn.ELU(), nn.Linear(128, 64), nn.Sigmoid())

    def forward(self, x, noise):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        out = self.decode(mean + torch.exp(0.5 * log_var) * noise)
        divergence = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1)
        return out - x, divergence.sqrt()


@model
def vae():
    return VAE(), (torch.rand(32, 64), torch.randn(32, 8))


def gradients(module, args):
    outputs = [o for o in torch.utils._pytree.tree_leaves(module(*args)) if o.is_floating_point()]
    sum((o**2).mean() for o in outputs).backward()
    return {n: p.grad.double().numpy() for n, p in module.named_parameters()}


def errors(name, firebrand, folder):
    """For every seed PyTorch's error and ours: the geometric mean over parameters of the gradient's relative error."""
    found = []
    path = folder / f"{name}.pt2"
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        module, args = MODELS[name]()
        module.train()
        program = torch.export.export(module, args)
        torch.export.save(program, path)
        users = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        np.savez(folder / "in.npz", **{k: v.numpy() for k, v in zip(users, args)})
        run = [firebrand, "grad", path, "--inputs", folder / "in.npz", "--loss", "mean_square", "-o", folder / "grads.npz"]
        subprocess.run([*map(str, run)], check=True, capture_output=True, text=True)
        ours = np.load(folder / "grads.npz")
        truth = gradients(copy.deepcopy(module).double(), [a.double() if a.is_floating_point() else a for a in args])
        theirs = gradients(copy.deepcopy(module), args)
        largest = max(np.linalg.norm(t) for t in truth.values())
        # A parameter without influence (a bias before a batch norm) has a gradient of rounding errors only.
        counted = {n: t for n, t in truth.items() if np.linalg.norm(t) > 1e-6 * largest}
        distance = lambda g, t: max(np.linalg.norm(g.reshape(t.shape) - t) / np.linalg.norm(t), 1e-9)
        found.append([np.exp(np.mean([np.log(distance(g[n], t)) for n, t in counted.items()])) for g in (theirs, ours)])
    return found
