"""Makes layers.json: initial values of every layer from seed 0, and twenty training steps.

A row's name is the Python expression. Initial values are kept as an FNV-1a hash of their bits in f32. Training is in f64 with SGD
at rate 0.05 on the mean square of the (first) output minus random targets; input and target come from seed 1. Parameters
and buffers after training are kept as sum of value * cos(position). Lazy layers see zeros first. `packed` rows run over
sequences of LENGTHS, packed and padded again, with the last state behind the output.
Run: python golden/nn/layers.py > golden/nn/layers.json
"""

import json
import torch
from torch.nn import *  # noqa: F403 - rows are expressions over it
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm  # noqa: F401 - as above
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LENGTHS = [3, 5, 2]

# expression: shapes of the inputs ("int N" for class numbers below N)
ROWS = {
    "Linear(5, 3)": [[4, 5]],
    "Linear(5, 3, bias=False)": [[4, 5]],
    "Bilinear(3, 4, 2)": [[5, 3], [5, 4]],
    "Conv1d(2, 4, 3)": [[2, 2, 7]],
    "Conv2d(2, 4, 3, stride=2, padding=1)": [[2, 2, 6, 5]],
    "Conv2d(4, 4, (3, 1), groups=2, bias=False, dilation=(2, 1))": [[2, 4, 6, 5]],
    "Conv2d(2, 3, 3, padding='same')": [[2, 2, 5, 5]],
    "Conv2d(2, 3, 3, padding=1, padding_mode='reflect')": [[2, 2, 5, 5]],
    "Conv2d(2, 3, 3, padding=(1, 2), padding_mode='circular')": [[2, 2, 5, 5]],
    "Conv3d(1, 2, 2)": [[2, 1, 3, 4, 3]],
    "ConvTranspose1d(3, 2, 3, stride=2)": [[2, 3, 4]],
    "ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2)": [[2, 4, 3, 3]],
    "ConvTranspose3d(1, 2, 2)": [[1, 1, 2, 3, 2]],
    "BatchNorm1d(3)": [[6, 3]],
    "BatchNorm2d(3)": [[4, 3, 2, 2]],
    "BatchNorm2d(3, momentum=None)": [[4, 3, 2, 2]],
    "BatchNorm3d(2, affine=False)": [[3, 2, 2, 2, 2]],
    "InstanceNorm1d(3)": [[2, 3, 5]],
    "InstanceNorm2d(3, affine=True, track_running_stats=True)": [[2, 3, 4, 4]],
    "LayerNorm(5)": [[3, 5]],
    "LayerNorm((2, 3), bias=False)": [[4, 2, 3]],
    "RMSNorm(5)": [[3, 5]],
    "GroupNorm(2, 4)": [[3, 4, 5]],
    "Embedding(7, 3)": ["int 7 [4, 2]"],
    "Embedding(7, 3, padding_idx=2, max_norm=1.0)": ["int 7 [4, 2]"],
    "PReLU(3)": [[2, 3, 4]],
    "RNN(3, 4)": [[5, 2, 3]],
    "RNN(3, 4, nonlinearity='relu', num_layers=2)": [[5, 2, 3]],
    "LSTM(3, 4)": [[5, 2, 3]],
    "LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)": [[2, 5, 3]],
    "GRU(3, 4, bias=False)": [[5, 2, 3]],
    "GRU(3, 4)": [[5, 3]],
    "RNNCell(3, 4)": [[2, 3]],
    "LSTMCell(3, 4)": [[2, 3]],
    "GRUCell(3, 4)": [[2, 3]],
    "MultiheadAttention(6, 2)": [[4, 2, 6], [5, 2, 6], [5, 2, 6]],
    "MultiheadAttention(6, 3, batch_first=True)": [[2, 4, 6], [2, 5, 6], [2, 5, 6]],
    "TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0)": [[4, 2, 6]],
    "TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0, norm_first=True, activation='gelu', batch_first=True)": [[2, 4, 6]],
    "TransformerDecoderLayer(6, 2, dim_feedforward=8, dropout=0.0)": [[4, 2, 6], [3, 2, 6]],
    "TransformerEncoder(TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0), 2, norm=LayerNorm(6))": [[4, 2, 6]],
    "TransformerDecoder(TransformerDecoderLayer(6, 2, dim_feedforward=8, dropout=0.0), 2)": [[4, 2, 6], [3, 2, 6]],
    "Transformer(6, 2, 1, 2, dim_feedforward=8, dropout=0.0)": [[4, 2, 6], [3, 2, 6]],
    "EmbeddingBag(7, 3)": ["int 7 [4, 2]"],
    "EmbeddingBag(7, 3, mode='sum', padding_idx=2, max_norm=1.0)": ["int 7 [4, 3]"],
    "EmbeddingBag(7, 3, mode='max')": ["int 7 [4, 3]"],
    "ChannelShuffle(2)": [[2, 4, 3, 2]],
    "Unfold((2, 3), dilation=(2, 1), padding=1, stride=(1, 2))": [[2, 2, 5, 6]],
    "Fold((4, 5), (2, 2))": [[2, 12, 12]],
    "ConstantPad2d((1, 2, 0, 1), 0.5)": [[2, 3, 3]],
    "LocalResponseNorm(3, alpha=0.1)": [[2, 5, 3, 2]],
    "LocalResponseNorm(2, alpha=0.1, beta=0.5, k=2.0)": [[2, 5, 4]],
    "LPPool1d(2, 3, stride=2)": [[2, 3, 7]],
    "LPPool2d(4, (2, 1))": [[2, 2, 4, 3]],
    "Softmax2d()": [[2, 3, 2, 2]],
    "CosineSimilarity()": [[4, 5], [4, 5]],
    "PairwiseDistance(p=1.0, keepdim=True)": [[4, 5], [4, 5]],
    "MultiLabelSoftMarginLoss()": [[4, 5], [4, 5]],
    "LPPool3d(2, 2)": [[2, 2, 4, 4, 2]],
    "AdaptiveLogSoftmaxWithLoss(8, 10, [3, 7], div_value=2.0)": [[8, 8], "int 10 [8]"],
    "weight_norm(Linear(5, 3))": [[4, 5]],
    "weight_norm(Conv1d(2, 2, 2), dim=None)": [[2, 2, 5]],
    "spectral_norm(Linear(5, 3), n_power_iterations=2)": [[4, 5]],
    "spectral_norm(ConvTranspose2d(3, 2, 2), n_power_iterations=50)": [[2, 3, 4, 4]],
    "orthogonal(Linear(5, 3).double())": [[4, 5]],
    "orthogonal(Linear(5, 3).double(), use_trivialization=False)": [[4, 5]],
    "orthogonal(Linear(4, 4).double())": [[4, 4]],
    "orthogonal(Linear(3, 5).double(), orthogonal_map='matrix_exp')": [[4, 3]],
    "orthogonal(Linear(4, 4).double(), orthogonal_map='cayley')": [[4, 4]],
    "LazyLinear(3)": [[4, 5]],
    "LazyConv2d(3, 3)": [[2, 2, 5, 5]],
    "LazyConvTranspose1d(2, 3)": [[2, 3, 4]],
    "LazyBatchNorm2d()": [[4, 3, 2, 2]],
    "LazyInstanceNorm1d()": [[2, 3, 5]],
    "packed RNN(3, 4, nonlinearity='relu')": [[5, 3, 3]],
    "packed LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)": [[3, 5, 3]],
    "packed GRU(3, 4, num_layers=2, bias=False)": [[5, 3, 3]],
    "Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU(), MaxPool2d(2), Flatten(), Dropout(0.3), Linear(8, 3))": [[4, 1, 6, 6]],
}


def fnv(tensors):
    h = 0xCBF29CE484222325
    for t in tensors:
        for b in t.detach().float().flatten().contiguous().view(torch.uint8).tolist():
            h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


def digest(t):
    t = t.detach().double().flatten()
    return (t * torch.arange(t.numel(), dtype=torch.float64).cos()).sum().item()


def draw(shape):
    if isinstance(shape, str):
        _, n, sizes = shape.split(" ", 2)
        return torch.randint(int(n), json.loads(sizes))
    return torch.randn(shape, dtype=torch.float64)


def over_packed(layer):
    def run(x):
        packed = pack_padded_sequence(x, LENGTHS, batch_first=layer.batch_first, enforce_sorted=False)
        out, state = layer(packed)
        padded, _ = pad_packed_sequence(out, batch_first=layer.batch_first, padding_value=0.5, total_length=6)
        return torch.cat([t.flatten() for t in [padded, *(state if isinstance(state, tuple) else [state])]])

    return run


def row(text, shapes):
    torch.manual_seed(0)
    layer = eval(text.removeprefix("packed "))
    call = over_packed(layer) if text.startswith("packed ") else layer
    if text.startswith("Lazy"):
        layer(*(torch.zeros(s) for s in shapes))
    names = list(layer.state_dict())
    init = fnv(layer.parameters())
    layer.double()
    torch.manual_seed(1)
    inputs = [draw(s) for s in shapes]
    optimizer = torch.optim.SGD(list(layer.parameters()) or [torch.zeros(1, requires_grad=True)], lr=0.05)
    target, losses = None, []
    for _ in range(20):
        out = call(*inputs)
        while isinstance(out, tuple):
            out = out[0]
        target = torch.randn(out.shape, dtype=torch.float64) if target is None else target
        loss = ((out - target) ** 2).mean()
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"layer": text, "inputs": shapes, "names": names, "init": init, "losses": losses,
            "after": [digest(t) for t in layer.state_dict().values()]}


print('{"layers":[')
print(",\n".join(json.dumps(row(t, s), separators=(",", ":")) for t, s in ROWS.items()))
print("]}")
