//! Archives, safetensors and `torch.save` files: what PyTorch wrote is read, what we write it would have written, and
//! hostile bytes are refused with a reason.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::{DType, Tensor};
use firebrand_io::torch_save::{self, Object};
use firebrand_io::{Archive, ArchiveWriter, Error, read_safetensors, read_torch_save, safetensors, write_safetensors};
use std::io::{Cursor, Write};
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

fn program() -> Vec<u8> {
    std::fs::read(golden("programs/strided_state/model.pt2")).expect("a committed file")
}

/// All entries of an archive, in order.
fn entries(archive: &Archive) -> Vec<(String, Vec<u8>)> {
    archive.names().map(|n| (n.to_string(), archive.read(n, 1 << 20).expect("readable").into_owned())).collect()
}

/// Writing the entries of PyTorch's archive gives PyTorch's archive, byte for byte.
#[test]
fn archives_are_written_as_pytorch_writes_them() {
    let bytes = program();
    let mut writer = ArchiveWriter::new(Vec::new());
    for (name, content) in entries(&Archive::from_bytes(bytes.clone()).unwrap()) {
        writer.add(&name, &content).unwrap();
    }
    assert!(writer.finish().unwrap() == bytes);
}

#[test]
fn the_serialization_id_is_forty_digits_of_the_content() {
    let id = |content: &[u8]| {
        let mut w = ArchiveWriter::new(Vec::new());
        w.add("a", content).unwrap();
        w.serialization_id()
    };
    assert!(id(b"x").len() == 40 && id(b"x").bytes().all(|b| b.is_ascii_digit()));
    assert_eq!(id(b"x"), id(b"x"));
    assert_ne!(id(b"x"), id(b"y"));
}

/// A stored, aligned entry is memory of the mapped file; writing it changes neither the file nor a second reader.
#[test]
fn mapped_entries_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pt2");
    std::fs::write(&path, program()).unwrap();
    let name = "model/data/weights/weight_0";
    let tensor = |a: &Archive| {
        let storage = a.storage(name).unwrap();
        let layout = firebrand_core::Layout::contiguous(&[storage.nbytes() / 4]).unwrap();
        Tensor::try_from_storage(&storage, DType::F32, layout).unwrap()
    };
    let (first, second) = (Archive::open(&path).unwrap(), Archive::open(&path).unwrap());
    let (a, b) = (tensor(&first), tensor(&second));
    let before = b.to_vec::<f32>();
    a.fill_(3.0);
    assert!(a.to_vec::<f32>().iter().all(|v| *v == 3.0));
    assert_eq!(b.to_vec::<f32>(), before);
    drop(first);
    assert!(a.to_vec::<f32>().iter().all(|v| *v == 3.0), "a tensor keeps its mapping");
    assert!(std::fs::read(&path).unwrap() == program());
}

fn rewritten(method: zip::CompressionMethod, folders: bool) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    if folders {
        out.add_directory("model/data/", options).unwrap();
    }
    for (name, content) in entries(&Archive::from_bytes(program()).unwrap()) {
        out.start_file(name, options).unwrap();
        out.write_all(&content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

/// An archive that another tool rewrote, unaligned or deflated, holds the same files.
#[test]
fn rewritten_archives_are_read() {
    let expected = entries(&Archive::from_bytes(program()).unwrap());
    for (method, folders) in [(zip::CompressionMethod::Stored, true), (zip::CompressionMethod::Deflated, false)] {
        let archive = Archive::from_bytes(rewritten(method, folders)).unwrap();
        assert!(entries(&archive) == expected);
        let storage = archive.storage("model/data/weights/weight_0").unwrap();
        assert_eq!(firebrand_io::place::bytes(&storage).unwrap(), expected[0].1);
    }
}

fn with_names(names: &[&str]) -> Vec<u8> {
    let mut w = ArchiveWriter::new(Vec::new());
    for (k, name) in names.iter().enumerate() {
        w.add(&format!("{k:0>width$}", width = name.len()), b"content").unwrap();
    }
    let mut bytes = w.finish().unwrap();
    // The writer refuses what the reader must refuse, so names are put in place afterwards.
    for (k, name) in names.iter().enumerate() {
        let placeholder = format!("{k:0>width$}", width = name.len()).into_bytes();
        let places: Vec<usize> =
            (0..bytes.len() - name.len()).filter(|&i| bytes[i..].starts_with(&placeholder)).collect();
        for at in places {
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
    }
    bytes
}

fn refusal(bytes: Vec<u8>) -> String {
    match Archive::from_bytes(bytes) {
        Err(e) => e.to_string(),
        Ok(a) => a.names().find_map(|n| a.read(n, 1 << 20).err()).expect("refused").to_string(),
    }
}

#[test]
fn names_that_lead_astray_are_refused() {
    for (names, reason) in [
        (&["/absolute"][..], "is absolute"),
        (&["model/../../etc"], "points outside"),
        (&["a\\backslash"], "backslash"),
        (&["nul\0byte"], "control character"),
        (&["line\nend"], "control character"),
        (&["C:/windows"], "drive letter"),
        (&["same/name", "same/name"], "occurs twice"),
    ] {
        let message = refusal(with_names(names));
        assert!(message.contains(reason), "{names:?}: {message}");
    }
}

/// Changes bytes of the archive, `offset` behind the first `pattern`.
fn patched(mut bytes: Vec<u8>, pattern: &[u8], offset: usize, new: &[u8]) -> Vec<u8> {
    let at = (0..bytes.len()).find(|&i| bytes[i..].starts_with(pattern)).expect("the pattern is there") + offset;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn damaged_archives_are_refused() {
    // Without the archive inside the archive, whose signatures would be found first.
    let mut writer = ArchiveWriter::new(Vec::new());
    for (name, content) in entries(&Archive::from_bytes(program()).unwrap()) {
        if !name.ends_with(".pt") {
            writer.add(&name, &content).unwrap();
        }
    }
    let whole = writer.finish().unwrap();
    let central = b"PK\x01\x02";
    for (bytes, reason) in [
        (Vec::new(), "too short for a zip archive"),
        (b"not a zip archive at all, but long enough to be looked at".to_vec(), "no end of a zip directory"),
        (whole[..whole.len() / 2].to_vec(), "no end of a zip directory"),
        (whole[100..].to_vec(), "damaged"),
        // The directory claims to begin elsewhere, or to hold more entries than fit.
        (patched(whole.clone(), b"PK\x06\x06", 48, &u64::MAX.to_le_bytes()), "damaged"),
        (patched(whole.clone(), b"PK\x06\x06", 32, &(1u64 << 60).to_le_bytes()), "bytes claims"),
        // The first entry: encrypted, unknown method, another size, an offset outside, data over the next entry.
        (patched(whole.clone(), central, 8, &[9, 8]), "encrypted"),
        (patched(whole.clone(), central, 10, &[12, 0]), "compression method 12"),
        (patched(whole.clone(), central, 24, &[0x61]), "claims"),
        (patched(whole.clone(), central, 42, &[0xff, 0xff, 0xff, 0x7f]), "outside the file"),
        (patched(patched(whole.clone(), central, 20, &[0xff, 1]), central, 24, &[0xff, 1]), "overlap"),
        // One flipped byte of a weight, and of a local name.
        (patched(whole.clone(), b"PK\x03\x04", 64, &[0xaa, 0xbb]), "checksum"),
        (patched(whole.clone(), b"PK\x03\x04", 30, b"M"), "another name"),
    ] {
        let message = refusal(bytes);
        assert!(message.contains(reason), "expected {reason:?}: {message}");
    }
}

/// A small file cannot make the reader fill memory.
#[test]
fn bombs_are_refused() {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    out.start_file("zeros", options).unwrap();
    out.write_all(&vec![0; 1 << 20]).unwrap();
    let bytes = out.finish().unwrap().into_inner();
    assert!(matches!(Archive::from_bytes(bytes), Err(Error::Entry { .. })));
    // A stream that holds more, or less, than the directory says.
    let deflated = rewritten(zip::CompressionMethod::Deflated, false);
    for claimed in [1u32, 97] {
        let lying = patched(deflated.clone(), b"PK\x01\x02", 24, &claimed.to_le_bytes());
        assert!(refusal(lying).contains("does not hold"));
    }
    let archive = Archive::from_bytes(program()).unwrap();
    let refused = archive.read("model/models/model.json", 100).unwrap_err();
    assert!(refused.to_string().contains("at most 100 are allowed"), "{refused}");
}

#[test]
fn plain_data_is_read_as_it_was_written() {
    let object = read_torch_save(golden("archives/containers.pt")).unwrap();
    let bytes = torch_save::torch_object_to_bytes(&object).unwrap();
    let again = torch_save::from_bytes(bytes).unwrap();
    assert_eq!(format!("{again:?}"), format!("{object:?}"));
    let numbers = [i64::MIN, -1, 0, i64::from(i32::MAX) + 1, i64::MAX].map(Object::Int).to_vec();
    let empty =
        vec![Object::Tuple(vec![]), Object::List(vec![]), Object::Dict(vec![]), Object::Float(f64::NEG_INFINITY)];
    let object = Object::List([numbers, empty].concat());
    let again = torch_save::from_bytes(torch_save::torch_object_to_bytes(&object).unwrap()).unwrap();
    assert_eq!(format!("{again:?}"), format!("{object:?}"));
    let deep = (0..200).fold(Object::None, |inner, _| Object::List(vec![inner]));
    assert!(torch_save::torch_object_to_bytes(&deep).is_err());
}

#[test]
fn what_torch_save_wrote_is_read() {
    let object = read_torch_save(golden("archives/containers.pt")).unwrap();
    let Object::Dict(items) = object else { panic!("a dictionary") };
    let get = |name: &str| {
        let found = items.iter().find(|(k, _)| matches!(k, Object::Str(s) if s == name));
        found.unwrap_or_else(|| panic!("{name} is there")).1.clone()
    };
    let tensor = |name: &str| if let Object::Tensor(t) = get(name) { t } else { panic!("{name} is a tensor") };
    assert!(matches!(get("epoch"), Object::Int(3)) && matches!(get("lr"), Object::Float(0.5)));
    assert!(matches!(get("name"), Object::Str(s) if s == "täst") && matches!(get("none"), Object::None));
    assert!(matches!(get("big"), Object::Int(v) if v == 1 << 40) && matches!(get("negative"), Object::Int(-5)));
    assert!(matches!(get("flags"), Object::List(v) if matches!(v[..], [Object::Bool(true), Object::Bool(false)])));
    assert!(matches!(get("pair"), Object::Tuple(v) if matches!(&v[1], Object::List(l) if l.len() == 2)));
    let (base, row, transposed) = (tensor("base"), tensor("row"), tensor("transposed"));
    assert_eq!(base.to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(row.to_vec::<f32>(), [3.0, 4.0, 5.0]);
    assert_eq!(transposed.to_vec::<f32>(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert!(base.shares_storage(&row) && base.shares_storage(&transposed));
    assert!(tensor("parameter").requires_grad() && !base.requires_grad());
    assert_eq!(tensor("empty").shape(), [0, 3]);
    let Object::Dict(dtypes) = get("dtypes") else { panic!("a dictionary") };
    assert_eq!(dtypes.len(), DType::ALL.len());
    for (name, t) in dtypes {
        let (Object::Str(name), Object::Tensor(t)) = (name, t) else { panic!("tensors by dtype") };
        assert_eq!(t.dtype().name(), name);
        assert_eq!(t.to_vec::<f64>(), if name == "bool" { [0.0, 1.0, 1.0] } else { [0.0, 1.0, 3.0] });
    }
}

#[test]
fn a_state_dict_is_tensors_by_name() {
    let tensors = read_torch_save(golden("archives/state_dict.pt")).unwrap().into_tensors().unwrap();
    let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
    let buffers = ["1.running_mean", "1.running_var", "1.num_batches_tracked"];
    assert_eq!(names, [&["0.weight", "0.bias", "1.weight", "1.bias"][..], &buffers].concat());
    assert_eq!(tensors["0.weight"].shape(), [2, 3]);
}

/// Nothing is executed: a module is refused by the name of its class.
#[test]
fn modules_are_refused_by_name() {
    let e = read_torch_save(golden("archives/module.pt")).unwrap_err().to_string();
    assert!(e.contains("`torch.nn.modules.container.Sequential` is not allowed"), "{e}");
}

fn pickled(pickle: &[u8]) -> Result<Object, Error> {
    let mut w = ArchiveWriter::new(Vec::new());
    w.add("archive/data.pkl", pickle).unwrap();
    torch_save::from_bytes(w.finish().unwrap())
}

#[test]
fn hostile_pickles_are_refused() {
    let mut laughs = b"\x80\x02]q\x00(K\x01K\x01e".to_vec();
    for k in 1..60u8 {
        // A list that holds the previous list twice.
        laughs.extend_from_slice(&[b']', b'q', k, b'(', b'h', k - 1, b'h', k - 1, b'e']);
    }
    laughs.push(b'.');
    let deep = [vec![b']'; 100_000], vec![b'a'; 99_999], vec![b'.']].concat();
    for (pickle, reason) in [
        (&b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R."[..], "`os.system` is not allowed"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "truncated"),
        (b"\x80\x09N.", "protocol 9"),
        (b"", "truncated"),
        (b".", "missing on the stack"),
        (b"(.", "missing on the stack"),
        (b"h\x05.", "memo 5 was never set"),
        (b"K\x01K\x02a.", "only lists"),
        (b"}(K\x01u.", "without a value"),
        (b"K\x01)R.", "only a global can be called"),
        (b"ccollections\nOrderedDict\n.", "not plain data"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "0 arguments"),
        (b"K\x01Q.", "expected a tuple"),
        // A list that contains itself.
        (b"]q\x00h\x00a.", "deeper than"),
        (&laughs, "more than the file justifies"),
        (&deep, "deeper than"),
        (b"\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09.", "64 bits"),
        (b"i", "instruction"),
    ] {
        let e = pickled(pickle).unwrap_err().to_string();
        assert!(e.contains(reason), "expected {reason:?}: {e}");
    }
}

#[test]
fn safetensors_are_read_in_place_and_written_alike() {
    let path = golden("archives/tensors.safetensors");
    let tensors = read_safetensors(&path).unwrap();
    assert_eq!(tensors["weight"].to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(tensors["half"].dtype(), DType::BF16);
    assert_eq!(tensors["half"].to_vec::<f32>(), [0.5, -2.0]);
    assert_eq!(tensors["count"].to_vec::<i64>(), [4]);
    assert_eq!(tensors["mask"].to_vec::<bool>(), [true, false, true]);
    assert_eq!(tensors["empty"].shape(), [0, 2]);
    // Sorted the same way as the reference writer, so the bytes agree.
    let bytes = std::fs::read(&path).unwrap();
    assert!(safetensors::to_bytes(&tensors).unwrap() == bytes);
    tensors["weight"].fill_(1.0);
    assert_eq!(read_safetensors(&path).unwrap()["weight"].to_vec::<f32>()[5], 5.0, "the file stays as it was");

    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.safetensors");
    write_safetensors(&copy, [("t", &tensors["weight"].t())]).unwrap();
    assert_eq!(read_safetensors(&copy).unwrap()["t"].shape(), [3, 2]);
}

#[test]
fn damaged_safetensors_are_refused() {
    let bytes = std::fs::read(golden("archives/tensors.safetensors")).unwrap();
    let header = |text: &str, data: usize| {
        let mut b = (text.len() as u64).to_le_bytes().to_vec();
        b.extend_from_slice(text.as_bytes());
        b.resize(b.len() + data, 0);
        b
    };
    for bad in [
        Vec::new(),
        bytes[..bytes.len() - 1].to_vec(),
        u64::MAX.to_le_bytes().to_vec(),
        header("{}x", 0),
        header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4),
        header(r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}"#, 4),
        header(r#"{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#, 4),
    ] {
        let error = safetensors::from_bytes(&bad).expect_err("damaged").to_string();
        assert!(error.contains("safetensors: ") || error.contains("element type F8_E4M3"), "{error}");
    }
}
