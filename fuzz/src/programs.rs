//! Targets of readers of foreign files: archives, programs, expressions, tensors. Nothing panics, nothing is taken on
//! trust, memory stays within what the input justifies, and what is accepted can be written and read again.

use crate::counting::{SPARE, measured};
use firebrand_graph::ir::Expr;
use firebrand_graph::{ExportedProgram, LoadOptions};
use firebrand_io::torch_save::{self, Object};
use firebrand_io::{Archive, ArchiveWriter, Budget, ReadOptions, safetensors};
use std::io::Write;

fn options() -> ReadOptions {
    ReadOptions { spare: SPARE, ..ReadOptions::default() }
}

/// Any bytes are an archive or an error; what is in it can be read or is refused.
pub(crate) fn fuzz_archive(data: &[u8]) -> bool {
    let Ok(archive) = measured(data.len(), || Archive::from_bytes_with(data, options())) else { return false };
    for name in archive.names() {
        if let Ok(content) = archive.read(name, 1 << 20) {
            assert_eq!(archive.size(name), Some(content.len() as u64));
        }
    }
    // The loaders see the same bytes.
    let load = LoadOptions { spare: SPARE, ..LoadOptions::default() };
    let _ = measured(data.len(), || ExportedProgram::from_bytes_with(data, &load));
    let _ = measured(data.len(), || torch_save::from_bytes_with(data, options()));
    true
}

fn stored(entries: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let mut out = ArchiveWriter::new(Vec::new());
    for (name, content) in entries {
        out.add(name, content).ok()?;
    }
    out.finish().ok()
}

/// A zip archive with entries that are marked as compressed: really so once in a while, else as deflate's blocks that are
/// not, because compressing takes longer than everything that is tested here.
pub(crate) fn deflated(entries: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let (mut body, mut directory) = (Vec::new(), Vec::<u8>::new());
    if entries.iter().map(|(_, content)| content.len()).sum::<usize>() % 61 == 0 {
        return compressed(entries);
    }
    for (name, content) in entries {
        let length = u16::try_from(content.len()).ok()?;
        let offset = (body.len() as u32).to_le_bytes();
        let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        fields.extend(crc32fast::hash(content).to_le_bytes());
        fields.extend((content.len() as u32 + 5).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0; 2]);
        body.extend(b"PK\x03\x04".iter().chain(&fields).chain(name.as_bytes()));
        body.push(1);
        body.extend(length.to_le_bytes().iter().chain(&(!length).to_le_bytes()).chain(*content));
        directory.extend(b"PK\x01\x02\x14\0".iter().chain(&fields).chain(&[0; 10]).chain(&offset));
        directory.extend(name.as_bytes());
    }
    let (start, size, count) = (body.len() as u32, directory.len() as u32, entries.len() as u16);
    body.extend(directory);
    body.extend(b"PK\x05\x06\0\0\0\0");
    body.extend(count.to_le_bytes().repeat(2));
    body.extend(size.to_le_bytes().iter().chain(&start.to_le_bytes()).chain(&[0; 2]));
    Some(body)
}

/// A zip archive with compressed entries.
fn compressed(entries: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let mut out = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .compression_level(Some(1))
        .last_modified_time(zip::DateTime::default());
    for (name, content) in entries {
        out.start_file(*name, options).ok()?;
        out.write_all(content).ok()?;
    }
    Some(out.finish().ok()?.into_inner())
}

/// Any JSON is a program or an error, compressed or not; a program that is written reads back to one that is written alike.
pub(crate) fn fuzz_program(data: &[u8]) -> bool {
    let entries: [(&str, &[u8]); 4] = [
        ("m/archive_format", b"pt2"),
        ("m/archive_version", b"0"),
        ("m/.data/version", b"6\n"),
        ("m/models/m.json", data),
    ];
    // Compressing takes longer than anything else here.
    let bytes = if data.len().is_multiple_of(16) { deflated(&entries) } else { stored(&entries) };
    let Some(bytes) = bytes else { return false };
    let options = LoadOptions { spare: SPARE, ..LoadOptions::structure() };
    let length = bytes.len();
    let Ok(program) = measured(length, || ExportedProgram::from_bytes_with(bytes, &options)) else { return false };
    let _ = program.unsupported();
    // Writing twice takes ten times as long as reading, and mutations of what is accepted are much alike.
    if data.len().is_multiple_of(8)
        && let Ok(written) = program.to_bytes()
    {
        let again = ExportedProgram::from_bytes_with(written.clone(), &options).expect("what we write, we read");
        assert!(again.to_bytes().expect("and write again") == written);
    }
    true
}

/// An expression that parses prints to one that parses to it.
pub(crate) fn fuzz_expression(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(expr) = measured(data.len(), || Expr::parse(text)) else { return false };
    assert_eq!(Expr::parse(&expr.to_string()).expect("what we print, we read"), expr);
    true
}

/// Any bytes are tensors or an error.
pub(crate) fn fuzz_safetensors(data: &[u8]) -> bool {
    let budget = Budget::with_spare(data.len() as u64, SPARE);
    let Ok(tensors) = measured(data.len(), || safetensors::from_bytes_within(data, &budget)) else { return false };
    for t in tensors.values() {
        assert_eq!(t.try_contiguous().expect("a tensor that fits").numel(), t.numel());
    }
    let written = safetensors::to_bytes(&tensors).expect("tensors can be written");
    assert_eq!(safetensors::from_bytes(&written).expect("what we write, we read").len(), tensors.len());
    true
}

/// Every tensor of what was read lies inside its memory.
fn see(object: &Object) {
    match object {
        Object::Tuple(items) | Object::List(items) => items.iter().for_each(see),
        Object::Dict(items) => items.iter().for_each(|(k, v)| {
            see(k);
            see(v);
        }),
        // Strides of zero make large tensors of little memory.
        Object::Tensor(t) if t.numel() < 1 << 16 => {
            assert_eq!(t.try_contiguous().expect("a tensor that fits").numel(), t.numel());
        }
        _ => {}
    }
}

/// Any pickle is plain data or an error. Its storages lie beside it.
pub(crate) fn fuzz_pickle(data: &[u8]) -> bool {
    let entries: [(&str, &[u8]); 3] = [("a/data.pkl", data), ("a/data/0", &[0; 64]), ("a/data/1", &[1; 16])];
    let bytes = if data.len().is_multiple_of(16) { deflated(&entries) } else { stored(&entries) };
    bytes.is_some_and(|bytes| fuzz_torch_save(&bytes))
}

/// Any bytes are what `torch.save` wrote, or an error.
pub(crate) fn fuzz_torch_save(data: &[u8]) -> bool {
    let Ok(object) = measured(data.len(), || torch_save::from_bytes_with(data, options())) else { return false };
    see(&object);
    true
}
