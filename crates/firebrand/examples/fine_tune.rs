//! Fine-tunes a program that PyTorch exported: a network that recognizes the digits 0 to 4 learns the others, is saved, and
//! can be loaded again, here or in PyTorch.

use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand::digits::{self, Digits};
use firebrand::graph::{ExportedProgram, ProgramModule};
use firebrand::nn::losses::CrossEntropyLoss;
use firebrand::optim::{AdamW, AdamWOptions};
use firebrand::prelude::*;
use firebrand::train::accuracy;

/// Written by `torch.export.save` (`golden/make_digits_model.py`).
const PROGRAM: &[u8] = include_bytes!("../data/digits.pt2");

/// Scores of a batch.
fn scores(model: &ProgramModule, images: &Tensor) -> Result<Tensor> {
    Ok(model.try_call(&vec![images.clone()])?.remove(0))
}

fn test_accuracy(model: &ProgramModule, test: &Digits) -> Result<f64> {
    no_grad(|| accuracy(&scores(model, &test.images)?, &test.labels))
}

/// Accuracy on all ten digits: before training, after this many epochs, and of the saved program.
pub(crate) fn run(epochs: usize) -> std::result::Result<[f64; 3], Box<dyn std::error::Error>> {
    manual_seed(0);
    let (train, test) = (digits::train(), digits::test());
    let model = ExportedProgram::from_bytes(PROGRAM)?.module()?;
    let before = test_accuracy(&model, &test)?;

    let loader = DataLoader::new(
        TensorDataset::new([train.images, train.labels])?,
        LoaderOptions { shuffle: true, ..LoaderOptions::new(32) },
    );
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 5e-3, ..Default::default() })?;
    for epoch in 1..=epochs {
        for batch in &loader {
            let [x, y] = batch?;
            let loss = CrossEntropyLoss::new().loss(&scores(&model, &x)?, &y)?;
            optimizer.zero_grad();
            loss.backward();
            optimizer.step()?;
        }
        println!("epoch {epoch}  accuracy {:.3}", test_accuracy(&model, &test)?);
    }
    let after = test_accuracy(&model, &test)?;

    let path = std::env::temp_dir().join(format!("firebrand-tuned-{}.pt2", std::process::id()));
    model.program().save(&path)?;
    let again = test_accuracy(&ExportedProgram::load(&path)?.module()?, &test);
    std::fs::remove_file(&path)?;
    Ok([before, after, again?])
}

pub(crate) fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let [before, after, again] = run(15)?;
    println!("{:.1}% of ten digits as PyTorch left it, {:.1}% fine-tuned", 100.0 * before, 100.0 * after);
    assert!(before < 0.6 && after > 0.95 && again == after, "{before} {after} {again}");
    Ok(())
}
