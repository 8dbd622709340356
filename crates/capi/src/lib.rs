//! The C interface: load, run, differentiate, train and save exported programs. `include/firebrand.h` is its manual.
//!
//! Every function of the header is one function here. What crosses the boundary is checked in `boundary`, the only place
//! besides the exported functions that is unsafe; no panic crosses the boundary, and every failure leaves a message that
//! `fb_last_error` returns. Nothing is computed here: it uses only the façade.
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
