"""Making, reading, printing, indexing and combining tensors."""

import copy
import pickle

import pytest
from conftest import cases, check, raised

import firebrand


class Cases:
    def creation(m):
        made = [
            m.tensor([[1, 2], [3, 4]]),
            m.tensor([1.5, 2]),
            m.tensor([True, False]),
            m.tensor([1 + 2j, 3]),
            m.tensor([]),
            m.tensor(7),
            m.tensor([1, 2], dtype=m.float16),
            m.zeros(2, 3),
            m.zeros((2, 3), dtype=m.int64),
            m.ones(2).new_zeros(3),
            m.full((2,), 3.5),
            m.full((2,), 3),
            m.arange(5),
            m.arange(1, 2, 0.25),
            m.linspace(0, 1, 5),
            m.eye(2),
            m.empty(0, 3),
            m.ones_like(m.tensor([1, 2])),
        ]
        return [(t, str(t.dtype), list(t.shape)) for t in made]

    def repeated_values(m):
        x = m.tensor([3, 1, 1, 2, 2, 3])
        return [
            x.unique(),
            x.unique(return_counts=True),
            x.unique_consecutive(),
            m.unique_consecutive(x, return_inverse=True, return_counts=True),
            m.tensor([[1, 2], [1, 2], [0, 2]]).unique(dim=0),
        ]

    def print_options(m):
        x, texts = m.tensor([1.23456, 1e-9, 1e5]), []
        many = m.arange(6).reshape(2, 3) * 1.5
        for options in [
            {"precision": 2, "sci_mode": False},
            {"precision": 2, "sci_mode": True},
            {"threshold": 3, "edgeitems": 1},
            {"profile": "short"},
            {"linewidth": 30},
            {"profile": "full"},
        ]:
            m.set_printoptions(**options)
            texts += [repr(x), repr(many), repr(many.double())]
            m.set_printoptions(profile="default")
        return texts

    def limits(m):
        floats, ints = (m.float16, m.bfloat16, m.float32, m.float64), (m.int8, m.uint8, m.int64)
        return [repr(m.finfo(d)) for d in floats] + [repr(m.iinfo(d)) for d in ints]

    def results_with_names(m):
        return [repr(m.tensor([[1.0, 2.0]]).max(1)), repr(m.tensor([2, 1]).sort())]

    def refused_data(m):
        return [
            raised(lambda: m.tensor([[1, 2], [3]])),
            raised(lambda: m.tensor([m])),
        ]

    def whole_numbers(m):
        finite = [1.9, -2.5, 1e30, 2.0**70]
        return [
            [int(m.tensor([x], dtype=m.float64)) for x in finite],
            [int(m.tensor(x)) for x in (7, True)],
            [raised(lambda x=x: int(m.tensor([x])))[:1] for x in (float("nan"), float("inf"), -float("inf"))],
        ]

    def description(m):
        t = m.zeros(2, 3, 4).transpose(0, 2)
        return [
            str(t.shape), t.size(), t.size(-1), t.stride(), t.dim(), t.ndim, t.numel(), t.is_contiguous(), str(t.device),
            t.element_size(), t.storage_offset(), str(t.dtype), t.is_floating_point(), t.is_leaf, t.requires_grad, t._version,
            len(t), t.shape[1:] == (3, 2), t.shape.numel(), repr(t.device),
        ]

    def arithmetic(m):
        a, b = m.tensor([1.0, -2.0, 3.5]), m.tensor([2.0, 0.5, -1.0])
        i = m.tensor([5, -3, 2])
        return [
            a + b, a - b, a * b, a / b, a // b, a % b, a**2, 2**a, a + 1, 1 + a, 3 - a, 3 / a, 2.5 * a, -a, abs(a), +a,
            i + 1, i * 2.5, i / 2, i // 2, 7 // i, i % 2, 7 % i, i**2, ~i, i & 1, i | 8, i ^ 1, i << 1, i >> 1, ~m.tensor([True, False]),
            a @ b, m.ones(2, 3) @ m.ones(3, 2), 1 & i,
        ]

    def promotion(m):
        i, f, d = m.tensor([1]), m.tensor([1.0]), m.tensor(1.0, dtype=m.float64)
        return [str(t.dtype) for t in (i + 1, i + 1.5, i + 1j, f + d, f * 2, f.double() + f, m.tensor([True]) + 1, f.half() * 2.0)]

    def comparison(m):
        a, b = m.tensor([1.0, 2.0]), m.tensor([2.0, 2.0])
        return [a < b, a <= b, a == b, a != b, a > b, a >= b, a == 1, 1 < a, a == None, (a == "x"), 2 in a, 5 in a]  # noqa: E711

    def in_place(m):
        a = m.tensor([1.0, 2.0])
        same = a
        a += 1
        a *= 2
        a -= m.tensor([1.0, 0.0])
        a /= 2
        a **= 2
        i = m.tensor([5, 6])
        i //= 2
        i %= 2
        return [a, a is same, a._version, i]

    def conversion(m):
        t = m.tensor([1.7, -2.3])
        return [
            t.int(), t.long(), t.double().dtype is m.float64, t.to(m.int32), t.to(t) is t, t.to("cpu") is t, t.bool(), t.half(),
            t[0].item(), float(t[0]), int(t[1]), bool(t[0]), m.tensor(3).__index__(), [10, 20, 30][m.tensor(1)], complex(t[0]),
            t.tolist(), m.tensor([[1, 2]]).tolist(), m.tensor(2.5).tolist(), f"{t[0]:.1f}", list(range(m.tensor(3))),
        ]

    def refused_conversion(m):
        t = m.tensor([1.0, 2.0])
        return [
            raised(lambda: bool(t)), raised(lambda: bool(m.tensor([]))), raised(lambda: len(m.tensor(1))),
            raised(lambda: iter(m.tensor(1)))[:1], raised(lambda: t.__index__()), raised(lambda: t.item()),
        ]

    def indexing(m):
        x = m.arange(24).reshape(2, 3, 4)
        return [
            x[0], x[-1, 2], x[:, 1], x[..., 0], x[None].shape[0], x[:, ::2, 1:3], x[0, 1, 2], x[[0, 1], [1, 2]], x[m.tensor([1, 0])],
            x[x > 20], x[:, m.tensor([True, False, True])], x[..., None].shape[-1], x[True].shape[0], x[1:1].shape[0], x[:, [0, 2], ::3],
            [row.shape[0] for row in x], x[m.tensor(1)], x[0][1][2].item(),
        ]

    def index_assignment(m):
        x = m.zeros(3, 4)
        x[0] = 1
        x[1, 2] = 5.5
        x[:, 3] = m.tensor([7.0, 8.0, 9.0])
        x[x == 0] = -1
        x[[0, 2], [0, 1]] = m.tensor([10.0, 20.0])
        x[2, :2] = m.tensor([3, 4])
        x[..., 0] *= 2
        return [x, x._version > 0]

    def refused_index(m):
        x = m.zeros(2, 3)
        return [raised(lambda: x[5]), raised(lambda: x[0, 0, 0])[:1], raised(lambda: x.size(4)), raised(lambda: m.tensor(1.0)[0])[:1], raised(lambda: x["a"])[:1]]

    def printing(m):
        g = m.tensor([1.0, 2.0], requires_grad=True)
        shown = [
            m.tensor([1.0, 2.5]), m.tensor([[1, 20], [300, 4]]), m.tensor(3.0, dtype=m.float64), m.tensor([True]), m.zeros(2, 0),
            m.tensor([1e-5, 1.0]), m.tensor([float("nan"), float("inf")]), g, g * 2, (g * 2).sum(), m.arange(2000), m.tensor([1 + 2j]),
            m.zeros(20, dtype=m.float64), m.ones(2, 2, 2),
        ]
        return [repr(t) for t in shown]

    def names_and_aliases(m):
        t = m.arange(6.0).reshape(2, 3)
        return [
            t.sum(dim=1), t.sum(axis=0), t.sum(-1, keepdim=True), t.mean(), t.max(), t.max(dim=1).values, t.max(1).indices, t.argmax(), m.max(t, 1)[1],
            m.cat([t, t], 1), m.stack((t, t)).shape[0], m.where(t > 2, t, 0.0), t.view(3, 2), t.view((3, 2)), t.view(-1), t.reshape(3, -1), t.permute(1, 0), t.t(), t.T,
            t.expand(2, 2, 3).shape[0], t.repeat(1, 2), t.flatten(), t.split(2, 1)[1], t.chunk(2)[0], m.split(t, [1, 2], 1)[1], t.unbind(1)[2], t.std(), t.var(0), t.norm(),
            m.einsum("ij,kj->ik", t, t), t.clamp(1, 4), t.clamp(min=2), m.pow(2, t), t.topk(2).values, t.sort(descending=True)[0], t.cumsum(0), t.softmax(1), t.logsumexp(0),
            m.add(t, t, alpha=2), m.add(input=t, other=1), t.add(1, alpha=3), m.linalg.norm(t), m.special.expit(t), t.unsqueeze(0).squeeze().shape[0],
            m.broadcast_shapes((2, 1), (3,)), m.meshgrid(m.arange(2), m.arange(3), indexing="ij")[0], m.unique(m.tensor([3, 1, 3])), m.tensordot(t, t, dims=([1], [1])),
            m.allclose(t, t + 1e-9), m.equal(t, t), m.result_type(m.tensor([1]), 1.5) is m.float32, m.is_tensor(t), t.masked_fill(t > 2, -1.0), m.tril(m.ones(2, 2)),
        ]

    def keywords(m):
        x = m.ones(2, 2)
        return [
            x.sum(dim=(0, 1)), m.sum(x, dim=0, keepdim=True), x.mean(dim=0, dtype=m.float64), m.zeros(size=(2,)), m.ones(2, dtype=m.int32, device="cpu"),
            m.full(size=(1,), fill_value=2), m.arange(start=1, end=4), m.rand(2, generator=None).shape, m.empty_like(x, dtype=m.int64).dtype, x.new_ones((3,)),
            m.randn(2, 2, requires_grad=True).requires_grad, m.nn.functional.gelu(x), m.nn.functional.linear(x, x), m.conv2d(m.ones(1, 1, 3, 3), m.ones(1, 1, 2, 2)),
        ]

    def slices(m):
        x = m.arange(10)
        return [x[2:8:3], x[-3:], x[:-7], raised(lambda: x[::-1])[:1], x[m.tensor([1, 2])[0]], x.reshape(2, 5)[1, m.tensor([0, 4])]]

    def as_python_sees_it(m):
        t = m.tensor([3, 1, 2])
        return [
            sorted(t.tolist()), max(t).item(), sum(t).item(), list(zip(t, t))[0][0].item(), reversed(t), 3 in t, {t: 1}[t], hash(t) == hash(t), str(m.tensor(1.5)),
            repr(m.float32), repr(m.Size([1, 2])),
        ]

    def refused_by_ops(m):
        x = m.ones(2, 3)
        calls = [
            lambda: x.view(7), lambda: x @ x, lambda: m.cat([x, m.ones(2)]), lambda: x.reshape(4), lambda: m.zeros(-1), lambda: x.nope, lambda: m.ones(2).add_(m.ones(3)),
            lambda: m.tensor([1]).add_(1.5),
        ]
        return [raised(call)[:1] for call in calls]

    def out_arguments(m):
        out = m.empty(2)
        found = m.add(m.ones(2), 2, out=out)
        values, indices = m.empty(2), m.empty(2, dtype=m.int64)
        m.max(m.tensor([[1.0, 3.0], [5.0, 2.0]]), 1, out=(values, indices))
        return [found is out, out, values, indices]

    def random(m):
        m.manual_seed(3)
        return [m.rand(3), m.randn(2, 2), m.randint(0, 10, (4,)), m.randperm(5), m.zeros(2).uniform_(1, 2), m.zeros(2).normal_()]

    def refusals(m):
        t = m.ones(2)

        class X:
            pass

        x = X()
        return [
            raised(lambda: m.mul(t, x)), raised(lambda: m.mul(t)), raised(lambda: m.mul(t, t, t)), raised(lambda: m.mul(t, other=t, more=1)),
            raised(lambda: m.mul(t, t, other=t)), raised(lambda: t.sum(x)), raised(lambda: m.sum(x)), raised(lambda: t.transpose(x)), raised(lambda: t.transpose(0, x)),
            raised(lambda: t.max(x)), raised(lambda: t.view(x)), raised(lambda: m.clamp(x)), raised(lambda: m.pow(x)), raised(lambda: m.where(x)), raised(lambda: t.where(x)),
            raised(lambda: m.std(x)), raised(lambda: t.std(x)), raised(lambda: t.index_fill(x)), raised(lambda: m.relu(1.0)), raised(lambda: t.reshape("a")),
            raised(lambda: m.zeros(x)), raised(lambda: t.mul(x)), raised(lambda: t.squeeze(1.5))[:1], raised(lambda: t + x)[:1],
        ]

    def refused_shapes(m):
        return [raised(lambda: m.ones(2) + m.ones(3)), raised(lambda: m.ones(2, 3).sum(5)), raised(lambda: m.ones(2).softmax(2))]


@cases(Cases)
def test_like_pytorch(oracle, name, case):
    check(oracle, f"tensor.{name}", case)


def test_a_number_is_recorded_as_a_tensor():
    x = firebrand.ones(2, requires_grad=True)
    y = x * 3
    assert type(y.grad_fn).__name__ == "MulBackward0"
    assert y.grad_fn.next_functions[1] == (None, 0)


def test_ops_by_their_aten_names():
    a = firebrand.tensor([1.0, 2.0])
    assert firebrand.ops.aten.add.Tensor(a, a).tolist() == [2.0, 4.0]
    assert firebrand.ops.aten.mul.Scalar(a, 3).tolist() == [3.0, 6.0]
    assert "Tensor" in firebrand.ops.aten.add.overloads()
    assert repr(firebrand.ops.aten.add.Tensor) == "<OpOverload(op='aten.add.Tensor')>"
    with pytest.raises(AttributeError, match="no attribute 'no_such_op'"):
        firebrand.ops.aten.no_such_op
    with pytest.raises(AttributeError, match="no overload name 'Nothing'"):
        firebrand.ops.aten.add.Nothing


def test_deepcopy_and_pickle_keep_values_flags_and_attributes():
    x = firebrand.tensor([[1.0, 2.0]], requires_grad=True)
    x.note = "kept"
    (x * x).sum().backward()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again is not x and again.tolist() == x.tolist() and again.requires_grad and again.note == "kept"
    assert copy.deepcopy(x).grad.tolist() == [[2.0, 4.0]]
    for dtype in (firebrand.bfloat16, firebrand.bool, firebrand.complex128, firebrand.int8):
        t = firebrand.tensor([1, 0, 1]).to(dtype)
        again = pickle.loads(pickle.dumps(t))
        assert again.dtype is dtype and (again == t).all()
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_dtypes_are_single_objects():
    assert firebrand.ones(1).dtype is firebrand.float32 and firebrand.float is firebrand.float32
    assert pickle.loads(pickle.dumps(firebrand.ones(1).dtype.itemsize)) == 4


def test_the_constructor_makes_tensors_of_the_default_dtype():
    assert firebrand.Tensor([1, 2]).tolist() == [1.0, 2.0] and firebrand.Tensor([1]).dtype is firebrand.float32
    assert firebrand.Tensor(2, 3).shape == firebrand.Tensor(firebrand.Size([2, 3])).shape == (2, 3)
    assert firebrand.Tensor().shape == (0,)
    with pytest.raises(TypeError, match=r"use tensor\(data, dtype=...\)"):
        firebrand.Tensor([1.0], dtype=firebrand.float64)
