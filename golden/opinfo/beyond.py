"""Ops beyond the core list that exported programs carry: second names, quantiles, spectra, pools at random places, splits."""

from .base import B, I, S, T, X, Z, c64, f32, f64

INF, NAN = float("inf"), float("nan")
ONE = [f32]


def P(*shape):
    """Numbers well inside (0, 1)."""
    return T(*shape, lo=0.2, hi=0.8)


def samples(t):
    # second names
    t.op("negative arctan arcsinh", S(T(2, 3)), dtypes=ONE)
    t.op("arcsin arccos arctanh", S(P(2, 3)), dtypes=ONE)
    t.op("arccosh", S(T(2, 3, lo=1.2, hi=3.0)), dtypes=ONE)
    t.op("arctan2 multiply.Tensor divide.Tensor subtract.Tensor", S(T(2, 3), T(3, lo=0.5, hi=2.0)), dtypes=ONE)
    t.op("multiply.Scalar divide.Scalar true_divide.Scalar subtract.Scalar", S(T(2, 3), 1.5), S(I(3), 2, grad=False), dtypes=ONE)
    t.op("divide.Tensor_mode", S(T(2, 3), T(3, lo=0.5, hi=2.0), rounding_mode="floor"), S(T(2, 3), T(3, lo=0.5, hi=2.0), rounding_mode=None), dtypes=[])
    t.op("divide.Scalar_mode", S(T(2, 3), 0.7, rounding_mode="trunc"), dtypes=[])
    for op in ("greater", "greater_equal", "less", "less_equal", "not_equal"):
        t.op(f"{op}.Tensor", S(I(2, 3, hi=3), I(3, hi=3)), dtypes=[])
        t.op(f"{op}.Scalar", S(I(2, 3, hi=3), 1), dtypes=[])
    t.op("clip.Tensor", S(T(2, 3), T(3, lo=-1.0, hi=-0.2), T(3, lo=0.2, hi=1.0)), S(T(2, 3), None, T(3)), dtypes=ONE)
    t.op("concatenate", S([T(2, 3), T(1, 3)]), dtypes=[], nc=False)
    t.op("row_stack", S([T(3), T(2, 3)]), dtypes=[], nc=False)
    t.op("linalg_matmul", S(T(2, 3), T(3, 2)), dtypes=ONE)
    t.op("linalg_diagonal", S(T(2, 3, 4), offset=1), S(T(3, 3)), dtypes=[])
    t.op("matrix_H mH", S(T(2, 3)), S(Z(2, 3)), dtypes=[])
    t.op("mH", S(Z(2, 2, 3)), dtypes=[])
    t.op("resolve_neg", S(T(2, 3)), dtypes=[])
    t.op("special_polygamma", S(1, T(3, lo=0.5, hi=2.0)), dtypes=[])

    # functions of one number or two
    t.op("conj_physical", S(T(2, 3)), S(I(3), grad=False), dtypes=[])
    t.op("float_power.Tensor_Tensor", S(T(2, 3, lo=0.5, hi=2.0), T(3)), S(I(3, lo=1), I(3), grad=False), dtypes=[])
    t.op("float_power.Tensor_Scalar", S(T(2, 3, lo=0.5, hi=2.0), 1.5), S(I(3, lo=1), 2, grad=False), dtypes=[])
    t.op("float_power.Scalar", S(2, T(2, 3)), dtypes=[])
    t.op("isreal", S(T(2, 3)), S(X([1 + 0j, 2 + 1j])), dtypes=[])
    t.op("mvlgamma", S(T(2, 3, lo=2.0, hi=4.0), 3), S(T(3, lo=0.5, hi=2.0), 1), dtypes=[], err=[S(T(3, lo=0.5, hi=2.0), 0)])
    t.op("special_ndtr", S(T(2, 3)), dtypes=ONE)
    t.op("special_entr", S(P(2, 3)), S(X([0.0, -1.0, NAN, INF], grad=False)), dtypes=ONE)

    # order statistics, sums over places
    q = X([0.0, 0.3, 0.5, 1.0], grad=False)
    for op in ("quantile", "nanquantile"):
        t.op(op, S(T(5), q), S(T(2, 5), q, 1), S(T(2, 5), q, 0, True), S(T(2, 3), q), S(T(2, 3), q, None, True), S(T(3), X(0.4, grad=False), 0), S(T(), q), dtypes=[])
        for between in ("lower", "higher", "midpoint", "nearest"):
            t.op(op, S(T(2, 5), X([0.3, 0.6], grad=False), 1, interpolation=between), dtypes=[], nc=False)
        t.op(op, S(X([[1.0, NAN, 3.0, 0.5], [2.0, 1.0, 0.0, 4.0], [NAN, NAN, NAN, NAN]], grad=False), q, 1), dtypes=[], nc=False)
        t.op(op, err=[S(I(3), q), S(T(0), q), S(T(3), q, 1), S(T(3), q, interpolation="other")])
        t.op(f"{op}.scalar", S(T(2, 5), 0.3, 1), S(T(5), 0.5), dtypes=ONE, err=[S(T(3), 1.5)])
    t.op("trapezoid.x cumulative_trapezoid.x", S(T(2, 4), T(4)), S(T(2, 4), T(2, 4)), S(T(3, 2), T(3), dim=0), S(T(2, 1), T(1)), dtypes=[], err=[S(T(2, 4), T(3))])
    t.op("trapz.x", S(T(2, 4), T(4)), dtypes=[])
    t.op("trapezoid.dx cumulative_trapezoid.dx", S(T(2, 4)), S(T(2, 4), dx=0.5), S(T(3, 2), dx=2, dim=0), dtypes=ONE)
    t.op("trapz.dx", S(T(2, 4), dx=0.5), dtypes=[])
    t.op("corrcoef", S(T(3, 5)), S(T(4), grad=False), dtypes=ONE)
    t.op("sum_to_size", S(T(2, 3), [3]), S(T(2, 3), [2, 1]), S(T(2, 3), [2, 3]), S(T(4, 2, 3), [1, 3]), dtypes=ONE, err=[S(T(2, 3), [2])])
    t.op("searchsorted.Scalar", S(X([1.0, 3.0, 5.0], grad=False), 3.0), S(X([1.0, 3.0, 5.0], grad=False), 3.0, right=True), dtypes=[], nc=False)
    t.op("cdist", S(T(2, 3), T(4, 3)), S(T(2, 2, 3), T(2, 4, 3), 1.0), S(T(2, 3), T(4, 3), 3.0), dtypes=ONE, err=[S(T(2, 3), T(2, 4))])
    t.op("pdist", S(T(4, 3)), S(T(3, 2), 1.0), dtypes=ONE, err=[S(T(3))])

    # linear algebra
    factor = X([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [0.25, -0.5, 1.0]], grad=False)
    t.op("cholesky_inverse", S(factor), S(X([[2.0, 0.5], [0.0, 1.5]], grad=False), True), dtypes=ONE, nc=False)
    t.op("triangular_solve", S(T(2, 1), X([[2.0, 0.5], [0.0, 1.5]])), S(T(2, 3), X([[2.0, 0.0], [0.5, 1.5]]), False, True), dtypes=[], nc=False)
    t.op("svd", S(T(3, 2), tags=("random",)), dtypes=[], nc=False)
    t.op("linalg_vecdot", S(T(2, 3), T(2, 3)), S(T(2, 3), T(3)), S(T(2, 3), T(2, 3), dim=0), dtypes=ONE)
    t.op("linalg_multi_dot", S([T(2, 3), T(3, 4), T(4, 2)]), S([T(3), T(3, 2), T(2)]), S([T(2, 3), T(3)]), dtypes=[], nc=False, err=[S([T(2, 3)]), S([T(2, 3), T(2, 3)])])
    t.op("_trilinear", S(T(2, 3), T(4, 3, 5), T(2, 5), [1, 3], [0], [1, 2], [2, 3]), dtypes=[], nc=False)

    # pools and pictures
    t.op("max_unpool3d", S(T(1, 1, 1, 2, 2), X([[[[[0, 3], [9, 11]]]]]), [2, 4, 4], [2, 2, 2], [0, 0, 0]), dtypes=ONE, nc=False)
    t.op("fractional_max_pool2d", S(T(1, 2, 5, 6), [2, 2], [3, 3], X([[[0.3, 0.8], [0.6, 0.1]]], grad=False)), S(T(2, 5, 5), [2, 3], [2, 1], X([[[0.5, 0.2], [0.9, 0.4]]], grad=False)), dtypes=[], nc=False, err=[S(T(1, 1, 3, 3), [2, 2], [3, 3], X([[[0.3, 0.8]]], grad=False))])
    t.op("fractional_max_pool3d", S(T(1, 1, 4, 4, 5), [2, 2, 2], [2, 2, 2], X([[[0.3, 0.8, 0.6]]], grad=False)), dtypes=[], nc=False)
    t.op("_upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec", S(T(1, 1, 4, 5), [2, 3], False, None), S(T(1, 1, 4, 4), None, False, [0.5, 1.5]), dtypes=[])
    t.op("_upsample_bicubic2d_aa", S(T(1, 1, 5, 4), [2, 3], False), S(T(1, 1, 3, 3), [5, 4], True), dtypes=ONE)
    t.op("pad", S(T(1, 1, 4, 4), [-1, 1, -2, 1], "circular"), S(T(1, 4), [2, -1], "circular"), dtypes=[], nc=False)
    t.op("multi_margin_loss", S(T(), X(0)), dtypes=[], nc=False)
    t.op("multilabel_margin_loss", S(T(), X(0)), dtypes=[], nc=False)

    # spectra over time
    window = X([0.2, 0.7, 1.0, 0.6], grad=False)
    t.op("stft", S(T(10), 4, return_complex=True), S(T(2, 9), 4, 2, 4, window, return_complex=True), S(T(9), 4, 3, 2, X([0.5, 1.0], grad=False), True, return_complex=False), S(T(8), 4, 2, onesided=False, return_complex=True), S(Z(8), 4, 2), dtypes=[], err=[S(T(3), 4, return_complex=True), S(T(8), 4, 0, return_complex=True), S(T(8), 4, 1, 5, return_complex=True), S(Z(8), 4, onesided=True)])
    t.op("stft.center", S(T(8), 4, 2, 4, window, return_complex=True), S(T(2, 8), 4, 2, center=False, return_complex=True), dtypes=[], nc=False)
    t.op("istft", S(Z(3, 5), 4, 1), S(Z(2, 3, 4), 4, 1, 4, window), S(Z(4, 5), 4, 1, center=False, onesided=False, return_complex=True), S(Z(3, 5), 4, 1, length=7), S(Z(3, 5), 4, 1, normalized=True), dtypes=[], nc=False, err=[S(T(3, 5), 4, 1), S(Z(2, 5), 4, 1)])

    # parts
    t.op("narrow_copy", S(T(4, 3), 0, 1, 2), dtypes=ONE, err=[S(T(4), 0, 3, 2)])
    t.op("hsplit.int", S(T(2, 4), 2), S(T(4), 2), dtypes=[], nc=False, err=[S(T(5), 2), S(T(), 1)])
    t.op("vsplit.int", S(T(4, 2), 2), dtypes=[], nc=False, err=[S(T(4), 2)])
    t.op("dsplit.int", S(T(1, 2, 4), 2), dtypes=[], nc=False, err=[S(T(2, 4), 2)])
    t.op("hsplit.array vsplit.array", S(T(4, 5), [1, 3]), dtypes=[], nc=False)
    t.op("dsplit.array", S(T(1, 2, 4), [1, 3]), dtypes=[], nc=False)
    t.op("atleast_1d.Sequence atleast_2d.Sequence atleast_3d.Sequence", S([T(), T(2), T(2, 3)]), dtypes=[], nc=False)
    t.op("diagflat", S(T(2, 2)), S(T(3), -1), dtypes=ONE)
    t.op("take_along_dim", S(T(2, 3), X([[-1, 0], [1, -2]]), 1), dtypes=[], nc=False)
    t.op("nonzero_numpy", S(X([[1.0, 0.0], [0.0, 2.0]], grad=False)), S(B(2, 3)), dtypes=[])
    mask = X([True, False, True])
    t.op("_unsafe_masked_index", S(T(4), mask, [X([0, 9, 3])], 0.5), dtypes=[], nc=False)
    t.op("_unsafe_masked_index_put_accumulate", S(T(4), mask, [X([0, 9, 0])], T(3)), dtypes=[], nc=False)

    # assertions of programs whose sizes depend on numbers
    plain = dict(dtypes=[], nc=False, grad=False)
    t.op("_assert_scalar", S(True, "said", outs=0), S(3, "said", outs=0), err=[S(False, "said"), S(0, "said")], **plain)
    t.op("_assert_async", S(X(True), outs=0), S(X([2.0], grad=False), outs=0), err=[S(X(False)), S(B(2))], **plain)
    t.op("_assert_async.msg", S(X(True), "said", outs=0), err=[S(X(False), "said")], **plain)
    t.op("sym_constrain_range sym_constrain_range_for_size", S(5, outs=0), S(5, min=0, max=5, outs=0), err=[S(5, min=6), S(5, max=4)], **plain)
