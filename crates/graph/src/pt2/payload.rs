//! Weights and constants: raw storages in the archive, and a config that places tensors in them.
//!
//! One storage per file, shared by all tensors that the config places there; names that place the very same tensor get
//! one tensor, so that tied parameters are one parameter. A stored, aligned file is used in place.

use super::codes::Coded;
use super::read::Place;
use super::schema::{PayloadConfig, PayloadMeta, Sym, TensorMeta};
use super::write;
use crate::error::{Error, Result};
use crate::ir::{MemoryLayout, ScalarType};
use firebrand_core::{DType, Storage, Tensor};
use firebrand_io::{Archive, ArchiveWriter, place};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::io::Write;

/// Weights or constants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Weights,
    Constants,
}

impl Role {
    /// The folder below the root.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Role::Weights => "data/weights/",
            Role::Constants => "data/constants/",
        }
    }

    /// How names of its files begin.
    fn prefix(self) -> &'static str {
        match self {
            Role::Weights => "weight_",
            Role::Constants => "tensor_",
        }
    }

    /// The config of a model.
    pub(super) fn config(self, root: &str, model: &str) -> String {
        let what = if self == Role::Weights { "weights" } else { "constants" };
        format!("{root}{}{model}_{what}_config.json", self.folder())
    }
}

/// Where a tensor lies: file or storage, element type, offset, sizes, strides.
type Placement<S> = (S, DType, usize, Vec<usize>, Vec<usize>);

/// Reads payloads of one folder.
pub(super) struct Payloads<'a> {
    archive: &'a Archive,
    folder: String,
    role: Role,
    storages: HashMap<(String, bool), Storage>,
    tensors: HashMap<Placement<String>, Tensor>,
}

/// Sizes, strides and offsets of stored tensors are plain numbers.
fn plain(list: &[Sym<i64>]) -> Result<Vec<usize>, String> {
    let one = |s: &Sym<i64>| match s {
        Sym::Known(v) if *v < 0 => Err(format!("expected a size or stride, found {v}")),
        // One that no address reaches is refused as too large with the others.
        Sym::Known(v) => Ok(usize::try_from(*v).unwrap_or(usize::MAX)),
        Sym::Expr(_) => Err("a symbolic size of a stored tensor".into()),
    };
    list.iter().map(one).collect()
}

impl<'a> Payloads<'a> {
    pub(super) fn new(archive: &'a Archive, root: &str, role: Role) -> Payloads<'a> {
        let folder = format!("{root}{}", role.folder());
        Payloads { archive, folder, role, storages: HashMap::new(), tensors: HashMap::new() }
    }

    /// The tensor of one name; a message if it must be refused.
    pub(super) fn tensor(&mut self, fqn: &str, meta: &PayloadMeta) -> Result<Tensor> {
        let config = format!("{}{fqn}", self.folder);
        let refuse = |message: String| Place { entry: &config }.refuse(message);
        let Some(tensor) = &meta.tensor_meta else {
            return Err(refuse(format!("pickled payload not supported: {fqn}")));
        };
        if meta.use_pickle {
            return Err(refuse(format!("pickled payload not supported: {fqn}")));
        }
        let path = &meta.path_name;
        let number = path.strip_prefix(self.role.prefix());
        if number.is_none_or(|n| n.is_empty() || !n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')) {
            return Err(refuse(format!("expected a file name like {}0, found {path:?}", self.role.prefix())));
        }
        let described = describe(tensor).map_err(refuse)?;
        let (dtype, sizes, strides, offset) = described;
        let key = (path.clone(), dtype, offset, sizes, strides);
        if let Some(t) = self.tensors.get(&key) {
            return Ok(t.clone());
        }
        let storage = self.storage(path, dtype == DType::Bool)?;
        let entry = format!("{}{path}", self.folder);
        let refuse = |message: String| Place { entry: &entry }.refuse(format!("{fqn}: {message}"));
        if !storage.nbytes().is_multiple_of(dtype.size()) {
            return Err(refuse(format!("{} bytes are not a multiple of the size of {dtype}", storage.nbytes())));
        }
        let (_, _, offset, sizes, strides) = &key;
        let layout = place::layout(sizes, strides, *offset)?;
        let t = Tensor::try_from_storage(&storage, dtype, layout).map_err(|e| refuse(e.to_string()))?;
        // Only parameters require grad, whatever the file says.
        t.try_set_requires_grad(meta.is_param && tensor.requires_grad)?;
        self.tensors.insert(key, t.clone());
        Ok(t)
    }

    fn storage(&mut self, path: &str, bools: bool) -> Result<Storage> {
        if let Some(s) = self.storages.get(&(path.to_string(), bools)) {
            return Ok(s.clone());
        }
        let mut storage = self.archive.storage(&format!("{}{path}", self.folder))?;
        if bools {
            storage = place::bools(&storage)?;
        }
        self.storages.insert((path.to_string(), bools), storage.clone());
        Ok(storage)
    }
}

/// Element type, sizes, strides and offset of a stored tensor, if this build can hold it.
fn describe(meta: &TensorMeta) -> Result<(DType, Vec<usize>, Vec<usize>, usize), String> {
    let scalar = ScalarType::from_code(meta.dtype)?;
    let dtype = scalar.dtype().ok_or_else(|| format!("tensors of {scalar} are not supported"))?;
    let layout = MemoryLayout::from_code(meta.layout)?;
    if layout != MemoryLayout::Strided {
        return Err(format!("tensors in the layout {layout} are not supported"));
    }
    let offset = plain(std::slice::from_ref(&meta.storage_offset))?[0];
    Ok((dtype, plain(&meta.sizes)?, plain(&meta.strides)?, offset))
}

/// Makes one tensor of those that are the same elements of the same memory.
pub(super) fn unify<'a>(tensors: impl Iterator<Item = &'a mut Tensor>) {
    let mut seen: HashMap<Placement<usize>, Tensor> = HashMap::new();
    for t in tensors {
        let storage = t.untyped_storage().addr();
        let key = (storage, t.dtype(), t.layout().offset(), t.shape().to_vec(), t.strides().to_vec());
        *t = seen.entry(key).or_insert_with(|| t.clone()).clone();
    }
}

/// A tensor to write, and whether it is a parameter.
pub(super) type Payload<'a> = (&'a str, &'a Tensor, bool);

/// Writes the storages of these tensors, one file per storage and element type, and their config.
pub(super) fn write<W: Write>(
    out: &mut ArchiveWriter<W>,
    root: &str,
    model: &str,
    role: Role,
    tensors: &[Payload<'_>],
) -> Result<()> {
    // Groups in order of first appearance.
    let mut groups: IndexMap<(usize, DType), Vec<Payload<'_>>> = IndexMap::new();
    for payload in tensors {
        let key = (payload.1.untyped_storage().addr(), payload.1.dtype());
        groups.entry(key).or_default().push(*payload);
    }
    let mut config = PayloadConfig::default();
    for (k, group) in groups.into_values().enumerate() {
        let path_name = format!("{}{k}", role.prefix());
        let storage = group[0].1.untyped_storage();
        // The last element may be cut off where the memory is longer than whole elements.
        let whole = storage.nbytes() / group[0].1.dtype().size() * group[0].1.dtype().size();
        out.add_stream(&format!("{root}{}{path_name}", role.folder()), whole as u64, |out| {
            write_bytes(out, &storage, whole)
        })?;
        for (fqn, t, is_param) in group {
            let meta = write::tensor_meta(&crate::ir::TensorMeta::of(t));
            let meta =
                PayloadMeta { path_name: path_name.clone(), is_param, use_pickle: false, tensor_meta: Some(meta) };
            config.config.insert(fqn.to_string(), meta);
        }
    }
    let text = serde_json::to_string(&config).map_err(|e| Error::Value(e.to_string()))?;
    Ok(out.add(&role.config(root, model), text.as_bytes())?)
}

/// Streams memory in pieces.
fn write_bytes(out: &mut dyn Write, storage: &Storage, nbytes: usize) -> firebrand_io::Result<()> {
    const PIECE: usize = 1 << 20;
    for start in (0..nbytes).step_by(PIECE) {
        let layout = place::layout(&[PIECE.min(nbytes - start)], &[1], start)?;
        out.write_all(&Tensor::try_from_storage(storage, DType::U8, layout)?.try_to_vec::<u8>()?)?;
    }
    Ok(())
}
