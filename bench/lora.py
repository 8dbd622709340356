"""Memory and time of a training step of the GPT of torch_models.py: all parameters, adapters, adapters over frozen weights in 8 and 4 bits.

    python bench/lora.py FIREBRAND [--rounds 5] [--threads 1] [--batch 8]

Memory is weights, buffers, gradients, optimizer state and activations at their peak, as `firebrand train --dry-run` counts them: it does
not depend on load. Time is the best step of all rounds, which take turns: of the processor on one thread, of the clock on several.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from torch_models import GPT

CASES = {
    "all parameters": [],
    "adapters": ["--lora", "--rank", "8"],
    "adapters, cheap values again": ["--lora", "--rank", "8", "--recompute", "cheap"],
    "adapters, nothing again": ["--lora", "--rank", "8", "--recompute", "nothing"],
    "adapters, saved in bf16": ["--lora", "--rank", "8", "--saved", "bf16"],
    "adapters, blocks again": ["--lora", "--rank", "8", "--recompute", "blocks"],
    "adapters, 8 bits": ["--lora", "--rank", "8", "--quantize", "8"],
    "adapters, 8 bits, saved in bf16": ["--lora", "--rank", "8", "--quantize", "8", "--saved", "bf16"],
    "adapters, 8 bits, blocks again": ["--lora", "--rank", "8", "--quantize", "8", "--recompute", "blocks"],
    "adapters, 4 bits": ["--lora", "--rank", "8", "--quantize", "4"],
}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("firebrand")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--batch", type=int, default=8)
    a = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ids = torch.randint(1000, (a.batch, 128))
        torch.export.save(torch.export.export(GPT(), (ids,)), folder / "gpt.pt2")
        np.savez(folder / "gpt.npz", ids=ids.numpy(), __target__=torch.randint(1000, (a.batch, 128)).numpy())
        best = {}
        for _ in range(a.rounds):
            for case, options in CASES.items():
                command = [a.firebrand, "train", folder / "gpt.pt2", "--data", folder / "gpt.npz", "--loss", "cross_entropy", "--dry-run", "--json", "--quiet"]
                done = subprocess.run([str(c) for c in command + options + ["--threads", a.threads]], check=True, stdout=subprocess.PIPE, text=True)
                found = json.loads(done.stdout)
                size = found["bytes"]
                memory = size["weights"] + size["buffers"] + size["measured_peak"]
                old = best.get(case, (memory, float("inf"), size))
                best[case] = (memory, min(old[1], found["cpu_seconds_per_step" if a.threads == 1 else "seconds_per_step"]), size)
    print("| training | MB at peak | of all parameters | ms a step | of all parameters |\n|---|---|---|---|---|")
    whole = best["all parameters"]
    for case, (memory, seconds, size) in best.items():
        print(f"| {case} | {memory / 1e6:.1f} | {memory / whole[0]:.2f} | {1e3 * seconds:.1f} | {seconds / whole[1]:.2f} |  {size}")


main()
