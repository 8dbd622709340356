//! Adapters (LoRA) across the boundary: added, read, written, merged. Each makes a new program; the old one stays as it is.

use crate::boundary::{Answer, Refusal, array, borrow, object, put, status, text};
use crate::program::Program;
use firebrand::graph::passes::{AdapterFiles, LoraOptions, load_adapter, lora, merge_lora, save_adapter};
use firebrand::io::Output;
use std::ffi::c_char;

/// `fb_lora_options` in the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CLoraOptions {
    size: usize,
    rank: usize,
    alpha: f64,
    dropout: f64,
    targets: *const *const c_char,
    targets_count: usize,
}

/// Fills in PEFT's defaults: rank 8, alpha 8, no dropout, every linear layer.
///
/// # Safety
/// `options` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_lora_options_init(options: *mut CLoraOptions) -> i32 {
    status(|| {
        if options.is_null() {
            return Err(Refusal::because("options is null"));
        }
        let LoraOptions { rank, alpha, dropout, .. } = LoraOptions::default();
        let size = size_of::<CLoraOptions>();
        let defaults = CLoraOptions { size, rank, alpha, dropout, targets: std::ptr::null(), targets_count: 0 };
        // SAFETY: it is memory for the options, says the caller.
        unsafe { put(options, defaults, "options") }
    })
}

/// A new program: this one with adapters, everything else frozen.
///
/// # Safety
/// `program` is null or a program of this library; `options` is null or holds what its `size` says, with `targets_count`
/// texts that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_lora(program: *const Program, options: *const CLoraOptions) -> *mut Program {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (program, options) = unsafe { (borrow(program, "program")?, borrow(options, "options")?) };
        if options.size != size_of::<CLoraOptions>() {
            return Err(Refusal::because("options were not set by fb_lora_options_init of this version"));
        }
        // SAFETY: there are so many, says the caller.
        let targets = unsafe { array(options.targets, options.targets_count, "targets") }?;
        // SAFETY: each of them is null or text that ends with a zero byte, says the caller.
        let targets = targets.iter().map(|&t| unsafe { text(t, "a target") }.map(str::to_string));
        let targets = targets.collect::<Answer<Vec<String>>>()?;
        let options = LoraOptions {
            rank: options.rank,
            alpha: options.alpha,
            dropout: options.dropout,
            targets: Some(targets).filter(|t| !t.is_empty()),
            ..LoraOptions::default()
        };
        Program::new(&lora(&program.module.program(), &options)?.0)
    })
}

/// A new program: this one with the adapters of a folder, everything else frozen.
///
/// # Safety
/// `program` is null or a program of this library, `folder` null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_load_adapter(program: *const Program, folder: *const c_char) -> *mut Program {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let (program, folder) = unsafe { (borrow(program, "program")?, text(folder, "folder")?) };
        Program::new(&load_adapter(&program.module.program(), folder)?.0)
    })
}

/// Writes the adapters of a program to a folder, which exists: all files or none.
///
/// # Safety
/// `program` is null or a program of this library, `folder` null or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_save_adapter(program: *const Program, folder: *const c_char) -> i32 {
    status(|| {
        // SAFETY: the caller's promise is the same.
        let (program, folder) = unsafe { (borrow(program, "program")?, text(folder, "folder")?) };
        let files = save_adapter(&program.module.program(), folder, &AdapterFiles::default())?;
        Ok(Output::commit_all(files)?)
    })
}

/// A new program: this one with its adapters added to the weights.
///
/// # Safety
/// `program` is null or a program of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_program_merge_lora(program: *const Program) -> *mut Program {
    object(|| {
        // SAFETY: the caller's promise is the same.
        let program = unsafe { borrow(program, "program") }?;
        Program::new(&merge_lora(&program.module.program())?.0)
    })
}
