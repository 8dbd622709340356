//! A character-level transformer that learns a short text, then generates text on its own.

use firebrand::Tensor;
use firebrand::nn::layers::{
    AttentionOptions, Embedding, LayerNorm, Linear, TransformerEncoder, TransformerLayerOptions,
};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm};
use firebrand::prelude::*;

const TEXT: &str = "\
A spark fell on the dry grass and the grass remembered the summer. \
The wind came over the hill and asked the spark its name. I have no name, said the spark, I am only a beginning. \
Then grow, said the wind, and I will carry you. The spark grew into a flame and the flame into a fire, \
and the fire walked down the hill in the evening, slowly, like somebody who is not expected anywhere. \
At the river it stopped. The river did not ask its name. You may look at me, said the river, but you may not cross. \
So the fire sat down on the bank and looked at its own face in the water until the night was over, \
and in the morning there was a spark in the dry grass, and the grass remembered the summer. ";

/// Context length in characters.
const LENGTH: usize = 32;
const WIDTH: usize = 48;

#[derive(Module)]
struct Writer {
    letters: Embedding,
    positions: Embedding,
    blocks: TransformerEncoder,
    scores: Linear,
    core: ModuleCore,
}

impl Writer {
    fn new(alphabet: usize) -> Result<Writer> {
        let layer = TransformerLayerOptions {
            dim_feedforward: 4 * WIDTH,
            dropout: 0.0,
            batch_first: true,
            norm_first: true,
            gelu: true,
            ..TransformerLayerOptions::new(WIDTH, 4)
        };
        Ok(Writer {
            letters: Embedding::new(alphabet, WIDTH),
            positions: Embedding::new(LENGTH, WIDTH),
            blocks: TransformerEncoder::with(layer, 2, Some(LayerNorm::new(WIDTH)))?,
            scores: Linear::new(WIDTH, alphabet),
            core: ModuleCore::new(),
        })
    }
}

impl Forward for Writer {
    type Output = Tensor;
    fn forward(&self, letters: &Tensor) -> Result<Tensor> {
        let places = Tensor::arange(0, letters.size(1), 1, DType::I64);
        let x = self.letters.try_call(letters)? + self.positions.try_call(&places)?;
        let masks = AttentionOptions { is_causal: true, ..Default::default() };
        self.scores.try_call(&self.blocks.encode(&x, &masks)?)
    }
}

/// First and last loss of this many steps, and the text that the model then generates.
pub(crate) fn run(steps: usize) -> Result<(f64, f64, String)> {
    manual_seed(0);
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let number = |c: char| alphabet.iter().position(|a| *a == c).unwrap_or(0) as i64;
    let text = Tensor::new(&TEXT.chars().map(number).collect::<Vec<i64>>());

    let model = Writer::new(alphabet.len())?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 3e-3, ..Default::default() })?;
    let window = Tensor::arange(0, LENGTH as i64, 1, DType::I64);
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..steps {
        let starts = Tensor::randint(0, (text.numel() - LENGTH - 1) as i64, [16, 1], DType::I64);
        let places = &starts + &window;
        let (x, y) = (text.i(&places), text.i(&(&places + 1)));
        optimizer.zero_grad();
        let loss = CrossEntropyLoss::new().loss(&model.try_call(&x)?.flatten(0, 1), &y.flatten(0, 1))?;
        loss.backward();
        clip_grad_norm(model.parameters(), 1.0, 2.0)?;
        optimizer.step()?;
        last = f64::from(loss.item::<f32>());
        if step == 0 {
            first = last;
        }
        if step % 50 == 0 {
            println!("step {step:>4}  loss {last:.3}");
        }
    }

    model.eval();
    let mut written: Vec<i64> = "A spark".chars().map(number).collect();
    no_grad(|| {
        for _ in 0..80 {
            let seen = &written[written.len().saturating_sub(LENGTH)..];
            let scores = model.try_call(&Tensor::new(seen).unsqueeze(0))?.i((0, -1));
            let next = (scores / 0.7).softmax(-1).try_multinomial(1, false)?;
            written.push(next.item::<i64>());
        }
        Ok::<(), Error>(())
    })?;
    Ok((first, last, written.iter().map(|&n| alphabet[n as usize]).collect()))
}

pub(crate) fn main() -> Result<()> {
    let (first, last, written) = run(300)?;
    println!("{written}");
    assert!(last < 0.5 * first, "{first} {last}");
    Ok(())
}
