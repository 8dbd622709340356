"""Pointwise ops: unary, binary, ternary, comparisons, activations and their backward kernels."""

from .base import B, FLOATS, I, S, T, X, b1, bf16, f16, f32, f64, i8, i16, i32, i64, u8

INF, NAN = float("inf"), float("nan")
INTS = [b1, u8, i8, i16, i32, i64]
SPECIAL = X([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -0.5, 1.5, 2.5, -2.5], grad=False)


def unary(t, names, lo=-2.0, hi=2.0, special=True, **kw):
    x = lambda *s, **k: T(*s, lo=lo, hi=hi, **k)
    extra = [S(SPECIAL), S(SPECIAL.but(dt=f32))] if special else []
    t.op(names, S(x(2, 3)), S(x()), S(x(0)), S(x(2, 0, 3)), S(x(4, lay="exp")), S(x(2, 2, 3, lay="rev")), S(x(37, dt=f32)), *extra, **kw)


# pairs of (self, other) for ops with a tensor on both sides
def pairs(a, b):
    return [
        S(a(2, 3), b(2, 3)),
        S(a(2, 3), b(3)),
        S(a(2, 1), b(1, 3)),
        S(a(), b(2, 2)),
        S(a(2, 2), b()),
        S(a(), b()),
        S(a(0, 3), b(1, 3)),
        S(a(2, 3, lay="t"), b(2, 3)),
        S(a(2, 3, lay="exp"), b(2, 3, lay="t")),
        S(a(3, lay="step"), b(2, 1, 3)),
        S(a(2, 3, dt=f32), b(2, 3, dt=f32)),
    ]


SHAPE_ERRORS = [S(T(2, 3), T(2, 4)), S(T(3), T(2)), S(T(0), T(2))]
MIXES = [
    (I(3, lo=-5, hi=6, dt=i32), I(3, lo=1, hi=6, dt=i64)),
    (I(3, lo=-5, hi=6, dt=i64), T(3, lo=0.5, dt=f32)),
    (T(3, dt=f16), T(3, lo=0.5, dt=f32)),
    (T(3, dt=bf16), T(3, lo=0.5, dt=f16)),
    (T(3, dt=f32), T(3, lo=0.5, dt=f64)),
    (T(3, dt=f32), T(lo=0.5, dt=f64)),
    (T(dt=f64), T(3, lo=0.5, dt=f32)),
    (I(3, lo=1, hi=6, dt=i32), T(lo=0.5, dt=f64)),
    (I(3, lo=1, hi=6, dt=i32), I(lo=1, hi=6, dt=i64)),
    (B(3), I(3, lo=1, hi=6, dt=u8)),
    (B(3), T(3, lo=0.5, dt=f16)),
    (I(3, lo=1, hi=9, dt=u8), I(3, lo=1, hi=6, dt=i8)),
    (B(3), X([True, True, False])),
    (I(dt=i64, lo=1), X([True, True, False])),
]
SCALAR_MIXES = [
    (I(3, lo=1, hi=6, dt=i32), 2),
    (I(3, lo=1, hi=6, dt=i32), 2.5),
    (T(3, dt=f16), 2.5),
    (T(3, dt=bf16), 3),
    (B(3), 2),
    (B(3), 1.5),
    (B(3), True),
    (I(3, lo=1, hi=6, dt=u8), 3),
    (T(3, dt=f32), 2),
    (I(lo=1, hi=6), 1.5),
]


def mixes(t, names, table=MIXES, **kw):
    t.promote(names, *[S(a, b, **kw) for a, b in table])


def samples(t):
    unary(t, "neg abs sgn sign square exp exp2 expm1 sin cos tanh sinh cosh asinh atan sigmoid log_sigmoid erf erfc relu silu mish")
    unary(t, "floor ceil round trunc frac isnan isinf isfinite relu6 selu hardsigmoid hardswish positive fix absolute")
    unary(t, "isposinf isneginf signbit sinc deg2rad rad2deg", special=True)
    unary(t, "sqrt rsqrt log log2 log10", lo=0.1, hi=3)
    unary(t, "log1p", lo=-0.9, hi=3)
    unary(t, "reciprocal", lo=0.25, hi=3)
    unary(t, "tan asin acos atanh erfinv", lo=-0.95, hi=0.95)
    unary(t, "acosh", lo=1.1, hi=4)
    unary(t, "lgamma digamma", lo=0.2, hi=4)
    t.op("lgamma digamma", S(X([-0.5, -1.25, 7.5, 25.25])), nc=False, dtypes=[])
    unary(t, "logit", lo=0.05, hi=0.95, special=False)
    t.op("logit", S(T(4, lo=0.02, hi=0.98), 0.05), nc=False, dtypes=[])
    unary(t, "logical_not", special=True)
    t.op("bitwise_not", S(I(4, lo=-9)), S(B(4)), S(I(0)), S(I(4, dt=u8)), S(I(4, dt=i32, lay="step")), err=[S(T(3))])
    t.op("square reciprocal sqrt exp neg", S(X([3.0, -4.0, 1e300, 1e-300], grad=False)), nc=False, dtypes=[])
    t.op("neg", S(I(3, dt=u8, lo=1)), nc=False, dtypes=[], err=[S(B(3))])
    t.op("round.decimals", S(T(5), decimals=1), S(X([123.456, -123.456, 0.05]), decimals=-1), S(X([1.25, 2.5]), decimals=0), dtypes=FLOATS)
    t.op("gelu", S(T(2, 3)), S(T(2, 3), approximate="tanh"), S(T(0)), S(T(4, lo=-9, hi=9), approximate="none"), S(T(4, dt=f32), approximate="tanh"), S(SPECIAL), err=[S(T(3), approximate="x")])
    t.op("nan_to_num", S(X([1.0, NAN, INF, -INF])), S(X([1.0, NAN, INF, -INF]), 2.5), S(X([1.0, NAN, INF, -INF]), 0.5, 9.0, -9.0), S(X([NAN, INF, 2.0], dt=f32)), S(I(3)))
    t.op("softplus", S(T(2, 3)), S(T(4), 2.0, 3.0), S(X([25.0, -25.0, 19.5, 20.5])), S(T(0)), S(SPECIAL), dtypes=FLOATS)
    t.op("elu", S(T(2, 3)), S(T(4), 0.5), S(T(4), 1.5, 2.0, 0.5), S(SPECIAL), dtypes=FLOATS)
    t.op("celu", S(T(2, 3)), S(T(4), 0.5), S(SPECIAL), dtypes=FLOATS, err=[S(T(3), 0.0)])
    t.op("leaky_relu", S(T(2, 3)), S(T(4), 0.25), S(T(4), -0.5), S(SPECIAL))
    t.op("hardtanh", S(T(2, 3)), S(T(4), -0.5, 0.75), S(T(4, lo=-9, hi=9), 0.0, 6.0), S(SPECIAL))
    t.op("hardshrink softshrink", S(T(2, 3)), S(T(5), 0.25), S(T(0)), S(SPECIAL), dtypes=FLOATS)
    t.op("threshold", S(T(2, 3), 0.25, -7.0), S(T(4), 0, 0), S(X([1.0, 2.0, 3.0]), 2.0, 9.0, tags=["no_gradcheck"]))
    t.op("prelu", S(T(2, 3), T(3)), S(T(2, 3), T(1)), S(T(2, 3, 2), T(3)), S(T(4), T(1)), dtypes=FLOATS, err=[S(T(2, 3), T(2))])
    t.op("_prelu_kernel", S(T(2, 3), T(1, 3)), S(T(2, 3), T(2, 3)), dtypes=FLOATS)
    t.op("softshrink", dtypes=[], err=[S(T(3), -0.5)])
    t.op("rrelu_with_noise_functional", S(T(4), T(4, grad=False), 0.125, 0.25, False), dtypes=FLOATS)
    t.op("rrelu_with_noise", S(T(4), T(4, grad=False), 0.125, 0.25, False), dtypes=FLOATS)
    t.op("rrelu rrelu_", S(T(4), 0.25, 0.25), S(T(2, 3), 0.125, 0.375, False), dtypes=[f32], nc=False)
    t.op("rrelu_with_noise_", S(T(4), T(4, grad=False), 0.125, 0.25, False), dtypes=[], nc=False)
    t.op("hardshrink_backward softshrink_backward", S(T(2, 3), T(2, 3), 0.5), S(T(4), T(4), 0.25), dtypes=[f32])
    t.op("polygamma", S(0, T(3, lo=0.5, hi=4)), S(1, T(3, lo=0.5, hi=4)), S(2, T(2, 2, lo=0.5, hi=4)), dtypes=[f32], nc=False, err=[S(-1, T(2))])
    t.op("glu", S(T(2, 4)), S(T(4, 3), 0), S(T(2, 6, 2), 1), S(T(6)), S(T(2, 0)), dtypes=FLOATS, err=[S(T(2, 3)), S(T()), S(T(2, 4), 2)])
    t.op("logit", S(X([0.0, 1.0, -0.5, 1.5], grad=False)), nc=False, dtypes=[])

    a = lambda *s, **k: T(*s, **k)
    pos = lambda *s, **k: T(*s, **{"lo": 0.25, "hi": 3, **k})
    away = lambda *s, **k: T(*s, **{"lo": 0.5, "hi": 2, **k})
    t.op("add.Tensor sub.Tensor mul.Tensor maximum minimum fmax fmin max.other min.other hypot copysign.Tensor atan2 logaddexp logaddexp2", *pairs(a, a), err=SHAPE_ERRORS)
    t.op("add.Tensor sub.Tensor rsub.Tensor", S(T(2, 3), T(3), alpha=2), S(T(2, 3), T(3), alpha=-0.5), S(I(3), I(3), alpha=3), S(T(), T(2), alpha=2.5), nc=False, dtypes=[], err=[S(I(3), I(3), alpha=1.5), S(B(3), B(3), alpha=1.5)])
    t.op("sub.Tensor", nc=False, dtypes=[], err=[S(B(3), B(3))])
    t.op("maximum minimum fmax fmin", S(X([1.0, NAN, 2.0, INF], grad=False), X([NAN, 1.0, 2.0, -INF], grad=False)), S(X([1.0, 2.0, 3.0]), X([1.0, 2.5, 2.0]), tags=["no_gradcheck"]), nc=False, dtypes=[])
    t.op("atan2 hypot copysign.Tensor", S(X([0.0, -0.0, 1.0, -1.0, INF], grad=False), X([-1.0, -1.0, 0.0, -0.0, -INF], grad=False)), nc=False, dtypes=[])
    t.op("div.Tensor true_divide.Tensor floor_divide remainder.Tensor fmod.Tensor", *pairs(a, away), err=SHAPE_ERRORS)
    zeros = S(X([1.0, -1.0, 0.0, 2.5], grad=False), X([0.0, 0.0, 0.0, -INF], grad=False))
    signs = S(X([7.0, -7.0, 7.0, -7.0, 5.5]), X([3.0, 3.0, -3.0, -3.0, -2.0]), grad=False)
    isigns = S(X([7, -7, 7, -7]), X([3, 3, -3, -3]))
    t.op("div.Tensor floor_divide remainder.Tensor fmod.Tensor", zeros, signs, isigns, S(I(4, dt=u8, lo=9, hi=200), I(4, dt=u8, lo=2)), nc=False, dtypes=[])
    t.op("floor_divide remainder.Tensor fmod.Tensor", nc=False, dtypes=[], err=[S(I(3), X([1, 0, 2]))])
    for mode in (None, "trunc", "floor"):
        t.op("div.Tensor_mode", *[S(*s.args, rounding_mode=mode) for s in pairs(a, away)[:6] + [zeros, signs, isigns]])
        t.op("div.Scalar_mode", S(T(2, 3), 1.5, rounding_mode=mode), S(I(4, lo=-9), -2, rounding_mode=mode), S(T(3), 0.0, rounding_mode=mode, grad=False))
        mixes(t, "div.Tensor_mode", MIXES[:8], rounding_mode=mode)
    t.op("div.Tensor_mode", nc=False, dtypes=[], err=[S(T(3), T(3), rounding_mode="ceil"), S(I(3), X([1, 0, 2]), rounding_mode="floor")])
    t.op("div.Scalar remainder.Scalar fmod.Scalar floor_divide.Scalar mul.Scalar", S(T(2, 3), 1.5), S(T(4), -0.75), S(T(0), 2), S(I(4, lo=-9), 3), S(I(4, lo=-9), -3), S(T(3, lay="step"), 2))
    t.op("add.Scalar sub.Scalar rsub.Scalar", S(T(2, 3), 1.5), S(T(4), 2, 3), S(T(4), 2, -0.5), S(I(4), 2), S(T(0), 1))
    t.op("remainder.Scalar_Tensor", S(2.5, T(4, lo=0.5)), S(7, X([3, -3])), dtypes=FLOATS)
    t.op("pow.Tensor_Tensor", *pairs(pos, a), S(X([2.0, 0.0, -2.0, -2.0, 0.0], grad=False), X([0.0, 0.0, 3.0, 0.5, -1.0], grad=False)), S(X([2, 3, -2]), X([3, 0, 2])), err=[*SHAPE_ERRORS, S(I(3), X([1, -1, 2]))][:3])
    t.op("pow.Tensor_Scalar", *[S(pos(2, 3), e) for e in (2, 3, 0.5, -1, -0.5, 2.5, -2, 0, 1, 4)], S(T(4), 2), S(T(4), 3), S(X([0.0, -0.0, INF, -INF, NAN], grad=False), 0), S(X([0.0, 4.0, INF], grad=False), -0.5), S(I(4, lo=-4), 3), S(I(4), 0.5), S(T(0), 2), err=[S(I(3), -2)])
    t.op("pow.Scalar", S(2.5, T(2, 3)), S(2, T(4)), S(0.0, X([1.0, 2.0, 0.5]), tags=["no_gradcheck"]), S(1, T(3)), S(2, I(4)), S(2.5, I(4)))
    t.op("xlogy.Tensor", *pairs(a, pos), S(X([0.0, 0.0, 1.0], grad=False), X([0.0, NAN, 0.0], grad=False)))
    t.op("xlogy.Scalar_Other", S(T(3, lo=0.5), 2.0))
    t.op("xlogy.Scalar_Self", S(2.0, T(3, lo=0.5)))
    t.op("atan2_", S(T(2, 3), T(3)), nc=False, dtypes=[])
    t.op("copysign.Scalar", S(T(2, 3), -1.5), S(T(3), 2))
    t.op("ldexp.Tensor", S(T(3), X([1, 2, -3])), S(I(3), I(3)), dtypes=FLOATS)
    mixes(t, "add.Tensor sub.Tensor mul.Tensor div.Tensor pow.Tensor_Tensor maximum minimum floor_divide remainder.Tensor fmod.Tensor atan2 fmax copysign.Tensor")
    mixes(t, "eq.Tensor lt.Tensor ge.Tensor logical_and", MIXES)
    mixes(t, "add.Scalar mul.Scalar div.Scalar sub.Scalar pow.Tensor_Scalar remainder.Scalar fmod.Scalar floor_divide.Scalar eq.Scalar gt.Scalar", SCALAR_MIXES)
    mixes(t, "rsub.Scalar", SCALAR_MIXES[:4])
    # Python numbers passed where a tensor is expected are wrapped as 0-dim tensors; div.Tensor(x, 2.0) is how exported graphs write it.
    t.op("add.Tensor sub.Tensor mul.Tensor div.Tensor floor_divide", S(T(2, 3), 2.0), S(I(3, lo=1), 2), S(I(3, lo=1, dt=i32), 2.5), S(T(3, dt=f16), 2.5), S(T(3, dt=f32), 0.1), nc=False, dtypes=[], tags=["wrapped_number"])

    ties = S(X([1.0, 2.0, NAN, 0.0]), X([1.0, 3.0, NAN, -0.0]))
    for op in "eq ne lt le gt ge".split():
        t.op(f"{op}.Tensor", *pairs(a, a), ties, S(B(4), B(4)), S(X([2**53 + 1, 5]), X([2**53, 5])), err=SHAPE_ERRORS)
        t.op(f"{op}.Scalar", S(T(2, 3), 0.25), S(X([1.0, 2.0, NAN]), 1), S(I(4), 5), S(B(3), True), S(T(0), 1), S(I(4, dt=u8), -1), S(I(3, dt=i32), 2.5))
    t.op("logical_and logical_or logical_xor", *pairs(a, a)[:9], S(X([0.0, 1.0, NAN, -0.0]), X([1.0, 1.0, 0.0, 0.0])), S(B(4), B(4)), S(B(2, 1), I(3)), err=SHAPE_ERRORS)
    for op in "and or xor".split():
        t.op(f"bitwise_{op}.Tensor __{op}__.Tensor", S(I(2, 3, lo=-9), I(2, 3, lo=-9)), S(B(4), B(4)), S(I(2, 1), I(3)), S(B(3), I(3)), S(I(4, dt=u8), I(4, dt=i16, lay="step")), S(I(0), I(1)), S(I(3, dt=i32), I(dt=i64)), err=[S(T(3), T(3)), S(I(3), T(3)), S(I(2), I(3))])
        t.op(f"bitwise_{op}.Scalar __{op}__.Scalar", S(I(4, lo=-9), 6), S(B(4), True), S(I(3, dt=u8), 5), err=[S(T(3), 1)])
        for dt in INTS[1:]:
            t.op(f"bitwise_{op}.Tensor", S(I(3, dt=dt), I(3, dt=dt), tags=["dtype"]), nc=False, dtypes=[])
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        t.op(f"{op}.Tensor", S(I(4, lo=-9), I(4, hi=5)), S(I(4, dt=u8), I(4, hi=5, dt=u8)), S(I(4, dt=i32), I(1, hi=5)))
        t.op(f"{op}.Tensor_Scalar", S(I(4, lo=-9), 2))

    c = B(2, 3)
    t.op("where.self", S(c, T(2, 3), T(2, 3)), S(B(3), T(2, 3), T(2, 1)), S(B(), T(2), T()), S(B(0), T(0), T(1)), S(B(2, 1, lay="step"), T(2, 3, lay="t"), T(3)), S(B(3), I(3), I(3)), err=[S(B(2), T(3), T(3)), S(I(2), T(2), T(2))])
    t.promote("where.self", *[S(B(3), x, y) for x, y in MIXES])
    t.op("where.ScalarOther", S(c, T(2, 3), 0.5), S(c, I(2, 3), 2), S(B(3), I(3), 1.5), S(B(), T(3), -1e9))
    t.op("where.ScalarSelf", S(c, 0.5, T(2, 3)), S(B(3), 2, I(3)))
    t.op("where.Scalar", S(c, 0.5, 1.0), S(B(3), 2, 3), S(B(3), 1, 2.5), S(B(2), True, False))
    t.op("clamp", S(T(2, 3), -0.75, 1.0), S(T(4), None, 0.5), S(T(4), 0.25), S(I(5, lo=-5), -2, 2), S(T(4), 1.0, -1.0), S(X([NAN, INF, -INF, 1.0], grad=False), -1.0, 1.0), S(T(0), 0.0, 1.0), S(X([0.0, 1.0, 2.0]), 0.0, 1.0, tags=["no_gradcheck"]), S(I(3, dt=i32), 0.5, 2.5), err=[S(T(3))])
    t.op("clamp.Tensor", S(T(2, 3), T(2, 3, hi=-0.5), T(2, 3, lo=0.5)), S(T(2, 3), T(3, hi=0)), S(T(2, 3), None, T()), S(X([NAN, 1.0], grad=False), X([0.0, NAN], grad=False), None), err=[S(T(3)), S(T(3), T(2))])
    t.op("clamp_min clamp_max", S(T(2, 3), 0.25), S(I(4, lo=-5), 1), S(T(3), -1), S(X([NAN, 1.0], grad=False), 0.0))
    t.op("clamp_min.Tensor clamp_max.Tensor", S(T(2, 3), T(3)), S(T(2, 3), T()), err=[S(T(3), T(2))])
    t.op("clip", S(T(4), -0.5, 0.5), nc=False, dtypes=[])
    t.op("lerp.Scalar", S(T(2, 3), T(2, 3), 0.25), S(T(2, 3), T(3), 0.75), S(T(3), T(3), 1.5), S(T(), T(), 0.5), err=[S(T(3), T(2), 0.5)])
    t.op("lerp.Tensor", S(T(2, 3), T(2, 3), T(2, 3)), S(T(2, 3), T(3), T(2, 1)), S(T(3), T(3), T()), err=[S(T(3), T(2), T(3))])
    t.op("addcmul", S(T(2, 3), T(2, 3), T(2, 3)), S(T(2, 3), T(3), T(2, 1), value=2), S(T(3), T(3), T(), value=-0.5), S(T(0), T(0), T(1)), S(I(3), I(3), I(3), value=2), err=[S(T(3), T(2), T(3))])
    t.op("addcdiv", S(T(2, 3), T(2, 3), away(2, 3)), S(T(2, 3), T(3), away(2, 1), value=2), S(T(3), T(3), away(), value=-0.5), err=[S(T(3), T(2), T(3)), S(I(3), I(3), I(3))])
    t.promote("addcmul", S(T(3, dt=f16), T(3, dt=f32), T(3, dt=f32)), S(T(3, dt=f32), I(3), T(3, dt=f64)))
    t.promote("clamp.Tensor", S(T(3, dt=f32), T(3), None), S(I(3, dt=i32), T(3, dt=f16), None), S(T(3, dt=f16), T(dt=f64), T(dt=f64)))
    t.promote("lerp.Scalar lerp.Tensor", S(T(3, dt=f32), T(3, dt=f32), T(dt=f32)), S(T(3, dt=f32), T(3, dt=f32), 0.5))
    t.op("isclose", S(X([1.0, 1.0, NAN, INF]), X([1.0 + 1e-9, 1.1, NAN, INF])), S(X([1.0, NAN]), X([1.0, NAN]), 1e-5, 1e-8, True), S(I(3), I(3)))
    t.op("allclose", S(X([1.0, 2.0]), X([1.0, 2.0 + 1e-9])), S(X([1.0]), X([1.1])), dtypes=[], nc=False)
    t.op("heaviside", S(X([-1.5, 0.0, 2.0]), X([0.5, 0.25, 0.75])), grad=False)

    # backward kernels, as they stand in joint graphs
    g = T(2, 3)
    t.op("threshold_backward", S(g, T(2, 3), 0.0), S(T(4), T(4), 0.25), S(T(3), T(3), 0))
    t.op("tanh_backward sigmoid_backward", S(g, T(2, 3, lo=0.05, hi=0.95)), S(T(0), T(0)), dtypes=FLOATS)
    t.op("silu_backward mish_backward hardswish_backward hardsigmoid_backward", S(g, T(2, 3)), S(T(0), T(0)), dtypes=FLOATS)
    t.op("gelu_backward", S(g, T(2, 3)), S(g, T(2, 3), approximate="tanh"), dtypes=FLOATS)
    t.op("elu_backward", S(g, 1.0, 1.0, 1.0, False, T(2, 3)), S(g, 0.5, 1.5, 2.0, True, T(2, 3, hi=0.5, lo=-0.4)), dtypes=FLOATS)
    t.op("leaky_relu_backward", S(g, T(2, 3), 0.25, False), S(g, T(2, 3), 0.25, True), dtypes=FLOATS)
    t.op("hardtanh_backward", S(g, T(2, 3), -0.5, 0.75), dtypes=FLOATS)
    t.op("softplus_backward", S(g, T(2, 3), 1.0, 20.0), S(g, T(2, 3), 2.0, 3.0), dtypes=FLOATS)
    t.op("log_sigmoid_backward", S(T(3), T(3), T(3, grad=False), grad=False), dtypes=[f32])
    t.op("glu_backward", S(T(2, 2), T(2, 4), -1), dtypes=FLOATS)

    # in place, with what is special about writing into an existing tensor
    t.op("add_.Tensor sub_.Tensor", S(T(2, 3), T(3)), S(T(2, 3), T(2, 1), alpha=2), S(T(2, 3, lay="t"), T(3)), S(T(3, dt=f32), T(3)), S(I(3), I(1)), S(T(3, dt=f32), I(3)), nc=False, dtypes=[], err=[S(T(3), T(2, 3)), S(I(3), T(3)), S(T(3, lay="exp"), T(3))])
    t.op("mul_.Tensor div_.Tensor", S(T(2, 3), away(3)), S(T(2, 3), away()), S(T(2, 3, lay="step"), away(2, 3)), S(T(3, dt=f16), away(3, dt=f32)), nc=False, dtypes=[], err=[S(T(3), T(2, 3)), S(I(3), T(3))])
    t.op("div_.Tensor", nc=False, dtypes=[], err=[S(I(3), I(3, lo=1))])
    t.op("add_.Scalar sub_.Scalar mul_.Scalar div_.Scalar", S(T(2, 3), 1.5), S(T(2, 3, lay="t"), 2), nc=False, dtypes=[])
    t.op("relu_ sigmoid_ tanh_ exp_ neg_ silu_ hardswish_ abs_ sin_ square_ hardsigmoid_ gelu_ mish_", S(T(2, 3)), S(T(2, 3, lay="t")), nc=False, dtypes=[f32])
    t.op("hardtanh_", S(T(2, 3), 0.0, 1.0), nc=False, dtypes=[])
    t.op("leaky_relu_ elu_", S(T(2, 3), 0.25), nc=False, dtypes=[])
    t.op("clamp_", S(T(2, 3), -0.5, 0.5), nc=False, dtypes=[], err=[S(T(3))])
    t.op("clamp_min_ clamp_max_", S(T(2, 3), 0.25), nc=False, dtypes=[])
    t.op("pow_.Scalar", S(T(2, 3), 3), S(pos(3), 0.5), nc=False, dtypes=[])
    t.op("lerp_.Scalar", S(T(2, 3), T(2, 3), 0.25), nc=False, dtypes=[])
    t.op("addcmul_", S(T(2, 3), T(3), T(2, 1), value=2), nc=False, dtypes=[])
    t.op("addcdiv_", S(T(2, 3), T(3), away(2, 1), value=2), nc=False, dtypes=[])
    t.op("eq_.Tensor", S(T(3), T(3)), grad=False, nc=False, dtypes=[])
    t.op("logical_not_", S(B(3)), S(T(3)), grad=False, nc=False, dtypes=[])
    t.op("bitwise_and_.Tensor bitwise_or_.Tensor", S(B(3), B(3)), S(I(3), I(1)), nc=False, dtypes=[])
    t.op("sqrt_ log_ rsqrt_ reciprocal_", S(pos(2, 3)), nc=False, dtypes=[], err=[S(I(3, lo=1))])
