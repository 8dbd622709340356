//! Checkpoints: everything a run needs to resume as if it had never stopped, in one file.
//!
//! The file is a `.safetensors` file: the model under `model.`, the optimizer's state under `optimizer.`, both random
//! states and, as JSON in a byte tensor, [`Progress`]. It is replaced by a rename, so there is always a whole one.

use super::Metrics;
use crate::optim::schedule::PlateauState;
use crate::optim::{GroupDict, Optimizer, StateDict};
use firebrand_core::module::Module;
use firebrand_core::random::{Generator, get_rng_state, set_rng_state};
use firebrand_core::{DType, Error, Result, Tensor};
use firebrand_io::Budget;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Completed epochs.
    pub epoch: usize,
    /// Completed batches of the current epoch.
    pub batch: usize,
    /// Optimizer steps.
    pub step: u64,
    /// State of the schedule.
    pub schedule: u64,
    /// State of the reduce-on-plateau schedule.
    #[serde(default)]
    pub plateau: Option<PlateauState>,
    /// Sum of the losses of the current epoch.
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

/// Writes a checkpoint. `epoch_start` is the random state before the current epoch's order was drawn.
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

/// Restores model, optimizer and random stream; returns the progress and the random state at the start of the epoch.
pub(super) fn load(path: &Path, model: &dyn Module, optimizer: &mut dyn Optimizer) -> Result<(Progress, Generator)> {
    let tensors = firebrand_io::read_safetensors(path).map_err(Error::user)?;
    let saved = Saved::new(&tensors).map_err(|e| refused(path, e))?;
    model.load_state_dict(&part(&tensors, "model."), true)?;
    optimizer.load_state_dict(&saved.optimizer)?;
    set_rng_state(saved.now);
    Ok((saved.progress, saved.epoch_start))
}

/// The tensors with this prefix, with the prefix removed.
fn part(tensors: &IndexMap<String, Tensor>, prefix: &str) -> IndexMap<String, Tensor> {
    tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t.clone()))).collect()
}

/// What a checkpoint holds besides the model, checked as far as it can be without one.
struct Saved {
    progress: Progress,
    optimizer: StateDict,
    now: Generator,
    epoch_start: Generator,
}

impl Saved {
    fn new(tensors: &IndexMap<String, Tensor>) -> Result<Saved> {
        let bytes = |name: &str| -> Result<Vec<u8>> {
            let t = tensors.get(name).ok_or_else(|| Error::user(format!("not a checkpoint: `{name}` is missing")))?;
            match t.dtype() {
                DType::U8 => t.try_to_vec::<u8>(),
                other => Err(Error::user(format!("not a checkpoint: `{name}` holds {other} where bytes are expected"))),
            }
        };
        let generator = |name: &str| Generator::from_bytes(&bytes(name)?).map_err(Error::user);
        let text = String::from_utf8(bytes(DOCUMENT)?).map_err(Error::user)?;
        Budget::for_input(text.len() as u64).take_json(&text).map_err(Error::user)?;
        let document: Document = serde_json::from_str(&text).map_err(Error::user)?;
        let (now, epoch_start) = (generator(RNG)?, generator(RNG_EPOCH)?);
        let optimizer = StateDict::from_parts(&part(tensors, "optimizer."), document.param_groups)?;
        Ok(Saved { progress: document.progress, optimizer, now, epoch_start })
    }
}

impl Progress {
    /// The progress stored in a checkpoint. The model is not read.
    pub fn from_checkpoint(bytes: &[u8]) -> Result<Progress> {
        let tensors = firebrand_io::safetensors::from_bytes(bytes).map_err(Error::user)?;
        Ok(Saved::new(&tensors)?.progress)
    }
}
