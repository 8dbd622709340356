"""Runs every entry of PyTorch's own op database through export, `.pt2` and firebrand, and compares.

    python golden/conformance_opinfo.py FIREBRAND [--only NAME ...] [--dtypes NAME ...] [--samples N] [--summary FILE] [--jobs N]

Run by `cargo xtask conformance opinfo`. Every sample of every op, for float64, float32, complex128, int64 and bool where
the op takes them: values of all, gradients of inputs for float64. Samples of one op and dtype become one program, whose
outputs are those of all samples; where that program is refused or differs, it is halved until the samples are found.
A sample that PyTorch itself cannot run or export counts as `not exportable`. Inputs that PyTorch refuses have no program,
so they are not here; the op table has its own.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
DTYPES = [torch.float64, torch.float32, torch.complex128, torch.int64, torch.bool]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.complex128: 1e-9, torch.complex64: 2e-4}
STORED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)
# Results that PyTorch leaves open: memory that nobody wrote, or random numbers.
OPEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Batch(torch.nn.Module):
    """Several samples of one op as one module. Tensors are inputs, everything else is part of the program."""

    def __init__(self, op, samples):
        super().__init__()
        self.op, self.specs, self.rest, self.tensors = op, [], [], []
        for s in samples:
            leaves, spec = pytree.tree_flatten((s.input, tuple(s.args), dict(s.kwargs)))
            is_tensor = [isinstance(x, torch.Tensor) for x in leaves]
            self.specs.append((spec, is_tensor))
            self.rest.append([None if t else x for x, t in zip(leaves, is_tensor)])
            self.tensors += [x.detach() for x, t in zip(leaves, is_tensor) if t]

    def forward(self, *tensors):
        tensors, results = list(tensors), []
        for (spec, is_tensor), rest in zip(self.specs, self.rest):
            # A copy: an op may write its input.
            leaves = [tensors.pop(0).clone() if t else x for x, t in zip(rest, is_tensor)]
            input, args, kwargs = pytree.tree_unflatten(leaves, spec)
            out = [x for x in pytree.tree_leaves(self.op(input, *args, **kwargs)) if isinstance(x, torch.Tensor)]
            results.append(out)
        return results


class Refused(Exception):
    pass


def run(firebrand, *arguments):
    done = subprocess.run([firebrand, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Refused(done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else f"exit {done.returncode}")


def close(found, expected, limit=None):
    found = np.asarray(found)
    if tuple(found.shape) != tuple(expected.shape) or str(found.dtype) != str(expected.dtype).removeprefix("torch."):
        return f"expected {expected.dtype} {tuple(expected.shape)}, found {found.dtype} {tuple(found.shape)}"
    a, b = torch.from_numpy(found), expected
    if b.dtype in TOLERANCE:
        limit = limit or TOLERANCE[b.dtype]
        if not torch.allclose(a, b, rtol=limit, atol=limit, equal_nan=True):
            return f"differs by {(a - b).abs().nan_to_num().max().item():.2e}"
        return None
    return None if torch.equal(a, b) else "differs"


def plain(t):
    return t.detach().resolve_conj().resolve_neg().contiguous()


class Run:
    """One op and dtype: samples to statuses."""

    def __init__(self, firebrand, folder, op, dtype):
        self.firebrand, self.folder, self.op, self.dtype = firebrand, folder, op, dtype
        self.status, self.reasons, self.count = collections.Counter(), collections.Counter(), 0

    def say(self, status, reason="", n=1):
        self.status[status] += n
        if reason:
            self.reasons[f"{status}: {reason}"] += n

    def compare(self, samples):
        """Fails with `Refused` or an `AssertionError` for a batch; says what became of it otherwise."""
        batch = Batch(self.op, samples)
        inputs = tuple(batch.tensors)
        if any(t.dtype not in STORED or t.layout != torch.strided for t in inputs):
            raise TypeError("an input of a dtype or layout that no archive of arrays holds")
        differentiable = self.dtype == torch.float64 and self.op.supports_autograd
        leaves = [t.clone().requires_grad_(differentiable and t.dtype == torch.float64) for t in inputs]
        with torch.set_grad_enabled(differentiable):
            torch.manual_seed(0)
            expected = batch(*leaves)
        program = torch.export.export(batch, inputs, strict=False)
        self.count += 1
        path = self.folder / f"p{self.count}.pt2"
        torch.export.save(program, path)
        random = any(
            torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in program.graph.nodes if n.op == "call_function"
        )
        names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        np.savez(self.folder / "in.npz", **{n: plain(t).numpy() for n, t in zip(names, inputs)})
        run(self.firebrand, "run", path, "--inputs", self.folder / "in.npz", "-o", self.folder / "out.npz")
        found = np.load(self.folder / "out.npz")
        # Names of outputs in the order of the program; the same tensor twice has one name.
        order = [s.arg.name for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
        flat = [t for out in expected for t in out]
        files = list(found.files)
        assert len(order) == len(flat) or len(files) == len(flat), f"expected {len(flat)} outputs, found {len(files)}"
        for k, t in enumerate(flat):
            array = found[files[k]] if len(files) == len(flat) else found[order[k]]
            if random or name_of(self.op) in OPEN:
                assert tuple(array.shape) == tuple(t.shape), f"expected shape {tuple(t.shape)}, found {array.shape}"
            else:
                difference = close(array, plain(t))
                assert difference is None, f"value {difference}"
        if not differentiable or random:
            return
        floats = [t for t in flat if t.is_floating_point() and t.requires_grad]
        if not floats:
            return
        loss = sum((t**2).mean() for t in flat if t.is_floating_point())
        if not torch.isfinite(loss):
            return
        wanted = [(n, t) for n, t in zip(names, leaves) if t.requires_grad]
        grads = torch.autograd.grad(loss, [t for _, t in wanted], allow_unused=True)
        if not any(g is not None for g in grads):
            return
        run(self.firebrand, "grad", path, "--inputs", self.folder / "in.npz", "--loss", "mean_square", "--wrt-inputs", "-o", self.folder / "grads.npz")
        found = np.load(self.folder / "grads.npz")
        for (n, t), g in zip(wanted, grads):
            if g is None or not torch.isfinite(g).all():
                continue
            g = plain(g)
            array = found[f"input:{n}"] if f"input:{n}" in found else np.zeros(g.shape)
            scale = max(1.0, g.abs().max().item()) if g.numel() else 1.0
            # Results of less precision carry gradients of theirs.
            limit = TOLERANCE[torch.float64 if all(x.dtype == torch.float64 for x in floats) else torch.float32]
            difference = close(array / scale, g / scale, limit)
            assert difference is None, f"gradient {difference}"

    def settle(self, samples):
        """Halves what does not agree until single samples are left."""
        try:
            self.compare(samples)
        except Exception as e:
            if len(samples) > 1:
                half = len(samples) // 2
                self.settle(samples[:half])
                self.settle(samples[half:])
                return
            text = next(iter(str(e).strip().splitlines()), "")[:160]
            if isinstance(e, Refused):
                self.say("refused", text)
            elif isinstance(e, AssertionError):
                self.say("different", text)
            else:
                self.say("not exportable", f"{type(e).__name__}: {text}")
        else:
            self.say("equal", n=len(samples))


def one(firebrand, op, limit, dtypes):
    """The result of one op, as plain data."""
    result = {"op": name_of(op), "dtypes": {}}
    for dtype in dtypes:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            r = Run(firebrand, pathlib.Path(folder), op, dtype)
            try:
                torch.manual_seed(0)
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))[:limit]
            except Exception as e:
                r.say("not exportable", f"samples: {str(e)[:100]}")
                samples = []
            for k in range(0, len(samples), 32):
                r.settle(samples[k : k + 32])
            result["dtypes"][str(dtype).removeprefix("torch.")] = {"status": dict(r.status), "reasons": dict(r.reasons)}
    return result


def summary(results):
    """The committed table: totals, and every op that is not equal throughout."""
    totals = collections.Counter()
    lines = []
    for r in sorted(results, key=lambda r: r["op"]):
        here, reasons = collections.Counter(), collections.Counter()
        for d in r["dtypes"].values():
            here.update(d["status"])
            reasons.update(d["reasons"])
        totals.update(here)
        if set(here) - {"equal"}:
            counts = ", ".join(f"{n} {s}" for s, n in sorted(here.items()))
            why = "; ".join(reason for reason, _ in reasons.most_common(3)).replace("|", "\\|")
            lines.append(f"| `{r['op']}` | {counts} | {why} |")
    judged = totals["equal"] + totals["refused"] + totals["different"]
    share = 100 * totals["equal"] / max(judged, 1)
    head = [
        "# PyTorch's op database on firebrand",
        "",
        "Written by `cargo xtask conformance opinfo`: every sample of torch 2.15's `op_db`, exported, saved as `.pt2` and run; see the head of `golden/conformance_opinfo.py`.",
        "",
        "| | samples |",
        "|---|---|",
        *(f"| {status} | {totals[status]} |" for status in ("equal", "refused", "different", "not exportable")),
        "",
        f"{share:.2f} % of the samples that PyTorch can export are equal, refusals counted as failures; {len(results)} ops.",
        "",
        "| op | samples | reasons |",
        "|---|---|---|",
    ]
    return "\n".join(head + lines) + "\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("firebrand")
    p.add_argument("--only", nargs="*")
    p.add_argument("--dtypes", nargs="*", default=[str(d).removeprefix("torch.") for d in DTYPES])
    p.add_argument("--samples", type=int, default=10**6)
    p.add_argument("--summary")
    p.add_argument("--json")
    p.add_argument("--jobs", type=int, default=1)
    a = p.parse_args()
    ops = [op for op in op_db if not a.only or op.name in a.only or name_of(op) in a.only]
    dtypes = [getattr(torch, d) for d in a.dtypes]
    results = []
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        n = len(ops)
        several = lambda: pool.map(one, [a.firebrand] * n, ops, [a.samples] * n, [dtypes] * n)
        for r in several() if a.jobs > 1 else (one(a.firebrand, op, a.samples, dtypes) for op in ops):
            results.append(r)
            bad = {d: v for d, v in r["dtypes"].items() if set(v["status"]) - {"equal"}}
            print(f"{r['op']:40}", json.dumps(bad) if bad else "equal", flush=True)
            if a.json:
                pathlib.Path(a.json).write_text(json.dumps(results, indent=1))
    text = summary(results)
    if a.summary:
        path = pathlib.Path(a.summary)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print("\n".join(text.splitlines()[:12]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
