//! Adapters in the file format of the Python library PEFT: `adapter_model.safetensors` next to `adapter_config.json`.

use super::layers::Layers;
use super::merge::{module_of, pairs};
use super::{Adapter, CONFIG, LoraOptions, adapter_dtype, ends_in, insert, keep_config, refuse};
use crate::error::{Error, Result};
use crate::passes::Report;
use crate::program::ExportedProgram;
use firebrand_core::Tensor;
use firebrand_io::{Output, plain, read_safetensors_with, read_text, safetensors};
use indexmap::IndexMap;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The file of tensors.
const TENSORS: &str = "adapter_model.safetensors";
/// The prefix that PEFT puts before every name.
const PREFIX: &str = "base_model.model.";

/// The content of `adapter_config.json`. Unknown keys are preserved.
#[derive(Clone, Debug)]
pub(super) struct Config(Map<String, Value>);

impl Config {
    pub(super) fn of(options: &LoraOptions, targets: Vec<String>, conv1d: bool) -> Config {
        let alpha = if options.alpha.fract() == 0.0 && options.alpha.abs() < 1e15 {
            json!(options.alpha as i64)
        } else {
            json!(options.alpha)
        };
        let saved = if options.modules_to_save.is_empty() { Value::Null } else { json!(options.modules_to_save) };
        let value = json!({
            "base_model_name_or_path": null,
            "bias": "none",
            "fan_in_fan_out": conv1d,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": alpha,
            "lora_dropout": options.dropout,
            "modules_to_save": saved,
            "peft_type": "LORA",
            "r": options.rank,
            "target_modules": targets,
            "task_type": null,
            "use_dora": false,
            "use_rslora": options.rslora,
        });
        match value {
            Value::Object(map) => Config(map),
            _ => Config(Map::new()),
        }
    }

    fn parse(text: &str) -> Result<Config> {
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Config(map)),
            Ok(_) => refuse(format!("{CONFIG} is not a JSON object")),
            Err(e) => refuse(format!("{CONFIG}: {e}")),
        }
    }

    pub(super) fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.0).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Returns an error for kinds of adapters that are computed differently.
    fn check(&self) -> Result<()> {
        let kind = self.0.get("peft_type").and_then(Value::as_str).unwrap_or("LORA");
        if kind != "LORA" {
            return refuse(format!("{CONFIG}: adapters of type {} are not supported; expected LORA", plain(kind)));
        }
        for key in
            ["use_dora", "lora_bias", "use_qalora", "layer_replication", "megatron_config", "trainable_token_indices"]
        {
            if !matches!(self.0.get(key), None | Some(Value::Null | Value::Bool(false))) {
                return refuse(format!("{CONFIG}: {key} is not supported"));
            }
        }
        match self.0.get("bias").and_then(Value::as_str) {
            None | Some("none") => Ok(()),
            Some(other) => refuse(format!("{CONFIG}: trained biases ({:?}) are not supported", plain(other))),
        }
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.0.get(key).and_then(Value::as_f64).unwrap_or(default)
    }

    /// The factor of the adapter of one module.
    fn scaling(&self, path: &str, rank: usize) -> Result<f64> {
        let mut alpha = self.number("lora_alpha", 8.0);
        if let Some(Value::Object(patterns)) = self.0.get("alpha_pattern") {
            for (pattern, value) in patterns {
                if pattern.chars().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))) {
                    return refuse(format!("{CONFIG}: the alpha_pattern {} is more than a name", plain(pattern)));
                }
                if ends_in(path, pattern) {
                    alpha = value.as_f64().unwrap_or(alpha);
                    break;
                }
            }
        }
        let rank = rank as f64;
        Ok(alpha / if self.0.get("use_rslora") == Some(&Value::Bool(true)) { rank.sqrt() } else { rank })
    }

    fn modules_to_save(&self) -> Vec<String> {
        let list = self.0.get("modules_to_save").and_then(Value::as_array);
        list.map_or(Vec::new(), |l| l.iter().filter_map(Value::as_str).map(str::to_string).collect())
    }
}

/// How adapters are named in files.
#[derive(Clone, Debug, Default)]
pub struct AdapterFiles {
    /// A prefix of module paths that the model in Python does not have, such as `model.` of a wrapper that was
    /// exported; it is stripped from the names.
    pub strip_prefix: String,
    /// Name or folder of the base model, recorded in the configuration.
    pub base_model: Option<String>,
}

/// Stages the adapters of a program as PEFT's two files in a folder, which exists; they appear when committed.
///
/// # Errors
/// If the program has no adapters, or one whose name does not start with the prefix to strip.
pub fn save_adapter(program: &ExportedProgram, folder: impl AsRef<Path>, files: &AdapterFiles) -> Result<Vec<Output>> {
    let folder = folder.as_ref();
    let config = stored_config(program)?;
    let adapters = pairs(program)?;
    if adapters.is_empty() {
        return refuse("the program has no adapters (parameters named lora_A and lora_B) to save");
    }
    let whole = config.modules_to_save();
    let mut tensors: IndexMap<String, Tensor> = IndexMap::new();
    let mut add = |path: &str, rest: &str, name: &str| -> Result<()> {
        let Some(short) = path.strip_prefix(files.strip_prefix.as_str()) else {
            return refuse(format!("{path} does not start with {:?}, the prefix to strip", files.strip_prefix));
        };
        tensors.insert(format!("{PREFIX}{short}{rest}"), program.state_dict[name].tensor.detach());
        Ok(())
    };
    for pair in &adapters {
        add(&pair.path, ".lora_A.weight", &pair.a)?;
        add(&pair.path, ".lora_B.weight", &pair.b)?;
    }
    for name in program.state_dict.keys() {
        let mut modules = name.match_indices('.').map(|(i, _)| &name[..i]);
        if modules.any(|m| whole.iter().any(|w| ends_in(m, w))) {
            add(name, "", name)?;
        }
    }
    let mut config = config;
    if let Some(base) = &files.base_model {
        config.0.insert("base_model_name_or_path".to_string(), json!(base));
    }
    let (bytes, text) = (safetensors::to_bytes(tensors.iter())?, config.to_json());
    let write =
        |name: &str, bytes: &[u8]| Output::write(folder.join(name), |out| Ok(std::io::Write::write_all(out, bytes)?));
    Ok(vec![write(TENSORS, &bytes)?, write(CONFIG, text.as_bytes())?])
}

/// The configuration that a program carries, or one that says the same.
fn stored_config(program: &ExportedProgram) -> Result<Config> {
    let stored = program.extras.as_ref().and_then(|e| e.files.get(CONFIG));
    match stored {
        Some(bytes) => Config::parse(&String::from_utf8_lossy(bytes)),
        None => {
            refuse("the program does not record how its adapters were created; only those of `pass lora` can be saved")
        }
    }
}

/// Adds the adapters of a folder that PEFT or [`save_adapter`] wrote, with their values, and freezes everything else.
///
/// Module paths in the files may lack a prefix that all of the program's have, as after exporting a wrapper.
///
/// # Errors
/// If the adapters are of another kind, or do not match the program; the message lists the mismatches.
pub fn load_adapter(program: &ExportedProgram, folder: impl AsRef<Path>) -> Result<(ExportedProgram, Report)> {
    let folder = folder.as_ref();
    let config = Config::parse(&read_text(folder.join(CONFIG))?)?;
    config.check()?;
    let tensors = read_safetensors_with(folder.join(TENSORS), firebrand_io::Memory::Copied)?;
    let mut found: IndexMap<String, [Option<Tensor>; 2]> = IndexMap::new();
    let mut whole: IndexMap<String, Tensor> = IndexMap::new();
    for (name, tensor) in tensors {
        let name = name.strip_prefix(PREFIX).unwrap_or(&name).to_string();
        let part = ["lora_A", "lora_B"].iter().enumerate().find_map(|(k, p)| Some((k, module_of(&name, p)?)));
        match part {
            Some((k, path)) => found.entry(path.to_string()).or_default()[k] = Some(tensor),
            None if name.contains(".lora_") => {
                return refuse(format!("{TENSORS}: adapters such as {} are not supported", plain(&name)));
            }
            None => _ = whole.insert(name, tensor),
        }
    }
    let layers = Layers::of(program)?;
    let prefix = common_prefix(&layers, found.keys())?;
    let mut adapters = Vec::new();
    for (path, parts) in &found {
        let [Some(a), Some(b)] = parts else {
            return refuse(format!("{TENSORS}: {} has only one of lora_A and lora_B", plain(path)));
        };
        let full = format!("{prefix}{path}");
        let layer = layers.choose(Some(std::slice::from_ref(&full)))?;
        let layer = layer.into_iter().find(|l| l.path == full).ok_or_else(|| Error::Pass {
            pass: super::PASS,
            message: format!("the program has no layer {}", plain(&full)),
        })?;
        let rank = a.shape().first().copied().unwrap_or(0);
        let (wanted_a, wanted_b) = layer.shapes(rank)?;
        if a.shape() != wanted_a || b.shape() != wanted_b {
            let (fa, fb) = (a.shape(), b.shape());
            return refuse(format!(
                "{full}: expected adapters of {wanted_a:?} and {wanted_b:?}, found {fa:?} and {fb:?}"
            ));
        }
        let dtype = adapter_dtype(layer.dtype);
        let own = |t: &Tensor| -> Result<Tensor> { Ok(t.try_to_dtype(dtype)?.try_clone_tensor()?.detach()) };
        adapters.push(Adapter { layer, scaling: config.scaling(path, rank)?, a: own(a)?, b: own(b)? });
    }
    if adapters.is_empty() {
        return refuse(format!("{TENSORS} holds no adapters"));
    }
    let mut result = insert(program, &adapters, config.number("lora_dropout", 0.0), &config.modules_to_save())?;
    for (name, value) in whole {
        let full = format!("{prefix}{name}");
        let Some(state) = result.state_dict.get_mut(&full) else {
            return refuse(format!("{TENSORS}: the program has no parameter {}", plain(&full)));
        };
        if state.tensor.shape() != value.shape() {
            let (wanted, given) = (state.tensor.shape(), value.shape());
            return refuse(format!("{full}: expected a tensor of {wanted:?}, found {given:?}"));
        }
        let new = value.try_to_dtype(state.tensor.dtype())?.try_clone_tensor()?.detach();
        new.try_set_requires_grad(state.tensor.requires_grad())?;
        state.tensor = new;
    }
    keep_config(&mut result, &config);
    Ok((result, Report::of(adapters.len())))
}

/// What the program's paths have before the adapter's.
fn common_prefix<'a>(layers: &Layers, mut paths: impl Iterator<Item = &'a String> + Clone) -> Result<String> {
    let Some(first) = paths.clone().next() else { return Ok(String::new()) };
    let candidates = layers.iter().filter(|l| ends_in(&l.path, first)).map(|l| &l.path[..l.path.len() - first.len()]);
    let mut fitting: Vec<&str> =
        candidates.filter(|prefix| paths.clone().all(|p| layers.find(&format!("{prefix}{p}")).is_some())).collect();
    fitting.sort_by_key(|p| p.len());
    match fitting.first() {
        Some(prefix) => Ok(prefix.to_string()),
        None => {
            let missing = paths.find(|p| !layers.iter().any(|l| ends_in(&l.path, p))).unwrap_or(first);
            refuse(format!("{TENSORS}: the program has no linear or convolution layer {}", plain(missing)))
        }
    }
}
