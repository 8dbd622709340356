//! The benches `matmul`, `mlp`, `gpt` and `convnet` in candle: `candle-peer --threads N BENCH…` prints JSON lines as `peers.py` does.
//!
//! The models are those of `torch_models.py`, and time is taken as there: processor time of the process on one thread, the clock on several; the
//! fastest of many calls after two. The caller sets RAYON_NUM_THREADS, which candle obeys. It has no fused attention with a gradient on the CPU, and no gradients to reset: a backward pass makes new ones.

use candle_core::{DType, Device, Module, ModuleT, Result, Tensor, Var};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, Embedding, LayerNorm, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap,
    batch_norm, conv2d_no_bias, embedding, layer_norm, linear, linear_no_bias, loss, ops,
};
use std::time::Duration;

const DEVICE: Device = Device::Cpu;

struct Bench {
    threads: usize,
}

impl Bench {
    /// Seconds of the fastest call.
    fn best(&self, budget: f64, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
        let began = std::time::Instant::now();
        let now = || match self.threads {
            1 => cpu_time::ProcessTime::now().as_duration(),
            _ => began.elapsed(),
        };
        f()?;
        f()?;
        let (start, mut best, mut calls) = (now(), Duration::MAX, 0);
        while calls < 5 || ((now() - start).as_secs_f64() < budget && calls < 2000) {
            let call = now();
            f()?;
            best = best.min(now() - call);
            calls += 1;
        }
        Ok(best.as_secs_f64())
    }

    fn emit(&self, bench: &str, case: &str, value: f64, unit: &str) {
        let line = serde_json::json!({"bench": bench, "case": case, "value": value, "unit": unit, "threads": self.threads, "peer": "candle"});
        println!("{line}");
    }

    fn matmul(&self) -> Result<()> {
        let squares = [64, 256, 512, 1024, 2048].map(|n| (n.to_string(), vec![n, n], vec![n, n], 2 * n * n * n));
        let (b, m, k, n) = (32, 128, 64, 128);
        let batched = (format!("batch{b}x{m}x{k}x{n}"), vec![b, m, k], vec![b, k, n], 2 * b * m * k * n);
        for (case, left, right, work) in squares.into_iter().chain([batched]) {
            let (a, b) = (Tensor::randn(0f32, 1., left, &DEVICE)?, Tensor::randn(0f32, 1., right, &DEVICE)?);
            let seconds = self.best(0.6, || a.matmul(&b).map(drop))?;
            self.emit("matmul", &case, work as f64 / seconds / 1e9, "GFLOPS");
        }
        Ok(())
    }

    /// Whole steps: forward, backward, optimizer. `worth` is what one counts.
    fn training(
        &self,
        names: [&str; 2],
        weights: &VarMap,
        worth: f64,
        unit: &str,
        scores: impl Fn() -> Result<Tensor>,
        classes: &Tensor,
    ) -> Result<()> {
        // Adam is AdamW without decay, and so is the work.
        let params = ParamsAdamW { lr: 1e-4, weight_decay: 0.0, ..Default::default() };
        let trained: Vec<Var> = weights.all_vars();
        let mut optimizer = AdamW::new(trained, params)?;
        let seconds = self.best(2.0, || optimizer.backward_step(&loss::cross_entropy(&scores()?, classes)?))?;
        self.emit(names[0], names[1], worth / seconds, unit);
        Ok(())
    }

    fn mlp(&self) -> Result<()> {
        let weights = VarMap::new();
        let vb = VarBuilder::from_varmap(&weights, DType::F32, &DEVICE);
        let layers = [linear(784, 512, vb.pp("0"))?, linear(512, 512, vb.pp("1"))?, linear(512, 10, vb.pp("2"))?];
        let (x, y) = (Tensor::randn(0f32, 1., (128, 784), &DEVICE)?, classes(10, 128)?);
        let scores = || layers[2].forward(&layers[1].forward(&layers[0].forward(&x)?.relu()?)?.relu()?);
        self.training(["mlp", "adam"], &weights, 1.0, "steps/s", scores, &y)
    }

    fn gpt(&self) -> Result<()> {
        let weights = VarMap::new();
        let model = Gpt::new(VarBuilder::from_varmap(&weights, DType::F32, &DEVICE))?;
        let (ids, y) = (classes(1000, 8 * 128)?.reshape((8, 128))?, classes(1000, 8 * 128)?);
        let scores = || model.forward(&ids)?.flatten(0, 1);
        self.training(["gpt", "adamw"], &weights, 1024.0, "tokens/s", scores, &y)
    }

    fn convnet(&self) -> Result<()> {
        let weights = VarMap::new();
        let model = ConvNet::new(VarBuilder::from_varmap(&weights, DType::F32, &DEVICE))?;
        let (x, y) = (Tensor::randn(0f32, 1., (64, 3, 32, 32), &DEVICE)?, classes(10, 64)?);
        self.training(["convnet", "adam"], &weights, 64.0, "images/s", || model.forward(&x), &y)
    }
}

fn classes(below: u32, n: usize) -> Result<Tensor> {
    let all: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) % below).collect();
    Tensor::from_vec(all, n, &DEVICE)
}

struct Block {
    heads: usize,
    norms: [LayerNorm; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(width: usize, heads: usize, vb: VarBuilder) -> Result<Block> {
        let norm = |name| layer_norm(width, 1e-5, vb.pp(name));
        Ok(Block {
            heads,
            norms: [norm("norm1")?, norm("norm2")?],
            qkv: linear(width, 3 * width, vb.pp("qkv"))?,
            out: linear(width, width, vb.pp("out"))?,
            up: linear(width, 4 * width, vb.pp("up"))?,
            down: linear(4 * width, width, vb.pp("down"))?,
        })
    }

    /// `mask` is −∞ above the diagonal.
    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (b, t, d) = x.dims3()?;
        let qkv = self.qkv.forward(&self.norms[0].forward(x)?)?.reshape((b, t, 3, self.heads, d / self.heads))?;
        let part = |i: usize| qkv.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let scores = (q.matmul(&k.t()?)? / ((d / self.heads) as f64).sqrt())?.broadcast_add(mask)?;
        let a = ops::softmax(&scores, 3)?.matmul(&v)?.transpose(1, 2)?.reshape((b, t, d))?;
        let x = (x + self.out.forward(&a)?)?;
        let wide = self.up.forward(&self.norms[1].forward(&x)?)?.gelu()?;
        &x + self.down.forward(&wide)?
    }
}

struct Gpt {
    token: Embedding,
    position: Tensor,
    mask: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(vb: VarBuilder) -> Result<Gpt> {
        let (layers, width, heads, vocabulary, length) = (4, 256, 4, 1000, 128);
        let above: Vec<f32> =
            (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 }).collect();
        let blocks: Result<Vec<Block>> =
            (0..layers).map(|i| Block::new(width, heads, vb.pp(format!("blocks.{i}")))).collect();
        Ok(Gpt {
            token: embedding(vocabulary, width, vb.pp("token"))?,
            position: vb.get((length, width), "position")?,
            mask: Tensor::from_vec(above, (1, 1, length, length), &DEVICE)?,
            blocks: blocks?,
            norm: layer_norm(width, 1e-5, vb.pp("norm"))?,
            head: linear_no_bias(width, vocabulary, vb.pp("head"))?,
        })
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = self.token.forward(ids)?.broadcast_add(&self.position)?;
        for block in &self.blocks {
            x = block.forward(&x, &self.mask)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
}

struct Residual {
    convolutions: [Conv2d; 2],
    norms: [BatchNorm; 2],
    project: Option<Conv2d>,
}

impl Residual {
    fn new(inputs: usize, outputs: usize, stride: usize, vb: VarBuilder) -> Result<Residual> {
        let project = (stride > 1).then(|| convolution(inputs, outputs, 1, stride, vb.pp("project"))).transpose()?;
        Ok(Residual {
            convolutions: [
                convolution(inputs, outputs, 3, stride, vb.pp("conv1"))?,
                convolution(outputs, outputs, 3, 1, vb.pp("conv2"))?,
            ],
            norms: [batch_norm(outputs, 1e-5, vb.pp("norm1"))?, batch_norm(outputs, 1e-5, vb.pp("norm2"))?],
            project,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norms[0].forward_t(&self.convolutions[0].forward(x)?, true)?.relu()?;
        let y = self.norms[1].forward_t(&self.convolutions[1].forward(&y)?, true)?;
        let x = self.project.as_ref().map_or_else(|| Ok(x.clone()), |p| p.forward(x))?;
        (y + x)?.relu()
    }
}

struct ConvNet {
    stem: Conv2d,
    norm: BatchNorm,
    body: Vec<Residual>,
    head: Linear,
}

impl ConvNet {
    fn new(vb: VarBuilder) -> Result<ConvNet> {
        let widths = [
            (16, 16, 1),
            (16, 16, 1),
            (16, 16, 1),
            (16, 32, 2),
            (32, 32, 1),
            (32, 32, 1),
            (32, 64, 2),
            (64, 64, 1),
            (64, 64, 1),
        ];
        let body: Result<Vec<Residual>> = widths
            .into_iter()
            .enumerate()
            .map(|(i, (a, b, s))| Residual::new(a, b, s, vb.pp(format!("body.{i}"))))
            .collect();
        Ok(ConvNet {
            stem: convolution(3, 16, 3, 1, vb.pp("stem"))?,
            norm: batch_norm(16, 1e-5, vb.pp("norm"))?,
            body: body?,
            head: linear(64, 10, vb.pp("head"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.norm.forward_t(&self.stem.forward(x)?, true)?.relu()?;
        for block in &self.body {
            x = block.forward(&x)?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

fn convolution(inputs: usize, outputs: usize, kernel: usize, stride: usize, vb: VarBuilder) -> Result<Conv2d> {
    let options = Conv2dConfig { stride, padding: kernel / 2, ..Default::default() };
    conv2d_no_bias(inputs, outputs, kernel, options, vb)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let at = names.iter().position(|a| a == "--threads").ok_or("expected --threads N BENCH…")?;
    let threads = names.get(at + 1).ok_or("expected a number after --threads")?.parse()?;
    names.drain(at..at + 2);
    let bench = Bench { threads };
    for name in names {
        match name.as_str() {
            "matmul" => bench.matmul()?,
            "mlp" => bench.mlp()?,
            "gpt" => bench.gpt()?,
            "convnet" => bench.convnet()?,
            _ => {} // no such bench here
        }
    }
    Ok(())
}
