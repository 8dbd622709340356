"""Runs every entry of PyTorch's own op database through export, `.pt2` and firebrand, and compares.

    python golden/conformance_opinfo.py FIREBRAND [--only NAME ...] [--dtypes NAME ...] [--summary FILE] [--json FILE] [--programs DIR] [--jobs N] [--resume]

Run by `cargo xtask conformance opinfo`. Every sample of every op, for float64, float32, complex128, int64 and bool where
the op takes them: values of all, gradients of inputs for float64, and for the inputs that PyTorch refuses that they are refused
here (`conformance_opinfo_refusals`). Samples of one op and dtype become programs of up to 32, each sample with outputs and inputs of
its own; a program that is refused is halved until the sample is found. A sample that PyTorch itself cannot run or export counts
as `not exportable`. `--programs` keeps what PyTorch made, so that a second run needs only firebrand; `--json` keeps results op by
op, and with `--resume` ops that have one there are not run again.

Fails if fewer than 99.5 % are equal, or if an op differs that `opinfo_differences.json` does not explain.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import conformance_opinfo_refusals as refusals

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
DTYPES = [torch.float64, torch.float32, torch.complex128, torch.int64, torch.bool]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.complex128: 1e-9, torch.complex64: 2e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}
STORED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)
# Results that PyTorch leaves open: memory that nobody wrote.
OPEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}
DIFFERENCES = pathlib.Path(__file__).parent / "opinfo_differences.json"
LEAST = 99.5
SIZE = 32


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Batch(torch.nn.Module):
    """Several samples of one op as one module. Tensors are inputs, everything else is part of the program.

    Where results are not unique (singular vectors), a sample says what of them is; that is part of the program too.
    """

    def __init__(self, op, samples):
        super().__init__()
        self.op, self.specs, self.rest, self.tensors, self.is_input = op, [], [], [], []
        self.process = [s.output_process_fn_grad for s in samples]
        for s in samples:
            leaves, spec = pytree.tree_flatten((s.input, tuple(s.args), dict(s.kwargs)))
            is_tensor = [isinstance(x, torch.Tensor) for x in leaves]
            self.specs.append((spec, is_tensor))
            self.rest.append([None if t else x for x, t in zip(leaves, is_tensor)])
            self.tensors += [x.detach() for x, t in zip(leaves, is_tensor) if t]
            first = len(pytree.tree_leaves(s.input))
            self.is_input += [k < first for k, t in enumerate(is_tensor) if t]

    def forward(self, *tensors):
        tensors, results = list(tensors), []
        for (spec, is_tensor), rest, process in zip(self.specs, self.rest, self.process):
            # A copy: an op may write its input.
            leaves = [tensors.pop(0).clone() if t else x for x, t in zip(rest, is_tensor)]
            input, args, kwargs = pytree.tree_unflatten(leaves, spec)
            made = process(self.op(input, *args, **kwargs))
            results.append([x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)])
        return results


class Refused(Exception):
    pass


def run(firebrand, *arguments):
    done = subprocess.run([firebrand, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Refused(done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else f"exit {done.returncode}")


def plain(t):
    t = torch.zeros(t.shape, dtype=t.dtype) if t._is_zerotensor() else t
    return t.detach().resolve_conj().resolve_neg().contiguous()


def difference(found, expected, limit=None):
    """What is different, or None."""
    found = np.asarray(found)
    if expected.dtype == torch.bfloat16 and found.dtype == np.uint16:  # arrays have no such dtype
        found, expected = torch.from_numpy(found).view(torch.bfloat16).float().numpy(), expected.float()
        limit = limit or TOLERANCE[torch.bfloat16]
    if tuple(found.shape) != tuple(expected.shape) or str(found.dtype) != str(expected.dtype).removeprefix("torch."):
        return f"expected {expected.dtype} {tuple(expected.shape)}, found {found.dtype} {tuple(found.shape)}"
    a, b = torch.from_numpy(found), expected
    if b.dtype in TOLERANCE:
        limit = limit or TOLERANCE[b.dtype]
        if not torch.allclose(a, b, rtol=limit, atol=limit, equal_nan=True):
            return f"differs by {(a - b).abs().nan_to_num().max().item():.0e}"
        return None
    return None if torch.equal(a, b) else "differs"


def differentiated(batch, inputs, differentiable):
    """Leaves and outputs, with gradients for all tensors; if PyTorch has none for some of them, for the inputs, or for none."""
    choices = [lambda k: True, lambda k: batch.is_input[k], lambda k: False] if differentiable else [lambda k: False]
    for has in choices:
        leaves = [t.clone().requires_grad_(has(k) and t.dtype == torch.float64) for k, t in enumerate(inputs)]
        try:
            with torch.set_grad_enabled(differentiable):
                torch.manual_seed(0)
                return leaves, batch(*leaves)
        except RuntimeError as e:
            if has is choices[-1] or not any(text in str(e) for text in ("is not differentiable with respect to", "derivative for")):
                raise


def prepared(op, dtype, samples, path):
    """What PyTorch makes of some samples: the program at `path`, inputs by name, outputs and gradients sample by sample."""
    batch = Batch(op, samples)
    inputs = tuple(batch.tensors)
    if any(t.dtype not in STORED or t.layout != torch.strided for t in inputs):
        raise TypeError("an input of a dtype or layout that no archive of arrays holds")
    differentiable = dtype == torch.float64 and op.supports_autograd
    leaves, outputs = differentiated(batch, inputs, differentiable)
    program = torch.export.export(batch, inputs, strict=False)
    torch.export.save(program, path)
    seeded = lambda n: torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    gradients = []
    for out in outputs:
        floats = [t for t in out if t.is_floating_point()]
        loss = sum((t**2).mean() for t in floats)
        wanted = [(n, t) for n, t in zip(names, leaves) if t.requires_grad]
        if not any(t.requires_grad for t in floats) or not torch.isfinite(loss):
            gradients.append(None)
            continue
        found = torch.autograd.grad(loss, [t for _, t in wanted], allow_unused=True, retain_graph=True)
        gradients.append({n: plain(g) for (n, _), g in zip(wanted, found) if g is not None})
    return {
        "random": any(seeded(n) for n in program.graph.nodes if n.op == "call_function"),
        "inputs": {n: plain(t).numpy() for n, t in zip(names, inputs)},
        "outputs": [[plain(t) for t in out] for out in outputs],
        "gradients": gradients,
    }


class Run:
    """One op and dtype: samples to statuses. `folder` holds what PyTorch made, `scratch` what firebrand wrote."""

    def __init__(self, firebrand, folder, scratch, op, dtype):
        self.firebrand, self.folder, self.scratch, self.op, self.dtype = firebrand, folder, scratch, op, dtype
        self.status, self.reasons = collections.Counter(), collections.Counter()

    def say(self, status, reason="", n=1):
        self.status[status] += n
        if reason:
            self.reasons[f"{status}: {reason}"] += n

    def prepare(self, samples, at):
        stem = self.folder / f"{name_of(self.op)}-{self.dtype}-{at}-{at + len(samples)}".replace("/", "_")
        path, kept = pathlib.Path(f"{stem}.pt2"), pathlib.Path(f"{stem}.pt")
        if not kept.exists():
            try:
                made = prepared(self.op, self.dtype, samples, path)
            except Exception as e:
                made = {"error": f"{type(e).__name__}: {next(iter(str(e).strip().splitlines()), '')[:160]}"}
            part = pathlib.Path(f"{stem}.{os.getpid()}.part")
            torch.save(made, part)
            part.rename(kept)
        return path, torch.load(kept, weights_only=False)

    def compare(self, path, made):
        """For every sample what is different, or None. `Refused` if the program is."""
        given, out, grads = self.scratch / "in.npz", self.scratch / "out.npz", self.scratch / "grads.npz"
        np.savez(given, **made["inputs"])
        run(self.firebrand, "run", path, "--inputs", given, "-o", out)
        found, at, said = np.load(out), 0, []
        for outputs in made["outputs"]:
            arrays = [found[f"out_{at + k}"] for k in range(len(outputs))]
            at += len(outputs)
            if made["random"] or name_of(self.op) in OPEN:
                wrong = [f"expected shape {tuple(t.shape)}, found {a.shape}" for a, t in zip(arrays, outputs) if a.shape != tuple(t.shape)]
            else:
                wrong = [d for a, t in zip(arrays, outputs) if (d := difference(a, t))]
            said.append(f"value {wrong[0]}" if wrong else None)
        flows = lambda sample: sample is not None and any(g.any() for g in sample.values())
        if made["random"] or not any(map(flows, made["gradients"])):
            return said
        run(self.firebrand, "grad", path, "--inputs", given, "--loss", "mean_square", "--wrt-inputs", "-o", grads)
        found = np.load(grads)
        for k, sample in enumerate(made["gradients"]):
            if sample is None or said[k]:
                continue
            # Results of less precision carry gradients of theirs.
            limit = max(TOLERANCE[t.dtype] for t in made["outputs"][k] if t.is_floating_point())
            for n, g in sample.items():
                if not torch.isfinite(g).all():
                    continue
                array = found[f"input:{n}"] if f"input:{n}" in found else np.zeros(g.shape)
                scale = max(1.0, g.abs().max().item()) if g.numel() else 1.0
                if d := difference(array / scale, g / scale, limit):
                    said[k] = f"gradient {d}"
        return said

    def runs_in_pytorch(self, path, made):
        """Whether PyTorch runs the program that it exported."""
        try:
            torch.export.load(path).module()(*(torch.from_numpy(a) for a in made["inputs"].values()))
        except Exception:
            return False
        return True

    def settle(self, samples, at):
        """Halves what is refused until single samples are left."""
        path, made = self.prepare(samples, at)
        status, reason = "not exportable", made.get("error")
        if not reason:
            try:
                for wrong in self.compare(path, made):
                    self.say("different", wrong) if wrong else self.say("equal")
                return
            except Refused as e:
                status, reason = "refused", str(e)
        if len(samples) == 1 and status == "refused" and not self.runs_in_pytorch(path, made):
            status, reason = "not exportable", "PyTorch refuses its own program"
        if len(samples) > 1:
            half = len(samples) // 2
            self.settle(samples[:half], at)
            self.settle(samples[half:], at + half)
        else:
            self.say(status, reason)


def one(firebrand, op, dtypes, programs):
    """The result of one op, as plain data."""
    result = {"op": name_of(op), "dtypes": {}}
    for dtype in dtypes:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            r = Run(firebrand, programs or pathlib.Path(scratch), pathlib.Path(scratch), op, dtype)
            try:
                torch.manual_seed(0)
                random.seed(0)
                np.random.seed(0)
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
            except Exception as e:
                r.say("not exportable", f"samples: {str(e)[:100]}")
                samples = []
            for k in range(0, len(samples), SIZE):
                r.settle(samples[k : k + SIZE], k)
            if dtype == torch.float32:
                for status, reason in refusals.judge(firebrand, op, pathlib.Path(scratch), run, Refused):
                    r.say(status, reason)
            result["dtypes"][str(dtype).removeprefix("torch.")] = {"status": dict(r.status), "reasons": dict(r.reasons)}
    return result


def one_at(firebrand, k, dtypes, programs):
    """As `one`, for another process: entries of the database cannot be sent there, their places can."""
    torch.set_num_threads(1)
    return one(firebrand, op_db[k], dtypes, programs)


def summary(results, known):
    """The committed table: totals, and every op that is not equal throughout."""
    totals, lines, unexplained = collections.Counter(), [], []
    for r in sorted(results, key=lambda r: r["op"]):
        here, reasons = collections.Counter(), collections.Counter()
        for d in r["dtypes"].values():
            here.update(d["status"])
            reasons.update(d["reasons"])
        totals.update(here)
        if set(here) <= {"equal", "refusal", "no program"}:
            continue
        counts = ", ".join(f"{n} {s}" for s, n in sorted(here.items()))
        seen = "; ".join(reason for reason, _ in reasons.most_common(3))
        why = known.get(r["op"], "")
        if not why and set(here) & {"refused", "different", "accepted"}:
            unexplained.append(r["op"])
        lines.append(f"| `{r['op']}` | {counts} | {seen} | {why} |".replace("\n", " "))
    judged = totals["equal"] + totals["refused"] + totals["different"]
    share = 100 * totals["equal"] / max(judged, 1)
    rows = {
        "equal": "equal",
        "refused": "refused here",
        "different": "different",
        "not exportable": "PyTorch cannot run or export the sample",
        "refusal": "inputs that PyTorch refuses, refused here too",
        "accepted": "inputs that PyTorch refuses, accepted here",
        "no program": "inputs that PyTorch refuses before an op is called",
    }
    head = [
        "# PyTorch's op database on firebrand",
        "",
        "Written by `cargo xtask conformance opinfo`: every sample of torch 2.15's `op_db`, exported, saved as `.pt2` and run; see the head of `golden/conformance_opinfo.py`.",
        "",
        "| | samples |",
        "|---|---|",
        *(f"| {text} | {totals[status]} |" for status, text in rows.items()),
        "",
        f"{share:.2f} % of the samples that PyTorch can export are equal, refusals counted as failures; {len(results)} of {len(op_db)} ops.",
        "",
        "| op | samples | seen | why |",
        "|---|---|---|---|",
    ]
    return "\n".join(head + lines) + "\n", share, unexplained


def main():
    p = argparse.ArgumentParser()
    p.add_argument("firebrand")
    p.add_argument("--only", nargs="*")
    p.add_argument("--dtypes", nargs="*", default=[str(d).removeprefix("torch.") for d in DTYPES])
    p.add_argument("--summary")
    p.add_argument("--json")
    p.add_argument("--programs")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--resume", action="store_true")
    a = p.parse_args()
    ops = [op for op in op_db if not a.only or op.name in a.only or name_of(op) in a.only]
    dtypes = [getattr(torch, d) for d in a.dtypes]
    programs = pathlib.Path(a.programs) if a.programs else None
    if programs:
        programs.mkdir(parents=True, exist_ok=True)
    results = []
    if a.resume and a.json and pathlib.Path(a.json).exists():
        results = json.loads(pathlib.Path(a.json).read_text())
        done = {r["op"] for r in results}
        ops = [op for op in ops if name_of(op) not in done]
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        places = [k for k, op in enumerate(op_db) if any(op is wanted for wanted in ops)]
        n = len(ops)
        several = lambda: pool.map(one_at, [a.firebrand] * n, places, [dtypes] * n, [programs] * n)
        for r in several() if a.jobs > 1 else (one(a.firebrand, op, dtypes, programs) for op in ops):
            results.append(r)
            bad = {d: v for d, v in r["dtypes"].items() if set(v["status"]) - {"equal", "refusal", "no program"}}
            print(f"{r['op']:40}", json.dumps(bad) if bad else "equal", flush=True)
            if a.json:
                pathlib.Path(a.json).write_text(json.dumps(results, indent=1))
    text, share, unexplained = summary(results, json.loads(DIFFERENCES.read_text()))
    if a.summary:
        path = pathlib.Path(a.summary)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print("\n".join(text.splitlines()[4:16]))
    if unexplained:
        print("without an explanation in opinfo_differences.json:", *unexplained)
    return 1 if unexplained or share < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
