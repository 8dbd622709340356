//! Programs of PyTorch in and out: what is written back is what was read, byte for byte where it matters.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_graph::text::{self, Form};
use firebrand_graph::{Constant, ExportedProgram, LoadOptions};
use firebrand_io::{Archive, ArchiveWriter};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// Every program of the corpus, right after export and after decompositions.
fn programs() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(golden("programs"))
        .unwrap()
        .flat_map(|dir| ["model.pt2", "model_core.pt2"].map(|f| dir.as_ref().unwrap().path().join(f)))
        .filter(|p| p.is_file())
        .collect();
    found.sort();
    assert_eq!(found.len(), 40, "programs");
    found
}

fn json(archive: &Archive, end: &str) -> serde_json::Value {
    let name = archive.names().find(|n| n.ends_with(end)).unwrap();
    serde_json::from_slice(&archive.read(name, 1 << 30).unwrap()).unwrap()
}

/// The JSON of what is written equals the JSON of what was read, and so do the stored bytes.
#[test]
fn programs_are_written_as_they_were_read() {
    for path in programs() {
        // PyTorch itself cannot load a region without results; it is left out when written.
        if path.ends_with("setgrad_edges/model.pt2") {
            continue;
        }
        let program = ExportedProgram::load(&path).unwrap();
        let (before, after) =
            (Archive::open(&path).unwrap(), Archive::from_bytes(program.to_bytes().unwrap()).unwrap());
        for end in ["models/model.json", "model_weights_config.json", "model_constants_config.json"] {
            let (a, b) = (json(&before, end), json(&after, end));
            assert!(a == b, "{}: {end}\n{}\n{}", path.display(), a, b);
        }
        let rest = |a: &Archive| -> Vec<(String, Vec<u8>)> {
            let inside = |n: &str| n.split_once('/').unwrap().1.to_string();
            a.names()
                .filter(|n| !n.ends_with("json") && !n.ends_with("serialization_id"))
                .map(|n| (inside(n), a.read(n, 1 << 30).unwrap().into_owned()))
                .collect()
        };
        assert!(rest(&before) == rest(&after), "{}", path.display());
    }
}

/// The text of what was read is the text that PyTorch's graph has, signature included.
#[test]
fn programs_read_as_pytorch_prints_them() {
    for path in programs() {
        let expected =
            path.with_file_name(if path.ends_with("model_core.pt2") { "graph_core.txt" } else { "graph.txt" });
        let program = ExportedProgram::load(&path).unwrap();
        let found = text::print(&program, Form::Short);
        let expected = std::fs::read_to_string(&expected).unwrap();
        assert_eq!(found, with_attribute_names(&expected), "{}", path.display());
    }
}

/// The file does not keep what reads of sub-graphs were called; they get the name of what they read.
fn with_attribute_names(text: &str) -> String {
    let reads = text.lines().filter_map(|l| l.trim().strip_prefix('%')?.split_once(" = get_attr "));
    let names: std::collections::HashMap<&str, &str> = reads.collect();
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap().to_string();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let name = names.get(&part[..end]).copied().unwrap_or(&part[..end]);
        out += &format!("%{name}{}", &part[end..]);
    }
    out
}

/// A region without results is dropped, everything else stays; what we write, we read.
#[test]
fn a_region_without_results_is_left_out() {
    let program = ExportedProgram::load(golden("programs/setgrad_edges/model.pt2")).unwrap();
    let again = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    assert!(again.module.graph.len() < program.module.graph.len());
    assert_eq!(again.to_bytes().unwrap(), program.to_bytes().unwrap());
}

#[test]
fn saving_to_a_file_is_atomic_and_named_by_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("mine.pt2");
    let program = ExportedProgram::load(golden("programs/mlp/model.pt2")).unwrap();
    program.save(&path).unwrap();
    assert!(Archive::open(&path).unwrap().names().all(|n| n.starts_with("mine/")));
    assert_eq!(ExportedProgram::load(&path).unwrap().to_bytes().unwrap(), program.to_bytes().unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let error = program.save(dir.path().join("missing/there.pt2")).expect_err("no folder").to_string();
    assert!(error.contains("missing"), "{error}");
}

/// Tensors that share memory in the archive share it here; the same tensor under two names is one tensor.
#[test]
fn shared_state_stays_shared() {
    let tied = ExportedProgram::load(golden("programs/tied_weights/model.pt2")).unwrap();
    let tensors: Vec<_> = tied.state_dict.values().map(|s| &s.tensor).collect();
    let ties = tensors.iter().enumerate().filter(|(i, a)| tensors[..*i].iter().any(|b| a.is_same(b))).count();
    assert_eq!(ties, 1);
    let strided = ExportedProgram::load(golden("programs/strided_state/model.pt2")).unwrap();
    let state: Vec<_> = strided.state_dict.iter().collect();
    let shares = |k: usize| state[..k].iter().any(|(_, s)| s.tensor.shares_storage(&state[k].1.tensor));
    assert!((0..state.len()).any(shares));
}

fn same_state(a: &ExportedProgram, b: &ExportedProgram) {
    assert_eq!(a.state_dict.keys().collect::<Vec<_>>(), b.state_dict.keys().collect::<Vec<_>>());
    for (name, s) in &a.state_dict {
        let t = &b.state_dict[name];
        assert_eq!(s.is_parameter, t.is_parameter, "{name}");
        assert_eq!(s.tensor.shape(), t.tensor.shape(), "{name}");
        assert_eq!(s.tensor.strides(), t.tensor.strides(), "{name}");
        assert_eq!(s.tensor.to_vec::<f64>(), t.tensor.to_vec::<f64>(), "{name}");
        assert_eq!(s.tensor.requires_grad(), t.tensor.requires_grad(), "{name}");
    }
    for (name, c) in &a.constants {
        let (Constant::Tensor(s), Constant::Tensor(t)) = (c, &b.constants[name]) else { panic!("tensors") };
        assert_eq!(s.to_vec::<f64>(), t.to_vec::<f64>(), "{name}");
    }
}

/// The layouts of releases 2.8 and 2.7 hold the same program.
#[test]
fn older_layouts_are_read() {
    let today = ExportedProgram::load(golden("programs/strided_state/model.pt2")).unwrap();
    for layout in ["archives/layout_2_8.pt2", "archives/layout_2_7.pt2"] {
        let old = ExportedProgram::load(golden(layout)).unwrap();
        same_state(&today, &old);
        // Written again, it is a program of today.
        let again = ExportedProgram::from_bytes(old.to_bytes().unwrap()).unwrap();
        same_state(&today, &again);
        let pairs = |p: &ExportedProgram| -> Vec<(String, String)> {
            let state: Vec<_> = p.state_dict.iter().collect();
            let all = state.iter().flat_map(|a| state.iter().map(move |b| (a, b)));
            all.filter(|(a, b)| a.1.tensor.shares_storage(&b.1.tensor))
                .map(|(a, b)| (a.0.clone(), b.0.clone()))
                .collect()
        };
        assert_eq!(pairs(&today), pairs(&old));
        assert_eq!(pairs(&today), pairs(&again));
    }
}

fn entries(program: &str) -> Vec<(String, Vec<u8>)> {
    let archive = Archive::open(golden(program)).unwrap();
    let inside = |n: &str| n.split_once('/').unwrap().1.to_string();
    archive.names().map(|n| (inside(n), archive.read(n, 1 << 30).unwrap().into_owned())).collect()
}

fn written(entries: &[(String, Vec<u8>)], root: &str) -> Vec<u8> {
    let mut out = ArchiveWriter::new(Vec::new());
    entries.iter().for_each(|(name, content)| out.add(&format!("{root}{name}"), content).unwrap());
    out.finish().unwrap()
}

/// User files and keys that this build does not know are written back.
#[test]
fn what_is_not_understood_is_kept() {
    let mut changed = entries("programs/mlp/model.pt2");
    changed.push(("extra/notes.txt".into(), b"mine".to_vec()));
    let model = changed.iter_mut().find(|(n, _)| n == "models/model.json").unwrap();
    let mut value: serde_json::Value = serde_json::from_slice(&model.1).unwrap();
    value["from_the_future"] = serde_json::json!({"deep": [1, 2.5, null]});
    model.1 = serde_json::to_vec(&value).unwrap();
    let program = ExportedProgram::from_bytes(written(&changed, "model/")).unwrap();
    let again = Archive::from_bytes(program.to_bytes().unwrap()).unwrap();
    assert_eq!(&*again.read_text("archive/extra/notes.txt", 100).unwrap(), "mine");
    assert_eq!(json(&again, "models/model.json"), value);
}

/// The oldest archives have no root; several programs may share one.
#[test]
fn archives_without_root_and_with_several_programs() {
    let mut changed = entries("programs/mlp/model.pt2");
    assert!(ExportedProgram::from_bytes(written(&changed, "")).is_ok());
    let copies: Vec<_> = changed
        .iter()
        .filter(|(n, _)| n.contains("/model"))
        .map(|(n, c)| (n.replace("/model", "/second"), c.clone()))
        .collect();
    changed.extend(copies);
    let load = |changed: &[(String, Vec<u8>)], model: Option<&str>| {
        let options = LoadOptions { model: model.map(str::to_string), ..LoadOptions::default() };
        ExportedProgram::from_bytes_with(written(changed, "model/"), &options)
    };
    assert!(load(&changed, None).is_ok() && load(&changed, Some("second")).is_ok());
    let e = load(&changed, Some("third")).unwrap_err().to_string();
    assert!(e.contains("the archive holds several programs; choose one of model, second"), "{e}");
}

/// A flipped byte of a weight is found, unless nobody looks.
#[test]
fn damaged_weights_are_found() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("flipped.pt2");
    let mut bytes = std::fs::read(golden("programs/mlp/model.pt2")).unwrap();
    bytes[64] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let e = ExportedProgram::load(&path).unwrap_err().to_string();
    assert!(e.contains("weight_0") && e.contains("checksum"), "{e}");
    let trusting = LoadOptions { check_weights: false, ..LoadOptions::default() };
    assert!(ExportedProgram::load_with(&path, &trusting).is_ok());
}

/// Rewritten by another tool, unaligned, the program is the same; it is copied instead of mapped.
#[test]
fn rewritten_archives_hold_the_same_program() {
    let path: &Path = &golden("programs/convnet/model.pt2");
    let today = ExportedProgram::load(path).unwrap();
    let archive = Archive::open(path).unwrap();
    let mut out = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for name in archive.names() {
        out.start_file(name, options).unwrap();
        std::io::Write::write_all(&mut out, &archive.read(name, 1 << 30).unwrap()).unwrap();
    }
    let bytes = out.finish().unwrap().into_inner();
    same_state(&today, &ExportedProgram::from_bytes(bytes).unwrap());
}
