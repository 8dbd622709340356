"""Runs firebrand and its peers on the same work, turn by turn, and prints the ratios.

    python bench/compare.py [BENCH...] [--peers torch,compile,jax] [--threads 1,2] [--rounds 2] [--json FILE]
                            [--venv DIR] [--firebrand PATH]

The peers live in a virtual environment outside this tree (default ~/.cache/firebrand/bench-venv), made on first use. Within a round every side runs each bench once,
one after the other, so that all meet the same machine; the best value of all rounds counts. Needs only Python's standard library.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
BENCHES = ["ops", "pointwise", "softmax_layernorm", "matmul", "linalg", "conv", "mlp", "gpt", "convnet", "saved_memory", "transforms"]
BENCHES += ["compile_pointwise", "compile_softmax_layernorm", "compile_cold", "compile_mlp"]
RATES = ("GFLOPS", "steps/s", "tokens/s", "images/s")  # more is better; every other unit is a time


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


def measure(cmd, side):
    """The JSON lines a side prints. A side that fails is reported and left out."""
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True)
    if r.returncode:
        why = (r.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {side} failed: {why}", file=sys.stderr)
    return [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]


def better(unit, a, b):
    return max(a, b) if unit in RATES else min(a, b)


def table(results, peers):
    """Markdown: one row a case and thread count, our value, each peer's value and how many times faster we are."""
    lines = ["| bench | case | threads | unit | firebrand | " + " | ".join(f"{p} | vs {p}" for p in peers) + " |", "|" + "---|" * (5 + 2 * len(peers))]
    for bench, case, threads in dict.fromkeys(k[:3] for k in results):
        cell = lambda side: results.get((bench, case, threads, side))
        unit = next(v[1] for k, v in results.items() if k[:3] == (bench, case, threads))
        ours = cell("firebrand")
        row = [bench, case, str(threads), unit, f"{ours[0]:.4g}" if ours else "-"]
        for p in peers:
            theirs = cell(p)
            row.append(f"{theirs[0]:.4g}" if theirs else "-")
            row.append(f"{ratio(unit, ours[0], theirs[0]):.2f}" if ours and theirs else "-")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def ratio(unit, ours, theirs):
    """How many times faster than the peer: above 1 is ours."""
    if unit not in RATES:
        ours, theirs = theirs, ours
    return ours / theirs if theirs else float("nan")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("benches", nargs="*", default=[])
    p.add_argument("--peers", default="torch,compile,jax")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--json", type=pathlib.Path, help="write every value and ratio here")
    p.add_argument("--venv", type=pathlib.Path, default=pathlib.Path.home() / ".cache/firebrand/bench-venv")
    p.add_argument("--firebrand", help="a built binary; default: cargo build --release")
    a = p.parse_args()
    peers = [x for x in a.peers.split(",") if x]
    threads = [int(x) for x in a.threads.split(",")]
    benches = a.benches or BENCHES
    if unknown := set(benches) - set(BENCHES):
        p.error(f"no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    python = environment(a.venv, peers) if peers else None
    ours = a.firebrand or build()

    results = {}
    for number in range(a.rounds):
        for bench in benches:
            for n in threads:
                for side in ["firebrand", *peers]:
                    load = os.getloadavg()[0]
                    print(f"round {number + 1}/{a.rounds} {bench} threads={n} {side} (load {load:.1f})", file=sys.stderr)
                    cmd = [ours, "bench", bench, "--json", "--threads", n] if side == "firebrand" else [python, HERE / "peers.py", bench, "--peer", side, "--threads", n]
                    for m in measure(cmd, side):
                        key = (m["bench"], m["case"], m["threads"], side)
                        old = results.get(key)
                        results[key] = (m["value"] if old is None else better(m["unit"], m["value"], old[0]), m["unit"])
    print(table(results, peers))
    if a.json:
        rows = []
        for (bench, case, n, side), (value, unit) in results.items():
            row = {"bench": bench, "case": case, "threads": n, "side": side, "value": value, "unit": unit}
            mine = results.get((bench, case, n, "firebrand"))
            if side != "firebrand" and mine:
                row["firebrand_speedup"] = round(ratio(unit, mine[0], value), 4)
            rows.append(row)
        a.json.write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    main()
