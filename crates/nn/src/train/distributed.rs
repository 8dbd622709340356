//! A training run on several ranks: which shards of a step are this rank's, and what ranks tell each other.
//!
//! A step has S logical shards, of which every rank computes the same number, a power of two. A shard has its part of every batch
//! and its own random streams; its gradient is scaled by its share of the labels, and shards are added along a fixed tree
//! ([`firebrand_dist::tree`]). So results depend on S alone, not on the number of ranks, on what connects them, or on timing.

use super::metrics::Metrics;
use crate::optim::{Optimizer, StateDict};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::Module;
use firebrand_core::{DType, Error, Result, Tensor};
use firebrand_dist::{DistributedDataParallel, World};
use indexmap::IndexMap;
use std::ops::Range;

/// What a rank knows about the run.
pub(super) struct Team<'a> {
    pub(super) ddp: &'a DistributedDataParallel,
    pub(super) shards: usize,
    /// Whether each rank keeps only its part of the optimizer's state.
    zero: bool,
    /// The rank that steps each of the optimizer's parameters, if each rank steps its own.
    owners: Vec<usize>,
    buffers: Vec<Tensor>,
    /// Buffers at the beginning of a step, and after its first shard.
    before: Vec<Tensor>,
    after_first: Vec<Tensor>,
    /// Whether all ranks have agreed to stop.
    pub(super) stop: bool,
}

impl<'a> Team<'a> {
    pub(super) fn new(
        ddp: &'a DistributedDataParallel,
        model: &dyn Module,
        optimizer: &dyn Optimizer,
        shards: Option<usize>,
        zero: bool,
    ) -> Result<Team<'a>> {
        let ranks = ddp.world().size();
        let shards = shards.unwrap_or(ranks);
        firebrand_dist::check_shards(shards, ranks)?;
        ddp.set_managed(true);
        let buffers = model.named_buffers().into_iter().map(|(_, b)| b).collect();
        let owners = if zero { owners(&optimizer.parameters(), ranks) } else { Vec::new() };
        let (before, after_first) = (Vec::new(), Vec::new());
        Ok(Team { ddp, shards, zero, owners, buffers, before, after_first, stop: false })
    }

    pub(super) fn world(&self) -> &World {
        self.ddp.world()
    }

    /// The shards of this rank.
    pub(super) fn local(&self) -> Range<usize> {
        let each = self.shards / self.world().size();
        self.world().rank() * each..(self.world().rank() + 1) * each
    }

    /// Prepares the buffers for a shard of this rank, by number among them: each begins with those of the step.
    pub(super) fn begin_shard(&mut self, number: usize) -> Result<()> {
        if self.local().len() == 1 || self.buffers.is_empty() {
            return Ok(());
        }
        let copies =
            |buffers: &[Tensor]| buffers.iter().map(|b| b.detach().try_deep_copy()).collect::<Result<Vec<_>>>();
        match number {
            0 => self.before = copies(&self.buffers)?,
            n => {
                if n == 1 {
                    self.after_first = copies(&self.buffers)?;
                }
                copy(&self.before, &self.buffers)?;
            }
        }
        Ok(())
    }

    /// The step's backward passes are done: buffers are those of the first shard of all.
    pub(super) fn end_shards(&mut self) -> Result<()> {
        if !self.after_first.is_empty() {
            copy(&std::mem::take(&mut self.after_first), &self.buffers)?;
        }
        self.before.clear();
        Ok(self.ddp.sync_buffers()?)
    }

    /// Sums over all shards: of losses and of counts, given those of this rank's shards. Ranks that were asked to stop tell the others.
    pub(super) fn totals(&mut self, shards: &[[f64; 2]], stop: bool) -> Result<[f64; 2]> {
        let terms: Vec<Tensor> = shards.iter().map(|[sum, count]| Tensor::new(&[*sum, *count])).collect();
        firebrand_dist::tree::sum_into_first(&terms)?;
        let own = terms[0].try_to_vec::<f64>()?;
        let all = self.world().all_reduce(&Tensor::new(&[own[0], own[1], f64::from(u8::from(stop))]))?;
        let all = all.try_to_vec::<f64>()?;
        self.stop |= all[2] > 0.0;
        Ok([all[0], all[1]])
    }

    /// Metrics as rank 0 has them, so that all decide alike.
    pub(super) fn agree(&mut self, metrics: &mut Metrics, stop: bool) -> Result<()> {
        self.totals(&[[0.0, 0.0]], stop)?;
        let values = Tensor::new(&metrics.values().copied().collect::<Vec<f64>>());
        self.world().broadcast(&values, 0)?;
        metrics.values_mut().zip(values.try_to_vec::<f64>()?).for_each(|(v, agreed)| *v = agreed);
        Ok(())
    }

    /// Takes a step: of all parameters, or of this rank's part, which the others then get.
    pub(super) fn step(&self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.zero {
            return optimizer.step();
        }
        let parameters = optimizer.parameters();
        for (p, owner) in parameters.iter().zip(&self.owners) {
            if *owner != self.world().rank() {
                p.zero_grad();
            }
        }
        optimizer.step()?;
        for root in 0..self.world().size() {
            let of = |dtype: DType| -> Vec<&Tensor> {
                let owned = parameters.iter().zip(&self.owners).filter(|(p, o)| **o == root && p.dtype() == dtype);
                owned.map(|(p, _)| p).collect()
            };
            let mut dtypes: Vec<DType> = Vec::new();
            parameters.iter().map(Tensor::dtype).for_each(|d| {
                if !dtypes.contains(&d) {
                    dtypes.push(d)
                }
            });
            dtypes.into_iter().try_for_each(|d| self.world().broadcast_all(&of(d), root))?;
        }
        Ok(())
    }

    /// Returns an error that names the first tensor of the state that is not the same on all ranks.
    pub(super) fn compare(&self, model: &dyn Module, optimizer: &dyn Optimizer) -> Result<()> {
        let parameters = model.named_parameters().into_iter().map(|(name, p)| (name, p.tensor().clone()));
        let mut state: Vec<(String, Tensor)> = parameters.chain(model.named_buffers()).collect();
        if !self.zero {
            state.extend(optimizer.state_dict().tensors());
        }
        let hashes = state.iter().map(|(_, t)| checksum(t)).collect::<Result<Vec<i64>>>()?;
        let all = self.world().all_gather(&Tensor::new(&hashes))?;
        let all = all.iter().map(Tensor::try_to_vec::<i64>).collect::<Result<Vec<_>>>()?;
        for (k, (name, _)) in state.iter().enumerate() {
            if let Some(rank) = all.iter().position(|of_rank| of_rank[k] != all[0][k]) {
                return Err(Error::user(format!(
                    "{name} on rank {rank} is not the {name} of rank 0: replicas no longer agree; do all ranks run on the same kind of processor?"
                )));
            }
        }
        Ok(())
    }

    /// The whole state of the optimizer, of which every rank may have a part.
    pub(super) fn whole_state(&self, optimizer: &dyn Optimizer) -> Result<StateDict> {
        let own = optimizer.state_dict();
        if !self.zero || self.world().size() == 1 {
            return Ok(own);
        }
        let mut all = IndexMap::new();
        let tensors = own.tensors();
        let line = |(name, t): (&String, &Tensor)| format!("{name}\t{}\t{:?}", t.dtype(), t.shape());
        let described = self.world().gather_text(&tensors.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        for (root, text) in described.iter().enumerate() {
            for line in text.lines() {
                let (name, t) = parse(line).ok_or_else(|| Error::user(format!("rank {root} sent `{line}`")))?;
                let t = tensors.get(&name).filter(|_| root == self.world().rank()).cloned().unwrap_or(t);
                self.world().broadcast(&t, root)?;
                all.insert(name, t);
            }
        }
        StateDict::from_parts(&all, own.param_groups)
    }

    /// What this rank keeps of a whole state.
    pub(super) fn own_state(&self, mut state: StateDict) -> StateDict {
        if self.zero {
            let own = |i: &usize| self.owners.get(*i) == Some(&self.world().rank());
            state.state.retain(|i, _| own(i));
        }
        state
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.ddp.set_managed(false);
    }
}

/// Copies values.
fn copy(from: &[Tensor], to: &[Tensor]) -> Result<()> {
    no_grad(|| to.iter().zip(from).try_for_each(|(t, f)| t.try_copy_(f, false).map(drop)))
}

/// A number that differs if bits do.
fn checksum(t: &Tensor) -> Result<i64> {
    let bytes = no_grad(|| t.detach().try_contiguous()?.try_flatten(0, -1)?.try_view_dtype(DType::U8))?;
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(bytes.try_to_vec::<u8>()?.iter().fold(0xcbf2_9ce4_8422_2325, mix) as i64)
}

/// The rank that steps each parameter: the one with the least so far, largest parameters first.
fn owners(parameters: &[Tensor], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parameters.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(parameters[i].numel()));
    let (mut load, mut owners) = (vec![0; ranks], vec![0; parameters.len()]);
    for i in order {
        let least = (0..ranks).min_by_key(|&r| load[r]).unwrap_or(0);
        load[least] += parameters[i].numel();
        owners[i] = least;
    }
    owners
}

/// A tensor of zeros as another rank describes it, with its name.
fn parse(line: &str) -> Option<(String, Tensor)> {
    let mut fields = line.split('\t');
    let (name, dtype, shape) = (fields.next()?, fields.next()?, fields.next()?);
    let dtype =
        [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64].into_iter().find(|d| d.to_string() == dtype)?;
    let sizes = shape.strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::trim).filter(|n| !n.is_empty());
    let sizes: Vec<i64> = sizes.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    Some((name.to_string(), Tensor::zeros(sizes, dtype)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_shared_evenly() {
        let parameters: Vec<Tensor> = [7, 1, 5, 3, 4].map(|n| Tensor::zeros([n], DType::F32)).to_vec();
        assert_eq!(owners(&parameters, 2), [0, 1, 1, 0, 1]);
        assert_eq!(owners(&parameters, 1), [0; 5]);
    }

    #[test]
    fn descriptions_are_read() {
        let (name, t) = parse("state.3.exp_avg\tfloat32\t[2, 3]").expect("well formed");
        assert_eq!((name.as_str(), t.shape(), t.dtype()), ("state.3.exp_avg", &[2, 3][..], DType::F32));
        assert_eq!(parse("state.0.step\tfloat32\t[]").expect("well formed").1.ndim(), 0);
        assert!(parse("state.0.step").is_none());
    }
}
