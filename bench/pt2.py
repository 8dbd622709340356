"""Exported programs: firebrand and PyTorch on the same files, turn by turn.

    python bench/pt2.py [--firebrand PATH] [--venv DIR] [--threads 1,2] [--rounds 3] [--json FILE]

Exports ResNet-18 (batches of 1 and 8) for evaluation, and a small GPT and a residual net for training; then measures
  cold       loading and the first run in a fresh process: seconds and peak resident memory
  inference  milliseconds of one call
  training   milliseconds of one step: zero gradients, forward, backward, AdamW
The best value of all rounds counts. The environment is that of compare.py, with torchvision.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


# ---- PyTorch's side: run in the environment


def export(folder):
    """Writes the programs and their inputs; prints nothing."""
    import numpy as np
    import torch
    from torch_models import GPT, ConvNet
    from torchvision.models import resnet18

    torch.manual_seed(0)
    folder = pathlib.Path(folder)
    model = resnet18(weights=None).eval()
    for batch in (1, 8):
        x = torch.randn(batch, 3, 224, 224)
        program = torch.export.export(model, (x,))
        name = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"][0]
        torch.export.save(program, folder / f"resnet18_b{batch}.pt2")
        np.savez(folder / f"resnet18_b{batch}.npz", **{name: x.numpy()})
    for stem, model, x, y in (
        ("gpt", GPT(), torch.randint(1000, (8, 128)), torch.randint(1000, (8, 128))),
        ("convnet", ConvNet(), torch.randn(64, 3, 32, 32), torch.randint(10, (64,))),
    ):
        program = torch.export.export(model.train(), (x,))
        name = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"][0]
        torch.export.save(program, folder / f"{stem}.pt2")
        np.savez(folder / f"{stem}.npz", **{name: x.numpy(), "__target__": y.numpy()})


def load(model, inputs):
    import numpy as np
    import torch

    arrays = {k: torch.from_numpy(v) for k, v in np.load(inputs).items()}
    target = arrays.pop("__target__", None)
    program = torch.export.load(model)
    return program.module(), list(arrays.values()), target


def cold(model, inputs):
    """Loads and runs once; the caller measures the process."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module, arrays, _ = load(model, inputs)
    with torch.no_grad():
        module(*arrays)


def steady(model, inputs, train):
    import torch
    import torch.nn.functional as F

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    module, arrays, target = load(model, inputs)
    if train:
        opt = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-4, fused=True)

        def call():
            opt.zero_grad(set_to_none=True)
            out = module(*arrays)
            F.cross_entropy(out.reshape(-1, out.shape[-1]), target.flatten()).backward()
            opt.step()
    else:

        def call():
            with torch.no_grad():
                module(*arrays)

    call(), call()
    times, end = [], clock() + 3.0
    while len(times) < 5 or (clock() < end and len(times) < 2000):
        t = clock()
        call()
        times.append(clock() - t)
    print(json.dumps({"value": 1e3 * min(times)}))


# ---- the comparison


def fresh(cmd, env):
    """Seconds and peak resident megabytes of a process."""
    began = time.perf_counter()
    child = subprocess.Popen([str(c) for c in cmd], env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{cmd}: {child.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def value(cmd, env):
    out = subprocess.run([str(c) for c in cmd], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])["value"]


def measure(ours, python, folder, threads):
    """One round: case, unit, our value, theirs."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    file = lambda stem: (folder / f"{stem}.pt2", folder / f"{stem}.npz")
    model, inputs = file("resnet18_b1")
    a = fresh([ours, "run", model, "--inputs", inputs, "-o", folder / "out.npz", "--threads", threads], env)
    b = fresh([python, __file__, "--side", "cold", model, inputs], env)
    yield "resnet18 cold", "s", a[0], b[0]
    yield "resnet18 cold memory", "MB", a[1], b[1]
    for stem, train in (("resnet18_b1", False), ("resnet18_b8", False), ("gpt", True), ("convnet", True)):
        model, inputs = file(stem)
        cmd = [ours, "bench", "--json", "--threads", threads, "--program", model, "--inputs", inputs]
        mine = value(cmd + ["--loss", "cross_entropy"] * train, env)
        theirs = value([python, __file__, "--side", "train" if train else "infer", model, inputs], env)
        yield f"{stem} {'training step' if train else 'inference'}", "ms", mine, theirs


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", type=pathlib.Path, help="write every value and ratio here")
    p.add_argument("--venv", type=pathlib.Path, default=pathlib.Path.home() / ".cache/firebrand/bench-venv")
    p.add_argument("--firebrand", help="a built binary; default: cargo build --release")
    p.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.side:
        side, *rest = a.side
        return {"export": export, "cold": cold, "infer": lambda *r: steady(*r, False), "train": lambda *r: steady(*r, True)}[side](*rest)
    from compare import build, environment

    python = environment(a.venv, ["torch"])
    if subprocess.run([python, "-c", "import torchvision"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torchvision"], check=True)
    ours = a.firebrand or build()
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([python, __file__, "--side", "export", folder], check=True, stdout=subprocess.DEVNULL)
        for number in range(a.rounds):
            for threads in map(int, a.threads.split(",")):
                print(f"round {number + 1}/{a.rounds} threads={threads} (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
                for case, unit, mine, theirs in measure(ours, python, folder, threads):
                    print(f"  {case}: {mine:.4g} {unit}, torch {theirs:.4g}", file=sys.stderr, flush=True)
                    old = best.get((case, threads), (unit, mine, theirs))
                    best[case, threads] = (unit, min(mine, old[1]), min(theirs, old[2]))
    print("| case | threads | unit | firebrand | torch | torch / firebrand |")
    print("|---|---|---|---|---|---|")
    rows = []
    for (case, threads), (unit, mine, theirs) in sorted(best.items(), key=lambda kv: kv[0][1]):
        print(f"| {case} | {threads} | {unit} | {mine:.4g} | {theirs:.4g} | {theirs / mine:.2f} |")
        rows.append({"case": case, "threads": threads, "unit": unit, "firebrand": mine, "torch": theirs, "ratio": round(theirs / mine, 4)})
    if a.json:
        a.json.write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    main()
