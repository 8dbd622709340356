"""LoRA by `firebrand pass lora` against LoRA by PEFT: initial values, training, files in both directions, merging.

    python golden/conformance_lora.py FIREBRAND          run by `cargo xtask conformance lora`
    python golden/conformance_lora.py --golden           writes golden/lora/, which crates/graph/tests/lora.rs reads

Every model is exported with random weights and trained for 20 steps on one batch by both sides: PEFT on the Python model, firebrand on
the exported program. Needs peft and transformers.
"""

import copy
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
STEPS, LR, SEED = 20, 0.1, 7


class Wrapper(torch.nn.Module):
    """The logits alone: the other results are records that archives cannot hold. Module paths get `model.` in front."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        out = self.model(**{self.name: x}) if self.name else self.model(x)
        return out.logits if hasattr(out, "logits") else out


def double_inside():
    """Llama computes its norms and rotations in f32 whatever the dtype of its weights; in f64 they are to be f64 throughout, or two
    correct sides differ by f32's rounding."""
    from transformers.models.llama import modeling_llama as m

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotation(self, x, position_ids):
        angles = position_ids[:, :, None].to(x.dtype) * self.inv_freq[None, None, :].to(x.dtype)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    m.LlamaRMSNorm.forward, m.LlamaRotaryEmbedding.forward = norm, rotation


def tokens(*shape):
    return torch.randint(0, 60, shape)


def llama():
    import transformers as t

    config = t.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=32, vocab_size=60, use_cache=False)
    return t.LlamaForCausalLM(config), "input_ids", tokens(3, 9), tokens(3, 9), dict(target_modules=["q_proj", "v_proj"])


def bert():
    import transformers as t

    config = t.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=60, max_position_embeddings=16, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    options = dict(target_modules=["query", "key", "value", "dense"], modules_to_save=["classifier"], use_rslora=True)
    return t.BertForSequenceClassification(config), "input_ids", tokens(4, 9), torch.randint(0, 3, (4,)), options


def vit():
    import transformers as t

    config = t.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=16, patch_size=8, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = t.ViTForImageClassification(config)
    linear = sorted(n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear))
    return model, "pixel_values", torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,)), dict(target_modules=linear, default=True)


def gpt2():
    import transformers as t

    config = t.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=60, n_positions=16, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return t.GPT2LMHeadModel(config), "input_ids", tokens(3, 9), tokens(3, 9), dict(target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)


def convnet():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.point = torch.nn.Conv2d(8, 12, 1)
            self.head = torch.nn.Linear(12, 5)

        def forward(self, x):
            x = torch.nn.functional.gelu(self.stem(x))
            return self.head(torch.nn.functional.gelu(self.point(x)).mean((2, 3)))

    return Net(), None, torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,)), dict(target_modules=["stem", "point", "head"])


MODELS = dict(llama=llama, bert=bert, vit=vit, gpt2=gpt2, convnet=convnet)


def loss_of(logits, target):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


class Case:
    def __init__(self, name, dtype, folder):
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        if name == "llama":
            double_inside()
        base, self.key, x, self.target, options = MODELS[name]()
        for p in base.parameters():
            if not p.any():
                torch.nn.init.normal_(p, std=0.05)
        self.base = base.to(dtype).eval()
        self.x = x.to(dtype) if x.is_floating_point() else x
        self.name, self.dtype, self.folder = name, dtype, folder
        self.default = options.pop("default", False)
        self.config = LoraConfig(r=4, lora_alpha=8, **options)
        torch.manual_seed(SEED)
        self.peft = get_peft_model(copy.deepcopy(self.base), self.config)
        self.program = folder / "base.pt2"
        program = torch.export.export(Wrapper(copy.deepcopy(self.base), self.key), (self.x,), strict=False)
        for module in program.graph_module.modules():
            for node in getattr(module, "graph", torch.fx.Graph()).nodes:
                node.meta.pop("stack_trace", None)
        torch.export.save(program, self.program)
        np.savez(folder / "in.npz", x=self.x.numpy())
        np.savez(folder / "data.npz", x=self.x.numpy(), __target__=self.target.numpy())

    def trained(self):
        """Names as files have them, to tensors."""
        from peft import get_peft_model_state_dict

        return {k: v.detach().clone() for k, v in get_peft_model_state_dict(self.peft).items()}

    def logits(self, model=None):
        model = model or self.peft
        with torch.no_grad():
            out = model(**{self.key: self.x}) if self.key else model(self.x)
        return out.logits if hasattr(out, "logits") else out

    def train(self):
        params = [p for p in self.peft.parameters() if p.requires_grad]
        sgd = torch.optim.SGD(params, lr=LR, momentum=0.9)
        for _ in range(STEPS):
            out = self.peft(**{self.key: self.x}) if self.key else self.peft(self.x)
            loss = loss_of(out.logits if hasattr(out, "logits") else out, self.target)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        return loss.item()

    def options(self):
        c = self.config
        given = ["--rank", c.r, "--alpha", c.lora_alpha, "--seed", SEED]
        given += [] if self.default else ["--targets", ",".join(sorted(c.target_modules))]
        given += ["--modules-to-save", ",".join(c.modules_to_save)] if c.modules_to_save else []
        return given + (["--rslora"] if c.use_rslora else [])


def worst(found, expected):
    assert found.keys() == expected.keys(), (sorted(found), sorted(expected))
    return max((found[k].double() - expected[k].double()).abs().max().item() for k in expected)


def compare(firebrand, name, dtype, folder):
    from peft import PeftModel
    from safetensors.torch import load_file

    def run(*arguments):
        done = subprocess.run([firebrand, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")

    def ours(program):
        run("run", program, "--inputs", folder / "in.npz", "-o", folder / "out.npz")
        return torch.from_numpy(np.load(folder / "out.npz")["out_0"])

    case = Case(name, dtype, folder)
    exact = dtype == torch.float64
    lora, tuned, merged = folder / "lora.pt2", folder / "tuned.pt2", folder / "merged.pt2"
    run("pass", "lora", *case.options(), case.program, "-o", lora, "--save-adapter", folder / "first", "--strip-prefix", "model.")
    first = worst(load_file(folder / "first/adapter_model.safetensors"), case.trained())
    assert first == 0, f"initial values differ by {first}"
    case.train()
    run("train", lora, "--data", folder / "data.npz", "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", LR, "--epochs", STEPS, "--batch-size", len(case.x), "-o", tuned)
    run("pass", "lora", tuned, "--save-adapter", folder / "tuned", "--strip-prefix", "model.")
    steps = worst(load_file(folder / "tuned/adapter_model.safetensors"), case.trained())
    assert steps <= (1e-9 if exact else 1e-5), f"weights after {STEPS} steps differ by {steps}"
    # What we trained, in PEFT.
    loaded = PeftModel.from_pretrained(copy.deepcopy(case.base), folder / "tuned")
    there = (case.logits(loaded) - ours(tuned)).abs().max().item()
    assert there <= (1e-9 if exact else 1e-5), f"logits in PEFT differ by {there}"
    # What PEFT trained, here.
    case.peft.save_pretrained(folder / "peft")
    run("pass", "lora", "--adapter", folder / "peft", case.program, "-o", folder / "theirs.pt2")
    here = (case.logits() - ours(folder / "theirs.pt2")).abs().max().item()
    assert here <= (1e-9 if exact else 1e-5), f"logits of PEFT's adapter differ by {here}"
    run("pass", "lora", "--merge", tuned, "-o", merged)
    once = (ours(tuned) - ours(merged)).abs().max().item()
    assert once <= (1e-9 if exact else 1e-5), f"the merged program differs by {once}"
    # The state in PyTorch's own format.
    run("convert", merged, folder / "merged.pt")
    state = torch.load(folder / "merged.pt", weights_only=True)
    kept = torch.export.load(merged).state_dict
    assert state.keys() >= kept.keys() and all(torch.equal(state[k], kept[k]) for k in kept), "convert to torch.save"
    return f"weights after {STEPS} steps {steps:.1e}, in PEFT {there:.1e}, from PEFT {here:.1e}, merged {once:.1e}"


def golden(name, folder):
    """A small case in f64: program, data, adapters before and after training, logits."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    case = Case(name, torch.float64, folder)
    save_file(case.trained(), folder / "first.safetensors")
    # Plain steps: the test takes them by hand.
    params = [p for p in case.peft.parameters() if p.requires_grad]
    for _ in range(STEPS):
        out = case.peft(**{case.key: case.x}) if case.key else case.peft(case.x)
        loss = loss_of(out.logits if hasattr(out, "logits") else out, case.target)
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, g in zip(params, grads):
                p -= LR * g
    case.peft.save_pretrained(folder / "adapter")
    (folder / "adapter/README.md").unlink(missing_ok=True)
    save_file({"x": case.x, "target": case.target, "logits": case.logits().contiguous()}, folder / "data.safetensors")
    for name in ("in.npz", "data.npz"):
        (folder / name).unlink()


def main():
    if sys.argv[1] == "--golden":
        for name in ("llama", "bert", "convnet"):
            golden(name, pathlib.Path(__file__).parent / "lora" / name)
        return 0
    failed = []
    for name in MODELS:
        for dtype in (torch.float64, torch.float32):
            label = f"{name} {str(dtype).removeprefix('torch.')}"
            with tempfile.TemporaryDirectory() as folder:
                try:
                    print(f"{label:18} {compare(sys.argv[1], name, dtype, pathlib.Path(folder))}", flush=True)
                except AssertionError as e:
                    failed.append(label)
                    print(f"{label:18} FAILED: {str(e)[:600]}", flush=True)
    print(f"{2 * len(MODELS) - len(failed)} agree, {len(failed)} do not: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
