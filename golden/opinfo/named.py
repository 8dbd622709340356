"""Ops that programs and other ops call by name: gradients as ops, parts of layers, facts about tensors, second spellings with other arguments."""

import torch

from .base import B, I, S, T, X, Z, bf16, c128, f16, f32, f64, i16, i32, i64, i8, u8

INF, NAN = float("inf"), float("nan")
ONE = [f32]
PLAIN = dict(dtypes=[], nc=False)
FACT = dict(dtypes=[], nc=False, grad=False)


def P(*shape, **more):
    """Numbers well inside (0, 1)."""
    return T(*shape, lo=0.2, hi=0.8, **more)


def samples(t):
    gradients(t)
    layers(t)
    quantized(t)
    sequences(t)
    statistics(t)
    numbers(t)
    memory(t)
    reductions(t)
    factories(t)
    lists(t)
    facts(t)


def gradients(t):
    g = lambda *s: T(*s)
    t.op("logit_backward", S(g(2, 3), P(2, 3)), S(g(3), P(3), 0.3), S(g(3), P(3, dt=f32), grad=False), dtypes=ONE)
    t.op("infinitely_differentiable_gelu_backward", S(g(2, 3), T(2, 3)), dtypes=ONE)
    t.op("glu_jvp", S(g(2, 2), T(2, 4), T(2, 4), 1), S(g(1, 3), T(2, 3), T(2, 3), 0), dtypes=ONE)
    x, up = torch.tensor([[0.5, -1.0, 0.25, 1.5], [1.0, 0.75, -0.5, 2.0]], dtype=f64), torch.tensor([[1.0, -0.5], [0.25, 2.0]], dtype=f64)
    back = torch.ops.aten.glu_backward(up, x, -1)
    t.op("glu_backward_jvp", S(X(back.tolist(), grad=False), X(up.tolist(), grad=False), X(x.tolist(), grad=False), T(2, 2), T(2, 4), -1), **PLAIN, grad=False)
    t.op("rrelu_with_noise_backward", S(g(2, 3), T(2, 3, grad=False), P(2, 3, grad=False), 0.1, 0.3, True, False), S(g(2, 3), T(2, 3, grad=False), P(2, 3, grad=False), 0.1, 0.3, False, False), S(g(3), P(3, grad=False), P(3, grad=False), 0.25, 0.25, True, False), dtypes=ONE)
    t.op("_prelu_kernel_backward", S(g(2, 3), T(2, 3), P(2, 3)), dtypes=ONE)
    mask = X([[True, False, False], [False, True, False]])
    t.op("_masked_softmax", S(T(2, 3), mask, 1, 2), S(T(2, 2, 3, 3), X([[False, True, False], [True, False, False]]), 3, 1, grad=False), S(T(2, 2, 3, 3), X([[False, True, False]] * 3), 3, 0, grad=False), **PLAIN, tags=("no_gradcheck",))
    t.op("_masked_softmax_backward", S(g(2, 3), P(2, 3), mask, 1), **PLAIN, grad=False)
    sign = X([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], grad=False)
    t.op("soft_margin_loss_backward", S(T(2, 3), T(2, 3), sign, 0), S(T(), T(2, 3), sign, 1), S(T(), T(2, 3), sign, 2), dtypes=ONE)
    few = dict(dtypes=ONE, nc=False, grad=False)
    t.op("multi_margin_loss_backward", S(T(), T(2, 4), X([1, 3]), 1, 1.0, None, 1), S(T(2), T(2, 4), X([0, 2]), 2, 0.7, None, 0), S(T(), T(2, 4), X([0, 2]), 1, 1.0, P(4), 2), S(T(), T(4), X(2), 1, 1.0), **few)
    rows = X([[1, 3, -1, 0], [0, -1, 2, 1]])
    t.op("multilabel_margin_loss_forward", S(T(2, 4), rows, 0), S(T(2, 4), rows, 1), S(T(4), X([2, 0, -1, 1]), 2), dtypes=ONE, nc=False)
    hit = X([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]], grad=False)
    t.op("multilabel_margin_loss_backward", S(T(2), T(2, 4), rows, 0, hit), S(T(), T(2, 4), rows, 1, hit), S(T(), T(2, 4), rows, 2, hit), **few)
    for p in (1.0, 2.0, 3.0, 1.5, INF):
        distance = float(torch.dist(torch.tensor([0.5, 2.0], dtype=f64), torch.tensor([1.5, -1.0], dtype=f64), p))
        t.op("_cdist_backward", S(T(1, 1), X([[0.5, 2.0]]), X([[1.5, -1.0]]), p, X([[distance]], grad=False)), **PLAIN, grad=False)
        t.op("_pdist_backward", S(T(1), X([[0.5, 2.0], [1.5, -1.0]]), p, X([distance], grad=False)), **PLAIN, grad=False)
    t.op("_euclidean_dist", S(T(2, 3), T(4, 3)), S(T(2, 2, 3), T(2, 3, 3)), dtypes=ONE)
    places = X([[[[1, 2], [5, 10]]]])
    t.op("fractional_max_pool2d_backward", S(T(1, 1, 2, 2), T(1, 1, 3, 4, grad=False), [2, 2], [2, 2], places), dtypes=ONE, nc=False)
    t.op("fractional_max_pool3d_backward", S(T(1, 1, 1, 2, 2), T(1, 1, 2, 3, 3, grad=False), [2, 2, 2], [1, 2, 2], X([[[[[0, 1], [4, 17]]]]])), dtypes=ONE, nc=False)
    t.op("cummaxmin_backward", S(T(2, 3), T(2, 3), X([[0, 0, 2], [0, 1, 1]]), 1), dtypes=ONE, nc=False)
    t.op("cumprod_backward", S(T(2, 3), X([[0.5, 2.0, -1.0], [1.5, 0.25, 3.0]]), 1, X([[0.5, 1.0, -1.0], [1.5, 0.375, 1.125]], grad=False)), **PLAIN, grad=False)
    t.op("value_selecting_reduction_backward", S(T(2), 1, X([2, 0]), [2, 3], False), S(T(2, 1), 1, X([[2], [0]]), [2, 3], True), **PLAIN)
    t.op("trace_backward", S(T(), [3, 2]), **PLAIN, err=[S(T(), [3])])
    t.op("masked_select_backward", S(T(3), T(2, 3), X([[True, False, True], [False, False, True]])), **PLAIN)
    t.op("masked_scatter_backward", S(T(2, 3), X([[True, False, True], [False, False, True]]), [4]), S(T(2, 3), X([[True, False, True], [False, False, True]]), [2, 2]), **PLAIN)
    t.op("gather_backward", S(T(2, 2), T(2, 3), 1, X([[0, 2], [1, 1]]), False), **PLAIN)
    t.op("embedding_backward", S(T(3, 2), X([1, 0, 1]), 4, -1, False, False), S(T(3, 2), X([1, 0, 1]), 4, 0, True, False), **PLAIN)
    v = X([[0.5, 1.0, -1.0], [2.0, 0.25, 0.5]])
    norms = X([[1.5], [2.0766559657295187]], grad=False)
    t.op("_weight_norm_interface_backward", S(T(2, 3), v, P(2, 1), norms, 0), **PLAIN, grad=False)
    t.op("_weight_norm_differentiable_backward", S(T(2, 3), v, P(2, 1), norms, 0), **PLAIN, grad=False)
    t.op("matrix_exp_backward", S(T(2, 2), T(2, 2)), **PLAIN)
    t.op("affine_grid_generator_backward", S(T(1, 2, 3, 2), [1, 1, 2, 3], False), S(T(1, 2, 3, 2), [1, 1, 2, 3], True), S(T(1, 2, 2, 3, 3), [1, 1, 2, 2, 3], False), **PLAIN)
    for name in ("bilinear", "bicubic", "lanczos"):
        t.op(f"_upsample_{name}2d_aa_backward", S(T(1, 1, 2, 3), [2, 3], [1, 1, 4, 5], False), S(T(1, 2, 3, 3), [3, 3], [1, 2, 5, 4], False), dtypes=ONE, nc=False)
    t.op("_upsample_lanczos2d_aa", S(T(1, 1, 7, 8), [2, 3], False), S(T(1, 1, 6, 6), [9, 4], False), dtypes=ONE, nc=False)
    t.op("_upsample_lanczos2d_aa.vec", S(T(1, 1, 7, 8), [2, 3], False, None), S(T(1, 1, 6, 6), None, False, [0.5, 1.5]), **PLAIN)
    x, w = T(1, 2, 4, 4), T(3, 2, 2, 2)
    t.op("_convolution_double_backward", S(T(1, 2, 4, 4), T(3, 2, 2, 2), T(3), T(1, 3, 3, 3), w, x, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]), S(T(1, 2, 4, 4), None, None, T(1, 3, 3, 3), w, x, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, True]), **PLAIN)
    t.op("batch_norm_backward", S(T(3, 2), T(3, 2), P(2), T(2, grad=False), P(2, grad=False), T(2, grad=False), P(2, grad=False), False, 1e-5, [True, True, True], X([], dt=u8)), **PLAIN, grad=False)
    indices, offsets, bags = X([1, 3, 0, 3, 2]), X([0, 2]), X([0, 0, 1, 1, 1])
    sizes, none = X([2, 3]), X([0, 0])
    for mode in (0, 1):
        t.op("_embedding_bag_dense_backward", S(T(2, 3), indices, bags, sizes, none, 4, False, mode, None), S(T(2, 3), indices, bags, sizes, none, 4, True, mode, None, 3), **FACT)
    t.op("_embedding_bag_dense_backward", S(T(2, 3), indices, bags, sizes, none, 4, False, 0, P(5)), S(T(2, 3), indices, bags, sizes, X([[1, 3, 3], [2, 0, 3]]), 4, False, 2, None), **FACT)
    t.op("_embedding_bag_per_sample_weights_backward", S(T(2, 3), T(4, 3), indices, offsets, bags, 0), S(T(2, 3), T(4, 3), indices, offsets, bags, 0, 3), **FACT)
    t.op("_slow_conv2d_backward.output_mask", S(T(1, 3, 3, 3), x, w, [2, 2], [1, 1], [0, 0], [True, True, True]), **PLAIN)
    grid = T(1, 2, 2, 2, lo=-0.9, hi=0.9, dt=f32)
    t.op("_grid_sampler_2d_cpu_fallback_backward", S(T(1, 1, 2, 2, dt=f32), T(1, 1, 3, 3, dt=f32), grid, 0, 0, False), **FACT)
    t.op("conv_tbc_backward", S(T(3, 2, 4), T(4, 2, 3), T(2, 3, 4), T(4), 0), **PLAIN)


def layers(t):
    t.op("conv_tbc", S(T(4, 2, 3), T(2, 3, 4), T(4), 0), S(T(4, 2, 3), T(3, 3, 2), T(2), 1), dtypes=ONE, err=[S(T(4, 2, 3), T(2, 2, 4), T(4))])
    x, w, b = T(1, 2, 4, 4), T(3, 2, 2, 2), T(3)
    t.op("_convolution.deprecated", S(x, w, b, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, False), **PLAIN)
    t.op("_convolution_mode", S(x, w, b, [1, 1], "same", [1, 1], 1), S(x, w, None, [2, 2], "valid", [1, 1], 1), **PLAIN, err=[S(x, w, b, [1, 1], "other", [1, 1], 1)])
    t.op("mkldnn_convolution", S(T(1, 2, 4, 4, dt=f32), T(3, 2, 2, 2, dt=f32), T(3, dt=f32), [0, 0], [1, 1], [1, 1], 1), **FACT)
    for name in ("_slow_conv2d_forward", "thnn_conv2d"):
        t.op(name, S(x, w, [2, 2], b, [1, 1], [0, 0]), S(x, w, [2, 2], None, [2, 2], [1, 1]), **PLAIN)
    for name in ("slow_conv3d", "slow_conv3d_forward"):
        t.op(name, S(T(1, 1, 3, 3, 3), T(2, 1, 2, 2, 2), [2, 2, 2], T(2), [1, 1, 1], [0, 0, 0]), **PLAIN)
    t.op("slow_conv_dilated2d", S(T(1, 2, 5, 5), w, [2, 2], b, [1, 1], [0, 0], [2, 2]), **PLAIN)
    t.op("slow_conv_dilated3d", S(T(1, 1, 4, 4, 4), T(2, 1, 2, 2, 2), [2, 2, 2], T(2), [1, 1, 1], [0, 0, 0], [2, 2, 2]), **PLAIN)
    t.op("slow_conv_transpose2d", S(T(1, 3, 3, 3), w, [2, 2], T(2), [2, 2], [0, 0], [1, 1]), **PLAIN)
    t.op("slow_conv_transpose3d", S(T(1, 2, 2, 2, 2), T(2, 1, 2, 2, 2), [2, 2, 2], T(1), [1, 1, 1]), **PLAIN)
    t.op("avg_pool2d", S(T(1, 2, 3, 3), [5, 5], [5, 5], [0, 0], True), S(T(1, 2, 3, 3), [5, 4], [3, 3], [1, 1], True, False), **PLAIN, err=[S(T(1, 2, 3, 3), [5, 5], [1, 1], [0, 0], True), S(T(1, 2, 3, 3), [5, 5], [5, 5], [0, 0], False)])
    t.op("max_pool2d_with_indices", S(T(1, 2, 3, 3), [5, 5], [5, 5], [0, 0], [1, 1], True), **PLAIN)
    q = lambda *s: T(*s, lo=-1.0, hi=1.0)
    t.op("scaled_dot_product_attention", S(q(1, 2, 3, 4), q(1, 2, 5, 4), q(1, 2, 5, 4), T(3, 5, grad=False)), **PLAIN)
    t.op("_scaled_dot_product_attention_math", S(q(1, 2, 3, 4), q(1, 2, 5, 4), q(1, 2, 5, 3)), S(q(1, 2, 3, 4), q(1, 2, 3, 4), q(1, 2, 3, 4), None, 0.0, True), S(q(1, 2, 3, 4), q(1, 2, 5, 4), q(1, 2, 5, 3), q(3, 5), scale=0.3), **PLAIN)
    t.op("_transform_bias_rescale_qkv", S(T(2, 3, 12), T(12), 2), **PLAIN, grad=False)
    t.op("_fused_rms_norm", S(T(2, 3), [3], P(3), 1e-5), S(T(2, 3, 2), [3, 2], None, None), **PLAIN)
    stats = [T(2, grad=False), P(2, grad=False)]
    t.op("_batch_norm_no_update", S(T(3, 2), P(2), T(2), *stats, 0.1, 1e-5, outs=1), **PLAIN)
    t.op("_new_zeros_with_same_feature_meta", S(T(2, 3), T(4)), **FACT)
    offs = X([1, 4], dt=i32)
    t.op("_grouped_mm", S(T(4, 8, dt=f32), T(2, 8, 8, dt=f32), offs), S(T(8, 4, dt=f32).but(lay="t"), T(4, 8, dt=f32), offs), S(T(2, 8, 8, dt=f32), T(8, 4, dt=f32).but(lay="t"), offs), S(T(2, 4, 8, dt=f32), T(2, 8, 8, dt=f32)), **FACT, err=[S(T(4, 8, dt=f32), T(3, 8, 8, dt=f32), offs)])
    t.op("_add_relu.Tensor", S(T(2, 3), T(2, 3), alpha=0.5), dtypes=ONE, grad=False)
    t.op("_add_relu.Scalar", S(T(2, 3), 0.51), dtypes=ONE, grad=False)
    t.op("_addmm_activation", S(T(3), T(2, 4), T(4, 3)), S(T(3), T(2, 4), T(4, 3), use_gelu=True), **PLAIN, grad=False)
    t.op("_int_mm", S(I(2, 8, lo=-5, hi=5, dt=i8), I(8, 8, lo=-5, hi=5, dt=i8)), **FACT)
    t.op("_compute_linear_combination", S(T(3, 2, 2), T(2, 3)), **PLAIN, grad=False)
    t.op("_cholesky_solve_helper", S(T(2, 1), X([[2.0, 0.0], [0.5, 1.5]]), False), **PLAIN, grad=False)
    a = X([[2.0, 0.5, 0.25], [0.5, 1.5, -0.5], [0.25, -0.5, 3.0]])
    t.op("linalg_matrix_sqrth", S(a), S(X([[2.0 + 0j, 0.5j], [-0.5j, 1.5 + 0j]])), S(X([[2.0, 0.0], [0.0, 2.0]])), **PLAIN, tags=("no_gradcheck",))
    t.op("linalg_polar", S(T(3, 3)), S(T(4, 2)), S(T(2, 3, 2)), S(Z(3, 2)), **PLAIN, err=[S(T(2, 3))])


def quantized(t):
    x = lambda *s: T(*s, lo=-3.0, hi=3.0)
    kink = dict(dtypes=[], nc=False, tags=("no_gradcheck",))
    t.op("fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask", S(x(2, 4), 0.3, 2, -5, 6), S(T(3, dt=f32, lo=-9, hi=9), 0.25, 0, 0, 15, grad=False), **kink, err=[S(x(2), 0.3, 20, -5, 6)])
    scale, zero = X([0.3], dt=f32, grad=False), X([2], dt=i32)
    t.op("fake_quantize_per_tensor_affine.tensor_qparams", S(T(2, 4, dt=f32), scale, zero, -5, 6), **FACT)
    t.op("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", S(T(2, 4, dt=f32, lo=-3, hi=3), scale, zero, X([1]), -5, 6), S(T(2, 4, dt=f32), scale, zero, X([0]), -5, 6), **FACT)
    channel = (X([0.3, 0.2], dt=f32, grad=False), X([2, 0], dt=i32), 0, -5, 6)
    t.op("fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask", S(T(2, 4, dt=f32, lo=-3, hi=3), *channel), **FACT)
    t.op("fake_quantize_per_tensor_affine_cachemask_backward fake_quantize_per_channel_affine_cachemask_backward", S(T(2, 3), X([[True, False, True], [True, True, False]])), **PLAIN)
    learned = (X([0.3], dt=f32, grad=False), X([2.0], dt=f32, grad=False), -5, 6)
    t.op("_fake_quantize_learnable_per_tensor_affine", S(T(2, 4, dt=f32, lo=-3, hi=3), *learned), S(T(2, 4, dt=f32, lo=-3, hi=3), *learned, 0.5), **FACT)
    t.op("_fake_quantize_learnable_per_tensor_affine_backward", S(T(2, 4, dt=f32), T(2, 4, dt=f32, lo=-3, hi=3), *learned, 0.5), **FACT)
    rows = (X([0.3, 0.2], dt=f32, grad=False), X([2.0, 0.0], dt=f32, grad=False), 0, -5, 6)
    t.op("_fake_quantize_learnable_per_channel_affine", S(T(2, 4, dt=f32, lo=-3, hi=3), *rows, 0.5), **FACT)
    t.op("_fake_quantize_learnable_per_channel_affine_backward", S(T(2, 4, dt=f32), T(2, 4, dt=f32, lo=-3, hi=3), *rows, 0.5), **FACT)


def sequences(t):
    lp = T(5, 2, 4, lo=-3.0, hi=-0.2)
    targets, flat = X([[1, 2, 2], [3, 1, 0]]), X([1, 2, 2, 3, 1])
    smooth = dict(dtypes=[], nc=False)
    for args in ((targets, [5, 4], [3, 2]), (flat, [5, 5], [3, 2]), (targets, [5, 3], [2, 0])):
        tensors = [X(a) if isinstance(a, list) else a for a in args]
        t.op("_ctc_loss", S(lp, *args, outs=1), **smooth)
        t.op("_ctc_loss.Tensor", S(lp, *tensors, outs=1), **smooth)
        t.op("ctc_loss.IntList", S(lp, *args, 0, 0), S(lp, *args, 0, 1), S(lp, *args, 0, 2), **smooth, tags=("no_gradcheck",))
        t.op("ctc_loss.Tensor", S(lp, *tensors, 0, 1), **smooth, tags=("no_gradcheck",))
    t.op("ctc_loss.IntList", S(T(2, 1, 3, lo=-3.0, hi=-0.2), X([[1, 1, 2]]), [2], [3], 0, 0, True), S(T(4, 3, lo=-3.0, hi=-0.2), X([1, 2]), [4], [2], 0, 0), **smooth, tags=("no_gradcheck",), err=[S(lp, targets, [6, 4], [3, 2])])
    known = torch.log_softmax(torch.tensor([[[0.5, 1.0, -1.0, 0.25], [1.5, 0.0, 0.5, -0.5]]] * 5, dtype=f64) * torch.arange(1, 6, dtype=f64).reshape(5, 1, 1), -1)
    for args in ((targets, [5, 4], [3, 2]), (flat, [5, 5], [3, 2])):
        loss, alpha = torch.ops.aten._ctc_loss(known, torch.tensor(args[0].data), *args[1:])
        written = lambda v: X(v.nan_to_num(nan=-INF).tolist(), grad=False)
        tensors = [X(a) if isinstance(a, list) else a for a in args]
        t.op("_ctc_loss_backward", S(T(2), written(known), *args, written(loss), written(alpha), 0), S(T(2), written(known), *args, written(loss), written(alpha), 0, True), **smooth, grad=False)
        t.op("_ctc_loss_backward.Tensor", S(T(2), written(known), *tensors, written(loss), written(alpha), 0), **smooth, grad=False)
    pack = (T(4, 3, 2), X([4, 2, 1]))
    t.op("_pack_padded_sequence", S(*pack, False), S(T(3, 4, 2), X([4, 2, 1]), True), **smooth, err=[S(T(4, 3, 2), X([1, 2, 4]), False)])
    t.op("_pack_padded_sequence_backward", S(T(7, 2), [4, 3, 2], X([3, 2, 1, 1]), False), S(T(7, 2), [3, 4, 2], X([3, 2, 1, 1]), True), **smooth)
    t.op("_pad_packed_sequence", S(T(7, 2), X([3, 2, 1, 1]), False, 0.0, -1), S(T(7, 2), X([3, 2, 1, 1]), True, 1.5, 6), **smooth)
    t.op("pad_sequence", S([T(3, 2), T(1, 2), T(2, 2)]), S([T(3), T(1)], True, 2.0), S([T(3), T(1)], True, 0.0, "left"), **smooth, err=[S([T(3), T(1)], True, 0.0, "middle")])
    t.op("flatten_dense_tensors", S([T(2, 3), T(4)]), **smooth)
    t.op("unflatten_dense_tensors", S(T(10), [T(2, 3, grad=False), T(4, grad=False)]), **smooth)
    t.op("_chunk_cat", S([T(3, 2), T(5, 2)], 0, 2), S([T(3, 2), T(3, 4)], -1, 2), S([T(2, 3), T(2, 4)], 1, 2), **smooth, grad=False)
    t.op("repeat_interleave.Tensor", S(X([2, 0, 3])), S(X([1, 2], dt=i32)), S(X([1, 2]), output_size=3), **FACT)
    t.op("segment_reduce", *[S(T(5), r, lengths=X([2, 0, 3])) for r in ("sum", "max", "min", "prod")], S(T(5), "mean", lengths=X([2, 3])), *[S(T(5, 2), r, offsets=X([0, 2, 5]), initial=0.51) for r in ("sum", "mean", "max", "min", "prod")], S(T(2, 4, 3), "sum", lengths=X([[1, 3], [2, 2]]), axis=1), S(T(5), "sum", lengths=X([1, 2]), unsafe=True, grad=False), dtypes=ONE, nc=False, tags=("no_gradcheck",), err=[S(T(5), "sum", lengths=X([1, 2])), S(T(5), "other", lengths=X([2, 3])), S(T(5), "sum")])
    t.op("_segment_reduce_backward", S(T(2), T(2), T(5), "sum", lengths=X([2, 3])), S(T(2), T(2), T(5), "mean", lengths=X([2, 3])), S(T(2), X([1.5, 2.5]), X([1.5, 1.5, 2.5, 0.5, 2.0]), "max", lengths=X([2, 3])), S(T(2), X([3.0, 3.0]), X([1.5, 2.0, 1.0, 3.0, 1.0]), "prod", lengths=X([2, 3])), **FACT)


def statistics(t):
    few = dict(dtypes=ONE, nc=False, grad=False)
    t.op("histogram.bin_ct", S(T(9), 4), S(T(3, 3), 3, range=[-1.0, 1.0]), S(T(6), 3, weight=P(6)), S(T(6), 3, density=True), S(X([1.0, 1.0], grad=False), 2), **few, err=[S(T(3), 0), S(T(3), 2, range=[1.0, -1.0])])
    edges = X([-1.5, -0.25, 0.5, 2.0], grad=False)
    t.op("histogram.bins_tensor", S(T(9), edges), S(T(9), edges, density=True), S(T(6), edges, weight=P(6)), **few)
    points = T(7, 2)
    t.op("histogramdd", S(points, [2, 3]), S(points, [2, 3], range=[-1.0, 1.0, -2.0, 2.0], weight=P(7), density=True), **few, err=[S(points, [2, 3, 4]), S(points, [2, 3], range=[-1.0, 1.0])])
    t.op("histogramdd.int_bins", S(points, 3), S(points, 2, range=[-1.0, 1.0, -2.0, 2.0]), **few)
    t.op("histogramdd.TensorList_bins", S(points, [edges, X([-2.0, 0.0, 2.0], grad=False)], density=True), **few)
    t.op("_histogramdd_bin_edges", S(points, [2, 3]), S(points, [2, 3], range=[-1.0, 1.0, -2.0, 2.0]), **few)
    t.op("_histogramdd_from_bin_cts", S(points, [2, 3]), S(points, [2, 3], range=[-1.0, 1.0, -2.0, 2.0], weight=P(7), density=True), **few)
    t.op("_histogramdd_from_bin_tensors", S(points, [edges, X([-2.0, 0.0, 2.0], grad=False)]), **few)
    t.op("gradient.scalarint", S(T(4, 3)), S(T(4, 3), spacing=0.5, dim=0), S(T(4, 3), dim=1, edge_order=2), S(I(5), grad=False), dtypes=ONE, err=[S(T(1)), S(T(4), edge_order=3)])
    t.op("gradient.scalararray", S(T(4, 3), spacing=0.5, dim=[0, 1]), **PLAIN)
    t.op("gradient.array", S(T(4, 3), dim=[1, 0]), **PLAIN)
    t.op("gradient.scalarrayint", S(T(4, 3), spacing=[0.5, 2.0]), **PLAIN)
    t.op("gradient.scalarrayarray", S(T(4, 3), spacing=[0.5, 2.0], dim=[1, 0], edge_order=2), **PLAIN)
    places = X([0.0, 0.5, 2.0, 2.5], grad=False)
    t.op("gradient.tensorarrayint", S(T(4, 3), spacing=[places], dim=0), S(T(4, 3), spacing=[places], dim=0, edge_order=2), **PLAIN)
    t.op("gradient.tensorarray", S(T(4, 3), spacing=[places, X([0.0, 1.0, 1.5], grad=False)], dim=[0, 1]), **PLAIN)
    random = dict(dtypes=ONE, nc=False, tags=("random",), grad=False)
    t.op("poisson", S(T(2, 3, lo=0.5, hi=20)), S(X([0.0, 100.0], grad=False)), **random, err=[S(X([-1.0], grad=False))])
    t.op("binomial", S(X([10.0, 100.0], grad=False), P(2)), S(X([10.0], grad=False), P(3)), **random)
    t.op("_standard_gamma", S(T(2, 3, lo=0.2, hi=10)), **random)
    t.op("_sample_dirichlet", S(T(2, 3, lo=0.2, hi=10)), **random)
    t.op("_standard_gamma_grad", S(X([0.5, 0.5, 2.0, 4.0, 9.0, 9.0, 9.0, 30.0], grad=False), X([0.01, 0.3, 1.5, 9.0, 9.1, 5.0, 20.0, 12.0], grad=False)), **few)


def numbers(t):
    ints = dict(dtypes=[], nc=True)
    t.op("gcd lcm", S(I(2, 3, lo=-20, hi=20), I(2, 3, lo=-20, hi=20)), S(I(2, 3, lo=0, hi=20), I(3, lo=0, hi=20)), S(X([0, 0, -4, 12]), X([0, 5, 6, -18])), S(I(4, lo=0, hi=20, dt=u8), I(4, lo=1, hi=20, dt=u8)), S(I(4, lo=0, hi=9, dt=i8), I(4, lo=0, hi=9, dt=i32)), S(I(3, dt=i16), I(3)), **ints, err=[S(T(3), T(3)), S(B(2), B(2)), S(I(2), I(3))])
    edge = [X([0.0, -0.0, 1.0, INF, NAN, 1.0, -1.0, 2.0], grad=False), X([1.0, 1.0, INF, 0.0, 1.0, NAN, 1.0, 2.0], grad=False)]
    t.op("nextafter", S(T(2, 3), T(2, 3), tags=("no_gradcheck",)), S(T(2, 3), T(3), tags=("no_gradcheck",)), S(*edge, grad=False), dtypes=[f32, bf16], err=[S(I(2), I(2))])
    t.op("frexp.Tensor", S(T(2, 3)), S(X([0.0, -0.0, 1.0, 0.75, -8.0, 1e-310, 1e300], grad=False)), S(T(3, lay="step")), dtypes=[f32, f16, bf16], err=[S(I(3))])


def memory(t):
    t.op("view.dtype", S(T(2, 4, dt=f32), i32), S(T(2, 4, dt=f32), f64), S(T(2, 4, dt=f32), i16), S(T(2, 4), torch.complex128), S(I(3), f64), S(Z(2), f64), S(T(), i64), S(T(2, 3, dt=f32).but(lay="rev"), i32), **FACT, err=[S(T(2, 3, dt=f32), f64), S(T(dt=f32), f64), S(T(4, 4, dt=f32).but(lay="t"), f64)])
    t.op("view_copy.dtype", S(T(2, 4, dt=f32), i32), **FACT)
    t.op("unsafe_split_with_sizes", S(T(5, 2), [2, 3]), S(T(2, 5), [1, 4], 1), S(Z(4), [1, 3]), dtypes=ONE, err=[S(T(5), [2, 2])])
    t.op("_lazy_clone", S(T(2, 3)), dtypes=ONE)
    t.op("_reshape_alias _reshape_alias_copy", S(T(2, 3), [3, 2], [2, 1]), **PLAIN)
    t.op("_reshape_copy", S(T(2, 3), [3, 2]), S(T(2, 3), [-1]), dtypes=ONE)
    t.op("view_as_real_copy", S(Z(2, 3)), **PLAIN)
    t.op("view_as_complex_copy", S(T(3, 2)), **FACT)
    t.op("_conj_copy", S(Z(2, 3)), **FACT)
    t.op("_pad_circular", S(T(1, 1, 4), [1, 2]), **PLAIN)
    t.op("_pad_enum", S(T(1, 1, 4), [1, 2], 0), S(T(1, 1, 4), [1, 2], 1), S(T(1, 1, 4), [1, 2], 2), S(T(1, 1, 4), [1, 2], 3, 0.5), **PLAIN)
    t.op("narrow.Tensor", S(T(4, 3), 0, X(1), 2), **PLAIN, err=[S(T(4), 0, X(3), 2), S(T(4), 0, X(True), 2), S(T(4), 0, X([1]), 2)])
    t.op("tensor_split.tensor_indices_or_sections", S(T(5, 2), X(2)), S(T(5, 2), X([1, 3])), **PLAIN)
    t.op("_reshape_from_tensor", S(T(2, 3), X([3, 2])), **PLAIN)
    t.op("_dim_arange", S(T(2, 3), 1), **FACT)
    t.op("squeeze_.dims", S(T(2, 1, 3, 1), [1]), S(T(2, 1, 3, 1), [1, -1]), S(T(2, 3), [0]), **PLAIN)
    t.op("as_strided_", S(T(6), [2, 3], [3, 1]), S(T(6), [2, 2], [1, 2], 1), **PLAIN)
    t.op("swapaxes_ swapdims_", S(T(2, 3), 0, 1), S(T(2, 3, 2), 0, -1), **PLAIN)
    t.op("resize_", S(T(2, 3), [3, 2]), S(T(2, 3), [4]), S(T(6), [2, 2]), **FACT, err=[S(T(2), [-1])])
    t.op("resize_as_", S(T(2, 3), T(3, 2)), S(T(2, 3), I(4)), **FACT)
    t.op("set_.source_Tensor", S(T(2, 3), T(4)), **FACT)
    t.op("set_.source_Tensor_storage_offset", S(T(2, 3), T(6), 1, [2, 2], [1, 2]), S(T(2, 3), T(6), 2, [3]), **FACT)
    t.op("set_", S(T(2, 3)), **FACT)
    t.op("_index_put_impl_", S(T(4, 2), [X([0, 2])], T(2, 2)), S(T(4), [X([0, 0])], T(2), True), S(T(4), [X([0, 1])], T(2), False, True), **PLAIN)


def reductions(t):
    t.op("_is_all_true _is_any_true", S(X([True, False])), S(X([True, True])), S(B(2, 3)), **FACT, err=[S(I(2))])
    t.op("polygamma_", S(T(2, 3, lo=0.5, hi=3.0), 1), S(T(3, lo=0.5, hi=3.0), 2), **PLAIN)
    t.op("_aminmax", S(T(2, 3)), **PLAIN, grad=False)
    t.op("_aminmax.dim", S(T(2, 3), 1), S(T(2, 3), 0, True), **PLAIN, grad=False)
    t.op("norm.ScalarOpt_dtype", S(T(2, 3), 3.0, dtype=f64), S(T(2, 3, dt=f32), None, dtype=f64, grad=False), **PLAIN)
    t.op("norm.ScalarOpt_dim_dtype", S(T(2, 3), 3.0, [1], False, dtype=f64), S(T(2, 3), None, [0, 1], True, dtype=f64), **PLAIN)
    t.op("frobenius_norm.dim", S(T(2, 3), [1]), S(T(2, 3, 2), [0, 2], True), **PLAIN)
    t.op("nuclear_norm", S(T(2, 3)), S(T(2, 3), True), **PLAIN)
    t.op("nuclear_norm.dim", S(T(2, 3, 2), [0, 2]), **PLAIN)
    t.op("norm_except_dim", S(T(2, 3, 2), 2, 0), S(T(2, 3), 2, 1), S(T(2, 3), 2, -1), **PLAIN)
    t.op("linalg__powsum", S(T(2, 3), 3.0), S(T(2, 3), 2, [1], True), **PLAIN, grad=False)
    two = [T(2, 3), T(4)]
    t.op("_foreach_norm.Scalar", S(two), S(two, 1.0), S(two, INF), **PLAIN)
    t.op("_foreach_powsum.Scalar", S(two), S(two, 3.0), **PLAIN, grad=False)
    t.op("_linalg_check_errors", S(X([0, 0], dt=i32), "linalg.inv", is_matrix=False, outs=0), **FACT, err=[S(X([0, 2], dt=i32), "linalg.inv", is_matrix=False)])


def factories(t):
    few = dict(dtypes=[], nc=False, grad=False)
    for name in ("bartlett", "blackman", "hamming", "kaiser"):
        t.op(f"{name}_window", S(6), S(1), S(0), S(5, dtype=f64), **few, err=[S(-1), S(3, dtype=i64)])
        t.op(f"{name}_window.periodic", S(6, False), S(6, True, dtype=f64), S(2, False), S(1, False), **few)
    t.op("hamming_window.periodic_alpha", S(6, False, 0.6), **few)
    t.op("hamming_window.periodic_alpha_beta", S(6, True, 0.6, 0.3), **few)
    t.op("kaiser_window.beta", S(6, False, 5.0), S(6, True, 0.0, dtype=f64), **few)
    for name in ("linspace", "logspace"):
        t.op(f"{name}.Tensor_Tensor", S(X(0.5, grad=False), X(2.0, grad=False), 4), S(X(1), X(3), 3, dtype=f64), **few, err=[S(X([0.5], grad=False), X(2.0, grad=False), 4)])
        t.op(f"{name}.Tensor_Scalar", S(X(0.5, grad=False), 2.0, 4), **few)
        t.op(f"{name}.Scalar_Tensor", S(0.5, X(2.0, grad=False), 4, dtype=f64), **few)
    t.op("range", S(1, 4), S(0.5, 3.0), S(1, 4, dtype=i64), **few, err=[S(4, 1)])
    t.op("range.step", S(1, 8, 3), S(0.5, 2.0, 0.25), S(4, 1, -1), **few, err=[S(1, 4, 0)])
    t.op("vander", S(T(3)), S(T(3), 2), S(T(3), 4, True), S(I(3), grad=False), S(Z(3), 3), dtypes=ONE, grad=False, err=[S(T(2, 2))])
    random = dict(few, tags=("random",))
    t.op("rand.generator randn.generator", S([2, 3], generator=None), S([3], generator=None, dtype=f64), **random)
    t.op("randperm.generator", S(5, generator=None), **random)
    t.op("randint.generator", S(5, [2, 3], generator=None), **random)
    t.op("randint.low_generator", S(2, 5, [2, 3], generator=None), **random)
    t.op("rand_like.generator randn_like.generator", S(T(2, 3), generator=None), **random)
    t.op("randint_like.generator", S(T(2, 3), 5, generator=None), **random)
    t.op("randint_like.low_generator_dtype", S(T(2, 3), 2, 5, generator=None), **random)
    t.op("randint_like.Tensor", S(T(2, 3), X(5)), **random)
    t.op("randint_like.Tensor_generator", S(T(2, 3), X(5), generator=None), **random)


def lists(t):
    few = dict(dtypes=[], nc=False, grad=False)
    a, b, c = [T(2, 3), T(4)], [T(2, 3), T(4)], [P(2, 3), P(4)]
    for name in ("addcmul", "addcdiv"):
        for form in ("", "_"):
            t.op(f"_foreach_{name}{form}.Tensor", S(a, b, c, X([0.5, 2.0], grad=False)), **few, err=[S(a, b, c, X([0.5], grad=False))])
    t.op("_foreach_clone", S(a), **PLAIN)
    t.op("_foreach_copy", S(a, b), **few)
    t.op("where", S(X([[1.0, 0.0], [0.0, 2.0]], grad=False)), S(B(2, 3)), **few)
    t.op("nonzero_static", S(X([1.0, 0.0, 2.0], grad=False), size=2), S(X([[1, 0], [3, 4]]), size=5), S(X([[1, 0], [3, 4]]), size=1, fill_value=7), S(B(2, 3), size=0), **few, err=[S(X([1, 0]), size=-1)])
    t.op("_unique", S(X([3, 1, 3, 2])), S(X([3, 1, 3, 2]), True, True), **few)
    t.op("unique_dim_consecutive", S(X([[1, 1], [1, 1], [2, 0]]), 0, outs=1), S(X([[1, 1], [1, 1], [2, 0]]), 0, True, True), **few)
    flag = X([0.0], dt=f32, grad=False)
    t.op("_amp_foreach_non_finite_check_and_unscale_", S([T(2, 3, dt=f32), T(4, dt=f32)], flag, X([0.5], dt=f32, grad=False), outs=0), S([X([1.0, INF], dt=f32, grad=False)], flag, X([0.5], dt=f32, grad=False), outs=0), **few)
    scale, tracker = X([4.0], dt=f32, grad=False), X([1], dt=i32)
    t.op("_amp_update_scale_", S(scale, tracker, flag, 2.0, 0.5, 2), S(scale, tracker, flag, 2.0, 0.5, 5), S(scale, tracker, X([1.0], dt=f32, grad=False), 2.0, 0.5, 2), **few)


    state = lambda lo: [T(2, 3, lo=lo, hi=2.0, grad=False), T(4, lo=lo, hi=2.0, grad=False)]
    steps = [X(3.0, f32, grad=False), X(3.0, f32, grad=False)]
    lr = X(0.1, grad=False)
    adam = dict(lr=lr, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
    for name in ("_fused_adam_", "_fused_adamw_"):
        t.op(f"{name}.tensor_lr", S(state(-2.0), state(-2.0), state(-2.0), state(0.0), [], steps, **adam), **few)
    t.op("_fused_sgd_.tensor_lr", S(state(-2.0), state(-2.0), state(-2.0), weight_decay=0.1, momentum=0.9, lr=lr, dampening=0.0, nesterov=False, maximize=False, is_first_step=False), **few)
    t.op("_fused_adagrad_.tensor_lr", S(state(-2.0), state(-2.0), state(0.0), steps, lr=lr, lr_decay=0.1, weight_decay=0.1, eps=1e-10, maximize=False), **few)


def facts(t):
    # PyTorch gives dtypes as numbers here, and counts the version of its own copy: tests/facts.rs has the values.
    for name in "is_leaf is_floating_point is_complex is_signed is_inference is_contiguous retains_grad dim storage_offset output_nr _debug_has_internal_overlap is_conj is_neg _is_zerotensor is_distributed get_device is_pinned".split():
        t.op(name, S(T(2, 3)), S(I(3, dt=u8)), S(Z(2)), **FACT)
    t.op("is_contiguous _debug_has_internal_overlap", S(T(2, 3, lay="t")), S(T(2, 3, lay="exp")), S(T(3, lay="step")), **FACT)
    t.op("is_contiguous.memory_format", S(T(2, 2, 3, 3), torch.contiguous_format), S(T(2, 3, lay="t"), torch.contiguous_format), **FACT)
    t.op("is_same_size is_set_to _has_same_storage_numel", S(T(2, 3), T(2, 3)), S(T(2, 3), T(3)), **FACT)
    t.op("size.int stride.int", S(T(2, 3), 1), S(T(2, 3, lay="t"), 0), **FACT, err=[S(T(2, 3), 2)])
    t.op("_shape_as_tensor", S(T(2, 3)), S(T()), **FACT)
    t.op("can_cast", S(f32, i64), S(i64, f32), S(torch.complex64, f32), S(torch.bool, u8), **FACT)
    t.op("promote_types", S(f32, i64, outs=0), S(u8, i8, outs=0), S(f16, bf16, outs=0), S(f64, torch.complex64, outs=0), **FACT)
    t.op("result_type.Tensor", S(T(2), I(2), outs=0), S(I(), T(2, dt=f32), outs=0), **FACT)
    t.op("result_type.Scalar", S(I(2), 1.5, outs=0), S(T(2, dt=f16), 2, outs=0), **FACT)
    t.op("result_type.Scalar_Tensor", S(1.5, I(2), outs=0), **FACT)
    t.op("result_type.Scalar_Scalar", S(1, 2.5, outs=0), S(True, 2, outs=0), **FACT)
    for name in "Byte Char Double Float Int Long Short Half".split():
        t.op(f"_cast_{name}", S(P(2, 3)), **FACT)
    t.op("_cast_Double _cast_Float", S(T(2, 3)), **PLAIN, tags=("no_gradcheck",))
    t.op("data", S(T(2, 3)), **FACT)
    t.op("_version", S(T(2, 3), outs=0), **FACT)
    t.op("_make_dep_token", S(), **FACT, tags=("random",))
    token = T(grad=False)
    t.op("_functional_assert_scalar", S(1, "said", token), **FACT, err=[S(0, "said", token)])
    t.op("_functional_assert_async.msg", S(X(True), "said", token), **FACT, err=[S(X(False), "said", token)])
    t.op("_functional_sym_constrain_range", S(5, 0, 9, token), **FACT, err=[S(5, 6, 9, token)])
    t.op("_functional_sym_constrain_range_for_size", S(5, 0, 9, token), **FACT)
    # An eigenvalue below zero.
    t.op("linalg_matrix_sqrth", S(X([[1.0, 2.0], [2.0, 1.0]], grad=False)), **FACT)
