"""Writes crates/firebrand/data/digits: twenty images of each digit, from the training samples of `firebrand::digits`.

The folder of images that the README trains on. Run: python golden/make_digits_images.py (with PyTorch and Pillow)
"""

import pathlib
import torch
from PIL import Image

DATA = pathlib.Path(__file__).parents[1] / "crates/firebrand/data"
EACH = 20


def main():
    raw = (DATA / "digits.bin").read_bytes()[24:]
    pixels, labels = raw[: 1797 * 64], raw[1797 * 64 :]
    torch.manual_seed(0)
    seen = [0] * 10
    for i in torch.randperm(1797)[:1437].tolist():
        label = labels[i]
        if seen[label] == EACH:
            continue
        folder = DATA / "digits" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        grey = bytes(round(p * 255 / 16) for p in pixels[64 * i : 64 * i + 64])
        Image.frombytes("L", (8, 8), grey).save(folder / f"{seen[label]:02}.png", optimize=True)
        seen[label] += 1


main()
