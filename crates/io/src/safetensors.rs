//! Named tensors in one `.safetensors` file.
//!
//! A file is memory-mapped and its tensors point into it: nothing is copied until it is written (and then by the system, a page at
//! a time, in memory of this process only); see [`Memory`]. The header is copied first and checked by the `safetensors`
//! crate: offsets lie inside the file, follow each other without gaps and agree with shapes and dtypes.

use crate::npz::Tensors;
use crate::{Budget, Error, Memory, Output, Result, elements, open_regular, read_regular};
use firebrand_core::{DType, Layout, MappedFile, Storage, Tensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

fn refuse(reason: impl ToString) -> Error {
    Error::Safetensors { reason: reason.to_string() }
}

/// The largest header, as the format has it.
const HEADER_LIMIT: u64 = 100_000_000;
/// What a tensor costs besides its elements.
const TENSOR: u64 = 1 << 10;

/// Reads every tensor of a `.safetensors` file, memory-mapped.
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<Tensors> {
    read_safetensors_with(path, Memory::Mapped)
}

/// Like [`read_safetensors`], with tensors in the mapped file or copied into memory.
pub fn read_safetensors_with(path: impl AsRef<Path>, memory: Memory) -> Result<Tensors> {
    let path = path.as_ref();
    if memory == Memory::Copied {
        return from_bytes(&read_regular(path)?).map_err(|e| e.in_file(path));
    }
    let (file, length) = open_regular(path)?;
    let read = || -> Result<Tensors> {
        let file = MappedFile::new(file)?;
        let pages = file.copy_on_write()?;
        place(file.bytes(), &Budget::for_input(length), |range| pages.storage(range))
    };
    read().map_err(|e| e.in_file(path))
}

/// Reads the content of a `.safetensors` file.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensors> {
    from_bytes_within(bytes, &Budget::for_input(bytes.len() as u64))
}

/// Like [`from_bytes`], within the caller's budget.
pub fn from_bytes_within(bytes: &[u8], budget: &Budget) -> Result<Tensors> {
    place(bytes, budget, |_| None)
}

/// Length and content of the header. Its text is copied before it is looked at, since a mapped file may change.
fn header(bytes: &[u8], budget: &Budget) -> Result<(usize, Metadata)> {
    let (first, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| refuse("the file ends before its header"))?;
    let length = u64::from_le_bytes(*first);
    let text = usize::try_from(length).ok().filter(|_| length <= HEADER_LIMIT).and_then(|n| rest.get(..n));
    let text = text.ok_or_else(|| refuse(format!("a header of {length} bytes is more than the file can hold")))?;
    budget.take(length)?;
    let text = String::from_utf8(text.to_vec()).map_err(|_| refuse("the header is not valid UTF-8"))?;
    budget.take_json(&text)?;
    let metadata: Metadata = serde_json::from_str(&text).map_err(refuse)?;
    let (held, described) = (rest.len() - text.len(), metadata.data_len());
    if held != described {
        return Err(refuse(format!("the header describes {described} bytes, {held} follow it")));
    }
    Ok((text.len(), metadata))
}

/// Places tensors in what `in_place` gives for their bytes, or in copies.
fn place(bytes: &[u8], budget: &Budget, in_place: impl Fn(Range<usize>) -> Option<Storage>) -> Result<Tensors> {
    let (header, metadata) = header(bytes, budget)?;
    let start = header + 8;
    let mut tensors = Tensors::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("the names come from the header");
        let (begin, end) = info.data_offsets;
        let tensor = || -> Result<Tensor> {
            let dtype = dtype_of(info.dtype)?;
            let range = start + begin..start + end;
            let content = bytes.get(range.clone()).ok_or_else(|| refuse("an offset is outside the file"))?;
            let layout = Layout::contiguous(&info.shape).map_err(|_| Error::Shape { shape: info.shape.clone() })?;
            budget.take(TENSOR)?;
            let copied = |bytes: &[u8]| -> Result<Storage> {
                budget.take(2 * bytes.len() as u64)?;
                Ok(Storage::from_bytes(bytes).map_err(firebrand_core::Error::from)?)
            };
            // Other writers may spell `true` differently; ours is 1.
            let storage = match dtype {
                DType::Bool => copied(&content.iter().map(|&b| u8::from(b != 0)).collect::<Vec<u8>>())?,
                _ => in_place(range).map_or_else(|| copied(content), Ok)?,
            };
            Ok(Tensor::try_from_storage(&storage, dtype, layout)?)
        };
        let tensor = tensor().map_err(|e| e.in_array(&name))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Writes a `.safetensors` file atomically. Equal tensors give equal bytes.
pub fn write_safetensors<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<()> {
    stage_safetensors(path, tensors)?.commit()
}

/// Like [`write_safetensors`], without making the file visible yet.
pub fn stage_safetensors<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<Output> {
    Output::write(path, |out| write_to(out, tensors))
}

/// The content of a `.safetensors` file with these tensors.
pub fn to_bytes<'a>(tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write_to(&mut out, tensors)?;
    Ok(out)
}

fn write_to<'a>(out: &mut dyn Write, tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>) -> Result<()> {
    write_list(out, tensors.into_iter().map(|(name, t)| (name.as_ref().to_string(), t)).collect())
}

fn write_list(out: &mut dyn Write, mut list: Vec<(String, &Tensor)>) -> Result<()> {
    // Wide elements first, so that every tensor is aligned.
    list.sort_by(|(a, s), (b, t)| t.dtype().size().cmp(&s.dtype().size()).then_with(|| a.cmp(b)));
    let mut at = 0usize;
    let mut infos = Vec::with_capacity(list.len());
    let mut names = std::collections::HashSet::new();
    for (name, t) in &list {
        if !names.insert(name) {
            return Err(Error::DuplicateName { name: name.clone() });
        }
        let begin = at;
        at += t.numel() * t.dtype().size();
        infos.push((
            name.clone(),
            TensorInfo { dtype: stored_dtype(t.dtype())?, shape: t.shape().to_vec(), data_offsets: (begin, at) },
        ));
    }
    let metadata = Metadata::new(None::<HashMap<String, String>>, infos).map_err(refuse)?;
    let mut header = serde_json::to_vec(&metadata).map_err(refuse)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for (name, t) in list {
        elements::write(out, t).map_err(|e| e.in_array(&name))?;
    }
    Ok(())
}

fn dtype_of(d: Dtype) -> Result<DType> {
    Ok(match d {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::C64 => DType::C64,
        other => return Err(Error::ElementType { descr: format!("{other:?}") }),
    })
}

fn stored_dtype(d: DType) -> Result<Dtype> {
    Ok(match d {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::C64 => Dtype::C64,
        // The format has no name for it.
        DType::C128 => return Err(Error::ElementType { descr: d.name().to_string() }),
    })
}
