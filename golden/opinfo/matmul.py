"""Matrix products, linear layers, attention and einsum."""

from .base import B, FLOATS, I, S, T, X, f32

MM_ERR = [S(T(2, 3), T(2, 3)), S(T(3), T(3, 2)), S(T(2, 3), I(3, 2)), S(T(2, 3, dt=f32), T(3, 2))]


def samples(t):
    t.op("mm", S(T(2, 3), T(3, 4)), S(T(1, 1), T(1, 1)), S(T(0, 3), T(3, 2)), S(T(2, 0), T(0, 3)), S(T(2, 3, lay="t"), T(3, 2)), S(T(2, 3), T(3, 2, lay="t")), S(T(2, 3, lay="exp"), T(3, 2, lay="step")), S(T(5, 7, dt=f32), T(7, 3, dt=f32)), S(I(2, 3), I(3, 2)), err=MM_ERR)
    t.op("bmm", S(T(2, 2, 3), T(2, 3, 2)), S(T(0, 2, 3), T(0, 3, 2)), S(T(2, 2, 0), T(2, 0, 2)), S(T(2, 2, 3, lay="t"), T(2, 3, 2, lay="rev")), S(T(2, 2, 3, lay="exp"), T(2, 3, 1)), S(I(1, 2, 3), I(1, 3, 2)), err=[S(T(2, 2, 3), T(3, 3, 2)), S(T(2, 2, 3), T(2, 2, 3)), S(T(2, 3), T(3, 2))])
    t.op("mv", S(T(2, 3), T(3)), S(T(2, 3, lay="t"), T(3, lay="step")), S(T(0, 3), T(3)), S(T(2, 0), T(0)), S(I(2, 3), I(3)), err=[S(T(2, 3), T(2)), S(T(2, 3), T(3, 1))])
    t.op("dot vdot inner", S(T(4), T(4)), S(T(0), T(0)), S(T(4, lay="step"), T(4, lay="exp")), S(I(3), I(3)), err=[S(T(3), T(4))])
    t.op("dot", nc=False, dtypes=[], err=[S(T(2, 2), T(2, 2)), S(T(3), T(3, dt=f32))])
    t.op("inner", S(T(2, 3), T(4, 3)), S(T(), T(3)), nc=False, dtypes=[])
    t.op("outer", S(T(2), T(3)), S(T(0), T(3)), S(I(2), T(3)), S(T(2, lay="step"), T(3)), err=[S(T(2, 2), T(2))])
    t.op("ger", S(T(2), T(3)), dtypes=[f32], err=[S(T(2, 2), T(2))])
    t.op("matmul", S(T(2, 3), T(3, 2)), S(T(3), T(3)), S(T(2, 3), T(3)), S(T(3), T(3, 2)), S(T(2, 2, 3), T(3, 2)), S(T(2, 2, 3), T(3)), S(T(3), T(2, 3, 2)), S(T(2, 1, 2, 3), T(3, 3, 2)), S(T(1, 2, 3), T(2, 3, 2)), S(T(0, 2, 3), T(3, 2)), S(T(2, 2, 3, lay="rev"), T(3, 2, lay="t")), S(T(2, 3, 4, dt=f32), T(4, 3, dt=f32)), err=[S(T(2, 3), T(2, 3)), S(T(), T(3)), S(T(2, 2, 3), T(3, 3, 2)), S(T(2, 3), I(3, 2))])
    t.op("addmm", S(T(2, 2), T(2, 3), T(3, 2)), S(T(2), T(2, 3), T(3, 2)), S(T(2, 1), T(2, 3), T(3, 2)), S(T(), T(2, 3), T(3, 2)), S(T(2, 2), T(2, 3), T(3, 2), beta=0.5, alpha=2), S(X([float("nan"), 1.0], grad=False), T(2, 3, grad=False), T(3, 2, grad=False), beta=0), S(T(2), T(3, 0), T(0, 2)), S(T(2, lay="exp"), T(2, 3, lay="t"), T(3, 2, lay="t")), S(I(2, 2), I(2, 3), I(3, 2)), err=[S(T(3), T(2, 3), T(3, 2)), S(T(2, 2), T(2, 3), T(2, 3)), S(T(2, 2), T(2, 3), T(3))])
    t.op("addmm_", S(T(2, 2), T(2, 3), T(3, 2), beta=0.5, alpha=2), nc=False, dtypes=[], err=[S(T(2), T(2, 3), T(3, 2))])
    t.op("addmv", S(T(2), T(2, 3), T(3)), S(T(), T(2, 3), T(3), beta=0.5, alpha=2), S(T(2), T(2, 0), T(0)), err=[S(T(3), T(2, 3), T(3))])
    t.op("addbmm", S(T(2, 2), T(3, 2, 3), T(3, 3, 2)), S(T(2, 2), T(3, 2, 3), T(3, 3, 2), beta=0.5, alpha=2))
    t.op("baddbmm", S(T(2, 2, 2), T(2, 2, 3), T(2, 3, 2)), S(T(2), T(2, 2, 3), T(2, 3, 2)), S(T(2, 1, 1), T(2, 2, 3), T(2, 3, 2), beta=0.5, alpha=2), S(T(1, 2, 2), T(2, 2, 0), T(2, 0, 2)), err=[S(T(3, 2, 2), T(2, 2, 3), T(2, 3, 2)), S(T(2, 2, 2), T(2, 3), T(3, 2))])
    t.op("addr", S(T(2, 3), T(2), T(3)), S(T(3), T(2), T(3), beta=0.5, alpha=2))
    t.op("linear", S(T(2, 3), T(4, 3), T(4)), S(T(2, 3), T(4, 3)), S(T(2, 2, 3), T(4, 3), T(4)), S(T(3), T(4, 3), T(4)), S(T(2, 2, 3, lay="t"), T(4, 3), T(4)), S(T(0, 3), T(4, 3), T(4)), S(T(2, 3), T(0, 3)), S(T(3), T(3)), S(T(1, 2, 2, 3), T(2, 3), T(2)), S(T(2, 5, dt=f32), T(3, 5, dt=f32), T(3, dt=f32)), err=[S(T(2, 3), T(4, 2)), S(T(2, 3), T(4, 3), T(3)), S(T(2, 3), T(4, 3, dt=f32))])
    for eq, shapes in {
        "ij,jk->ik": [(2, 3), (3, 2)], "ij->ji": [(2, 3)], "ii->i": [(3, 3)], "ii": [(3, 3)], "i,j->ij": [(2,), (3,)], "bij,bjk->bik": [(2, 2, 3), (2, 3, 2)],
        "...ij,...jk->...ik": [(2, 1, 2, 3), (3, 2)], "ij->": [(2, 3)], "i,i->": [(3,), (3,)], "bhqd,bhkd->bhqk": [(1, 2, 2, 3), (1, 2, 3, 3)], "ij,jk": [(2, 3), (3, 2)],
        "i,ij,j->": [(2,), (2, 3), (3,)], "b n d, d h -> b n h": [(1, 2, 3), (3, 2)], "ijk,jil->kl": [(2, 3, 2), (3, 2, 2)], "...->...": [(2, 3)], "ab,ab->ab": [(2, 3), (1, 3)],
        "bij,jk->bik": [(2, 2, 3), (3, 2)],
    }.items():
        t.op("einsum", S(eq, [T(*s) for s in shapes]), dtypes=[f32] if eq == "ij,jk->ik" else [])
    t.op("einsum", nc=False, dtypes=[], err=[S("ij,jk->ik", [T(2, 3), T(2, 3)]), S("ij->ik", [T(2, 3)]), S("ijk->i", [T(2, 3)]), S("ij,jk->ik", [T(2, 3)])])
    t.op("tensordot", S(T(2, 3, 2), T(3, 2, 2), [1], [0]), S(T(2, 3), T(2, 3), [0, 1], [0, 1]), dtypes=[f32])
    t.op("chain_matmul", S([T(2, 3), T(3, 2), T(2, 2)]), dtypes=[])
    t.op("kron", S(T(2), T(3)), S(T(2, 2), T(1, 2)), dtypes=[f32])
    t.op("cross linalg_cross", S(T(2, 3), T(2, 3)), dtypes=[f32])
    t.op("bilinear", S(T(2, 3), T(2, 2), T(2, 3, 2), T(2)), S(T(2, 3), T(2, 2), T(2, 3, 2)), dtypes=[f32])

    q, k, v = T(1, 2, 3, 4), T(1, 2, 5, 4), T(1, 2, 5, 3)
    mask = X([[True, True, False, True, False], [True, False, False, False, False], [False, True, True, True, True]])
    none = X([[True, True, False, True, False], [False, False, False, False, False], [False, True, True, True, True]])
    t.op(
        "scaled_dot_product_attention",
        S(T(1, 1, 2, 2), T(1, 1, 3, 2), T(1, 1, 3, 2)),
        S(q, k, v),
        S(q, k, v, mask),
        S(q, k, v, none),
        S(q, k, v, T(3, 5)),
        S(q, k, v, T(1, 2, 3, 5)),
        S(T(1, 2, 3, 2), T(1, 2, 3, 2), T(1, 2, 3, 2), None, 0.0, True),
        S(T(1, 2, 2, 2), T(1, 2, 4, 2), T(1, 2, 4, 2), None, 0.0, True),
        S(q, k, v, scale=0.3),
        S(T(3, 2), T(4, 2), T(4, 2)),
        S(T(2, 3, 2), T(2, 4, 2), T(2, 4, 2)),
        S(T(1, 2, 3, 4, lay="rev"), T(1, 2, 3, 4, lay="t"), T(1, 2, 3, 4)),
        S(T(1, 4, 2, 2), T(1, 2, 3, 2), T(1, 2, 3, 2), enable_gqa=True),
        S(T(1, 2, 9, 8, dt=f32), T(1, 2, 9, 8, dt=f32), T(1, 2, 9, 8, dt=f32), None, 0.0, True),
        dtypes=FLOATS,
        err=[S(T(1, 2, 3, 4), T(1, 2, 5, 3), T(1, 2, 5, 3)), S(T(2, 2), T(2, 2), T(2, 2), B(2, 2), 0.0, True), S(T(1, 2, 3, 4), T(1, 2, 5, 4), T(1, 2, 4, 3)), S(T(4), T(4), T(4))],
    )
    t.op("_scaled_dot_product_flash_attention_for_cpu_backward", S(T(1, 1, 2, 4, dt=f32), T(1, 1, 2, 4, dt=f32), T(1, 1, 2, 4, dt=f32), T(1, 1, 2, 4, dt=f32), T(1, 1, 2, 4, dt=f32), X([[[0.5, 1.0]]], dt=f32), 0.0, False), dtypes=[], nc=False)
    t.op("_scaled_dot_product_flash_attention_for_cpu", S(T(1, 1, 2, 4), T(1, 1, 3, 4), T(1, 1, 3, 4)), S(T(1, 1, 3, 4), T(1, 1, 3, 4), T(1, 1, 3, 4), 0.0, True), dtypes=[f32], nc=False)
