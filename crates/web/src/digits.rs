//! Learning the bundled digits: a program of PyTorch's that maps `[n, 64]` pixels to `[n, 10]` scores, batch by batch.
//!
//! The same bytes, seed and options give the same batches everywhere, so that a browser's losses can be compared with those
//! of other machines.

use crate::{Model, Trainer};
use firebrand::data::{Batches, DataLoader, LoaderOptions, TensorDataset};
use firebrand::digits::{self, Digits};
use firebrand::prelude::*;
use firebrand::train::accuracy;

/// A program that learns the digits.
pub struct DigitsTask {
    model: Model,
    trainer: Trainer,
    loader: DataLoader<TensorDataset<2>>,
    batches: Batches<TensorDataset<2>>,
    input: String,
    test: Digits,
    steps: usize,
}

firebrand::opaque_debug! { [] DigitsTask => "DigitsTask"; }

impl DigitsTask {
    /// From the content of a `.pt2` file with one input. Seeds the default generator.
    pub fn new(program: &[u8], seed: u64, batch_size: usize, lr: f64) -> Result<DigitsTask> {
        let model = Model::load(program)?;
        let names = model.input_names()?;
        let [input] = &names[..] else {
            return Err(Error::user(format!("expected a program with one input, found {}", names.len())));
        };
        let input = input.clone();
        if batch_size == 0 {
            return Err(Error::user("the batch size must be at least 1"));
        }
        let trainer = Trainer::new(&model, "cross_entropy", "adamw", lr)?;
        manual_seed(seed);
        let train = digits::train();
        let options = LoaderOptions { shuffle: true, ..LoaderOptions::new(batch_size) };
        let loader = DataLoader::new(TensorDataset::new([train.images, train.labels])?, options);
        let batches = loader.iter();
        Ok(DigitsTask { model, trainer, loader, batches, input, test: digits::test(), steps: 0 })
    }

    /// The program.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The number of steps of one pass over the training samples.
    pub fn steps_per_epoch(&self) -> usize {
        self.loader.len()
    }

    /// The number of steps so far.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The learning rate from the next step on.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        self.trainer.set_lr(lr)
    }

    /// One step on the next batch; returns its loss.
    pub fn step(&mut self) -> Result<f64> {
        let batch = match self.batches.next() {
            Some(batch) => batch,
            None => {
                self.batches = self.loader.iter();
                self.batches.next().ok_or_else(|| Error::user("there are no samples"))?
            }
        };
        let [images, labels] = batch?;
        let loss = self.trainer.step(&self.model, [(self.input.as_str(), &images)], &labels)?;
        self.steps += 1;
        Ok(loss)
    }

    fn scores(&self, images: &Tensor) -> Result<Tensor> {
        no_grad(|| Ok(self.model.run([(self.input.as_str(), images)])?.swap_remove(0)))
    }

    /// The part of the test samples that it recognizes, from 0 to 1.
    pub fn accuracy(&self) -> Result<f64> {
        accuracy(&self.scores(&self.test.images)?, &self.test.labels)
    }

    /// The probability of each digit for one image: 64 values from 0 (paper) to 1 (ink), row by row.
    pub fn predict(&self, pixels: &[f32]) -> Result<Vec<f32>> {
        if pixels.len() != 64 {
            return Err(Error::user(format!("expected 64 pixels, found {}", pixels.len())));
        }
        let scores = self.scores(&Tensor::try_from_vec(pixels.to_vec(), [1, 64])?)?;
        scores.try_softmax(-1)?.try_to_vec::<f32>()
    }

    /// The number of test samples.
    pub fn test_count(&self) -> usize {
        self.test.labels.numel()
    }

    /// The pixels of a test sample and its digit.
    pub fn test_sample(&self, index: usize) -> Result<(Vec<f32>, i64)> {
        let row = |t: &Tensor| t.try_select(0, index);
        Ok((row(&self.test.images)?.try_to_vec::<f32>()?, row(&self.test.labels)?.try_to_vec::<i64>()?[0]))
    }
}
