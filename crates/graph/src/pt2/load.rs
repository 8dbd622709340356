//! Reading archives: the current layout, and the two layouts of older releases.

use super::check::{check_signature, check_state, complete_ranges};
use super::payload::{self, Payloads, Role};
use super::read::{self, Place};
use super::schema::{self, MAJOR, MINOR, PayloadConfig};
use super::{Extras, signature};
use crate::error::{Error, Result};
use crate::program::{Constant, Dialect, ExportedProgram, State, ValueRange};
use crate::signature::InputKind;
use crate::verify::verify_module;
use firebrand_core::{Tensor, TensorMap};
use firebrand_io::{Archive, Memory, ReadOptions, torch_save};
use indexmap::IndexMap;
use std::path::Path;
use std::sync::Arc;

/// The largest JSON entry.
const JSON_LIMIT: u64 = 256 << 20;
/// The largest pickled entry.
const PICKLE_LIMIT: u64 = 1 << 30;
/// The largest version or marker file.
const MARKER_LIMIT: u64 = 64;
/// Container versions that exist.
const CONTAINER_VERSIONS: std::ops::RangeInclusive<i64> = 1..=10;

/// What to load, and how carefully.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Which model to load, if the archive holds several.
    pub model: Option<String>,
    /// Whether to read the state; without it, programs with unsupported tensors can be inspected.
    pub state: bool,
    /// Whether unsupported ops are an error.
    pub refuse_unsupported: bool,
    /// Whether to verify the checksums of weights, which reads all of them once.
    pub check_weights: bool,
    /// Whether weights are memory-mapped, or copied for files that others may write to.
    pub memory: Memory,
    /// Memory that loading may use beyond [`firebrand_io::FACTOR`] times the length of the file.
    pub spare: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            model: None,
            state: true,
            refuse_unsupported: true,
            check_weights: true,
            memory: Memory::Mapped,
            spare: firebrand_io::SPARE,
        }
    }
}

impl LoadOptions {
    /// Options for inspection: everything but the state, with unsupported ops allowed.
    pub fn structure() -> LoadOptions {
        LoadOptions { state: false, refuse_unsupported: false, ..LoadOptions::default() }
    }

    fn archive(&self) -> ReadOptions {
        let LoadOptions { check_weights: check_storages, memory, spare, .. } = *self;
        ReadOptions { check_storages, memory, spare, ..ReadOptions::default() }
    }
}

impl ExportedProgram {
    /// Reads a `.pt2` file. Weights are memory-mapped: they cost nothing until they are written. The file must not be changed or
    /// truncated in place meanwhile; with [`LoadOptions::memory`] they can be copied instead.
    pub fn load(path: impl AsRef<Path>) -> Result<ExportedProgram> {
        ExportedProgram::load_with(path, &LoadOptions::default())
    }

    /// Like [`ExportedProgram::load`], with options.
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<ExportedProgram> {
        from_archive(&Archive::open_with(path, options.archive())?, options)
    }

    /// Reads the content of a `.pt2` file.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<ExportedProgram> {
        ExportedProgram::from_bytes_with(bytes, &LoadOptions::default())
    }

    /// Like [`ExportedProgram::from_bytes`], with options.
    pub fn from_bytes_with(bytes: impl Into<Arc<[u8]>>, options: &LoadOptions) -> Result<ExportedProgram> {
        from_archive(&Archive::from_bytes_with(bytes, options.archive())?, options)
    }
}

fn refuse<T>(entry: &str, message: impl Into<String>) -> Result<T> {
    Err(Place { entry }.refuse(message))
}

fn from_archive(archive: &Archive, options: &LoadOptions) -> Result<ExportedProgram> {
    let program =
        if archive.contains(OLD_PROGRAM) { from_old_layout(archive, options)? } else { from_root(archive, options)? };
    let targets = program.unsupported();
    if options.refuse_unsupported && !targets.is_empty() {
        return Err(Error::Unsupported { targets });
    }
    Ok(program)
}

// ---- the layout since release 2.8

fn from_root(archive: &Archive, options: &LoadOptions) -> Result<ExportedProgram> {
    let first = archive.names().next().unwrap_or_default();
    let root = match first.split_once('/') {
        Some((root, _)) if !archive.contains("archive_format") => format!("{root}/"),
        _ => String::new(),
    };
    if let Some(stray) = archive.names().find(|n| !n.starts_with(&root)) {
        return refuse(stray, format!("entries are under different roots; expected {root:?}"));
    }
    let marker = |name: &str| -> Result<String> {
        Ok(archive.read_text(&format!("{root}{name}"), MARKER_LIMIT)?.trim_end().to_string())
    };
    if marker("archive_format")? != "pt2" {
        return refuse("archive_format", "only `pt2` archives hold programs");
    }
    let version = marker("archive_version")?;
    if version != "0" {
        return refuse("archive_version", format!("expected version 0, found {version}"));
    }
    let container = marker(".data/version")?;
    if !container.parse::<i64>().is_ok_and(|v| CONTAINER_VERSIONS.contains(&v)) {
        return refuse(".data/version", format!("container version {container:?} is not supported"));
    }
    if archive.contains(&format!("{root}byteorder")) {
        let order = marker("byteorder")?;
        if order != "little" {
            return refuse("byteorder", format!("{order}-endian archives are not supported"));
        }
    }
    let model = choose_model(archive, &root, options)?;
    let entry = format!("{root}models/{model}.json");
    let source = parse::<schema::Program>(archive, &entry)?;
    let mut program = structure(Place { entry: &entry }, source)?;

    let mut extras = program.extras.take().map(Arc::unwrap_or_clone).unwrap_or_default();
    for name in archive.names() {
        if let Some(file) = name.strip_prefix(&root).and_then(|n| n.strip_prefix("extra/")) {
            extras.files.insert(file.to_string(), owned(archive, name)?);
        }
    }
    let samples = format!("{root}data/sample_inputs/{model}.pt");
    if archive.contains(&samples) {
        extras.sample_inputs = owned(archive, &samples)?;
    }
    program.extras = Some(Arc::new(extras));
    if options.state {
        for role in [Role::Weights, Role::Constants] {
            let pickled = format!("{root}{}{model}.pt", role.folder());
            let tensors = if archive.contains(&pickled) {
                from_pickle(archive, &pickled)?
            } else {
                from_config(archive, &root, &model, role)?
            };
            place_state(&mut program, role, tensors)?;
        }
        check_state(&program, Place { entry: &entry })?;
    }
    Ok(program)
}

/// A file of the archive as memory of its own.
fn owned(archive: &Archive, name: &str) -> Result<Vec<u8>> {
    let content = archive.read(name, PICKLE_LIMIT)?;
    archive.budget().take(content.len() as u64)?;
    Ok(content.into_owned())
}

fn choose_model(archive: &Archive, root: &str, options: &LoadOptions) -> Result<String> {
    let names: Vec<&str> = archive
        .names()
        .filter_map(|n| n.strip_prefix(root)?.strip_prefix("models/")?.strip_suffix(".json"))
        .filter(|n| !n.contains('/'))
        .collect();
    match (&options.model, &names[..]) {
        (Some(wanted), names) if names.contains(&wanted.as_str()) => Ok(wanted.clone()),
        (None, [only]) => Ok(only.to_string()),
        (None, names) if names.contains(&"model") => Ok("model".to_string()),
        (_, []) => refuse("models/", "the archive holds no program"),
        (_, names) => {
            refuse("models/", format!("the archive holds several programs; choose one of {}", names.join(", ")))
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(archive: &Archive, entry: &str) -> Result<T> {
    let text = archive.read_json(entry, JSON_LIMIT)?;
    serde_json::from_str(&text).or_else(|e| refuse(entry, e.to_string()))
}

/// A tensor of a file, and whether it is a parameter.
type Tensors = IndexMap<String, (Tensor, bool)>;

fn from_config(archive: &Archive, root: &str, model: &str, role: Role) -> Result<Tensors> {
    let config: PayloadConfig = parse(archive, &role.config(root, model))?;
    let mut payloads = Payloads::new(archive, root, role);
    let mut tensors = Tensors::new();
    for (fqn, meta) in &config.config {
        tensors.insert(fqn.clone(), (payloads.tensor(fqn, meta)?, meta.is_param));
    }
    Ok(tensors)
}

fn from_pickle(archive: &Archive, entry: &str) -> Result<Tensors> {
    let bytes = owned(archive, entry)?;
    if bytes.is_empty() {
        return Ok(Tensors::new());
    }
    let tensors = archive.inner(bytes).and_then(|a| torch_save::from_archive(&a)?.into_tensors());
    let mut tensors = tensors.map_err(|e| e.in_entry(entry))?;
    payload::unify(tensors.values_mut());
    Ok(tensors.into_iter().map(|(name, t)| (name, (t.clone(), t.requires_grad()))).collect())
}

fn place_state(program: &mut ExportedProgram, role: Role, tensors: Tensors) -> Result<()> {
    let inputs = program.signature.iter().flat_map(|s| &s.inputs);
    let kinds: std::collections::HashMap<String, bool> = inputs
        .filter_map(|i| Some((i.kind.target()?.to_string(), matches!(i.kind, InputKind::Parameter(_)))))
        .collect();
    for (fqn, (tensor, is_param)) in tensors {
        if fqn.chars().any(char::is_control) {
            return refuse(role.folder(), format!("the name {fqn:?} has control characters"));
        }
        match role {
            Role::Weights => {
                let is_parameter = kinds.get(&fqn).copied().unwrap_or(is_param);
                program.state_dict.insert(fqn, State { tensor, is_parameter });
            }
            Role::Constants => _ = program.constants.insert(fqn, Constant::Tensor(tensor)),
        }
    }
    // Only parameters require grad; a pickled buffer may say otherwise.
    let mut parameters = TensorMap::new();
    program.parameters().for_each(|(_, t)| _ = parameters.insert(t, ()));
    for (_, buffer) in program.buffers().filter(|(_, t)| t.requires_grad()) {
        if !parameters.contains(buffer) {
            buffer.try_set_requires_grad(false)?;
        }
    }
    Ok(())
}

// ---- releases up to 2.7

const OLD_PROGRAM: &str = "serialized_exported_program.json";

fn from_old_layout(archive: &Archive, options: &LoadOptions) -> Result<ExportedProgram> {
    let version = archive.read_text("version", MARKER_LIMIT)?;
    if version.split('.').next() != Some("8") {
        return refuse(
            "version",
            format!("schema {version} is not supported; export the program again with PyTorch 2.5 or later"),
        );
    }
    let mut program = structure(Place { entry: OLD_PROGRAM }, parse(archive, OLD_PROGRAM)?)?;
    let mut extras = program.extras.take().map(Arc::unwrap_or_clone).unwrap_or_default();
    for name in archive.names() {
        if let Some(file) = name.strip_prefix("extra_files/") {
            extras.files.insert(file.to_string(), owned(archive, name)?);
        }
    }
    program.extras = Some(Arc::new(extras));
    if options.state {
        for (role, stem) in [(Role::Weights, "serialized_state_dict"), (Role::Constants, "serialized_constants")] {
            // The oldest files have another ending, not another content.
            let entry = [".pt", ".json"].map(|end| format!("{stem}{end}")).into_iter().find(|e| archive.contains(e));
            let entry = entry.unwrap_or_else(|| format!("{stem}.pt"));
            let tensors = from_pickle(archive, &entry)?;
            place_state(&mut program, role, tensors)?;
        }
        check_state(&program, Place { entry: OLD_PROGRAM })?;
    }
    Ok(program)
}

// ---- both

/// The program without its state.
fn structure(place: Place<'_>, source: schema::Program) -> Result<ExportedProgram> {
    let version = source.schema_version;
    if version.major != MAJOR && (version.major, version.minor) != (0, 0) {
        return Err(place.refuse(format!(
            "schema {}.{} of PyTorch {} is not supported; expected {MAJOR}.x up to about {MAJOR}.{MINOR}",
            version.major, version.minor, source.torch_version
        )));
    }
    warn_of_devices(&source.graph_module.graph);
    let names = signature::constant_names(&source.graph_module.signature);
    let module = read::module(place, &source.graph_module.graph, &names)?;
    let signature = signature::read(place, &source.graph_module.signature)?;
    verify_module(&module).map_err(|v| place.refuse(v.to_string()))?;
    let mut program = ExportedProgram {
        range_constraints: source
            .range_constraints
            .iter()
            .map(|(name, r)| (name.clone(), ValueRange { min: r.min_val, max: r.max_val }))
            .collect(),
        module_call_graph: signature::read_calls(place, &source.graph_module.module_call_graph)?,
        dialect: if source.verifiers.iter().any(|v| v == "ATEN") { Dialect::Aten } else { Dialect::Training },
        guards_code: source.guards_code,
        extras: Some(Arc::new(Extras {
            torch_version: source.torch_version,
            opset_version: source.opset_version,
            metadata: source.graph_module.metadata,
            namedtuple_fields: source.graph_module.treespec_namedtuple_fields,
            other: source.other,
            ..Extras::default()
        })),
        ..ExportedProgram::new(module, Some(signature))
    };
    check_signature(&program, place)?;
    complete_ranges(&mut program);
    Ok(program)
}

/// Warns once that a program of another device runs on the CPU.
fn warn_of_devices(graph: &schema::Graph) {
    let other = graph.tensor_values.values().map(|m| &m.device.kind).find(|d| *d != "cpu" && *d != "meta");
    if let Some(device) = other {
        firebrand_core::warn(format!("the program was exported for the device {device:?}; it runs on the CPU here"));
    }
}
