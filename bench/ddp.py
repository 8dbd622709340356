"""Data-parallel training steps on two processes, one thread each: firebrand on MPI against PyTorch's DDP on gloo, turn by turn.

    python bench/ddp.py FIREBRAND [mlp gpt convnet] [--rounds 3] [--launcher mpirun.openmpi] [--slow 400mbit] [--batches 8] [--venv DIR]

Prints, for each model and side, the best step of one process, of two, and weak scaling (two processes do twice the work); then firebrand's throughput at two processes over
PyTorch's. With `--slow RATE` everything runs in a network namespace of its own (needs root) whose loopback carries no more than that, TCP forced on both sides, and the
table says how much of the lesser of computation and communication a step hides; `--batches N` makes every batch N times as large, so that there is more to hide behind. Wall time: run it on a quiet machine; the load is printed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 2.0


def torch_side(names, batches):
    """Runs in the peers' Python: prints JSON lines like firebrand's."""
    import torch.multiprocessing as mp

    mp.set_start_method("spawn")
    for world in (1, 2):
        ranks = [mp.Process(target=torch_rank, args=(r, world, names, batches)) for r in range(world)]
        [p.start() for p in ranks]
        [p.join() for p in ranks]
        if any(p.exitcode for p in ranks):
            sys.exit(1)


def torch_rank(rank, world, names, batches):
    import contextlib
    import time

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn

    sys.path.insert(0, str(HERE))
    from torch_models import GPT, ConvNet

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", GLOO_SOCKET_IFNAME="lo")
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)

    def fastest(f):
        f(), f()
        best, began, calls = float("inf"), time.perf_counter(), 0
        while True:
            if world > 1:
                dist.barrier()
            start = time.perf_counter()
            f()
            best, calls = min(best, time.perf_counter() - start), calls + 1
            more = torch.tensor([float(calls < 5 or time.perf_counter() - began < SECONDS)])
            if world > 1:
                dist.broadcast(more, 0)
            if not more.item():
                return best

    for name in names:
        torch.manual_seed(0)
        if name == "gpt":
            net, x, y, optimizer = GPT(), torch.randint(1000, (8 * batches, 128)), torch.randint(1000, (8 * batches * 128,)), torch.optim.AdamW
        elif name == "convnet":
            net, x, y, optimizer = ConvNet(), torch.randn(64 * batches, 3, 32, 32), torch.randint(10, (64 * batches,)), torch.optim.Adam
        else:
            net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
            x, y, optimizer = torch.randn(128 * batches, 784), torch.randint(10, (128 * batches,)), torch.optim.Adam
        # As with torch's own defaults, but for the fused optimizer, which both sides have.
        model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
        o = optimizer(net.parameters(), lr=1e-4, fused=True)

        def step(sync=True):
            with contextlib.nullcontext() if sync or world == 1 else model.no_sync():
                F.cross_entropy(model(x).flatten(0, -2), y).backward()
            o.step()
            o.zero_grad(set_to_none=True)

        say = lambda case, value: rank or print(json.dumps({"bench": f"ddp_{name}", "case": case, "value": value}), flush=True)
        whole = fastest(step)
        say(f"eager.{world}_ranks", 1e3 * whole)
        if world > 1:
            flat = torch.zeros(sum(p.numel() for p in net.parameters()))
            compute, wire = fastest(lambda: step(False)), fastest(lambda: dist.all_reduce(flat))
            say("eager.no_sync", 1e3 * compute)
            say("eager.wire", 1e3 * wire)
            say("eager.hidden", 100 * (compute + wire - whole) / min(compute, wire))


def firebrand_side(options):
    """What firebrand prints, on one process and on two."""
    benches = [f"ddp_{n}" for n in options.names]
    env = dict(os.environ, FIREBRAND_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    launch = [options.launcher]
    if "openmpi" in options.launcher:
        launch += ["--oversubscribe", "--bind-to", "none"] + (["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"] if options.slow else [])
    elif options.slow:
        env["MPIR_CVAR_NOLOCAL"] = "1"
    lines = []
    for cmd in ([], [*launch, "-n", "2"]):
        r = subprocess.run([*cmd, options.firebrand, "bench", *benches, "--ddp-batches", str(options.batches), "--json"], env=env, capture_output=True, text=True)
        if r.returncode:
            sys.exit(f"firebrand failed: {r.stderr.strip()}")
        lines += [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("firebrand")
    parser.add_argument("names", nargs="*", default=["mlp", "gpt", "convnet"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--launcher", default="mpirun.openmpi")
    parser.add_argument("--slow", metavar="RATE")
    parser.add_argument("--json", type=pathlib.Path, help="write the steps on two processes here")
    parser.add_argument("--batches", type=int, default=1, metavar="N")
    parser.add_argument("--venv", type=pathlib.Path, default=pathlib.Path.home() / ".cache/firebrand/bench-venv")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.slow and not options.inside:
        # In a namespace of its own, so that nothing else gets slow.
        limit = f"ip link set lo up && ip link set lo mtu 9000 && tc qdisc add dev lo root tbf rate {options.slow} burst 1mb latency 50ms"
        again = ["unshare", "-n", "sh", "-c", f'{limit} && exec "$@"', "sh", sys.executable, __file__, *sys.argv[1:], "--inside"]
        sys.exit(subprocess.run(again).returncode)
    best = {}
    for _ in range(options.rounds):
        torch = subprocess.run([options.venv / "bin/python", __file__, "--torch", str(options.batches), *options.names], capture_output=True, text=True)
        if torch.returncode:
            sys.exit(f"torch failed: {torch.stderr.strip()}")
        sides = {"torch": [json.loads(line) for line in torch.stdout.splitlines()], "firebrand": firebrand_side(options)}
        for side, lines in sides.items():
            for line in lines:
                key = (line["bench"], side, line["case"])
                pick = max if line["case"].endswith("hidden") else min
                best[key] = pick(best.get(key, line["value"]), line["value"])
    print(f"load {' '.join(f'{v:.2f}' for v in os.getloadavg())} on {os.cpu_count()} cores, {options.launcher}" + (f", loopback at {options.slow}" if options.slow else "")
          + (f", batches of {options.batches}" if options.batches > 1 else ""))
    print(f"{'model':8} {'side':20} {'1 rank ms':>10} {'2 ranks ms':>11} {'scaling':>8} {'without':>8} {'wire':>8} {'hidden':>7} {'x torch':>8}")
    rows = []
    for name in options.names:
        value = lambda side, case: best.get((f"ddp_{name}", side, case), float("nan"))
        base = value("torch", "eager.2_ranks")
        for side, mode in (("torch", "eager"), ("firebrand", "eager"), ("firebrand", "compiled")):
            one, two = value(side, f"{mode}.1_ranks"), value(side, f"{mode}.2_ranks")
            print(f"{name:8} {side + ' ' + mode:20} {one:10.2f} {two:11.2f} {2 * one / two:8.2f} {value(side, mode + '.no_sync'):8.2f} "
                  f"{value(side, mode + '.wire'):8.2f} {value(side, mode + '.hidden'):6.0f}% {base / two:8.2f}")
            if side == "firebrand":
                rows.append({"case": f"{name} {mode}, step of 2 processes", "threads": 1, "unit": "ms", "firebrand": two, "torch": base})
    if options.json:
        options.json.write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    torch_side(sys.argv[3:], int(sys.argv[2])) if sys.argv[1:2] == ["--torch"] else main()
