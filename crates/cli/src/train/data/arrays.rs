//! Arrays with samples along their first dimension, one for each input of the program. What a file holds uncompressed stays there, and
//! only the rows of a batch are read.

use super::{Batch, DataOptions, Fnv, Hashed, Samples, Source, list, named};
use crate::refusal::Done;
use crate::train::config::nearest;
use crate::train::subject::InputSpec;
use firebrand::io::{Rows, plain};
use firebrand::prelude::*;
use indexmap::IndexMap;
use std::path::Path;

/// The arrays of a file, by name.
pub(super) type Columns = IndexMap<String, Rows>;

/// How many rows are looked at together where all of them are.
const BLOCK: usize = 1024;

/// Rows of arrays.
pub(super) struct Arrays {
    inputs: Vec<Column>,
    target: Option<Column>,
}

/// An array, and the dtype in which the program takes it.
struct Column {
    rows: Rows,
    dtype: DType,
}

impl Column {
    fn new(rows: Rows) -> Column {
        Column { dtype: rows.dtype(), rows }
    }

    fn select(&self, rows: &[usize]) -> Result<Tensor> {
        let t = self.rows.select(rows).map_err(Error::user)?;
        if t.dtype() == self.dtype { Ok(t) } else { t.try_to_dtype(self.dtype) }
    }

    /// All rows, a block at a time.
    fn blocks(&self) -> impl Iterator<Item = Result<Tensor>> + '_ {
        let n = self.rows.len();
        (0..n).step_by(BLOCK).map(move |first| self.select(&(first..n.min(first + BLOCK)).collect::<Vec<_>>()))
    }
}

impl Arrays {
    /// Tensors in memory.
    pub(super) fn new(inputs: Vec<Tensor>, target: Option<Tensor>) -> Arrays {
        let column = |t: Tensor| Column::new(Rows::new(t));
        Arrays { inputs: inputs.into_iter().map(column).collect(), target: target.map(column) }
    }

    /// The arrays of a file as the program takes them.
    pub(super) fn fitted(
        path: &Path,
        mut arrays: Columns,
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
                if found.is_empty() { "nothing".to_string() } else { list(&found) }
            );
            return Err(named(path, message));
        }
        let mut notes = Vec::new();
        let mut columns = Vec::new();
        for input in inputs {
            let Some(rows) = arrays.shift_remove(&input.name) else {
                let near =
                    nearest(&input.name, &found).map_or(String::new(), |n| format!("; did you mean `{}`?", plain(n)));
                let message = format!(
                    "no array `{}` for the program's input of that name; the file holds {}{near}",
                    plain(&input.name),
                    list(&found)
                );
                return Err(named(path, message));
            };
            let dtype = input.fit(rows.shape(), rows.dtype(), &mut notes).map_err(|e| named(path, e))?;
            columns.push(Column { rows, dtype });
        }
        if let Some(extra) = arrays.keys().next() {
            let names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
            let message = format!("the program has no input `{}`; it has {}", plain(extra), list(&names));
            return Err(named(path, message));
        }
        let target = target.map(Column::new);
        let samples = columns.first().or(target.as_ref()).map_or(0, |c| c.rows.len());
        let all = inputs
            .iter()
            .map(|i| i.name.as_str())
            .zip(&columns)
            .chain(target.as_ref().map(|t| (options.target.as_str(), t)));
        for (name, Column { rows, .. }) in all {
            if rows.len() != samples {
                let first = inputs.first().map_or("", |i| i.name.as_str());
                let message = format!("`{}` has {} samples, `{}` has {samples}", plain(name), rows.len(), plain(first));
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
        self.inputs.first().map_or(0, |c| c.rows.len())
    }

    fn batch(&self, rows: &[usize]) -> Result<Batch> {
        Ok(Batch {
            inputs: self.inputs.iter().map(|c| c.select(rows)).collect::<Result<_>>()?,
            target: self.target.as_ref().map(|c| c.select(rows)).transpose()?,
            index: rows.to_vec(),
        })
    }

    fn labels(&self, rows: &[usize]) -> Done<Option<Tensor>> {
        Ok(self.target.as_ref().map(|c| c.select(rows)).transpose()?)
    }

    fn name(&self, row: usize) -> String {
        format!("sample {row}")
    }

    fn fingerprint(&self, hash: &mut Fnv) -> Done {
        for block in self.inputs.iter().chain(&self.target).flat_map(Column::blocks) {
            firebrand::io::npy::write(&mut Hashed(hash), &block?)?;
        }
        Ok(())
    }

    fn first_not_finite(&self, rows: &[usize]) -> Done<Option<(usize, f64)>> {
        for column in self.inputs.iter().filter(|c| c.dtype.is_floating_point()) {
            for block in rows.chunks(BLOCK) {
                let values = column.select(block)?.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
                let width = (values.len() / block.len()).max(1);
                if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                    return Ok(Some((block[at / width], values[at])));
                }
            }
        }
        Ok(None)
    }
}
