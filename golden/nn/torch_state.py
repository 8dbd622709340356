"""Makes torch_state.pt: runs of optim.py, saved after 11 steps as (row of optim.json, parameters, optimiser's state_dict).

Run: python golden/nn/torch_state.py
"""

import contextlib
import io
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
with contextlib.redirect_stdout(io.StringIO()):  # importing it prints its table
    import optim as golden

WANTED = {("SGD", 2), ("Adam", 0), ("Adam", 1), ("AdamW", 1), ("RMSprop", 1), ("Adagrad", 1), ("Adadelta", 0), ("Adamax", 1), ("RAdam", 1), ("NAdam", 1), ("Rprop", 1), ("ASGD", 1), ("LBFGS", 0), ("LBFGS", 1)}
runs, row = [], 0
for name, all_options in golden.OPTIMIZERS.items():
    for k, options in enumerate(all_options):
        if (name, k) in WANTED:
            params, loss = golden.problem(torch.float64)
            o = getattr(torch.optim, name)(params, **options)

            def closure():
                o.zero_grad()
                l = loss()
                l.backward()
                return l

            for _ in range(11):
                o.step(closure)
            runs.append((row, [p.detach().clone() for p in params], o.state_dict()))
        row += 1
torch.save(runs, Path(__file__).parent / "torch_state.pt")
