"""Tokens of `firebrand generate` against those of transformers, for programs with a static cache and without one.

    python golden/conformance_generate.py FIREBRAND             run by `cargo xtask conformance generate`
    python golden/conformance_generate.py --golden              writes golden/generate/, which crates/cli/tests/generate.rs reads
    python golden/conformance_generate.py FIREBRAND --speed     tokens per second beside PyTorch eager with the same cache, 1 and 2 threads; --json FILE writes them, too

Small models with random weights. Greedy tokens, and tokens drawn with a seed, must be equal.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import transformers as t
from torch.export import Dim, export, save
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

warnings.filterwarnings("ignore")
t.logging.set_verbosity_error()
NEW, PROMPT, ROOM = 64, 9, 96
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, vocab_size=100, max_position_embeddings=128, bos_token_id=0, eos_token_id=0, pad_token_id=0)
MODELS = {
    "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=128, bos_token_id=0, eos_token_id=0)),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SMALL)),
    "qwen": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SMALL, head_dim=8)),
    "gemma": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=32, layer_types=["sliding_attention", "full_attention"])),
}


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def lively(model):
    """Weights large enough that tokens vary. (Tied ones make the last token the most likely.)"""
    for p in model.parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.3)
    head = model.get_output_embeddings()
    if head.weight is model.get_input_embeddings().weight:
        model.config.tie_word_embeddings = False
        head.weight = torch.nn.Parameter(torch.randn_like(head.weight))
    return model.eval()


def with_cache(model, room=ROOM):
    model.generation_config.cache_implementation = "static"
    model.config.use_cache = True
    wrapped = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=room, device=torch.device("cpu"))
    s = Dim("s", min=1, max=room - 1)
    shapes = {"input_ids": {1: s}, "cache_position": {0: s}}
    return wrapped, wrapped.export(input_ids=torch.zeros(1, 3, dtype=torch.long), cache_position=torch.arange(3), dynamic_shapes=shapes, strict=False)


def without_cache(model):
    s = Dim("s", min=2, max=ROOM)
    return export(Logits(model), (torch.zeros(1, 5, dtype=torch.long),), dynamic_shapes=({1: s},), strict=False)


def ours(firebrand, program, prompt, *more):
    ids = ",".join(map(str, prompt))
    done = subprocess.run([firebrand, "generate", str(program), "--ids", ids, *(["-n", str(NEW)] if "-n" not in more else []), "--json", *map(str, more)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr.strip()[:600])
    return json.loads(done.stdout)


def compare(firebrand, name, folder):
    torch.manual_seed(1)
    model = lively(MODELS[name]())
    prompt = torch.randint(1, 100, (1, PROMPT))
    expected = {}
    options = dict(max_new_tokens=NEW, eos_token_id=None, pad_token_id=0)
    expected["greedy"] = model.generate(prompt, do_sample=False, **options)[0, PROMPT:].tolist()
    expected["repetition"] = model.generate(prompt, do_sample=False, repetition_penalty=1.3, **options)[0, PROMPT:].tolist()
    torch.manual_seed(5)
    expected["drawn"] = model.generate(prompt, do_sample=True, temperature=0.8, top_k=20, top_p=0.9, **options)[0, PROMPT:].tolist()
    flags = {"greedy": [], "repetition": ["--repetition-penalty", 1.3], "drawn": ["--temperature", 0.8, "--top-k", 20, "--top-p", 0.9, "--seed", 5]}
    plain, cached = folder / "plain.pt2", folder / "cached.pt2"
    save(without_cache(model), plain)
    save(with_cache(model)[1], cached)
    for program in (plain, cached):
        for what, tokens in expected.items():
            found = ours(firebrand, program, prompt[0].tolist(), *flags[what])
            assert found["cache"] == (program is cached), f"{program.name}: cache {found['cache']}"
            same = sum(1 for _ in iter_same(found["tokens"], tokens))
            assert found["tokens"] == tokens, f"{program.name}, {what}: token {same} of {NEW} differs"
    return f"{NEW} tokens greedy, with repetition penalty and drawn, with and without cache ({len(set(expected['greedy']))} different ones)"


def iter_same(a, b):
    for x, y in zip(a, b):
        if x != y:
            return
        yield x


def golden(folder):
    """A very small model in both forms, and its tokens."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1)
    small = SMALL | dict(hidden_size=16, num_hidden_layers=1, intermediate_size=16, vocab_size=40)
    model = lively(t.LlamaForCausalLM(t.LlamaConfig(**small)))
    prompt = torch.randint(1, 40, (1, PROMPT))
    tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)[0, PROMPT:]
    torch.manual_seed(5)
    drawn = model.generate(prompt, max_new_tokens=24, do_sample=True, temperature=0.8, top_k=20, top_p=0.9, eos_token_id=None, pad_token_id=0)[0, PROMPT:]
    for name, program in (("plain", without_cache(model)), ("cached", with_cache(model)[1])):
        for module in program.graph_module.modules():
            for node in getattr(module, "graph", torch.fx.Graph()).nodes:
                node.meta.pop("stack_trace", None)
        save(program, folder / f"{name}.pt2")
    what = dict(prompt=prompt[0].tolist(), greedy=tokens.tolist(), drawn=drawn.tolist())
    (folder / "tokens.json").write_text(json.dumps(what) + "\n")


def speed(firebrand, folder, rows):
    """Best of four on each side, in turns; a model of 30 M parameters, batch 1."""
    torch.manual_seed(1)
    config = t.LlamaConfig(**SMALL | dict(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, intermediate_size=1536, vocab_size=8000, max_position_embeddings=512))
    model = lively(t.LlamaForCausalLM(config))
    size = sum(p.numel() * 4 for p in model.parameters()) - model.model.embed_tokens.weight.numel() * 4
    wrapped, program = with_cache(model, 256)
    path = folder / "speed.pt2"
    save(program, path)
    prompt = torch.randint(1, 8000, (1, 16))

    def eager(count):
        with torch.no_grad():
            logits = wrapped.model(input_ids=prompt, cache_position=torch.arange(16))
            for position in range(16, 16 + count - 1):
                token = logits[0, -1].argmax()
                logits = wrapped.model(input_ids=token.view(1, 1), cache_position=torch.tensor([position]))

    def own(count, *more):
        ours(firebrand, path, prompt[0].tolist(), "--threads", torch.get_num_threads(), "-n", count, *more)

    def seconds(work, threads):
        """Of NEW tokens: processor time on one thread, which other work on the machine hardly changes, and the clock's on several."""
        used = lambda: (time.perf_counter() if threads > 1 else time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))
        times = []
        for count in (16, 16 + NEW):
            start = used()
            work(count)
            times.append(used() - start)
        return times[1] - times[0]

    for threads in (1, 2):
        torch.set_num_threads(threads)
        sides = {"PyTorch eager": eager, "firebrand": own, "firebrand --compile": lambda n: own(n, "--compile")}
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(4):
            for side, work in sides.items():
                best[side] = min(best[side], seconds(work, threads))
        rates = {side: NEW / s for side, s in best.items()}
        shown = [f"{side} {r:.1f} tokens/s ({r / rates['PyTorch eager']:.2f}x, {r * size / 1e9:.1f} GB/s of weights)" for side, r in rates.items()]
        print(f"{threads} threads: " + "; ".join(shown), flush=True)
        for side, case in (("firebrand", "llama"), ("firebrand --compile", "llama compiled")):
            rows.append({"case": case, "threads": threads, "unit": "tokens/s", "firebrand": rates[side], "torch": rates["PyTorch eager"]})


def main():
    if sys.argv[1] == "--golden":
        return golden(pathlib.Path(__file__).parent / "generate") or 0
    firebrand, failed = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        if "--speed" in sys.argv:
            rows = []
            speed(firebrand, pathlib.Path(folder), rows)
            if "--json" in sys.argv:
                pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text("".join(json.dumps(r) + "\n" for r in rows))
            return 0
        for name in MODELS:
            try:
                print(f"{name:8} {compare(firebrand, name, pathlib.Path(folder))}", flush=True)
            except AssertionError as e:
                failed.append(name)
                print(f"{name:8} FAILED: {e}", flush=True)
    print(f"{len(MODELS) - len(failed)} agree, {len(failed)} do not: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
