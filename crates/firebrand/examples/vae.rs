//! A variational autoencoder of the bundled digits: gradients through random sampling.

use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand::digits;
use firebrand::nn::layers::{Linear, ReLU, Sequential};
use firebrand::nn::losses::{BCEWithLogitsLoss, Loss, Reduction};
use firebrand::nn::sequential;
use firebrand::optim::{Adam, AdamOptions, Optimizer};
use firebrand::prelude::*;

const LATENT: usize = 8;

#[derive(Module)]
struct Vae {
    encoder: Sequential,
    decoder: Sequential,
    core: ModuleCore,
}

impl Vae {
    /// The negative evidence lower bound of a batch, per sample.
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let code = self.encoder.try_call(x)?.chunk(2, 1);
        let (mean, log_variance) = (&code[0], &code[1]);
        // Noise outside the graph, scaled and shifted inside it.
        let z = mean + &((log_variance * 0.5).exp() * Tensor::randn(mean.shape(), DType::F32));
        let reconstruction = BCEWithLogitsLoss::new().with_reduction(Reduction::Sum);
        let reconstruction = reconstruction.loss(&self.decoder.try_call(&z)?, x)?;
        let divergence = (log_variance.exp() + mean.square() - log_variance - 1.0).sum() * 0.5;
        Ok((reconstruction + divergence) / x.shape()[0] as f64)
    }
}

/// The negative evidence lower bound before and after this many epochs.
pub(crate) fn run(epochs: usize) -> Result<(f64, f64)> {
    manual_seed(0);
    let images = digits::train().images;
    let model = Vae {
        encoder: sequential![Linear::new(64, 64), ReLU::new(), Linear::new(64, 2 * LATENT)],
        decoder: sequential![Linear::new(LATENT, 64), ReLU::new(), Linear::new(64, 64)],
        core: ModuleCore::new(),
    };
    let bound = || no_grad(|| model.loss(&images)).map(|l| f64::from(l.item::<f32>()));
    let before = bound()?;
    let loader = DataLoader::new(
        TensorDataset::new([images.clone()])?,
        LoaderOptions { shuffle: true, ..LoaderOptions::new(64) },
    );
    let mut adam = Adam::new(model.parameters(), AdamOptions { lr: 2e-3, ..Default::default() })?;
    for epoch in 1..=epochs {
        for batch in &loader {
            let [x] = batch?;
            adam.zero_grad();
            model.loss(&x)?.backward();
            adam.step()?;
        }
        println!("epoch {epoch:>2}  {:.2} nats a digit", bound()?);
    }
    Ok((before, bound()?))
}

pub(crate) fn main() -> Result<()> {
    let (before, after) = run(20)?;
    assert!(after < 0.75 * before, "{before} {after}");
    Ok(())
}
