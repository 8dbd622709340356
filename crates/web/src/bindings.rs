//! The JavaScript interface. Errors become `Error` objects with the library's message; a panic is the library's fault, and its
//! message is kept for [`last_panic`], because the instance cannot go on after it.
#![allow(missing_debug_implementations, unreachable_pub)] // JavaScript's objects
#![allow(unsafe_code)] // made by wasm-bindgen; nothing here is unsafe
// wasm-bindgen takes JavaScript's lists by value.
#![allow(clippy::needless_pass_by_value)]

use firebrand::{DType, Tensor};
use std::sync::{Mutex, Once};
use wasm_bindgen::prelude::*;

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Called when the module is loaded.
#[wasm_bindgen(start)]
pub fn start() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            if let Ok(mut last) = LAST_PANIC.lock() {
                *last = info.to_string();
            }
        }));
    });
}

/// The message of a panic; empty if there was none.
#[wasm_bindgen(js_name = lastPanic)]
pub fn last_panic() -> String {
    LAST_PANIC.lock().map(|last| last.clone()).unwrap_or_default()
}

/// The release of the library.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}

/// Seeds the random numbers: dropout, the order of samples.
#[wasm_bindgen(js_name = manualSeed)]
pub fn manual_seed(seed: u32) {
    firebrand::random::manual_seed(u64::from(seed));
}

/// The graph of a `.pt2` file as a page that loads nothing.
#[wasm_bindgen(js_name = programHtml)]
pub fn program_html(bytes: &[u8], title: &str) -> Result<String, JsError> {
    Ok(crate::Model::html_of(bytes, title)?)
}

/// Numbers in the shape of a tensor.
#[wasm_bindgen(js_name = Tensor)]
pub struct JsTensor(Tensor);

#[wasm_bindgen(js_class = Tensor)]
impl JsTensor {
    /// A copy of these elements as f32, row by row.
    #[wasm_bindgen(js_name = fromFloat32)]
    pub fn from_f32(data: &[f32], sizes: &[u32]) -> Result<JsTensor, JsError> {
        Ok(JsTensor(Tensor::try_from_vec(data.to_vec(), dims(sizes))?))
    }

    /// A copy of these elements as i64, row by row: class indices, tokens.
    #[wasm_bindgen(js_name = fromInt32)]
    pub fn from_i32(data: &[i32], sizes: &[u32]) -> Result<JsTensor, JsError> {
        Ok(JsTensor(Tensor::try_from_vec(data.iter().map(|&v| i64::from(v)).collect(), dims(sizes))?))
    }

    /// The sizes.
    #[wasm_bindgen(getter)]
    pub fn sizes(&self) -> Vec<u32> {
        self.0.shape().iter().map(|&n| n as u32).collect()
    }

    /// The elements as a `Float32Array`, row by row.
    #[wasm_bindgen(js_name = toFloat32)]
    pub fn to_f32(&self) -> Result<Vec<f32>, JsError> {
        Ok(self.0.try_to_dtype(DType::F32)?.try_to_vec::<f32>()?)
    }
}

fn dims(sizes: &[u32]) -> Vec<usize> {
    sizes.iter().map(|&n| n as usize).collect()
}

/// An exported program with its own state.
#[wasm_bindgen(js_name = Program)]
pub struct JsProgram {
    model: crate::Model,
    inputs: Vec<(String, Tensor)>,
}

impl JsProgram {
    fn inputs(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.inputs.iter().map(|(name, t)| (name.as_str(), t))
    }
}

#[wasm_bindgen(js_class = Program)]
impl JsProgram {
    /// From the content of a `.pt2` file.
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: &[u8]) -> Result<JsProgram, JsError> {
        Ok(JsProgram { model: crate::Model::load(bytes)?, inputs: Vec::new() })
    }

    /// Names of the input tensors.
    #[wasm_bindgen(getter, js_name = inputNames)]
    pub fn input_names(&self) -> Result<Vec<String>, JsError> {
        Ok(self.model.input_names()?)
    }

    /// The sizes of an input, -1 where any size is accepted; undefined if there is no such input.
    #[wasm_bindgen(js_name = inputSizes)]
    pub fn input_sizes(&self, name: &str) -> Result<Option<Vec<f64>>, JsError> {
        Ok(self.model.input_sizes(name)?.map(|sizes| sizes.into_iter().map(|n| n as f64).collect()))
    }

    /// Names of the outputs.
    #[wasm_bindgen(getter, js_name = outputNames)]
    pub fn output_names(&self) -> Vec<String> {
        self.model.output_names()
    }

    /// The number of trained values.
    #[wasm_bindgen(getter, js_name = parameterCount)]
    pub fn parameter_count(&self) -> f64 {
        self.model.parameter_count() as f64
    }

    /// Sets an input for the runs and steps that follow. The tensor stays the caller's.
    #[wasm_bindgen(js_name = setInput)]
    pub fn set_input(&mut self, name: &str, tensor: &JsTensor) {
        self.inputs.retain(|(known, _)| known != name);
        self.inputs.push((name.to_string(), tensor.0.clone()));
    }

    /// Training mode, or evaluation mode.
    pub fn train(&self, on: bool) {
        self.model.train(on);
    }

    /// The results on the inputs that were set, in the order of the output names.
    pub fn run(&self) -> Result<Vec<JsTensor>, JsError> {
        let results = firebrand::prelude::no_grad(|| self.model.run(self.inputs()))?;
        Ok(results.into_iter().map(JsTensor).collect())
    }

    /// The content of a `.pt2` file with the current state; PyTorch can load it.
    pub fn save(&self) -> Result<Vec<u8>, JsError> {
        Ok(self.model.save()?)
    }

    /// Its graph as a page that loads nothing.
    pub fn html(&self, title: &str) -> String {
        self.model.html(title)
    }
}

/// An optimizer and a loss for a program.
#[wasm_bindgen(js_name = Trainer)]
pub struct JsTrainer(crate::Trainer);

#[wasm_bindgen(js_class = Trainer)]
impl JsTrainer {
    /// Losses: `cross_entropy`, `mse`. Optimizers: `sgd`, `adam`, `adamw`.
    #[wasm_bindgen(constructor)]
    pub fn new(program: &JsProgram, loss: &str, optimizer: &str, lr: f64) -> Result<JsTrainer, JsError> {
        Ok(JsTrainer(crate::Trainer::new(&program.model, loss, optimizer, lr)?))
    }

    /// One step of the program on the inputs that were set; returns the loss before it.
    pub fn step(&mut self, program: &JsProgram, target: &JsTensor) -> Result<f64, JsError> {
        Ok(self.0.step(&program.model, program.inputs(), &target.0)?)
    }

    /// The learning rate from the next step on.
    #[wasm_bindgen(js_name = setLr)]
    pub fn set_lr(&mut self, lr: f64) -> Result<(), JsError> {
        Ok(self.0.set_lr(lr)?)
    }
}

/// A program that learns the bundled digits.
#[wasm_bindgen(js_name = DigitsTask)]
pub struct JsDigitsTask(crate::DigitsTask);

#[wasm_bindgen(js_class = DigitsTask)]
impl JsDigitsTask {
    /// From the content of a `.pt2` file that maps 64 pixels to 10 scores.
    #[wasm_bindgen(constructor)]
    pub fn new(program: &[u8], seed: u32, batch_size: u32, lr: f64) -> Result<JsDigitsTask, JsError> {
        Ok(JsDigitsTask(crate::DigitsTask::new(program, u64::from(seed), batch_size as usize, lr)?))
    }

    /// One step on the next batch; returns its loss.
    pub fn step(&mut self) -> Result<f64, JsError> {
        Ok(self.0.step()?)
    }

    /// The learning rate from the next step on.
    #[wasm_bindgen(js_name = setLr)]
    pub fn set_lr(&mut self, lr: f64) -> Result<(), JsError> {
        Ok(self.0.set_lr(lr)?)
    }

    /// The number of steps so far.
    #[wasm_bindgen(getter)]
    pub fn steps(&self) -> u32 {
        self.0.steps() as u32
    }

    /// The number of steps of one pass over the training samples.
    #[wasm_bindgen(getter, js_name = stepsPerEpoch)]
    pub fn steps_per_epoch(&self) -> u32 {
        self.0.steps_per_epoch() as u32
    }

    /// The part of the test samples that it recognizes.
    pub fn accuracy(&self) -> Result<f64, JsError> {
        Ok(self.0.accuracy()?)
    }

    /// The probability of each digit for 64 pixels from 0 to 1.
    pub fn predict(&self, pixels: &[f32]) -> Result<Vec<f32>, JsError> {
        Ok(self.0.predict(pixels)?)
    }

    /// The number of test samples.
    #[wasm_bindgen(getter, js_name = testCount)]
    pub fn test_count(&self) -> u32 {
        self.0.test_count() as u32
    }

    /// The pixels of a test sample.
    #[wasm_bindgen(js_name = testPixels)]
    pub fn test_pixels(&self, index: u32) -> Result<Vec<f32>, JsError> {
        Ok(self.0.test_sample(index as usize)?.0)
    }

    /// The digit of a test sample.
    #[wasm_bindgen(js_name = testLabel)]
    pub fn test_label(&self, index: u32) -> Result<u32, JsError> {
        Ok(self.0.test_sample(index as usize)?.1 as u32)
    }

    /// The content of a `.pt2` file with what it has learned.
    pub fn save(&self) -> Result<Vec<u8>, JsError> {
        Ok(self.0.model().save()?)
    }

    /// Its graph as a page that loads nothing.
    pub fn html(&self, title: &str) -> String {
        self.0.model().html(title)
    }
}
