"""Exports models with random weights, runs and differentiates them with firebrand, and compares with PyTorch.

    python golden/conformance_models.py FIREBRAND [NAME ...]       run by `cargo xtask conformance models`

Each model is exported for evaluation in f32 and for training in f64: batch norm over few samples is so badly conditioned
that two correct programs differ visibly in f32. (Some models compute parts in f32 even then.) Outputs and gradients of all parameters are compared. Layers that draw
random numbers (dropout, dropped paths) are set to draw nothing in training, so that both sides compute the same. Then the program gets adapters (LoRA), and their
gradients are compared too. Packages that are not installed are skipped.
"""

import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
MODELS = {}


def model(f):
    MODELS[f.__name__] = f
    return f


def torchvision(name, size=64, **options):
    import torchvision.models as tv

    return getattr(tv, name)(weights=None, **options), (torch.randn(2, 3, size, size),)


for name, options in {
    "resnet18": {},
    "resnext50_32x4d": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "efficientnet_b0": {},
    "densenet121": {},
    "squeezenet1_0": {},
    "shufflenet_v2_x0_5": {},
    "regnet_y_400mf": {},
    "mnasnet0_5": {},
    "vgg11": {"size": 32},
    "alexnet": {"size": 96},
    "convnext_tiny": {},
    "swin_t": {},
    "vit_b_16": {"image_size": 64},
    "googlenet": {"init_weights": False, "aux_logits": False},
}.items():
    MODELS[f"torchvision_{name}"] = lambda name=name, options=options: torchvision(name, **options)


def timm(name, size=64, **options):
    import timm as t

    return t.create_model(name, pretrained=False, **options), (torch.randn(2, 3, size, size),)


for name, options in {
    "resnet10t": {},
    "deit_tiny_patch16_224": {"img_size": 64},
    "mixer_s32_224": {"img_size": 64},
    "ghostnet_050": {},
    "levit_128s": {"size": 224},
}.items():
    MODELS[f"timm_{name}"] = lambda name=name, options=options: timm(name, **options)

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)


CALM = dict.fromkeys(
    """hidden_dropout_prob attention_probs_dropout_prob dropout attention_dropout resid_pdrop embd_pdrop attn_pdrop dropout_rate hidden_dropout""".split(), 0.0
)


def transformers(config, model, decoder=False, **options):
    import transformers as t

    class First(torch.nn.Module):
        """Only the first result: the others are records that archives cannot hold."""

        def __init__(self):
            super().__init__()
            made = getattr(t, config)(**options)
            made.update({k: v for k, v in CALM.items() if hasattr(made, k)})
            made.use_cache = False
            self.model = getattr(t, model)(made)

        def forward(self, tokens):
            return self.model(input_ids=tokens, **({"decoder_input_ids": tokens} if decoder else {}))[0]

    return First(), (torch.randint(0, 100, (2, 12)),)


for name, (config, cls, options) in {
    "bert": ("BertConfig", "BertModel", SMALL),
    "roberta": ("RobertaConfig", "RobertaModel", SMALL | {"pad_token_id": 1}),
    "distilbert": ("DistilBertConfig", "DistilBertModel", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=100)),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=32)),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SMALL),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        dict(decoder=True, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100, decoder_start_token_id=0),
    ),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL),
    "albert": ("AlbertConfig", "AlbertModel", SMALL | {"embedding_size": 16}),
    "electra": ("ElectraConfig", "ElectraModel", SMALL | {"embedding_size": 16}),
    "xlm_roberta": ("XLMRobertaConfig", "XLMRobertaModel", SMALL | {"pad_token_id": 1}),
    "mpnet": ("MPNetConfig", "MPNetModel", SMALL | {"pad_token_id": 1}),
    "modernbert": ("ModernBertConfig", "ModernBertModel", SMALL | {"pad_token_id": 0, "global_attn_every_n_layers": 2}),
    "mistral": ("MistralConfig", "MistralForCausalLM", SMALL | {"num_key_value_heads": 2, "sliding_window": 8}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8}),
    "phi": ("PhiConfig", "PhiForCausalLM", SMALL),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", SMALL | {"pad_token_id": 0}),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, vocab_size=100, max_position_embeddings=32)),
    "bloom": ("BloomConfig", "BloomForCausalLM", dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=100)),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", SMALL | {"num_key_value_heads": 2, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    "olmoe": ("OlmoeConfig", "OlmoeForCausalLM", SMALL | {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "jetmoe": ("JetMoeConfig", "JetMoeForCausalLM", dict(hidden_size=32, num_hidden_layers=2, num_key_value_heads=2, kv_channels=8, intermediate_size=64, vocab_size=100, num_local_experts=4)),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", SMALL | {"num_key_value_heads": 2, "pad_token_id": 0}),
}.items():
    MODELS[f"transformers_{name}"] = lambda c=config, m=cls, o=options: transformers(c, m, **o)


def pictures(config, model, size=32, **options):
    """Networks of images, and the halves for images of networks of both."""
    import transformers as t

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            made = getattr(t, config)(**options)
            made.update({k: v for k, v in CALM.items() if hasattr(made, k)})
            self.model = getattr(t, model)(made)

        def forward(self, pixels):
            return self.model(pixel_values=pixels)[0]

    return First(), (torch.randn(2, 3, size, size),)


TINY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)

for name, (config, cls, options) in {
    "vit": ("ViTConfig", "ViTForImageClassification", TINY),
    "dinov3_vit": ("DINOv3ViTConfig", "DINOv3ViTModel", TINY | dict(num_register_tokens=2, pos_embed_jitter=None, pos_embed_rescale=None, pos_embed_shift=None)),
    "efficientnet": ("EfficientNetConfig", "EfficientNetModel", dict(image_size=64, size=64, width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320, dropout_rate=0.0, drop_connect_rate=0.0)),
    "align_vision": ("AlignVisionConfig", "AlignVisionModel", dict(image_size=64, size=64, width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=80, dropout_rate=0.0, drop_connect_rate=0.0)),
    "clipseg_vision": ("CLIPSegVisionConfig", "CLIPSegVisionModel", TINY),
    "groupvit_vision": ("GroupViTVisionConfig", "GroupViTVisionModel", dict(hidden_size=32, intermediate_size=64, depths=[1, 1], num_hidden_layers=2, num_group_tokens=[8, 0], num_output_groups=[4, 4], num_attention_heads=4, image_size=32, patch_size=8)),
}.items():
    MODELS[f"transformers_{name}"] = lambda c=config, m=cls, o=options: pictures(c, m, **o)


@model
def transformers_llava():
    import transformers as t

    class Both(torch.nn.Module):
        """Text with an image in the place of its tokens."""

        def __init__(self):
            super().__init__()
            text = t.LlamaConfig(**SMALL | {"vocab_size": 120})
            made = t.LlavaConfig(vision_config=t.CLIPVisionConfig(**TINY), text_config=text, image_token_index=110)
            made.text_config.use_cache = False
            self.model = t.LlavaForConditionalGeneration(made)

        def forward(self, tokens, pixels):
            return self.model(input_ids=tokens, pixel_values=pixels, use_cache=False)[0]

    tokens = torch.randint(0, 100, (2, 24))
    tokens[:, 2:18] = 110
    return Both(), (tokens, torch.randn(2, 3, 32, 32))


@model
def transformers_clipseg():
    import transformers as t

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            text = SMALL | dict(max_position_embeddings=16, eos_token_id=99)
            made = t.CLIPSegConfig(text_config=text, vision_config=TINY, projection_dim=16, reduce_dim=16, extract_layers=[0, 1], decoder_num_attention_heads=2, decoder_intermediate_size=32)
            self.model = t.CLIPSegForImageSegmentation(made)

        def forward(self, tokens, pixels):
            return self.model(input_ids=tokens, pixel_values=pixels).logits

    return Both(), (torch.randint(0, 99, (2, 12)), torch.randn(2, 3, 32, 32))


@model
def lstm():
    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 16)
            self.lstm = torch.nn.LSTM(16, 20, num_layers=2, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(40, 5)

        def forward(self, x):
            return self.out(self.lstm(self.embed(x))[0])

    return Tagger(), (torch.randint(0, 50, (3, 7)),)


@model
def gru():
    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 16)
            self.gru = torch.nn.GRU(16, 20, num_layers=2, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(40, 5)

        def forward(self, x):
            return self.out(self.gru(self.embed(x))[0])

    return Tagger(), (torch.randint(0, 50, (3, 7)),)


@model
def unet():
    def block(i, o):
        layers = []
        for a, b in ((i, o), (o, o)):
            layers += [torch.nn.Conv2d(a, b, 3, padding=1, bias=False), torch.nn.BatchNorm2d(b), torch.nn.ReLU(inplace=True)]
        return torch.nn.Sequential(*layers)

    class UNet(torch.nn.Module):
        """Three levels down and up again, with what was seen on the way down joined on the way up."""

        def __init__(self, widths=(8, 16, 32)):
            super().__init__()
            self.down = torch.nn.ModuleList(block(i, o) for i, o in zip((3, *widths), widths))
            self.up = torch.nn.ModuleList(torch.nn.ConvTranspose2d(2 * o, o, 2, stride=2) for o in widths[:-1])
            self.join = torch.nn.ModuleList(block(2 * o, o) for o in widths[:-1])
            self.head = torch.nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            seen = []
            for k, down in enumerate(self.down):
                x = down(torch.nn.functional.max_pool2d(x, 2) if k else x)
                seen.append(x)
            for k in reversed(range(len(self.up))):
                x = self.join[k](torch.cat([seen[k], self.up[k](x)], dim=1))
            return self.head(torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False))

    return UNet(), (torch.randn(2, 3, 32, 32),)


@model
def transformer():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 9, 32),)


def floats(outputs):
    return [t for t in torch.utils._pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def is_random(program):
    words = ("dropout", "bernoulli", "rand", "uniform_", "normal_")
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            if node.op == "call_function" and any(w in str(node.target) for w in words):
                if "dropout" not in str(node.target) or (len(node.args) > 2 and node.args[2] and node.args[1] > 0):
                    return True
    return False


def calm(module):
    """Layers that draw random numbers draw none."""
    for m in module.modules():
        if isinstance(m, torch.nn.modules.dropout._DropoutNd) or type(m).__name__ == "StochasticDepth":
            m.p = 0.0
        elif type(m).__name__ == "DropPath":
            m.drop_prob = 0.0
        elif isinstance(m, torch.nn.MultiheadAttention):
            m.dropout = 0.0
        elif hasattr(m, "attention_dropout") and isinstance(m.attention_dropout, float):
            m.attention_dropout = 0.0


def adapters(name, module, path, args, firebrand, folder):
    """LoRA on an exported program: the adapters' gradients here and in PyTorch, which loads the program that the pass wrote."""
    lora = folder / f"{name}_lora.pt2"
    command = [firebrand, "pass", "lora", "--rank", "2", str(path), "-o", str(lora)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        # Networks of convolutions alone have no linear layer with a weight of its own: some convolutions, by name.
        assert "no linear layer" in done.stderr, done.stderr
        plain = [n for n, m in module.named_modules() if isinstance(m, torch.nn.Conv2d) and m.groups == 1]
        subprocess.run(command + ["--targets", ",".join(plain[:2] + plain[-1:])], capture_output=True, text=True, check=True)
    program = torch.export.load(lora)
    reference = program.module()
    trained = {n: p for n, p in reference.named_parameters() if p.requires_grad}
    assert trained and all(".lora_" in n for n in trained), sorted(trained)[:3]
    loss = sum((o ** 2).mean() for o in floats(reference(*args)))
    grads = dict(zip(trained, torch.autograd.grad(loss, trained.values(), allow_unused=True)))
    subprocess.run([firebrand, "grad", str(lora), "--inputs", str(folder / "in.npz"), "--loss", "mean_square", "-o", str(folder / "lora.npz")], check=True, capture_output=True, text=True)
    found = np.load(folder / "lora.npz")
    assert {n for n in found.files if not n.startswith("__")} <= set(trained), "a frozen parameter has a gradient"
    largest = max(g.abs().max().item() for g in grads.values() if g is not None)
    assert largest > 0
    worst = max((g - torch.from_numpy(found[n])).abs().max().item() for n, g in grads.items() if g is not None) / largest
    if worst > 1e-5:
        raise AssertionError(f"gradients of adapters differ by {worst:.1e}")
    return f"{len(trained) // 2} adapters {worst:.1e}"


def compare(name, make, firebrand, folder):
    torch.manual_seed(0)
    module, args = make()
    for p in module.parameters():
        # Heads that start at zero would hide everything below them.
        if not p.any():
            torch.nn.init.normal_(p, std=0.05)
    said = []
    for mode in ("eval", "train"):
        module.train(mode == "train")
        if mode == "train":
            calm(module)
            module = module.double()
            args = tuple(a.double() if a.is_floating_point() else a for a in args)
        program = torch.export.export(module, args)
        path = folder / f"{name}_{mode}.pt2"
        torch.export.save(program, path)
        if is_random(program):
            said.append(f"{mode}: random")
            continue
        inputs = {s.arg.name: a for s, a in zip([s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"], args)}
        np.savez(folder / "in.npz", **{k: v.numpy() for k, v in inputs.items()})
        fresh = torch.export.load(path)
        reference = fresh.module()
        outputs = floats(reference(*args))
        loss = sum((o ** 2).mean() for o in outputs)
        loss.backward()
        # Names of one tensor are one parameter here; PyTorch loads them as several over one storage.
        tied = {}
        for n, p in reference.named_parameters():
            tied.setdefault(p.data_ptr(), []).append((n, p))
        grads = {}
        for group in tied.values():
            parts = [p.grad for _, p in group if p.grad is not None]
            if parts:
                grads[tuple(n for n, _ in group)] = sum(parts)
        run = lambda *a: subprocess.run([firebrand, *map(str, a)], check=True, capture_output=True, text=True)
        run("run", path, "--inputs", folder / "in.npz", "-o", folder / "out.npz")
        found = [v for v in np.load(folder / "out.npz").values() if v.dtype.kind == "f"]
        worst = 0.0
        for o, f in zip(outputs, found, strict=True):
            scale = o.abs().max().item() + 1e-6
            worst = max(worst, (o.detach() - torch.from_numpy(f)).abs().max().item() / scale)
        run("grad", path, "--inputs", folder / "in.npz", "--loss", "mean_square", "-o", folder / "grads.npz")
        found = np.load(folder / "grads.npz")
        worst_grad = 0.0
        largest = max(g.abs().max().item() for g in grads.values())
        for names, g in grads.items():
            (n,) = [n for n in names if n in found]
            scale = max(g.abs().max().item(), 1e-3 * largest, 1e-12)
            worst_grad = max(worst_grad, (g - torch.from_numpy(found[n])).abs().max().item() / scale)
        said.append(f"{mode}: {worst:.1e}, gradients {worst_grad:.1e}")
        limit, limit_grad = {"eval": (1e-4, 1e-3), "train": (1e-6, 1e-5)}[mode]
        if worst > limit or worst_grad > limit_grad:
            raise AssertionError("; ".join(said))
        if mode == "train":
            said.append(adapters(name, module, path, args, firebrand, folder))
    return "; ".join(said)


def main(firebrand, wanted):
    failed, skipped = [], []
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            if wanted and name not in wanted:
                continue
            try:
                print(f"{name:32} {compare(name, make, firebrand, pathlib.Path(folder))}", flush=True)
                done += 1
            except ImportError as e:
                skipped.append(name)
                print(f"{name:32} skipped: {e}", flush=True)
            except subprocess.CalledProcessError as e:
                failed.append(name)
                print(f"{name:32} FAILED: {e.stderr.strip()[:400]}", flush=True)
            except Exception as e:
                failed.append(name)
                print(f"{name:32} FAILED: {type(e).__name__}: {str(e)[:400]}", flush=True)
    print(f"{done} models agree, {len(failed)} do not: {', '.join(failed)}; {len(skipped)} were not compared")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
