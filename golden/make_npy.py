"""Writes golden/npy: arrays as NumPy stores them, for the reader's tests. `python golden/make_npy.py`"""

import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent / "npy"
HERE.mkdir(exist_ok=True)
base = np.arange(6).reshape(2, 3)
np.save(HERE / "c_order.npy", (base / 4).astype("<f4"))
np.save(HERE / "fortran_order.npy", np.asfortranarray((base / 4).astype("<f8")))
np.save(HERE / "big_endian.npy", (base - 3).astype(">i4"))
np.save(HERE / "scalar.npy", np.int64(-7))
np.save(HERE / "empty.npy", np.zeros((0, 3), "f2"))
arrays = {
    "bool": base % 2 == 0,
    "uint8": base.astype("u1"),
    "int8": (base - 3).astype("i1"),
    "int16": (base - 3).astype("i2"),
    "int32": (base - 3).astype("i4"),
    "int64": (base - 3).astype("i8"),
    "float16": (base / 4).astype("f2"),
    "float32": (base / 4).astype("f4"),
    "float64": (base / 4).astype("f8"),
    # bfloat16 travels as bits: the upper half of float32.
    "bfloat16": ((base / 4).astype("f4").view("u4") >> 16).astype("u2"),
}
np.savez(HERE / "all.npz", **arrays)
np.savez_compressed(HERE / "all_compressed.npz", **arrays)
np.savez_compressed(HERE / "zeros.npz", zeros=np.zeros(100_000, "f4"))
np.save(HERE / "complex.npy", np.array([1 + 2j, -0.5j]))
np.save(HERE / "complex_big_endian.npy", np.array([1 + 2j, -0.5j]).astype(">c8"))
np.save(HERE / "long_complex_refused.npy", np.array([1j], np.clongdouble))
np.save(HERE / "records_refused.npy", np.zeros(2, [("a", "f4"), ("b", "i4")]))
np.savez(HERE / "uint64_refused.npz", a=np.zeros(2, "u8"))
