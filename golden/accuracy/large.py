"""Calls large enough, or of values far enough from zero, that the way of summing shows."""

import numpy as np
import torch

from .rows import Case


def normal(mean=0.0, std=1.0):
    return lambda rng, shape: mean + std * rng.standard_normal(shape)


def uniform(low, high):
    return lambda rng, shape: rng.uniform(low, high, shape)


def labels(n):
    return lambda rng, shape: rng.integers(0, n, shape)


def well_conditioned(rng, shape):
    """Matrices with diagonals that dominate."""
    return rng.standard_normal(shape) + 2 * shape[-1] ** 0.5 * np.eye(shape[-1])


def symmetric(rng, shape):
    a = rng.standard_normal(shape)
    return a @ np.swapaxes(a, -1, -2) / shape[-1] + np.eye(shape[-1])


class T:
    """A tensor argument."""

    def __init__(self, *shape, draw=normal(), grad=True, dtype="f32"):
        self.json = {"dtype": dtype, "shape": list(shape)} | ({"grad": True} if grad and dtype == "f32" else {})
        self.listed = {"draw": draw}


def fixed(*shape, draw=normal()):
    return T(*shape, draw=draw, grad=False)


def index(*shape, below):
    return T(*shape, draw=labels(below), dtype="i64")


def json(a):
    match a:
        case T():
            return a.json
        case None:
            return None
        case bool():
            return {"bool": a}
        case int():
            return {"int": a}
        case float():
            return {"float": a}
        case str():
            return {"str": a}
        case [T(), *_]:
            return {"tensors": [t.json for t in a]}
        case [bool(), *_]:
            return {"bools": a}
        case _:
            return {"ints": list(a)}


def listed(a):
    return [a.listed] if isinstance(a, T) else [x.listed for x in a] if isinstance(a, list) and a and isinstance(a[0], T) else []


def calls():
    """Name, op, arguments, and named arguments if there are any."""
    for what, draw in {"centred": normal(), "off": normal(100.0), "far": normal(1e4), "positive": uniform(0, 1)}.items():
        for shape, dims in {(200_000,): [0], (64, 3000): [1], (3000, 64): [0], (8, 16, 40, 40): [0, 2, 3]}.items():
            at = f"{what} {list(shape)} over {dims}"
            yield f"sum {at}", "sum.dim_IntList", [T(*shape, draw=draw), dims]
            yield f"mean {at}", "mean.dim", [T(*shape, draw=draw), dims]
            yield f"var {at}", "var.correction", [T(*shape, draw=draw), dims]
            yield f"std {at}", "std.correction", [T(*shape, draw=draw), dims]
            yield f"var_mean {at}", "var_mean.correction", [T(*shape, draw=draw), dims]
            yield f"norm {at}", "linalg_vector_norm.default", [T(*shape, draw=draw), 2, dims]
            yield f"norm 3 {at}", "linalg_vector_norm.default", [T(*shape, draw=draw), 3, dims]
            yield f"norm 1 {at}", "linalg_vector_norm.default", [T(*shape, draw=draw), 1, dims]
            if what != "far":
                yield f"logsumexp {at}", "logsumexp.default", [T(*shape, draw=draw), dims]
        for shape, dim in {(30_000,): 0, (64, 3000): 1, (3000, 64): 0}.items():
            at = f"{what} {list(shape)} along {dim}"
            yield f"cumsum {at}", "cumsum.default", [T(*shape, draw=draw), dim]
            if what != "far":
                yield f"logcumsumexp {at}", "logcumsumexp.default", [T(*shape, draw=draw), dim]
                yield f"softmax {at}", "_softmax.default", [T(*shape, draw=draw), dim, False]
                yield f"log_softmax {at}", "_log_softmax.default", [T(*shape, draw=draw), dim, False]
        for shape in ((32, 1000), (500, 64), (4, 8, 5000)):
            x = lambda: T(*shape, draw=draw)
            n = shape[-1]
            yield f"layer_norm {what} {list(shape)}", "native_layer_norm.default", [x(), [n], T(n), T(n), 1e-5]
            if what != "far":
                yield f"rms_norm {what} {list(shape)}", "_fused_rms_norm.default", [x(), [n], T(n), 1e-5]
        for shape in ((16, 8, 14, 14), (4, 32, 7, 7), (2, 8, 64, 64), (64, 100), (8, 6, 3)):
            c = shape[1]
            statistics = lambda: [fixed(c), fixed(c, draw=uniform(0.5, 2))]
            at = f"{what} {list(shape)}"
            yield f"batch_norm {at}", "native_batch_norm.default", [T(*shape, draw=draw), T(c), T(c), *statistics(), True, 0.1, 1e-5]
            yield f"batch_norm eval {at}", "native_batch_norm.default", [T(*shape, draw=draw), T(c), T(c), *statistics(), False, 0.1, 1e-5]
            if c % 2 == 0 and len(shape) == 4:
                yield f"group_norm {at}", "native_group_norm.default", [T(*shape, draw=draw), T(c), T(c), shape[0], c, shape[2] * shape[3], 2, 1e-5]
                yield f"instance_norm {at}", "instance_norm.default", [T(*shape, draw=draw), T(c), T(c), None, None, True, 0.1, 1e-5, False]
    for n in (1_000, 100_000):
        for reduction in (0, 1, 2):
            at = f"{n} {reduction}"
            yield f"mse_loss {at}", "mse_loss.default", [T(n), T(n), reduction]
            yield f"l1_loss {at}", "l1_loss.default", [T(n), T(n), reduction]
            yield f"smooth_l1_loss {at}", "smooth_l1_loss.default", [T(n), T(n), reduction]
            yield f"huber_loss {at}", "huber_loss.default", [T(n), T(n), reduction]
            yield f"bce {at}", "binary_cross_entropy.default", [T(n, draw=uniform(0.01, 0.99)), fixed(n, draw=uniform(0, 1)), None, reduction]
            yield f"bce logits {at}", "binary_cross_entropy_with_logits.default", [T(n), fixed(n, draw=uniform(0, 1)), None, None, reduction]
            yield f"kl_div {at}", "kl_div.default", [T(n, draw=uniform(-4, -0.1)), fixed(n, draw=uniform(0.1, 1)), reduction]
            yield f"soft_margin {at}", "soft_margin_loss.default", [T(n), fixed(n), reduction]
            yield f"poisson {at}", "poisson_nll_loss.default", [T(n), fixed(n, draw=uniform(0, 5)), True, False, 1e-8, reduction]
    for rows, classes in ((64, 1000), (4096, 10)):
        yield f"cross_entropy {rows} {classes}", "cross_entropy_loss.default", [T(rows, classes), index(rows, below=classes), None, 1]
        yield f"cross_entropy smooth {rows} {classes}", "cross_entropy_loss.default", [T(rows, classes), index(rows, below=classes), None, 1, -100, 0.1]
        yield f"nll_loss {rows} {classes}", "nll_loss_nd.default", [T(rows, classes), index(rows, below=classes), None, 1]
    for m, k, n in ((64, 2000, 64), (7, 30_000, 5), (300, 64, 300)):
        yield f"mm {m} {k} {n}", "mm.default", [T(m, k), T(k, n)]
        yield f"addmm {m} {k} {n}", "addmm.default", [T(n), T(m, k), T(k, n)]
        yield f"linear {m} {k} {n}", "linear.default", [T(m, k), T(n, k), T(n)]
    yield "dot 100000", "dot.default", [T(100_000), T(100_000)]
    yield "mv", "mv.default", [T(50, 20_000), T(20_000)]
    yield "bmm", "bmm.default", [T(8, 32, 500), T(8, 500, 32)]
    for shape, weight, stride, pad, groups in (
        ((8, 16, 28, 28), (16, 16, 3, 3), 1, 1, 1),
        ((8, 16, 28, 28), (32, 16, 3, 3), 2, 1, 1),
        ((8, 32, 28, 28), (32, 1, 3, 3), 1, 1, 32),
        ((8, 32, 14, 14), (64, 32, 1, 1), 1, 0, 1),
        ((2, 3, 64, 64), (16, 3, 7, 7), 2, 3, 1),
        ((4, 16, 400), (8, 16, 5), 1, 2, 1),
        ((2, 4, 10, 12, 14), (6, 4, 3, 3, 3), 1, 1, 1),
    ):
        d = len(shape) - 2
        for what, draw in {"centred": normal(), "off": normal(10.0)}.items():
            yield (
                f"convolution {what} {list(shape)} {list(weight)} {stride}",
                "convolution.default",
                [T(*shape, draw=draw), T(*weight), T(weight[0]), [stride] * d, [pad] * d, [1] * d, False, [0] * d, groups],
            )
    yield "conv_transpose", "convolution.default", [T(4, 16, 14, 14), T(16, 8, 4, 4), T(8), [2, 2], [1, 1], [1, 1], True, [0, 0], 1]
    for length in (64, 1000):
        q = lambda: T(2, 2, length, 32)
        yield f"attention {length}", "scaled_dot_product_attention.default", [q(), q(), q()]
        yield f"attention causal {length}", "scaled_dot_product_attention.default", [q(), q(), q(), None, 0.0, True]
    yield "embedding", "embedding.default", [T(50, 64), index(5000, below=50)]
    yield "index_add", "index_add.default", [T(20, 64), 0, index(5000, below=20), T(5000, 64)]
    yield "scatter_add", "scatter_add.default", [T(20, 64), 0, T(5000, 64, draw=labels(20), dtype="i64"), T(5000, 64)]
    yield "index_put", "index_put.default", [T(50), [index(20_000, below=50)], T(20_000), True]
    yield "avg_pool2d", "avg_pool2d.default", [T(2, 4, 64, 64), [16, 16]]
    yield "adaptive_avg_pool2d", "_adaptive_avg_pool2d.default", [T(2, 4, 64, 64), [2, 2]]
    yield "upsample_bilinear", "upsample_bilinear2d.vec", [T(2, 4, 33, 33), [97, 97], False, None]
    yield "expand", "mul.Tensor", [T(3000, 32), T(32)]
    yield "add expand", "add.Tensor", [T(3000, 32, draw=normal(10.0)), T(32)]
    yield "prod", "prod.dim_int", [T(64, 300, draw=uniform(0.9, 1.1)), 1]
    yield "cumprod", "cumprod.default", [T(64, 300, draw=uniform(0.9, 1.1)), 1]
    yield "cdist", "_cdist_forward.default", [T(50, 300), T(60, 300), 2.0, None]
    yield "fft", "fft_rfft.default", [T(4, 4096)]
    n = 48
    square = lambda: T(3, n, n, draw=well_conditioned)
    yield "inverse", "linalg_inv_ex.default", [square()]
    yield "solve", "linalg_solve.default", [square(), T(3, n, 4)]
    yield "det", "linalg_det.default", [T(3, 12, 12, draw=normal())]
    yield "slogdet", "linalg_slogdet.default", [square()]
    yield "cholesky", "linalg_cholesky_ex.default", [T(3, n, n, draw=symmetric)]
    yield "qr", "linalg_qr.default", [T(3, n, 20)]
    yield "eigvalsh", "linalg_eigvalsh.default", [T(3, n, n, draw=symmetric)]
    yield "svdvals", "linalg_svdvals.default", [T(3, n, 20)]
    yield "lstm", "lstm.input", [T(30, 4, 16), [T(1, 4, 20), T(1, 4, 20)], [T(80, 16), T(80, 20), T(80), T(80)], True, 1, 0.0, True, False, False]
    yield "gru", "gru.input", [T(30, 4, 16), T(1, 4, 20), [T(60, 16), T(60, 20), T(60), T(60)], True, 1, 0.0, True, False, False]
    spans = {
        "exp": (-80, 80), "exp2": (-100, 100), "expm1": (-5, 20), "log": (1e-6, 1e6), "log2": (1e-6, 1e6), "log10": (1e-6, 1e6), "log1p": (-0.9, 10),
        "sin": (-100, 100), "cos": (-100, 100), "tan": (-1.5, 1.5), "asin": (-1, 1), "acos": (-1, 1), "atan": (-50, 50), "sinh": (-10, 10),
        "cosh": (-10, 10), "tanh": (-6, 6), "asinh": (-50, 50), "acosh": (1.01, 50), "atanh": (-0.99, 0.99), "sigmoid": (-20, 20), "erf": (-4, 4),
        "erfc": (-3, 8), "erfinv": (-0.99, 0.99), "lgamma": (0.1, 50), "digamma": (0.1, 50), "sqrt": (0, 1e6), "rsqrt": (1e-6, 1e6), "reciprocal": (0.01, 100),
        "silu": (-15, 15), "gelu": (-6, 6), "mish": (-15, 15), "softplus": (-15, 15), "log_sigmoid": (-15, 15), "elu": (-10, 5), "selu": (-10, 5), "sinc": (-5, 5),
        "i0": (-10, 10), "special_i0e": (-10, 10), "special_i1": (-10, 10), "special_ndtr": (-6, 6), "special_log_ndtr": (-20, 6), "special_ndtri": (0.001, 0.999), "logit": (0.001, 0.999),
        "special_erfcx": (-3, 20), "special_entr": (0.001, 5), "hardswish": (-5, 5), "special_bessel_j0": (-20, 20), "special_bessel_j1": (-20, 20),
    }  # fmt: skip
    for op, (low, high) in spans.items():
        if hasattr(torch.ops.aten, op):
            yield f"{op} over {low}..{high}", f"{op}.default", [T(20_000, draw=uniform(low, high))]
    yield "gelu tanh", "gelu.default", [T(20_000, draw=uniform(-6, 6))], {"approximate": "tanh"}
    yield "pow", "pow.Tensor_Tensor", [T(20_000, draw=uniform(0.01, 10)), T(20_000, draw=uniform(-8, 8))]
    yield "pow scalar", "pow.Tensor_Scalar", [T(20_000, draw=uniform(0.01, 10)), 2.7]
    yield "atan2", "atan2.default", [T(20_000), T(20_000)]
    yield "logaddexp", "logaddexp.default", [T(20_000, draw=normal(0, 10)), T(20_000, draw=normal(0, 10))]
    yield "xlogy", "xlogy.Tensor", [T(20_000), T(20_000, draw=uniform(0.01, 10))]
    yield "hypot", "hypot.default", [T(20_000), T(20_000)]
    yield "div", "div.Tensor", [T(20_000), T(20_000, draw=uniform(0.5, 2))]
    yield "glu", "glu.default", [T(20_000), 0]
    yield "addcdiv", "addcdiv.default", [T(20_000), T(20_000), T(20_000, draw=uniform(0.5, 2))]
    yield "lerp", "lerp.Tensor", [T(20_000), T(20_000), T(20_000, draw=uniform(0, 1))]


def cases(wanted=()):
    for name, op, args, *kwargs in calls():
        if wanted and not any(w in op for w in wanted):
            continue
        grad = any("grad" in x.json for a in args for x in ([a] if isinstance(a, T) else a if isinstance(a, list) else []) if isinstance(x, T))
        row = {"op": f"aten::{op}", "args": [json(a) for a in args], "kwargs": {k: json(v) for named in kwargs for k, v in named.items()}} | ({"seeds": [1]} if grad else {})
        case = Case(f"large {name}", row, [x for a in args for x in listed(a)], False)
        case.pointwise = torch.Tag.pointwise in case.op.tags
        yield case.name, case
