"""Makes the small PNG images of the data tests: grey, colour, colour with alpha, palette; 2 by 2 pixels.

Run: python golden/nn/images.py (with Pillow)
"""

from pathlib import Path
from PIL import Image

HERE = Path(__file__).parent
COLOURS = [0, 60, 120, 180, 240, 255, 9, 8, 7, 6, 5, 4]


def save(image, name):
    image.save(HERE / f"{name}.png")


save(Image.frombytes("L", (2, 2), bytes([0, 60, 120, 255])), "grey")
rgb = Image.frombytes("RGB", (2, 2), bytes(COLOURS))
save(rgb, "rgb")
rgba = rgb.copy()
rgba.putalpha(77)
save(rgba, "rgba")
palette = Image.frombytes("P", (2, 2), bytes([0, 1, 2, 3]))
palette.putpalette(COLOURS)
save(palette, "palette")
