"""Rows of the op table with values drawn anew, at larger sizes where the op allows it."""

import json
import math
import pathlib
import zlib

import numpy as np
import torch

TABLE = pathlib.Path(__file__).parents[1] / "opinfo"
# Entries of the largest tensor of an enlarged row, about; more than enough for vectors and their remainders.
ENTRIES = 3000
MOST = 1 << 17
# Their arguments lean on each other: integers that PyTorch does not check and we do, results beside what they are computed from.
KEPT = ("conv_tbc", "ctc_loss", "embedding_bag", "glu_backward_jvp", "gru.data", "lstm.data", "max_pool", "rnn_relu.data", "rnn_tanh.data", "segment_reduce", "unpool")
# Large random matrices are not what they are for.
MATRICES = ("cholesky", "linalg_", "nuclear_norm")


def leans(row):
    """Whether the row is kept at its sizes and near its values: internal ops and gradients take integers on trust, and write where they say."""
    op = row["op"].removeprefix("aten::")
    given = [*row["args"], *row["kwargs"].values()]
    integers = any(a and ("ints" in a or a.get("dtype") in ("i64", "i32")) for a in given)
    return any(word in op for word in KEPT + MATRICES) or (integers and (op.startswith("_") or "backward" in op))


def tensors(row):
    """The tensors of a row, as its files hold them, in the order of arguments."""
    for a in [*row["args"], *row["kwargs"].values()]:
        if a is not None and "dtype" in a:
            yield a
        elif a is not None and "tensors" in a:
            yield from (t for t in a["tensors"] if t is not None)


def compared(row):
    """Rows of real floats, each sample once."""
    if row["op"].startswith("aten::_cast_"):
        return False  # the dtype of the result is fixed, so there is no truth in f64
    if row.get("error") or set(row.get("tags", ())) & {"dtype", "promote", "noncontiguous", "random"}:
        return False
    kinds = {t["dtype"] for t in tensors(row)}
    results = [o for o in row["out"] if o is not None and "dtype" in o]
    return bool(kinds & {"f32", "f64"}) and not any(k.startswith("c") for k in kinds) and any(o["dtype"] in ("f32", "f64") for o in results)


def single(a):
    """An argument with f64 made f32, and tensors without elements or steps."""
    if a is None:
        return None
    if "dtype" in a:
        made = {k: v for k, v in a.items() if k not in ("data", "strides")}
        return made | {"dtype": "f32"} if a["dtype"] == "f64" else made
    if "tensors" in a:
        return {"tensors": [single(t) for t in a["tensors"]]}
    return {"dtype_arg": "f32"} if a == {"dtype_arg": "f64"} else a


class Case:
    """One call: its row without elements, and how elements are drawn."""

    def __init__(self, name, row, listed, pointwise):
        self.name, self.row, self.listed, self.pointwise = name, row, listed, pointwise
        self.valued = None  # results that have one right value; all if None
        self.keep = False  # values near the listed ones, for matrices of special kinds and ordered indices
        family_op, _, overload = row["op"].removeprefix("aten::").partition(".")
        self.op = getattr(getattr(torch.ops.aten, family_op), overload)

    def draw(self, seed):
        """Arrays for the tensors of the row, in order."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return [self.elements(rng, t, o) for t, o in zip(tensors(self.row), self.listed)]

    def elements(self, rng, t, listed):
        n = math.prod(t["shape"])
        if "draw" in listed:
            drawn = listed["draw"](rng, tuple(t["shape"])).reshape(-1)
            return drawn.astype(np.float32).astype(np.float64) if t["dtype"] == "f32" else drawn.astype(np.int64)
        values = np.array([float(v) for v in listed["data"]])
        if t["dtype"] != "f32":
            kind = np.float64 if t["dtype"] in ("f16", "bf16", "f64") else np.int64
            if self.keep and n == values.size or not values.size:
                return np.resize(values, n).astype(kind)
            return rng.choice(values, n).astype(kind)
        if not values.size or not np.isfinite(values).all():
            return np.resize(values, n).astype(np.float32).astype(np.float64)
        if self.keep and n == values.size:
            drawn = values * (1 + 0.1 * rng.uniform(-1, 1, n))
        elif values.size == 1:
            drawn = values * (1 + 0.2 * rng.uniform(-1, 1, n))
        else:
            # Between neighbours among the listed values, so that the domain stays; no value twice, so that orders are one.
            drawn = np.interp(rng.permutation(n) + rng.uniform(0.1, 0.9, n), np.linspace(0, n, values.size), np.sort(values))
        return drawn.astype(np.float32).astype(np.float64)

    def torch(self, arrays, wide, seeds):
        """Results and gradients in f64 (`wide`) or f32. `seeds` makes the cotangent of a result, by its number."""
        from check_opinfo import DTYPES, flat, own, value

        arrays, leaves = iter(arrays), []

        def tensor(t):
            kind = torch.float64 if wide and t["dtype"] == "f32" else DTYPES[t["dtype"]]
            made = torch.tensor(next(arrays)).to(kind).reshape(t["shape"])
            if t.get("grad") and self.row.get("seeds"):
                leaves.append(made.requires_grad_())
            return made

        def argument(a):
            if a is None:
                return None
            if "dtype" in a:
                return tensor(a)
            if "tensors" in a:
                return [None if t is None else tensor(t) for t in a["tensors"]]
            return torch.float64 if wide and a == {"dtype_arg": "f32"} else value(a)

        args = [argument(a) for a in self.row["args"]]
        kwargs = {k: argument(a) for k, a in self.row["kwargs"].items()}
        args, kwargs = own(self.op, args, kwargs)
        outs = flat(self.op(*args, **kwargs))
        found = [o.detach().double().numpy() if isinstance(o, torch.Tensor) and o.dtype == (torch.float64 if wide else torch.float32) else None for o in outs]
        grads = []
        if leaves:
            wanted = [(i, o) for i, o in enumerate(outs) if isinstance(o, torch.Tensor) and o.requires_grad and i in self.seeded()]
            cotangents = [torch.tensor(seeds(i, tuple(o.shape))).to(o.dtype) for i, o in wanted]
            grads = torch.autograd.grad([o for _, o in wanted], leaves, cotangents, allow_unused=True)
            grads = [None if g is None else g.detach().double().numpy() for g in grads]
        return found, grads

    def seeded(self):
        """The results that have a cotangent. More results than the row lists are more parts of the last one."""
        given = [s is not None for s in self.row.get("seeds", ())]
        return {i for i in range(1000) if given and given[min(i, len(given) - 1)]}

    def seeds(self, seed):
        def of(i, shape):
            rng = np.random.default_rng([seed, i, zlib.crc32(self.name.encode())])
            return rng.standard_normal(shape).astype(np.float32).astype(np.float64)

        return of


def enlarged(row, ints):
    """The row with every size above one multiplied; with `ints`, lists of integers that name sizes too."""
    dims = max((len(t["shape"]) for t in tensors(row)), default=0)
    numel = max((math.prod(t["shape"]) for t in tensors(row)), default=0)
    if dims == 0 or numel == 0:
        return None
    factor = int((ENTRIES / numel) ** (1 / dims))
    if factor < 2:
        return None
    sizes = {s for t in tensors(row) for s in t["shape"] if s > 1}
    grow = lambda t: t | {"shape": [s * factor if s > 1 else s for s in t["shape"]]}

    def argument(a):
        if a is None:
            return None
        if "dtype" in a:
            return grow(a)
        if "tensors" in a:
            return {"tensors": [None if t is None else grow(t) for t in a["tensors"]]}
        if ints and "ints" in a:
            return {"ints": [i * factor if i in sizes else i for i in a["ints"]]}
        return a

    return row | {"args": [argument(a) for a in row["args"]], "kwargs": {k: argument(a) for k, a in row["kwargs"].items()}}


def works(case):
    """Whether PyTorch takes the case, at a sensible cost."""
    try:
        arrays = case.draw(0)
        found, _ = case.torch(arrays, True, case.seeds(0))
        if sum(f.size for f in found if f is not None) > MOST:
            return False
        finite = [np.isfinite(f).mean() for f in found if f is not None and f.size]
        case.torch(arrays, False, case.seeds(0))
        return not finite or min(finite) > 0.5
    except Exception:
        return False


def cases(wanted=()):
    """A case for each row that is compared; `None` in place of a row that cannot be drawn anew."""
    for path in sorted(TABLE.glob("*.json")):
        seen = {}
        for row in json.loads(path.read_text())["rows"]:
            number = seen[row["op"]] = seen.get(row["op"], -1) + 1
            if not compared(row) or (wanted and not any(w in row["op"] for w in wanted)):
                continue
            listed = list(tensors(row))
            base = {k: row[k] for k in ("op", "seeds") if k in row}
            base["args"] = [single(a) for a in row["args"]]
            base["kwargs"] = {k: single(a) for k, a in row["kwargs"].items()}
            name = f"{path.stem} {row['op'].removeprefix('aten::')} {number}"
            case = None
            fixed = path.stem == "linalg" or leans(row)
            tries = [(base, True), (base, False)] if fixed else [(enlarged(base, False), False), (enlarged(base, True), False), (base, False), (base, True)]
            for tried, keep in tries:
                if tried is None:
                    continue
                made = Case(name, tried, listed, False)
                made.keep = keep
                made.valued = {k for k, o in enumerate(row["out"]) if o is not None and "data" in o}
                made.pointwise = torch.Tag.pointwise in made.op.tags
                if works(made):
                    case = made
                    break
            yield name, case
