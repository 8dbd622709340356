"""Inverses, systems, determinants, decompositions, norms and powers of matrices.

Only what does not depend on an implementation's choice of signs is compared: eigenvectors and singular vectors are checked by what they multiply
back to (crates/core/tests/linalg.rs), here by their shapes (`random`). LU factors and pivots are left out (`outs`): PyTorch may factor the transpose.
"""

from .base import I, S, T, X, Z, c64, c128, f16, f32, i32, i64

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

    shapes = [S(T(3, 3)), S(T(2, 2, 2)), S(T(4, 2)), S(T(2, 4)), S(T(1, 1)), S(T(0, 2), grad=False), S(T(2, 0), grad=False), S(Z(3, 3)), S(Z(2, 4)), S(Z(3, 2))]
    lu_err = [S(T(3)), S(T(2, 2, dt=f16)), S(I(2, 2)), S(T(2, 2), pivot=False)]
    t.op("linalg_lu_factor_ex", *shapes, S(X(SINGULAR, grad=False)), dtypes=DT, err=[*lu_err, S(X(SINGULAR), check_errors=True)])
    t.op("linalg_lu", *shapes, dtypes=DT, err=lu_err)
    t.op("linalg_lu_factor", *shapes[:4], dtypes=DT, err=[*lu_err, S(X(SINGULAR))])
    t.op("_lu_with_info", *shapes[:3], dtypes=[f32], err=lu_err[:3])
    piv3, piv2 = X([2, 3, 3], dt=i32), X([2, 2], dt=i32)
    t.op("lu_unpack", S(T(3, 3), piv3), S(T(4, 2), X([3, 4], dt=i32)), S(T(2, 4), piv2), S(T(3, 3), piv3, True, False), S(T(3, 3, grad=False), piv3, False, True), S(T(2, 2, 2), X([[1, 2], [2, 2]], dt=i32)), S(Z(2, 2), piv2), dtypes=[f32], nc=False, err=[S(T(3, 3), X([1, 2, 3], dt=i64)), S(T(3, 3), piv2), S(T(3), piv3)])
    lu_solve = [S(T(3, 3), piv3, T(3, 2)), S(T(3, 3), piv3, T(2, 3), left=False), S(T(3, 3), piv3, T(3, 2), adjoint=True), S(T(3, 3), piv3, T(2, 3), left=False, adjoint=True), S(T(2, 2), piv2, T(3, 2, 1)), S(T(2, 2, 2), X([[1, 2], [2, 2]], dt=i32), T(2, 1)), S(Z(2, 2), piv2, Z(2, 2)), S(Z(2, 2), piv2, Z(2, 2), left=False), S(Z(2, 2), piv2, Z(2, 2), adjoint=True), S(Z(2, 2), piv2, Z(3, 2), left=False, adjoint=True)]
    lu_solve_err = [S(T(3, 3), piv2, T(3, 1)), S(T(3, 3), X([1, 2, 3], dt=i64), T(3, 1)), S(T(2, 2), piv2, T(3, 1)), S(T(2, 2), piv2, T(2, 1, dt=f32)), S(T(2, 3), piv2, T(2, 1))]
    t.op("linalg_lu_solve", *lu_solve, dtypes=[f32], nc=False, err=lu_solve_err)
    t.op("lu_solve", S(T(3, 2), T(3, 3), piv3), S(T(2, 1), T(2, 2), piv2), dtypes=[f32], nc=False, err=[S(T(3, 1), T(3, 3), piv2)])
    indefinite = [[0.5, 2.0, -1.0, 0.25], [2.0, 0.1, 3.0, 1.0], [-1.0, 3.0, 0.2, -2.0], [0.25, 1.0, -2.0, -0.3]]
    herm = [[1.0 + 0j, 2 - 1j, 0.5j], [2 + 1j, -0.5 + 0j, 3 + 0j], [-0.5j, 3 + 0j, 0.25 + 0j]]
    ldl = [S(X(indefinite, grad=False)), S(X(SPD2, grad=False)), S(X([[0.0, 1.0], [1.0, 0.0]], grad=False)), S(X(herm, dt=c128, grad=False), hermitian=True), S(T(0, 0, grad=False))]
    t.op("linalg_ldl_factor_ex", *ldl, dtypes=[f32], err=SQUARE_ERR)
    t.op("linalg_ldl_factor", *ldl, dtypes=[f32], err=SQUARE_ERR)
    ld = X([[2.0, 0.0, 0.0], [0.5, -1.5, 0.0], [0.25, -0.5, 1.0]], grad=False)
    t.op("linalg_ldl_solve", S(ld, X([1, 2, 3], dt=i32), T(3, 2, grad=False)), S(ld, X([1, 3, 3], dt=i64), T(3, 1, grad=False)), S(ld, X([2, 3, 3], dt=i32), T(2, 3, 1, grad=False)), S(ld, X([-2, -2, 3], dt=i32), T(3, 1, grad=False)), dtypes=[f32], nc=False, err=[S(ld, piv2, T(3, 1)), S(ld, piv3, T(2, 1))])
    t.op("linalg_eig", S(T(3, 3), tags=("random",)), S(T(2, 2, 2), tags=("random",)), S(Z(2, 2), tags=("random",)), nc=False, dtypes=[], err=[*SQUARE_ERR, S(X([[float("nan"), 1.0], [1.0, 1.0]]))])
    ordered = [[3.0, 0.5, 0.25], [0.0, -1.0, 2.0], [0.0, 0.0, 0.5]]
    t.op("linalg_eigvals", S(X(ordered)), S(X([[2.0]])), S(T(0, 0), grad=False), dtypes=[f32], err=SQUARE_ERR)
    t.op("_linalg_eigvals", S(X(ordered, grad=False)), dtypes=[f32], err=SQUARE_ERR)
    t.op("linalg_matrix_exp", S(T(3, 3)), S(T(2, 2, 2)), S(X([[0.0, 1e-5], [1e-4, 0.0]])), S(X([[0.01, 0.02], [-0.01, 0.0]])), S(T(2, 2, lo=-9, hi=9)), S(T(1, 1)), S(T(0, 0), grad=False), S(Z(2, 2)), dtypes=[f32, c64, i64], err=[S(T(2, 3)), S(T(3))])
    t.op("matrix_exp", S(T(2, 2)), dtypes=[f32], err=[S(T(2, 3))])
    tall = [S(T(3, 3)), S(T(4, 2)), S(T(2, 4)), S(T(2, 3, 2))]
    t.op("geqrf", *[S(*s.args, grad=False) for s in tall], S(Z(3, 2, grad=False)), S(T(0, 2, grad=False)), dtypes=[f32], err=[S(T(3)), S(I(2, 2))])
    house = [S(T(3, 3), T(3)), S(T(4, 2), T(2)), S(T(4, 3), T(2)), S(T(2, 3, 2), T(2, 2)), S(Z(3, 2), Z(2)), S(T(3, 0), T(0), grad=False)]
    t.op("linalg_householder_product orgqr", *house, dtypes=[f32], err=[S(T(2, 3), T(2)), S(T(3, 2), T(3)), S(T(3), T(1)), S(T(3, 2), T(2, dt=f32))])
    t.op("ormqr", S(T(3, 2), T(2), T(3, 2)), S(T(3, 2), T(2), T(2, 3), False), S(T(3, 2), T(2), T(3, 2), True, True), S(T(3, 3), T(3), T(2, 3), False, True), S(T(2, 3, 2), T(2, 2), T(2, 3, 1)), S(Z(3, 2), Z(2), Z(3, 2)), S(Z(3, 2), Z(2), Z(2, 3), False, True), dtypes=[f32], err=[S(T(3, 2), T(2), T(2, 2)), S(T(3, 2), T(3), T(3, 2)), S(T(3), T(2), T(3, 2))])
    lstsq = [S(T(3, 3), T(3, 2)), S(T(4, 2), T(4, 2)), S(T(2, 4), T(2, 1)), S(T(3, 2), T(3)), S(T(2, 3, 2), T(2, 3, 1)), S(T(2, 3, 2), T(2, 3)), S(Z(3, 2), Z(3, 2))]
    drivers = [S(*s.args, driver=d) for d in ("gels", "gelsd", "gelss") for s in lstsq[:3]]
    t.op("linalg_lstsq", *lstsq, *drivers, S(T(3, 0, grad=False), T(3, 1, grad=False)), dtypes=[f32], err=[S(T(3, 2), T(2, 1)), S(T(3, 2), T(3, 1), driver="qr"), S(T(3), T(3)), S(T(3, 2), T(3, 1, dt=f32))])
    t.op("linalg_pinv.atol_rtol_tensor", S(T(3, 3)), S(T(4, 2)), S(T(2, 4)), S(T(2, 3, 2)), S(X(SPD), hermitian=True), S(T(3, 2), atol=X(0.5, grad=False), grad=False), S(T(2, 3, 2), rtol=X([0.1, 0.9], grad=False), grad=False), S(T(0, 2), grad=False), S(Z(3, 2)), dtypes=[f32], err=[S(T(3)), S(I(2, 2)), S(T(2, 3), hermitian=True)])
    t.op("linalg_pinv.atol_rtol_float", S(T(3, 2)), S(T(3, 2), atol=0.5, rtol=0.1, grad=False), S(X(SPD), hermitian=True), dtypes=[f32], err=[S(T(3))])
    t.op("linalg_pinv", S(T(3, 2), 0.01), S(X(SPD), 0.01, True), dtypes=[f32], err=[S(T(3), 0.1)])
    t.op("linalg_pinv.rcond_tensor", S(T(3, 2), X(0.01, grad=False)), dtypes=[f32], err=[S(T(3), X(0.1, grad=False))])
    t.op("pinverse", S(T(3, 2)), S(T(2, 2), 0.5, grad=False), dtypes=[f32], err=[S(T(3))])
    flat = X([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    t.op("linalg_matrix_rank", S(flat, 0.01), S(T(2, 3, 2), 0.5), S(X(SPD), 0.5, True), S(T(0, 2), 0.1), dtypes=[f32], err=[S(T(3), 0.1), S(I(2, 2), 0.1)])
    t.op("linalg_matrix_rank.atol_rtol_float", S(flat), S(T(2, 3, 2), atol=1.0), S(T(3, 3), rtol=0.5), S(X(SPD), atol=0.1, rtol=0.1, hermitian=True), dtypes=[f32], err=[S(T(3))])
    t.op("linalg_matrix_rank.atol_rtol_tensor", S(flat), S(T(2, 3, 2), atol=X([1.0, 0.0])), S(T(2, 3, 2), rtol=X([0.5, 0.1])), dtypes=[f32], err=[S(T(3))])
    t.op("linalg_matrix_rank.tol_tensor", S(flat, X(0.01)), S(T(2, 3, 2), X([0.5, 2.0])), dtypes=[f32], err=[S(T(3), X(0.1))])
    t.op("linalg_cond", S(T(3, 3)), S(T(3, 2)), S(T(3, 3), 2), S(T(3, 3), -2), *[S(T(3, 3), p, grad=False) for p in (1, -1, inf, -inf)], S(X([[1.0, 2.0], [2.0, 4.0]], grad=False), 1), S(T(2, 2, 2), 1, grad=False), S(Z(2, 2)), S(T(0, 0), grad=False), dtypes=[f32], err=[S(T(3)), S(T(3, 2), 1), S(I(2, 2))])
    t.op("linalg_cond.p_str", S(T(3, 3), "fro", grad=False), S(T(2, 2, 2), "nuc"), dtypes=[f32], err=[S(T(3, 2), "fro"), S(T(3, 3), "max")])
    t.op("linalg_tensorinv", S(T(4, 2, 2), 1), S(T(2, 3, 3, 2)), dtypes=[f32], err=[S(T(4, 2, 3), 1), S(T(2, 2), 0), S(T(2, 2), -1)])
    t.op("linalg_tensorsolve", S(T(2, 3, 6), T(2, 3)), S(T(2, 3, 3, 2), T(2, 3)), S(T(3, 2, 2, 3), T(3, 2), [0, 2], grad=False), dtypes=[f32], err=[S(T(2, 3, 5), T(2, 3)), S(T(2, 2), T(3))])
    t.op("linalg_vander", S(T(3)), S(T(2, 3)), S(T(3), N=4), S(I(3), N=3), S(T(2), N=2), S(Z(3)), dtypes=[f32, i64], err=[S(T(3), N=1), S(T())])
    cplx = [S(Z(3, 3)), S(Z(2, 2, 2))]
    posdef = [[4.0 + 0j, 1 + 1j, 0.5j], [1 - 1j, 3 + 0j, -0.25 + 0j], [-0.5j, -0.25 + 0j, 2 + 0j]]
    t.op("linalg_inv_ex linalg_inv inverse linalg_det det linalg_slogdet slogdet", *cplx, dtypes=[c64])
    t.op("linalg_solve linalg_solve_ex", S(Z(3, 3), Z(3, 2)), S(Z(2, 2), Z(2)), S(Z(3, 3), Z(2, 3), left=False), dtypes=[c64], err=[S(Z(2, 2), T(2, 1))])
    t.op("linalg_cholesky_ex linalg_cholesky", S(X(posdef, dt=c128)), S(X(posdef, dt=c128), upper=True), dtypes=[c64])
    t.op("cholesky_solve", S(Z(3, 2), X([[2 + 0j, 0j, 0j], [0.5 + 1j, 1.5 + 0j, 0j], [0.25j, -0.5 + 0j, 1 + 0j]], dt=c128, grad=False)), dtypes=[], nc=False)
    t.op("linalg_qr", S(Z(3, 3)), S(Z(4, 2)), S(Z(2, 3)), dtypes=[c64])
    t.op("linalg_eigvalsh", S(X(posdef, dt=c128)), S(X(posdef, dt=c128), "U"), dtypes=[c64])
    t.op("linalg_svdvals", S(Z(3, 3)), S(Z(3, 2)), dtypes=[c64])
    t.op("linalg_eigh", S(X(posdef, dt=c128), tags=("random",)), nc=False, dtypes=[])
    t.op("linalg_svd", S(Z(3, 2), tags=("random",)), S(Z(2, 3), False, tags=("random",)), nc=False, dtypes=[])
    t.op("linalg_solve_triangular", S(Z(3, 3), Z(3, 2), upper=True), S(Z(3, 3), Z(2, 3), upper=False, left=False), dtypes=[c64])
    t.op("linalg_matrix_norm", S(Z(3, 2), 2), S(Z(3, 2), 1), dtypes=[c64])
    t.op("linalg_matrix_power", S(Z(2, 2), 3), S(Z(2, 2), -1), dtypes=[c64])
