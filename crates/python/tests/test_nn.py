"""Modules, layers, losses, optimizers: the same seed gives PyTorch's numbers."""

import copy
import pickle

import pytest
from conftest import cases, check, raised

import firebrand


def net(m):
    m.manual_seed(0)
    return m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Dropout(0.0), m.nn.Linear(8, 3))


def trained(m, make):
    model = net(m)
    optimizer = make(model.parameters())
    x, labels = m.randn(6, 4), m.tensor([0, 1, 2, 0, 1, 2])
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = m.nn.CrossEntropyLoss()(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, model[0].bias, {k: sorted(v) for k, v in optimizer.state_dict()["state"].items()}]


class Cases:
    def initial_values(m):
        model = net(m)
        m.manual_seed(1)
        conv = m.nn.Conv2d(2, 3, 3, padding=1, groups=1)
        return [[n for n, _ in model.named_parameters()], model[0].weight, model[3].bias, conv.weight, conv.bias]

    def printed(m):
        return [repr(net(m)), repr(m.nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)), repr(m.nn.Parameter(m.ones(1)))]

    def convolution(m):
        m.manual_seed(2)
        conv = m.nn.Conv2d(1, 2, 3, padding=1)
        x = m.randn(1, 1, 4, 4, requires_grad=True)
        y = m.nn.Sequential(conv, m.nn.Tanh(), m.nn.Flatten())(x)
        y.sum().backward()
        return [y, conv.weight.grad, x.grad]

    def losses(m):
        a, b = m.tensor([1.0, -2.0]), m.tensor([0.5, 1.0])
        logits, labels = m.tensor([[1.0, 2.0, 0.5], [0.1, 0.2, 3.0]]), m.tensor([1, 2])
        return [
            m.nn.MSELoss()(a, b), m.nn.MSELoss(reduction="sum")(a, b), m.nn.L1Loss(reduction="none")(a, b), m.nn.CrossEntropyLoss(label_smoothing=0.1)(logits, labels),
            m.nn.BCEWithLogitsLoss()(a, m.tensor([1.0, 0.0])), m.nn.functional.cross_entropy(logits, labels, reduction="none"), raised(lambda: m.nn.functional.mse_loss(a, b, reduction="x"))[:1],
        ]

    def sgd(m):
        return trained(m, lambda p: m.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))

    def adam(m):
        return trained(m, lambda p: m.optim.Adam(p, lr=0.05, amsgrad=True))

    def adamw(m):
        return trained(m, lambda p: m.optim.AdamW(p, lr=0.05))

    def groups_and_schedules(m):
        a, b = (m.nn.Parameter(m.ones(2)) for _ in range(2))
        o = m.optim.SGD([{"params": [a]}, {"params": [b], "lr": 1.0}], lr=0.1)
        (a.sum() + b.sum()).backward()
        o.step()
        o.param_groups[0]["lr"] = 0.5
        o.step()
        return [a, b, raised(lambda: m.optim.SGD([], lr=0.1)), raised(lambda: m.optim.SGD([a * 2], lr=0.1))]

    def small_modules(m):
        nn, x = m.nn, m.arange(16.0).reshape(1, 4, 2, 2) - 3
        made = [
            nn.PixelUnshuffle(2),
            nn.ChannelShuffle(2),
            nn.UpsamplingNearest2d(scale_factor=2),
            nn.UpsamplingBilinear2d(scale_factor=2),
            nn.RReLU().eval(),
        ]
        pairs = [nn.CosineSimilarity(), nn.PairwiseDistance(p=1.0, keepdim=True)]
        return [[repr(f), f(x)] for f in made] + [f(x, 2 * x + 1) for f in pairs]

    def lists_are_printed_in_short(m):
        return [repr(m.nn.ModuleList([m.nn.ReLU(), m.nn.ReLU(), m.nn.Linear(1, 1), m.nn.ReLU()])), repr(m.nn.ModuleList())]

    def more_schedules(m):
        schedulers = m.optim.lr_scheduler

        def rates(make):
            optimizer = m.optim.SGD([m.nn.Parameter(m.ones(1))], lr=1.0)
            scheduler, found = make(optimizer), []
            for _ in range(12):
                found.append(scheduler.get_last_lr()[0])
                optimizer.step()
                scheduler.step()
            return found

        return [
            rates(lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.9)),
            rates(lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3)),
            rates(lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2, 2, 0.1)),
            rates(lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o), schedulers.ExponentialLR(o, 0.9)])),
        ]

    def hooks(m):
        layer = m.nn.Linear(2, 1)
        with m.no_grad():
            layer.weight.fill_(2.0)
            layer.bias.zero_()
        seen = []
        layer.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
        layer.register_forward_hook(lambda mod, args, out: out + 1)
        layer.register_full_backward_pre_hook(lambda mod, g: seen.append(["pre", g[0].tolist()]))
        h = layer.register_full_backward_hook(lambda mod, gi, go: seen.append([gi[0].tolist(), go[0].tolist()]))
        layer.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
        x = m.ones(1, 2, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        h.remove()
        return [y, x.grad, seen]

    def state(m):
        model, other = net(m), m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Dropout(0.0), m.nn.Linear(8, 3))
        keys = other.load_state_dict(model.state_dict())
        same = all(bool((a == b).all()) for a, b in zip(model.parameters(), other.parameters()))
        return [list(model.state_dict()), same, list(keys.missing_keys), raised(lambda: m.nn.Linear(2, 2).load_state_dict({"weight": m.ones(2, 3), "other": m.ones(1)}))]

    def members(m):
        class Net(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = m.nn.Linear(2, 2)
                self.p = m.nn.Parameter(m.ones(1))
                self.register_buffer("b", m.zeros(1))
                self.register_buffer("t", m.zeros(1), persistent=False)

            def forward(self, x):
                return self.a(x) * self.p

        n = Net()
        n.b = m.ones(1)
        n.eval()
        found = [[k for k, _ in n.named_parameters()], list(n.state_dict()), [k for k, _ in n.named_modules()], n.a.training, n.training, n.b]
        n.train()
        del n.p
        return found + [n.a.training, hasattr(n, "p"), raised(lambda: setattr(n, "a", 3))[:1], raised(lambda: n.missing)[:1]]


@cases(Cases)
def test_like_pytorch(oracle, name, case):
    check(oracle, f"nn.{name}", case)


def test_modules_are_copied_and_pickled():
    model = net(firebrand)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again[0].weight) is firebrand.nn.Parameter and again[0].weight is not model[0].weight
        assert all((a == b).all() and a.requires_grad for a, b in zip(again.parameters(), model.parameters()))


def test_optimizer_state_is_restored():
    def make():
        model = net(firebrand)
        return model, firebrand.optim.AdamW(model.parameters(), lr=0.05)

    def step(model, o):
        o.zero_grad()
        (model(firebrand.ones(2, 4)) ** 2).sum().backward()
        o.step()

    model, o = make()
    step(model, o)
    again, p = make()
    again.load_state_dict(model.state_dict())
    # As in PyTorch, what is loaded is not copied.
    p.load_state_dict(copy.deepcopy(o.state_dict()))
    step(model, o)
    step(again, p)
    assert all((a == b).all() for a, b in zip(model.parameters(), again.parameters()))
