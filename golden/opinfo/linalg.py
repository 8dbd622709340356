"""Inverses, systems, determinants, decompositions, norms and powers of matrices.

Only what does not depend on an implementation's choice of signs is compared: eigenvectors and singular vectors are checked by what they multiply
back to (crates/core/tests/linalg.rs), here by their shapes (`random`). LU factors and pivots are left out (`outs`): PyTorch may factor the transpose.
"""

from .base import I, S, T, X, f16, f32, i64

SQUARE_ERR = [S(T(2, 3)), S(T(3)), S(T(2, 2, dt=f16)), S(I(2, 2))]
SPD = [[4.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 2.0]]
SPD2 = [SPD, [[2.0, -0.5, 0.25], [-0.5, 5.0, 1.0], [0.25, 1.0, 3.0]]]
SINGULAR = [[1.0, 2.0], [2.0, 4.0]]
DT = [f16, f32, i64]


def samples(t):
    t.op("linalg_inv_ex", S(T(3, 3)), S(T(2, 2, 2)), S(T(1, 1)), S(T(0, 0)), S(T(0, 2, 2)), S(T(2, 3, 3, lay="t")), dtypes=DT, err=[*SQUARE_ERR, S(X(SINGULAR), check_errors=True)])
    t.op("linalg_inv inverse", S(T(3, 3)), S(T(2, 2, 2)), dtypes=DT, err=[*SQUARE_ERR, S(X(SINGULAR)), S(X([[[1.0, 0.0], [0.0, 1.0]], SINGULAR]))])
    solve = [S(T(3, 3), T(3, 2)), S(T(3, 3), T(3)), S(T(2, 2, 2), T(2, 2, 3)), S(T(2, 2, 2), T(2, 2)), S(T(2, 2), T(3, 2, 1)), S(T(3, 2, 2), T(2)), S(T(3, 3), T(2, 3), left=False), S(T(2, 2, 2), T(2, 1), left=True), S(T(0, 0), T(0, 2)), S(T(2, 2), T(2, 0))]
    solve_err = [S(T(2, 3), T(2, 1)), S(T(2, 2), T(3, 1)), S(T(2, 2), T(2, 1, dt=f32)), S(T(2, 2), T(2), left=False), S(T(2, 2, dt=f16), T(2, 1, dt=f16)), S(T(3, 2, 2), T(2, 2, 1))]
    t.op("_linalg_solve_ex", *[S(*s.args, outs=1, **s.kwargs) for s in solve], dtypes=DT, err=[*solve_err, S(X(SINGULAR), T(2, 1), check_errors=True)])
    t.op("linalg_solve_ex linalg_solve", *solve[:3], dtypes=DT, err=solve_err)
    t.op("linalg_solve", nc=False, dtypes=[], err=[S(X(SINGULAR), T(2, 1))])
    dets = [S(T(3, 3)), S(T(2, 2, 2)), S(T(1, 1)), S(T(4, 4)), S(T(0, 0), grad=False), S(T(0, 2, 2), grad=False)]
    t.op("_linalg_det", *[S(*s.args, outs=1, grad=s.grad) for s in dets], dtypes=DT, err=SQUARE_ERR)
    t.op("linalg_det det", *dets, S(X(SINGULAR, grad=False)), dtypes=DT, err=SQUARE_ERR)
    t.op("_linalg_slogdet", *[S(*s.args, outs=2, grad=s.grad) for s in dets], dtypes=DT, err=SQUARE_ERR)
    t.op("linalg_slogdet slogdet", *dets, S(X(SINGULAR, grad=False)), dtypes=DT, err=SQUARE_ERR)
    t.op("logdet", S(X(SPD)), S(X([[0.0, 1.0], [1.0, 0.0]], grad=False)), S(X(SPD2)), dtypes=DT, err=SQUARE_ERR)
    chol = [S(X(SPD)), S(X(SPD2)), S(X(SPD), upper=True), S(X([[2.0]])), S(T(0, 0), grad=False)]
    chol_err = [*SQUARE_ERR, S(X(SINGULAR, grad=False), check_errors=True)]
    t.op("linalg_cholesky_ex", *chol, dtypes=DT, err=chol_err)
    t.op("linalg_cholesky", *chol, dtypes=DT, err=[*SQUARE_ERR, S(X([[1.0, 2.0], [2.0, 1.0]])), S(X([SPD, [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]))])
    t.op("cholesky_solve", S(T(3, 2), X([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [0.25, -0.5, 1.0]], grad=False)), S(T(3, 1), X([[2.0, 0.5, 0.25], [0.0, 1.5, -0.5], [0.0, 0.0, 1.0]], grad=False), True), dtypes=DT, err=[S(T(3, 2), T(2, 2)), S(T(3), T(3, 3))])
    t.op("linalg_qr", S(T(3, 3)), S(T(4, 2)), S(T(2, 4)), S(T(2, 3, 2)), S(T(4, 2), "complete", grad=False), S(T(2, 3), "complete"), S(T(3, 2), "r", grad=False), S(T(1, 1)), S(T(0, 2), grad=False), S(T(2, 0), "complete", grad=False), dtypes=DT, err=[S(T(3)), S(T(2, 2), "full"), S(I(2, 2))])
    t.op("_linalg_eigh", S(X(SPD), outs=1), S(X(SPD2), outs=1), S(X(SPD), "U", outs=1), S(X(SPD, grad=False), "L", False, outs=1), dtypes=DT, err=[*SQUARE_ERR, S(X(SPD), "Q")])
    t.op("linalg_eigh", S(X(SPD), tags=("random",)), S(X(SPD2), "U", tags=("random",)), nc=False, dtypes=[], err=[*SQUARE_ERR, S(X(SPD), "Q")])
    t.op("linalg_eigvalsh", S(X(SPD)), S(X(SPD2)), S(X(SPD), "U"), S(T(0, 0), grad=False), dtypes=DT, err=[*SQUARE_ERR, S(X(SPD), "Q")])
    t.op("_linalg_svd", S(T(3, 2), False, False, grad=False), dtypes=[f32], err=[S(T(3)), S(I(2, 2))])
    t.op("_linalg_svd linalg_svd", S(T(3, 2), tags=("random",)), S(T(2, 2, 3), True, tags=("random",)), S(T(2, 4), False, tags=("random",)), nc=False, dtypes=[], err=[S(T(3))])
    t.op("linalg_svdvals", S(T(3, 3)), S(T(4, 2)), S(T(2, 4)), S(T(2, 2, 3)), S(T(0, 2), grad=False), S(X([[1.0, 1.0], [1.0, 1.0]], grad=False)), dtypes=DT, err=[S(T(3)), S(I(2, 2)), S(X([[float("nan"), 1.0], [1.0, 1.0]]))])
    t.op("linalg_solve_triangular", S(T(3, 3), T(3, 2), upper=True), S(T(3, 3), T(3, 2), upper=False), S(T(3, 3), T(2, 3), upper=True, left=False), S(T(3, 3), T(2, 3), upper=False, left=False), S(T(2, 2), T(2, 1), upper=True, unitriangular=True), S(T(2, 2, 2), T(2, 3), upper=False), S(T(2, 2), T(3, 2, 1), upper=False), S(T(0, 0), T(0, 1), upper=True), dtypes=DT, err=[S(T(2, 3), T(2, 1), upper=True), S(T(2, 2), T(3, 1), upper=True), S(T(2, 2), T(2), upper=True)])
    inf = float("inf")
    t.op("linalg_matrix_norm", *[S(T(3, 2), p) for p in (2, -2, 1, -1, inf, -inf)], S(T(2, 3, 2), 1, [0, 2], True), S(T(2, 3, 2), 2, [2, 0]), dtypes=[f32], err=[S(T(3, 2), 3), S(T(3), 2), S(T(3, 2), 2, [0]), S(I(3, 2), 2)])
    t.op("linalg_matrix_norm.str_ord", S(T(2, 3), "fro"), S(T(2, 3), "fro", [0, 1], True), S(T(2, 3), "nuc"), S(T(2, 3, 2), "nuc", [0, 1], True), dtypes=[f32], err=[S(T(2, 3), "frob"), S(T(3), "fro")])
    t.op("linalg_norm", S(T(2, 3)), S(T(3), 1), S(T(3, 2), 2), S(T(2, 3, 2), 1, [0, 1]), S(T(2, 3), 3, [1], True), S(T(2, 3, 2), None, [0, 2]), S(T(2, 3, 2), keepdim=True), dtypes=[f32], err=[S(T(2, 3, 2), 2), S(T(3, 2), 3), S(I(3, 2))])
    t.op("linalg_norm.ord_str", S(T(2, 3), "fro"), S(T(2, 3), "nuc"), S(T(2, 3, 2), "fro", [0, 2]), dtypes=[f32], err=[S(T(3), "fro"), S(T(2, 3), "max")])
    t.op("linalg_matrix_power matrix_power", S(T(3, 3), 2), S(T(2, 2), 0, grad=False), S(T(2, 2), 1), S(T(2, 2), 3), S(T(2, 2, 2), 5), S(T(2, 2), -1), S(T(2, 2), -2), dtypes=DT, err=[S(T(2, 3), 2), S(T(3), 2), S(X(SINGULAR), -1)])
