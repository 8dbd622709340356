"""Makes golden/nn/jpeg/: small JPEG files of every kind that is read, and pixels.json with what Pillow (libjpeg) makes of them.

Run: python golden/nn/jpeg.py (with Pillow)
"""

import json
import math
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent / "jpeg"
HEIGHT, WIDTH = 19, 27  # no multiple of a block


def color(y, x):
    wave = lambda a, b: round(127.5 + 120 * math.sin(0.2 * (a * x + b * y)))
    return wave(1, 0), wave(0.3, 0.7), wave(0.5, -1)


HERE.mkdir(exist_ok=True)
rgb = Image.new("RGB", (WIDTH, HEIGHT))
rgb.putdata([color(y, x) for y in range(HEIGHT) for x in range(WIDTH)])
kinds = {
    "color": (rgb, dict(subsampling=2)),
    "full": (rgb, dict(subsampling=0)),
    "half": (rgb, dict(subsampling=1)),
    "progressive": (rgb, dict(subsampling=2, progressive=True)),
    "grey": (rgb.convert("L"), {}),
    "cmyk": (rgb.convert("CMYK"), {}),
}
pixels = {}
for name, (image, options) in kinds.items():
    path = HERE / f"{name}.jpg"
    image.save(path, quality=90, **options)
    read = Image.open(path)
    planes = [list(band.get_flattened_data()) for band in read.split()]
    if name != "cmyk":
        pixels[name] = dict(shape=[len(planes), HEIGHT, WIDTH], pixels=sum(planes, []))
(HERE / "pixels.json").write_text(json.dumps(pixels, separators=(",", ":")) + "\n")
