"""Reductions, scans, softmax, sorting and order statistics."""

from .base import B, FLOATS, I, S, T, X, b1, bf16, f16, f32, f64, i8, i32, i64, u8

INF, NAN = float("inf"), float("nan")
BAD_DIM = [S(T(2, 3), 2), S(T(2, 3), -3)]
BAD_DIMS = [S(T(2, 3), [2]), S(T(2, 3), [0, 0])]


def dims(x=T, **kw):
    """Samples of `f(self, int[] dim, bool keepdim)`."""
    return [
        S(x(2, 3), [1], **kw),
        S(x(2, 3), [0], True, **kw),
        S(x(2, 3, 2), [0, -1], **kw),
        S(x(2, 3, 2), [-2], True, **kw),
        S(x(2, 3, 2), [0, 1, 2], **kw),
        S(x(3, 2, lay="t"), [1], **kw),
        S(x(2, 3, lay="exp"), [0], **kw),
        S(x(), [0], **kw),
        S(x(2, 19, dt=f32), [1], **kw),
    ]


def samples(t):
    t.op("sum", S(T(2, 3)), S(T()), S(T(0)), S(T(2, 0, 3)), S(T(2, 3, lay="t")), S(T(3, lay="exp")), S(T(2, 3), dtype=f32), S(I(3), dtype=f32), S(I(3, dt=i32)), S(B(5)), S(T(70, dt=f32)), S(T(40, dt=f16)), S(X([INF, -INF], grad=False)))
    t.op("sum.dim_IntList", *dims(), S(T(2, 3), None), S(T(2, 3), []), S(T(0, 3), [0]), S(T(0, 3), [1], True), S(T(2, 3), [0], dtype=f32), S(B(2, 3), [1]), S(I(2, 3, dt=u8), [1]), err=BAD_DIMS)
    t.op("mean", S(T(2, 3)), S(T()), S(T(0)), S(T(2, 3, lay="t")), S(I(3), dtype=f64), S(T(70, dt=f32)), err=[S(I(3)), S(B(3))])
    t.op("mean.dim", *dims(), S(T(2, 3), None), S(T(2, 3), []), S(T(0, 3), [0]), S(T(2, 3), [1], dtype=f32), err=[*BAD_DIMS, S(I(2, 3), [1])])
    t.op("prod", S(T(2, 3)), S(T()), S(T(0)), S(X([2.0, 0.0, 3.0])), S(X([2.0, 0.0, 0.0])), S(I(4, lo=1)), S(I(3, dt=i32), dtype=f64))
    t.op("prod.dim_int", S(T(2, 3), 1), S(T(2, 3), 0, True), S(T(2, 3, 2), -2), S(T(), 0), S(T(0, 3), 0), S(X([[2.0, 0.0, 3.0], [1.0, 0.5, 2.0]]), 1), S(T(2, 3), 1, dtype=f32), err=BAD_DIM)
    t.op("nansum", S(X([[1.0, NAN], [2.0, 3.0]]), [1]), S(X([1.0, NAN])), S(T(2, 3), [0], True))
    t.op("nanmean", S(X([[1.0, NAN], [2.0, 3.0]]), [1]), dtypes=[f32])
    for op in ("var", "std"):
        t.op(f"{op}", S(T(5)), S(T(2, 3)), S(T(5), False), S(T(1), True, grad=False), S(T(0), grad=False), dtypes=FLOATS, err=[S(I(3))])
        t.op(f"{op}.dim", S(T(2, 3), [1]), S(T(2, 3), [0], False, True), S(T(2, 3, 2), [0, -1], True), S(T(2, 3), None), dtypes=FLOATS, err=BAD_DIMS)
        t.op(f"{op}.correction", S(T(2, 3), [1], correction=1), S(T(2, 3), [1]), S(T(2, 4), [1], correction=0), S(T(2, 4), [1], correction=2, keepdim=True), S(T(2, 3)), S(T(2, 4), [-1], correction=0.5), S(T(2, 3, lay="t"), [0], correction=0), S(T(2, 31, dt=f32), [1], correction=1), dtypes=FLOATS, err=[S(T(2, 3), [2]), S(I(2, 3), [1])])
        t.op(f"{op}_mean.correction", S(T(2, 3), [1], correction=1), S(T(2, 4), [0], correction=0, keepdim=True), S(T(2, 3)), dtypes=FLOATS)
    t.op("var_mean std_mean", S(T(2, 3)), S(T(2, 3), False), dtypes=FLOATS)
    t.op("var_mean.dim std_mean.dim", S(T(2, 3), [1]), S(T(2, 3), [0], False, True), dtypes=FLOATS)

    tie = X([[1.0, 3.0, 3.0], [2.0, 2.0, 0.5]])
    nans = X([[1.0, NAN, 3.0], [INF, -INF, 0.5]], grad=False)
    t.op("amax amin", *dims(), S(T(2, 3)), S(tie, [1], tags=["no_gradcheck"]), S(nans, [1]), S(B(2, 3), [1]), S(I(2, 3, dt=u8), [0]), S(T(2, 0), [0]), err=[*BAD_DIMS, S(T(0, 3), [0]), S(T(0))])
    t.op("aminmax", S(T(2, 3), dim=1), S(T(2, 3)), S(T(2, 3), dim=0, keepdim=True), err=[S(T(0))])
    t.op("max min", S(T(2, 3)), S(T()), S(nans), S(X([1.0, 3.0, 3.0, 1.0]), tags=["no_gradcheck"]), S(I(5, lo=-5)), S(B(3)), S(T(2, 3, lay="t")), err=[S(T(0))])
    t.op("max.dim min.dim", S(T(2, 3), 1), S(T(2, 3), 0, True), S(T(2, 3, 2), -2), S(T(), 0), S(nans, 1), S(tie, 1, tags=["no_gradcheck"]), S(I(2, 3), -1), S(B(2, 3), 1), S(T(3, 2, lay="t"), 0), S(T(2, 0), 0), err=[*BAD_DIM, S(T(0, 3), 0)])
    t.op("argmax argmin", S(T(2, 3), 1), S(T(2, 3)), S(T(2, 3), 0, True), S(T(2, 3), None, True), S(T(2, 3, 2), -2), S(T(), 0), S(T()), S(nans, 1), S(tie, 1), S(I(2, 3), 1), S(T(3, 2, lay="t"), 0), S(T(3, 2, lay="t")), err=[*BAD_DIM, S(T(0)), S(T(0, 3), 0)])
    t.op("any all", S(B(2, 3)), S(T(2, 3)), S(B(0)), S(X([0.0, NAN])), S(X([0, 0])), S(I(3, dt=u8)), S(B()))
    t.op("any all", S(T(3), tags=["dtype"]), nc=False)
    t.op("any.dim all.dim", S(B(2, 3), 1), S(B(2, 3), 0, True), S(B(0, 3), 0), S(T(2, 3), -1), S(I(2, 3, dt=u8), 1), S(B(), 0), S(B(3, 2, lay="t"), 1), err=[S(B(2, 3), 2)])
    t.op("any.dims all.dims", S(B(2, 3), [1]), S(B(2, 3), [0, 1], True), S(B(2, 3), None), dtypes=[])
    t.op("count_nonzero", S(X([0.0, 1.0, NAN, -0.0])), S(T(2, 3), 1), S(I(2, 3, hi=2)), S(B(2, 3), 0))
    t.op("count_nonzero.dim_IntList", S(I(2, 3, hi=2), [1]), S(I(2, 3, hi=2), [0, 1]), S(B(2, 3), [-1]), dtypes=[])

    t.op("norm.Scalar", S(T(2, 3)), S(T(2, 3), 1), S(T(2, 3), 3), S(T(2, 3), INF), S(T(0), grad=False), dtypes=FLOATS)
    t.op("norm.ScalarOpt_dim", *[S(T(2, 3), p, [1]) for p in (2, 1, 3.5, INF, -INF, 0, -1)], S(T(2, 3), None, [0], True), S(T(2, 3), 2, [0, 1]), S(X([[0.0, 0.0], [1.0, 2.0]]), 2, [1], tags=["no_gradcheck"]), dtypes=FLOATS, err=[S(T(2, 3), 2, [2])])
    t.op("linalg_vector_norm", S(T(2, 3), 2, [1]), S(T(2, 3)), S(T(2, 3), 1), S(T(2, 3), 3.5, [0], True), S(T(2, 3), INF, [1]), S(T(2, 3), -INF, [1]), S(T(2, 3), 0, [1]), S(T(2, 3), -1.5, [1]), S(T(2, 3, dt=f32), 2, [1], dtype=f64), S(T(3), 2, None, True), S(X([[0.0, 0.0], [1.0, 2.0]]), 2, [1], tags=["no_gradcheck"]), S(T()), dtypes=FLOATS, err=[S(T(2, 3), 2, [2]), S(I(3))])
    t.op("logsumexp", *dims()[:6], S(T(2, 3), [0, 1]), S(X([[-INF, -INF], [INF, 1.0], [1000.0, 1000.5]], grad=False), [1]), S(T(0, 3), [0]), S(I(2, 3), [1]), S(T(), [0]), err=[S(T(2, 3), [2])])

    scan_extra = [S(X([1.0, NAN, 2.0, INF], grad=False), 0), S(X([1.0, 0.0, 2.0, 0.0, 3.0]), 0), S(T(3, 2, lay="t"), 1), S(T(2, 0), 1)]
    t.op("cumsum cumprod", S(T(2, 3), 1), S(T(2, 3), 0), S(T(2, 3, 2), -2), S(T(), 0), S(T(0), 0), *scan_extra, S(I(4, dt=i32), 0), S(B(4), 0), S(T(3), 0, dtype=f32), S(I(3, dt=u8), 0), S(T(40, dt=f32), 0), err=BAD_DIM)
    t.op("cummax cummin", S(T(2, 3), 1), S(T(2, 3), 0), S(T(2, 3, 2), -2), S(T(), 0), S(T(0), 0), S(X([1.0, 3.0, 3.0, NAN, 2.0], grad=False), 0), S(I(4), 0), S(B(4), 0), err=BAD_DIM)
    t.op("logcumsumexp", S(T(2, 3), 1), S(T(2, 3), 0), S(T(), 0), S(X([-INF, -INF, 1.0, INF], grad=False), 0), dtypes=FLOATS, err=BAD_DIM)

    big = X([[1000.0, 1001.0, -1000.0], [-INF, 0.0, -INF]], grad=False)
    for sm in ("softmax", "log_softmax"):
        t.op(f"{sm}.int", S(T(2, 3), 1), S(T(2, 3), 0), S(T(2, 3, 2), -2), S(T(), 0), S(T(0, 3), 0), S(T(2, 0), 1), S(T(3, 2, lay="t"), 1), S(big, 1), S(X([[-INF, -INF]], grad=False), 1), S(T(2, 3), 1, f32, grad=False), S(I(3), 0, f64), S(T(2, 19, dt=f32), 1), dtypes=FLOATS, err=[*BAD_DIM, S(I(2, 3), 1)])
        t.op(f"_{sm}", S(T(2, 3), 1, False), S(T(2, 3), 0, False), S(T(2, 3, 2), 1, False), S(T(), -1, False), S(big, 1, False), dtypes=FLOATS, err=[S(T(2, 3), 2, False)])
        t.op(f"_{sm}_backward_data", S(T(2, 3), T(2, 3, lo=0.05, hi=0.9), 1, f64), S(T(2, 3), T(2, 3, lo=0.05, hi=0.9), 0, f64), dtypes=[], nc=False)
    t.op("_safe_softmax", S(T(2, 3), 1), S(X([[-INF, -INF], [1.0, -INF]], grad=False), 1), dtypes=FLOATS)

    t.op("sort", S(T(2, 3), 1), S(T(2, 3)), S(T(2, 3), 0, True), S(T(), 0), S(T(0), 0), S(nans, 1), S(nans, 1, True), S(I(5, lo=-9), 0), S(T(3, 2, lay="t"), 1), S(T(2, 9, dt=f32), 1, True), err=BAD_DIM)
    ties = X([[1.0, 0.0, 1.0, 0.0, 2.0], [3.0, 3.0, 1.0, 3.0, 1.0]])
    t.op("sort.stable", S(ties, stable=True, dim=1), S(ties, stable=True, dim=1, descending=True), S(B(6), stable=True, dim=0), S(I(8, hi=3), stable=True, dim=0, descending=True), S(T(2, 3), stable=False, dim=0), err=[S(T(2, 3), stable=True, dim=2)])
    t.op("argsort", S(T(2, 4), 1), S(T(2, 4)), S(T(2, 4), 0, True), S(T(), 0), err=BAD_DIM)
    t.op("argsort.stable", S(ties, stable=True, dim=1), S(ties, stable=True, dim=1, descending=True))
    t.op("msort", S(T(3, 2)), S(T(4)), dtypes=[])
    t.op("topk", S(T(2, 4), 2), S(T(2, 4), 2, 1, False), S(T(4, 2), 3, 0), S(T(2, 4), 0), S(T(2, 4), 4, 1), S(T(), 1, 0), S(nans, 2, 1), S(I(6, lo=-9), 3, 0), S(T(4, 2, lay="t"), 2, 1), err=[S(T(2, 3), 4), S(T(2, 3), -1), S(T(2, 3), 1, 2)])
    t.op("kthvalue", S(T(2, 4), 2), S(T(4, 2), 3, 0), S(T(2, 4), 1, -1, True), S(T(), 1, 0), S(I(6, lo=-9), 2), S(nans, 3, 1), err=[S(T(2, 3), 4), S(T(2, 3), 0), S(T(2, 3), 1, 2)])
    t.op("median nanmedian", S(T(5)), S(T(2, 2)), S(T()), S(nans), S(I(5)), S(T(0), grad=False))
    t.op("median.dim nanmedian.dim", S(T(2, 3), 1), S(T(2, 4), 1), S(T(2, 3), 0, True), S(T(), 0), S(nans, 1), S(I(2, 3), 1), err=BAD_DIM)
    t.op("mode", S(I(2, 5, hi=3), 1), S(X([1.0, 2.0, 2.0, 3.0])), dtypes=[])
    t.op("diff", S(T(2, 4)), S(T(2, 4), 1, 0), S(T(2, 4), 2, 1), S(T(2, 4), 1, 1, T(2, 1)), S(T(2, 4), 1, 1, T(2, 2), T(2, 1)), S(T(2, 1)), S(B(4)), S(I(4)), S(T(2, 3), 0), S(T(2, 3), 5), err=[S(T()), S(T(2, 3), -1), S(T(2, 3), 1, 2), S(T(2, 3), 1, 1, T(3, 1))])
    t.op("bincount", S(I(6, hi=4)), S(I(6, hi=4), T(6)), S(I(6, hi=4), None, 7), S(I(0)), grad=False, dtypes=[f32], err=[S(X([-1, 2])), S(T(3)), S(I(2, 2))])
    t.op("histc", S(T(8), 4, -2, 2), S(T(8), 3), grad=False, dtypes=[f32])
    t.op("searchsorted.Tensor", S(X([1.0, 3.0, 5.0]), X([0.5, 1.0, 4.0, 9.0])), S(X([1.0, 3.0, 5.0]), X([1.0, 3.0]), right=True), S(X([[1, 3], [2, 4]]), X([[2, 3], [2, 9]]), out_int32=True), grad=False)
    t.op("bucketize.Tensor", S(X([0.5, 1.0, 4.0, 9.0]), X([1.0, 3.0, 5.0])), S(X([1, 3]), X([1, 3, 5]), right=True), grad=False)
    t.op("unique_dim", S(I(4, 2, hi=2), 0, True, True, True), dtypes=[], nc=False)
    t.op("_unique2", S(I(6, hi=4), True, True, True), S(X([3.0, 1.0, 3.0], grad=False), True, True, True), S(B(4), True, False, False), dtypes=[])
    t.op("unique_consecutive", S(X([1, 1, 2, 2, 1]), True, True), dtypes=[])
    t.op("equal", S(X([1.0, 2.0]), X([1.0, 2.0])), S(X([1.0, NAN]), X([1.0, NAN])), S(I(2), I(3)), dtypes=[], nc=False)
    t.op("renorm", S(T(3, 2), 2, 0, 1.0), dtypes=FLOATS)
    t.op("dist", S(T(4), T(4)), S(T(2, 3), T(3), 1), dtypes=[f32])
    t.op("_cdist_forward", S(T(2, 3), T(4, 3), 2.0, None), dtypes=[f32])
    t.op("cov", S(T(2, 4)), dtypes=[f32])
    t.op("trace", S(T(3, 3)), S(T(2, 3)), S(I(2, 2)), err=[S(T(3))])
    t.promote("sum", *[S(x) for x in (I(3, dt=i8), I(3, dt=u8), B(3), T(3, dt=bf16))])
    t.op("max.dim", S(X([True, False, True], dt=b1), 0), S(X([1, 5, 5], dt=i64), 0), nc=False, dtypes=[])
