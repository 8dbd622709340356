"""Records what torchvision and Pillow make of images: resized pixels, crops, flips, whole chains with their random draws.

Run: python golden/nn/transforms.py > golden/nn/transforms.json (with torchvision and Pillow 11)

Pillow 13 resizes vertically first where that shrinks an image and horizontally would not: pixels may differ by 1 of 255.
"""

import json
import torch
from PIL import Image
from torchvision import transforms as T

def image(channels, height, width):
    """Pixels that any implementation can make: no random numbers of another library."""
    pixels = bytes((x * 37 + y * 91 + c * 53 + (x * y * (c + 3)) % 29 * 5) % 256 for y in range(height) for x in range(width) for c in range(channels))
    return Image.frombytes("L" if channels == 1 else "RGB", (width, height), pixels)

IMAGENET = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
# Our chain, torchvision's, the image.
CASES = [
    (["resize=7"], [T.Resize(7)], (3, 13, 22)),
    (["resize=30"], [T.Resize(30)], (3, 13, 22)),
    (["resize=5x17"], [T.Resize((5, 17))], (1, 23, 11)),
    (["resize=8x8"], [T.Resize((8, 8))], (3, 64, 48)),
    (["resize=9x22"], [T.Resize((9, 22))], (3, 13, 22)),
    (["center_crop=7x9"], [T.CenterCrop((7, 9))], (3, 14, 20)),
    (["center_crop=8"], [T.CenterCrop(8)], (1, 5, 13)),
    (["center_crop=10x4"], [T.CenterCrop((10, 4))], (1, 7, 9)),
    (["grayscale"], [T.Grayscale()], (3, 6, 5)),
    (["flip"], [T.RandomHorizontalFlip()], (3, 4, 5)),
    (["vertical_flip=0.7"], [T.RandomVerticalFlip(0.7)], (3, 4, 5)),
    (["random_crop=6:2"], [T.RandomCrop(6, padding=2)], (3, 8, 7)),
    (["random_crop=4x5"], [T.RandomCrop((4, 5))], (1, 9, 8)),
    (["random_resized_crop=6"], [T.RandomResizedCrop(6)], (3, 20, 33)),
    (["random_resized_crop=5x7"], [T.RandomResizedCrop((5, 7))], (1, 40, 3)),
    (["resize=10", "center_crop=8", "normalize=imagenet"], [T.Resize(10), T.CenterCrop(8), T.ToTensor(), IMAGENET], (3, 15, 12)),
    (["random_resized_crop=8", "flip", "normalize=0.5/0.25"], [T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5], [0.25])], (1, 19, 21)),
]

cases = []
for ours, theirs, size in CASES:
    chain = T.Compose(theirs if any(isinstance(t, T.ToTensor) for t in theirs) else theirs + [T.ToTensor()])
    results = []
    torch.manual_seed(0)
    for _ in range(4 if any("random" in t or "flip" in t for t in ours) else 1):
        out = chain(image(*size))
        results.append({"shape": list(out.shape), "values": [round(v, 7) for v in out.flatten().tolist()]})
    cases.append({"transforms": ours, "image": size, "results": results})
print(json.dumps({"cases": cases}))
