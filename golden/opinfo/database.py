"""Samples of PyTorch's own op database that once came out otherwise here: crossed bounds, single complex numbers, truth values, integers."""

from .base import B, I, S, T, X, Z, b1, f32, i64


def samples(t):
    plain = dict(dtypes=[], nc=False)
    t.op("addr", S(B(2, 3), B(2), B(3), beta=3, alpha=2), S(B(), B(2), B(3), beta=3, alpha=-3), S(B(2, 3), B(2), B(3), beta=0), S(I(2, 3), I(2), I(3), beta=3, alpha=2), **plain)
    t.op("cumsum cumprod", S(Z(), 0), S(Z(), -1), S(Z(0), 0), **plain)
    t.op("istft", S(Z(4, 5), 4, 1, onesided=False), S(Z(5, 4), 5, 1, onesided=False), S(Z(2, 4, 3), 4, 1, center=False), S(Z(4, 5), 4, 1, normalized=True, length=9), **plain)
    t.op("logit", S(X([0.1, 0.45, 0.55, 0.9], grad=False), 0.6), S(X([0.1, 0.55, 0.9], dt=f32), 0.75), S(X([0.1, 0.5, 0.9], grad=False), 0.5), **plain)
    t.op("native_dropout_backward", S(I(2, 3), B(2, 3), 2.0), S(B(2, 3), B(2, 3), 0.5), S(I(2, 3), B(2, 3), 0.0), **plain)
    t.op("rms_norm", S(Z(2, 3), [3], Z(3)), S(Z(2, 2, 3), [2, 3], None, 0.5), S(Z(2, 2), [2]), **plain)
    t.op("sum_to_size", S(B(), []), S(B(2, 3), []), S(B(2, 3), [2, 3]), S(B(2, 3), [1, 3]), S(T(2, 3), []), S(T(), []), **plain)
    t.op("reflection_pad1d replication_pad1d", S(Z(2, 5), [1, 2]), S(Z(1, 2, 4), [2, 0]), **plain)
    t.op("reflection_pad2d replication_pad2d", S(Z(1, 3, 4), [1, 2, 0, 1]), **plain)
    t.op("reflection_pad3d replication_pad3d", S(Z(1, 2, 3, 2), [1, 0, 0, 1, 1, 1]), **plain)
    t.op("var.correction std.correction var_mean.correction std_mean.correction", S(Z(2, 3), [1]), S(Z(2, 3), [0], correction=0, keepdim=True), S(Z(5)), **plain)
    t.op("var std var_mean std_mean", S(Z(2, 3)), S(Z(4), False), **plain)
    t.op("_conj", S(Z(2, 3)), **plain)
    t.op("histc", S(X([0.8, -0.1, 0.5, 2.0, -1.0], dt=f32), 5, -1, 2), S(X([0.8, -0.1], dt=f32), 10, -1, 2), **plain, grad=False)
    t.op("_histogramdd_from_bin_tensors", S(X([[0.5], [2.5], [3.5], [1.0]]), [X([1.0, 3.0, 2.0])]), S(X([[-2.0], [-1.9]]), [X([-3.0, -1.0, -2.0])]), **plain, grad=False)
    t.op("linalg_vander", S(T(), N=3), S(Z(), N=2), **plain)
    t.op("linalg_pinv.atol_rtol_tensor", S(Z(3, 3), hermitian=True), S(Z(2, 2, 2), hermitian=True), **plain, grad=False)
