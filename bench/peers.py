"""The peers' side of the benchmarks: PyTorch eager, torch.compile and JAX, on the workloads of README.md.

    python bench/peers.py --peer torch|compile|jax --threads N [BENCH...]

One JSON line a case, in the form of `firebrand bench --json` plus `"peer"`. One thread is timed in process CPU time, more in wall time; always the fastest of many calls.
Knows nothing of firebrand; compare.py puts the two sides together.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import resource
import subprocess
import sys
import time

_p = argparse.ArgumentParser()
_p.add_argument("benches", nargs="*")
_p.add_argument("--peer", choices=["torch", "compile", "jax"], required=True)
_p.add_argument("--threads", type=int, default=1)
A = _p.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(A.threads)
if A.peer == "jax":  # XLA sizes its pool from the CPUs it may use
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: A.threads]))
    os.environ["JAX_PLATFORMS"] = "cpu"

clock = time.process_time if A.threads == 1 else time.perf_counter
CHAIN = 500  # iterations of x * a + b: 1000 ops
POINTS = 1 << 24
SQUARES = (64, 256, 512, 1024, 2048)
BATCHED = (32, 128, 64, 128)
# name, how often the net has it, in channels, height, out channels, kernel, stride, padding; batch 64
LAYERS = [
    ("stem", 1, 3, 32, 16, 3, 1, 1),
    ("c16", 6, 16, 32, 16, 3, 1, 1),
    ("c16-32s2", 1, 16, 32, 32, 3, 2, 1),
    ("p16-32s2", 1, 16, 32, 32, 1, 2, 0),
    ("c32", 5, 32, 16, 32, 3, 1, 1),
    ("c32-64s2", 1, 32, 16, 64, 3, 2, 1),
    ("p32-64s2", 1, 32, 16, 64, 1, 2, 0),
    ("c64", 5, 64, 8, 64, 3, 1, 1),
]


def best(f, budget=1.0, calls=5):
    """Seconds of the fastest call."""
    f()
    f()
    times, end = [], clock() + budget
    while len(times) < calls or (clock() < end and len(times) < 2000):
        t = clock()
        f()
        times.append(clock() - t)
    return min(times)


OF_THE_COMPILER = False  # while the benches of the compiler run: the same work under their names


def emit(bench, case, value, unit):
    if OF_THE_COMPILER:
        bench, case = "compile_" + bench.removeprefix("compile_"), case.removesuffix("_compiled")
    print(json.dumps({"bench": bench, "case": case, "value": float(f"{value:.5g}"), "unit": unit, "threads": A.threads, "peer": A.peer}), flush=True)


def ten_ops(x, tanh):
    u = ((x * x * x) * 0.044715 + x) * 0.7978845608
    return (tanh(u) + 1.0) * x * 0.5 - 0.1


def matmul_cases():
    """Case name, shapes, floating-point operations."""
    for n in SQUARES:
        yield f"{n}", (n, n), (n, n), 2 * n**3
    b, m, k, n = BATCHED
    yield f"batch{b}x{m}x{k}x{n}", (b, m, k), (b, k, n), 2 * b * m * k * n


def torch_benches(compiled):
    import torch
    import torch.nn.attention
    import torch.nn.functional as F

    torch.manual_seed(0)
    torch.set_num_threads(A.threads)
    wrap = torch.compile if compiled else (lambda f: f)
    end = "_compiled" if compiled else ""

    def both_ways(f, inputs, dy):
        def run():
            f(*inputs).backward(dy)
            for i in inputs:
                i.grad = None

        return best(run)

    def ops():
        x0 = torch.ones(4, requires_grad=True)
        a, b, g = torch.full((4,), 0.999), torch.full((4,), 1e-3), torch.ones(4)

        def chain(x, each=None):
            for _ in range(CHAIN):
                x = x * a
                if each:
                    each(x)
                x = x + b
                if each:
                    each(x)
            return x

        def apart(forward):
            """Fastest forward and fastest backward."""
            f, w = [], []
            for _ in range(150):
                t0 = clock()
                y = forward()
                t1 = clock()
                y.backward(g)
                f.append(t1 - t0)
                w.append(clock() - t1)
                x0.grad = None
                del y
            return min(f), min(w)

        per = 1e9 / (2 * CHAIN)
        run = wrap(chain)
        if compiled:
            run(x0).backward(g)
        f, w = apart(lambda: run(x0))
        emit("ops", "forward_grad" + end, f * per, "ns")
        emit("ops", "backward" + end, w * per, "ns")
        with torch.no_grad():
            emit("ops", "forward_no_grad" + end, best(lambda: run(x0)) * per, "ns")
        if not compiled:
            hook = lambda g: None
            hf, hw = apart(lambda: chain(x0, lambda t: t.register_hook(hook)))
            ef, ew = apart(lambda: chain(x0, lambda t: None))  # what calling `each` costs by itself
            emit("ops", "hook_register", (hf - ef) * per, "ns")
            emit("ops", "hook_fire", (hw - ew) * per, "ns")

            def saving(hooked):
                """Fastest forward and backward of a chain in which every op saves one tensor."""
                same, times = (lambda t: t), []
                hooks = torch.autograd.graph.saved_tensors_hooks
                for _ in range(150):
                    t0 = clock()
                    with hooks(same, same) if hooked else contextlib.nullcontext():
                        y = x0
                        for _ in range(2 * CHAIN):
                            y = y * a
                    y.backward(g)
                    times.append(clock() - t0)
                    x0.grad = None
                    del y
                return min(times)

            emit("ops", "saved_pack_unpack", (saving(True) - saving(False)) * per, "ns")

    def pointwise():
        x = torch.randn(POINTS, requires_grad=True)
        f = wrap(lambda x: ten_ops(x, torch.tanh))
        with torch.no_grad():
            emit("pointwise", "forward" + end, best(lambda: f(x)) * 1e3, "ms")
        emit("pointwise", "forward_backward" + end, both_ways(f, [x], torch.ones(POINTS)) * 1e3, "ms")

    def softmax_layernorm():
        ins = [t.requires_grad_() for t in (torch.randn(4096, 1024), torch.ones(1024), torch.zeros(1024))]
        f = wrap(lambda x, w, b: F.layer_norm(torch.softmax(x, -1), (1024,), w, b))
        emit("softmax_layernorm", "forward_backward" + end, both_ways(f, ins, torch.randn(4096, 1024)) * 1e3, "ms")

    def matmul():
        if compiled:  # calls the same library
            return
        for case, s, t, flop in matmul_cases():
            a, b = torch.randn(s), torch.randn(t)
            c = torch.matmul(a, b)
            emit("matmul", case, flop / best(lambda: torch.matmul(a, b, out=c), 0.6) / 1e9, "GFLOPS")

    def linalg():
        if compiled:  # calls the same library
            return
        cases = {
            "cholesky": lambda a, spd, b: torch.linalg.cholesky(spd),
            "solve": lambda a, spd, b: torch.linalg.solve(a, b),
            "inv": lambda a, spd, b: torch.linalg.inv(a),
            "lu": lambda a, spd, b: torch.linalg.lu_factor(a),
            "qr": lambda a, spd, b: torch.linalg.qr(a),
            "svd": lambda a, spd, b: torch.linalg.svd(a, full_matrices=False),
            "eigh": lambda a, spd, b: torch.linalg.eigh(spd),
            "eig": lambda a, spd, b: torch.linalg.eig(a),
            "lstsq": lambda a, spd, b: torch.linalg.lstsq(a, b),
            "matrix_exp": lambda a, spd, b: torch.linalg.matrix_exp(a),
        }
        with torch.no_grad():
            for name, lead, n in (("64", (), 64), ("256", (), 256), ("1024", (), 1024), ("1000x8", (1000,), 8)):
                for kind, dtype in (("f32", torch.float32), ("f64", torch.float64)):
                    a, b = torch.randn(*lead, n, n, dtype=dtype), torch.randn(*lead, n, 8, dtype=dtype)
                    spd = a @ a.mT + n * torch.eye(n, dtype=dtype)
                    for what, f in cases.items():
                        emit("linalg", f"{what}.{name}.{kind}", best(lambda: f(a, spd, b), 0.05) * 1e3, "ms")

    def conv():
        if compiled:
            return
        total = 0.0
        with torch.no_grad():
            for name, count, ci, h, co, k, s, p in LAYERS:
                x, w = torch.randn(64, ci, h, h), torch.randn(co, ci, k, k) * 0.1
                dy = torch.randn_like(F.conv2d(x, w, None, s, p))
                back = lambda mask: torch.ops.aten.convolution_backward(dy, x, w, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, mask)
                for way, f in (
                    ("forward", lambda: F.conv2d(x, w, None, s, p)),
                    ("grad_input", lambda: back([True, False, False])),
                    ("grad_weight", lambda: back([False, True, False])),
                ):
                    t = best(f, 0.25)
                    total += count * t
                    emit("conv", f"{name}.{way}", t * 1e3, "ms")
        emit("conv", "total", total * 1e3, "ms")

    def mlp():
        model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        x, y = torch.randn(128, 784), torch.randint(10, (128,))
        loss = wrap(lambda x, y: F.cross_entropy(model(x), y))
        opt = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

        def step():
            loss(x, y).backward()
            opt.step()
            opt.zero_grad(set_to_none=True)

        emit("mlp", "adam" + end, 1 / best(step, 2), "steps/s")
        emit("mlp", "adam" + end + ".peak", peak(step), "MB")

    def peak(step):
        """Megabytes of tensors that a step needs at its peak beyond what lives between steps, as PyTorch's allocator reports them."""
        step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as prof:
            step()
        changes = sorted((e.start_ns(), e.nbytes()) for e in prof.profiler.kineto_results.events() if e.name() == "[memory]")
        return max(itertools.accumulate(n for _, n in changes), default=0) / 1e6

    def training(bench, case, model, optimizer, x, y, scale, unit):
        loss = wrap(lambda x, y: F.cross_entropy(model(x).flatten(0, -2), y.flatten()))
        opt = optimizer(model.parameters(), lr=1e-4, fused=True)

        def step():
            loss(x, y).backward()
            opt.step()
            opt.zero_grad(set_to_none=True)

        emit(bench, case + end, scale / best(step, 2), unit)
        emit(bench, case + end + ".peak", peak(step), "MB")

    def gpt():
        from torch_models import GPT

        ids, y = torch.randint(1000, (8, 128)), torch.randint(1000, (8, 128))
        training("gpt", "adamw", GPT(), torch.optim.AdamW, ids, y, 1024, "tokens/s")

    def convnet():
        from torch_models import ConvNet

        x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
        training("convnet", "adam", ConvNet(), torch.optim.Adam, x, y, 64, "images/s")

    def saved_memory():
        if compiled:
            return
        for way in ("plain", "checkpoint", "saved_bf16"):
            # A process each: what the system's allocator keeps from one way would hide the peak of the next.
            subprocess.run([sys.executable, __file__, f"saved_memory:{way}", "--peer", "torch", "--threads", str(A.threads)], check=True)

    def one_way(way):
        from torch_models import GPT

        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        half = lambda t: (t.dtype, t.bfloat16() if t.dtype == torch.float32 and not isinstance(t, torch.nn.Parameter) else t)
        model = GPT(checkpoint=way == "checkpoint")
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        ids, y = torch.randint(1000, (64, 128)), torch.randint(1000, (64 * 128,))

        def step(n=64):
            hooks = torch.autograd.graph.saved_tensors_hooks(half, lambda p: p[1].to(p[0]))
            with hooks if way == "saved_bf16" else contextlib.nullcontext():
                loss = F.cross_entropy(model(ids[:n]).flatten(0, -2), y[: n * 128])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()

        step(1)  # optimiser state and libraries are there before the peak is read
        before = peak()
        step()
        emit("saved_memory", way + ".peak", (peak() - before) / 1e6, "MB")
        emit("saved_memory", way, best(step, 2) * 1e3, "ms")

    def transforms():
        from torch.func import functional_call, grad, hessian, jvp, vmap
        from torch_models import GPT

        nn = torch.nn
        model = nn.Sequential(nn.Linear(784, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
        weights = lambda m: {k: v.detach() for k, v in m.named_parameters()}
        w, x, y = weights(model), torch.randn(256, 784), torch.randint(10, (256,))
        one = lambda w, x, y: F.cross_entropy(functional_call(model, w, (x[None],)), y[None])
        each = wrap(vmap(grad(one), in_dims=(None, 0, 0)))
        emit("transforms", "per_sample_gradients" + end, best(lambda: each(w, x, y), 2) * 1e3, "ms")
        a, v = torch.randn(50, 50), torch.randn(50)
        bowl = hessian(lambda x: (a @ (x * x)).sin().sum())
        if not compiled:
            emit("transforms", "hessian_50", best(lambda: bowl(v), 2) * 1e3, "ms")
        gpt = GPT()
        w = weights(gpt)
        d = {k: torch.randn_like(v) for k, v in w.items()}
        ids, y = torch.randint(1000, (8, 128)), torch.randint(1000, (8 * 128,))
        loss = lambda w: F.cross_entropy(functional_call(gpt, w, (ids,)).flatten(0, -2), y)
        # The attention kernel has no forward mode in PyTorch; its plain formula has.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            product = wrap(lambda w, d: jvp(grad(loss), (w,), (d,))[1])
            emit("transforms", "hvp_gpt" + end, best(lambda: product(w, d), 2) * 1e3, "ms")

    def gradients(widths, batch):
        """The loss of a perceptron and its gradients, as a function of nothing."""
        layers = [layer for a, b in zip(widths, widths[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())][:-1]
        model = torch.nn.Sequential(*layers)
        x, y = torch.randn(batch, widths[0]), torch.randint(10, (batch,))
        loss = wrap(lambda x, y: F.cross_entropy(model(x), y))

        def run():
            loss(x, y).backward()
            model.zero_grad(set_to_none=True)

        return run

    def compile_mlp():
        emit("compile_mlp", "forward_backward", best(gradients((784, 512, 512, 10), 128), 2) * 1e3, "ms")

    def compile_cold():
        """One cold compile, by the wall clock: inductor's children do most of it."""
        if compiled:
            run = gradients((64, 128, 128, 10), 32)
            t = time.perf_counter()
            run()
            emit("compile_cold", "perceptron", (time.perf_counter() - t) * 1e3, "ms")
            two, x = torch.compile(lambda x: x * 2.0 + 1.0), torch.ones(4)
            with torch.no_grad():
                emit("compile_cold", "call_of_two_ops", best(lambda: [two(x) for _ in range(1000)]) * 1e6, "ns")
                many, plain = [torch.ones(4) for _ in range(32)], lambda many: sum(many[1:], many[0])
                total = torch.compile(plain)
                emit("compile_cold", "sum_of_32_tensors", best(lambda: [total(many) for _ in range(1000)]) * 1e6, "ns")
                (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(plain.__code__)
                check, arguments = entry.guard_manager.check, {"many": many}
                assert check(arguments)
                emit("compile_cold", "guards_of_32_tensors", best(lambda: [check(arguments) for _ in range(1000)]) * 1e6, "ns")

    def compile_backward():
        """Plain forwards; `compile` captures the backward with compiled autograd."""
        import torch._dynamo.compiled_autograd as compiled_autograd

        torch._dynamo.config.recompile_limit = 64
        on = (lambda: compiled_autograd._enable(torch.compile)) if compiled else contextlib.nullcontext
        end = "" if compiled else "_plain"
        x0, g = torch.ones(4, requires_grad=True), torch.ones(4)
        a, b = torch.full((4,), 0.999), torch.full((4,), 1e-3)

        def backward(tick=clock):
            y = x0
            for _ in range(CHAIN):
                y = y * a + b
            with on():
                t = tick()
                y.backward(g)
                t = tick() - t
            x0.grad = None
            return t

        if compiled:  # by the wall clock: inductor's children do most of it
            emit("compile_backward", "nodes_cold", backward(time.perf_counter) * 1e3, "ms")
        backward()
        emit("compile_backward", "nodes" + end, min(backward() for _ in range(150)) * 1e9 / (2 * CHAIN), "ns")
        model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        x, y = torch.randn(128, 784), torch.randint(10, (128,))
        opt = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

        def step():
            loss = F.cross_entropy(model(x), y)
            with on():
                loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)

        emit("compile_backward", "adam" + end, 1 / best(step, 2), "steps/s")

    ways = {f"saved_memory:{way}": functools.partial(one_way, way) for way in ("plain", "checkpoint", "saved_bf16")}
    return dict(ops=ops, pointwise=pointwise, softmax_layernorm=softmax_layernorm, matmul=matmul, linalg=linalg, conv=conv, mlp=mlp, gpt=gpt, convnet=convnet, saved_memory=saved_memory, transforms=transforms, compile_mlp=compile_mlp, compile_cold=compile_cold, compile_backward=compile_backward) | ways


def jax_benches():
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.key(0), 300))
    rnd = lambda *s: jax.random.normal(next(keys), s)
    wait = jax.block_until_ready

    def ops():
        a, b, x = jnp.full(4, 0.999), jnp.full(4, 1e-3), jnp.ones(4)

        def chain(x):
            for _ in range(CHAIN):
                x = x * a + b
            return x

        per = 1e9 / (2 * CHAIN)
        emit("ops", "forward_no_grad", best(lambda: wait(chain(x))) * per, "ns")
        f = jax.jit(chain)
        emit("ops", "forward_no_grad_compiled", best(lambda: wait(f(x))) * per, "ns")

    def pointwise():
        x, dy = rnd(POINTS), jnp.ones(POINTS)
        f = jax.jit(lambda x: ten_ops(x, jnp.tanh))

        @jax.jit
        def both(x, dy):
            y, vjp = jax.vjp(lambda x: ten_ops(x, jnp.tanh), x)
            return y, vjp(dy)[0]

        emit("pointwise", "forward_compiled", best(lambda: wait(f(x))) * 1e3, "ms")
        emit("pointwise", "forward_backward_compiled", best(lambda: wait(both(x, dy))) * 1e3, "ms")

    def softmax_layernorm():
        def f(x, w, b):
            s = jax.nn.softmax(x, -1)
            m = s.mean(-1, keepdims=True)
            v = ((s - m) ** 2).mean(-1, keepdims=True)
            return (s - m) * jax.lax.rsqrt(v + 1e-5) * w + b

        @jax.jit
        def both(x, w, b, dy):
            y, vjp = jax.vjp(f, x, w, b)
            return y, vjp(dy)

        x, w, b, dy = rnd(4096, 1024), jnp.ones(1024), jnp.zeros(1024), rnd(4096, 1024)
        emit("softmax_layernorm", "forward_backward_compiled", best(lambda: wait(both(x, w, b, dy))) * 1e3, "ms")

    def matmul():
        mm = jax.jit(jnp.matmul)
        for case, s, t, flop in matmul_cases():
            a, b = rnd(*s), rnd(*t)
            emit("matmul", case, flop / best(lambda: wait(mm(a, b)), 0.6) / 1e9, "GFLOPS")

    def conv():  # in the layout JAX likes on CPU (NHWC)
        total = 0.0
        for name, count, ci, h, co, k, s, p in LAYERS:
            x, w = rnd(64, h, h, ci), rnd(k, k, ci, co) * 0.1
            f = lambda x, w: jax.lax.conv_general_dilated(x, w, (s, s), [(p, p), (p, p)], dimension_numbers=("NHWC", "HWIO", "NHWC"))
            dy = rnd(*f(x, w).shape)
            ways = {
                "forward": (jax.jit(f), (x, w)),
                "grad_input": (jax.jit(lambda x, w, dy: jax.vjp(lambda x: f(x, w), x)[1](dy)), (x, w, dy)),
                "grad_weight": (jax.jit(lambda x, w, dy: jax.vjp(lambda w: f(x, w), w)[1](dy)), (x, w, dy)),
            }
            for way, (g, args) in ways.items():
                t = best(lambda: wait(g(*args)), 0.25)
                total += count * t
                emit("conv", f"{name}.{way}", t * 1e3, "ms")
        emit("conv", "total", total * 1e3, "ms")

    def perceptron_loss(p, x, y):
        for w, b in p[:-1]:
            x = jax.nn.relu(x @ w + b)
        logp = jax.nn.log_softmax(x @ p[-1][0] + p[-1][1])
        return -jnp.take_along_axis(logp, y[:, None], 1).mean()

    def mlp():
        lin = lambda i, o: (rnd(i, o) * 0.02, jnp.zeros(o))
        params = [lin(784, 512), lin(512, 512), lin(512, 10)]
        x, y = rnd(128, 784), jax.random.randint(next(keys), (128,), 0, 10)

        def step(p, m, v, n, x, y):
            g = jax.grad(perceptron_loss)(p, x, y)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            c1, c2 = 1 - 0.9**n, 1 - 0.999**n
            return jax.tree.map(lambda p, m, v: p - 1e-4 * m / c1 / (jnp.sqrt(v / c2) + 1e-8), p, m, v), m, v, n + 1

        step = jax.jit(step, donate_argnums=(0, 1, 2))
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)
        state = [params, zeros(), zeros(), jnp.float32(1)]

        def run():
            state[:] = wait(step(*state, x, y))

        emit("mlp", "adam_compiled", 1 / best(run, 2), "steps/s")

    def transforms():
        def layer(i, o):
            return rnd(i, o) * i**-0.5, jnp.zeros(o)

        def one(p, x, y):
            for w, b in p[:-1]:
                x = jnp.tanh(x @ w + b)
            return -jax.nn.log_softmax(x @ p[-1][0] + p[-1][1])[y]

        p, x, y = [layer(784, 256), layer(256, 256), layer(256, 10)], rnd(256, 784), jax.random.randint(next(keys), (256,), 0, 10)
        each = jax.jit(jax.vmap(jax.grad(one), (None, 0, 0)))
        emit("transforms", "per_sample_gradients_compiled", best(lambda: wait(each(p, x, y)), 2) * 1e3, "ms")

        width, heads, vocabulary, length = 256, 4, 1000, 128
        ids, target = jax.random.randint(next(keys), (8, length), 0, vocabulary), jax.random.randint(next(keys), (8, length), 0, vocabulary)
        causal = jnp.tril(jnp.ones((length, length), bool))

        def normed(x, w, b):
            m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            return (x - m) * jax.lax.rsqrt(v + 1e-5) * w + b

        def block(x, p):
            q, k, v = (normed(x, *p["norm1"]) @ p["qkv"][0] + p["qkv"][1]).reshape(8, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
            scores = jnp.where(causal, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -jnp.inf)
            a = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
            x = x + a @ p["out"][0] + p["out"][1]
            return x + jax.nn.gelu(normed(x, *p["norm2"]) @ p["up"][0] + p["up"][1]) @ p["down"][0] + p["down"][1]

        def loss(p):
            x = p["token"][ids] + p["position"]
            for b in p["blocks"]:
                x = block(x, b)
            logp = jax.nn.log_softmax(normed(x, *p["norm"]) @ p["head"])
            return -jnp.take_along_axis(logp, target[..., None], -1).mean()

        norm = lambda: (jnp.ones(width), jnp.zeros(width))
        blocks = [dict(norm1=norm(), norm2=norm(), qkv=layer(width, 3 * width), out=layer(width, width), up=layer(width, 4 * width), down=layer(4 * width, width)) for _ in range(4)]
        p = dict(token=rnd(vocabulary, width), position=rnd(length, width) * 0.02, blocks=blocks, norm=norm(), head=layer(width, vocabulary)[0])
        d = jax.tree.map(lambda t: rnd(*t.shape), p)
        product = jax.jit(lambda p, d: jax.jvp(jax.grad(loss), (p,), (d,))[1])
        emit("transforms", "hvp_gpt_compiled", best(lambda: wait(product(p, d)), 2) * 1e3, "ms")

    def compile_mlp():
        lin = lambda i, o: (rnd(i, o) * 0.02, jnp.zeros(o))
        params, x, y = [lin(784, 512), lin(512, 512), lin(512, 10)], rnd(128, 784), jax.random.randint(next(keys), (128,), 0, 10)
        both = jax.jit(jax.value_and_grad(perceptron_loss))
        emit("compile_mlp", "forward_backward", best(lambda: wait(both(params, x, y)), 2) * 1e3, "ms")

    def compile_cold():
        lin = lambda i, o: (rnd(i, o) * 0.02, jnp.zeros(o))
        params, x, y = [lin(64, 128), lin(128, 128), lin(128, 10)], rnd(32, 64), jax.random.randint(next(keys), (32,), 0, 10)
        t = time.perf_counter()
        jax.jit(jax.value_and_grad(perceptron_loss)).lower(params, x, y).compile()
        emit("compile_cold", "perceptron", (time.perf_counter() - t) * 1e3, "ms")
        two, x = jax.jit(lambda x: x * 2.0 + 1.0), jnp.ones(4)
        emit("compile_cold", "call_of_two_ops", best(lambda: wait([two(x) for _ in range(1000)])) * 1e6, "ns")

    return dict(ops=ops, pointwise=pointwise, softmax_layernorm=softmax_layernorm, matmul=matmul, conv=conv, mlp=mlp, transforms=transforms, compile_mlp=compile_mlp, compile_cold=compile_cold)


if __name__ == "__main__":
    table = jax_benches() if A.peer == "jax" else torch_benches(A.peer == "compile")
    for name in A.benches or [name for name in table if ":" not in name]:
        OF_THE_COMPILER = name.startswith("compile_")
        table[name if name in table else name.removeprefix("compile_")]()
