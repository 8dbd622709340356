//! Arrays with samples along their first dimension, one for each input of the program.

use super::{Batch, DataOptions, Fnv, Hashed, Samples, Source, list, named};
use crate::refusal::Done;
use crate::train::config::nearest;
use crate::train::subject::InputSpec;
use firebrand::io::npz::Tensors;
use firebrand::io::plain;
use firebrand::ops;
use firebrand::prelude::*;
use std::path::Path;

/// Rows of tensors.
pub(super) struct Arrays {
    pub(super) inputs: Vec<Tensor>,
    pub(super) target: Option<Tensor>,
}

fn rows(t: &Tensor) -> usize {
    t.shape().first().copied().unwrap_or(0)
}

fn index(rows: &[usize]) -> Tensor {
    Tensor::new(&rows.iter().map(|&i| i as i64).collect::<Vec<i64>>())
}

impl Arrays {
    /// The arrays of a file as the program takes them.
    pub(super) fn fitted(
        path: &Path,
        mut arrays: Tensors,
        options: &DataOptions,
        inputs: &[InputSpec],
        labels: bool,
    ) -> Done<Samples> {
        let found: Vec<String> = arrays.keys().cloned().collect();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let target = arrays.shift_remove(&options.target);
        if target.is_none() && labels {
            let message = format!(
                "no labels: this loss needs an array `{}` (or name another one with --target); the file holds {}",
                plain(&options.target),
                list(&found)
            );
            return Err(named(path, message));
        }
        let mut notes = Vec::new();
        let mut columns = Vec::new();
        for input in inputs {
            let Some(t) = arrays.shift_remove(&input.name) else {
                let near =
                    nearest(&input.name, &found).map_or(String::new(), |n| format!("; did you mean `{}`?", plain(n)));
                let message = format!(
                    "no array `{}` for the program's input of that name; the file holds {}{near}",
                    plain(&input.name),
                    list(&found)
                );
                return Err(named(path, message));
            };
            columns.push(input.fit(&t, &mut notes).map_err(|e| named(path, e))?);
        }
        if let Some(extra) = arrays.keys().next() {
            let names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
            let message = format!("the program has no input `{}`; it has {}", plain(extra), list(&names));
            return Err(named(path, message));
        }
        let samples = columns.first().or(target.as_ref()).map_or(0, rows);
        let all = inputs
            .iter()
            .map(|i| i.name.as_str())
            .zip(&columns)
            .chain(target.as_ref().map(|t| (options.target.as_str(), t)));
        for (name, t) in all {
            if rows(t) != samples {
                let first = inputs.first().map_or("", |i| i.name.as_str());
                let message = format!("`{}` has {} samples, `{}` has {samples}", plain(name), rows(t), plain(first));
                return Err(named(path, message));
            }
        }
        if samples == 0 {
            return Err(named(path, "no samples"));
        }
        Ok(Samples::new(Arrays { inputs: columns, target }, None, notes))
    }
}

impl Source for Arrays {
    fn len(&self) -> usize {
        self.inputs.first().map_or(0, rows)
    }

    fn batch(&self, rows: &[usize]) -> Result<Batch> {
        let at = index(rows);
        let select = |t: &Tensor| ops::index_select(t, 0, &at);
        Ok(Batch {
            inputs: self.inputs.iter().map(select).collect::<Result<_>>()?,
            target: self.target.as_ref().map(select).transpose()?,
            index: rows.to_vec(),
        })
    }

    fn labels(&self, rows: &[usize]) -> Done<Option<Tensor>> {
        Ok(self.target.as_ref().map(|t| ops::index_select(t, 0, &index(rows))).transpose()?)
    }

    fn name(&self, row: usize) -> String {
        format!("sample {row}")
    }

    fn fingerprint(&self, hash: &mut Fnv) -> Done {
        for t in self.inputs.iter().chain(&self.target) {
            firebrand::io::npy::write(&mut Hashed(hash), t)?;
        }
        Ok(())
    }

    fn first_not_finite(&self, rows: &[usize]) -> Done<Option<(usize, f64)>> {
        for t in self.inputs.iter().filter(|t| t.is_floating_point()) {
            let values = t.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
            let width = (values.len() / t.shape()[0].max(1)).max(1);
            let bad = |row: usize| values[row * width..][..width].iter().copied().find(|v| !v.is_finite());
            if let Some(found) = rows.iter().find_map(|&row| Some((row, bad(row)?))) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
