//! Pointwise computation: one executor for eager ops, fused formulas and compiled programs.
//!
//! A pointwise op *is* a program of one instruction. A program runs over tiles that stay in L1; an instruction is one
//! vectorised loop over a tile, compiled for every instruction set from one source. Registers are f32 (also for f16 and
//! bf16), f64, i64 (also for narrower integers, wrapped after each instruction) or bool; loads and stores convert.
//!
//! Guarantees: an element's value depends neither on its position nor on tile, thread count, strides or contiguity.
//! AVX2 and AVX-512 agree bit for bit; portable code may differ in the last bits of transcendental functions.
//! An output may be exactly one of the inputs (same pointer, same strides).
//! It does not know broadcasting rules or promotion: the caller expanded all views to the same sizes (with stride 0) and
//! says which dtype to compute in.

mod complex;
mod convert;
mod eager;
mod exec;
mod few;
mod fold;
mod loops;
mod op;
mod pair;
mod program;
pub(crate) mod record;
mod row;
mod value;

pub use eager::{binary, binary_flat, ternary, unary};
pub use fold::{Fold, Sink, Terms};
pub use op::Op;
pub use program::{Builder, Program, Val};
pub use record::{Action, Source, Step, Tape, record};
pub use row::RowOp;
pub use value::{Operand, Value};

#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod tests;
