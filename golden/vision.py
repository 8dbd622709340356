"""Reference results of torchvision's ops: values and gradients.

    python golden/vision.py > golden/vision.json          needs PyTorch 2.15 and torchvision

One case a line: the op, its arguments (tensors as dtype, shape and data), its first result, the cotangent, and the gradients of the
arguments that have one. Read by `crates/core/tests/vision.rs`.
"""

import json
import sys

import torch
import torchvision  # noqa: F401  registers the ops

torch.manual_seed(0)
f64, f32 = torch.float64, torch.float32


def plain(v):
    if isinstance(v, torch.Tensor):
        return {"dtype": str(v.dtype).removeprefix("torch."), "shape": list(v.shape), "data": v.detach().flatten().tolist()}
    return v


def case(name, *args, grads=()):
    args = [a.clone().requires_grad_() if k in grads else a for k, a in enumerate(args)]
    out = getattr(torch.ops.torchvision, name)(*args)
    out = out if isinstance(out, torch.Tensor) else out[0]
    row = {"op": f"torchvision::{name}", "args": [plain(a) for a in args], "out": plain(out)}
    if grads:
        seed = torch.randint(-8, 9, out.shape).to(out.dtype) / 8
        row["seed"] = plain(seed)
        row["grads"] = [[k, plain(g)] for k, g in zip(grads, torch.autograd.grad(out, [args[k] for k in grads], seed))]
    return row


def main():
    rois = torch.tensor([[0.0, 0.5, 1.0, 6.5, 7.25], [1.0, 2.25, 0.0, 5.0, 3.5], [0.0, 3.0, 3.0, 3.5, 3.25], [1.0, -2.0, -1.0, 9.0, 12.0]], dtype=f64)
    image, wide = torch.randn(2, 3, 8, 8, dtype=f64), torch.randn(2, 8, 8, 8, dtype=f64)
    rows = []
    for aligned in (False, True):
        for ratio in (-1, 2):
            rows.append(case("roi_align", image, rois, 0.5, 2, 3, ratio, aligned, grads=(0,)))
    rows.append(case("roi_align", image.float(), rois.float(), 1.0, 3, 3, -1, True))
    rows.append(case("roi_pool", image, rois, 1.0, 2, 3, grads=(0,)))
    rows.append(case("roi_pool", image, rois, 0.5, 3, 2, grads=(0,)))
    for ratio in (-1, 2):
        rows.append(case("ps_roi_align", wide, rois, 1.0, 2, 2, ratio, grads=(0,)))
    # Only regions inside: the gradient of torchvision cuts others off elsewhere than its values do.
    rows.append(case("ps_roi_pool", wide, rois[:3], 1.0, 2, 2, grads=(0,)))
    boxes = torch.rand(40, 2, dtype=f64) * 8
    boxes = torch.cat([boxes, boxes + 1 + torch.rand(40, 2, dtype=f64) * 4], 1)
    for limit in (0.1, 0.5, 0.9):
        rows.append(case("nms", boxes, torch.rand(40, dtype=f64), limit))
    rows.append(case("nms", boxes.float(), torch.rand(40, dtype=f32).round(decimals=1), 0.3))
    x, bias = torch.randn(2, 4, 5, 6, dtype=f64), torch.randn(6, dtype=f64)
    for groups, offset_groups, use_mask in ((1, 1, False), (2, 2, True), (1, 2, True)):
        weight = torch.randn(6, 4 // groups, 3, 2, dtype=f64)
        offset = torch.randn(2, 2 * offset_groups * 6, 3, 4, dtype=f64)
        mask = torch.rand(2, offset_groups * 6, 3, 4, dtype=f64) if use_mask else torch.zeros(2, 1, dtype=f64)
        grads = (0, 1, 2, 3, 4) if use_mask else (0, 1, 2, 4)
        rows.append(case("deform_conv2d", x, weight, offset, mask, bias, 2, 2, 1, 1, 1, 1, groups, offset_groups, use_mask, grads=grads))
    print("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]")


sys.exit(main())
