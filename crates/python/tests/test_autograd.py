"""Backward, gradients, graphs, hooks, modes, forward mode, checkpointing, checking."""

import gc
import threading
import traceback
import weakref

import pytest
from conftest import cases, check, raised

import firebrand


def names(node):
    """The names of a graph's nodes, depth first."""
    if node is None:
        return None
    return [type(node).__name__, [names(n) for n, _ in node.next_functions]]


class Cases:
    def gradients(m):
        x = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = (x * x).sin() / (1 + x.exp())
        y.sum().backward()
        first = x.grad.tolist()
        (x**3).sum().backward()
        return [first, x.grad, x.grad is x.grad]

    def second_order(m):
        x = m.tensor([1.0, 2.0], dtype=m.float64, requires_grad=True)
        (g,) = m.autograd.grad((x**4).sum(), x, create_graph=True)
        (h,) = m.autograd.grad(g.sum(), x, create_graph=True)
        (t,) = m.autograd.grad(h.sum(), x)
        return [g, h, t]

    def graph_shape(m):
        x, w = m.ones(2, 3, requires_grad=True), m.ones(3, requires_grad=True)
        y = ((x @ w).relu() * 2 + 1 - w.sum()).mean()
        return [names(y.grad_fn), y.grad_fn.name(), y.is_leaf, x.is_leaf, x.grad_fn, names((3 - w).grad_fn), names((3 / w).grad_fn)]

    def saved_values(m):
        x = m.tensor([2.0, 3.0], requires_grad=True)
        y = x * m.tensor([5.0, 7.0])
        return [y.grad_fn._saved_other, x.exp().grad_fn._saved_result, raised(lambda: y.grad_fn._saved_nothing)[:1]]

    def rules(m):
        x = m.ones(2, requires_grad=True)
        y = (x * x).sum()
        y.backward()
        z = m.ones(2)
        cut = x.detach()
        return [
            raised(lambda: y.backward()), raised(lambda: (x * 2).backward()), raised(lambda: z.sum().backward()),
            raised(lambda: m.autograd.grad((z * x).sum(), m.ones(2, requires_grad=True))), raised(lambda: m.autograd.grad(x.sum(), z)),
            raised(lambda: x.add_(1)), raised(lambda: x[0].add_(1)), raised(lambda: m.tensor([1], requires_grad=True)),
            raised(lambda: setattr(x * 2, "requires_grad", False)), raised(lambda: z.register_hook(print)),
            raised(lambda: (x * 2).register_post_accumulate_grad_hook(print)), raised(lambda: m.autograd.grad(x.sum(), [])),
            raised(lambda: setattr(x, "grad", m.ones(3))), raised(lambda: setattr(x, "grad", 1))[:1], cut.requires_grad,
            raised(lambda: m.autograd.backward(x.sum(), inputs=[])), raised(lambda: (x * 2).backward(m.ones(3))),
        ]

    def written_after_it_was_saved(m):
        x = m.ones(2, requires_grad=True)
        y = x.exp()
        z = (y * y).sum()
        y.mul_(2)
        return raised(lambda: z.backward())

    def unused_inputs(m):
        x, y = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
        allowed = m.autograd.grad(x.sum(), [x, y], allow_unused=True)
        zeros = m.autograd.grad(x.sum(), [x, y], materialize_grads=True)
        return [allowed[1] is None, zeros[1], raised(lambda: m.autograd.grad(x.sum(), y))]

    def batched(m):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        return m.autograd.grad(x**2, x, m.eye(2), is_grads_batched=True)[0]

    def tensor_hooks(m):
        x = m.ones(2, requires_grad=True)
        seen = []
        x.register_hook(lambda g: seen.append(g.tolist()))
        h = x.register_hook(lambda g: g * 2)
        y = x * 3
        y.register_hook(lambda g: g + 1)
        y.sum().backward()
        first = x.grad.tolist()
        h.remove()
        x.grad = None
        (x * 3).sum().backward()
        with x.register_hook(lambda g: g * 100):
            pass
        return [seen, first, x.grad, raised(lambda: run_bad_hook(m, lambda g: 3)), raised(lambda: run_bad_hook(m, lambda g: g.sum()))[:1]]

    def node_hooks(m):
        x = m.ones(2, requires_grad=True)
        y = x * 3
        seen = []
        y.grad_fn.register_prehook(lambda grads: seen.append(("pre", grads[0].tolist())))
        y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("post", inputs[0].tolist(), inputs[1], outputs[0].tolist())))
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10, None))
        y.sum().backward()
        return [seen, x.grad]

    def post_accumulate_hooks(m):
        x = m.ones(2, requires_grad=True)
        seen = []

        def step(p):
            seen.append([p is x, p.grad.tolist()])
            p.grad = None

        x.register_post_accumulate_grad_hook(step)
        (x * 2).sum().backward()
        return [seen, x.grad]

    def multi_grad_hooks(m):
        a, b, c = (m.ones(2, requires_grad=True) for _ in range(3))
        seen = []
        m.autograd.graph.register_multi_grad_hook([a, b, c], lambda grads: seen.append([g if g is None else g.tolist() for g in grads]))
        handle = m.autograd.graph.register_multi_grad_hook([a, b], lambda g: seen.append("any"), mode="any")
        (a * 2 + b * 3).sum().backward()
        handle.remove()
        (a * c).sum().backward()
        return sorted(map(str, seen[:2])) + seen[2:]

    def retained(m):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward()
        return [y.grad, y.retains_grad, raised(lambda: m.ones(1).retain_grad())]

    def backward_to_inputs(m):
        x, y = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
        m.autograd.backward((x * y).sum(), inputs=[x])
        return [x.grad, y.grad]

    def gradient_edges(m):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        edge = m.autograd.graph.get_gradient_edge(y)
        return [m.autograd.grad((y * y).sum(), edge)[0], edge.output_nr, edge.node is y.grad_fn]

    def modes(m):
        x = m.ones(2, requires_grad=True)
        found = []
        with m.no_grad():
            found.append((x * 2).requires_grad)
            with m.enable_grad():
                found.append((x * 2).requires_grad)
        found.append((x * 2).requires_grad)

        @m.no_grad()
        def f():
            return (x * 2).requires_grad

        @m.no_grad
        def g():
            return m.is_grad_enabled()

        @m.no_grad()
        def steps():
            yield m.is_grad_enabled()
            yield m.is_grad_enabled()

        found += [f(), g(), m.is_grad_enabled(), [(inside, m.is_grad_enabled()) for inside in steps()]]
        m.set_grad_enabled(False)
        found.append((x * 2).requires_grad)
        m.set_grad_enabled(True)
        with m.set_grad_enabled(False):
            found.append(m.is_grad_enabled())
        found.append(m.is_grad_enabled())
        with m.inference_mode():
            t = m.ones(2)
            found += [t.is_inference(), m.is_inference_mode_enabled()]
        found.append(raised(lambda: t.add_(1))[:1])
        return found

    def saved_tensor_hooks(m):
        x = m.tensor([2.0, 3.0], requires_grad=True)
        log = []

        def pack(t):
            log.append("pack")
            return t.detach() * 10

        def unpack(t):
            log.append("unpack")
            return t / 10

        with m.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (x * x).sum()
        y.backward()
        with m.autograd.graph.saved_tensors_hooks(lambda t: 1, lambda p: p):
            z = x.exp().sum()
        return [log, x.grad, raised(lambda: z.backward())[:1]]

    def forward_mode(m):
        fwd = m.autograd.forward_ad
        with fwd.dual_level():
            x = fwd.make_dual(m.tensor([1.0, 2.0]), m.tensor([1.0, 0.5]))
            y = fwd.unpack_dual((x * x).sin())
            plain = [fwd.unpack_dual(t).tangent for t in (m.ones(1), y.primal, y.primal * 2, y.primal[0])]
        return [y.primal, y.tangent, plain]

    def checkpoints(m):
        from importlib import import_module

        checkpoint = import_module(f"{m.__name__}.utils.checkpoint").checkpoint
        x = m.tensor([1.0, 2.0], requires_grad=True)
        calls = []

        def f(a, factor, *, shift=0.0):
            calls.append(1)
            return (a * factor).sin() * a + shift, "kept"

        y, text = checkpoint(f, x, 3.0, use_reentrant=False, shift=1.0)
        y.sum().backward()
        return [y, text, x.grad, len(calls)]

    def checking(m):
        x = m.tensor([1.0, 2.0], dtype=m.float64, requires_grad=True)
        return [
            m.autograd.gradcheck(lambda a: (a * a).sin(), (x,)), m.autograd.gradgradcheck(lambda a: a**3, (x,)),
            m.autograd.gradcheck(lambda a, k: a * k, (x, 2.0), check_forward_ad=True),
        ]

    def anomaly(m):
        x = m.tensor([0.0], requires_grad=True)
        with m.autograd.detect_anomaly():
            y = (x.sqrt() * 0).sum()
            return raised(lambda: y.backward())

    def views_and_writes(m):
        x = m.ones(3, requires_grad=True)
        y = x.clone()
        v = y[:2]
        v.mul_(3)
        y.sum().backward()
        return [x.grad, v._base is y, v._is_view(), names(v.grad_fn)[0]]

    def deleted_gradient(m):
        x = m.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        del x.grad
        return x.grad

    def a_hook_that_removes_itself(m):
        x = m.ones(2, requires_grad=True)
        seen = []

        def hook(g):
            seen.append(1)
            handle.remove()

        handle = x.register_hook(hook)
        for _ in range(2):
            (x * 2).sum().backward()
        return len(seen)

    def checkpoints_in_checkpoints(m):
        from importlib import import_module

        checkpoint = import_module(f"{m.__name__}.utils.checkpoint").checkpoint
        x, z = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
        inner = lambda a: checkpoint(lambda b: (b * b).sin().cos(), a * 2, use_reentrant=False) * 3  # noqa: E731
        y = checkpoint(inner, x, use_reentrant=False)
        y.sum().backward()
        checkpoint(lambda a: (a * a).sin(), z, use_reentrant=True).sum().backward()
        return [y, x.grad, z.grad]

    def writes_through_indices(m):
        x = m.ones(4, requires_grad=True)
        y = x * 1
        y[1:3] = m.tensor([5.0, 6.0])
        y[0] *= 2
        (y**2).sum().backward()
        v = m.tensor([2.0], requires_grad=True)
        target = m.zeros(3)
        target[1] = v[0] * 3
        target.sum().backward()
        return [x.grad, v.grad, target.requires_grad]

    def scopes_of_saved_hooks(m):
        graph = m.autograd.graph
        x = m.ones(3, requires_grad=True)
        with graph.save_on_cpu():
            y = (x * x).sum()
        y.backward()
        with graph.disable_saved_tensors_hooks("no hooks"):
            refused = raised(lambda: graph.saved_tensors_hooks(lambda a: a, lambda a: a).__enter__())
        return [x.grad, refused]

    def data_attribute(m):
        x = m.ones(2, requires_grad=True)
        x.data.mul_(3)
        x.data = m.tensor([5.0, 6.0])
        return [x, x.requires_grad, x.data.requires_grad]


def run_bad_hook(m, hook):
    x = m.ones(2, requires_grad=True)
    x.register_hook(hook)
    (x * 2).sum().backward()


@cases(Cases)
def test_like_pytorch(oracle, name, case):
    check(oracle, f"autograd.{name}", case)


# ---- identity


def test_one_object_per_tensor_and_node():
    x = firebrand.ones(2, requires_grad=True)
    y = x * x
    assert y.grad_fn is y.grad_fn
    assert y.grad_fn.next_functions[0][0] is y.grad_fn.next_functions[1][0]
    assert y.grad_fn.next_functions[0][0].variable is x
    assert y.grad_fn._saved_self is x
    y.sum().backward()
    assert x.grad is x.grad
    assert x.mul_ is not None and x.detach().add_(1) is not x
    with firebrand.no_grad():
        assert x.add_(1) is x


def test_attributes_and_class_outlive_the_object():
    x = firebrand.nn.Parameter(firebrand.ones(2))
    x.note = ["kept"]
    y = x * 2
    old = id(x.note)
    del x
    gc.collect()
    leaf = y.grad_fn.next_functions[0][0].variable
    assert type(leaf) is firebrand.nn.Parameter and id(leaf.note) == old


def test_weak_references_end_with_the_object():
    x = firebrand.ones(2)
    ref = weakref.ref(x)
    assert ref() is x
    del x
    assert ref() is None


def test_metadata_lives_with_the_node():
    x = firebrand.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.metadata["a"] = 1
    gc.collect()
    assert y.grad_fn.metadata == {"a": 1}


def test_a_removed_hook_lets_go_at_once():
    class Owner:
        pass

    x = firebrand.ones(2, requires_grad=True)
    owner = Owner()
    ref = weakref.ref(owner)
    handle = x.register_hook(lambda g, o=owner: None)
    del owner
    assert ref() is not None
    handle.remove()
    assert ref() is None


def test_hooks_go_with_their_graph():
    class Owner:
        pass

    x = firebrand.ones(2, requires_grad=True)
    owner = Owner()
    ref = weakref.ref(owner)
    y = x * 2
    y.register_hook(lambda g, o=owner: None)
    del owner, y
    assert ref() is None


# ---- exceptions, threads, order


def test_an_exception_keeps_its_traceback_through_backward():
    class Mine(Exception):
        pass

    def faulty_hook(g):
        raise Mine("from the hook")

    x = firebrand.ones(2, requires_grad=True)
    x.register_hook(faulty_hook)
    with pytest.raises(Mine, match="from the hook") as info:
        (x * 2).sum().backward()
    assert "faulty_hook" in "".join(traceback.format_tb(info.value.__traceback__))


def test_anomaly_mode_shows_the_python_line_that_made_the_node():
    def the_culprit(x):
        return x.sqrt() * 0

    x = firebrand.tensor([0.0], requires_grad=True)
    with pytest.warns(UserWarning) as shown, pytest.raises(RuntimeError, match="SqrtBackward0"):
        with firebrand.autograd.detect_anomaly():
            the_culprit(x).sum().backward()
    assert any("the_culprit" in str(w.message) and "SqrtBackward0" in str(w.message) for w in shown)
    assert firebrand.autograd.anomaly._C.anomaly_mode()[0] is False


def test_backward_inside_a_hook():
    x = firebrand.ones(2, requires_grad=True)
    z = firebrand.ones(2, requires_grad=True)

    def run(g):
        with firebrand.enable_grad():
            (z * 5).sum().backward()

    x.register_hook(run)
    (x * 2).sum().backward()
    assert z.grad.tolist() == [5.0, 5.0]


def test_threads_with_hooks_do_not_block_each_other():
    shared = firebrand.ones(4, requires_grad=True)
    seen = []
    shared.register_hook(lambda g: seen.append(g[0].item()))

    def work():
        for _ in range(30):
            own = firebrand.ones(4, requires_grad=True)
            own.register_hook(lambda g: g * 2)
            ((own * shared).sin() * 3).sum().backward()
            assert own.grad is not None

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    assert len(seen) == 240


def test_kernels_run_detached():
    """Another thread makes progress while a long op runs."""
    progress = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            progress.append(1)

    counter = threading.Thread(target=count)
    a = firebrand.ones(700, 700)
    counter.start()
    before = len(progress)
    for _ in range(10):
        a @ a
    after = len(progress)
    stop.set()
    counter.join()
    assert after > before
