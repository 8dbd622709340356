//! The models of the training benches. `bench/torch_models.py` has the same in PyTorch.

use firebrand::autograd::checkpoint;
use firebrand::nn::layers::{
    BatchNorm2d, Conv2d, Conv2dOptions, Embedding, LayerNorm, Linear, LinearOptions, Padding, Sequential,
};
use firebrand::ops;
use firebrand::prelude::*;
use std::sync::Arc;

#[derive(Module)]
struct Block {
    heads: usize,
    norm1: LayerNorm,
    norm2: LayerNorm,
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
    core: ModuleCore,
}

impl Block {
    fn new(width: usize, heads: usize) -> Block {
        Block {
            heads,
            norm1: LayerNorm::new(width),
            norm2: LayerNorm::new(width),
            qkv: Linear::new(width, 3 * width),
            out: Linear::new(width, width),
            up: Linear::new(width, 4 * width),
            down: Linear::new(4 * width, width),
            core: ModuleCore::new(),
        }
    }
}

impl Forward for Block {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [b, t, d] = *x.shape() else { return Err(Error::argument("Block", "expected [batch, length, width]")) };
        let qkv = self.qkv.try_call(&self.norm1.try_call(x)?)?;
        let parts = ops::view(&qkv, &[b.into(), t.into(), 3.into(), self.heads.into(), (d / self.heads).into()])?;
        let parts = ops::unbind(&ops::permute(&parts, &[2, 0, 3, 1, 4])?, 0)?;
        let a = ops::scaled_dot_product_attention(&parts[0], &parts[1], &parts[2], None, 0.0, true, None, false)?;
        let a = ops::reshape(&ops::transpose(&a, 1, 2)?, &[b.into(), t.into(), d.into()])?;
        let x = ops::add(x, &self.out.try_call(&a)?, 1.into())?;
        let wide = ops::gelu(&self.up.try_call(&self.norm2.try_call(&x)?)?, "tanh")?;
        ops::add(&x, &self.down.try_call(&wide)?, 1.into())
    }
}

/// A decoder-only transformer.
#[derive(Module)]
pub(super) struct Gpt {
    token: Embedding,
    position: Parameter,
    blocks: Vec<Arc<Block>>,
    norm: LayerNorm,
    head: Linear,
    /// Whether each block is recomputed in backward instead of keeping what it needs.
    pub(super) checkpointed: bool,
    core: ModuleCore,
}

impl Gpt {
    pub(super) fn new() -> Result<Gpt> {
        const LAYERS: usize = 4;
        const WIDTH: usize = 256;
        const HEADS: usize = 4;
        const VOCABULARY: usize = 1000;
        const LENGTH: usize = 128;
        Ok(Gpt {
            token: Embedding::new(VOCABULARY, WIDTH),
            position: Parameter::try_new(Tensor::try_randn([LENGTH, WIDTH], DType::F32)? * 0.02)?,
            blocks: (0..LAYERS).map(|_| Arc::new(Block::new(WIDTH, HEADS))).collect(),
            norm: LayerNorm::new(WIDTH),
            head: LinearOptions { bias: false, ..LinearOptions::new(WIDTH, VOCABULARY) }.build()?,
            checkpointed: false,
            core: ModuleCore::new(),
        })
    }
}

impl Forward for Gpt {
    type Output = Tensor;
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = ops::add(&self.token.try_call(ids)?, &self.position, 1.into())?;
        for block in &self.blocks {
            x = if self.checkpointed {
                let block = block.clone();
                checkpoint(move |t: &[Tensor]| Ok(vec![block.try_call(&t[0])?]), &[&x], &Default::default())?.remove(0)
            } else {
                block.try_call(&x)?
            };
        }
        self.head.try_call(&self.norm.try_call(&x)?)
    }
}

fn convolution(inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Conv2d> {
    let padding = Padding::Size([kernel / 2; 2]);
    Conv2dOptions { stride: [stride; 2], padding, bias: false, ..Conv2dOptions::new(inputs, outputs, [kernel; 2]) }
        .build()
}

#[derive(Module)]
struct Residual {
    conv1: Conv2d,
    norm1: BatchNorm2d,
    conv2: Conv2d,
    norm2: BatchNorm2d,
    project: Option<Conv2d>,
    core: ModuleCore,
}

impl Residual {
    fn new(inputs: usize, outputs: usize, stride: usize) -> Result<Residual> {
        Ok(Residual {
            conv1: convolution(inputs, outputs, 3, stride)?,
            norm1: BatchNorm2d::new(outputs),
            conv2: convolution(outputs, outputs, 3, 1)?,
            norm2: BatchNorm2d::new(outputs),
            project: (stride > 1).then(|| convolution(inputs, outputs, 1, stride)).transpose()?,
            core: ModuleCore::new(),
        })
    }
}

impl Forward for Residual {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = ops::relu(&self.norm1.try_call(&self.conv1.try_call(x)?)?)?;
        let y = self.norm2.try_call(&self.conv2.try_call(&y)?)?;
        let x = self.project.as_ref().map_or(Ok(x.clone()), |p| p.try_call(x))?;
        ops::relu(&ops::add(&y, &x, 1.into())?)
    }
}

/// A residual net of twenty layers.
#[derive(Module)]
pub(super) struct ConvNet {
    stem: Conv2d,
    norm: BatchNorm2d,
    body: Sequential,
    head: Linear,
    core: ModuleCore,
}

impl ConvNet {
    pub(super) fn new() -> Result<ConvNet> {
        let widths = [
            [(16, 16, 1), (16, 16, 1), (16, 16, 1)],
            [(16, 32, 2), (32, 32, 1), (32, 32, 1)],
            [(32, 64, 2), (64, 64, 1), (64, 64, 1)],
        ];
        let (stem, norm) = (convolution(3, 16, 3, 1)?, BatchNorm2d::new(16));
        let mut body = Sequential::new();
        for (inputs, outputs, stride) in widths.into_iter().flatten() {
            body = body.then(Residual::new(inputs, outputs, stride)?);
        }
        Ok(ConvNet { stem, norm, body, head: Linear::new(64, 10), core: ModuleCore::new() })
    }
}

impl Forward for ConvNet {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = ops::relu(&self.norm.try_call(&self.stem.try_call(x)?)?)?;
        let x = self.body.try_call(&x)?;
        self.head.try_call(&ops::mean_dim(&x, Some(&[2, 3]), false, None)?)
    }
}
