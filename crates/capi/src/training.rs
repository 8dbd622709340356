//! Losses, gradients and the training loop across the boundary.

use crate::boundary::{Answer, ErrorKind, Refusal, array, borrow, borrow_mut, object, put, status};
use crate::optimizer::COptimizer;
use crate::program::Program;
use firebrand::data::{DataLoader, Dataset, LoaderOptions};
use firebrand::optim::{Optimizer, clip_grad_norm};
use firebrand::prelude::{BackwardOptions, Module, enable_grad};
use firebrand::{DType, Tensor, ops};
use std::ffi::c_void;

/// A loss of a result against labels, averaged; `kind` as in `fb_loss_kind`.
///
/// # Safety
/// `output` and `target` are null or tensors of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_loss(kind: i32, output: *const Tensor, target: *const Tensor) -> *mut Tensor {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (output, target) = unsafe { (borrow(output, "output")?, borrow(target, "target")?) };
        loss_of(kind, output, target)
    })
}

fn loss_of(kind: i32, output: &Tensor, target: &Tensor) -> Answer<Tensor> {
    const MEAN: i64 = 1;
    Ok(match kind {
        0 => ops::mse_loss(output, &target.try_to_dtype(output.dtype())?, MEAN)?,
        1 => {
            let classes = output.shape().last().copied().unwrap_or(1) as i64;
            let rows = output.try_reshape([-1, classes])?;
            let labels = target.try_reshape([-1])?.try_to_dtype(DType::I64)?;
            ops::cross_entropy_loss(&rows, &labels, None, MEAN, (-100).into(), 0.0)?
        }
        _ => return Err(Refusal::because(format!("unknown loss kind {kind}; see fb_loss_kind"))),
    })
}

/// Computes the gradients of a loss of one element and accumulates them.
///
/// # Safety
/// `loss` is null or a tensor of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_backward(loss: *const Tensor) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let loss = unsafe { borrow(loss, "loss") }?;
        Ok(loss.try_backward(&BackwardOptions::default())?)
    })
}

/// Scales the gradients of a program down so that their norm is at most `max_norm`; `norm`, unless null, receives what it was.
///
/// # Safety
/// `program` is null or a program of this library; `norm` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_clip_grad_norm(program: *const Program, max_norm: f64, norm: *mut f64) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let program = unsafe { borrow(program, "program") }?;
        let found = clip(program, max_norm)?;
        // SAFETY: it is null or memory for a number, says the caller.
        unsafe { put(norm, found, "norm") }
    })
}

fn clip(program: &Program, max_norm: f64) -> Answer<f64> {
    if max_norm.is_nan() || max_norm <= 0.0 {
        return Err(Refusal::because(format!("expected a positive norm, found {max_norm}")));
    }
    Ok(clip_grad_norm(program.module.parameters(), max_norm, 2.0)?)
}

/// How [`fb_fit`] goes through the samples; `fb_fit_options` in the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FitOptions {
    size: usize,
    epochs: usize,
    batch_size: usize,
    shuffle: i32,
    max_grad_norm: f64,
}

/// What a callback is told after a step; `fb_progress` in the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Progress {
    epoch: usize,
    epochs: usize,
    step: usize,
    steps: usize,
    loss: f64,
}

/// Called after every step; anything but 0 stops the training.
pub type ProgressCallback = Option<unsafe extern "C" fn(*const Progress, *mut c_void) -> i32>;

/// Fills in the defaults: one pass, batches of 32, shuffled, gradients as they are.
///
/// # Safety
/// `options` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_fit_options_init(options: *mut FitOptions) -> i32 {
    status(|| {
        if options.is_null() {
            return Err(Refusal::because("options is null"));
        }
        let defaults =
            FitOptions { size: size_of::<FitOptions>(), epochs: 1, batch_size: 32, shuffle: 1, max_grad_norm: 0.0 };
        // SAFETY: it is memory for the options, says the caller.
        unsafe { put(options, defaults, "options") }
    })
}

/// Row `i` of each tensor is sample `i`.
struct Rows(Vec<Tensor>);

impl Dataset for Rows {
    type Sample = Vec<Tensor>;
    fn len(&self) -> usize {
        self.0.first().and_then(|t| t.shape().first().copied()).unwrap_or(0)
    }
    fn get(&self, index: usize) -> firebrand::Result<Vec<Tensor>> {
        self.0.iter().map(|t| ops::select(t, 0, index.into())).collect()
    }
    fn batch(&self, indices: &[usize]) -> firebrand::Result<Vec<Tensor>> {
        let rows = Tensor::new(&indices.iter().map(|&i| i as i64).collect::<Vec<i64>>());
        self.0.iter().map(|t| ops::index_select(t, 0, &rows)).collect()
    }
}

/// Trains a program on samples, the rows of `inputs` and `target`, and reports every step to `callback`. The loss is that of
/// the program's first result.
///
/// # Safety
/// `program`, `optimizer`, every input and `target` are null or of this library; `inputs` holds `count` pointers;
/// `options` is null or holds what its `size` says; `callback` is null or may be called with `user` from this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_fit(
    program: *mut Program,
    optimizer: *mut COptimizer,
    loss: i32,
    inputs: *const *const Tensor,
    count: usize,
    target: *const Tensor,
    options: *const FitOptions,
    callback: ProgressCallback,
    user: *mut c_void,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let (program, optimizer) = unsafe { (borrow(program, "program")?, borrow_mut(optimizer, "optimizer")?) };
        // SAFETY: `inputs` holds `count` pointers, `target` and `options` are null or what they should be, says the caller.
        let (inputs, target, options) =
            unsafe { (array(inputs, count, "inputs")?, borrow(target, "target")?, borrow(options, "options")?) };
        if options.size != size_of::<FitOptions>() {
            return Err(Refusal::because("options were not set by fb_fit_options_init of this version"));
        }
        // SAFETY: each of them is null or a tensor of this library, says the caller.
        let tensors = inputs.iter().map(|&t| unsafe { borrow(t, "an input") }.cloned());
        let mut rows = tensors.collect::<Answer<Vec<Tensor>>>()?;
        rows.push(target.clone());
        let tell = |progress: Progress| match callback {
            // SAFETY: it may be called with its own `user`, says the caller, and the progress lives during the call.
            Some(callback) => unsafe { callback(&progress, user) == 0 },
            None => true,
        };
        enable_grad(|| fit(program, &mut *optimizer.0, loss, rows, options, tell))
    })
}

fn fit(
    program: &Program,
    optimizer: &mut dyn Optimizer,
    loss: i32,
    rows: Vec<Tensor>,
    options: &FitOptions,
    tell: impl Fn(Progress) -> bool,
) -> Answer<()> {
    let rows = Rows(rows);
    let n = rows.len();
    if n == 0 || options.batch_size == 0 || rows.0.iter().any(|t| t.shape().first() != Some(&n)) {
        let shapes: Vec<&[usize]> = rows.0.iter().map(Tensor::shape).collect();
        let expected =
            "expected inputs and target with equally many rows, at least one, and a batch size of at least 1";
        return Err(Refusal::because(format!("{expected}; found shapes {shapes:?} and {}", options.batch_size)));
    }
    let loader = DataLoader::new(
        rows,
        LoaderOptions { shuffle: options.shuffle != 0, ..LoaderOptions::new(options.batch_size) },
    );
    program.module.train();
    let steps = loader.len() * options.epochs;
    let mut step = 0;
    for epoch in 1..=options.epochs {
        for batch in &loader {
            let mut batch = batch?;
            let target = batch.pop().expect("the target is the last");
            let results = program.results(&batch)?;
            let result = results.first().ok_or_else(|| Refusal::because("the program returns no tensor"))?;
            let value = loss_of(loss, result, &target)?;
            optimizer.zero_grad();
            value.try_backward(&BackwardOptions::default())?;
            if options.max_grad_norm > 0.0 {
                clip(program, options.max_grad_norm)?;
            }
            optimizer.step()?;
            step += 1;
            let loss = value.try_detach()?.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?[0];
            if !tell(Progress { epoch, epochs: options.epochs, step, steps, loss }) {
                return Err(Refusal::of(ErrorKind::Stopped, format!("stopped by the callback after step {step}")));
            }
        }
    }
    Ok(())
}
