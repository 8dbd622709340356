//! Targets of readers of foreign files: archives, programs, expressions, tensors. Nothing panics, nothing is taken on
//! trust, and what is accepted can be written and read again.

use firebrand_graph::ir::Expr;
use firebrand_graph::{ExportedProgram, LoadOptions};
use firebrand_io::{Archive, ArchiveWriter, safetensors, torch_save};

/// Any bytes are an archive or an error; what is in it can be read or is refused.
pub(crate) fn fuzz_archive(data: &[u8]) -> bool {
    let Ok(archive) = Archive::from_bytes(data) else { return false };
    for name in archive.names() {
        if let Ok(content) = archive.read(name, 1 << 20) {
            assert_eq!(archive.size(name), Some(content.len() as u64));
        }
    }
    // The loader sees the same bytes.
    let _ = ExportedProgram::from_bytes(data);
    true
}

/// An archive that holds the program `data`, and nothing else.
fn with_program(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = ArchiveWriter::new(Vec::new());
    let entries: [(&str, &[u8]); 4] = [
        ("m/archive_format", b"pt2"),
        ("m/archive_version", b"0"),
        ("m/.data/version", b"6\n"),
        ("m/models/m.json", data),
    ];
    for (name, content) in entries {
        out.add(name, content).ok()?;
    }
    out.finish().ok()
}

/// Any JSON is a program or an error; a program that is written reads back to one that is written alike.
pub(crate) fn fuzz_program(data: &[u8]) -> bool {
    let Some(bytes) = with_program(data) else { return false };
    let options = LoadOptions::structure();
    let Ok(program) = ExportedProgram::from_bytes_with(bytes, &options) else { return false };
    let _ = program.unsupported();
    if let Ok(written) = program.to_bytes() {
        let again = ExportedProgram::from_bytes_with(written.clone(), &options).expect("what we write, we read");
        assert!(again.to_bytes().expect("and write again") == written);
    }
    true
}

/// An expression that parses prints to one that parses to it.
pub(crate) fn fuzz_expression(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(expr) = Expr::parse(text) else { return false };
    assert_eq!(Expr::parse(&expr.to_string()).expect("what we print, we read"), expr);
    true
}

/// Any bytes are tensors or an error.
pub(crate) fn fuzz_safetensors(data: &[u8]) -> bool {
    let Ok(tensors) = safetensors::from_bytes(data) else { return false };
    for t in tensors.values() {
        assert_eq!(t.to_vec::<f64>().len(), t.numel());
    }
    let written = safetensors::to_bytes(&tensors).expect("tensors can be written");
    assert_eq!(safetensors::from_bytes(&written).expect("what we write, we read").len(), tensors.len());
    true
}

/// Any pickle is plain data or an error. Its storages lie beside it.
pub(crate) fn fuzz_pickle(data: &[u8]) -> bool {
    let mut out = ArchiveWriter::new(Vec::new());
    let entries: [(&str, &[u8]); 3] = [("a/data.pkl", data), ("a/data/0", &[0; 64]), ("a/data/1", &[1; 16])];
    for (name, content) in entries {
        if out.add(name, content).is_err() {
            return false;
        }
    }
    let Ok(bytes) = out.finish() else { return false };
    torch_save::from_bytes(bytes).is_ok()
}
