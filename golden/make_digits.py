"""Writes crates/firebrand/data/digits.bin from scikit-learn's copy of the digits data (format: crates/firebrand/data/README.md)."""

import pathlib
import struct

from sklearn.datasets import load_digits

OUT = pathlib.Path(__file__).parents[1] / "crates/firebrand/data/digits.bin"


def main():
    d = load_digits()
    pixels, labels = d.images.astype("uint8"), d.target.astype("uint8")
    n, h, w = pixels.shape
    assert (pixels == d.images).all() and pixels.max() == 16 and labels.max() == 9
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_bytes(b"FBDIGIT1" + struct.pack("<4I", n, h, w, 10) + pixels.tobytes() + labels.tobytes())
    print(f"{OUT.name}: {n} samples of {h}x{w}, {OUT.stat().st_size} bytes")


main()
