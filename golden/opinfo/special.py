"""Special functions: Bessel, Airy, error and gamma functions, orthogonal polynomials."""

from .base import I, S, T, X, f32, i64

INF, NAN = float("inf"), float("nan")
FLOAT = [f32, i64]
EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -2.5]


def unary(t, names, lo, hi, edges=EDGES, more=(), grad=True, arg=None):
    x = lambda *s, **k: T(*s, lo=lo, hi=hi, grad=grad, **k)
    far = [S(X(list(more), grad=grad))] if more else []
    t.op(names, S(x(2, 3)), S(x()), S(x(0)), S(x(4, lay="exp")), S(x(2, 2, 3, lay="rev")), *far, S(X(edges, grad=False)), dtypes=FLOAT)


def samples(t):
    big = [0.01, 1.9, 2.1, 7.9, 8.1, 20.25, 100.5, 700.0]
    unary(t, "i0 special_i1", -3, 3, more=[-8.1, 7.9, 8.1, 20.25, 600.0])
    unary(t, "special_i0e special_i1e", -3, 3, more=[-8.1, 7.9, 8.1, 20.25, 1e5])
    unary(t, "special_erfcx", -2, 3, more=[-20.0, -1.5, 6.0, 26.0, 60.0, 1e8])
    unary(t, "special_ndtri", 0.02, 0.98, more=[1e-280, 1e-20, 1e-5, 0.13, 0.87, 0.999999])
    unary(t, "special_log_ndtr", -3, 3, more=[-1e5, -40.0, -5.5, -1.01, 5.0, 9.0])
    unary(t, "special_airy_ai", -4, 4, more=[-60.0, -9.5, -2.05, 2.05, 8.3, 25.0, 103.0, 110.0], grad=False)
    unary(t, "special_bessel_j0 special_bessel_j1", -4, 4, more=[4.9, 5.1, 8.0, 50.0, 1000.0], edges=[0.0, -0.0, 1.0, -1.0, NAN, 0.5, -2.5])
    unary(t, "special_bessel_y0 special_bessel_y1", 0.1, 4, more=[4.9, 5.1, 8.0, 50.0, 1000.0], edges=[0.0, 1.0, -1.0, NAN, 0.5, -2.5])
    unary(t, "special_modified_bessel_i0 special_modified_bessel_i1", -3, 3, more=[-8.1, 7.9, 8.1, 20.25])
    unary(t, "special_modified_bessel_k0 special_modified_bessel_k1", 0.1, 4, more=big, edges=[0.0, 1.0, -1.0, NAN, 0.5, -2.5])
    unary(t, "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1", 0.1, 4, more=big, edges=[0.0, 1.0, -1.0, NAN, 0.5, -2.5], grad=False)
    unary(t, "special_spherical_bessel_j0", -4, 4, more=[0.4, 0.6, 1e-5, 100.0], grad=False)

    def pairs(a, b):
        return [S(a(2, 3), b(2, 3)), S(a(2, 3), b(3)), S(a(2, 1), b(1, 3)), S(a(), b(2, 2)), S(a(0, 3), b(1, 3)), S(a(2, 3, lay="t"), b(2, 3)), S(a(3, lay="step"), b(2, 1, 3)), S(a(3, dt=f32), b(3, dt=f32))]

    pos = lambda *s, **k: T(*s, lo=0.2, hi=4, **k)
    order = lambda *s, **k: T(*s, lo=0.2, hi=4, **{"grad": False, **k})
    wide = S(X([0.5, 3.0, 30.0, 30.0, 200.0, 200.0, 1e4, 0.01, 0.05], grad=False), X([0.1, 40.0, 10.0, 31.0, 190.0, 230.0, 1.01e4, 1e-5, 0.9]))
    edge = S(X([0.0, 0.0, 1.0, INF, INF, 2.0, -1.0, NAN], grad=False), X([0.0, 1.0, 0.0, 1.0, INF, INF, 1.0, 1.0], grad=False))
    t.op("igamma igammac", *pairs(order, pos), wide, edge, dtypes=[f32], err=[S(T(2, 3), T(2, 4)), S(I(2), I(2))])
    t.op("special_xlog1py", *pairs(lambda *s, **k: T(*s, **k), pos), S(X([0.0, 0.0, 1.0, 0.0], grad=False), X([-1.0, NAN, -1.0, INF], grad=False)), dtypes=FLOAT, err=[S(T(2, 3), T(2, 4))])
    t.op("special_xlog1py.self_scalar special_zeta.self_scalar", S(2.5, T(3, lo=0.5, hi=4)), dtypes=FLOAT)
    t.op("special_xlog1py.other_scalar", S(T(3), 2.5), S(T(3), 3), dtypes=FLOAT)
    t.op("special_zeta", *pairs(lambda *s, **k: T(*s, lo=1.2, hi=5, **{"grad": False, **k}), pos), S(X([1.0, 0.5, 2.0, 2.0, NAN], grad=False), X([2.0, 2.0, -1.0, 0.0, 1.0], grad=False)), dtypes=FLOAT)
    t.op("special_zeta.other_scalar", S(T(3, lo=1.2, hi=5, grad=False), 2.5), dtypes=FLOAT)

    polynomials = "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
    for name in polynomials.split():
        name = "special_" + name
        x = lambda *s, **k: T(*s, grad=False, **k)
        n = lambda *s, **k: T(*s, lo=0, hi=12, grad=False, **k)
        places = X([[0.0, 1.0, -1.0, 0.3, -0.7, 2.5, NAN]] * 8, grad=False)
        orders = X([[float(k)] for k in (-1, 0, 1, 2, 5, 7, 9, 20)], grad=False)
        t.op(name, *pairs(x, n), S(places, orders), S(x(3), I(3, lo=0, hi=9)), dtypes=[f32, i64], err=[S(T(2, 3), T(2, 4))])
        t.op(name + ".x_scalar", S(0.5, n(3)), S(2, n(3, dt=f32)), dtypes=[])
        t.op(name + ".n_scalar", S(x(3), 3), S(x(2, 2), 7.0), dtypes=[])
