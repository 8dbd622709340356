//! Llama in Rust: weights by Hugging Face's names, logits as transformers computes them, generation with a cache, fine-tuning.
//!
//! The weights are small and random (golden/models.py). For real ones, pass the values of a `config.json` as `Config` and read
//! the model's `.safetensors` files.

use firebrand::nn::generate::{Generation, LanguageModel, generate};
use firebrand::nn::layers::{
    Embedding, GroupedQueryAttention, GroupedQueryAttentionOptions, KvCache, Linear, LinearOptions, RMSNorm,
    RMSNormOptions, SwiGLU,
};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::optim::{AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use firebrand::{io, ops};

/// The contents of `config.json`.
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    rms_norm_eps: f64,
}

#[derive(Module)]
struct Block {
    self_attn: GroupedQueryAttention,
    mlp: SwiGLU,
    input_layernorm: RMSNorm,
    post_attention_layernorm: RMSNorm,
    core: ModuleCore,
}

impl Block {
    fn forward(&self, x: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        let x = x + self.self_attn.attend(&self.input_layernorm.try_call(x)?, cache)?;
        Ok(&x + self.mlp.try_call(&self.post_attention_layernorm.try_call(&x)?)?)
    }
}

#[derive(Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RMSNorm,
    core: ModuleCore,
}

#[derive(Module)]
struct Llama {
    model: Decoder,
    lm_head: Linear,
    core: ModuleCore,
}

impl Llama {
    fn new(config: &Config) -> Result<Llama> {
        let width = config.hidden_size;
        let norm = || RMSNormOptions::new(vec![width]).eps(config.rms_norm_eps).build();
        let block = |_| -> Result<Block> {
            let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
            Ok(Block {
                self_attn: GroupedQueryAttentionOptions::new(width, heads, kv_heads).build()?,
                mlp: SwiGLU::new(width, config.intermediate_size)?,
                input_layernorm: norm()?,
                post_attention_layernorm: norm()?,
                core: ModuleCore::new(),
            })
        };
        let model = Decoder {
            embed_tokens: Embedding::new(config.vocab_size, width),
            layers: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            norm: norm()?,
            core: ModuleCore::new(),
        };
        let lm_head = LinearOptions::new(width, config.vocab_size).bias(false).build()?;
        Ok(Llama { model, lm_head, core: ModuleCore::new() })
    }

    /// Logits of `[batch, length]` token ids that continue what the caches hold; one cache per layer, or none.
    fn logits(&self, ids: &Tensor, caches: &mut [KvCache]) -> Result<Tensor> {
        let mut x = self.model.embed_tokens.try_call(ids)?;
        let mut caches = caches.iter_mut();
        for block in &self.model.layers {
            x = block.forward(&x, caches.next())?;
        }
        self.lm_head.try_call(&self.model.norm.try_call(&x)?)
    }

    fn caches(&self, capacity: usize) -> Vec<KvCache> {
        self.model.layers.iter().map(|l| l.self_attn.cache(1, capacity, DType::F32)).collect()
    }
}

impl Forward for Llama {
    type Output = Tensor;
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.logits(ids, &mut [])
    }
}

/// The model with its caches.
struct Writer<'a> {
    model: &'a Llama,
    caches: Vec<KvCache>,
}

impl LanguageModel for Writer<'_> {
    fn feed(&mut self, tokens: &[i64]) -> Result<Tensor> {
        let ids = ops::unsqueeze(&Tensor::new(tokens), 0)?;
        let logits = self.model.logits(&ids, &mut self.caches)?;
        ops::select(&ops::select(&logits, 0, 0.into())?, 0, (-1).into())
    }

    fn reset(&mut self) -> Result<()> {
        self.caches.iter_mut().for_each(KvCache::clear);
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    let config = Config {
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        rms_norm_eps: 1e-6,
    };
    let model = Llama::new(&config)?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/llama.safetensors");
    let mut weights = io::read_safetensors(path)?;
    let mut golden = |name: &str| weights.shift_remove(name).ok_or_else(|| Error::argument("llama", name));
    let (input, expected, tokens) = (golden("golden.input")?, golden("golden.logits")?, golden("golden.tokens")?);
    model.load_state_dict(&weights, true)?;

    let logits = model.try_call(&input)?;
    let worst = (&logits - &expected).abs().max().item::<f64>();
    println!("logits differ from transformers' by {worst:.1e}");
    assert!(worst < 1e-4, "{worst}");

    let prompt: Vec<i64> = ops::select(&input, 0, 0.into())?.to_vec();
    let mut writer = Writer { model: &model, caches: model.caches(prompt.len() + 64) };
    let made = generate(&mut writer, &prompt, &Generation { max_new_tokens: 64, ..Default::default() }, |_| true)?;
    assert_eq!(made, tokens.to_vec::<i64>(), "greedy tokens are those of transformers");
    println!("{} greedy tokens are those of transformers", made.len());

    // A few steps on the input itself: each token predicts the next.
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 1e-2, ..Default::default() })?;
    let (x, y) = (ops::narrow(&input, 1, 0.into(), 8.into())?, ops::narrow(&input, 1, 1.into(), 8.into())?);
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..20 {
        optimizer.zero_grad();
        let scores = ops::flatten(&model.try_call(&x)?, 0, 1)?;
        let loss = CrossEntropyLoss::new().loss(&scores, &ops::flatten(&y, 0, 1)?)?;
        loss.backward();
        optimizer.step()?;
        last = loss.item::<f64>();
        if step == 0 {
            first = last;
        }
    }
    println!("loss {first:.3} -> {last:.3}");
    assert!(last < 0.5 * first);
    Ok(())
}
