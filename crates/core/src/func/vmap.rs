//! `vmap`: turns a function of one sample into a function of a batch, without a loop.

use super::level::{self, Batch};
use crate::ops::shape::wrap_dim;
use crate::sym::{SymInt, SymInts};
use crate::tree::{Outcome, TensorTree};
use crate::{ErrorKind, Result, Tensor, capture, generator, ops};
use std::sync::{Arc, OnceLock};

/// What random operations do inside `vmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Randomness {
    /// Random operations are an error.
    #[default]
    Error,
    /// Every sample sees the same values.
    Same,
    /// Every sample sees its own values.
    Different,
}

/// The batch dimension of each tensor: one for all of them, or one each.
#[derive(Clone, Debug)]
pub enum BatchDims {
    /// The same for every tensor.
    All(Option<i64>),
    /// One for every tensor, in order; `None`: the tensor is the same for every sample.
    Each(Vec<Option<i64>>),
    /// One for every result, set by the function itself while it runs: for callers that know no sooner how many there are.
    Late(Arc<OnceLock<Vec<Option<i64>>>>),
}

impl From<i64> for BatchDims {
    fn from(d: i64) -> BatchDims {
        BatchDims::All(Some(d))
    }
}
impl From<Vec<Option<i64>>> for BatchDims {
    fn from(d: Vec<Option<i64>>) -> BatchDims {
        BatchDims::Each(d)
    }
}
impl<const N: usize> From<[Option<i64>; N]> for BatchDims {
    fn from(d: [Option<i64>; N]) -> BatchDims {
        BatchDims::Each(d.to_vec())
    }
}
impl<const N: usize> From<[i64; N]> for BatchDims {
    fn from(d: [i64; N]) -> BatchDims {
        BatchDims::Each(d.iter().map(|&d| Some(d)).collect())
    }
}

impl BatchDims {
    fn of(&self, what: &str, count: usize) -> Result<Vec<Option<i64>>> {
        match self {
            BatchDims::All(d) => Ok(vec![*d; count]),
            BatchDims::Late(set) => match set.get() {
                Some(list) => BatchDims::Each(list.clone()).of(what, count),
                None => refuse(format!("{what} was not set while the function ran")),
            },
            BatchDims::Each(list) if list.len() == count => Ok(list.clone()),
            BatchDims::Each(list) => refuse(format!("{what} names {} tensors, there are {count}", list.len())),
        }
    }
}

fn refuse<T>(message: String) -> Result<T> {
    Err(ErrorKind::Vmap { message }.into())
}

/// A mapped function: what [`vmap`] returns. Options are set builder-style; [`Vmap::call`] runs it.
#[derive(Clone)]
pub struct Vmap<F> {
    f: F,
    in_dims: BatchDims,
    out_dims: BatchDims,
    randomness: Randomness,
    chunk_size: Option<usize>,
}

/// Maps `f` over the first dimension of its tensors; results get the batch as their first dimension.
pub fn vmap<F>(f: F) -> Vmap<F> {
    Vmap { f, in_dims: 0.into(), out_dims: 0.into(), randomness: Randomness::Error, chunk_size: None }
}

impl<F> Vmap<F> {
    /// Sets the batch dimension of each argument; `None`: the same for every sample.
    pub fn in_dims(self, dims: impl Into<BatchDims>) -> Vmap<F> {
        Vmap { in_dims: dims.into(), ..self }
    }

    /// Sets the batch dimension of each result.
    pub fn out_dims(self, dims: impl Into<BatchDims>) -> Vmap<F> {
        Vmap { out_dims: dims.into(), ..self }
    }

    /// Sets what random operations do.
    pub fn randomness(self, randomness: Randomness) -> Vmap<F> {
        Vmap { randomness, ..self }
    }

    /// Runs at most this many samples at once, to save memory.
    pub fn chunk_size(self, samples: usize) -> Vmap<F> {
        Vmap { chunk_size: Some(samples), ..self }
    }

    /// Runs the function on a batch.
    #[track_caller]
    pub fn call<A: TensorTree, R: Outcome>(&self, args: &A) -> Result<R::Tree>
    where
        F: Fn(&A) -> R,
    {
        let scope = capture::transform("vmap", true)?;
        capture::transformed(scope, self.mapped(args)?)
    }

    fn mapped<A: TensorTree, R: Outcome>(&self, args: &A) -> Result<R::Tree>
    where
        F: Fn(&A) -> R,
    {
        let leaves: Vec<Tensor> = args.leaves().iter().map(capture::real).collect();
        let (dims, size) = self.batch(&leaves)?;
        let Some(chunk) = self.chunk_size else { return self.run(args, leaves, &dims, size) };
        if chunk == 0 {
            return refuse("chunk_size is 0; at least one sample must run at once".to_string());
        }
        // The same numbers for all samples means for those of all chunks.
        let numbers = matches!(self.randomness, Randomness::Same).then(generator::current);
        let mut parts = Vec::new();
        for start in (0..size.max(1)).step_by(chunk) {
            if let Some(state) = numbers.as_ref().filter(|_| start > 0) {
                generator::restore(state.clone());
            }
            let n = chunk.min(size - start);
            let cut = |(t, d): (&Tensor, &Option<usize>)| match d {
                Some(d) => ops::narrow(t, *d as i64, start.into(), n.into()),
                None => Ok(t.clone()),
            };
            let part = leaves.iter().zip(&dims).map(cut).collect::<Result<Vec<_>>>()?;
            parts.push(self.run(args, part, &dims, n)?);
        }
        let columns: Vec<Vec<Tensor>> = parts.iter().map(TensorTree::leaves).collect();
        let out_dims = self.out_dims.of("out_dims", columns[0].len())?;
        let joined = (0..columns[0].len())
            .map(|k| {
                let parts: Vec<Tensor> = columns.iter().map(|c| c[k].clone()).collect();
                match out_dims[k] {
                    Some(d) => ops::cat(&parts, d),
                    None => Ok(parts[0].clone()),
                }
            })
            .collect::<Result<Vec<_>>>()?;
        parts[0].with_leaves(joined)
    }

    /// The batch dimension of every argument, counted from the front, and how many samples there are.
    fn batch(&self, leaves: &[Tensor]) -> Result<(Vec<Option<usize>>, usize)> {
        let mut dims = Vec::new();
        let mut size = None;
        for (k, (t, d)) in leaves.iter().zip(self.in_dims.of("in_dims", leaves.len())?).enumerate() {
            let Some(d) = d else {
                dims.push(None);
                continue;
            };
            if t.ndim() == 0 {
                return refuse(format!("argument {k} has no dimension to map over; use None as its in_dims"));
            }
            let d = match wrap_dim("vmap", d, t.ndim()) {
                Ok(d) => d,
                Err(e) => return refuse(format!("in_dims of argument {k}: {e}")),
            };
            let n = t.shape()[d];
            match size {
                Some(m) if m != n => {
                    return refuse(format!(
                        "batch sizes differ: {m} samples, but argument {k} has {n} along dimension {d}"
                    ));
                }
                _ => size = Some(n),
            }
            dims.push(Some(d));
        }
        match size {
            Some(n) => Ok((dims, n)),
            None => {
                refuse("no argument has a batch dimension; in_dims must name one for at least one tensor".to_string())
            }
        }
    }

    fn run<A: TensorTree, R: Outcome>(
        &self,
        args: &A,
        leaves: Vec<Tensor>,
        dims: &[Option<usize>],
        size: usize,
    ) -> Result<R::Tree>
    where
        F: Fn(&A) -> R,
    {
        let (output, found) = {
            let _level = level::enter_batch(Batch { size, randomness: self.randomness })?;
            let samples = leaves.into_iter().zip(dims).map(|(t, d)| if d.is_some() { level::wrap(t, *d) } else { t });
            let output = (self.f)(&args.with_leaves(samples.collect())?).outcome()?;
            let found = output.leaves().iter().map(level::unwrap).collect::<Result<Vec<_>>>()?;
            (output, found)
        };
        let out_dims = self.out_dims.of("out_dims", found.len())?;
        let mut placed = Vec::with_capacity(found.len());
        for (b, d) in found.iter().zip(out_dims) {
            placed.push(match (d, b.dim) {
                (None, None) => b.value.clone(),
                (None, Some(_)) => {
                    return refuse("a result that differs between samples needs its own out_dims".to_string());
                }
                (Some(d), _) => placed_at(&b.full(size)?, d)?,
            });
        }
        output.with_leaves(placed)
    }
}

/// The batch moved from the front to `dim` of the result.
fn placed_at(t: &Tensor, dim: i64) -> Result<Tensor> {
    match wrap_dim("vmap", dim, t.ndim()) {
        Ok(0) => Ok(t.clone()),
        Ok(d) => ops::movedim(t, 0, d as i64),
        Err(e) => refuse(format!("out_dims: {e}")),
    }
}

/// Sizes with some in front.
pub(crate) fn joined(front: &[usize], back: &[usize]) -> SymInts {
    front.iter().chain(back).map(|&n| SymInt::from(n)).collect()
}
