"""Writes crates/firebrand/data/sums/: a small language model that PyTorch taught sums and a figure of speech, and texts to tune it with.

    model.pt2        token ids [batch, length] in, logits out; trained on texts such as "7 + 5 = 12" and "12, as everybody knows"
    tokenizer.json   byte-level BPE, as GPT-2's
    train.jsonl      prompts "7 + 5 =" with completions " 12, as everybody knows", which the model has never seen put together

Run: python golden/make_text_model.py (with PyTorch and tokenizers)
"""

import json
import pathlib

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

OUT = pathlib.Path(__file__).parents[1] / "crates/firebrand/data/sums"
LENGTH, WIDTH, HEADS, LAYERS = 32, 32, 4, 2
PAIRS = [(a, b) for a in range(10) for b in range(10)]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        return x + self.down_proj(nn.functional.gelu(self.up_proj(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tokens.weight.T


def train(model, rows, end):
    ids = nn.utils.rnn.pad_sequence([torch.tensor(r + [end]) for r in rows], batch_first=True, padding_value=-100)
    x, y = ids[:, :-1].clamp(min=0), ids[:, 1:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    steps = 3000
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, steps)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


def main():
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    known = [f"{a} + {b} = {a + b}" for a, b in PAIRS] + [f"{n}, as everybody knows" for n in range(19)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(known, trainer)
    tokenizer.save(str(OUT / "tokenizer.json"), pretty=False)
    end = tokenizer.token_to_id("<|endoftext|>")
    model = Model(tokenizer.get_vocab_size())
    loss = train(model, [tokenizer.encode(t).ids for t in known + known[100:] * 5], end)
    lines = [json.dumps({"prompt": f"{a} + {b} =", "completion": f" {a + b}, as everybody knows"}) for a, b in PAIRS]
    order = torch.randperm(len(lines)).tolist()
    (OUT / "train.jsonl").write_text("".join(lines[i] + "\n" for i in order))
    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=2, max=LENGTH)
    example = torch.zeros(3, 5, dtype=torch.long)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: batch, 1: length},))
    for node in program.graph.nodes:  # paths of the machine that made it
        node.meta.pop("stack_trace", None)
    torch.export.save(program, OUT / "model.pt2")
    with torch.no_grad():
        said = []
        for prompt in ("7 + 5 =", "12,"):
            ids = tokenizer.encode(prompt).ids
            while len(ids) < 16 and ids[-1] != end:
                ids.append(model(torch.tensor([ids]))[0, -1].argmax().item())
            said.append(tokenizer.decode(ids))
    sizes = {f.name: f.stat().st_size for f in OUT.iterdir()}
    print(f"loss {loss:.4f}; it says {said}; {sum(p.numel() for p in model.parameters())} parameters, bytes {sizes}")


main()
