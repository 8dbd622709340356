"""Small models of transformers with random weights and what they compute: `crates/firebrand/examples/{llama,vit,bert_classifier}.rs` are the same in Rust.

    python golden/models.py            writes golden/models/*.safetensors: weights by their names, `golden.input`, `golden.logits`, `golden.tokens`
"""

import pathlib

import torch
import transformers as t
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "models"


def write(name, model, key, x, **more):
    model.eval()
    for p in model.parameters():
        # Weights as large as trained ones: with the initial 0.02 everything is nearly linear.
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.2)
        elif not p.any():
            torch.nn.init.normal_(p, std=0.1)
    with torch.no_grad():
        logits = model(**{key: x}).logits
    state = {n: p.detach().contiguous() for n, p in model.named_parameters()}
    if "tokens" in more:
        made = model.generate(x[:1], max_new_tokens=more["tokens"], do_sample=False, eos_token_id=None, pad_token_id=0)
        state["golden.tokens"] = made[0, x.shape[1] :].contiguous()
    state |= {"golden.input": x, "golden.logits": logits.contiguous()}
    HERE.mkdir(exist_ok=True)
    save_file(state, HERE / f"{name}.safetensors")


def main():
    torch.manual_seed(0)
    llama = t.LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=64, max_position_embeddings=128, bos_token_id=0, eos_token_id=0)
    write("llama", t.LlamaForCausalLM(llama), "input_ids", torch.randint(0, 64, (2, 9)), tokens=64)
    vit = t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=8, num_labels=5)
    write("vit", t.ViTForImageClassification(vit), "pixel_values", torch.randn(2, 3, 16, 16))
    bert = t.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=64, max_position_embeddings=32, num_labels=3)
    write("bert_classifier", t.BertForSequenceClassification(bert), "input_ids", torch.randint(0, 64, (2, 9)))


if __name__ == "__main__":
    main()
