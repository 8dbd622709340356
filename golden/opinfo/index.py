"""Gather, scatter, indexing, masking, embedding, filling and copying."""

from .base import B, FLOATS, I, S, T, X, f16, f32, i32, u8

ONE = [f32]


def samples(t):
    idx = X([[0, 2, 1], [1, 0, 0]])
    t.op("gather", S(T(2, 3), 1, idx), S(T(3, 3), 0, X([[0, 2, 1]])), S(T(2, 3), -1, X([[2], [0]])), S(T(3), 0, X([1, 1, 2, 0])), S(T(), 0, X(0)), S(T(2, 3), 1, I(2, 0)), S(T(3, 2, lay="t"), 1, X([[1, 0], [0, 1], [1, 1]], lay="t")), S(T(3), 0, X([1, 0], dt=i32), grad=False), err=[S(T(2, 3), 1, X([[3]])), S(T(2, 3), 1, X([[-1]])), S(T(2, 3), 2, idx), S(T(2, 3), 1, X([0])), S(T(2, 3), 1, T(2, 3)), S(T(2, 3), 1, I(3, 3, hi=2))])
    once = X([[0, 2, 1], [1, 0, 2]])
    t.op("scatter.src", S(T(2, 3), 1, once, T(2, 3)), S(T(3, 2), 0, X([[2, 0]]), T(2, 2, grad=False)), S(T(4), -1, X([3, 1]), T(2)), S(T(), 0, X(0), T()), S(T(2, 3), 1, I(2, 0), T(2, 3, grad=False)), S(T(3, 2, lay="t"), 0, X([[2, 0]]), T(1, 2)), err=[S(T(2, 3), 1, X([[3]]), T(1, 1)), S(T(2, 3), 2, once, T(2, 3)), S(T(2, 3), 1, once, T(1, 3)), S(T(3), 0, X([0]), T(1, dt=f32))])
    t.op("scatter.value", S(T(2, 3), 1, X([[0, 2], [1, 1]]), 0.5), S(T(3), 0, X([2]), 3), S(I(3), 0, X([1]), 7), S(T(), 0, X(0), 1.5), err=[S(T(2, 3), 1, X([[5]]), 0.5)])
    t.op("scatter.reduce", S(T(3), 0, X([0, 0, 2]), T(3), reduce="add"), S(T(3), 0, X([0, 0, 2]), T(3), reduce="multiply"), grad=False, dtypes=ONE, err=[S(T(3), 0, X([0]), T(1), reduce="x")])
    t.op("scatter.value_reduce", S(T(3), 0, X([0, 0, 2]), 2.0, reduce="add"), S(T(3), 0, X([0, 0, 2]), 2.0, reduce="multiply"), grad=False, dtypes=ONE)
    t.op("scatter_add", S(T(2, 3), 1, X([[0, 2, 2], [1, 1, 1]]), T(2, 3)), S(T(3, 2), 0, X([[2, 0], [2, 1]]), T(3, 2, grad=False)), S(T(), 0, X(0), T()), S(T(3), 0, I(0), T(2, grad=False)), S(T(3, 2, lay="t"), -1, X([[1, 1]]), T(1, 2)), err=[S(T(2, 3), 1, X([[3]]), T(1, 1)), S(T(2, 3), 1, X([[0, 0]]), T(1, 1))])
    for r in ("sum", "prod", "mean", "amax", "amin"):
        t.op("scatter_reduce.two", S(T(4), 0, X([0, 1, 1, 3, 1]), T(5), r), S(T(4), 0, X([0, 1, 1, 3, 1]), T(5), r, include_self=False), S(T(2, 3), 1, X([[0, 2], [1, 1]]), T(2, 2), r), S(I(3), 0, X([0, 0, 2]), I(3, lo=1), r), dtypes=[f32, f16])
        t.op("index_reduce", S(T(3, 2), 0, X([0, 2, 0]), T(3, 2), {"sum": "mean"}.get(r, r), include_self=True), dtypes=[], nc=False)
    t.op("scatter_reduce.two", S(X([1.0, 0.0, 2.0]), 0, X([0, 0, 1, 1]), X([0.0, 3.0, 4.0, 5.0]), "prod"), S(X([2.0, 1.0]), 0, X([0, 0]), X([2.0, 2.0]), "amax", tags=["no_gradcheck"]), nc=False, dtypes=[], err=[S(T(3), 0, X([0]), T(1), "x"), S(T(3), 0, X([3]), T(1), "sum")])

    x3 = T(3, 2, 2)
    t.op(
        "index.Tensor",
        S(T(3, 3), [X([0, 2]), X([1, 1])]),
        S(T(4), [X([3, 0, -1])]),
        S(T(4), [X([1, 1, 1])]),
        S(T(3, 2), [None, X([1, 0, 1])]),
        S(x3, [X([0, 2]), None, X([1, 0])]),
        S(x3, [None, X([0, 1]), X([1, 0])]),
        S(x3, [X([[0, 1], [2, 2]])]),
        S(T(3, 3), [X([[0], [2]]), X([0, 1])]),
        S(T(4), [X([True, False, True, True])]),
        S(T(2, 3), [X([[True, False, True], [False, False, True]])]),
        S(T(2, 3), [None, X([True, False, True])]),
        S(T(2, 3), [X([1, 0]), X([True, False, True])]),
        S(T(3), [X(1)]),
        S(T(3), [I(0)]),
        S(T(0, 3), [I(0)]),
        S(T(3, 3), [X([0, 2], dt=i32), X([1, 1], dt=i32)]),
        S(T(3, 2, lay="t"), [X([2, 0], lay="step")]),
        S(T(3), [X([False, False, False])]),
        S(T(3), [X([1, 0, 1], dt=u8)]),
        err=[S(T(3), [X([3])]), S(T(3), [X([-4])]), S(T(3), [X([0]), X([0])]), S(T(3, 3), [X([0, 1]), X([0, 1, 2])]), S(T(3), [X([True, False])]), S(T(3), [T(2)]), S(T(0), [X([0])])],
    )
    t.op("index_put", S(T(4), [X([1, 3])], T(2)), S(T(4), [X([1, 1, 3])], T(3), True), S(T(3, 2), [X([0, 2])], T(2)), S(T(3, 2), [X([0, 2])], T()), S(T(3, 2), [None, X([1])], T(3, 1)), S(T(3, 3), [X([0, 2]), X([1, 1])], T(2), True), S(T(2, 3), [X([[True, False, True], [False, False, True]])], T()), S(T(2, 3), [X([[True, False, True], [False, False, True]])], T(3)), S(T(4), [X([-1])], T(1)), S(T(3), [I(0)], T(0)), S(T(3, 2, lay="t"), [X([2, 0])], T(2, 2)), S(I(4), [X([0])], I(1)), err=[S(T(4), [X([4])], T(1)), S(T(4), [X([0, 1])], T(3)), S(T(4), [X([0])], T(1, dt=f32)), S(T(4), [X([0]), X([0])], T(1))])
    t.op("index_put_", S(T(4), [X([1, 3])], T(2)), S(T(4), [X([1, 1])], T(2), True), S(T(2, 3, lay="t"), [X([0])], T(3)), nc=False, dtypes=[])
    t.op("_unsafe_index.Tensor", S(T(3, 3), [X([0, 2]), X([1, 1])]), nc=False, dtypes=[])
    t.op("_unsafe_index_put", S(T(4), [X([1, 3])], T(2), True), nc=False, dtypes=[])
    t.op("index_select", S(T(2, 3), 1, X([2, 0, 2])), S(T(3, 2), 0, X([1])), S(T(2, 3), -1, I(0)), S(T(3), 0, X(1)), S(T(), 0, X([0])), S(T(3, 2), 0, X([1, 0], dt=i32)), S(T(3, 2, lay="t"), 1, X([1, 1])), err=[S(T(3), 0, X([3])), S(T(3), 0, X([-1])), S(T(3), 1, X([0])), S(T(3), 0, T(2)), S(T(3), 0, X([[0]]))])
    t.op("index_add", S(T(3, 2), 0, X([2, 0, 2]), T(3, 2)), S(T(2, 3), 1, X([1]), T(2, 1), alpha=2), S(T(3), -1, X([0, 0]), T(2), alpha=-0.5), S(T(3), 0, I(0), T(0)), S(T(), 0, X([0]), T()), err=[S(T(3), 0, X([3]), T(1)), S(T(3), 0, X([0, 1]), T(3)), S(T(3), 1, X([0]), T(1)), S(T(3, 2), 0, X([0]), T(1, 3))])
    t.op("index_copy", S(T(3, 2), 0, X([2, 0]), T(2, 2)), S(T(2, 3), 1, X([1]), T(2, 1)), S(T(3), -1, X([0, 2]), T(2)), err=[S(T(3), 0, X([3]), T(1)), S(T(3), 0, X([0, 1]), T(3))])
    t.op("index_fill.int_Scalar", S(T(3, 2), 0, X([2, 0]), 0.5), S(T(2, 3), -1, X([1]), 2), S(T(3), 0, I(0), 1.0), S(T(3), 0, X([-1]), 1.0), err=[S(T(3), 0, X([3]), 1.0), S(T(3), 1, X([0]), 1.0), S(T(3), 0, T(1), 1.0)])
    t.op("index_fill.int_Tensor", S(T(3, 2), 0, X([2, 0]), T()), dtypes=ONE, err=[S(T(3), 0, X([0]), T(1))])
    t.op("masked_fill.Scalar", S(T(2, 3), B(2, 3), 0.5), S(T(2, 3), B(3), -1e9), S(T(3), B(2, 1), 2), S(I(3), B(3), 7), S(T(), B(), 1.0), S(T(0), B(0), 1.0), S(T(2, 3, lay="t"), B(2, 1), float("-inf")), S(B(3), B(3), True), err=[S(T(3), B(2), 0.5), S(T(3), I(3), 0.5), S(I(3), B(3), 1.5)][:2])
    t.op("masked_fill.Tensor", S(T(2, 3), B(2, 3), T()), S(T(2, 3), B(3), X(2.0)), dtypes=ONE, err=[S(T(3), B(3), T(1)), S(T(3), B(2), T())])
    t.op("masked_fill_.Scalar", S(T(2, 3), B(2, 3), 0.5), S(T(2, 3, lay="t"), B(3), 0.5), nc=False, dtypes=[], err=[S(T(3), B(2, 3), 0.5)])
    t.op("masked_fill_.Tensor", S(T(2, 3), B(2, 3), T()), nc=False, dtypes=[])
    t.op("masked_select", S(T(2, 3), X([[True, False, True], [False, False, True]])), S(T(2, 3), X([True, False, True])), S(T(3), X([[True], [False]])), S(T(), X(True)), S(T(3), X([False, False, False])), S(T(2, 3, lay="t"), X([[True, False, True], [False, True, True]])), err=[S(T(3), B(2)), S(T(3), I(3))])
    t.op("masked_scatter", S(T(2, 3), X([[True, False, True], [False, False, True]]), T(4)), S(T(2, 3), X([True, False, True]), T(2, 2)), dtypes=ONE, err=[S(T(3), X([True, True, True]), T(2))])
    t.op("take", S(T(2, 3), X([0, 5, -1])), S(T(2, 3), X([[1, 1], [2, 3]])), S(T(3), X(1)), S(T(2, 3, lay="t"), X([1, 2])), S(T(3), I(0)), err=[S(T(3), X([3])), S(T(0), X([0])), S(T(3), T(2))])
    t.op("take_along_dim", S(T(2, 3), X([[0, 2], [1, 1]]), 1), S(T(2, 3), X([[1]]), 0), S(T(2, 3), X([5, 0])), dtypes=ONE, err=[S(T(2, 3), X([0]), 1)])
    t.op("put", S(T(2, 3), X([0, 4]), T(2)), S(T(2, 3), X([0, 0]), T(2), True), dtypes=ONE, err=[S(T(3), X([3]), T(1))])
    t.op("nonzero", S(X([[1.0, 0.0], [0.0, 2.0]])), S(B(2, 3)), S(T()), S(X(0.0)), S(T(0)), S(X([0, 0])), S(X([float("nan"), 0.0])), S(B(3, 2, lay="t")))
    t.op("argwhere", S(X([[1.0, 0.0], [0.0, 2.0]])), dtypes=[], nc=False)
    t.op("one_hot", S(X([0, 2, 1])), S(X([[0, 1]]), 4), dtypes=[], err=[S(X([-1])), S(X([3]), 2), S(T(2))])
    t.op("isin.Tensor_Tensor", S(X([1, 2, 3, 4]), X([2, 4])), S(X([1.0, 2.0]), X([2.0]), invert=True), dtypes=[], grad=False)
    t.op("tril_indices triu_indices", S(3, 3), S(2, 4, 1), S(3, 2, -1), dtypes=[], nc=False)

    w = T(4, 3)
    t.op("embedding", S(w, X([0, 3, 1])), S(w, X([[0, 2], [2, 2]])), S(w, X([1, 0, 1]), 1), S(w, X([1, 0, 1]), -1, True), S(w, X(2)), S(w, I(0)), S(w, X([0, 3], dt=i32)), S(T(4, 3, lay="t"), X([2, 0])), dtypes=FLOATS, err=[S(w, X([4])), S(w, X([-1])), S(w, T(2)), S(T(2, 2, 2), X([0]))])
    t.op("embedding_dense_backward", S(T(3, 2), X([0, 3, 0]), 4, -1, False), S(T(3, 2), X([0, 3, 0]), 4, 3, False), S(T(3, 2), X([0, 3, 0]), 4, -1, True), dtypes=ONE)
    t.op("embedding_renorm_", S(T(3, 2, grad=False), X([0, 2]), 1.0, 2.0), nc=False, dtypes=[])
    offs = X([0, 2, 2])  # outputs after the first are what embedding_bag keeps for its own backward
    for mode in (0, 1, 2):
        t.op("_embedding_bag embedding_bag", S(T(4, 3), X([0, 3, 1, 1]), offs, False, mode, outs=1), dtypes=[f32], nc=False)
        t.op("_embedding_bag_forward_only", S(T(4, 3), X([0, 3, 1, 1]), offs, False, mode, outs=1), dtypes=[f32], nc=False, grad=False)
        t.op("embedding_bag.padding_idx", S(T(4, 3), X([0, 3, 1, 1]), offs, False, mode, False, None, False, 1, outs=1), S(T(4, 3), X([0, 3, 1, 1]), offs, False, mode, False, None, False, None, outs=1), dtypes=[f32], nc=False)
    psw = T(4)
    t.op("_embedding_bag embedding_bag", S(T(4, 3), X([0, 3, 1, 1]), offs, False, 0, False, psw, outs=1), S(T(4, 3), X([0, 3, 1, 1]), X([0, 2, 4]), False, 0, False, None, True, outs=1), nc=False, dtypes=[], err=[S(T(4, 3), X([0, 3]), X([1, 1]), False, 0), S(T(4, 3), X([0, 4]), X([0]), False, 0), S(T(4, 3), X([0, 3]), X([0]), False, 1, False, T(2))])
    t.op("_embedding_bag_backward", S(T(2, 3), X([0, 3, 1]), X([0, 2]), X([0, 0, 1]), X([2, 1]), X([0, 0]), 4, False, 0, False, None), grad=False, dtypes=[f32], nc=False)

    # filling and copying
    t.op("fill.Scalar", S(T(2, 3), 0.5), S(I(3), 2), S(T(0), 1.0), S(B(3), True), S(T(2, 3, lay="t"), 2))
    t.op("fill.Tensor", S(T(2, 3), T()), S(T(3), X(2)), dtypes=ONE, err=[S(T(3), T(1))])
    t.op("fill_.Scalar", S(T(2, 3), 0.5), S(T(2, 3, lay="step"), 2), S(I(3), 2.0), S(B(3), 1), nc=False, dtypes=[f16])
    t.op("fill_.Tensor", S(T(2, 3), T()), nc=False, dtypes=[], err=[S(T(3), T(2))])
    t.op("zero_", S(T(2, 3)), S(T(2, 3, lay="t")), S(I(3)), nc=False)
    t.op("zero", S(T(2, 3)), nc=False, dtypes=ONE)
    t.op("copy", S(T(2, 3), T(2, 3)), S(T(2, 3), T(3)), S(T(2, 3), T()), S(T(3, dt=f32), T(3)), S(I(3), X([1.5, -1.5, 2.5])), S(T(2, 3, lay="t"), T(2, 3)), S(B(3), I(3, hi=2)), err=[S(T(3), T(2)), S(T(3), T(2, 3))])
    t.op("copy_", S(T(2, 3), T(2, 3)), S(T(2, 3), T(3)), S(T(2, 3, lay="t"), T(2, 3, lay="t")), S(T(3, dt=f32), T(3)), S(T(3), I(3)), S(I(3, dt=u8), I(3)), S(T(2, 3), T(2, 3), True), nc=False, dtypes=[f16], err=[S(T(3), T(2)), S(T(3), T(2, 3))])
    t.op("scatter_.src", S(T(4), 0, X([3, 1]), T(2)), nc=False, dtypes=[])
    t.op("scatter_.value", S(T(4), 0, X([3, 1]), 0.5), nc=False, dtypes=[])
    t.op("scatter_add_", S(T(4), 0, X([3, 3]), T(2)), nc=False, dtypes=[])
    t.op("index_add_", S(T(4), 0, X([3, 3]), T(2)), nc=False, dtypes=[])
    t.op("index_copy_", S(T(4), 0, X([3, 1]), T(2)), nc=False, dtypes=[])
    t.op("index_fill_.int_Scalar", S(T(4), 0, X([3, 1]), 0.5), nc=False, dtypes=[])
    t.op("fill_diagonal_", S(T(3, 3), 0.5), S(T(4, 2), 1.0, True), nc=False, dtypes=[])
    t.op("select_backward", S(T(3), [2, 3], 0, 1), S(T(2), [2, 3], -1, -1), nc=False, dtypes=ONE)
    t.op("slice_backward", S(T(2, 3), [4, 3], 0, 1, 3, 1), S(T(2), [5], 0, 0, 4, 2), nc=False, dtypes=ONE)
    t.op("diagonal_backward", S(T(2), [2, 3], 1, 0, 1), nc=False, dtypes=ONE)
    t.op("index_select_backward", S(T(2, 2), [2, 3], 1, X([0, 2])), nc=False, dtypes=[])
