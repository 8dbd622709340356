//! A BERT classifier in Rust: weights by Hugging Face's names, logits as transformers computes them, and a new head trained.
//!
//! The weights are small and random (golden/models.py).

use firebrand::nn::layers::{Embedding, LayerNorm, LayerNormOptions, Linear};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::optim::{AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use firebrand::{io, ops};

const WIDTH: usize = 32;
const HEADS: usize = 4;

#[derive(Module)]
#[allow(non_snake_case)] // as Hugging Face names it
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    LayerNorm: LayerNorm,
    core: ModuleCore,
}

impl Forward for Embeddings {
    type Output = Tensor;
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let places = Tensor::arange(0, ids.size(1), 1, DType::I64);
        let x = self.word_embeddings.try_call(ids)? + self.position_embeddings.try_call(&places)?;
        // All tokens are of the first sentence.
        let kind = self.token_type_embeddings.try_call(&Tensor::zeros([1], DType::I64))?;
        self.LayerNorm.try_call(&(x + kind))
    }
}

#[derive(Module)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    core: ModuleCore,
}

impl Forward for SelfAttention {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let heads = |t: Tensor| {
            let sizes = [t.size(0), t.size(1), HEADS.into(), (WIDTH / HEADS).into()];
            ops::transpose(&ops::view(&t, &sizes)?, 1, 2)
        };
        let (q, k, v) = (self.query.try_call(x)?, self.key.try_call(x)?, self.value.try_call(x)?);
        let out = ops::scaled_dot_product_attention(&heads(q)?, &heads(k)?, &heads(v)?, None, 0.0, false, None, false)?;
        ops::flatten(&ops::transpose(&out, 1, 2)?, 2, 3)
    }
}

/// A projection, what it is added to, and a norm.
#[derive(Module)]
#[allow(non_snake_case)]
struct Output {
    dense: Linear,
    LayerNorm: LayerNorm,
    core: ModuleCore,
}

impl Output {
    fn forward(&self, x: &Tensor, beside: &Tensor) -> Result<Tensor> {
        self.LayerNorm.try_call(&(self.dense.try_call(x)? + beside))
    }
}

#[derive(Module)]
struct Attention {
    #[module(rename = "self")]
    own: SelfAttention,
    output: Output,
    core: ModuleCore,
}

#[derive(Module)]
struct Dense {
    dense: Linear,
    core: ModuleCore,
}

#[derive(Module)]
struct Block {
    attention: Attention,
    intermediate: Dense,
    output: Output,
    core: ModuleCore,
}

impl Forward for Block {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.attention.output.forward(&self.attention.own.try_call(x)?, x)?;
        self.output.forward(&ops::gelu(&self.intermediate.dense.try_call(&x)?, "none")?, &x)
    }
}

#[derive(Module)]
struct Encoder {
    layer: Vec<Block>,
    core: ModuleCore,
}

#[derive(Module)]
struct Bert {
    embeddings: Embeddings,
    encoder: Encoder,
    pooler: Dense,
    core: ModuleCore,
}

#[derive(Module)]
struct Classifier {
    bert: Bert,
    classifier: Linear,
    core: ModuleCore,
}

fn norm() -> Result<LayerNorm> {
    LayerNormOptions::new(vec![WIDTH]).eps(1e-12).build()
}

impl Classifier {
    fn new(blocks: usize, classes: usize) -> Result<Classifier> {
        let square = || Linear::new(WIDTH, WIDTH);
        let output = |from| -> Result<Output> {
            Ok(Output { dense: Linear::new(from, WIDTH), LayerNorm: norm()?, core: ModuleCore::new() })
        };
        let dense = |to| Dense { dense: Linear::new(WIDTH, to), core: ModuleCore::new() };
        let block = |_| -> Result<Block> {
            let own = SelfAttention { query: square(), key: square(), value: square(), core: ModuleCore::new() };
            let attention = Attention { own, output: output(WIDTH)?, core: ModuleCore::new() };
            Ok(Block { attention, intermediate: dense(48), output: output(48)?, core: ModuleCore::new() })
        };
        let embeddings = Embeddings {
            word_embeddings: Embedding::new(64, WIDTH),
            position_embeddings: Embedding::new(32, WIDTH),
            token_type_embeddings: Embedding::new(2, WIDTH),
            LayerNorm: norm()?,
            core: ModuleCore::new(),
        };
        let encoder = Encoder { layer: (0..blocks).map(block).collect::<Result<_>>()?, core: ModuleCore::new() };
        let bert = Bert { embeddings, encoder, pooler: dense(WIDTH), core: ModuleCore::new() };
        Ok(Classifier { bert, classifier: Linear::new(WIDTH, classes), core: ModuleCore::new() })
    }
}

impl Forward for Classifier {
    type Output = Tensor;
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = self.bert.embeddings.try_call(ids)?;
        for block in &self.bert.encoder.layer {
            x = block.try_call(&x)?;
        }
        let first = ops::select(&x, 1, 0.into())?;
        self.classifier.try_call(&ops::tanh(&self.bert.pooler.dense.try_call(&first)?)?)
    }
}

pub(crate) fn main() -> Result<()> {
    let mut model = Classifier::new(2, 3)?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/bert_classifier.safetensors");
    let mut weights = io::read_safetensors(path)?;
    let mut golden = |name: &str| weights.shift_remove(name).ok_or_else(|| Error::argument("bert", name));
    let (input, expected) = (golden("golden.input")?, golden("golden.logits")?);
    model.load_state_dict(&weights, true)?;
    let worst = (&model.try_call(&input)? - &expected).abs().max().item::<f64>();
    println!("logits differ from transformers' by {worst:.1e}");
    assert!(worst < 1e-4, "{worst}");

    // A new head on the frozen body: is the sentence's first token odd?
    model.classifier = Linear::new(WIDTH, 2);
    for p in model.bert.parameters() {
        p.try_set_requires_grad(false)?;
    }
    manual_seed(0);
    let ids = Tensor::randint(0, 64, [64, 9], DType::I64);
    let odd = ops::remainder_scalar(&ops::select(&ids, 1, 0.into())?, 2.into())?;
    let mut optimizer = AdamW::new(model.classifier.parameters(), AdamWOptions { lr: 1e-1, ..Default::default() })?;
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..40 {
        optimizer.zero_grad();
        let loss = CrossEntropyLoss::new().loss(&model.try_call(&ids)?, &odd)?;
        loss.backward();
        optimizer.step()?;
        last = loss.item::<f64>();
        if step == 0 {
            first = last;
        }
    }
    assert!(model.bert.parameters().iter().all(|p| p.tensor().grad().is_none()), "a frozen body has no gradients");
    println!("loss {first:.3} -> {last:.3}");
    assert!(last < first);
    Ok(())
}
