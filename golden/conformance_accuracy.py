"""How far f32 results are from f64 truth: ours beside PyTorch's, for the rows of the op table, larger cases and ten models.

    python golden/conformance_accuracy.py EVALUATE FIREBRAND [--only WORD ...] [--all]      run by `cargo xtask conformance accuracy`

`none` for FIREBRAND leaves the models out.

Truth is PyTorch in f64 on the same f32 inputs. Inputs are drawn anew for each row, eight times, within the range of the
values that the table lists, at larger sizes where the op takes them. The error of a result or gradient is the root mean
square over entries and draws, in ulps (see accuracy/measure.py). Ours may be 1.5 times PyTorch's, or two ulps more.
For models it is the geometric mean over parameters of a gradient's relative error, and of that the median over seeds: now
and then an activation at zero falls on the other side in f32, on either part, and moves all gradients. It may be 1.5 times
PyTorch's. `accuracy/exceptions.json` lists what may be worse, with reasons; an entry that nothing needs is an error.
"""

import argparse
import fnmatch
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from accuracy import large, models, rows  # noqa: E402
from accuracy.measure import Error, within  # noqa: E402

warnings.filterwarnings("ignore")
DRAWS = 8
HERE = pathlib.Path(__file__).parent


class Session:
    """Calls collected for one run of our side."""

    def __init__(self, evaluate, folder):
        self.evaluate, self.folder = evaluate, folder
        self.errors, self.refused = {}, {}

    def part(self, case, kind, k, truth, outs):
        pointwise = case.pointwise and (kind == "out" or any(o is not None and o.shape == truth.shape for o in outs))
        return self.errors.setdefault((case.name, f"{kind}{k}"), Error(pointwise))

    def run(self, cases):
        """Runs these cases on both sides."""
        listed, data, expected = [], [], []
        for case in cases:
            for seed in range(DRAWS):
                arrays, seeds = case.draw(seed), case.seeds(seed)
                try:
                    truth, theirs = (case.torch(arrays, wide, seeds) for wide in (True, False))
                except (RuntimeError, IndexError):  # a singular matrix, say: the next draw is another
                    continue
                row = dict(case.row)
                drawn = []
                if "seeds" in row:
                    row["seeds"] = []
                    for i, o in enumerate(truth[0]):
                        wanted = o is not None and i in case.seeded() and i in case.differentiable
                        row["seeds"].append({"dtype": "f32", "shape": list(o.shape)} if wanted else None)
                        drawn += [seeds(i, o.shape)] if wanted else []
                listed.append(row)
                data += [np.ascontiguousarray(a) for a in [*arrays, *drawn]]
                expected.append((case, truth, theirs))
        (self.folder / "rows.json").write_text(json.dumps({"rows": listed}))
        with open(self.folder / "data", "wb") as f:
            for a in data:
                f.write(a.tobytes())
        done = subprocess.run([self.evaluate, *(str(self.folder / n) for n in ("rows.json", "data", "out"))], check=True, capture_output=True, text=True)
        why = dict(line.removeprefix("row ").split(",", 1) for line in done.stderr.splitlines() if line.startswith("row "))
        words = np.fromfile(self.folder / "out", np.int64)
        at = 0
        for n, (case, truth, theirs) in enumerate(expected):
            count, at = words[at], at + 1
            if count < 0:
                self.refused[case.name] = why.get(str(n), "?").strip()
                continue
            ours = []
            for _ in range(count):
                size = words[at]
                ours.append(words[at + 1 : at + 1 + size].view(np.float64))
                at += 1 + size
            outs = len(ours) - len(truth[1])
            for kind, which, found in (("out", 0, ours[:outs]), ("grad", 1, ours[outs:])):
                for k, (t, p, o) in enumerate(zip(truth[which], theirs[which], found)):
                    if kind == "out" and case.valued is not None and k not in case.valued:
                        continue
                    if t is not None and p is not None and t.size and o.size == t.size:
                        self.part(case, kind, min(k, 9), t, truth[0]).add(t, p, o)


def differentiable(case):
    """The results that PyTorch differentiates."""
    arrays, found = case.draw(0), set()
    case.torch(arrays, True, lambda i, shape: (found.add(i), np.zeros(shape))[1])
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("evaluate")
    p.add_argument("firebrand")
    p.add_argument("--only", nargs="*", default=[], help="ops or models whose name contains one of these")
    p.add_argument("--all", action="store_true", help="print every row, not only what exceeds")
    a = p.parse_args()
    torch.set_num_threads(1)
    exceptions = json.loads((HERE / "accuracy/exceptions.json").read_text())
    needed = [False] * len(exceptions)
    failed = []

    def judge(name, part, good, text):
        excused = [k for k, e in enumerate(exceptions) if fnmatch.fnmatchcase(name, e["row"]) and fnmatch.fnmatchcase(part, e.get("part", "*"))]
        if not good:
            for k in excused:
                needed[k] = True
            if not excused:
                failed.append(name)
        if a.all or not good:
            print(f"{'' if good else 'excused ' if excused else 'EXCEEDS '}{name} {part}: {text}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        session = Session(a.evaluate, folder)
        batch, left = [], 0
        for name, case in [*rows.cases(a.only), *large.cases(a.only)]:
            if case is None:
                left += 1
                continue
            case.differentiable = differentiable(case)
            batch.append(case)
            if len(batch) == (4 if name.startswith("large") else 100):
                session.run(batch)
                batch = []
        session.run(batch)
        for (name, part), e in session.errors.items():
            theirs, ours = e.both()
            judge(name, part, within(theirs, ours), f"{ours:.2f} ulp, PyTorch {theirs:.2f}")
        absent = 0
        for name, why in session.refused.items():
            if "no such op" in why or "memory format" in why:
                absent += 1
            else:
                judge(name, "refused", False, why)
        for name in [] if a.firebrand == "none" else models.MODELS:
            if a.only and not any(w in name for w in a.only):
                continue
            found = models.errors(name, a.firebrand, folder)
            theirs, ours = np.median(found, axis=0)
            text = f"{ours:.2e}, PyTorch {theirs:.2e}; the worst of {len(found)} seeds {max(o for _, o in found):.1e}, PyTorch {max(t for t, _ in found):.1e}"
            good = ours <= 1.5 * theirs
            judge(f"model {name}", "gradients", good, text)
            if good and not a.all:
                print(f"model {name}: {text}", flush=True)
    stale = [e["row"] for e, n in zip(exceptions, needed) if not n and not a.only]
    for row in stale:
        print(f"STALE exception: {row}")
    print(f"{len(session.errors)} results of {len({n for n, _ in session.errors})} rows and {len(models.MODELS)} models; {left} rows cannot be drawn anew, {absent} have no counterpart here; {len(failed)} exceed, {sum(needed)} exceptions")
    return 1 if failed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
