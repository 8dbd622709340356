//! train_mode and eval_mode: flip the training flags of dropout, batch norm and recurrent layers in an exported program.

use super::{Context, Report};
use crate::call::with_mode;
use crate::error::Result;
use crate::program::ExportedProgram;
use crate::text::{Form, print_module};
use std::sync::Arc;

/// The program in training mode.
pub fn train_mode(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    switch(program, true)
}

/// The program in evaluation mode.
pub fn eval_mode(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    switch(program, false)
}

fn switch(program: &ExportedProgram, training: bool) -> Result<(ExportedProgram, Report)> {
    let module = with_mode(&program.module, training);
    let changed = print_module(&module, Form::Short) != print_module(&program.module, Form::Short);
    if !changed {
        return Ok((program.clone(), Report::default()));
    }
    Ok((ExportedProgram { module: Arc::new(module), ..program.clone() }, Report::of(1)))
}
