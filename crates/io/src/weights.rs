//! Named tensors from any file that models are stored in: safetensors (one file, or shards with their index), `torch.save`,
//! npz. Which it is shows in its content, not in its name.

use crate::npz::Tensors;
use crate::{
    Archive, Error, Memory, Result, open_regular, plain, read_npz, read_safetensors_with, read_text, torch_save,
};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// Reads the tensors of a model by name. A `.json` file is the index of safetensors shards beside it.
pub fn read_weights(path: impl AsRef<Path>, memory: Memory) -> Result<Tensors> {
    let path = path.as_ref();
    let (mut file, _) = open_regular(path)?;
    let mut first = [0; 9];
    let known = file.read(&mut first)?;
    drop(file);
    match &first[..known] {
        [b'P', b'K', ..] => {
            let archive = Archive::open(path)?;
            if archive.names().any(|n| n == "data.pkl" || n.ends_with("/data.pkl")) {
                return torch_save::from_archive(&archive).and_then(state_dict).map_err(|e| e.in_file(path));
            }
            drop(archive);
            read_npz(path)
        }
        // A header's length, then the header, which is JSON.
        [_, _, _, _, _, _, _, _, b'{'] => read_safetensors_with(path, memory),
        [b'{', ..] | [b' ' | b'\n' | b'\t' | b'\r', ..] => read_shards(path, memory),
        _ => {
            let expected = "a .safetensors file, the index of its shards, an .npz or a torch.save file";
            Err(Error::UnknownFormat { expected }.in_file(path))
        }
    }
}

/// The tensors of a state dictionary, also of one inside a checkpoint under a usual name.
fn state_dict(mut object: torch_save::Object) -> Result<Tensors> {
    if let torch_save::Object::Dict(items) = &mut object {
        let usual = |key: &torch_save::Object| matches!(key, torch_save::Object::Str(s) if matches!(s.as_str(), "state_dict" | "model_state_dict" | "model"));
        let inner = items.iter().position(|(k, v)| usual(k) && matches!(v, torch_save::Object::Dict(_)));
        if let Some(k) = inner {
            object = items.swap_remove(k).1;
        }
    }
    object.into_tensors()
}

/// The shards that an index names, each once.
fn read_shards(path: &Path, memory: Memory) -> Result<Tensors> {
    let refuse = |reason: String| Error::Damaged { reason }.in_file(path);
    let index: Value =
        serde_json::from_str(&read_text(path)?).map_err(|e| refuse(format!("the index is not JSON: {e}")))?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(refuse("the index has no weight_map, which says where each tensor is".to_string()));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut tensors = Tensors::new();
    let mut read: Vec<&str> = Vec::new();
    for (name, shard) in map {
        let Some(shard) = shard.as_str() else {
            return Err(refuse(format!("the location of {} is not the name of a file", plain(name))));
        };
        // Shards lie beside their index and nowhere else.
        if Path::new(shard).components().count() != 1 || shard.starts_with('.') || shard.contains(['/', '\\']) {
            return Err(refuse(format!("{} is not the name of a file next to the index", plain(shard))));
        }
        if !read.contains(&shard) {
            read.push(shard);
            tensors.extend(read_safetensors_with(folder.join(shard), memory)?);
        }
        if !tensors.contains_key(name) {
            return Err(refuse(format!("{} is not in {}", plain(name), plain(shard))));
        }
    }
    Ok(tensors)
}
