//! Changes that `train` makes to a program before training: loads other weights, adds adapters, quantizes frozen weights, enables recomputation
//! of blocks, and compresses or offloads saved tensors.

use crate::convert::read_state;
use crate::lora::AdapterOptions;
use crate::program::WeightOptions;
use crate::program_file;
use crate::refusal::{Done, Refusal};
use clap::ValueEnum;
use firebrand::DType;
use firebrand::autograd::{SavedHooksGuard, save_compressed};
use firebrand::graph::passes::{QuantizeOptions, load_adapter, quantize};
use firebrand::graph::{LoadOptions, ProgramModule, recompute_blocks, recompute_cheap, recompute_wide};
use std::path::{Path, PathBuf};

/// What is recomputed in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Recompute {
    /// Every numbered module (layers.0, layers.1, …); only its inputs are saved
    Blocks,
    /// Activations, norms and element-wise ops, which take little time
    Cheap,
    /// The same, and the wide matrix products inside blocks whose results only they read, in all blocks but the last
    Wide,
    /// Nothing
    Nothing,
}

/// How tensors saved for backward are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Saved {
    /// In memory, in bfloat16
    Bf16,
    /// In a temporary file
    Disk,
}

/// Options of `train` that change the program and its memory use.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Adapters, weights and memory")]
pub(crate) struct AdaptOptions {
    /// Train low-rank adapters only; everything else is frozen
    #[arg(long)]
    lora: bool,
    #[command(flatten)]
    adapters: AdapterOptions,
    /// Start from the adapter in this directory, in PEFT's format
    #[arg(long, value_name = "DIR", conflicts_with = "lora")]
    adapter: Option<PathBuf>,
    /// Load the weights from this file: .safetensors, the index of its shards, .npz, torch.save or another program
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Quantize the frozen weights of linear layers to this many bits: 8 or 4
    #[arg(long, value_name = "BITS", value_parser = ["8", "4"])]
    quantize: Option<String>,
    /// What to recompute in the backward pass instead of saving it [default: wide with adapters, nothing without]
    #[arg(long, value_name = "WHAT", conflicts_with = "compile")]
    recompute: Option<Recompute>,
    /// Store tensors saved for backward in bfloat16 or on disk
    #[arg(long, value_name = "HOW", conflicts_with = "compile")]
    saved: Option<Saved>,
}

impl AdaptOptions {
    /// The name of an option that is given, if any.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.lora, "--lora"),
            (self.adapters.is_any(), "--rank, --targets or another adapter option"),
            (self.adapter.is_some(), "--adapter"),
            (self.weights.is_some(), "--weights"),
            (self.quantize.is_some(), "--quantize"),
            (self.recompute.is_some(), "--recompute"),
            (self.saved.is_some(), "--saved"),
        ];
        options.into_iter().find_map(|(given, name)| given.then_some(name))
    }

    /// Loads a program and applies the options to it.
    pub(crate) fn load(&self, path: &Path, memory: WeightOptions) -> Done<ProgramModule> {
        if self.adapters.is_any() && !self.lora {
            return Err(Refusal::Usage("--rank, --alpha, --targets and the other adapter options need --lora".into()));
        }
        let options = LoadOptions { memory: memory.memory(), ..LoadOptions::default() };
        let mut program = program_file::load(path, &options)?;
        if let Some(file) = &self.weights {
            let (loaded, _) = program.with_weights(&read_state(file, memory)?, false).map_err(Refusal::because)?;
            program = loaded;
        }
        if self.lora {
            program = self.adapters.apply(&program)?;
        }
        if let Some(folder) = &self.adapter {
            program = load_adapter(&program, folder).map_err(Refusal::because)?.0;
        }
        if let Some(bits) = &self.quantize {
            let options = QuantizeOptions { bits: if bits == "4" { 4 } else { 8 }, ..QuantizeOptions::default() };
            program = quantize(&program, &options).map_err(Refusal::because)?.0;
        }
        let adapted = program.state_dict.keys().any(|name| name.ends_with(".lora_A.weight"));
        let mut module = program.module().map_err(Refusal::because)?;
        // What goes to disk is not worth computing again.
        let adapters = adapted && self.saved != Some(Saved::Disk);
        let saved = (self.saved == Some(Saved::Bf16)).then_some(DType::BF16);
        match self.recompute.unwrap_or(if adapters { Recompute::Wide } else { Recompute::Nothing }) {
            Recompute::Blocks => module.set_evaluator(recompute_blocks()),
            Recompute::Cheap => module.set_evaluator(recompute_cheap(saved)),
            Recompute::Wide => module.set_evaluator(recompute_wide(saved)),
            Recompute::Nothing => {}
        }
        Ok(module)
    }

    /// The scope in which forward passes run.
    pub(crate) fn saved(&self) -> Done<Option<SavedHooksGuard>> {
        Ok(match self.saved {
            None => None,
            Some(Saved::Bf16) => Some(save_compressed(DType::BF16)?),
            Some(Saved::Disk) => Some(firebrand::save_on_disk(std::env::temp_dir())?),
        })
    }
}
