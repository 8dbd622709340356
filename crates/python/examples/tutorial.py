"""firebrand in ten minutes.

Run it whole (`python3 tutorial.py`), or cell by cell in an editor that knows `# %%` (VS Code, Spyder, Jupytext). Every cell checks
what it claims.
"""

# %% Tensors and gradients
import pathlib
import tempfile

import firebrand
from firebrand import nn

firebrand.manual_seed(0)
x = firebrand.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = (x**3).sum()
y.backward()
print(x.grad)
assert x.grad.tolist() == [3.0, 12.0, 27.0]

# %% Gradients of gradients: the backward pass is recorded like everything else
y = (x**3).sum()
(first,) = firebrand.autograd.grad(y, x, create_graph=True)
(second,) = firebrand.autograd.grad(first.sum(), x)
assert second.tolist() == [6.0, 12.0, 18.0]

# %% The graph is data, and hooks see every gradient that passes
seen = []
z = x * 2
z.register_hook(seen.append)
handle = x.register_hook(lambda g: g.clamp(-1, 1))
x.grad = None
(z * z).sum().backward()
print(z.grad_fn, z.grad_fn.next_functions, seen)
assert seen[0].tolist() == [4.0, 8.0, 12.0] and x.grad.tolist() == [1.0, 1.0, 1.0]
handle.remove()

# %% Transforms nest: one gradient per sample, a Hessian
from firebrand.func import functional_call, grad, hessian, vmap


def loss_of(w, sample):
    return (w @ sample).tanh().sum()


w, batch = firebrand.randn(2, 3), firebrand.randn(5, 3)
each = vmap(grad(loss_of), in_dims=(None, 0))(w, batch)
assert each.shape == (5, 2, 3)
assert firebrand.allclose(each[1], grad(loss_of)(w, batch[1]))
assert hessian(loss_of)(w, batch[0]).shape == (2, 3, 2, 3)

# %% A model: a sequence of one-hot marks, and the task to say which mark came first
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.GRU(4, 16, batch_first=True)
        self.say = nn.Linear(16, 4)

    def forward(self, marks):
        _, state = self.read(marks)
        return self.say(state[-1])


marks = firebrand.randint(0, 4, (64, 6))
inputs, labels = nn.functional.one_hot(marks, 4).float(), marks[:, 0]
model = First()
optimizer = firebrand.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
losses = []
for step in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < losses[0] / 2

# %% The same model as a function of its parameters
parameters = dict(model.named_parameters())


def loss_at(parameters, sample, label):
    return nn.functional.cross_entropy(functional_call(model, parameters, (sample.unsqueeze(0),)), label.unsqueeze(0))


grads = grad(loss_at)(parameters, inputs[0], labels[0])
assert grads.keys() == parameters.keys()

# %% Compiled, with a second backward through the first
@firebrand.compile
def energy(x):
    return (x.sin() * x).sum()


x = firebrand.randn(4, requires_grad=True)
with firebrand.compiled_backward():
    (force,) = firebrand.autograd.grad(energy(x), x, create_graph=True)
    (curvature,) = firebrand.autograd.grad(force.sum(), x)
expected = 2 * x.cos() - x * x.sin()
assert firebrand.allclose(curvature, expected, atol=1e-5)

# %% A program that PyTorch exported: load it, train it, save it for PyTorch
root = pathlib.Path(__file__).resolve().parents[3]
program = firebrand.load(root / "crates/firebrand/data/digits.pt2").train()
optimizer = firebrand.optim.AdamW(program.parameters(), lr=1e-2)
pixels, digits = firebrand.rand(8, 64), firebrand.tensor([0, 1, 2, 3, 4, 0, 1, 2])
before = nn.functional.cross_entropy(program(pixels), digits).item()
for _ in range(10):
    optimizer.zero_grad()
    nn.functional.cross_entropy(program(pixels), digits).backward()
    optimizer.step()
after = nn.functional.cross_entropy(program(pixels), digits).item()
assert after < before / 2
with tempfile.TemporaryDirectory() as folder:
    firebrand.save(program, pathlib.Path(folder) / "tuned.pt2")
    assert (pathlib.Path(folder) / "tuned.pt2").stat().st_size > 0
print("done")
