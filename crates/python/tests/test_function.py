"""Custom functions and their context."""

import gc
import weakref

import pytest
from conftest import cases, check, raised

import firebrand


def square(m, **members):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g

    content = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    content.update({k: staticmethod(v) if callable(v) else v for k, v in members.items()})
    return type("Square", (m.autograd.Function,), content)


class Cases:
    def plain(m):
        x = m.tensor([1.0, 3.0], requires_grad=True)
        y = square(m).apply(x)
        y.sum().backward()
        return [y, x.grad, y.grad_fn.name(), type(y.grad_fn).__name__]

    def double_backward(m):
        x = m.tensor([1.0, 3.0], requires_grad=True)
        (g,) = m.autograd.grad(square(m).apply(x).sum(), x, create_graph=True)
        return m.autograd.grad(g.sum(), x)[0]

    def other_arguments_and_results(m):
        class Mixed(m.autograd.Function):
            @staticmethod
            def forward(ctx, a, text, x, factor):
                ctx.factor = factor
                seen.append(ctx.needs_input_grad)
                return x * factor, text, a + 1

            @staticmethod
            def backward(ctx, g, text, ga):
                seen.append([text, ga.tolist()])
                return ga, None, g * ctx.factor, None

        seen = []
        a, x = m.ones(1), m.tensor([1.0, 2.0], requires_grad=True)
        y, text, b = Mixed.apply(a, "text", x, 4.0)
        y.sum().backward()
        return [y, text, b, x.grad, seen]

    def not_materialized(m):
        class Two(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, a, b):
                seen.append([a is None, b is None])
                return a * 2

        seen = []
        x = m.ones(2, requires_grad=True)
        Two.apply(x)[0].sum().backward()
        return [seen, x.grad]

    def marked(m):
        class Marked(m.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                x.mul_(2)
                ctx.mark_dirty(x)
                order = y.argsort()
                ctx.mark_non_differentiable(order)
                return x, order, y * 3

            @staticmethod
            def backward(ctx, a, _, b):
                return a * 2, b * 3

        base = m.tensor([1.0, 2.0], requires_grad=True)
        x, y = base.clone(), m.tensor([5.0, 4.0], requires_grad=True)
        a, order, b = Marked.apply(x, y)
        (a + b).sum().backward()
        return [a is x, a, order.requires_grad, base.grad, y.grad, x._version]

    def with_setup_context(m):
        class Cube(m.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x, k):
                return x**3 * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, k = inputs
                ctx.save_for_backward(x)
                ctx.save_for_forward(x)
                ctx.k = k

            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g * ctx.k, None

            @staticmethod
            def jvp(ctx, t, _):
                return 3 * ctx.saved_tensors[0] ** 2 * t * ctx.k

        x = m.tensor([1.0, 2.0], requires_grad=True)
        Cube.apply(x, 2.0).sum().backward()
        fwd = m.autograd.forward_ad
        with fwd.dual_level():
            t = fwd.unpack_dual(Cube.apply(fwd.make_dual(m.tensor([2.0]), m.tensor([1.0])), 1.0)).tangent
        v = m.tensor([1.0, 2.0, 3.0])
        each = m.func.vmap(m.func.grad(lambda a: Cube.apply(a, 1.0)))(v)
        return [x.grad, t, each, m.func.vmap(lambda a: Cube.apply(a, 2.0))(v)]

    def own_vmap(m):
        class Double(m.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return g * 2

            @staticmethod
            def vmap(info, in_dims, x):
                seen.append([info.batch_size, in_dims[0], info.randomness])
                return x * 2, in_dims[0]

        seen = []
        return [m.func.vmap(Double.apply, in_dims=1)(m.ones(2, 3)), seen]

    def once(m):
        class Once(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            @m.autograd.function.once_differentiable
            def backward(ctx, g):
                return g * 2

        x = m.ones(2, requires_grad=True)
        (g,) = m.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
        y = m.ones(2, requires_grad=True)
        (h,) = m.autograd.grad(Once.apply(x * y), x, y, create_graph=True)
        return [g, raised(lambda: h.sum().backward())]

    def refusals(m):
        x = m.ones(2, requires_grad=True)

        def run(**members):
            return raised(lambda: square(m, **members).apply(x).sum().backward())

        def written():
            f = square(m)
            y = x.clone()
            z = f.apply(y).sum()
            y.add_(1)
            z.backward()

        return [
            run(backward=lambda ctx, g: (g, g)), run(backward=lambda ctx, g: 3)[:1],
            raised(lambda: type("Empty", (m.autograd.Function,), {}).apply(x))[:1], raised(written)[:1],
            raised(lambda: m.func.grad(lambda a: square(m).apply(a).sum())(m.ones(2)))[:1],
        ]

    def nothing_recorded(m):
        y = square(m).apply(m.ones(2))
        with m.no_grad():
            z = square(m).apply(m.ones(2, requires_grad=True))
        return [y.requires_grad, z.requires_grad, y.grad_fn]

    def freed(m):
        x = m.ones(2, requires_grad=True)
        y = square(m).apply(x).sum()
        y.backward()
        return raised(lambda: y.backward())

    def checked(m):
        x = m.tensor([1.0, 2.0], dtype=m.float64, requires_grad=True)
        return [m.autograd.gradcheck(square(m).apply, (x,)), m.autograd.gradgradcheck(square(m).apply, (x,))]


@cases(Cases)
def test_like_pytorch(oracle, name, case):
    check(oracle, f"function.{name}", case)


def test_the_context_is_the_node():
    seen = []

    class Keep(firebrand.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.note = "kept"
            seen.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            assert ctx is seen[0]
            return g * 2

    x = firebrand.ones(2, requires_grad=True)
    y = Keep.apply(x)
    assert y.grad_fn is seen[0] and y.grad_fn.note == "kept" and isinstance(y.grad_fn, firebrand.autograd.graph.Node)
    assert y.grad_fn.next_functions[0][0].variable is x
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_context_goes_with_its_graph():
    Square = square(firebrand)
    x = firebrand.ones(2, requires_grad=True)
    y = Square.apply(x)
    ref = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert ref() is None


def test_an_exception_in_forward_or_backward_is_the_same_object():
    error = ValueError("mine")

    def fail(*_):
        raise error

    x = firebrand.ones(2, requires_grad=True)
    with pytest.raises(ValueError) as info:
        square(firebrand, forward=fail).apply(x)
    assert info.value is error
    with pytest.raises(ValueError) as info:
        square(firebrand, backward=fail).apply(x).sum().backward()
    assert info.value is error


def test_custom_ops():
    """Cases of `library.custom_op`, whose answers in PyTorch are the same."""
    library = firebrand.library

    @library.custom_op("mylib::scaled_sin", mutates_args=())
    def scaled_sin(x: firebrand.Tensor, by: float = 2.0) -> firebrand.Tensor:
        return (x * by).sin()

    x = firebrand.tensor([0.0, 1.0], requires_grad=True)
    with pytest.raises(NotImplementedError, match="register_autograd"):
        scaled_sin(x).sum().backward()

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.by = inputs[1]

    scaled_sin.register_autograd(lambda ctx, g: (g * (ctx.saved_tensors[0] * ctx.by).cos() * ctx.by, None), setup_context=keep)
    assert firebrand.autograd.gradcheck(lambda t: scaled_sin(t, 3.0), x.detach().double().requires_grad_())
    firebrand.ops.mylib.scaled_sin(x).sum().backward()
    expected = 2 * (2 * x.detach()).cos()
    assert firebrand.allclose(x.grad, expected)
    with firebrand.compiled_backward():
        (again,) = firebrand.autograd.grad(scaled_sin(x).sum(), x)
    assert firebrand.allclose(again, expected)
    same = library.custom_op("mylib::same", lambda t: t, mutates_args=())
    with pytest.raises(RuntimeError, match="alias"):
        same(x)
    for refused in (lambda: library.custom_op("mylib::w", mutates_args=("x",)), lambda: library.custom_op("w", mutates_args=())):
        with pytest.raises((NotImplementedError, ValueError), match="custom_op"):
            refused()
