"""Runs firebrand and its peers on the same work, turn by turn, and prints the ratios.

    python bench/compare.py [BENCH...] [--peers torch,compile,jax,candle] [--threads 1,2] [--rounds 2] [--json FILE]
                            [--venv DIR] [--firebrand PATH] [--history FILE]

The peers live in a virtual environment outside this tree (default ~/.cache/firebrand/bench-venv), made on first use; candle's program is built beside it. Within a round every side runs each bench once,
one after the other, so that all meet the same machine; the best value of all rounds counts. `share` is the part of the machine's limit that firebrand reaches: see
`firebrand bench roofline`. Values taken while other programs used the machine are marked with `*`. Needs only Python's standard library.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
BENCHES = ["roofline", "ops", "pointwise", "softmax_layernorm", "matmul", "linalg", "conv", "mlp", "gpt", "convnet", "saved_memory", "transforms"]
BENCHES += ["compile_pointwise", "compile_softmax_layernorm", "compile_cold", "compile_mlp", "compile_backward"]
OF_CANDLE = ["matmul", "mlp", "gpt", "convnet"]
# Benches with a script of their own, which runs firebrand and PyTorch in turns and writes rows: case, threads, unit, firebrand, torch.
SCRIPTS = ["pt2", "generate", "ddp"]
RATES = ("GFLOPS", "GB/s", "steps/s", "tokens/s", "images/s")  # more is better; every other unit is a time


def environment(where, peers):
    """The peers' Python, with what `peers` need installed."""
    python = where / "bin" / "python"
    if not python.exists():
        print(f"making {where}", file=sys.stderr)
        venv.create(where, with_pip=True)
    has = lambda module: subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0
    pip = [python, "-m", "pip", "install", "--quiet"]
    if {"torch", "compile"} & set(peers) and not has("torch"):
        subprocess.run([*pip, "torch", "numpy"], check=True)
    if "jax" in peers and not has("jax"):
        subprocess.run([*pip, "jax", "numpy"], check=True)
    return python


def build():
    """The path of the release binary, built if need be."""
    cmd = ["cargo", "build", "--release", "-p", "firebrand-cli", "--message-format=json-render-diagnostics"]
    out = subprocess.run(cmd, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [m["executable"] for m in map(json.loads, out.splitlines()) if m.get("executable")]
    if not found:
        sys.exit("cargo built no binary")
    return found[-1]


def build_candle(where):
    """The path of candle's program, built if need be."""
    env = dict(os.environ, CARGO_TARGET_DIR=str(where / "candle"))
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE / "candle", env=env, check=True)
    return where / "candle/release/candle-peer"


def script(name, a, ours, python):
    """The rows that a bench with a script of its own writes; none if it fails, which is reported."""
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder) / "rows"
        more = ["--json", rows]
        cmd = {
            "pt2": [sys.executable, HERE / "pt2.py", "--firebrand", ours, "--venv", a.venv, "--threads", a.threads, "--rounds", a.rounds],
            "generate": [python, HERE.parent / "golden/conformance_generate.py", ours, "--speed"],
            "ddp": [sys.executable, HERE / "ddp.py", ours, "--venv", a.venv, "--rounds", a.rounds],
        }[name]
        r = subprocess.run([str(c) for c in cmd + more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if r.returncode:
            why = (r.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"  {name} failed: {why}", file=sys.stderr)
            return []
        return [json.loads(line) for line in rows.read_text().splitlines()]


def measure(cmd, side, threads):
    """The JSON lines a side prints. A side that fails is reported and left out."""
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads)) if side == "candle" else None
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, env=env)
    if r.returncode:
        why = (r.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {side} failed: {why}", file=sys.stderr)
    return [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]


def better(unit, a, b):
    """Whether value `a` beats `b`."""
    return a > b if unit in RATES else a < b


def busy():
    """How many cores other programs keep busy right now; None where the system does not say."""

    def used():
        total = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(total) - total[3] - total[4]  # all but idle time

    try:
        before = used()
        time.sleep(0.3)
        return (used() - before) / os.sysconf("SC_CLK_TCK") / 0.3
    except (OSError, ValueError):
        return None


def processor():
    """The name of the CPU, as the system gives it."""
    try:
        names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def table(results, peers):
    """Markdown: one row a case and thread count, our value and its share of the limit, each peer's value and how many times faster we are."""
    lines = ["| bench | case | threads | unit | firebrand | share | " + " | ".join(f"{p} | vs {p}" for p in peers) + " |", "|" + "---|" * (6 + 2 * len(peers))]
    shown = lambda m: f"{m['value']:.4g}{'*' if (m['load'] or 0) > 0.2 else ''}" if m else "-"
    for bench, case, threads in dict.fromkeys(k[:3] for k in results):
        cell = lambda side: results.get((bench, case, threads, side))
        unit = next(m["unit"] for k, m in results.items() if k[:3] == (bench, case, threads))
        ours = cell("firebrand")
        share = f"{100 * ours['share']:.0f} %" if ours and "share" in ours else ""
        row = [bench, case, str(threads), unit, shown(ours), share]
        for p in peers:
            theirs = cell(p)
            row += [shown(theirs), f"{ratio(unit, ours['value'], theirs['value']):.2f}" if ours and theirs else "-"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def ratio(unit, ours, theirs):
    """How many times faster than the peer: above 1 is ours."""
    if unit not in RATES:
        ours, theirs = theirs, ours
    return ours / theirs if theirs else float("nan")


def commit():
    """The commit that is measured, if git knows."""
    r = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return r.stdout.strip() or None


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("benches", nargs="*", default=[])
    p.add_argument("--peers", default="torch,compile,jax,candle")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--json", type=pathlib.Path, help="write every value and ratio here")
    p.add_argument("--venv", type=pathlib.Path, default=pathlib.Path.home() / ".cache/firebrand/bench-venv")
    p.add_argument("--firebrand", help="a built binary; default: cargo build --release")
    p.add_argument("--history", type=pathlib.Path, help="append every value to this file, with date, processor and commit")
    a = p.parse_args()
    peers = [x for x in a.peers.split(",") if x]
    threads = [int(x) for x in a.threads.split(",")]
    benches = a.benches or BENCHES + (SCRIPTS if "torch" in peers else [])
    if unknown := set(benches) - set(BENCHES) - set(SCRIPTS):
        p.error(f"no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES + SCRIPTS)}")
    if unknown := set(peers) - {"torch", "compile", "jax", "candle"}:
        p.error(f"no peer {', '.join(sorted(unknown))}; there are torch, compile, jax, candle")
    python = environment(a.venv, peers) if set(peers) - {"candle"} else None
    candle = build_candle(a.venv.parent) if "candle" in peers else None
    ours = a.firebrand or build()

    results = {}
    for number in range(a.rounds):
        for bench in [b for b in benches if b not in SCRIPTS]:
            for n in threads:
                for side in ["firebrand", *peers]:
                    if side == "candle" and bench not in OF_CANDLE:
                        continue
                    load = busy()
                    others = "" if load is None else f" (others use {load:.1f} cores)"
                    print(f"round {number + 1}/{a.rounds} {bench} threads={n} {side}{others}", file=sys.stderr)
                    cmd = {
                        "firebrand": [ours, "bench", bench, "--json", "--threads", n],
                        "candle": [candle, bench, "--threads", n],
                    }.get(side, [python, HERE / "peers.py", bench, "--peer", side, "--threads", n])
                    for m in measure(cmd, side, n):
                        key = (m["bench"], m["case"], m["threads"], side)
                        old = results.get(key)
                        if old is None or better(m["unit"], m["value"], old["value"]):
                            results[key] = {**m, "load": load}
    for bench in [b for b in benches if b in SCRIPTS]:
        load = busy()
        print(f"{bench}: {a.rounds} rounds" + ("" if load is None else f" (others use {load:.1f} cores)"), file=sys.stderr)
        for row in script(bench, a, ours, python):
            for side in ("firebrand", "torch"):
                m = {"bench": bench, "case": row["case"], "threads": row["threads"], "unit": row["unit"], "value": row[side], "load": load}
                results[bench, row["case"], row["threads"], side] = m
    print(f"{processor()}\n")
    print(table(results, peers))
    rows = []
    for (bench, case, n, side), m in results.items():
        row = {**m, "bench": bench, "case": case, "threads": n, "side": side}
        mine = results.get((bench, case, n, "firebrand"))
        if side != "firebrand" and mine:
            row["firebrand_speedup"] = round(ratio(m["unit"], mine["value"], m["value"]), 4)
        rows.append(row)
    if a.json:
        a.json.write_text("".join(json.dumps(r) + "\n" for r in rows))
    if a.history:
        about = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "processor": processor(), "commit": commit()}
        with a.history.open("a") as file:
            file.writelines(json.dumps({**about, **r}) + "\n" for r in rows)


if __name__ == "__main__":
    main()
