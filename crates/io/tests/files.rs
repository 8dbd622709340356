//! Which files are read, and how files are written: regular ones only in, whole or not at all out.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::{DType, Tensor};
use firebrand_io::*;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    make_fifo(&fifo);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    type Reader = fn(&Path) -> Option<Error>;
    let readers: [(&str, Reader); 7] = [
        ("npy", |p| read_npy(p).err()),
        ("npz", |p| read_npz(p).err()),
        ("safetensors", |p| read_safetensors(p).err()),
        ("safetensors, copied", |p| read_safetensors_with(p, Memory::Copied).err()),
        ("torch.save", |p| read_torch_save(p).err()),
        ("archive", |p| Archive::open(p).err()),
        ("archive, copied", |p| {
            Archive::open_with(p, ReadOptions { memory: Memory::Copied, ..ReadOptions::default() }).err()
        }),
    ];
    let places =
        [(&*fifo, "a FIFO"), (dir.path(), "a directory"), (Path::new("/dev/zero"), "a device"), (&*link, "a device")];
    for (name, read) in readers {
        for (path, what) in places {
            let message = read(path).unwrap_or_else(|| panic!("{name} read {what}")).to_string();
            assert!(message.contains(&format!("expected a regular file, found {what}")), "{name}: {message}");
        }
        let message = read(&dir.path().join("missing")).unwrap().to_string();
        assert!(message.contains("missing"), "{name}: {message}");
    }
}

#[test]
fn an_output_appears_when_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    std::fs::write(&path, "old").unwrap();
    let stage = |text: &'static str| Output::write(&path, move |out| Ok(out.write_all(text.as_bytes())?)).unwrap();
    let (dropped, first, second) = (stage("dropped"), stage("first"), stage("second"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    drop(dropped);
    second.commit().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
    first.commit().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
    let failed = Output::write(&path, |out| {
        out.write_all(b"half")?;
        Err(std::io::Error::other("the disk is full").into())
    });
    assert!(failed.unwrap_err().to_string().contains("the disk is full"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
    assert_eq!(names(dir.path()), ["out.txt"], "nothing is left behind");
}

#[cfg(unix)]
#[test]
fn outputs_respect_what_is_there() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    // The mode stays, also an unusual one.
    for mode in [0o600, 0o640, 0o755] {
        std::fs::write(at("file"), "old").unwrap();
        std::fs::set_permissions(at("file"), PermissionsExt::from_mode(mode)).unwrap();
        write_text(at("file"), "new").unwrap();
        assert_eq!(std::fs::metadata(at("file")).unwrap().permissions().mode() & 0o7777, mode);
    }
    // A new file has the mode that any new file has.
    std::fs::write(at("plain"), "").unwrap();
    write_text(at("new"), "").unwrap();
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode();
    assert_eq!(mode("new"), mode("plain"));
    // Links are followed, one after the other, and when they lead to nothing yet.
    std::fs::create_dir(at("folder")).unwrap();
    symlink("folder/target", at("link")).unwrap();
    symlink("link", at("link2")).unwrap();
    for (link, content) in [("link2", "made"), ("link", "replaced")] {
        write_text(at(link), content).unwrap();
        assert_eq!(text("folder/target"), content);
        assert!(at("link").is_symlink() && at("link2").is_symlink());
    }
    symlink("circle", at("circle")).unwrap();
    let error = write_text(at("circle"), "").expect_err("a link to itself").to_string();
    assert!(error.contains("circle"), "{error}");
    // A FIFO is written as it is, with what needs a file to seek in too.
    make_fifo(&at("fifo"));
    let reader = std::thread::spawn({
        let fifo = at("fifo");
        move || std::fs::read(fifo).unwrap()
    });
    let tensor = Tensor::new(&[1.0f32, 2.0]);
    write_npz(at("fifo"), [("x", &tensor)]).unwrap();
    assert_eq!(reader.join().unwrap(), npz::to_bytes([("x", &tensor)]).unwrap());
    assert!(std::fs::metadata(at("fifo")).unwrap().file_type().is_fifo());
    write_text("/dev/null", "nothing").unwrap();
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn outputs_are_checked_beforehand() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("old"), "old").unwrap();
    check_outputs([at("old"), at("new")]).unwrap();
    assert_eq!(names(dir.path()), ["old"], "checking leaves nothing");
    let through = dir.path().join(".").join("new");
    for (paths, reason) in [
        (vec![dir.path().to_path_buf()], "is a directory"),
        (vec![at("missing/out")], "no such directory"),
        (vec![at("old/out")], "not a directory"),
        (vec![PathBuf::from("")], ""),
        (vec![PathBuf::from("/")], "is a directory"),
        (vec![at("new"), at("new")], "the same name"),
        (vec![at("new"), through], "the same name"),
    ] {
        let message = check_outputs(&paths).expect_err(reason).to_string().to_lowercase();
        assert!(message.contains(reason), "{paths:?}: {message}");
        assert!(write_text(paths.last().unwrap(), "").is_err() || reason == "the same name", "{paths:?}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("old", at("link")).unwrap();
        let error = check_outputs([at("old"), at("link")]).expect_err("two names of one file").to_string();
        assert!(error.contains("the same name"), "{error}");
    }
}

/// Names are random, so neither leftovers nor other writers are in the way; long names are cut.
#[test]
fn temporary_names_do_not_collide() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("n".repeat(250));
    let stage = || Output::write(&long, |_| Ok(())).unwrap();
    let all: Vec<Output> = (0..50).map(|_| stage()).collect();
    assert_eq!(names(dir.path()).len(), 50);
    assert!(names(dir.path()).iter().all(|n| n.starts_with(".nnn") && n.ends_with(".tmp")));
    Output::commit_all(all).unwrap();
    assert_eq!(names(dir.path()).len(), 1);
}

/// Large arrays pass through in pieces.
#[test]
fn large_arrays_come_back() {
    for dtype in [DType::F32, DType::I64, DType::Bool] {
        let numbers: Vec<f32> = (0..3 * 43_700).map(|i| (i % 2) as f32).collect();
        let t = Tensor::new(&numbers).try_to_dtype(dtype).unwrap();
        let t = t.try_reshape([3, -1]).unwrap().try_permute([1, 0]).unwrap();
        let again = npy::from_bytes(&npy::to_bytes(&t).unwrap()).unwrap();
        assert_eq!((again.shape(), again.dtype()), (t.shape(), dtype));
        let bits = |t: &Tensor| t.try_to_dtype(DType::F32).unwrap().to_vec::<f32>();
        assert!(bits(&again) == bits(&t), "{dtype}");
    }
}
