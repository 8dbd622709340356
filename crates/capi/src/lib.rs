//! The C interface: load, run, differentiate, train and save exported programs. `include/firebrand.h` is its manual.
//!
//! Each function of the header is one function here. `boundary` checks everything that crosses the boundary; only it and the
//! exported functions are unsafe. No panic crosses the boundary, and every failure leaves a message that `fb_last_error`
//! returns. This crate computes nothing: it uses only the façade.
#![allow(unsafe_code)] // a foreign function interface is made of pointers; each block says why it may trust them

pub mod adapters;
pub mod boundary;
pub mod optimizer;
pub mod program;
pub mod settings;
pub mod tensor;
#[cfg(test)]
mod tests;
pub mod training;
