//! Large checkpoints: tensors in several `.safetensors` files beside the checkpoint, which names them.
//!
//! Parts are written first, under names that the current checkpoint does not use; replacing the checkpoint makes them count. So
//! there is always a complete one, and it never mixes parts of two.

use super::checkpoint::refused;
use firebrand_core::{DType, Error, Result, Tensor};
use firebrand_io::plain;
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

/// The tensor that lists the parts, as JSON.
const PARTS: &str = "parts.json";

/// Moves tensors into parts of at most `limit` bytes each, as far as single tensors allow, if all together have more. What is left in `tensors` is the content of
/// the checkpoint. Names for which `stays` is true remain in it.
pub(super) fn write_parts(
    path: &Path,
    tensors: &mut IndexMap<String, Tensor>,
    stays: impl Fn(&str) -> bool,
    limit: u64,
) -> Result<()> {
    let bytes = |t: &Tensor| (t.numel() * t.dtype().size()) as u64;
    if tensors.values().map(bytes).sum::<u64>() <= limit {
        return Ok(());
    }
    let (left, moved): (IndexMap<_, _>, IndexMap<_, _>) =
        std::mem::take(tensors).into_iter().partition(|(n, _)| stays(n));
    let mut parts: Vec<(u64, Vec<(String, Tensor)>)> = Vec::new();
    for (name, t) in moved {
        let size = bytes(&t);
        match parts.last_mut().filter(|(so_far, _)| so_far + size <= limit) {
            Some((so_far, list)) => {
                *so_far += size;
                list.push((name, t));
            }
            None => parts.push((size, vec![(name, t)])),
        }
    }
    let used = current(path)?;
    let generation = (0..2).find(|g| !used.iter().any(|name| *name == part_name(path, *g, 0, used.len())));
    let generation = generation.unwrap_or(0);
    let names: Vec<String> = (0..parts.len()).map(|k| part_name(path, generation, k, parts.len())).collect();
    for (name, (_, list)) in names.iter().zip(&parts) {
        let file = path.with_file_name(name);
        firebrand_io::write_safetensors(file, list.iter().map(|(n, t)| (n, t))).map_err(Error::user)?;
    }
    *tensors = left;
    let list = serde_json::to_vec(&names).map_err(|e| refused(path, e))?;
    tensors.insert(PARTS.into(), Tensor::new(&list));
    Ok(())
}

/// Adds the tensors of the parts to those of a checkpoint.
pub(super) fn read_parts(path: &Path, tensors: &mut IndexMap<String, Tensor>) -> Result<()> {
    for name in listed(path, tensors)? {
        let part = firebrand_io::read_safetensors(path.with_file_name(&name)).map_err(Error::user)?;
        for (key, t) in part {
            if tensors.contains_key(&key) {
                return Err(refused(path, format!("`{}` is in two of its parts", plain(&key))));
            }
            tensors.insert(key, t);
        }
    }
    tensors.shift_remove(PARTS);
    Ok(())
}

/// Removes parts that the checkpoint does not name: those of the one before, or of a run that was killed while it wrote.
pub(super) fn remove_unused(path: &Path) -> Result<()> {
    let used = current(path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_path_buf);
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        if let Some(name) = entry.file_name().to_str()
            && is_part(path, name)
            && !used.iter().any(|u| u == name)
        {
            // It takes room, and does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The parts of the checkpoint that is there now.
fn current(path: &Path) -> Result<Vec<String>> {
    match path.exists() {
        true => listed(path, &firebrand_io::read_safetensors(path).map_err(Error::user)?),
        false => Ok(Vec::new()),
    }
}

/// The parts that a checkpoint names. They lie beside it and nowhere else.
fn listed(path: &Path, tensors: &IndexMap<String, Tensor>) -> Result<Vec<String>> {
    let Some(list) = tensors.get(PARTS) else { return Ok(Vec::new()) };
    if list.dtype() != DType::U8 {
        return Err(refused(path, format!("`{PARTS}` holds {} where bytes are expected", list.dtype())));
    }
    let names: Vec<String> = serde_json::from_slice(&list.try_to_vec::<u8>()?).map_err(|e| refused(path, e))?;
    match names.iter().find(|name| !is_part(path, name)) {
        Some(name) => Err(refused(path, format!("{} is not the name of a part of this checkpoint", plain(name)))),
        None => Ok(names),
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// `checkpoint-0-00001-of-00003.safetensors`.
fn part_name(path: &Path, generation: usize, k: usize, of: usize) -> String {
    format!("{}-{generation}-{:05}-of-{of:05}.safetensors", stem(path), k + 1)
}

fn is_part(path: &Path, name: &str) -> bool {
    let rest = name.strip_prefix(&stem(path)).and_then(|r| r.strip_suffix(".safetensors"));
    let Some([generation, k, word, of]) = rest
        .and_then(|r| r.strip_prefix('-'))
        .map(|r| r.split('-').collect::<Vec<_>>())
        .and_then(|fields| <[&str; 4]>::try_from(fields).ok())
    else {
        return false;
    };
    let digits = |s: &str| s.len() >= 5 && s.bytes().all(|b| b.is_ascii_digit());
    matches!(generation, "0" | "1") && digits(k) && word == "of" && digits(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let path = Path::new("runs/checkpoint.safetensors");
        assert_eq!(part_name(path, 1, 0, 3), "checkpoint-1-00001-of-00003.safetensors");
        assert!(is_part(path, &part_name(path, 0, 11, 12)));
        for name in [
            "checkpoint.safetensors",
            "checkpoint-1-00001-of-00003",
            "checkpoint-2-00001-of-00003.safetensors",
            "checkpoint-1-1-of-3.safetensors",
            "checkpoint-1-00001-of-00003-x.safetensors",
            "../checkpoint-1-00001-of-00003.safetensors",
            "checkpoint-1-00001-of-/0003.safetensors",
            "model-1-00001-of-00003.safetensors",
        ] {
            assert!(!is_part(path, name), "{name}");
        }
    }
}
