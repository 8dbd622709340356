//! A dictionary of tensors as `torch.save` writes it: a pickle of names and places, and one file per storage beside it.
//!
//! Tensors that share memory share it in the file. What is written is plain data that `torch.load(weights_only=True)` takes.

use super::super::{ArchiveWriter, Error, Output, Result, elements};
use firebrand_core::Tensor;
use std::io::Write;
use std::path::Path;

/// Writes a state dictionary as `torch.save` does, whole or not at all. Equal tensors give equal bytes.
pub fn write_torch_save<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<()> {
    stage_torch_save(path, tensors)?.commit()
}

/// Like [`write_torch_save`], without making the file visible yet.
pub fn stage_torch_save<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<Output> {
    let path = path.as_ref();
    let stem = path.file_stem().and_then(|s| s.to_str()).filter(|s| !s.is_empty()).unwrap_or("archive");
    Output::write(path, |out| write_to(out, stem, tensors))
}

fn write_to<'a>(
    out: &mut impl Write,
    stem: &str,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, &'a Tensor)>,
) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    // One entry per tensor; names of one tensor are one storage, everything else is stored without gaps.
    let mut stored: Vec<&Tensor> = Vec::new();
    let mut pickle = Pickle::new();
    for (name, tensor) in tensors {
        let name = name.as_ref();
        if !names.insert(name.to_string()) {
            return Err(Error::DuplicateName { name: name.to_string() });
        }
        let key = match stored.iter().position(|t| t.is_same(tensor)) {
            Some(key) => key,
            None => {
                stored.push(tensor);
                stored.len() - 1
            }
        };
        pickle.item(name, tensor, key);
    }
    let mut archive = ArchiveWriter::new(out);
    archive.add(&format!("{stem}/data.pkl"), &pickle.finish())?;
    archive.add(&format!("{stem}/byteorder"), b"little")?;
    for (key, tensor) in stored.into_iter().enumerate() {
        let size = (tensor.numel() * tensor.dtype().size()) as u64;
        archive.add_stream(&format!("{stem}/data/{key}"), size, |mut out| elements::write(&mut out, tensor))?;
    }
    archive.add(&format!("{stem}/version"), b"3\n")?;
    let id = archive.serialization_id();
    archive.add(&format!("{stem}/.data/serialization_id"), id.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// A pickle of protocol 2 under construction: one dictionary.
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Pickle {
        // Protocol 2, an empty dictionary, a mark before its items.
        Pickle(b"\x80\x02}(".to_vec())
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn int(&mut self, value: usize) {
        match i32::try_from(value) {
            Ok(small) => {
                self.0.push(b'J');
                self.0.extend(small.to_le_bytes());
            }
            Err(_) => {
                // Nine bytes: the last one keeps it positive.
                self.0.extend([0x8a, 9]);
                self.0.extend((value as u64).to_le_bytes());
                self.0.push(0);
            }
        }
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.extend(format!("c{module}\n{name}\n").bytes());
    }

    fn ints(&mut self, values: impl Iterator<Item = usize>) {
        self.0.push(b'(');
        values.for_each(|v| self.int(v));
        self.0.push(b't');
    }

    /// A name and the call that rebuilds its tensor from a storage.
    fn item(&mut self, name: &str, tensor: &Tensor, key: usize) {
        self.text(name);
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.0.extend(b"((");
        self.text("storage");
        self.global("torch", &format!("{}Storage", tensor.dtype().class()));
        self.text(&key.to_string());
        self.text("cpu");
        self.int(tensor.numel());
        self.0.extend(b"tQ");
        self.int(0);
        self.ints(tensor.shape().iter().copied());
        let mut strides = vec![1; tensor.ndim()];
        for d in (1..tensor.ndim()).rev() {
            strides[d - 1] = strides[d] * tensor.shape()[d].max(1);
        }
        self.ints(strides.into_iter());
        // No gradient; no backward hooks.
        self.0.push(0x89);
        self.global("collections", "OrderedDict");
        self.0.extend(b")RtR");
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend(b"u.");
        self.0
    }
}
