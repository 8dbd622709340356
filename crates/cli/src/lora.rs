//! Options of `firebrand pass lora`, and how they are applied to a program.

use crate::refusal::{Done, Refusal};
use firebrand::graph::ExportedProgram;
use firebrand::graph::passes::{AdapterFiles, LoraOptions, load_adapter, lora, merge_lora, save_adapter};
use firebrand::io::Output;
use firebrand::prelude::manual_seed;
use std::path::{Path, PathBuf};

/// Options for adding, saving and merging adapters.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "LoRA")]
pub(crate) struct PassOptions {
    #[command(flatten)]
    adapters: AdapterOptions,
    /// Random seed for the adapters' initial values
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Merge the program's adapters into its weights
    #[arg(long, conflicts_with_all = ["rank", "alpha", "targets", "rslora", "lora_dropout", "modules_to_save", "adapter"])]
    merge: bool,
    /// Add the adapter in this directory, in PEFT's format (adapter_model.safetensors, adapter_config.json)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rank", "alpha", "targets", "rslora", "lora_dropout", "modules_to_save"])]
    adapter: Option<PathBuf>,
    /// Write the program's adapter to this directory, in PEFT's format
    #[arg(long, value_name = "DIR", conflicts_with = "merge")]
    save_adapter: Option<PathBuf>,
    #[command(flatten)]
    files: FileOptions,
}

/// How adapters are added.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct AdapterOptions {
    /// Rank of the adapters [default: 8]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=65536))]
    rank: Option<u32>,
    /// Scale adapters by alpha / rank [default: twice the rank]
    #[arg(long, value_name = "A")]
    alpha: Option<f64>,
    /// Layers that get adapters, by the last components of their module path [default: every linear layer whose weight is not shared]
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',')]
    targets: Option<Vec<String>>,
    /// Scale adapters by alpha / sqrt(rank) instead (rank-stabilized LoRA)
    #[arg(long)]
    rslora: bool,
    /// Dropout probability on the adapters' inputs while training
    #[arg(long, value_name = "P")]
    lora_dropout: Option<f64>,
    /// Modules to train in full and save with the adapter, by the last components of their path
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',')]
    modules_to_save: Option<Vec<String>>,
}

/// How adapters are named in files.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct FileOptions {
    /// Prefix to strip from module paths, if the Python model does not have it, such as `model.` of an exported wrapper
    #[arg(long, value_name = "PREFIX", default_value = "")]
    strip_prefix: String,
    /// Name of the base model, recorded in adapter_config.json
    #[arg(long, value_name = "NAME")]
    base_model: Option<String>,
}

impl AdapterOptions {
    /// Whether any is given.
    pub(crate) fn is_any(&self) -> bool {
        self.rank.is_some()
            || self.alpha.is_some()
            || self.targets.is_some()
            || self.rslora
            || self.lora_dropout.is_some()
            || self.modules_to_save.is_some()
    }

    /// Adds adapters to a program.
    pub(crate) fn apply(&self, program: &ExportedProgram) -> Done<ExportedProgram> {
        let rank = self.rank.unwrap_or(8) as usize;
        let options = LoraOptions {
            rank,
            alpha: self.alpha.unwrap_or(2.0 * rank as f64),
            targets: self.targets.clone(),
            modules_to_save: self.modules_to_save.clone().unwrap_or_default(),
            rslora: self.rslora,
            dropout: self.lora_dropout.unwrap_or(0.0),
        };
        Ok(lora(program, &options).map_err(Refusal::because)?.0)
    }
}

impl FileOptions {
    /// Stages the adapter of a program in a folder, which is created if missing.
    pub(crate) fn stage(&self, program: &ExportedProgram, folder: &Path) -> Done<Vec<Output>> {
        let files = AdapterFiles { strip_prefix: self.strip_prefix.clone(), base_model: self.base_model.clone() };
        std::fs::create_dir_all(folder).map_err(|e| Refusal::because(format!("{}: {e}", folder.display())))?;
        save_adapter(program, folder, &files).map_err(Refusal::because)
    }
}

impl PassOptions {
    /// Whether any option is given, which only `lora` takes.
    pub(crate) fn is_any(&self) -> bool {
        self.adapters.is_any() || self.merge || self.adapter.is_some() || self.save_adapter.is_some()
    }

    /// Whether the result is only the adapter's files.
    pub(crate) fn only_files(&self) -> bool {
        self.save_adapter.is_some()
    }

    /// The program afterwards.
    pub(crate) fn run(&self, program: &ExportedProgram) -> Done<ExportedProgram> {
        if self.merge {
            return Ok(merge_lora(program).map_err(Refusal::because)?.0);
        }
        if let Some(folder) = &self.adapter {
            return Ok(load_adapter(program, folder).map_err(Refusal::because)?.0);
        }
        let has_adapters = program.state_dict.keys().any(|name| name.contains(".lora_A."));
        if self.save_adapter.is_some() && has_adapters && !self.adapters.is_any() {
            return Ok(program.clone());
        }
        manual_seed(self.seed);
        self.adapters.apply(program)
    }

    /// Stages the adapter's files, if they are requested.
    pub(crate) fn stage(&self, program: &ExportedProgram) -> Done<Vec<Output>> {
        self.save_adapter.as_deref().map_or(Ok(Vec::new()), |folder| self.files.stage(program, folder))
    }
}
