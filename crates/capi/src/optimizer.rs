//! Optimizers across the boundary.

use crate::boundary::{Answer, Refusal, borrow, borrow_mut, free, guard, object, put, status};
use crate::program::Program;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand::prelude::{Module, Tensor};

/// An optimizer over the parameters of a program. It holds the parameters, not the program.
pub struct COptimizer(pub(crate) Box<dyn Optimizer>);

firebrand::opaque_debug! { [] COptimizer => "COptimizer"; }

/// `fb_optimizer_options` in the header. An optimizer reads the fields that it has in PyTorch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct COptimizerOptions {
    size: usize,
    lr: f64,
    weight_decay: f64,
    momentum: f64,
    dampening: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    nesterov: i32,
    amsgrad: i32,
    maximize: i32,
}

fn defaults(kind: i32) -> Answer<COptimizerOptions> {
    let (sgd, adam, adamw) = (SGDOptions::default(), AdamOptions::default(), AdamWOptions::default());
    let (lr, weight_decay) = match kind {
        0 => (sgd.lr, sgd.weight_decay),
        1 => (adam.lr, adam.weight_decay),
        2 => (adamw.lr, adamw.weight_decay),
        _ => return Err(Refusal::because(format!("unknown optimizer kind {kind}; see fb_optimizer_kind"))),
    };
    Ok(COptimizerOptions {
        size: size_of::<COptimizerOptions>(),
        lr,
        weight_decay,
        momentum: sgd.momentum,
        dampening: sgd.dampening,
        beta1: adam.betas.0,
        beta2: adam.betas.1,
        eps: adam.eps,
        nesterov: 0,
        amsgrad: 0,
        maximize: 0,
    })
}

fn build(program: &Program, kind: i32, o: &COptimizerOptions) -> Answer<COptimizer> {
    let all = program.module.parameters();
    let wanted: Vec<Tensor> = all.iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
    let COptimizerOptions { lr, weight_decay, momentum, dampening, eps, .. } = *o;
    let (betas, amsgrad, maximize) = ((o.beta1, o.beta2), o.amsgrad != 0, o.maximize != 0);
    let nesterov = o.nesterov != 0;
    Ok(COptimizer(match kind {
        0 => {
            let options =
                SGDOptions { lr, weight_decay, momentum, dampening, nesterov, maximize, ..Default::default() };
            Box::new(SGD::new(&wanted, options)?)
        }
        1 => {
            let options = AdamOptions { lr, weight_decay, betas, eps, amsgrad, maximize, ..Default::default() };
            Box::new(Adam::new(&wanted, options)?)
        }
        2 => {
            let options = AdamWOptions { lr, weight_decay, betas, eps, amsgrad, maximize, ..Default::default() };
            Box::new(AdamW::new(&wanted, options)?)
        }
        _ => return Err(Refusal::because(format!("unknown optimizer kind {kind}; see fb_optimizer_kind"))),
    }))
}

/// Fills in PyTorch's defaults of an optimizer.
///
/// # Safety
/// `options` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_options_init(options: *mut COptimizerOptions, kind: i32) -> i32 {
    status(|| {
        if options.is_null() {
            return Err(Refusal::because("options is null"));
        }
        // SAFETY: it is memory for the options, says the caller.
        unsafe { put(options, defaults(kind)?, "options") }
    })
}

/// An optimizer over the parameters that require grad; `kind` as in `fb_optimizer_kind`.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_new(program: *const Program, kind: i32, lr: f64) -> *mut COptimizer {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let program = unsafe { borrow(program, "program") }?;
        build(program, kind, &COptimizerOptions { lr, ..defaults(kind)? })
    })
}

/// Like [`fb_optimizer_new`], with all options.
///
/// # Safety
/// `program` is null or a program of this library; `options` is null or holds what its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_new_with(
    program: *const Program,
    kind: i32,
    options: *const COptimizerOptions,
) -> *mut COptimizer {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (program, options) = unsafe { (borrow(program, "program")?, borrow(options, "options")?) };
        if options.size != size_of::<COptimizerOptions>() {
            return Err(Refusal::because("options were not set by fb_optimizer_options_init of this version"));
        }
        build(program, kind, options)
    })
}

/// The learning rate; NaN if `optimizer` is no optimizer.
///
/// # Safety
/// `optimizer` is null or an optimizer of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_lr(optimizer: *const COptimizer) -> f64 {
    // SAFETY: the caller's promise is the same.
    guard(|| Ok(unsafe { borrow(optimizer, "optimizer") }?.0.lr(0))).unwrap_or(f64::NAN)
}

/// Sets the learning rate, from the next step on.
///
/// # Safety
/// `optimizer` is null or an optimizer of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_set_lr(optimizer: *mut COptimizer, lr: f64) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let optimizer = unsafe { borrow_mut(optimizer, "optimizer") }?;
        if lr.is_nan() || lr < 0.0 {
            return Err(Refusal::because(format!("expected a learning rate of at least 0, found {lr}")));
        }
        (0..optimizer.0.groups()).for_each(|group| optimizer.0.set_lr(group, lr));
        Ok(())
    })
}

/// Frees an optimizer; null is ignored.
///
/// # Safety
/// `optimizer` is null, or came from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_free(optimizer: *mut COptimizer) {
    // SAFETY: the caller's promise is the same.
    unsafe { free(optimizer) }
}

/// Takes one step with the current gradients.
///
/// # Safety
/// `optimizer` is null or an optimizer of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_step(optimizer: *mut COptimizer) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        Ok(unsafe { borrow_mut(optimizer, "optimizer") }?.0.step()?)
    })
}

/// Clears all gradients.
///
/// # Safety
/// `optimizer` is null or an optimizer of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_zero_grad(optimizer: *mut COptimizer) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        unsafe { borrow_mut(optimizer, "optimizer") }?.0.zero_grad();
        Ok(())
    })
}
