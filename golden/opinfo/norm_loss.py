"""Normalisation layers, losses, recurrent layers and weight norm."""

from .base import FLOATS, I, S, T, X, f32

ONE = [f32]


def samples(t):
    n = lambda *s, **k: T(*s, grad=False, **k)
    var = lambda *s: T(*s, grad=False, lo=0.5, hi=2)
    x, w, b = T(3, 2), T(2), T(2)
    bn = dict(dtypes=[f32])
    t.op("batch_norm", S(x, w, b, n(2), var(2), True, 0.1, 1e-5, False), S(x, w, b, n(2), var(2), False, 0.1, 1e-5, False), S(T(2, 2, 2, 2), w, b, n(2), var(2), True, 0.25, 1e-3, False), S(x, None, None, n(2), var(2), True, 0.1, 1e-5, False), S(x, w, b, None, None, True, 0.1, 1e-5, False), S(T(2, 2, 3), w, b, n(2), var(2), False, 0.1, 1e-5, True), S(T(2, 2, 2, 2, lay="cl"), w, b, n(2), var(2), True, 0.1, 1e-5, False), S(T(2, 2, 3), None, None, n(2), var(2), False, 0.1, 1e-5, False), S(T(3, 4, 4, 4, dt=f32), T(4, dt=f32), T(4, dt=f32), T(4, dt=f32), X([1.0, 2.0, 0.5, 1.5], dt=f32), True, 0.1, 1e-5, False), err=[S(x, T(3), b, n(2), var(2), True, 0.1, 1e-5, False), S(x, w, b, n(3), var(3), True, 0.1, 1e-5, False), S(x, w, b, None, None, False, 0.1, 1e-5, False)], **bn)
    t.op("native_batch_norm", S(x, w, b, n(2), var(2), True, 0.1, 1e-5), S(x, w, b, n(2), var(2), False, 0.1, 1e-5), S(T(2, 2, 2), None, None, None, None, True, 0.1, 1e-5), **bn)
    t.op("_native_batch_norm_legit", S(x, w, b, n(2), var(2), True, 0.1, 1e-5), S(T(2, 2, 2), w, b, n(2), var(2), False, 0.1, 1e-5), **bn)
    t.op("_native_batch_norm_legit.no_stats", S(x, w, b, True, 0.1, 1e-5), S(T(1, 2, 2, 2), None, None, True, 0.0, 1e-5), **bn)
    t.op("_native_batch_norm_legit_no_training", S(x, w, b, n(2), var(2), 0.1, 1e-5), S(T(2, 2, 2), w, b, n(2), var(2), 0.1, 1e-3), **bn)
    t.op("_native_batch_norm_legit_functional", S(x, w, b, n(2), var(2), True, 0.1, 1e-5), S(T(2, 2, 2), w, b, n(2), var(2), False, 0.25, 1e-5), **bn)
    t.op("_batch_norm_with_update _batch_norm_with_update_functional", S(x, w, b, n(2), var(2), 0.1, 1e-5), grad=False, dtypes=[], nc=False)
    t.op("native_batch_norm_backward", S(T(3, 2), x, w, n(2), var(2), n(2), var(2), True, 1e-5, [True, True, True]), S(T(3, 2), x, w, n(2), var(2), n(2), var(2), False, 1e-5, [True, True, True]), S(T(3, 2), x, w, n(2), var(2), n(2), var(2), True, 1e-5, [True, False, False]), grad=False, dtypes=ONE)
    t.op("instance_norm", S(T(2, 2, 3), w, b, None, None, True, 0.1, 1e-5, False), S(T(1, 2, 2, 2), None, None, None, None, True, 0.1, 1e-5, False), S(T(2, 2, 3), w, b, n(2), var(2), True, 0.1, 1e-5, False), S(T(2, 2, 3), w, b, n(2), var(2), False, 0.1, 1e-5, False), err=[S(T(2, 2, 3), T(3), b, None, None, True, 0.1, 1e-5, False)], **bn)
    ln = [S(T(2, 3), [3], T(3), T(3)), S(T(2, 3), [3], None, None), S(T(2, 3), [3], T(3), None), S(T(2, 2, 3), [2, 3], T(2, 3), T(2, 3)), S(T(0, 3), [3], T(3), T(3)), S(T(3, 2, lay="t"), [2], T(2), T(2)), S(T(2, 17, dt=f32), [17], T(17, dt=f32), T(17, dt=f32))]
    eps = lambda s: [S(*q.args, 1e-5) for q in s]
    bad = [S(T(2, 3), [2], None, None, 1e-5), S(T(2, 3), [3], T(2), None, 1e-5), S(T(2, 3), [], None, None, 1e-5), S(T(2, 3), [3], T(3), T(2), 1e-5)]
    t.op("layer_norm", *ln, S(T(2, 3), [3], T(3), T(3), 0.5), dtypes=FLOATS, err=bad)
    t.op("native_layer_norm", *eps(ln), dtypes=FLOATS, err=bad)
    t.op("native_layer_norm_backward", S(T(2, 3), T(2, 3), [3], n(2, 1), var(2, 1), T(3), T(3), [True, True, True]), S(T(2, 3), T(2, 3), [3], n(2, 1), var(2, 1), None, None, [True, False, False]), grad=False, dtypes=ONE, nc=False)
    t.op("rms_norm", S(T(2, 3), [3], T(3)), S(T(2, 3), [3], None, 1e-5), S(T(2, 2, 3), [2, 3], T(2, 3), 1e-5), dtypes=FLOATS, err=[S(T(2, 3), [2])])
    t.op("group_norm", S(T(2, 4, 2), 2, T(4), T(4)), S(T(2, 4), 2), S(T(1, 4, 2, 2), 4, T(4), None, 1e-3), S(T(1, 2, 2, 2, lay="cl"), 1, T(2), T(2)), S(T(2, 8, 3, 3, dt=f32), 4, T(8, dt=f32), T(8, dt=f32)), dtypes=FLOATS, err=[S(T(2, 3), 2), S(T(2, 4), 0), S(T(2, 4), 2, T(3), None)])
    t.op("native_group_norm", S(T(2, 4, 2), T(4), T(4), 2, 4, 2, 2, 1e-5), S(T(1, 4, 2, 2), None, None, 1, 4, 4, 2, 1e-5), dtypes=FLOATS)
    t.op("native_group_norm_backward", S(T(2, 4, 2), T(2, 4, 2), n(2, 2), var(2, 2), T(4), 2, 4, 2, 2, [True, True, True]), grad=False, dtypes=ONE, nc=False)
    t.op("_weight_norm", S(T(3, 2), T(3, 1), 0), S(T(3, 2), T(1, 2), 1), S(T(2, 3, 2), T(1, 1, 2), 2), dtypes=ONE, tags=["smooth"])
    t.op("_weight_norm_interface", S(T(3, 2), T(3, 1), 0), dtypes=ONE, nc=False, tags=["smooth"])
    t.op("cosine_similarity", S(T(2, 3), T(2, 3)), S(T(2, 3), T(2, 3), 0), S(T(2, 3), T(3), 1, 1e-6), dtypes=ONE)
    t.op("pairwise_distance", S(T(2, 3), T(2, 3)), S(T(2, 3), T(2, 3), 1.0, 1e-6, True), dtypes=ONE)

    # losses: reduction 0 none, 1 mean, 2 sum
    for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
        y = X([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], grad=False) if op == "soft_margin_loss" else T(2, 3)
        t.op(op, *[S(T(2, 3), y, r) for r in (1, 0, 2)], S(T(2, 3), y), S(T(0), T(0, grad=op != "soft_margin_loss"), 1), S(T(2, 3, lay="t"), y), dtypes=FLOATS, err=[S(T(2), T(3))])
    for r in (0, 1):
        t.op("smooth_l1_loss huber_loss", S(T(4), T(4), r, 0.5), S(T(4), T(4), r, 2.0), dtypes=[], nc=False)
    t.op("smooth_l1_loss", S(T(4), T(4), 1, 0.0), dtypes=[], nc=False, err=[S(T(3), T(3), 1, -1.0)])
    t.op("huber_loss", dtypes=[], nc=False, err=[S(T(3), T(3), 1, 0.0)])
    t.op("mse_loss", S(T(2, 3), T(3, grad=False)), S(T(2, 1), T(3), 2), dtypes=[], nc=False)
    t.op("mse_loss_backward", *[S(g, T(2, 3), T(2, 3), r) for g, r in ((T(), 1), (T(2, 3), 0), (T(), 2))], dtypes=ONE, nc=False)
    t.op("smooth_l1_loss_backward huber_loss_backward", *[S(g, T(2, 3), T(2, 3), r, 0.5) for g, r in ((T(), 1), (T(2, 3), 0))], dtypes=ONE, nc=False)
    logp = T(3, 4, lo=-3, hi=-0.1)
    tgt = X([1, 0, 3])
    cw = var(4)
    nll = [S(logp, tgt), S(logp, tgt, cw), *[S(logp, tgt, cw, r) for r in (0, 2)], S(logp, tgt, None, 1, 0), S(logp, tgt, cw, 1, 3), S(logp, X([-100, 0, 3])), S(T(4, lo=-3, hi=0), X(2)), S(T(4, lo=-3, hi=0), X(2), cw, 0)]
    nbad = [S(logp, X([1, 0])), S(logp, X([1, 0, 4])), S(logp, tgt, T(3)), S(logp, T(3)), S(logp, X([1, 0, -1]))]
    t.op("nll_loss", *nll, S(T(0, 4), I(0)), dtypes=FLOATS, err=nbad)
    t.op("nll_loss_nd", S(T(2, 3, 2), I(2, 2, hi=3)), S(T(2, 3, 2, 1), I(2, 2, 1, hi=3), var(3), 2), S(logp, tgt), dtypes=ONE)
    t.op("nll_loss_forward", S(logp, tgt, None, 1, -100), S(logp, tgt, cw, 1, -100), S(logp, tgt, cw, 0, 0), S(logp, tgt, cw, 2, -100), dtypes=FLOATS, err=[S(logp, X([1, 0]), None, 1, -100), S(logp, X([1, 0, 4]), None, 1, -100)])
    t.op("nll_loss_backward", S(T(), logp, tgt, None, 1, -100, X(3.0, grad=False)), S(T(3), logp, tgt, cw, 0, 0, X(0.0, grad=False)), dtypes=ONE, nc=False)
    x2, t2 = T(1, 3, 2, 2), X([[[0, 2], [1, 1]]])
    t.op("nll_loss2d", S(x2, t2), S(x2, t2, var(3), 2), S(x2, t2, var(3), 0, 1), dtypes=FLOATS, nc=False)
    t.op("nll_loss2d_forward", S(x2, t2, None, 1, -100), S(x2, t2, var(3), 1, 1), dtypes=FLOATS, nc=False, err=[S(x2, X([0]), None, 1, -100)])
    t.op("nll_loss2d_backward", S(T(), x2, t2, None, 1, -100, X(4.0, grad=False)), dtypes=ONE, nc=False)
    z = T(3, 4)
    soft = X([[0.125, 0.25, 0.5, 0.125], [0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.5, 0.0]])
    t.op("cross_entropy_loss", S(z, tgt), *[S(z, tgt, cw, r) for r in (0, 1, 2)], S(z, tgt, None, 1, 0), S(z, tgt, cw, 1, -100, 0.1), S(z, tgt, None, 0, 3, 0.25), S(z, tgt, cw, 2, -100, 0.25), S(z, soft), S(z, soft, cw), S(z, soft, None, 0, -100, 0.1), S(z, soft, cw, 2, -100, 0.25), S(T(2, 3, 2), I(2, 2, hi=3)), S(T(1, 3, 2, 2), I(1, 2, 2, hi=3), var(3), 1, 1), S(T(4), X(2)), S(T(4), X(2), cw, 1, -100, 0.1), S(T(1, 3, 2), T(1, 3, 2, lo=0, hi=1)), S(z, X([-100, -100, -100]), grad=False), S(X([[1000.0, 0.0], [-1000.0, 0.0]]), X([1, 0])), S(T(2, 19, dt=f32), I(2, hi=19)), dtypes=FLOATS, err=[*nbad[:3], S(z, T(3, 3)), S(z, tgt, None, 1, -100, 1.5), S(z, T(2, 4))])
    p = T(2, 3, lo=0.05, hi=0.95)
    q = T(2, 3, lo=0.05, hi=0.95)
    t.op("binary_cross_entropy", *[S(p, q, None, r) for r in (1, 0, 2)], S(p, q, var(3)), S(X([0.0, 1.0, 0.5], grad=False), X([1.0, 0.0, 0.5], grad=False)), dtypes=FLOATS, err=[S(X([1.5]), X([1.0])), S(X([-0.5]), X([1.0]))])
    t.op("binary_cross_entropy_backward", S(T(2, 3), p, q, None, 0), S(T(), p, q, None, 1), dtypes=ONE, nc=False)
    t.op("binary_cross_entropy_with_logits", *[S(T(2, 3), q, None, None, r) for r in (1, 0, 2)], S(T(2, 3), q, var(3), None), S(T(2, 3), q, None, var(3)), S(T(2, 3), q, var(2, 1), var(3), 0), S(X([1000.0, -1000.0]), X([0.0, 1.0])), dtypes=FLOATS, err=[S(T(2, 3), T(2, 2))])
    t.op("kl_div", *[S(T(2, 3, hi=-0.1), q, r) for r in (1, 0, 2)], S(T(2, 3, hi=-0.1), T(2, 3), 1, log_target=True), S(T(3), X([0.0, 0.5, 1.0], grad=False)), dtypes=FLOATS)
    t.op("margin_ranking_loss", S(T(3), T(3), X([1.0, -1.0, 1.0], grad=False), 0.5), dtypes=ONE)
    t.op("hinge_embedding_loss", S(T(3), X([1.0, -1.0, 1.0], grad=False), 0.5), dtypes=ONE)
    t.op("cosine_embedding_loss", S(T(2, 3), T(2, 3), X([1.0, -1.0], grad=False), 0.25), dtypes=ONE)
    t.op("triplet_margin_loss", S(T(2, 3), T(2, 3), T(2, 3)), dtypes=ONE)
    t.op("multi_margin_loss", S(T(2, 3), X([0, 2])), dtypes=ONE, nc=False)
    t.op("multilabel_margin_loss", S(T(2, 3), X([[0, 2, -1], [1, -1, 0]])), dtypes=ONE, nc=False)
    t.op("poisson_nll_loss", S(T(3), T(3, lo=0.5), True, False, 1e-8, 1), S(T(3, lo=0.5), T(3, lo=0.5), False, True, 1e-8, 1), dtypes=ONE)

    # recurrent layers: (input, hidden, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
    def rnn(gates, layers, bi, bias, din=2, h=2, dt=None):
        ps, d = [], 2 if bi else 1
        k = dict(dt=dt) if dt else {}
        for layer in range(layers):
            for _ in range(d):
                ps += [T(gates * h, din if layer == 0 else h * d, lo=-1, hi=1, **k), T(gates * h, h, lo=-1, hi=1, **k)]
                ps += [T(gates * h, lo=-1, hi=1, **k), T(gates * h, lo=-1, hi=1, **k)] if bias else []
        return ps

    for op, gates in (("lstm.input", 4), ("gru.input", 3), ("rnn_tanh.input", 1), ("rnn_relu.input", 1)):
        lstm = gates == 4
        hid = lambda *s, **k: [T(*s, **k), T(*s, **k)] if lstm else T(*s, **k)
        t.op(
            op,
            S(T(2, 1, 2), hid(1, 1, 2), rnn(gates, 1, False, True), True, 1, 0.0, True, False, False),
            S(T(1, 2, 2), hid(1, 1, 2), rnn(gates, 1, False, False), False, 1, 0.0, False, False, True),
            S(T(2, 1, 2), hid(2, 1, 2), rnn(gates, 1, True, True), True, 1, 0.0, True, True, False),
            S(T(2, 1, 2), hid(2, 1, 2), rnn(gates, 2, False, True), True, 2, 0.0, True, False, False),
            dtypes=[f32],
            nc=False,
            err=[S(T(2, 1, 3), hid(1, 1, 2), rnn(gates, 1, False, True), True, 1, 0.0, True, False, False), S(T(2, 1, 2), hid(2, 1, 2), rnn(gates, 1, False, True), True, 1, 0.0, True, False, False)],
        )
    # Three sequences of 3, 2 and 1 steps, packed: three samples at the first step, then two, then one.
    for op, gates in (("lstm.data", 4), ("gru.data", 3), ("rnn_tanh.data", 1), ("rnn_relu.data", 1)):
        lstm = gates == 4
        hid = lambda *s, **k: [T(*s, **k), T(*s, **k)] if lstm else T(*s, **k)
        sizes = lambda *n: X(list(n))
        t.op(
            op,
            S(T(6, 2), sizes(3, 2, 1), hid(1, 3, 2), rnn(gates, 1, False, True), True, 1, 0.0, True, False),
            S(T(5, 2), sizes(2, 2, 1), hid(2, 2, 2), rnn(gates, 1, True, False), False, 1, 0.0, False, True),
            S(T(4, 2), sizes(2, 1, 1), hid(4, 2, 2), rnn(gates, 2, True, True), True, 2, 0.0, True, True),
            dtypes=[f32],
            nc=False,
            err=[S(T(6, 2), sizes(3, 2, 1), hid(1, 2, 2), rnn(gates, 1, False, True), True, 1, 0.0, True, False)],
        )
    t.op("lstm_cell", S(T(1, 2), [T(1, 2), T(1, 2)], T(8, 2), T(8, 2), T(8), T(8)), S(T(1, 2), [T(1, 2), T(1, 2)], T(8, 2), T(8, 2)), dtypes=ONE, nc=False)
    t.op("gru_cell", S(T(1, 2), T(1, 2), T(6, 2), T(6, 2), T(6), T(6)), dtypes=ONE, nc=False)
    t.op("rnn_tanh_cell rnn_relu_cell", S(T(1, 2), T(1, 2), T(2, 2), T(2, 2), T(2), T(2)), dtypes=ONE, nc=False)
