//! A vision transformer (ViT) in Rust: weights by Hugging Face's names, logits as transformers computes them.
//!
//! The weights are small and random (golden/models.py).

use firebrand::nn::layers::{Conv2d, LayerNorm, LayerNormOptions, Linear};
use firebrand::prelude::*;
use firebrand::{io, ops};

const WIDTH: usize = 32;
const HEADS: usize = 4;
const PATCH: usize = 8;
const IMAGE: usize = 16;

#[derive(Module)]
struct PatchEmbeddings {
    projection: Conv2d,
    core: ModuleCore,
}

#[derive(Module)]
struct Embeddings {
    cls_token: Parameter,
    position_embeddings: Parameter,
    patch_embeddings: PatchEmbeddings,
    core: ModuleCore,
}

impl Forward for Embeddings {
    type Output = Tensor;
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let patches = self.patch_embeddings.projection.try_call(images)?;
        let patches = ops::transpose(&ops::flatten(&patches, 2, -1)?, 1, 2)?;
        let first = ops::expand(&self.cls_token, &[images.size(0), (-1).into(), (-1).into()], false)?;
        Ok(ops::cat(&[first, patches], 1)? + self.position_embeddings.tensor())
    }
}

#[derive(Module)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    core: ModuleCore,
}

impl Forward for Attention {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let heads = |t: Tensor| {
            let sizes = [t.size(0), t.size(1), HEADS.into(), (WIDTH / HEADS).into()];
            ops::transpose(&ops::view(&t, &sizes)?, 1, 2)
        };
        let (q, k, v) = (self.q_proj.try_call(x)?, self.k_proj.try_call(x)?, self.v_proj.try_call(x)?);
        let out = ops::scaled_dot_product_attention(&heads(q)?, &heads(k)?, &heads(v)?, None, 0.0, false, None, false)?;
        self.o_proj.try_call(&ops::flatten(&ops::transpose(&out, 1, 2)?, 2, 3)?)
    }
}

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    core: ModuleCore,
}

#[derive(Module)]
struct Block {
    attention: Attention,
    mlp: Mlp,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    core: ModuleCore,
}

impl Forward for Block {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x + self.attention.try_call(&self.layernorm_before.try_call(x)?)?;
        let wide = ops::gelu(&self.mlp.fc1.try_call(&self.layernorm_after.try_call(&x)?)?, "none")?;
        Ok(&x + self.mlp.fc2.try_call(&wide)?)
    }
}

#[derive(Module)]
struct Encoder {
    embeddings: Embeddings,
    layers: Vec<Block>,
    layernorm: LayerNorm,
    core: ModuleCore,
}

#[derive(Module)]
struct Vit {
    vit: Encoder,
    classifier: Linear,
    core: ModuleCore,
}

fn norm() -> Result<LayerNorm> {
    LayerNormOptions::new(vec![WIDTH]).eps(1e-12).build()
}

impl Vit {
    fn new(blocks: usize, classes: usize) -> Result<Vit> {
        let square = || Linear::new(WIDTH, WIDTH);
        let block = |_| -> Result<Block> {
            Ok(Block {
                attention: Attention {
                    q_proj: square(),
                    k_proj: square(),
                    v_proj: square(),
                    o_proj: square(),
                    core: ModuleCore::new(),
                },
                mlp: Mlp { fc1: Linear::new(WIDTH, 48), fc2: Linear::new(48, WIDTH), core: ModuleCore::new() },
                layernorm_before: norm()?,
                layernorm_after: norm()?,
                core: ModuleCore::new(),
            })
        };
        let patches = (IMAGE / PATCH) * (IMAGE / PATCH);
        let zeros = |length: usize| Parameter::try_new(Tensor::zeros([1, length, WIDTH], DType::F32));
        let projection = Conv2d::new(3, WIDTH, PATCH).stride(PATCH);
        let embeddings = Embeddings {
            cls_token: zeros(1)?,
            position_embeddings: zeros(patches + 1)?,
            patch_embeddings: PatchEmbeddings { projection, core: ModuleCore::new() },
            core: ModuleCore::new(),
        };
        let layers = (0..blocks).map(block).collect::<Result<_>>()?;
        let vit = Encoder { embeddings, layers, layernorm: norm()?, core: ModuleCore::new() };
        Ok(Vit { vit, classifier: Linear::new(WIDTH, classes), core: ModuleCore::new() })
    }
}

impl Forward for Vit {
    type Output = Tensor;
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = self.vit.embeddings.try_call(images)?;
        for block in &self.vit.layers {
            x = block.try_call(&x)?;
        }
        let first = ops::select(&self.vit.layernorm.try_call(&x)?, 1, 0.into())?;
        self.classifier.try_call(&first)
    }
}

pub(crate) fn main() -> Result<()> {
    let model = Vit::new(2, 5)?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/vit.safetensors");
    let mut weights = io::read_safetensors(path)?;
    let mut golden = |name: &str| weights.shift_remove(name).ok_or_else(|| Error::argument("vit", name));
    let (input, expected) = (golden("golden.input")?, golden("golden.logits")?);
    model.load_state_dict(&weights, true)?;
    let worst = (&model.try_call(&input)? - &expected).abs().max().item::<f64>();
    println!("logits differ from transformers' by {worst:.1e}");
    assert!(worst < 1e-4, "{worst}");
    Ok(())
}
