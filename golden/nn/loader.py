"""Makes loader.json: the order in which PyTorch's DataLoader visits ten samples in three passes, and a random split.

Run: python golden/nn/loader.py > golden/nn/loader.json
"""

import json
import torch
from torch.utils.data import DataLoader, random_split

torch.manual_seed(0)
loader = DataLoader(torch.arange(10), batch_size=4, shuffle=True)
passes = [[b.tolist() for b in loader] for _ in range(3)]
torch.manual_seed(0)
parts = [list(p.indices) for p in random_split(torch.arange(10), [0.5, 0.25, 0.25])]
torch.manual_seed(0)
list(DataLoader(torch.arange(10), batch_size=4))
print(json.dumps({"passes": passes, "split": parts, "next_draw_after_an_ordered_pass": torch.rand(1).item()}))
