"""What only shows after a while: memory that grows, and threads that wait for each other.

    python stress.py leaks [STEPS]        steps with Python hooks, functions and cycles; memory must stay flat
    python stress.py threads [SECONDS]    backward passes with hooks from eight threads; all must come through

The package's tests run both for a moment (test_stress.py)."""

import gc
import sys
import threading
import time

import firebrand


class Scale(firebrand.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, notes=None):
        ctx.save_for_backward(x)
        ctx.factor, ctx.notes = factor, notes
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + 0 * x, None, None


def resident():
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def step(weight):
    """One training step with everything that ties Python objects to a graph."""
    notes = {}
    hidden = Scale.apply(firebrand.randn(16, 16) @ weight, 2.0, notes)
    notes["hidden"] = hidden  # a cycle through the context of a function
    active = hidden.tanh()
    active.own = [active]  # through attributes
    active.register_hook(lambda grad, own=active: grad * 1.0)  # through a hook
    active.grad_fn.register_hook(lambda given, taken: None)
    active.grad_fn.metadata["own"] = active  # through a node
    handle = weight.register_post_accumulate_grad_hook(lambda leaf: None)
    with firebrand.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda box: box[0]):
        loss = (active * active).sum()
    loss.backward()
    handle.remove()
    weight.grad = None


def leaks(steps=10_000):
    """How many bytes were added by the second half of the steps; the first warms up allocator and caches."""
    weight = firebrand.randn(16, 16, requires_grad=True)
    for k in range(steps):
        if k == steps // 2:
            gc.collect()
            before = resident()
        step(weight)
        if k % 500 == 499:
            gc.collect()
    gc.collect()
    return resident() - before


def threads(seconds=600.0, count=8):
    """How many steps each of the threads made; fails if one of them hangs or raises."""
    shared = firebrand.randn(16, 16, requires_grad=True)
    done, problems = [0] * count, []
    end = time.monotonic() + seconds

    def work(k):
        try:
            own = firebrand.randn(16, 16, requires_grad=True)
            while time.monotonic() < end:
                step(own)
                # The same leaf from all threads: its accumulation is shared.
                (Scale.apply(shared, 0.5, None) * own.detach()).sum().backward()
                done[k] += 1
        except Exception as error:
            problems.append(error)

    workers = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 120)
        assert not worker.is_alive(), f"a thread hangs; steps: {done}"
    if problems:
        raise problems[0]
    return done


if __name__ == "__main__":
    what, amount = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None
    if what == "leaks":
        grown = leaks(int(amount or 10_000))
        print(f"{grown / 1e6:+.1f} MB in the second half")
        assert grown < 8e6
    else:
        print("steps by thread:", threads(amount or 600.0))
