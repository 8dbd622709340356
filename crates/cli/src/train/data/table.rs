//! Tables (`.csv`, and `.parquet` in builds with that feature): columns of numbers as the program's inputs and labels.

use super::{DataOptions, list, named};
use crate::refusal::Done;
use crate::train::subject::InputSpec;
use firebrand::data::{CsvOptions, read_csv};
use firebrand::io::npz::Tensors;
use firebrand::io::plain;
use firebrand::ops;
use firebrand::prelude::*;
use std::path::Path;

/// The columns of a table as arrays: `x` or `x.0`, `x.1`, … for an input `x`; for a program with one input, all columns that
/// are not the label.
pub(super) fn read(
    path: &Path,
    ending: &str,
    options: &DataOptions,
    inputs: &[InputSpec],
    labels: bool,
) -> Done<Tensors> {
    let (names, table) = match ending {
        #[cfg(feature = "parquet")]
        "parquet" => firebrand::data::read_parquet(path)?,
        #[cfg(not(feature = "parquet"))]
        "parquet" => return Err(named(path, "this build reads no .parquet files; build it with --features parquet")),
        _ => read_csv(path, &CsvOptions::default())?,
    };
    let mut arrays = Tensors::new();
    let column = |k: usize| table.try_narrow(1, k, 1)?.try_squeeze_dim(1);
    let position = |name: &str| names.iter().position(|n| n == name);
    let target = position(&options.target);
    if names.is_empty() {
        return Err(named(path, "the file is empty; expected a header line with the names of the columns"));
    }
    if labels && target.is_none() {
        let found: Vec<&str> = names.iter().map(String::as_str).collect();
        let message =
            format!("no column `{}`; choose the label column with --target: {}", plain(&options.target), list(&found));
        return Err(named(path, message));
    }
    if let Some(k) = target {
        let values: Tensor = column(k)?;
        let whole = values.try_to_vec::<f64>()?.iter().all(|v| v.fract() == 0.0 && v.abs() < 9e15);
        // Integers are class indices; regression losses convert them back.
        arrays.insert(options.target.clone(), if whole { values.try_to_dtype(DType::I64)? } else { values });
    }
    for input in inputs {
        let prefix = format!("{}.", input.name);
        let own: Vec<usize> = match position(&input.name) {
            Some(k) => vec![k],
            None => (0..names.len()).filter(|k| names[*k].starts_with(&prefix)).collect(),
        };
        let scalar = input.sizes.len() == 1;
        let own = match (own.is_empty(), inputs.len()) {
            (true, 1) => (0..names.len()).filter(|k| Some(*k) != target).collect(),
            _ => own,
        };
        let parts = own.iter().map(|&k| column(k)).collect::<Result<Vec<Tensor>>>()?;
        if parts.is_empty() {
            continue;
        }
        let t = if scalar && parts.len() == 1 { parts[0].clone() } else { ops::stack(&parts, 1)? };
        arrays.insert(input.name.clone(), t.try_to_dtype(input.dtype)?);
    }
    Ok(arrays)
}
