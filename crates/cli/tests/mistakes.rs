//! Mistakes that people make on their first day: every answer says what was expected, what was found and what to do.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(unix)] // `-` as an output

use firebrand::io::write_npz;
use firebrand::{DType, Tensor};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the bundled program for digits, samples for it, and files that are something else.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../firebrand/data");
    std::fs::copy(data.join("digits.pt2"), at("model.pt2")).unwrap();
    let (x, labels) = (Tensor::zeros([8, 64], DType::F32), Tensor::zeros([8], DType::I64));
    write_npz(at("samples.npz"), [("input", &x), ("__target__", &labels)]).unwrap();
    write_npz(at("one.npz"), [("input", &x)]).unwrap();
    write_npz(at("named.npz"), [("x", &x)]).unwrap();
    std::fs::write(at("cut.npz"), &std::fs::read(at("one.npz")).unwrap()[..400]).unwrap();
    std::fs::write(at("empty.pt2"), "").unwrap();
    std::fs::write(at("text.pt2"), "hello\n").unwrap();
    std::fs::write(at("empty.csv"), "").unwrap();
    std::fs::create_dir(at("place")).unwrap();
    dir
}

fn firebrand(dir: &Path, arguments: &[&str]) -> Output {
    firebrand_with(dir, arguments, ("FIREBRAND_NUM_THREADS", "1"))
}

fn firebrand_with(dir: &Path, arguments: &[&str], (name, value): (&str, &str)) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrand"));
    command.args(arguments).current_dir(dir).env(name, value).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Commands, exit codes, and what the answers must contain.
const MISTAKES: [(&str, i32, &[&str]); 24] = [
    ("inspect place", 3, &["place: expected a regular file, found a directory"]),
    ("inspect empty.pt2", 3, &["expected a .pt2 archive or a graph in text form, found an empty file"]),
    ("inspect text.pt2", 3, &["expected a .pt2 archive or a graph in text form: line 1"]),
    ("inspect one.npz", 3, &["this is an archive of arrays (.npz), not an exported program", "torch.export.save"]),
    ("run text.pt2 --inputs one.npz -o o.npz", 3, &["expected an exported program (.pt2)", "torch.export.save"]),
    ("run model.pt2 --inputs model.pt2 -o o.npz", 3, &["this is an exported program, not an .npz file"]),
    ("run model.pt2 --inputs named.npz -o o.npz", 3, &["input input: missing; expected this name, found x"]),
    ("run model.pt2 --inputs cut.npz -o o.npz", 3, &["cut.npz: zip archive truncated or damaged"]),
    ("run model.pt2 --inputs one.npz -o place", 3, &["is a directory; give the name of a file"]),
    ("train model.pt2 --data model.pt2 --loss cross_entropy --out r", 3, &["not an .npz file"]),
    (
        "train model.pt2 --data empty.csv --loss cross_entropy --out r",
        3,
        &["the file is empty; expected a header line"],
    ),
    (
        "train model.pt2 --data samples.npz --loss mse --out r",
        3,
        &["expected labels of the output's shape, [8, 10], found [8]"],
    ),
    (
        "train model.pt2 --data samples.npz --loss cross_entropy --lora --targets up --out r",
        3,
        &["it has \"0\", \"2\""],
    ),
    ("train model.pt2 --data samples.npz --loss cross_entropy --rank 4 --out r", 2, &["need --lora"]),
    ("train --quantize 4", 2, &["--quantize needs an exported program: add MODEL.pt2"]),
    ("train --alpha 4", 2, &["adapter option needs an exported program: add MODEL.pt2"]),
    ("eval model.pt2", 2, &["--data is missing"]),
    ("pass functionalise model.pt2", 2, &["no pass `functionalise`; did you mean `functionalize`?", "--list"]),
    ("pass model.pt2 functionalize", 2, &["this is a file; the passes come first, then the file"]),
    ("generate model.pt2 --ids 1,x", 2, &["expected a token id, a whole number"]),
    ("convert text.pt2 o.npz", 3, &["unknown format; expected a .safetensors file"]),
    ("man one.npz", 3, &["expected a directory, found a file"]),
    ("codegen lint", 3, &["schema/ops.yaml: no such file; run this in firebrand's source directory"]),
    ("run model.pt2 --inputs one.npz -o - --json", 2, &["both write to standard output"]),
];

#[test]
fn mistakes_are_explained() {
    let dir = folder();
    let before = std::fs::read_dir(dir.path()).unwrap().count();
    for (command, code, texts) in MISTAKES {
        let output = firebrand(dir.path(), &command.split(' ').collect::<Vec<_>>());
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        for text in texts {
            assert!(said.contains(text), "{command}: expected {text:?}, found {said}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before, "nothing was written");
}

#[test]
fn environment_variables_are_checked() {
    let dir = folder();
    let inspect = ["inspect", "model.pt2"];
    for (name, value) in [("FIREBRAND_NUM_THREADS", "many"), ("FIREBRAND_NUM_THREADS", "0"), ("FIREBRAND_CPU", "sse")] {
        let output = firebrand_with(dir.path(), &inspect, (name, value));
        assert_eq!(output.status.code(), Some(2), "{name}={value}");
        assert!(errors(&output).contains(&format!("{name} is {value:?}; expected")), "{}", errors(&output));
    }
    // Unset in effect, overridden, and valid.
    for (arguments, variable) in [
        (&inspect[..], ("FIREBRAND_NUM_THREADS", "")),
        (&["inspect", "model.pt2", "--threads", "1"], ("FIREBRAND_NUM_THREADS", "many")),
        (&inspect, ("FIREBRAND_CPU", "portable")),
    ] {
        let output = firebrand_with(dir.path(), arguments, variable);
        assert!(output.status.success(), "{variable:?}: {}", errors(&output));
    }
}

/// A page on standard output is nothing but the page, and what is decided for the user is noted.
#[test]
fn pages_and_notes() {
    let dir = folder();
    let train = |out: &str| {
        let more = ["--loss", "cross_entropy", "--epochs", "1", "--warmup", "500", "--out", out];
        firebrand(dir.path(), &[&["train", "model.pt2", "--data", "samples.npz"][..], &more].concat())
    };
    let output = train("a");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("note: --warmup 500: the run has only 1 step,"), "{}", errors(&output));
    assert!(train("b").status.success());
    let page = firebrand(dir.path(), &["runs", "compare", "a", "b", "-o", "-"]);
    let text = String::from_utf8(page.stdout).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"), "{text}");
    let list = firebrand(dir.path(), &["runs", "list", "."]);
    assert!(String::from_utf8(list.stdout).unwrap().contains("1 epoch "));
}
