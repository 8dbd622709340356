//! Checkpoints: everything a run needs to resume as if it had never stopped, in one file, or in several if it is large (`parts`).
//!
//! The file is a `.safetensors` file: the model under `model.`, its non-persistent buffers under `buffer.`,
//! the optimizer's state under `optimizer.`, the average under `average.`, both random states and, as JSON in a byte tensor,
//! [`Progress`]. It is replaced by a rename, so there is always a complete one.

use super::metrics::{Metrics, numbers};
use super::parts;
use crate::optim::schedule::PlateauState;
use crate::optim::{Averaged, GroupDict, Optimizer, StateDict};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::Module;
use firebrand_core::random::{Generator, get_rng_state, set_rng_state};
use firebrand_core::{DType, Error, Result, Tensor, ops};
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
    /// Sum of the losses of the current epoch, weighted by the number of labels.
    pub loss_sum: f64,
    /// Number of labels of the current epoch.
    pub loss_count: f64,
    /// The best value of the watched metric so far.
    pub best: Option<f64>,
    /// The epoch it was reached in, from 1.
    #[serde(default)]
    pub best_epoch: Option<usize>,
    /// Epochs since then.
    pub epochs_since_best: usize,
    /// Metrics of all complete epochs.
    #[serde(with = "numbers")]
    pub history: Vec<Metrics>,
}

/// What the JSON part of the file holds.
#[derive(Serialize, Deserialize)]
struct Document {
    progress: Progress,
    param_groups: Vec<GroupDict>,
    #[serde(default)]
    average_updates: u64,
}

/// What is saved and restored.
pub(super) struct State<'a> {
    pub(super) model: &'a dyn Module,
    pub(super) optimizer: &'a mut dyn Optimizer,
    pub(super) average: Option<&'a mut Averaged>,
    /// Whether parameters that do not require grad are part of it.
    pub(super) frozen: bool,
    /// Most bytes of a file; more are written as several.
    pub(super) part_bytes: u64,
}

const DOCUMENT: &str = "progress.json";
const RNG: &str = "rng.now";
const RNG_EPOCH: &str = "rng.epoch_start";

pub(super) fn refused(path: &Path, e: impl std::fmt::Display) -> Error {
    Error::user(format!("{}: {e}", path.display()))
}

/// The state of a model, with or without its frozen parameters.
fn model_state(model: &dyn Module, frozen: bool) -> IndexMap<String, Tensor> {
    let mut state = model.state_dict();
    if !frozen {
        let left_out = |p: &Tensor| !p.requires_grad();
        for (name, _) in model.named_parameters().into_iter().filter(|(_, p)| left_out(p)) {
            state.shift_remove(&name);
        }
    }
    state
}

/// The non-persistent buffers of a model, by name.
fn transient(model: &dyn Module) -> Vec<(String, Tensor)> {
    let state = model.state_dict();
    model.named_buffers().into_iter().filter(|(name, _)| !state.contains_key(name)).collect()
}

/// Writes the state of a model under its own names.
pub(super) fn save_model(path: &Path, model: &dyn Module, frozen: bool) -> Result<()> {
    firebrand_io::write_safetensors(path, model_state(model, frozen).iter()).map_err(Error::user)
}

/// Writes a checkpoint with this state of the optimizer. `epoch_start` is the random state before the current epoch's order was
/// drawn.
pub(super) fn save(
    path: &Path,
    state: State<'_>,
    dict: StateDict,
    progress: &Progress,
    epoch_start: &Generator,
) -> Result<()> {
    let mut tensors: IndexMap<String, Tensor> = IndexMap::new();
    tensors.extend(model_state(state.model, state.frozen).into_iter().map(|(name, t)| (format!("model.{name}"), t)));
    tensors.extend(transient(state.model).into_iter().map(|(name, t)| (format!("buffer.{name}"), t.detach())));
    tensors.extend(dict.tensors().into_iter().map(|(name, t)| (format!("optimizer.{name}"), t)));
    let averages = state.average.as_ref().map_or(&[][..], |a| a.averages());
    tensors.extend(averages.iter().enumerate().map(|(k, t)| (format!("average.{k}"), t.clone())));
    let average_updates = state.average.as_ref().map_or(0, |a| a.updates());
    let document = Document { progress: progress.clone(), param_groups: dict.param_groups, average_updates };
    let document = serde_json::to_vec(&document).map_err(|e| refused(path, e))?;
    let bytes = |v: Vec<u8>| Tensor::new(&v);
    tensors.insert(DOCUMENT.into(), bytes(document));
    tensors.insert(RNG.into(), bytes(get_rng_state().to_bytes()));
    tensors.insert(RNG_EPOCH.into(), bytes(epoch_start.to_bytes()));
    parts::write_parts(path, &mut tensors, |name| matches!(name, DOCUMENT | RNG | RNG_EPOCH), state.part_bytes)?;
    firebrand_io::write_safetensors(path, tensors.iter()).map_err(Error::user)?;
    parts::remove_unused(path)
}

/// Restores model, optimizer (what `keep` leaves of its state), average and random stream; returns the progress and the random
/// state at the start of the epoch.
pub(super) fn load(
    path: &Path,
    state: State<'_>,
    keep: impl FnOnce(StateDict) -> StateDict,
) -> Result<(Progress, Generator)> {
    let mut tensors = firebrand_io::read_safetensors(path).map_err(Error::user)?;
    parts::read_parts(path, &mut tensors)?;
    let saved = Saved::new(&tensors).map_err(|e| refused(path, e))?;
    let model = part(&tensors, "model.");
    let expected = model_state(state.model, state.frozen);
    for (name, found) in [("misses", missing(&expected, &model)), ("has the unknown", missing(&model, &expected))] {
        if let Some(first) = found.first() {
            let message =
                format!("the checkpoint is from another model: it {name} `{first}` ({} in total)", found.len());
            return Err(refused(path, message));
        }
    }
    // By number: the file has an order of its own.
    let averages: Vec<Tensor> = (0..).map_while(|k| tensors.get(&format!("average.{k}")).cloned()).collect();
    if let Some(average) = state.average {
        average.load(&averages, saved.average_updates).map_err(|e| refused(path, e))?;
    } else if !averages.is_empty() {
        return Err(refused(path, "the checkpoint is from a run with averaged weights; set TrainOptions::ema"));
    }
    state.model.load_state_dict(&model, false)?;
    let buffers = part(&tensors, "buffer.");
    for (name, buffer) in transient(state.model) {
        if let Some(t) = buffers.get(&name) {
            no_grad(|| ops::copy_(&buffer, t, false).map(drop)).map_err(|e| refused(path, e))?;
        }
    }
    state.optimizer.load_state_dict(&keep(saved.optimizer))?;
    set_rng_state(saved.now);
    Ok((saved.progress, saved.epoch_start))
}

/// Names of `all` that `other` lacks.
fn missing<'a>(all: &'a IndexMap<String, Tensor>, other: &IndexMap<String, Tensor>) -> Vec<&'a String> {
    all.keys().filter(|name| !other.contains_key(*name)).collect()
}

/// The tensors with this prefix, with the prefix removed.
fn part(tensors: &IndexMap<String, Tensor>, prefix: &str) -> IndexMap<String, Tensor> {
    tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t.clone()))).collect()
}

/// What a checkpoint holds besides the model, checked as far as it can be without one.
struct Saved {
    progress: Progress,
    optimizer: StateDict,
    average_updates: u64,
    now: Generator,
    epoch_start: Generator,
}

/// A byte tensor of a checkpoint.
fn bytes(tensors: &IndexMap<String, Tensor>, name: &str) -> Result<Vec<u8>> {
    let t = tensors.get(name).ok_or_else(|| Error::user(format!("not a checkpoint: `{name}` is missing")))?;
    match t.dtype() {
        DType::U8 => t.try_to_vec::<u8>(),
        other => Err(Error::user(format!("not a checkpoint: `{name}` holds {other} where bytes are expected"))),
    }
}

impl Document {
    fn read(tensors: &IndexMap<String, Tensor>) -> Result<Document> {
        let text = String::from_utf8(bytes(tensors, DOCUMENT)?).map_err(Error::user)?;
        Budget::for_input(text.len() as u64).take_json(&text).map_err(Error::user)?;
        serde_json::from_str(&text).map_err(Error::user)
    }
}

impl Saved {
    fn new(tensors: &IndexMap<String, Tensor>) -> Result<Saved> {
        let generator = |name: &str| Generator::from_bytes(&bytes(tensors, name)?).map_err(Error::user);
        let document = Document::read(tensors)?;
        let (now, epoch_start) = (generator(RNG)?, generator(RNG_EPOCH)?);
        let optimizer = StateDict::from_parts(&part(tensors, "optimizer."), document.param_groups)?;
        let Document { progress, average_updates, .. } = document;
        Ok(Saved { progress, optimizer, average_updates, now, epoch_start })
    }
}

impl Progress {
    /// The progress stored in a checkpoint. The model is not read.
    pub fn from_checkpoint(bytes: &[u8]) -> Result<Progress> {
        let tensors = firebrand_io::safetensors::from_bytes(bytes).map_err(Error::user)?;
        Ok(Document::read(&tensors)?.progress)
    }
}
