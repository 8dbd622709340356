//! Optimizers across the boundary.

use crate::boundary::{Refusal, borrow, borrow_mut, free, object, status};
use crate::program::Program;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand::prelude::{Module, Tensor};

/// An optimizer over the parameters of a program. It holds the parameters, not the program.
pub struct COptimizer(Box<dyn Optimizer>);

firebrand::opaque_debug! { [] COptimizer => "COptimizer"; }

/// An optimizer over the parameters that require grad; `kind` as in `fb_optimizer_kind`.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_optimizer_new(program: *const Program, kind: i32, lr: f64) -> *mut COptimizer {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let module = &unsafe { borrow(program, "program") }?.module;
        let all = module.parameters();
        let wanted: Vec<Tensor> = all.iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
        Ok(COptimizer(match kind {
            0 => Box::new(SGD::new(&wanted, SGDOptions { lr, ..Default::default() })?),
            1 => Box::new(Adam::new(&wanted, AdamOptions { lr, ..Default::default() })?),
            2 => Box::new(AdamW::new(&wanted, AdamWOptions { lr, ..Default::default() })?),
            _ => return Err(Refusal::because(format!("unknown optimizer kind {kind}; see fb_optimizer_kind"))),
        }))
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
