//! Files written by `torch.save`: tensors, numbers, text and plain containers of them.
//!
//! The pickle inside is read as data: nothing is imported or executed, whatever it says (see `pickle.rs`). Tensors that
//! share a storage in the file share it here; a storage has one element type, as PyTorch's writer ensures. Everything
//! else, such as whole modules, is an error that names it.

mod pickle;
mod write;

pub use write::{stage_torch_save, torch_object_to_bytes, write_torch_object, write_torch_save};

use crate::{Archive, Budget, Error, ReadOptions, Result, place};
use firebrand_core::{DType, Storage, Tensor};
use indexmap::IndexMap;
use pickle::{Arena, Builder, Id, Node};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// How deep containers may nest.
const DEPTH: usize = 128;
/// Limit of the pickle itself; the tensors lie beside it.
const PICKLE_LIMIT: u64 = 1 << 28;
/// What a tensor costs besides its elements.
const TENSOR: u64 = 1 << 10;

/// Plain data.
#[derive(Clone, Debug)]
pub enum Object {
    /// `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(String),
    /// A tuple.
    Tuple(Vec<Object>),
    /// A list.
    List(Vec<Object>),
    /// A dictionary (also an ordered one), in its order.
    Dict(Vec<(Object, Object)>),
    /// A tensor; a parameter is one that requires grad.
    Tensor(Tensor),
}

impl Object {
    /// The tensors of a dictionary by name, as in a `state_dict()`. Other values are an error.
    pub fn into_tensors(self) -> Result<IndexMap<String, Tensor>> {
        let refuse = |reason: String| Err(Error::Pickle { at: 0, reason });
        let Object::Dict(items) = self else {
            return refuse("expected a dictionary of tensors".into());
        };
        let mut tensors = IndexMap::new();
        for (key, value) in items {
            match (key, value) {
                (Object::Str(name), Object::Tensor(t)) => {
                    tensors.insert(name, t);
                }
                (Object::Str(name), _) => return refuse(format!("the value of {name:?} is not a tensor")),
                _ => return refuse("a key that is not the name of a tensor".into()),
            }
        }
        Ok(tensors)
    }
}

/// Reads a file that `torch.save` wrote.
pub fn read_torch_save(path: impl AsRef<Path>) -> Result<Object> {
    let path = path.as_ref();
    Archive::open(path).and_then(|a| from_archive(&a)).map_err(|e| match e {
        e @ Error::File { .. } => e,
        e => e.in_file(path),
    })
}

/// Reads the content of a file that `torch.save` wrote.
pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Object> {
    from_archive(&Archive::from_bytes(bytes)?)
}

/// Like [`from_bytes`], with options.
pub fn from_bytes_with(bytes: impl Into<Arc<[u8]>>, options: ReadOptions) -> Result<Object> {
    from_archive(&Archive::from_bytes_with(bytes, options)?)
}

/// The content of an archive written by `torch.save`; see [`Archive::inner`] for one inside another.
pub fn from_archive(archive: &Archive) -> Result<Object> {
    let pickle = archive
        .names()
        .find(|n| *n == "data.pkl" || n.ends_with("/data.pkl"))
        .ok_or_else(|| Error::MissingEntry { name: "data.pkl".into() })?;
    let root = pickle.strip_suffix("data.pkl").expect("the name was found by its end");
    let order = format!("{root}byteorder");
    if archive.contains(&order) && &*archive.read_text(&order, 64)? != "little" {
        return Err(Error::Damaged { reason: "only little-endian files are supported".into() }.in_entry(&order));
    }
    let bytes = archive.read(pickle, PICKLE_LIMIT)?;
    let mut builder = Tensors { archive, root, storages: HashMap::new() };
    let budget = archive.budget();
    let (arena, result) = pickle::run(&bytes, &mut builder, budget).map_err(|e| e.in_entry(pickle))?;
    unfold(&arena, result, 0, budget).map_err(|reason| Error::Pickle { at: bytes.len(), reason }.in_entry(pickle))
}

/// Takes a value out of the arena. A memo lets a short pickle describe a huge tree, so every value is paid for again.
fn unfold(arena: &Arena<Leaf>, id: Id, depth: usize, budget: &Budget) -> Result<Object, String> {
    if depth > DEPTH {
        return Err(format!("containers nest deeper than {DEPTH}"));
    }
    let node = arena.get(id);
    // A value in a container twice its size, and the ids it came from.
    const VALUE: u64 = 2 * size_of::<Object>() as u64 + 16;
    let text = if let Node::Str(s) = node { s.len() as u64 } else { 0 };
    budget.take(VALUE + text).map_err(|_| "shared values unfold to more than the file justifies")?;
    let all = |ids: &[Id]| ids.iter().map(|&i| unfold(arena, i, depth + 1, budget)).collect::<Result<Vec<_>, _>>();
    Ok(match node {
        Node::None => Object::None,
        Node::Bool(b) => Object::Bool(*b),
        Node::Int(i) => Object::Int(*i),
        Node::Float(f) => Object::Float(*f),
        Node::Str(s) => Object::Str(s.clone()),
        Node::Tuple(items) => Object::Tuple(all(items)?),
        Node::List(items) => Object::List(all(items)?),
        Node::Dict(items) => {
            let keys = all(&items.iter().map(|p| p.0).collect::<Vec<_>>())?;
            let values = all(&items.iter().map(|p| p.1).collect::<Vec<_>>())?;
            Object::Dict(keys.into_iter().zip(values).collect())
        }
        Node::Leaf(Leaf::Tensor(t)) => Object::Tensor(t.clone()),
        Node::Leaf(Leaf::Storage { .. }) => return Err("a bare storage is not plain data".into()),
        Node::Global(name) => return Err(format!("`{name}` itself is not plain data")),
    })
}

#[derive(Clone)]
enum Leaf {
    Storage { dtype: DType, storage: Storage },
    Tensor(Tensor),
}

/// Rebuilds tensors over the storages of an archive.
struct Tensors<'a> {
    archive: &'a Archive,
    root: &'a str,
    storages: HashMap<String, (DType, Storage)>,
}

fn storage_dtype(global: &str) -> Option<DType> {
    let class = global.strip_prefix("torch.")?.strip_suffix("Storage")?;
    DType::ALL.into_iter().find(|d| d.class() == class)
}

const REBUILD_TENSOR: &str = "torch._utils._rebuild_tensor_v2";
const REBUILD_PARAMETER: &str = "torch._utils._rebuild_parameter";
const ORDERED_DICT: &str = "collections.OrderedDict";

impl Builder for Tensors<'_> {
    type Leaf = Leaf;

    fn knows(&self, global: &str) -> bool {
        [REBUILD_TENSOR, REBUILD_PARAMETER, ORDERED_DICT].contains(&global) || storage_dtype(global).is_some()
    }

    fn call(&mut self, arena: &Arena<Leaf>, global: &str, args: &[Id]) -> Result<Node<Leaf>, String> {
        let wants_grad = |id: Id| matches!(arena.get(id), Node::Bool(true));
        let tensor = |t: Tensor, grad: bool| -> Result<Node<Leaf>, String> {
            t.try_set_requires_grad(grad).map_err(|e| e.to_string())?;
            Ok(Node::Leaf(Leaf::Tensor(t)))
        };
        match (global, args) {
            (ORDERED_DICT, []) => Ok(Node::Dict(Vec::new())),
            (REBUILD_TENSOR, [storage, offset, sizes, strides, grad, ..]) => {
                let Node::Leaf(Leaf::Storage { dtype, storage }) = arena.get(*storage) else {
                    return Err("a tensor is rebuilt from a storage".into());
                };
                let offset = usize::try_from(arena.int(*offset)?).map_err(|_| "a negative offset")?;
                let (sizes, strides) = (arena.sizes(*sizes)?, arena.sizes(*strides)?);
                let layout = place::layout(&sizes, &strides, offset).map_err(|e| e.to_string())?;
                self.archive.budget().take(TENSOR).map_err(|e| e.to_string())?;
                let t = Tensor::try_from_storage(storage, *dtype, layout).map_err(|e| e.to_string())?;
                tensor(t, wants_grad(*grad))
            }
            (REBUILD_PARAMETER, [data, grad, ..]) => match arena.get(*data) {
                Node::Leaf(Leaf::Tensor(t)) => tensor(t.clone(), wants_grad(*grad)),
                _ => Err("a parameter is rebuilt from a tensor".into()),
            },
            _ => Err(format!("`{global}` cannot be called with {} arguments", args.len())),
        }
    }

    fn persistent(&mut self, arena: &Arena<Leaf>, id: Id) -> Result<Node<Leaf>, String> {
        let [kind, class, key, _device, count] = arena.items(id)? else {
            return Err("expected a persistent id with five parts".into());
        };
        let Node::Global(class) = arena.get(*class) else { return Err("expected a storage class".into()) };
        if arena.str(*kind)? != "storage" {
            return Err("only storages are kept outside the pickle".into());
        }
        let dtype = storage_dtype(class).ok_or_else(|| format!("`{class}` is not a storage class"))?;
        let (key, count) = (arena.str(*key)?, arena.int(*count)?);
        let storage = match self.storages.get(key) {
            Some((known, storage)) if *known == dtype => storage.clone(),
            // Two types over one memory; PyTorch refuses to write that.
            Some((known, _)) => return Err(format!("storage {key} has two dtypes, {known} and {dtype}")),
            None => {
                let entry = format!("{}data/{key}", self.root);
                let mut storage = self.archive.storage(&entry).map_err(|e| e.to_string())?;
                if dtype == DType::Bool {
                    self.archive.budget().take(2 * storage.nbytes() as u64).map_err(|e| e.to_string())?;
                    storage = place::bools(&storage).map_err(|e| e.to_string())?;
                }
                self.archive.budget().take(TENSOR).map_err(|e| e.to_string())?;
                self.storages.insert(key.to_string(), (dtype, storage.clone()));
                storage
            }
        };
        let needed = usize::try_from(count).ok().and_then(|n| n.checked_mul(dtype.size()));
        if needed.is_none_or(|n| n > storage.nbytes()) {
            return Err(format!(
                "storage {key} holds {} bytes, {count} elements of {dtype} are claimed",
                storage.nbytes()
            ));
        }
        Ok(Node::Leaf(Leaf::Storage { dtype, storage }))
    }
}
