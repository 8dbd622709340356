//! Checkpoints: everything a run needs to continue as if it had never stopped, in one file.
//!
//! The file is a `.safetensors` file: the model under `model.`, the optimiser's state under `optimizer.`, both random
//! states and, as JSON in a byte tensor, [`Progress`]. It is replaced by a rename, so there is always a whole one.

use super::Metrics;
use crate::optim::schedule::PlateauState;
use crate::optim::{GroupDict, Optimizer, StateDict};
use firebrand_core::module::Module;
use firebrand_core::random::{Generator, get_rng_state, set_rng_state};
use firebrand_core::{Error, Result, Tensor};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How far a run has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Epochs that are complete.
    pub epoch: usize,
    /// Batches of the present epoch that are done.
    pub batch: usize,
    /// Steps of the optimiser.
    pub step: u64,
    /// Where the schedule stands.
    pub schedule: u64,
    /// What a rate that falls on plateaus remembers.
    #[serde(default)]
    pub plateau: Option<PlateauState>,
    /// Sum of the losses of the present epoch.
    pub loss_sum: f64,
    /// The best value of the watched metric so far.
    pub best: Option<f64>,
    /// Epochs since then.
    pub epochs_since_best: usize,
    /// Metrics of all complete epochs.
    pub history: Vec<Metrics>,
}

/// What the JSON part of the file holds.
#[derive(Serialize, Deserialize)]
struct Document {
    progress: Progress,
    param_groups: Vec<GroupDict>,
}

const DOCUMENT: &str = "progress.json";
const RNG: &str = "rng.now";
const RNG_EPOCH: &str = "rng.epoch_start";

fn refused(path: &Path, e: impl std::fmt::Display) -> Error {
    Error::user(format!("{}: {e}", path.display()))
}

/// Writes a checkpoint. `epoch_start` is the random state before the present epoch's order was drawn.
pub(super) fn save(
    path: &Path,
    model: &dyn Module,
    optimizer: &dyn Optimizer,
    progress: &Progress,
    epoch_start: &Generator,
) -> Result<()> {
    let dict = optimizer.state_dict();
    let mut tensors: IndexMap<String, Tensor> = IndexMap::new();
    tensors.extend(model.state_dict().into_iter().map(|(name, t)| (format!("model.{name}"), t)));
    tensors.extend(dict.tensors().into_iter().map(|(name, t)| (format!("optimizer.{name}"), t)));
    let document = Document { progress: progress.clone(), param_groups: dict.param_groups };
    let document = serde_json::to_vec(&document).map_err(|e| refused(path, e))?;
    let bytes = |v: Vec<u8>| Tensor::new(&v);
    tensors.insert(DOCUMENT.into(), bytes(document));
    tensors.insert(RNG.into(), bytes(get_rng_state().to_bytes()));
    tensors.insert(RNG_EPOCH.into(), bytes(epoch_start.to_bytes()));
    firebrand_io::write_safetensors(path, tensors.iter()).map_err(Error::user)
}

/// Puts model, optimiser and random stream back; progress and the random state at the start of the epoch come out.
pub(super) fn load(path: &Path, model: &dyn Module, optimizer: &mut dyn Optimizer) -> Result<(Progress, Generator)> {
    let tensors = firebrand_io::read_safetensors(path).map_err(Error::user)?;
    let bytes = |name: &str| -> Result<Vec<u8>> {
        let t = tensors.get(name).ok_or_else(|| refused(path, format!("not a checkpoint: `{name}` is missing")))?;
        t.try_to_vec::<u8>()
    };
    let generator = |name: &str| Generator::from_bytes(&bytes(name)?).map_err(|e| refused(path, e));
    let document: Document = serde_json::from_slice(&bytes(DOCUMENT)?).map_err(|e| refused(path, e))?;
    let (now, epoch_start) = (generator(RNG)?, generator(RNG_EPOCH)?);
    let part = |prefix: &str| -> IndexMap<String, Tensor> {
        tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t.clone()))).collect()
    };
    let state = StateDict::from_parts(&part("optimizer."), document.param_groups)?;
    model.load_state_dict(&part("model."), true)?;
    optimizer.load_state_dict(&state)?;
    set_rng_state(now);
    Ok((document.progress, epoch_start))
}
