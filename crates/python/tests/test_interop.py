"""Memory shared with numpy and with whatever speaks DLPack: the same addresses, never a copy."""

import gc

import pytest

import firebrand

numpy = pytest.importorskip("numpy")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_shares_memory_both_ways(name):
    t = firebrand.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(firebrand, name))
    a = t.numpy()
    assert a.dtype == name and a.ctypes.data == t.data_ptr() and (a == numpy.array(t.tolist())).all()
    a[0, 0] = 0
    assert not t[0, 0].item()
    back = firebrand.from_numpy(a)
    assert back.data_ptr() == t.data_ptr() and back.dtype is t.dtype
    back[1, 1] = 0
    assert a[1, 1] == 0


def test_views_keep_their_strides():
    t = firebrand.arange(12.0).reshape(3, 4).t()[1:, ::2]
    a = t.numpy()
    assert a.tolist() == t.tolist() and a.strides == tuple(4 * s for s in t.stride())
    b = numpy.arange(12.0).reshape(3, 4).T[1:, ::2]
    assert firebrand.from_numpy(b).tolist() == b.tolist()


def test_memory_lives_as_long_as_someone_shows_it():
    a = firebrand.ones(1000).numpy()
    gc.collect()
    assert a.sum() == 1000
    t = firebrand.from_numpy(numpy.ones(1000))
    gc.collect()
    assert t.sum().item() == 1000
    x = firebrand.ones(3)
    shown = x.numpy()
    x.data = firebrand.zeros(3)
    gc.collect()
    assert shown.tolist() == [1, 1, 1]


def test_operators_take_arrays_as_tensors():
    t, a = firebrand.tensor([1.0, 2.0]), numpy.array([2.0, 2.0])
    for found, values in [(t + a, [3, 4]), (t - a, [-1, 0]), (t * a, [2, 4]), (t / a, [0.5, 1]), (t**a, [1, 4])]:
        assert type(found) is firebrand.Tensor and found.dtype is firebrand.float64 and found.tolist() == values
    t += numpy.zeros(2)
    assert t.dtype is firebrand.float32 and (a - t).tolist() == [1, 0]
    assert (t == a).tolist() == [False, True] and (t < a).tolist() == [True, False]
    assert (t - numpy.ones(2, dtype="int64")).dtype is firebrand.float32
    x = firebrand.ones(2, requires_grad=True)
    (x * a).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert type(numpy.exp(t)) is firebrand.Tensor


def test_numbers_of_numpy_have_a_dtype():
    for name in ["float64", "float32", "float16", "int8", "int64", "uint8", "bool"]:
        number = numpy.dtype(name).type(1)
        assert firebrand.tensor(number).dtype is getattr(firebrand, name)
        assert firebrand.tensor(number, dtype=firebrand.float32).dtype is firebrand.float32


def test_refusals():
    with pytest.raises(RuntimeError, match=r"requires grad. Use tensor.detach\(\).numpy\(\)"):
        firebrand.ones(1, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        firebrand.ones(1, dtype=firebrand.bfloat16).numpy()
    with pytest.raises(ValueError, match="negative"):
        firebrand.from_numpy(numpy.arange(3)[::-1])
    with pytest.raises(TypeError, match="supported types"):
        firebrand.from_numpy(numpy.array(["a"]))
    frozen = numpy.ones(2)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="not writable"):
        firebrand.from_numpy(frozen)
    with pytest.raises(BufferError, match="require gradient"):
        firebrand.ones(1, requires_grad=True).__dlpack__()


def test_numpy_scalars_and_arrays_are_data():
    assert firebrand.tensor(numpy.arange(3)).tolist() == [0, 1, 2]
    assert (firebrand.ones(2) * numpy.float64(2.5)).tolist() == [2.5, 2.5]
    assert (firebrand.ones(2) + numpy.int64(2)).dtype is firebrand.float32
    assert firebrand.tensor([numpy.float32(1.5), 2]).tolist() == [1.5, 2.0]
    assert firebrand.zeros(numpy.int64(2), 3).shape == (2, 3)
    assert firebrand.arange(4)[numpy.array([1, 3])].tolist() == [1, 3]
    assert firebrand.as_tensor(numpy.ones(2)).tolist() == [1.0, 1.0]
    assert numpy.asarray(firebrand.ones(2)).tolist() == [1.0, 1.0]


def test_dlpack_with_numpy():
    t = firebrand.arange(6.0).reshape(2, 3)
    a = numpy.from_dlpack(t)
    assert a.ctypes.data == t.data_ptr() and a.tolist() == t.tolist()
    b = firebrand.from_dlpack(a.copy())
    assert b.tolist() == t.tolist()
    capsule = t.__dlpack__()
    firebrand.from_dlpack(capsule)
    with pytest.raises(TypeError, match="only once"):
        firebrand.from_dlpack(capsule)
    del t
    gc.collect()
    assert a[1, 2] == 5


@pytest.mark.parametrize("name", [*DTYPES, "bfloat16"])
def test_dlpack_with_pytorch(name):
    torch = pytest.importorskip("torch")
    ours = firebrand.tensor([1, 0, 1]).to(getattr(firebrand, name))
    theirs = torch.from_dlpack(ours)
    assert theirs.data_ptr() == ours.data_ptr() and theirs.tolist() == ours.tolist()
    made = torch.tensor([[1, 0], [1, 1]]).to(getattr(torch, name)).t()
    back = firebrand.from_dlpack(made)
    assert back.data_ptr() == made.data_ptr() and back.tolist() == made.tolist() and back.dtype is ours.dtype
    back[0, 0] = 0
    assert not made[0, 0].item()
