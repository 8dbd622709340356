"""The machinery of the op table: sample values, their JSON form, and the runner.

A family file declares samples; `Table` runs each one on PyTorch and keeps a row. Sample tensors are *descriptions* (`T`, `I`, `B`, `X`) that become
values only when a row runs, from a generator seeded by the op's name and the sample's number: adding a sample never changes the others.
This file knows nothing of particular operators.
"""

import itertools
import json
import math
import warnings
import zlib

import numpy as np
import torch
from torch.autograd.gradcheck import GradcheckError

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

f64, f32, f16, bf16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
c128, c64 = torch.complex128, torch.complex64
i64, i32, i16, i8, u8, b1 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
NAMES = {f64: "f64", f32: "f32", f16: "f16", bf16: "bf16", i64: "i64", i32: "i32", i16: "i16", i8: "i8", u8: "u8", b1: "bool", c128: "c128", c64: "c64"}
MATRIX = [b1, u8, i8, i16, i32, i64, f16, bf16, f32]
FLOATS = [f16, bf16, f32]


# ---------------------------------------------------------------- sample values


class T:
    """A float tensor of odd multiples of 1/128 in (lo, hi), all different where they can be: never on a kink at 0, 1/2 or an integer.

    The n-th f64 tensor of a row is shifted by n/1024, so that no two elements of a row tie or differ by a whole number.
    """

    def __init__(self, *shape, lo=-2.0, hi=2.0, dt=f64, lay=None, grad=True):
        self.shape, self.lo, self.hi, self.dt, self.lay, self.grad = shape, lo, hi, dt, lay, grad

    def but(self, **changes):
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other

    def numbers(self, n, rng):
        first, last = math.ceil((self.lo * 128 - 1) / 2), math.floor((self.hi * 128 - 1) / 2)
        pool = np.arange(first, last + 1)
        picked = rng.choice(pool, n, replace=n > len(pool))
        return (2 * picked + 1) / 128

    def make(self, rng, nth=0):
        v = torch.tensor(self.numbers(math.prod(self.shape), rng), dtype=f64).reshape(self.shape)
        if self.dt == f64:
            v += nth % 8 / 1024
        return laid_out(cast(v, self.dt), self.lay)


class Z(T):
    """A complex tensor: parts as `T` makes them, on no axis and in no dtype matrix but that of complex types."""

    def __init__(self, *shape, lo=-2.0, hi=2.0, dt=c128, lay=None, grad=True):
        super().__init__(*shape, lo=lo, hi=hi, dt=dt, lay=lay, grad=grad)

    def make(self, rng, nth=0):
        n = math.prod(self.shape)
        parts = torch.tensor(np.stack([self.numbers(n, rng), self.numbers(n, rng)], -1), dtype=f64)
        parts += nth % 8 / 1024
        return laid_out(torch.complex(parts[:, 0], parts[:, 1]).reshape(self.shape).to(self.dt), self.lay)


class I(T):
    """An integer tensor in [lo, hi)."""

    def __init__(self, *shape, lo=0, hi=10, dt=i64, lay=None):
        super().__init__(*shape, lo=lo, hi=hi, dt=dt, lay=lay, grad=False)

    def make(self, rng, nth=0):
        return laid_out(torch.tensor(rng.integers(self.lo, self.hi, self.shape)).to(self.dt), self.lay)


class B(T):
    """A boolean tensor."""

    def __init__(self, *shape, lay=None):
        super().__init__(*shape, dt=b1, lay=lay, grad=False)

    def make(self, rng, nth=0):
        return laid_out(torch.tensor(rng.integers(0, 2, self.shape)).to(b1), self.lay)


class X(T):
    """A tensor written out. Without a dtype, Python floats are f64 and take part in the dtype matrix."""

    def __init__(self, data, dt=None, lay=None, grad=True):
        self.data = data
        t = torch.tensor(data, dtype=dt) if dt else torch.tensor(data)
        dt = dt or (f64 if t.dtype == f32 else t.dtype)
        super().__init__(*t.shape, dt=dt, lay=lay, grad=grad and (dt.is_floating_point or dt.is_complex))

    def make(self, rng, nth=0):
        return laid_out(torch.tensor(self.data, dtype=self.dt if self.dt.is_floating_point or self.dt.is_complex else None).to(self.dt), self.lay)


def cast(v, dt):
    """`v` (f64) as `dt`; integers come from a wider range than the floats, and unsigned ones from magnitudes."""
    if dt.is_floating_point:
        return v.to(dt)
    if dt == b1:
        return v > 0
    v = torch.sign(v) * torch.ceil(v.abs() * 2)
    return (v.abs() if dt == u8 else v).to(dt)


def laid_out(t, lay):
    """The same values in other memory: `t` last two dims swapped, `rev` all dims reversed, `step` every second place, `exp` first dim of stride 0,
    `exp-1` last dim of stride 0, `cl` channels last."""
    if lay is None or t.dim() == 0:
        return t
    if lay == "t":
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)
    if lay == "rev":
        order = list(range(t.dim()))[::-1]
        return t.permute(order).contiguous().permute(order)
    if lay == "cl":
        return t.contiguous(memory_format=torch.channels_last)
    if lay == "step":
        wide = t.new_zeros((*t.shape, 2))
        wide[..., 0] = t
        return wide[..., 0]
    if lay == "exp":
        return t[:1].clone().expand(t.shape)
    if lay == "exp-1":
        return t[..., :1].clone().expand(t.shape)
    raise ValueError(lay)


class S:
    """A sample: arguments, with tags and switches of its own. `grad=False` keeps gradients out of the row; `outs=n` keeps only the first n
    outputs, where the others are the implementation's own affair."""

    def __init__(self, *args, tags=(), grad=True, outs=None, **kwargs):
        self.args, self.kwargs, self.tags, self.grad, self.outs = args, kwargs, tuple(tags), grad, outs


# ---------------------------------------------------------------- JSON


class Raw(str):
    """Text that is already JSON."""


def dump(o):
    if isinstance(o, Raw):
        return str(o)
    if isinstance(o, dict):
        return "{" + ",".join(json.dumps(k) + ":" + dump(v) for k, v in o.items()) + "}"
    if isinstance(o, (list, tuple)):
        return "[" + ",".join(map(dump, o)) + "]"
    return json.dumps(o)


def number(v, short):
    """A float as JSON text. `short` writes whole numbers without a point."""
    x = float(v)
    if math.isnan(x):
        return '"nan"'
    if math.isinf(x):
        return '"inf"' if x > 0 else '"-inf"'
    text = repr(x) if isinstance(v, float) else str(v)
    if short and text.endswith(".0") and not text.startswith("-0"):
        text = text[:-2]
    return text


def plain_data(t):
    t = t.detach().clone().contiguous().reshape(-1)  # clone: a gradient may be a zero tensor without storage
    if t.is_complex():
        return plain_data(torch.view_as_real(t.resolve_conj()))
    if t.dtype == f64:
        return Raw("[" + ",".join(number(v, True) for v in t.tolist()) + "]")
    if t.dtype.is_floating_point:  # the shortest text that reads back as the same f32; halves are exact in f32
        return Raw("[" + ",".join(number(v, True) for v in t.float().numpy()) + "]")
    return Raw("[" + ",".join(str(int(v)) for v in t.tolist()) + "]")


def enc_tensor(t, grad=False, values=True):
    o = {"dtype": NAMES[t.dtype], "shape": list(t.shape)}
    if values:
        o["data"] = plain_data(t)
    if not t.is_contiguous():
        o["strides"] = list(t.stride())
    if grad:
        o["grad"] = True
    return o


def enc_plain(v, kind):
    """A non-tensor argument; `kind` is the schema's type, which tells a list of no elements from another."""
    if v is None:
        return None
    if isinstance(v, bool):
        return {"bool": v}
    if isinstance(v, int) and "float" in kind and "List" not in kind:
        v = float(v)
    if isinstance(v, int):
        return {"int": v}
    if isinstance(v, float):
        return {"float": Raw(number(v, False))}
    if isinstance(v, complex):
        return {"complex": [Raw(number(v.real, False)), Raw(number(v.imag, False))]}
    if isinstance(v, str):
        return {"str": v}
    if isinstance(v, torch.dtype):
        return {"dtype_arg": NAMES[v]}
    if isinstance(v, torch.memory_format):
        return {"memory_format": str(v).removeprefix("torch.")}
    if isinstance(v, torch.layout):
        return {"layout": str(v).removeprefix("torch.")}
    if isinstance(v, torch.device):
        return {"device": str(v)}
    if isinstance(v, (list, tuple)):
        if "bool" in kind:
            return {"bools": list(v)}
        if "float" in kind or "number" in kind or any(isinstance(x, float) for x in v):
            return {"floats": [Raw(number(float(x), False)) for x in v]}
        return {"ints": list(v)}
    raise TypeError(f"no encoding for {v!r}")


# ---------------------------------------------------------------- running


class Table:
    """The rows of one family."""

    def __init__(self, family, check=True):
        self.family, self.check, self.rows, self.counts, self.problems, self.auto_tags = family, check, [], {}, [], {}

    def op(self, names, *samples, dtypes=MATRIX, nc=True, err=(), tags=(), grad=True):
        """Rows for each op named (`a.b` or `a.default`, separated by spaces).

        The first sample is also run at every dtype of `dtypes` that PyTorch accepts, and with its tensors laid out non-contiguously (`nc`).
        `err` are samples that must be refused.
        """
        for name in names.split():
            for s in samples:
                self.run(name, s, tags, grad)
            if samples:
                first = samples[0]
                if nc:
                    moved = walk(first, lambda t: t.but(lay=("t" if len(t.shape) > 1 else "step")) if t.lay is None and t.shape else t)
                    self.run(name, moved, (*tags, "noncontiguous"), grad, optional=True)
                for dt in dtypes:
                    widest = c128 if dt.is_complex else f64
                    sample = walk(first, lambda t: t.but(dt=dt) if t.dt == widest else t)
                    self.run(name, sample, (*tags, "dtype"), False, optional=True)
            for s in err:
                self.error(name, s)

    def promote(self, names, *samples):
        """Rows for mixed dtypes: results only."""
        for name in names.split():
            for s in samples:
                self.run(name, s, ("promote",), False, optional=True)

    def error(self, name, sample):
        op, schema = find(name)
        args, kwargs = make(sample, self.rng(name, "error"))
        row = {"op": full(schema), **encode_call(schema, args, kwargs, set()), "error": True}
        try:
            op(*args, **kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            self.rows.append(row)
        else:
            self.problems.append(f"{name}: error sample was accepted: {sample.args} {sample.kwargs}")

    def rng(self, name, kind):
        """A generator for the next row of this op and kind; kinds are counted apart so that samples can be added without disturbing other rows."""
        key = f"{name}:{kind}"
        n = self.counts[key] = self.counts.get(key, -1) + 1
        return np.random.default_rng(zlib.crc32(f"{key}:{n}".encode()))

    def run(self, name, sample, tags, grad, optional=False):
        """Runs one sample and keeps its row. An optional one that PyTorch refuses is dropped."""
        op, schema = find(name)
        tags = list(dict.fromkeys([*sample.tags, *tags]))
        rng = self.rng(name, next((k for k in ("noncontiguous", "dtype", "promote") if k in tags), ""))
        try:
            args, kwargs = make(sample, rng)
            before = encode_call(schema, args, kwargs, set())
            copies = cloned(schema, args, kwargs)
            outs = flat_outputs(op(*copies[0], **copies[1]))[: sample.outs if schema.returns else 0]
        except Exception as e:
            if not optional:
                self.problems.append(f"{name}: {type(e).__name__}: {str(e)[:200]} for {describe(sample)}")
            return
        random = "random" in tags
        row = {"op": full(schema), **before, "out": [enc_output(o, not random) for o in outs]}
        inplace = schema.name.endswith("_") and len(schema.returns) > 0  # `self` after the call is the result
        after = encode_call(schema, *copies, set())
        changed = {}
        names = [a.name for a in schema.arguments]
        for key, old, new in [(names[i], before["args"][i], after["args"][i]) for i in range(len(args))] + [
            (k, before["kwargs"][k], after["kwargs"][k]) for k in kwargs
        ]:
            if dump(old) != dump(new) and not (inplace and key == "self"):
                changed[key] = new
        if changed:
            row["after"] = changed
        if grad and sample.grad and not random:
            tags += self.gradients(row, op, schema, sample, args, kwargs, rng)
        if "smooth" in tags:  # PyTorch's own second derivative is wrong: the check still holds
            tags = [x for x in tags if x not in ("smooth", "no_gradgradcheck")]
        if tags:
            row["tags"] = tags
        self.rows.append(row)

    def gradients(self, row, op, schema, sample, args, kwargs, rng):
        """Fills `seeds` and `grads`; returns tags for what does not hold at this sample."""
        leaves, wanted = leaves_of(sample, args, kwargs)
        leaves = [t for t, g in zip(leaves, wanted) if g and t.dtype in (f64, c128)]
        if not leaves:
            return []
        for t in leaves:
            t.requires_grad_()
        try:
            copies = cloned(schema, args, kwargs)
            outs = flat_outputs(op(*copies[0], **copies[1]))[: sample.outs]
        except Exception as e:
            self.problems.append(f"{row['op']}: with grad: {type(e).__name__}: {str(e)[:200]} for {describe(sample)}")
            return []
        live = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
        if not live:
            return []
        tags = []
        seeds = [self.seed(o, rng) if isinstance(o, torch.Tensor) and o.requires_grad else None for o in outs]
        try:
            grads = torch.autograd.grad(live, leaves, [s for s in seeds if s is not None], allow_unused=True)
        except Exception as e:
            if "is not implemented" in str(e):
                return ["no_backward"]
            self.problems.append(f"{row['op']}: backward: {type(e).__name__}: {str(e)[:200]} for {describe(sample)}")
            return []
        if all(g is None for g in grads):
            return []
        row.update(encode_call(schema, args, kwargs, {id(t) for t, g in zip(leaves, grads) if g is not None}))
        row["seeds"] = [enc_output(s, True) for s in seeds]
        row["grads"] = [enc_tensor(g) for g in grads if g is not None]
        if self.check and "no_gradcheck" not in sample.tags:
            used = [t for t, g in zip(leaves, grads) if g is not None]
            tags = self.verify(op, schema, args, kwargs, used, [i for i, x in enumerate(seeds) if x is not None])
            for t in tags:
                self.auto_tags.setdefault(t, []).append(f"{row['op']} {describe(sample)}")
        return tags

    @staticmethod
    def seed(o, rng):
        if o.is_complex():
            pairs = torch.tensor(rng.integers(-8, 9, (*o.shape, 2)) / 8, dtype=f64)
            return torch.complex(pairs[..., 0], pairs[..., 1]).to(o.dtype)
        return torch.tensor(rng.integers(-8, 9, tuple(o.shape)) / 8, dtype=o.dtype).reshape(o.shape)

    @staticmethod
    def verify(op, schema, args, kwargs, leaves, live):
        """Which numeric checks fail on PyTorch itself, or cannot be made there."""

        def f(*new):
            swap = {id(old): t for old, t in zip(leaves, new)}
            a, k = cloned(schema, [substitute(x, swap) for x in args], {key: substitute(x, swap) for key, x in kwargs.items()})
            outs = flat_outputs(op(*a, **k))
            return tuple(outs[i] for i in live)

        check = torch.autograd.gradcheck
        try:
            check(f, leaves, nondet_tol=1e-9)
        except Exception:
            return ["no_gradcheck"]
        tags = []
        try:
            torch.autograd.gradgradcheck(f, leaves, fast_mode=True, nondet_tol=1e-9)
        except GradcheckError:
            tags.append("no_gradgradcheck")
        except Exception:
            tags.append("no_double_backward")
        try:
            check(f, leaves, fast_mode=True, check_forward_ad=True, check_backward_ad=False, nondet_tol=1e-9)
        except Exception:
            tags.append("no_forward_ad")
        return tags


def find(name):
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    return op, op._schema


def full(schema):
    return f"{schema.name}.{schema.overload_name or 'default'}"


def walk(sample, change):
    """The sample with `change` applied to every tensor description."""

    def go(v):
        if isinstance(v, T):
            return change(v)
        if isinstance(v, (list, tuple)):
            return [go(x) for x in v]
        return v

    out = S(*map(go, sample.args), tags=sample.tags, grad=sample.grad, outs=sample.outs, **{k: go(v) for k, v in sample.kwargs.items()})
    return out


def make(sample, rng):
    nth = itertools.count()

    def go(v):
        if isinstance(v, T):
            return v.make(rng, next(nth))
        if isinstance(v, (list, tuple)):
            return [go(x) for x in v]
        return v

    return [go(v) for v in sample.args], {k: go(v) for k, v in sample.kwargs.items()}


def leaves_of(sample, args, kwargs):
    """Tensors and whether each may require grad, in argument order."""
    tensors, wanted = [], []

    def go(d, v):
        if isinstance(d, T):
            tensors.append(v)
            wanted.append(d.grad and (v.is_floating_point() or v.is_complex()))
        elif isinstance(d, (list, tuple)):
            for x, y in zip(d, v):
                go(x, y)

    for d, v in zip(sample.args, args):
        go(d, v)
    for k in sample.kwargs:
        go(sample.kwargs[k], kwargs[k])
    return tensors, wanted


def substitute(v, swap):
    if isinstance(v, torch.Tensor):
        return swap.get(id(v), v)
    if isinstance(v, list):
        return [substitute(x, swap) for x in v]
    return v


MUTATES = {"aten::batch_norm": (3, 4), "aten::native_batch_norm": (3, 4), "aten::instance_norm": (3, 4), "aten::_batch_norm_impl_index": (3, 4)}


def cloned(schema, args, kwargs):
    """The arguments with those the op writes to copied; PyTorch's schema does not say so for the old batch-norm ops."""
    writes = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    for i in MUTATES.get(schema.name, ()):
        writes[i] = True
    byname = {a.name: w for a, w in zip(schema.arguments, writes)}

    def copy(v):
        if isinstance(v, torch.Tensor):
            return v.clone() if 0 in v.stride() else torch.empty_strided(v.size(), v.stride(), dtype=v.dtype).copy_(v)
        if isinstance(v, list):
            return [copy(x) for x in v]
        return v

    a = [copy(v) if w else v for v, w in zip(args, writes)]
    return a, {k: copy(v) if byname[k] else v for k, v in kwargs.items()}


def flat_outputs(out):
    if out is None:
        return [None]
    if isinstance(out, (list, tuple)):
        return [x for o in out for x in flat_outputs(o)]
    return [out]


def enc_output(o, values):
    if o is None:
        return None
    if isinstance(o, torch.Tensor):
        return enc_tensor(o, values=values)
    return enc_plain(o, "")


def encode_call(schema, args, kwargs, grad_ids):
    kinds = {a.name: str(a.type) for a in schema.arguments}
    order = [a.name for a in schema.arguments]

    def enc(v, kind):
        if isinstance(v, torch.Tensor):
            return enc_tensor(v, grad=id(v) in grad_ids)
        if isinstance(v, (list, tuple)) and "Tensor" in kind:
            return {"tensors": [None if x is None else enc_tensor(x, grad=id(x) in grad_ids) for x in v]}
        return enc_plain(v, kind)

    return {"args": [enc(v, kinds[order[i]]) for i, v in enumerate(args)], "kwargs": {k: enc(v, kinds[k]) for k, v in kwargs.items()}}


def describe(sample):
    def go(v):
        if isinstance(v, T):
            return f"{type(v).__name__}{list(v.shape)}{NAMES[v.dt]}" + (f":{v.lay}" if v.lay else "")
        if isinstance(v, (list, tuple)):
            return "[" + ",".join(map(go, v)) + "]"
        return repr(v)

    return ", ".join([*map(go, sample.args), *(f"{k}={go(v)}" for k, v in sample.kwargs.items())])
