//! A program with its state, and what trains it.

use firebrand::graph::interpret::Value;
use firebrand::graph::{ExportedProgram, ProgramModule};
use firebrand::nn::losses::{CrossEntropyLoss, Loss, MSELoss};
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand::prelude::*;
use firebrand::viz::program_html;

/// An exported program with its own state.
pub struct Model {
    module: ProgramModule,
}

firebrand::opaque_debug! { [] Model => "Model"; }

impl Model {
    /// From the content of a `.pt2` file.
    pub fn load(bytes: &[u8]) -> Result<Model> {
        Ok(Model { module: ExportedProgram::from_bytes(bytes)?.module()? })
    }

    /// The content of a `.pt2` file with the current state; PyTorch can load it.
    pub fn save(&self) -> Result<Vec<u8>> {
        Ok(self.module.program().to_bytes()?)
    }

    /// Its graph, as a page that loads nothing.
    pub fn html(&self, title: &str) -> String {
        program_html(title, &self.module.program())
    }

    /// The graph of a program that need not run here, as a page: ops that this build does not have are shown too.
    pub fn html_of(bytes: &[u8], title: &str) -> Result<String> {
        let options = firebrand::graph::LoadOptions { refuse_unsupported: false, ..Default::default() };
        Ok(program_html(title, &ExportedProgram::from_bytes_with(bytes, &options)?))
    }

    /// Names of the input tensors, in order.
    pub fn input_names(&self) -> Result<Vec<String>> {
        Ok(self.module.tensor_inputs()?.into_iter().map(|(name, _)| name.to_string()).collect())
    }

    /// The sizes of an input, -1 where any size is accepted; none if there is no such input.
    pub fn input_sizes(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let found = self.module.tensor_inputs()?.into_iter().find(|(n, _)| *n == name);
        Ok(found.map(|(_, meta)| meta.sizes.iter().map(|s| s.known().unwrap_or(-1)).collect()))
    }

    /// Names of the outputs, in order.
    pub fn output_names(&self) -> Vec<String> {
        self.module.output_names()
    }

    /// The number of trained values.
    pub fn parameter_count(&self) -> usize {
        self.module.parameters().iter().map(|p| p.tensor().numel()).sum()
    }

    /// Training mode, or evaluation mode. Until called, the program is in the mode it was exported in.
    pub fn train(&self, on: bool) {
        if on { self.module.train() } else { self.module.eval() }
    }

    /// The tensor results on these inputs, by name. What their gradients need is recorded.
    pub fn run<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<Vec<Tensor>> {
        let results = self.module.run_named(inputs)?.into_iter();
        Ok(results.filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    }
}

/// An optimizer and a loss for the parameters of a [`Model`].
pub struct Trainer {
    optimizer: Box<dyn Optimizer>,
    loss: Objective,
}

firebrand::opaque_debug! { [] Trainer => "Trainer"; }

#[derive(Clone, Copy)]
enum Objective {
    CrossEntropy,
    MeanSquaredError,
}

fn unknown(what: &str, found: &str, known: &str) -> Error {
    Error::user(format!("unknown {what} {found:?}; known are {known}"))
}

impl Trainer {
    /// Over the parameters that require grad. Losses are `cross_entropy` (of logits with class indices) and `mse`, optimizers
    /// `sgd`, `adam` and `adamw`, with PyTorch's other defaults.
    pub fn new(model: &Model, loss: &str, optimizer: &str, lr: f64) -> Result<Trainer> {
        let loss = match loss {
            "cross_entropy" => Objective::CrossEntropy,
            "mse" => Objective::MeanSquaredError,
            other => return Err(unknown("loss", other, "cross_entropy and mse")),
        };
        let all = model.module.parameters();
        let wanted: Vec<Tensor> = all.iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
        let optimizer: Box<dyn Optimizer> = match optimizer {
            "sgd" => Box::new(SGD::new(&wanted, SGDOptions { lr, ..Default::default() })?),
            "adam" => Box::new(Adam::new(&wanted, AdamOptions { lr, ..Default::default() })?),
            "adamw" => Box::new(AdamW::new(&wanted, AdamWOptions { lr, ..Default::default() })?),
            other => return Err(unknown("optimizer", other, "sgd, adam and adamw")),
        };
        Ok(Trainer { optimizer, loss })
    }

    /// The learning rate from the next step on.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        if lr.is_nan() || lr < 0.0 {
            return Err(Error::user(format!("expected a learning rate of at least 0, found {lr}")));
        }
        (0..self.optimizer.groups()).for_each(|group| self.optimizer.set_lr(group, lr));
        Ok(())
    }

    /// One step on a batch; returns the loss before it, of the first output.
    pub fn step<'a>(
        &mut self,
        model: &Model,
        inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
        target: &Tensor,
    ) -> Result<f64> {
        let results = model.run(inputs)?;
        let output = results.first().ok_or_else(|| Error::user("the program returns no tensor"))?;
        let loss = match self.loss {
            Objective::CrossEntropy => CrossEntropyLoss::new().loss(output, &target.try_to_dtype(DType::I64)?)?,
            Objective::MeanSquaredError => MSELoss::new().loss(output, target)?,
        };
        self.optimizer.zero_grad();
        loss.try_backward(&BackwardOptions::default())?;
        self.optimizer.step()?;
        Ok(loss.try_detach()?.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?[0])
    }
}
