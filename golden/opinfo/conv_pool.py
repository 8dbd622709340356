"""Convolution, pooling, resampling and sampling."""

from .base import FLOATS, S, T, X, f32

ONE = [f32]


def samples(t):
    one = lambda n: [1] * n
    zero = lambda n: [0] * n
    convs = {1: ("conv1d", (1, 2, 5), (3, 2, 2), (2, 1, 2)), 2: ("conv2d", (1, 2, 4, 3), (2, 2, 2, 2), (2, 1, 2, 2)), 3: ("conv3d", (1, 1, 3, 2, 3), (2, 1, 2, 2, 2), (1, 1, 2, 1, 2))}
    for n, (op, xs, ws, gs) in convs.items():
        x, w, b = T(*xs), T(*ws), T(ws[0])
        two = [2] * n
        t.op(op, S(x, w, b), S(x, w), S(x, w, b, two), S(x, w, b, one(n), one(n)), S(x, w, b, one(n), two, two), S(T(*xs[1:]), w, b), S(T(0, *xs[1:]), w, b), dtypes=FLOATS, err=[S(x, T(ws[0], ws[1] + 1, *ws[2:])), S(x, w, T(ws[0] + 1)), S(x, w, b, zero(n)), S(x, T(*ws[:2], *[9] * n)), S(x, w, b, one(n), [-1] * n), S(x, w, b, one(n), zero(n), one(n), 2 if ws[0] % 2 else 3)])
        t.op(f"{op}.padding", S(x, w, b, one(n), "same"), S(x, w, b, one(n), "valid"), S(x, w, None, one(n), "same", two), dtypes=ONE, err=[S(x, w, b, two, "same"), S(x, w, b, one(n), "full")])
        if xs[1] > 1:
            t.op(op, S(x, T(*gs), T(gs[0]), one(n), zero(n), one(n), 2), S(x, T(4, *gs[1:]), None, two, one(n), one(n), 2), nc=False, dtypes=[])
    t.op("conv2d", S(T(1, 2, 3, 3, lay="cl"), T(2, 2, 2, 2, lay="cl")), S(T(1, 2, 4, 4), T(2, 2, 3, 1), None, [2, 1], [1, 0]), S(T(2, 1, 3, 3), T(1, 1, 1, 1)), S(T(1, 3, 7, 7, dt=f32), T(4, 3, 3, 3, dt=f32), T(4, dt=f32), [1, 1], [1, 1]), S(T(2, 4, 6, 6, dt=f32), T(4, 1, 3, 3, dt=f32), None, [2, 2], [1, 1], [1, 1], 4), nc=False, dtypes=[], err=[S(T(1, 2, 3), T(2, 2, 2, 2, 2)), S(T(1, 2, 3, 3, dt=f32), T(2, 2, 2, 2))])
    trans = {1: ("conv_transpose1d", (1, 2, 3), (2, 2, 2)), 2: ("conv_transpose2d.input", (1, 2, 2, 3), (2, 1, 2, 2)), 3: ("conv_transpose3d.input", (1, 1, 2, 2, 2), (1, 2, 2, 1, 2))}
    for n, (op, xs, ws) in trans.items():
        x, w, b = T(*xs), T(*ws), T(ws[1])
        two = [2] * n
        t.op(op, S(x, w, b), S(x, w), S(x, w, b, two), S(x, w, b, two, zero(n), one(n)), S(x, w, b, two, one(n) if n < 3 else zero(n), one(n)), S(x, w, b, one(n), zero(n), zero(n), 1, two), S(T(*xs[1:]), w, b), dtypes=FLOATS, err=[S(x, T(ws[0] + 1, *ws[1:])), S(x, w, T(ws[1] + 1)), S(x, w, b, one(n), zero(n), two)])
    t.op("conv_transpose2d.input", S(T(1, 4, 2, 2), T(4, 1, 2, 2), T(2), [2, 2], [1, 1], [1, 1], 2), S(T(1, 2, 4, 4, dt=f32), T(2, 3, 3, 3, dt=f32), None, [2, 2], [1, 1], [1, 1]), nc=False, dtypes=[])
    t.op("convolution", S(T(1, 2, 3, 3), T(2, 2, 2, 2), T(2), [1, 1], [0, 0], [1, 1], False, [0, 0], 1), S(T(1, 2, 4), T(2, 1, 2), None, [2], [1], [1], False, [0], 2), S(T(1, 2, 2, 2), T(2, 2, 2, 2), T(2), [2, 2], [0, 0], [1, 1], True, [1, 1], 1), S(T(1, 1, 2, 2, 2), T(1, 1, 2, 1, 1), None, [1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1), dtypes=FLOATS, err=[S(T(1, 2, 3, 3), T(2, 3, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)])
    t.op("convolution_backward", S(T(1, 2, 2, 2), T(1, 2, 3, 3), T(2, 2, 2, 2), [2], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]), S(T(1, 2, 2, 2), T(1, 2, 3, 3), T(2, 2, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]), S(T(1, 2, 4, 4), T(1, 2, 2, 2), T(2, 2, 2, 2), [2], [2, 2], [0, 0], [1, 1], True, [0, 0], 1, [True, True, True]), S(T(1, 2, 2), T(1, 2, 4), T(2, 1, 2), None, [2], [0], [1], False, [0], 2, [True, True, False]), dtypes=FLOATS)
    t.op("_convolution", S(T(1, 2, 3, 3), T(2, 2, 2, 2), T(2), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, True, True), dtypes=[], nc=False)
    t.op("im2col", S(T(1, 1, 3, 3), [2, 2], [1, 1], [0, 0], [1, 1]), S(T(1, 1, 3, 4), [2, 1], [1, 2], [1, 0], [2, 1]), dtypes=ONE, err=[S(T(1, 1, 2, 2), [3, 3], [1, 1], [0, 0], [1, 1])])
    t.op("col2im", S(T(1, 4, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]), dtypes=ONE, err=[S(T(1, 4, 3), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1])])

    # pooling
    t.op("max_pool1d max_pool1d_with_indices", S(T(1, 2, 5), [2]), S(T(2, 5), [3], [1], [1]), S(T(1, 1, 6), [2], [2], [0], [2]), S(T(1, 1, 5), [2], [2], [0], [1], True), dtypes=FLOATS, err=[S(T(1, 1, 2), [3]), S(T(5), [2]), S(T(1, 1, 5), [2], [1], [2])])
    p2 = [S(T(1, 2, 4, 4), [2, 2]), S(T(1, 4, 4), [3, 2], [1, 2], [1, 1]), S(T(1, 1, 5, 5), [2, 2], [2, 2], [0, 0], [2, 2]), S(T(1, 1, 5, 4), [2, 2], [2, 2], [0, 0], [1, 1], True), S(T(1, 2, 4, 4, lay="cl"), [2, 2]), S(T(0, 1, 4, 4), [2, 2]), S(X([[[float("nan"), 1.0], [2.0, 3.0]]], grad=False), [2, 2]), S(X([[[1.0, 1.0], [1.0, 1.0]]], grad=False), [2, 2])]
    e2 = [S(T(1, 1, 2, 2), [3, 3]), S(T(4, 4), [2, 2]), S(T(1, 1, 4, 4), [2, 2], [1, 1], [2, 2]), S(T(1, 1, 4, 4), [0, 0]), S(T(1, 1, 4, 4), [2, 2], [0, 0])]
    t.op("max_pool2d max_pool2d_with_indices", *p2, dtypes=FLOATS, err=e2)
    t.op("max_pool3d max_pool3d_with_indices", S(T(1, 1, 2, 2, 4), [2, 2, 2]), S(T(1, 1, 3, 3, 2), [2, 2, 2], [1, 1, 1], [1, 1, 1]), S(T(1, 3, 2, 2), [2, 1, 2], [2, 1, 1], [0, 0, 0], [1, 1, 1], True), dtypes=FLOATS)
    t.op("max_pool2d_with_indices_backward", S(T(1, 1, 2, 2), T(1, 1, 4, 4, grad=False), [2, 2], [2, 2], [0, 0], [1, 1], False, X([[[[0, 3], [9, 11]]]])), dtypes=FLOATS, nc=False)
    t.op("max_unpool2d", S(T(1, 1, 2, 2), X([[[[0, 3], [9, 11]]]]), [4, 4]), dtypes=ONE, nc=False)
    t.op("avg_pool1d", S(T(1, 2, 5), [2]), S(T(2, 5), [3], [1], [1]), S(T(1, 1, 5), [3], [2], [1], False, False), S(T(1, 1, 5), [2], [2], [0], True), dtypes=FLOATS, err=[S(T(1, 1, 2), [3]), S(T(1, 1, 5), [2], [1], [2])])
    t.op("avg_pool2d", S(T(1, 2, 4, 4), [2, 2]), S(T(1, 4, 4), [3, 2], [1, 2], [1, 1]), S(T(1, 1, 4, 4), [3, 3], [2, 2], [1, 1], False, False), S(T(1, 1, 5, 4), [2, 2], [2, 2], [0, 0], True), S(T(1, 1, 5, 5), [3, 3], [2, 2], [1, 1], True, True), S(T(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], False, True, 3), S(T(1, 2, 4, 4, lay="cl"), [2, 2]), dtypes=FLOATS, err=[*e2, S(T(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], False, True, 0)])
    t.op("avg_pool3d", S(T(1, 1, 2, 2, 4), [2, 2, 2]), S(T(1, 1, 3, 3, 2), [2, 2, 2], [1, 1, 1], [1, 1, 1], False, False), S(T(1, 3, 2, 2), [2, 1, 2], [2, 1, 1], [0, 0, 0], True), S(T(1, 1, 2, 2, 2), [2, 2, 2], [1, 1, 1], [1, 1, 1], False, True, 5), dtypes=FLOATS)
    t.op("avg_pool2d_backward", S(T(1, 1, 2, 2), T(1, 1, 4, 4, grad=False), [2, 2], [2, 2], [0, 0], False, True, None), S(T(1, 1, 2, 2), T(1, 1, 4, 4, grad=False), [3, 3], [2, 2], [1, 1], False, False, None), dtypes=FLOATS)
    t.op("adaptive_avg_pool1d", S(T(1, 2, 5), [2]), S(T(2, 4), [3]), S(T(1, 1, 3), [5]), dtypes=FLOATS, err=[S(T(5), [2])])
    t.op("adaptive_avg_pool2d _adaptive_avg_pool2d", S(T(1, 2, 4, 5), [2, 2]), S(T(2, 3, 4), [1, 1]), S(T(1, 1, 3, 5), [2, 3]), S(T(1, 1, 2, 2), [3, 3]), S(T(1, 2, 4, 4, lay="cl"), [2, 1]), dtypes=FLOATS, err=[S(T(4, 4), [2, 2]), S(T(1, 1, 4, 4), [2])])
    t.op("adaptive_avg_pool3d _adaptive_avg_pool3d", S(T(1, 1, 2, 3, 4), [1, 2, 2]), S(T(1, 2, 2, 3), [1, 1, 1]), dtypes=FLOATS)
    t.op("_adaptive_avg_pool2d_backward", S(T(1, 1, 2, 2), T(1, 1, 4, 5, grad=False)), S(T(1, 2, 1, 1), T(1, 2, 3, 2, grad=False)), dtypes=ONE)
    t.op("_adaptive_avg_pool3d_backward", S(T(1, 1, 1, 2, 2), T(1, 1, 2, 3, 4, grad=False)), dtypes=ONE)
    t.op("adaptive_max_pool1d", S(T(1, 2, 5), [2]), dtypes=ONE)
    t.op("adaptive_max_pool2d", S(T(1, 2, 4, 5), [2, 2]), S(T(2, 3, 4), [1, 1]), S(T(1, 1, 3, 5), [2, 3]), dtypes=FLOATS, err=[S(T(4, 4), [2, 2])])
    t.op("adaptive_max_pool3d", S(T(1, 1, 2, 3, 4), [1, 2, 2]), dtypes=ONE)

    # resampling
    t.op("upsample_nearest1d", S(T(1, 2, 3), [5]), S(T(1, 1, 4), [3]), S(T(1, 1, 3), [6], 2.0), dtypes=FLOATS, err=[S(T(2, 3), [5]), S(T(1, 1, 3), [0])])
    t.op("upsample_nearest1d.vec", S(T(1, 2, 3), [5], None), S(T(1, 2, 3), None, [2.0]), S(T(1, 1, 3), None, [1.7]), dtypes=ONE, err=[S(T(1, 1, 3), None, None), S(T(1, 1, 3), [6], [2.0])])
    t.op("upsample_nearest2d", S(T(1, 1, 2, 3), [4, 5]), S(T(1, 2, 3, 3), [2, 2]), S(T(1, 1, 2, 2), [4, 4], 2.0, 2.0), S(T(1, 2, 2, 2, lay="cl"), [4, 4]), dtypes=FLOATS, err=[S(T(1, 2, 3), [5, 5])])
    t.op("upsample_nearest2d.vec", S(T(1, 1, 2, 3), [4, 5], None), S(T(1, 1, 2, 2), None, [2.0, 1.5]), dtypes=ONE)
    t.op("_upsample_nearest_exact2d", S(T(1, 1, 2, 3), [4, 5]), S(T(1, 1, 4, 4), [3, 2]), dtypes=ONE)
    t.op("_upsample_nearest_exact1d", S(T(1, 1, 3), [5]), dtypes=ONE)
    t.op("upsample_nearest3d", S(T(1, 1, 2, 2, 2), [3, 4, 2]), dtypes=ONE)
    t.op("upsample_nearest3d.vec", S(T(1, 1, 2, 2, 2), None, [2.0, 1.0, 1.5]), dtypes=ONE)
    for corners in (False, True):
        t.op("upsample_linear1d", S(T(1, 2, 3), [5], corners), S(T(1, 1, 4), [2], corners), S(T(1, 1, 3), [1], corners), S(T(1, 1, 3), [5], corners, 1.7), dtypes=FLOATS)
        t.op("upsample_linear1d.vec", S(T(1, 2, 3), None, corners, [2.0]), dtypes=ONE)
        t.op("upsample_bilinear2d", S(T(1, 1, 2, 3), [4, 5], corners), S(T(1, 2, 3, 3), [2, 2], corners), S(T(1, 1, 2, 2), [3, 3], corners, 1.6, 1.4), S(T(1, 2, 2, 2, lay="cl"), [3, 3], corners), S(T(1, 1, 3, 3), [1, 1], corners), dtypes=FLOATS, err=[S(T(1, 2, 3), [5, 5], corners), S(T(1, 1, 2, 2), [0, 2], corners)])
        t.op("upsample_bilinear2d.vec", S(T(1, 1, 2, 3), [4, 5], corners, None), S(T(1, 1, 2, 2), None, corners, [2.0, 1.5]), dtypes=ONE, err=[S(T(1, 1, 2, 2), None, corners, None)])
        t.op("upsample_bicubic2d", S(T(1, 1, 3, 3), [4, 5], corners), S(T(1, 1, 4, 4), [2, 3], corners), dtypes=ONE)
        t.op("upsample_bicubic2d.vec", S(T(1, 1, 2, 2), None, corners, [2.0, 1.5]), dtypes=[])
        t.op("upsample_trilinear3d", S(T(1, 1, 2, 2, 2), [3, 3, 2], corners), dtypes=ONE)
        t.op("upsample_trilinear3d.vec", S(T(1, 1, 2, 2, 2), None, corners, [1.5, 1.0, 1.5]), dtypes=[])
        t.op("affine_grid_generator", S(T(1, 2, 3), [1, 1, 2, 3], corners), S(T(1, 3, 4), [1, 1, 2, 1, 2], corners), dtypes=ONE)
    t.op("_upsample_bilinear2d_aa", S(T(1, 1, 4, 4), [2, 3], False), dtypes=ONE)
    t.op("upsample_nearest2d_backward", S(T(1, 1, 4, 5), [4, 5], [1, 1, 2, 3]), dtypes=ONE, nc=False)
    t.op("upsample_bilinear2d_backward", S(T(1, 1, 4, 5), [4, 5], [1, 1, 2, 3], False), dtypes=ONE, nc=False)
    grid = T(1, 2, 3, 2, lo=-0.9, hi=0.9)
    for interp in (0, 1, 2):
        for pad in (0, 1, 2):
            far = T(1, 2, 2, 2, lo=-1.9, hi=1.9)
            t.op("grid_sampler_2d", S(T(1, 1, 3, 4), far, interp, pad, False), S(T(1, 2, 3, 3), far, interp, pad, True), dtypes=ONE if interp == pad == 0 else [], nc=interp == 0)
    t.op("grid_sampler", S(T(1, 2, 3, 3), grid, 0, 0, False), S(T(1, 1, 3, 3), grid, 0, 0, True), S(T(1, 1, 2, 2, 2), T(1, 1, 2, 2, 3, lo=-0.9, hi=0.9), 0, 1, False), dtypes=ONE, err=[S(T(1, 1, 3, 3), T(1, 2, 2, 3), 0, 0, False), S(T(2, 1, 3, 3), T(1, 2, 2, 2), 0, 0, False), S(T(3, 3), T(1, 2, 2, 2), 0, 0, False)])
    t.op("grid_sampler_3d", S(T(1, 1, 2, 2, 2), T(1, 1, 2, 2, 3, lo=-0.9, hi=0.9), 0, 0, False), S(T(1, 1, 2, 2, 2), T(1, 1, 2, 2, 3, lo=-0.9, hi=0.9), 1, 1, True), *[S(T(1, 2, 3, 2, 4), T(1, 1, 2, 2, 3, lo=-1.3, hi=1.3), 2, padding, corners) for padding in (0, 1, 2) for corners in (False, True)], dtypes=ONE)
    t.op("grid_sampler_2d_backward", S(T(1, 1, 2, 3), T(1, 1, 3, 3), grid, 0, 0, False, [True, True]), S(T(1, 1, 2, 3), T(1, 1, 3, 3), grid, 0, 1, True, [True, True]), S(T(1, 1, 2, 3), T(1, 1, 3, 3), grid, 1, 0, False, [True, True]), grad=False, dtypes=ONE, nc=False)

    # gradients as ops of their own, and the rest of their families
    t.op("grid_sampler_3d_backward", S(T(1, 1, 1, 2, 2), T(1, 1, 2, 2, 2), T(1, 1, 2, 2, 3, lo=-0.9, hi=0.9), 0, 0, False, [True, True]), grad=False, dtypes=ONE, nc=False)
    t.op("max_pool3d_with_indices_backward", S(T(1, 1, 1, 1, 2), T(1, 1, 2, 2, 4, grad=False), [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, X([[[[[0, 11]]]]])), dtypes=ONE, nc=False)
    t.op("avg_pool3d_backward", S(T(1, 1, 1, 1, 2), T(1, 1, 2, 2, 4, grad=False), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None), dtypes=ONE, nc=False)
    t.op("adaptive_max_pool2d_backward", S(T(1, 1, 1, 2), T(1, 1, 3, 4, grad=False), X([[[[4, 11]]]])), dtypes=ONE, nc=False)
    t.op("adaptive_max_pool3d_backward", S(T(1, 1, 1, 1, 2), T(1, 1, 2, 2, 3, grad=False), X([[[[[4, 11]]]]])), dtypes=ONE, nc=False)
    t.op("upsample_nearest1d_backward _upsample_nearest_exact1d_backward", S(T(1, 1, 5), [5], [1, 1, 3]), dtypes=ONE, nc=False)
    t.op("upsample_nearest3d_backward _upsample_nearest_exact3d_backward", S(T(1, 1, 3, 4, 2), [3, 4, 2], [1, 1, 2, 2, 2]), dtypes=ONE, nc=False)
    t.op("_upsample_nearest_exact2d_backward", S(T(1, 1, 4, 5), [4, 5], [1, 1, 2, 3]), dtypes=ONE, nc=False)
    t.op("upsample_linear1d_backward", S(T(1, 1, 5), [5], [1, 1, 3], False), dtypes=ONE, nc=False)
    t.op("upsample_bicubic2d_backward", S(T(1, 1, 4, 5), [4, 5], [1, 1, 2, 3], False), dtypes=ONE, nc=False)
    t.op("upsample_trilinear3d_backward", S(T(1, 1, 3, 3, 2), [3, 3, 2], [1, 1, 2, 2, 2], True), dtypes=ONE, nc=False)
    t.op("_upsample_nearest_exact3d", S(T(1, 1, 2, 2, 2), [3, 4, 2]), dtypes=ONE)
    t.op("_upsample_nearest_exact1d.vec", S(T(1, 1, 3), None, [1.7]), dtypes=ONE)
    t.op("_upsample_nearest_exact2d.vec", S(T(1, 1, 2, 2), None, [2.0, 1.5]), dtypes=ONE)
    t.op("_upsample_nearest_exact3d.vec", S(T(1, 1, 2, 2, 2), None, [2.0, 1.0, 1.5]), dtypes=ONE)
