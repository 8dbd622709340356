"""Function transforms over trees."""

import copy

import pytest
from conftest import cases, check, raised

import firebrand
from firebrand.autograd import forward_ad
from firebrand.func import grad, vmap


class Cases:
    def grad(m):
        f = lambda x, y: (x**2 * y).sum()  # noqa: E731
        x, y = m.tensor([1.0, 2.0]), m.tensor([3.0, 4.0])
        return [m.func.grad(f)(x, y), m.func.grad(f, argnums=1)(x, y), m.func.grad(f, argnums=(0, 1))(x, y), m.func.grad_and_value(f)(x, y)]

    def trees(m):
        def loss(params, x):
            return (x @ params["w"] + params["b"][0]).sum()

        params = {"w": m.ones(2), "b": [m.zeros(1)]}
        return m.func.grad(loss)(params, m.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def aux(m):
        return m.func.grad(lambda x: ((x**2).sum(), {"double": x * 2}), has_aux=True)(m.tensor([1.0, 2.0]))

    def vjp(m):
        y, pull = m.func.vjp(lambda x: (x.sin(), x * 2), m.tensor([1.0, 2.0]))
        return [y, pull((m.ones(2), m.ones(2)))]

    def jvp(m):
        return m.func.jvp(lambda x, y: x * y, (m.tensor([1.0, 2.0]), m.ones(2)), (m.ones(2), m.tensor([0.0, 1.0])))

    def jacobians(m):
        f = lambda x: m.stack([x[0] ** 2, x[0] * x[1]])  # noqa: E731
        x = m.tensor([2.0, 3.0])
        return [m.func.jacrev(f)(x), m.func.jacfwd(f)(x), m.func.hessian(lambda x: (x**3).sum())(x), m.func.jacrev(lambda a, b: a * b, argnums=(0, 1))(x, x)]

    def vmap(m):
        x = m.arange(6.0).reshape(2, 3)
        v = m.func.vmap
        return [
            v(lambda r: r.sum())(x), v(lambda c: c * 2, in_dims=1)(x), v(lambda r: r * 2, out_dims=1)(x), v(lambda a, b: a @ b, in_dims=(0, None))(x, m.ones(3)),
            v(v(lambda a: a**2))(x), v(lambda d: d["a"] + 1)({"a": x}), v(lambda r: (r, r.sum()))(x)[1], v(lambda r: r.sum(), chunk_size=1)(x),
            v(m.func.grad(lambda r: (r**3).sum()))(x), v(lambda r, k: r * k, in_dims=(0, None))(x, 3.0),
        ]

    def printed(m):
        x, texts = m.arange(6.0).reshape(2, 3), []
        show = lambda t: texts.append(repr(t)) or t
        m.func.vmap(show)(x)
        m.func.vmap(m.func.vmap(show), in_dims=1)(x)
        m.func.vmap(lambda row: show(row * 2))(x)
        return texts

    def nested(m):
        f = lambda x: x.sin() * x  # noqa: E731
        g = m.func.grad
        x = m.tensor(1.5)
        return [g(g(f))(x), g(g(g(f)))(x), m.func.jvp(g(f), (x,), (m.tensor(1.0),))]

    def backward_through_a_transform(m):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        m.func.grad(lambda a: (a**3).sum())(x).sum().backward()
        return x.grad

    def randomness(m):
        m.manual_seed(0)
        x = m.zeros(3)
        same = m.func.vmap(lambda a: a + m.rand(1), randomness="same")(x)
        return [bool((same == same[0]).all()), raised(lambda: m.func.vmap(lambda a: a + m.rand(1))(x))[:1]]

    def refusals(m):
        x = m.ones(2)
        return [
            raised(lambda: m.func.grad(lambda a: a)(x)), raised(lambda: m.func.grad(lambda a: (a.sum(), a))(x))[:1], raised(lambda: m.func.vmap(lambda a: a)())[:1],
            raised(lambda: m.func.vmap(lambda a, b: a)(x, m.ones(3)))[:1], raised(lambda: m.func.vmap(lambda a: 1.0)(x))[:1], raised(lambda: m.func.vmap(lambda a: a, in_dims=3)(x))[:1],
            raised(lambda: m.func.vmap(lambda a: a.item())(x))[:1], raised(lambda: m.func.grad(lambda a: a.sum(), argnums=4)(x))[:1],
        ]

    def an_exception_in_the_function(m):
        def f(x):
            raise KeyError("mine")

        return [raised(lambda: m.func.grad(f)(m.ones(1))), raised(lambda: m.func.vmap(f)(m.ones(1)))]

    def functional_call(m):
        layer = m.nn.Linear(2, 1)
        other = {"weight": m.ones(1, 2), "bias": m.zeros(1)}
        found = m.func.functional_call(layer, other, (m.tensor([[1.0, 2.0]]),))
        grads = m.func.grad(lambda p, x: m.func.functional_call(layer, p, (x,)).sum())(other, m.tensor([[1.0, 2.0]]))
        return [found, grads]


@cases(Cases)
def test_like_pytorch(oracle, name, case):
    check(oracle, f"func.{name}", case)


def test_distributions_draw_for_each_sample():
    means = firebrand.ones(2, 8)
    for draw in (lambda m: firebrand.normal(m, 1.0), lambda m: firebrand.normal(m, m), firebrand.poisson):
        found = vmap(draw, randomness="different")(means)
        assert found[0].tolist() != found[1].tolist()
        with pytest.raises(RuntimeError, match="same randomness with a batched tensor"):
            vmap(draw, randomness="same")(means)
        with pytest.raises(RuntimeError, match="randomness error mode"):
            vmap(draw)(means)


def test_random_numbers_in_place():
    half = firebrand.full((2, 32), 0.5)
    drawn = vmap(lambda p: firebrand.zeros_like(p).bernoulli_(p), randomness="different")(half)
    assert drawn[0].tolist() != drawn[1].tolist()
    captured = firebrand.zeros(32)
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        vmap(lambda p: captured.normal_() + p, randomness="different")(half)
    with pytest.raises(RuntimeError, match="more elements than `self`"):
        vmap(lambda p: captured.bernoulli_(p), randomness="different")(half)


def test_views_tangents_and_histories_inside_vmap():
    pairs = firebrand.zeros(3, 2)
    vmap(lambda p: firebrand.view_as_complex(p).add_(2).real)(pairs)
    assert pairs.tolist() == [[2.0, 0.0]] * 3
    x, base, tangents = firebrand.zeros(2), firebrand.zeros(2), firebrand.tensor([[1.0, 2.0], [3.0, 4.0]])

    def push(tangent):
        with forward_ad.dual_level():
            base.copy_(forward_ad.make_dual(x, tangent))
            return forward_ad.unpack_dual(base).tangent

    assert vmap(push)(tangents).tolist() == tangents.tolist()
    w, y = firebrand.ones(2, requires_grad=True), firebrand.tensor([3.0, 4.0])
    pull = vmap(lambda v: firebrand.autograd.grad([w * y], [w], grad_outputs=[v])[0])
    assert pull(firebrand.eye(2)).tolist() == [[3.0, 0.0], [0.0, 4.0]]


def test_anomalies_of_samples():
    with firebrand.autograd.set_detect_anomaly(True):
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
            vmap(grad(lambda x: x.sqrt().sum()))(firebrand.tensor([-1.0, 4.0]))


def test_the_first_of_equal_maxima_gets_the_gradient():
    w = firebrand.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 2.0]], requires_grad=True)
    bag = firebrand.nn.functional.embedding_bag(firebrand.tensor([2, 1, 0]), w, firebrand.tensor([0]), mode="max")
    bag.sum().backward()
    assert w.grad.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_a_sample_that_escaped_is_refused():
    """It panicked in debug builds, and showed the first sample where memory is shared."""
    kept = []
    vmap(lambda x: kept.append(x) or x * 2)(firebrand.ones(3, 4))
    (sample,) = kept
    uses = [lambda: sample + 1, lambda: sample.sum(), lambda: sample[0].item(), lambda: sample.zero_(), lambda: repr(list(sample)), lambda: repr(sample)]
    uses += [sample.tolist, sample.clone, lambda: vmap(lambda x: x + sample)(firebrand.ones(3, 4))]
    for use in uses:
        with pytest.raises(RuntimeError, match="made inside vmap was used outside of it"):
            use()
    for share in (sample.numpy, sample.data_ptr, sample.__dlpack__, lambda: copy.copy(sample).numpy()):
        with pytest.raises(RuntimeError, match="doesn't have storage|outside of it"):
            share()
