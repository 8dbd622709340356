"""Makes optim.json: twenty steps of every optimiser, and the rates of every schedule.

The problem is drawn from seed 0 in the order of `problem` below, so that a reader with PyTorch's generator needs no data.
Run: python golden/nn/optim.py > golden/nn/optim.json
"""

import json
import torch
from torch import optim
from torch.optim import lr_scheduler as sched

STEPS = 20
OPTIMIZERS = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.05, "maximize": True, "weight_decay": 0.01},
    ],
    "Adam": [{"lr": 0.05}, {"lr": 0.05, "betas": [0.8, 0.99], "weight_decay": 0.1, "amsgrad": True}, {"lr": 0.02, "maximize": True}],
    "AdamW": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}],
    "RMSprop": [{}, {"lr": 0.02, "alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.1}],
    "Adagrad": [{"lr": 0.1}, {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator_value": 0.2}],
    "Adadelta": [{"lr": 0.5}, {"rho": 0.8, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}],
    "Adamax": [{"lr": 0.05}, {"lr": 0.05, "betas": [0.8, 0.99], "weight_decay": 0.1}],
    "RAdam": [{"lr": 0.05}, {"lr": 0.05, "betas": [0.8, 0.9], "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "NAdam": [{"lr": 0.05}, {"lr": 0.05, "betas": [0.8, 0.9], "weight_decay": 0.1, "momentum_decay": 0.1, "decoupled_weight_decay": True}],
    "Rprop": [{}, {"lr": 0.1, "etas": [0.4, 1.5], "step_sizes": [0.01, 0.2], "maximize": True}],
    "ASGD": [{"lr": 0.1}, {"lr": 0.3, "lambd": 0.01, "alpha": 0.6, "t0": 5, "weight_decay": 0.1}],
    "LBFGS": [{"lr": 0.3, "max_iter": 3, "history_size": 5}, {"lr": 1.0, "max_iter": 3, "history_size": 4, "line_search_fn": "strong_wolfe"}],
}


# After the rows above, whose positions `torch_state.py` counts: optimisers by problem.
MORE = [
    ("Adafactor", "linear", [{}, {"lr": 0.3, "beta2_decay": -0.5, "d": 2.0, "weight_decay": 0.1}, {"eps": [1e-3, 0.1], "maximize": True}]),
    ("Muon", "matrix", [{"lr": 0.05}, {"lr": 0.02, "momentum": 0.8, "nesterov": False, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}]),
    ("SparseAdam", "embedding", [{"lr": 0.05}, {"lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-3, "maximize": True}]),
    ("SparseAdam", "gather", [{"lr": 0.05}]),
    ("SGD", "embedding", [{"lr": 0.5}, {"lr": 0.2, "momentum": 0.9, "dampening": 0.3}, {"lr": 0.2, "momentum": 0.9, "nesterov": True}, {"lr": 0.05, "maximize": True}]),
]


def problem(dtype, kind="linear"):
    torch.manual_seed(0)
    x, y = torch.randn(16, 5, dtype=dtype), torch.randn(16, 3, dtype=dtype)
    w, b = torch.randn(5, 3, dtype=dtype).requires_grad_(), torch.randn(3, dtype=dtype).requires_grad_()
    if kind == "embedding":
        # Row 4 is never read.
        rows = lambda: torch.nn.functional.embedding(torch.arange(16) * 7 % 4, w, sparse=True)
        return (w,), lambda: ((rows().tanh() - y) ** 2).mean()
    if kind == "gather":
        index = (torch.arange(48) * 7 % 5).reshape(16, 3)
        return (w,), lambda: ((torch.gather(w, 0, index, sparse_grad=True).tanh() - y) ** 2).mean()
    params = (w,) if kind == "matrix" else (w, b)
    return params, lambda: (((x @ w + b).tanh() - y) ** 2).mean()


def run(name, options, dtype, kind="linear"):
    params, loss = problem(dtype, kind)
    o = getattr(optim, name)(params, **options)
    losses = []

    def closure():
        o.zero_grad()
        l = loss()
        l.backward()
        return l

    for _ in range(STEPS):
        losses.append(o.step(closure).item())
    return losses, [v for p in params for v in p.detach().flatten().tolist()]


def sequential(o):
    a = sched.LinearLR(o, start_factor=0.1, total_iters=5)
    return sched.SequentialLR(o, [a, sched.CosineAnnealingLR(o, 10, eta_min=0.01)], milestones=[5])


def cyclic(o, **more):
    return sched.CyclicLR(o, 0.1, 0.5, step_size_up=3, step_size_down=4, **more)


SCHEDULES = {
    "MultiplicativeLR": lambda o: sched.MultiplicativeLR(o, lambda e: 1 - 0.05 * (e % 3)),
    "ChainedScheduler": lambda o: sched.ChainedScheduler([sched.LinearLR(o, 0.1, total_iters=4), sched.ExponentialLR(o, 0.9)]),
    "CyclicLR": cyclic,
    "CyclicLR triangular2": lambda o: cyclic(o, mode="triangular2"),
    "CyclicLR exp_range": lambda o: cyclic(o, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "StepLR": lambda o: sched.StepLR(o, 4, gamma=0.5),
    "MultiStepLR": lambda o: sched.MultiStepLR(o, [3, 7, 7, 12], gamma=0.3),
    "ExponentialLR": lambda o: sched.ExponentialLR(o, 0.9),
    "LinearLR": lambda o: sched.LinearLR(o),
    "ConstantLR": lambda o: sched.ConstantLR(o),
    "PolynomialLR": lambda o: sched.PolynomialLR(o, 12, power=2.0),
    "LambdaLR": lambda o: sched.LambdaLR(o, lambda e: 1 / (1 + e)),
    "CosineAnnealingLR": lambda o: sched.CosineAnnealingLR(o, 8, eta_min=0.001),
    "CosineAnnealingWarmRestarts": lambda o: sched.CosineAnnealingWarmRestarts(o, 3, T_mult=2, eta_min=0.01),
    "OneCycleLR": lambda o: sched.OneCycleLR(o, 1.0, total_steps=25),
    "OneCycleLR three_phase linear": lambda o: sched.OneCycleLR(o, 1.0, total_steps=25, three_phase=True, anneal_strategy="linear"),
    "SWALR": lambda o: optim.swa_utils.SWALR(o, 0.05, anneal_epochs=7),
    "SequentialLR": sequential,
}


def rates(make):
    p = torch.zeros(1, requires_grad=True)
    o = optim.SGD([p], lr=0.2, momentum=0.5)
    s, out = make(o), []
    for _ in range(STEPS):
        out.append([o.param_groups[0]["lr"], o.param_groups[0]["momentum"]])
        o.step()
        s.step()
    return out


METRICS = [1.0, 0.9, 0.91, 0.92, 0.93, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.49999, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]


def plateau():
    o = optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    s, out = sched.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1, min_lr=0.03), []
    for m in METRICS:
        s.step(m)
        out.append(o.param_groups[0]["lr"])
    return out


rows = []
for name, all_options in OPTIMIZERS.items():
    for options in all_options:
        losses, params = run(name, options, torch.float64)
        losses32, _ = run(name, options, torch.float32)
        if name == "LBFGS":  # quotients of small differences: f32 rounding grows by a digit a step
            losses32 = losses32[:6]
        rows.append({"name": name, "options": options, "losses": losses, "params": params, "losses_f32": losses32})
for name, kind, all_options in MORE:
    for options in all_options:
        losses, params = run(name, options, torch.float64, kind)
        losses32, _ = run(name, options, torch.float32, kind)
        # Muon's matrix products are in bf16: three digits, whoever computes them.
        tolerance = {"tolerance": 2e-2} if name == "Muon" else {}
        rows.append({"name": name, "problem": kind, "options": options, "losses": losses, "params": params, "losses_f32": losses32, **tolerance})
print(json.dumps({"optimizers": rows, "schedules": {k: rates(f) for k, f in SCHEDULES.items()},
                  "plateau": {"metrics": METRICS, "lr": plateau()}}, separators=(",", ":")))
