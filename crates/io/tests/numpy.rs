//! Files that NumPy wrote, round trips, and files nobody should have written.

use firebrand_core::{Complex, DType, Device, Element, Tensor, bf16, f16};
use firebrand_io::{Error, npy, npz, read_npy, read_npz, write_atomic, write_npy, write_npz};
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/npy").join(name)
}

fn tensor<T: Element>(value: impl Fn(f64) -> f64) -> Tensor {
    let data: Vec<T> = (0..6).map(|i| T::from_f64(value(f64::from(i)))).collect();
    Tensor::from_slice(&data, [2usize, 3])
}

/// One tensor of every dtype, with values that it holds exactly; the same as in `golden/npy/all.npz`.
fn samples() -> Vec<(&'static str, Tensor)> {
    let (quarter, less) = (|v| v / 4.0, |v| v - 3.0);
    vec![
        ("bool", tensor::<bool>(|v| f64::from(v % 2.0 == 0.0))),
        ("uint8", tensor::<u8>(|v| v)),
        ("int8", tensor::<i8>(less)),
        ("int16", tensor::<i16>(less)),
        ("int32", tensor::<i32>(less)),
        ("int64", tensor::<i64>(less)),
        ("float16", tensor::<f16>(quarter)),
        ("float32", tensor::<f32>(quarter)),
        ("float64", tensor::<f64>(quarter)),
        ("bfloat16", tensor::<bf16>(quarter)),
    ]
}

#[track_caller]
fn assert_same(found: &Tensor, expected: &Tensor) {
    assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()));
    assert_eq!(found.to_vec::<f64>(), expected.to_vec::<f64>());
}

#[test]
fn numpy_files_are_read() {
    let t = read_npy(golden("c_order.npy")).expect("readable");
    assert_same(&t, &tensor::<f32>(|v| v / 4.0));
    let t = read_npy(golden("fortran_order.npy")).expect("readable");
    assert_eq!(t.strides(), [1, 2]);
    assert_same(&t, &tensor::<f64>(|v| v / 4.0));
    assert_eq!(read_npy(golden("big_endian.npy")).expect("readable").to_vec::<i32>(), [-3, -2, -1, 0, 1, 2]);
    assert_eq!(read_npy(golden("scalar.npy")).expect("readable").item::<i64>(), -7);
    assert_eq!(read_npy(golden("empty.npy")).expect("readable").shape(), [0, 3]);
    for name in ["all.npz", "all_compressed.npz"] {
        let tensors = read_npz(golden(name)).expect("readable");
        samples().iter().for_each(|(name, expected)| assert_same(&tensors[*name], expected));
    }
    assert_eq!(read_npz(golden("zeros.npz")).expect("readable")["zeros"].shape(), [100_000]);
}

#[test]
fn our_bytes_are_numpys_bytes() {
    let ours = npy::to_bytes(&tensor::<f32>(|v| v / 4.0)).expect("writable");
    assert_eq!(ours, std::fs::read(golden("c_order.npy")).expect("there"));
}

#[test]
fn every_dtype_survives_a_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.npy");
    for (_, t) in samples() {
        write_npy(&path, &t).expect("writable");
        assert_same(&read_npy(&path).expect("readable"), &t);
    }
    let (path, samples) = (folder.path().join("all.npz"), samples());
    write_npz(&path, samples.iter().map(|(n, t)| (n, t))).expect("writable");
    let back = read_npz(&path).expect("readable");
    assert!(back.keys().eq(samples.iter().map(|(n, _)| n)));
    samples.iter().for_each(|(n, t)| assert_same(&back[*n], t));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "temporary files are gone");
}

#[test]
fn complex_numbers_are_pairs() {
    let want = [Complex::new(1.0f64, 2.0), Complex::new(0.0, -0.5)];
    for (name, dtype) in [("complex.npy", DType::C128), ("complex_big_endian.npy", DType::C64)] {
        let t = read_npy(golden(name)).expect("readable");
        assert_eq!((t.dtype(), t.to_vec::<Complex<f64>>()), (dtype, want.to_vec()));
    }
}

#[test]
fn what_no_tensor_holds_is_refused() {
    fn innermost(e: Error) -> Error {
        match e {
            Error::File { source, .. } | Error::Array { source, .. } => innermost(*source),
            other => other,
        }
    }
    let read = |n: &str| innermost(read_npy(golden(n)).expect_err("refused"));
    assert!(matches!(read("long_complex_refused.npy"), Error::ElementType { .. }));
    assert!(matches!(read("records_refused.npy"), Error::Header { .. }));
    assert!(matches!(read("../generator.json"), Error::Magic { .. }));
    assert!(matches!(read("missing.npy"), Error::System(_)));
    let e = innermost(read_npz(golden("uint64_refused.npz")).expect_err("refused"));
    assert!(matches!(e, Error::ElementType { .. }), "{e}");
}

#[test]
fn headers_cannot_ask_for_more_than_the_file_holds() {
    let with_shape = |shape: &str| {
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        npy::from_bytes(&bytes)
    };
    assert!(matches!(with_shape("(1000000000000,)"), Err(Error::Truncated { .. })));
    assert!(matches!(with_shape("(4294967296, 4294967296, 4294967296)"), Err(Error::Shape { .. })));
    assert!(matches!(with_shape("(0, 9223372036854775807, 2)"), Err(Error::Shape { .. })));
    assert!(matches!(with_shape(&format!("({})", "1, ".repeat(65))), Err(Error::Shape { .. })));
    assert_eq!(with_shape("(0, 5)").expect("nothing to read").shape(), [0, 5]);
    assert!(matches!(npy::from_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), Err(Error::Truncated { .. })));
}

/// Every truncation is an error; every changed byte gives tensors or an error, never a panic.
#[test]
fn damaged_files_never_panic() {
    fn damage<T>(whole: &[u8], read: impl Fn(&[u8]) -> Result<T, Error>) {
        for n in 0..whole.len() {
            assert!(read(&whole[..n]).is_err(), "cut at {n}");
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.to_vec();
                bytes[n] ^= flip;
                let _ = read(&bytes);
            }
        }
    }
    let file = |n: &str| std::fs::read(golden(n)).expect("there");
    damage(&file("c_order.npy"), npy::from_bytes);
    damage(&file("fortran_order.npy"), npy::from_bytes);
    damage(&file("all.npz"), npz::from_bytes);
    damage(&file("all_compressed.npz"), npz::from_bytes);
}

#[test]
fn changed_data_fails_its_checksum() {
    let mut bytes = npz::to_bytes([("t", &Tensor::new(&[1.0f32; 64]))]).expect("writable");
    let data = bytes.windows(4).position(|w| w == 1.0f32.to_le_bytes()).expect("the data is stored plainly");
    bytes[data] ^= 1;
    let error = npz::from_bytes(&bytes).expect_err("a changed byte").to_string();
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn two_arrays_of_one_name_are_refused() {
    let t = Tensor::new(&[1.0f32]);
    assert!(matches!(npz::to_bytes([("a", &t), ("a", &t)]), Err(Error::DuplicateName { .. })));
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.npy");
    let old = Tensor::new(&[1.0f32]);
    write_npy(&path, &old).expect("writable");
    let meta = Tensor::empty([3usize], (DType::F32, Device::Meta));
    assert!(matches!(write_npy(&path, &meta), Err(Error::File { .. })));
    let failed = write_atomic(&path, |_| Err(Error::Version { major: 9, minor: 9 })).expect_err("as it failed");
    assert!(failed.to_string().contains("npy version 9.9"), "{failed}");
    assert_same(&read_npy(&path).expect("still there"), &old);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let error = write_npy(folder.path().join("no/such/folder/t.npy"), &old).expect_err("no folder").to_string();
    assert!(error.contains("no/such/folder"), "{error}");
}

/// Rows of a mapped archive are those of the arrays: stored and deflated, aligned or not, of any dtype; nothing but the rows that are asked for is copied.
#[test]
fn rows_of_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.npz");
    let f = Tensor::arange(0, 60, 1, DType::F32).reshape([10, 2, 3]);
    let d = Tensor::arange(0, 10, 1, DType::F64);
    let i = Tensor::arange(0, 30, 1, DType::I64).reshape([10, 3]);
    let b = Tensor::new(&[true, false, true]);
    // Names of different lengths, so that elements lie anywhere.
    firebrand_io::write_npz(&path, [("x", &f), ("of_another_length", &d), ("abc", &i), ("flags", &b)]).unwrap();
    let rows = firebrand_io::read_npz_rows(&path).unwrap();
    for (name, whole) in [("x", &f), ("of_another_length", &d), ("abc", &i)] {
        let rows = &rows[name];
        assert_eq!((rows.shape(), rows.dtype(), rows.len()), (whole.shape(), whole.dtype(), 10));
        let picked = rows.select(&[7, 0, 7]).unwrap();
        let expected = firebrand_core::ops::index_select(whole, 0, &Tensor::new(&[7i64, 0, 7])).unwrap();
        assert_eq!((picked.shape(), picked.dtype()), (expected.shape(), whole.dtype()));
        assert_eq!(picked.to_dtype(DType::F64).to_vec::<f64>(), expected.to_dtype(DType::F64).to_vec::<f64>());
        assert!(rows.select(&[10]).is_err());
    }
    assert_eq!(rows["flags"].select(&[2, 1]).unwrap().to_vec::<bool>(), [true, false]);
    // What is copied is not written to the file.
    rows["x"].select(&[0]).unwrap().mul_(2.0);
    assert_eq!(rows["x"].select(&[0]).unwrap().to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}
