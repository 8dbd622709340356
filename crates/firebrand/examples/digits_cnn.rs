//! A convolutional network on the bundled digits: layers, a loader, an optimizer with a schedule, the training loop.

use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand::digits;
use firebrand::nn::layers::{BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::nn::sequential;
use firebrand::optim::schedule::OneCycleLR;
use firebrand::optim::{AdamW, AdamWOptions};
use firebrand::prelude::*;
use firebrand::train::{Metrics, TrainOptions, Trainer, accuracy};

/// Accuracy on the test samples after this many epochs.
pub(crate) fn run(epochs: usize) -> Result<f64> {
    manual_seed(0);
    let (train, test) = (digits::train(), digits::test());
    let planes = |images: &Tensor| images.try_view([-1, 1, 8, 8]);
    let model = sequential![
        Conv2d::new(1, 16, 3),
        BatchNorm2d::new(16),
        ReLU::new(),
        Conv2d::new(16, 32, 3),
        BatchNorm2d::new(32),
        ReLU::new(),
        MaxPool2d::new(2),
        Flatten::new(),
        Linear::new(128, 10),
    ];
    let data = TensorDataset::new([planes(&train.images)?, train.labels])?;
    let loader = DataLoader::new(data, LoaderOptions { shuffle: true, num_workers: 1, ..LoaderOptions::new(32) });
    let (images, criterion) = (planes(&test.images)?, CrossEntropyLoss::new());

    let options = TrainOptions { epochs, schedule_every_step: true, clip_norm: Some(5.0), ..Default::default() };
    let mut trainer = Trainer::new(&model, AdamW::new(model.parameters(), AdamWOptions::default())?, options)
        .schedule(OneCycleLR::new(5e-3, (epochs * loader.len()) as u64));
    trainer.fit(
        &loader,
        |[x, y]| criterion.loss(&model.try_call(x)?, y),
        || Ok(Metrics::from_iter([("accuracy".into(), accuracy(&model.try_call(&images)?, &test.labels)?)])),
    )?;
    let history = &trainer.progress().history;
    for (k, metrics) in history.iter().enumerate() {
        println!("epoch {}  loss {:.4}  accuracy {:.3}", k + 1, metrics["train_loss"], metrics["accuracy"]);
    }
    Ok(history.last().map_or(0.0, |m| m["accuracy"]))
}

pub(crate) fn main() -> Result<()> {
    assert!(run(8)? > 0.97);
    Ok(())
}
