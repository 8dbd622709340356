//! No input takes more memory than it justifies: short files that want much are refused, honest ones are read.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::{DType, Tensor};
use firebrand_io::{Archive, ArchiveWriter, Budget, Error, ReadOptions, npz, safetensors, torch_save};
use std::io::{Cursor, Write};

/// What readers may spend here beyond the factor, so that short files show it.
const SPARE: u64 = 1 << 20;

fn options() -> ReadOptions {
    ReadOptions { spare: SPARE, ..ReadOptions::default() }
}

fn deflated(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, content) in entries {
        out.start_file(*name, options).unwrap();
        out.write_all(content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

fn stored(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = ArchiveWriter::new(Vec::new());
    entries.iter().for_each(|(name, content)| out.add(name, content).unwrap());
    out.finish().unwrap()
}

/// Text that compresses about 150 times: just what the ratio of archives allows.
fn compressible(unit: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    let mut state = 1u32;
    while bytes.len() < length {
        bytes.extend(unit.repeat(6000 / unit.len()));
        for _ in 0..40 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.extend(if unit == b"N" {
                vec![b'K', (state >> 24) as u8]
            } else {
                vec![b'a' + (state >> 24) as u8 % 26]
            });
        }
    }
    bytes
}

fn pickle(body: &[u8]) -> Vec<u8> {
    [b"\x80\x02", body, b"."].concat()
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, label: &str) {
    let Err(e) = result else { panic!("{label}: accepted") };
    let message = e.to_string();
    let known = ["memory", "implausible compression", "more than the file justifies", "inside an archive", "truncated"];
    assert!(known.iter().any(|k| message.contains(k)), "{label}: {message}");
}

#[test]
fn pickles_pay_for_every_value() {
    let n = 1 << 17;
    for (label, body) in [
        ("None", b"N".repeat(n)),
        ("empty tuples", b")".repeat(n)),
        ("empty lists", b"]".repeat(n)),
        ("memo", [&b"N"[..], &b"\x94".repeat(n)].concat()),
        ("tuples of one", [&b"N"[..], &b"\x85".repeat(n)].concat()),
        (
            "shared values",
            [&b"]q\0"[..], &(0..60u8).flat_map(|i| [b'(', b'h', i, b'h', i, b't', b'q', i + 1]).collect::<Vec<_>>()]
                .concat(),
        ),
        ("long text, shared", [&b"X\0\0\x01\0"[..], &[b'x'; 1 << 16], b"q\0(", &b"h\0".repeat(1 << 12), b"t"].concat()),
    ] {
        let bytes = stored(&[("a/data.pkl", &pickle(&body))]);
        refused(torch_save::from_bytes_with(bytes, options()), label);
    }
    // As many values in lists of their own, within what they justify.
    let honest = pickle(&[&b"]("[..], &b"K\x01".repeat(1000), b"e"].concat());
    assert!(torch_save::from_bytes_with(stored(&[("a/data.pkl", &honest)]), options()).is_ok());
}

#[test]
fn compression_does_not_multiply() {
    let bomb = pickle(&compressible(b"N", 2 << 20));
    let once = deflated(&[("a/data.pkl", &bomb)]);
    assert!(once.len() < bomb.len() / 50, "it compresses");
    refused(torch_save::from_bytes_with(once.clone(), options()), "one layer");
    let outer = Archive::from_bytes_with(stored(&[("inner", &once)]), options()).unwrap();
    let inner = outer.read("inner", 1 << 30).unwrap().into_owned();
    let message = outer.inner(inner).err().unwrap().to_string();
    assert!(message.contains("archive inside an archive"), "{message}");
    // An inner archive that is stored draws on the outer one's budget.
    let small = stored(&[("a/data.pkl", &pickle(&b"N".repeat(1 << 14)))]);
    let entries: Vec<(String, Vec<u8>)> = (0..8).map(|i| (format!("e{i}"), small.clone())).collect();
    let entries: Vec<(&str, &[u8])> = entries.iter().map(|(n, c)| (n.as_str(), c.as_slice())).collect();
    let outer = Archive::from_bytes_with(deflated(&entries), options()).unwrap();
    let read = |name: &str| -> Result<(), Error> {
        let inner = outer.inner(outer.read(name, 1 << 30)?.into_owned())?;
        torch_save::from_archive(&inner).map(drop)
    };
    refused((0..8).try_for_each(|i| read(&format!("e{i}"))), "eight inner archives");
}

#[test]
fn json_pays_for_its_values() {
    for (label, text) in [
        ("lists", format!("[{}0]", "[],".repeat(1 << 17))),
        ("numbers", format!("[{}0]", "0,".repeat(1 << 18))),
        ("objects", format!("[{}0]", "{},".repeat(1 << 16))),
    ] {
        let archive = Archive::from_bytes_with(
            deflated(&[("j", text.as_bytes())]),
            ReadOptions { ratio_limit: 2000, ..options() },
        );
        refused(archive.unwrap().read_json("j", 1 << 30), label);
    }
    let header = format!("{{{}}}", (0..1 << 14).map(|i| format!("\"{i:05}\":[]")).collect::<Vec<_>>().join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let error = safetensors::from_bytes(&bytes).expect_err("entries that are none").to_string();
    assert!(error.starts_with("safetensors: "), "{error}");
}

#[test]
fn arrays_cost_what_they_hold() {
    let zeros = |n: usize| {
        let t = Tensor::zeros([n], DType::F32);
        let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        out.start_file("x.npy", options).unwrap();
        firebrand_io::npy::write(&mut out, &t).unwrap();
        out.finish().unwrap().into_inner()
    };
    // Eight million bytes in eight thousand: refused where one million are to spare, read where 64 are.
    let bytes = zeros(2 << 20);
    refused(npz::from_bytes_within(&bytes, &Budget::with_spare(bytes.len() as u64, SPARE)), "8 MiB of zeros");
    assert_eq!(npz::from_bytes(&bytes).unwrap()["x"].numel(), 2 << 20);
    let bytes = zeros(40 << 20);
    refused(npz::from_bytes(&bytes), "160 MiB of zeros");
    // What is stored is always within its budget.
    let stored = npz::to_bytes([("x", &Tensor::zeros([2 << 20], DType::F32))]).unwrap();
    assert!(npz::from_bytes_within(&stored, &Budget::with_spare(stored.len() as u64, 0)).is_ok());
}

/// One storage of one element type: PyTorch writes no other, and two would be two views of the same pages.
#[test]
fn a_storage_has_one_element_type() {
    let storage = |class: &str| format!("(X\x07\0\0\0storagectorch\n{class}\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ");
    let tensor = |class: &str| {
        format!(
            "ctorch._utils\n_rebuild_tensor_v2\n({}K\0(K\x04t(K\x01t\u{89}ccollections\nOrderedDict\n)RtR",
            storage(class)
        )
    };
    // `\u{89}` is one byte in a pickle.
    let bytes = |text: String| text.chars().map(|c| c as u8).collect::<Vec<u8>>();
    let read = |classes: [&str; 2]| {
        let body = bytes(format!("({}{}t", tensor(classes[0]), tensor(classes[1])));
        torch_save::from_bytes(stored(&[("a/data.pkl", &pickle(&body)), ("a/data/0", &[0; 16])]))
    };
    assert!(read(["FloatStorage", "FloatStorage"]).is_ok());
    let message = read(["FloatStorage", "IntStorage"]).err().unwrap().to_string();
    assert!(message.contains("storage 0 has two dtypes"), "{message}");
}

/// Text of files never reaches a message as it is.
#[test]
fn messages_hold_no_control_characters() {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    out.start_file("a\u{1b}[2J\nb.npy", zip::write::SimpleFileOptions::default()).unwrap();
    out.write_all(b"nothing").unwrap();
    let bytes = out.finish().unwrap().into_inner();
    let message = npz::from_bytes(&bytes).err().unwrap().to_string();
    assert!(message.contains("a\\u001b[2J\\nb"), "{message}");
    let message = Archive::from_bytes(bytes).err().unwrap().to_string();
    assert!(message.contains("has a control character") && !message.contains('\u{1b}'), "{message}");
    assert_eq!(firebrand_io::plain("plain text"), "plain text");
    assert_eq!(firebrand_io::plain("\u{202e}\u{7f}\u{85}"), "\\u202e\\u007f\\u0085");
}
