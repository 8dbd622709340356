//! Plain data as `torch.save` writes it: a pickle with the places of tensors, and one file per tensor beside it.
//!
//! A tensor that occurs several times is stored once. What is written is what `torch.load(weights_only=True)` takes.

use super::super::{ArchiveWriter, Error, Output, Result, elements};
use super::Object;
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
    let mut pickle = Pickle::new();
    pickle.bytes.extend(b"}(");
    for (name, tensor) in tensors {
        let name = name.as_ref();
        if !names.insert(name.to_string()) {
            return Err(Error::DuplicateName { name: name.to_string() });
        }
        pickle.text(name);
        pickle.tensor(tensor, false);
    }
    pickle.bytes.push(b'u');
    finish(out, stem, pickle)
}

/// Writes plain data as `torch.save` does, whole or not at all. Leaves that require grad still do when they are read.
pub fn write_torch_object(path: impl AsRef<Path>, object: &Object) -> Result<()> {
    let path = path.as_ref();
    let stem = path.file_stem().and_then(|s| s.to_str()).filter(|s| !s.is_empty()).unwrap_or("archive");
    Output::write(path, |out| write_object(out, stem, object))?.commit()
}

/// The file that [`write_torch_object`] writes.
pub fn torch_object_to_bytes(object: &Object) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_object(&mut bytes, "archive", object)?;
    Ok(bytes)
}

fn write_object(out: &mut impl Write, stem: &str, object: &Object) -> Result<()> {
    let mut pickle = Pickle::new();
    pickle.object(object, 0)?;
    finish(out, stem, pickle)
}

fn finish(out: &mut impl Write, stem: &str, pickle: Pickle<'_>) -> Result<()> {
    let Pickle { mut bytes, stored } = pickle;
    bytes.push(b'.');
    let mut archive = ArchiveWriter::new(out);
    archive.add(&format!("{stem}/data.pkl"), &bytes)?;
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

/// A pickle of protocol 2 under construction, and the tensors that lie beside it.
struct Pickle<'a> {
    bytes: Vec<u8>,
    /// Each once, stored without gaps.
    stored: Vec<&'a Tensor>,
}

impl<'a> Pickle<'a> {
    fn new() -> Pickle<'a> {
        Pickle { bytes: b"\x80\x02".to_vec(), stored: Vec::new() }
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn int(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(b'J');
                self.bytes.extend(small.to_le_bytes());
            }
            Err(_) => {
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend(value.to_le_bytes());
            }
        }
    }

    fn size(&mut self, value: usize) {
        self.int(value as i64); // sizes of tensors fit
    }

    fn bool(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").bytes());
    }

    fn sizes(&mut self, values: impl Iterator<Item = usize>) {
        self.bytes.push(b'(');
        values.for_each(|v| self.size(v));
        self.bytes.push(b't');
    }

    /// The call that rebuilds a tensor from a storage.
    fn tensor(&mut self, tensor: &'a Tensor, requires_grad: bool) {
        let key = self.stored.iter().position(|t| t.is_same(tensor)).unwrap_or_else(|| {
            self.stored.push(tensor);
            self.stored.len() - 1
        });
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.bytes.extend(b"((");
        self.text("storage");
        self.global("torch", &format!("{}Storage", tensor.dtype().class()));
        self.text(&key.to_string());
        self.text("cpu");
        self.size(tensor.numel());
        self.bytes.extend(b"tQ");
        self.int(0);
        self.sizes(tensor.shape().iter().copied());
        let mut strides = vec![1; tensor.ndim()];
        for d in (1..tensor.ndim()).rev() {
            strides[d - 1] = strides[d] * tensor.shape()[d].max(1);
        }
        self.sizes(strides.into_iter());
        self.bool(requires_grad);
        // No backward hooks.
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")RtR");
    }

    fn object(&mut self, object: &'a Object, depth: usize) -> Result<()> {
        if depth > super::DEPTH {
            return Err(Error::Pickle { at: 0, reason: format!("containers nest deeper than {}", super::DEPTH) });
        }
        let items = |this: &mut Self, items: &'a [Object], open: &[u8], close: u8| -> Result<()> {
            this.bytes.extend(open);
            items.iter().try_for_each(|item| this.object(item, depth + 1))?;
            this.bytes.push(close);
            Ok(())
        };
        match object {
            Object::None => self.bytes.push(b'N'),
            Object::Bool(value) => self.bool(*value),
            Object::Int(value) => self.int(*value),
            Object::Float(value) => {
                self.bytes.push(b'G');
                self.bytes.extend(value.to_be_bytes());
            }
            Object::Str(text) => self.text(text),
            Object::Tuple(list) => items(self, list, b"(", b't')?,
            Object::List(list) => items(self, list, b"](", b'e')?,
            Object::Dict(pairs) => {
                self.bytes.extend(b"}(");
                for (key, value) in pairs {
                    self.object(key, depth + 1)?;
                    self.object(value, depth + 1)?;
                }
                self.bytes.push(b'u');
            }
            Object::Tensor(tensor) => self.tensor(tensor, tensor.requires_grad() && tensor.is_leaf()),
        }
        Ok(())
    }
}
