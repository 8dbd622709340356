//! Files on the command line: what is read is regular, what is written is whole or untouched, and nothing a file says
//! reaches the terminal as a command.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(unix)]

use firebrand::Tensor;
use firebrand::io::{Archive, ArchiveWriter, read_npz, write_npz};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs").join(name)
}

fn command<S: AsRef<std::ffi::OsStr>>(dir: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrand"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn firebrand<S: AsRef<std::ffi::OsStr>>(dir: &Path, arguments: &[S]) -> Output {
    command(dir, arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[track_caller]
fn refused(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(3), "{}", said(output));
    assert!(said(output).contains(reason), "{reason}: {}", said(output));
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with `model.pt2` and `in.npz`, of a program that writes a buffer.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden("batchnorm_train/model.pt2"), dir.path().join("model.pt2")).unwrap();
    std::fs::copy(golden("batchnorm_train/inputs.npz"), dir.path().join("in.npz")).unwrap();
    dir
}

const RUN: [&str; 4] = ["run", "model.pt2", "--inputs", "in.npz"];

fn run(dir: &Path, more: &[&str]) -> Output {
    firebrand(dir, &[&RUN[..], more].concat())
}

#[test]
fn only_regular_files_are_read() {
    let dir = folder();
    fifo(&dir.path().join("fifo"));
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    for (place, what) in [("fifo", "a FIFO"), ("folder", "a directory"), ("/dev/zero", "a device")] {
        for arguments in [
            vec!["inspect", place],
            vec!["run", place, "--inputs", "in.npz", "-o", "out.npz"],
            vec!["run", "model.pt2", "--inputs", place, "-o", "out.npz"],
            vec!["grad", place, "--inputs", "in.npz", "--loss", "sum", "-o", "out.npz"],
            vec!["grad", "model.pt2", "--inputs", place, "--loss", "sum", "-o", "out.npz"],
            vec!["train", place, "--data", "in.npz", "--loss", "mse", "-o", "out.pt2"],
            vec!["train", "model.pt2", "--data", place, "--loss", "mse", "-o", "out.pt2"],
            vec!["eval", "model.pt2", "--data", place, "--loss", "mse"],
            vec!["pass", "dce", place],
            vec!["viz", place, "-o", "out.html"],
            vec!["bench", "--program", place, "--inputs", "in.npz"],
            vec!["codegen", "lint", "--native", place, "--derivatives", place],
            vec!["codegen", "dump", "--native", place, "--derivatives", place],
        ] {
            let output = firebrand(dir.path(), &arguments);
            // A folder of data is one of images.
            if place == "folder" && arguments.contains(&"--data") && arguments[1] == "model.pt2" {
                assert_eq!(output.status.code(), Some(3), "{}", said(&output));
                continue;
            }
            refused(&output, &format!("expected a regular file, found {what}"));
        }
    }
    assert_eq!(names(dir.path()), ["fifo", "folder", "in.npz", "model.pt2"]);
}

#[test]
fn outputs_respect_what_is_there() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("private.npz"), "old").unwrap();
    std::fs::set_permissions(at("private.npz"), PermissionsExt::from_mode(0o600)).unwrap();
    symlink("private.npz", at("link.npz")).unwrap();
    assert!(run(dir.path(), &["-o", "link.npz"]).status.success());
    assert!(at("link.npz").is_symlink());
    assert_eq!(std::fs::metadata(at("private.npz")).unwrap().permissions().mode() & 0o777, 0o600);
    let expected = std::fs::read(at("private.npz")).unwrap();
    assert_ne!(expected, b"old");

    fifo(&at("fifo"));
    let reader = std::thread::spawn({
        let fifo = at("fifo");
        move || std::fs::read(fifo).unwrap()
    });
    assert!(run(dir.path(), &["-o", "fifo"]).status.success());
    assert!(std::fs::metadata(at("fifo")).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap() == expected);
    assert!(run(dir.path(), &["-o", "/dev/null", "--state-after", "/dev/null"]).status.success());
    let output = run(dir.path(), &["-o", "/dev/stdout"]);
    assert!(output.status.success() && output.stdout == expected, "{}", said(&output));
}

/// A run that fails leaves every output as it was, whichever of them was the reason.
#[test]
fn a_failed_run_changes_nothing() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("out.npz"), "old output").unwrap();
    std::fs::write(at("state.npz"), "old state").unwrap();
    write_npz(at("wrong.npz"), [("nothing", &Tensor::new(&[1.0f32]))]).unwrap();
    let before = names(dir.path());
    for (arguments, reason) in [
        (vec!["-o", "missing/out.npz", "--state-after", "state.npz"], "no such directory"),
        (vec!["-o", "out.npz", "--state-after", "missing/state.npz"], "no such directory"),
        (vec!["-o", ".", "--state-after", "state.npz"], "is a directory"),
        (vec!["-o", "out.npz", "--state-after", "out.npz"], "the same name"),
        (vec!["-o", "out.npz", "--state-after", "./out.npz"], "the same name"),
        (vec!["-o", "/dev/full", "--state-after", "state.npz"], "/dev/full"),
        (vec!["-o", "out.npz", "--state-after", "state.npz", "--inputs", "wrong.npz"], ""),
    ] {
        let mut all = vec!["run", "model.pt2"];
        if !arguments.contains(&"--inputs") {
            all.extend(["--inputs", "in.npz"]);
        }
        all.extend(&arguments);
        refused(&firebrand(dir.path(), &all), reason);
        assert_eq!(std::fs::read(at("out.npz")).unwrap(), b"old output", "{arguments:?}");
        assert_eq!(std::fs::read(at("state.npz")).unwrap(), b"old state", "{arguments:?}");
        assert_eq!(names(dir.path()), before, "{arguments:?}");
    }
    // Refused before any work: the model is not even looked at.
    for arguments in [
        vec!["grad", "no.pt2", "--inputs", "in.npz", "--loss", "sum", "-o", "missing/out"],
        vec!["train", "no.pt2", "--data", "in.npz", "--loss", "mse", "-o", "missing/out"],
        vec!["viz", "no.pt2", "-o", "missing/out"],
        vec!["pass", "dce", "no.pt2", "-o", "missing/out"],
    ] {
        refused(&firebrand(dir.path(), &arguments), "no such directory");
    }
}

/// A signal that ends the program takes its unfinished files with it.
#[test]
fn signals_leave_nothing_behind() {
    let dir = folder();
    fifo(&dir.path().join("fifo"));
    for signal in ["TERM", "INT", "HUP"] {
        // Nobody reads the FIFO, so the run waits, with the other output written but not in its place.
        let arguments = [&RUN[..], &["-o", "fifo", "--state-after", "state.npz"]].concat();
        let mut child = command(dir.path(), &arguments).spawn().unwrap();
        let unfinished = || names(dir.path()).iter().any(|n| n.starts_with(".state.npz.") && n.ends_with(".tmp"));
        while !unfinished() {
            assert!(child.try_wait().unwrap().is_none(), "it ended early");
            std::thread::yield_now();
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args([format!("-{signal}"), id]).status().unwrap().success());
        assert!(child.wait().unwrap().signal().is_some(), "{signal}");
        assert_eq!(names(dir.path()), ["fifo", "in.npz", "model.pt2"], "{signal}");
    }
}

/// A copy of the model with its JSON changed.
fn changed(dir: &Path, from: &str, to: &str) {
    let archive = Archive::open(golden("mlp/model.pt2")).unwrap();
    let mut writer = ArchiveWriter::new(Vec::new());
    for name in archive.names() {
        let content = archive.read(name, 1 << 20).unwrap().into_owned();
        let content = match name.ends_with("models/model.json") {
            true => {
                let text = String::from_utf8(content).unwrap();
                assert!(text.contains(from), "{from}");
                text.replace(from, to).into_bytes()
            }
            false => content,
        };
        writer.add(name, &content).unwrap();
    }
    std::fs::write(dir.join("changed.pt2"), writer.finish().unwrap()).unwrap();
}

#[test]
fn nothing_of_a_file_is_a_command_to_the_terminal() {
    let dir = folder();
    std::fs::copy(golden("mlp/inputs.npz"), dir.path().join("mlp.npz")).unwrap();
    std::fs::write(dir.path().join("text.fb"), "graph():\n  %x\u{1b}[2J = placeholder\n").unwrap();
    let strange = r"a b\n%\u001b[31m\u202e";
    for (from, to) in [
        ("\"relu\"", format!("\"{strange}\"")),
        ("torch.ops.aten.relu.default", format!("torch.ops.aten.{strange}.default")),
        ("torch.ops.aten.relu.default", "torch.ops.aten.tomato.default".into()),
        ("\"torch_version\": \"", format!("\"torch_version\": \"{strange}")),
        ("\"0.weight\"", format!("\"{strange}\"")),
    ] {
        changed(dir.path(), from, &to);
        for arguments in [
            vec!["inspect", "changed.pt2"],
            vec!["inspect", "changed.pt2", "--json"],
            vec!["run", "changed.pt2", "--inputs", "mlp.npz", "-o", "out.npz"],
            vec!["pass", "dce", "changed.pt2"],
            vec!["pass", "dce", "changed.pt2", "--long"],
            vec!["inspect", "text.fb"],
        ] {
            let output = firebrand(dir.path(), &arguments);
            let text = said(&output);
            assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
            let bad = text.chars().find(|c| c.is_control() && !"\n\t".contains(*c) || *c == '\u{202e}');
            assert!(bad.is_none(), "{arguments:?} {to}: {bad:?} in {text}");
            if arguments.contains(&"--json") && output.status.success() {
                let _: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            }
        }
    }
    // Names on the command line are printed too, and need not be text.
    for name in ["a\u{1b}[31m\n", "\u{9b}2J"] {
        for arguments in [vec!["inspect", name], vec!["run", name], vec!["pass", name, "x"], vec![name]] {
            let output = firebrand(dir.path(), &arguments);
            assert!(matches!(output.status.code(), Some(2 | 3)), "{arguments:?}");
            let shown = said(&output);
            assert!(!shown.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{arguments:?}: {shown:?}");
        }
    }
    let bytes = std::ffi::OsString::from_vec(b"inspect\xff\x1b".to_vec());
    assert!(!said(&firebrand(dir.path(), &[bytes])).contains('\u{1b}'));
}

/// With `--copy-weights` the results are the same, and the file may change while the program runs.
#[test]
fn weights_are_mapped_or_copied() {
    let dir = folder();
    for (name, more) in [("mapped.npz", &[][..]), ("copied.npz", &["--copy-weights"])] {
        let output = run(dir.path(), &[&["-o", name], more].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(read("mapped.npz") == read("copied.npz"));
    assert!(!read_npz(dir.path().join("copied.npz")).unwrap().is_empty());
}
