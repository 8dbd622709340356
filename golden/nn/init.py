"""Makes init.json: what each function of torch.nn.init writes from seed 0, as f32 bits in hexadecimal.

Run: python golden/nn/init.py > golden/nn/init.json
"""

import json
import torch
from torch.nn import init

ROWS = {
    "uniform": lambda t: init.uniform_(t, -1, 2),
    "normal": lambda t: init.normal_(t, 1, 2),
    "eye": init.eye_,
    "kaiming_uniform": lambda t: init.kaiming_uniform_(t, nonlinearity="relu"),
    "kaiming_normal out tanh": lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="tanh"),
    "xavier_uniform": lambda t: init.xavier_uniform_(t, gain=init.calculate_gain("leaky_relu", 0.2)),
    "xavier_normal": init.xavier_normal_,
    "orthogonal": init.orthogonal_,
    "orthogonal wide": lambda t: init.orthogonal_(t.view(2, 10), gain=3.0),
    "dirac": lambda t: init.dirac_(t.view(4, 1, 5), groups=2),
    "trunc_normal": lambda t: init.trunc_normal_(t, 0.5, 1.0, -1.0, 1.0),
    "trunc_normal far": lambda t: init.trunc_normal_(t, 0.0, 1.0, 2.0, 3.0),
}


def row(f):
    torch.manual_seed(0)
    t = torch.empty(5, 4)
    f(t)
    return " ".join(f"{v % 2**32:x}" for v in t.view(torch.int32).flatten().tolist())


print(json.dumps({name: row(f) for name, f in ROWS.items()}, indent=0))
