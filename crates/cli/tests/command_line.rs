//! The program as its users meet it: arguments, output, files, exit codes.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn firebrand(arguments: &[&str], folder: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_firebrand");
    Command::new(program).args(arguments).current_dir(folder).output().expect("the program starts")
}

#[track_caller]
fn done(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[track_caller]
fn refused(output: &Output, reason: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(reason), "{errors}");
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

/// The first percentage in a text.
fn accuracy_in(text: &str) -> f64 {
    text.split_whitespace().find_map(|w| w.trim_end_matches(',').strip_suffix('%')?.parse().ok()).expect("an accuracy")
}

#[test]
fn training_learns_and_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = done(&firebrand(&["train", "--epochs", "4"], folder.path()));
    let accuracy = accuracy_in(&text);
    assert!(accuracy > 90.0, "{text}");
    let run = folder.path().join("runs/0001");
    let mut files: Vec<_> =
        std::fs::read_dir(&run).expect("the run's folder").map(|e| e.expect("readable").file_name()).collect();
    files.sort();
    let is_event = |f: &std::ffi::OsString| f.to_string_lossy().starts_with("events.out.tfevents.");
    assert_eq!(files.iter().filter(|f| is_event(f)).count(), 1);
    files.retain(|f| !is_event(f));
    let names = ["best.safetensors", "checkpoint.safetensors", "metrics.csv", "metrics.jsonl", "model.safetensors"];
    assert_eq!(files, [&names[..], &["report.html", "run.json", "run.toml"]].concat());
    let facts: Value = serde_json::from_str(&read(run.join("run.json"))).expect("JSON");
    assert_eq!((&facts["schema"], &facts["train_samples"]), (&"firebrand.run/1".into(), &1437.into()));
    let settings = read(run.join("run.toml"));
    assert!(settings.contains("epochs = 4") && settings.contains("seed = 0"), "{settings}");
    let last: Value =
        serde_json::from_str(read(run.join("metrics.jsonl")).lines().last().expect("lines")).expect("JSON");
    assert_eq!(last["epoch"], 4);
    assert!((last["val_accuracy"].as_f64().expect("a number") * 100.0 - accuracy).abs() < 0.01);
    assert_eq!(read(run.join("metrics.csv")).lines().count(), 5);
    let html = read(run.join("report.html"));
    for part in ["<svg", "Confusion", "Hardest samples", "ReluBackward0", "AccumulateGrad", "</html>"] {
        assert!(html.contains(part), "{part} is missing");
    }
    // Self-contained: nothing is loaded from elsewhere.
    assert!(!html.contains("http") && !html.replace("src='data:image/png;base64,", "").contains("src="));
}

#[test]
fn training_in_mixed_precision_learns() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = done(&firebrand(&["train", "--epochs", "2", "--bf16", "--out", "run"], folder.path()));
    assert!(accuracy_in(&text) > 90.0, "{text}");
    assert!(read(folder.path().join("run/report.html")).contains("<td>bf16</td><td>true</td>"));
}

/// Pages appear whole or not at all, of archives and of text; what cannot be read is refused.
#[test]
fn programs_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs/mlp/model.pt2");
    let model = model.to_str().expect("text");
    done(&firebrand(&["viz", model, "-o", "model.html"], folder.path()));
    assert!(read(folder.path().join("model.html")).contains("<title>model.pt2</title>"));
    std::fs::write(folder.path().join("g.fb"), "graph {\n  %x = placeholder\n  return (%x,)\n}\n").expect("written");
    done(&firebrand(&["viz", "g.fb", "-o", "text.html"], folder.path()));
    std::fs::write(folder.path().join("bad.fb"), "graph {").expect("written");
    refused(&firebrand(&["viz", "bad.fb", "-o", "bad.html"], folder.path()), "bad.fb");
    refused(&firebrand(&["viz", model, "-o", "none/out.html"], folder.path()), "none/out.html");
    assert_eq!(firebrand(&["viz", model], folder.path()).status.code(), Some(2));
    assert!(!folder.path().join("bad.html").exists());
}

/// Ctrl-C leaves a checkpoint, and a run that is continued from it ends like one that was never stopped.
#[cfg(unix)]
#[test]
fn training_is_interrupted_and_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    done(&firebrand(&["train", "--epochs", "3", "--out", "whole"], folder.path()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_firebrand"))
        .args(["train", "--epochs", "3", "--out", "cut"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    while !folder.path().join("cut/run.toml").exists() {
        std::thread::yield_now();
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("there is kill");
    assert!(interrupted.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(
        !folder.path().join("cut/report.html").exists() && folder.path().join("cut/checkpoint.safetensors").exists()
    );
    done(&firebrand(&["train", "--resume", "--out", "cut"], folder.path()));
    let metrics = |run: &str| read(folder.path().join(run).join("metrics.jsonl"));
    assert_eq!(metrics("cut"), metrics("whole"));
}

/// The same numbers for any number of threads, other ones for another seed.
#[test]
fn training_is_reproducible() {
    let folder = tempfile::tempdir().expect("a folder");
    let losses = |arguments: &[&str]| -> Vec<Value> {
        let run = arguments.join("");
        let out = format!("--out={run}");
        let mut all = vec!["train", "--epochs", "1", &out];
        all.extend(arguments);
        done(&firebrand(&all, folder.path()));
        let metrics: Value = serde_json::from_str(&read(folder.path().join(&run).join("metrics.jsonl"))).expect("JSON");
        ["train_loss", "val_loss", "val_accuracy"].iter().map(|k| metrics[*k].clone()).collect()
    };
    let one = losses(&["--threads", "1"]);
    assert_eq!(one, losses(&["--threads", "2"]));
    assert_ne!(one, losses(&["--seed", "1"]));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [
        &["fly"][..],
        &[],
        &["train", "--epochs", "0"],
        &["train", "--lr", "-1"],
        &["train", "--lr", "NaN"],
        &["ops", "--threads", "0"],
        &["bench", "nothing"],
        &["codegen", "dump"],
    ] {
        assert_eq!(firebrand(arguments, folder.path()).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was written");
}

#[test]
fn refusals_are_exit_code_3() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("writable");
    refused(&firebrand(&["train", "--out", "file"], folder.path()), "file");
    let wild = firebrand(&["train", "--lr", "1e30", "--epochs", "2", "--out", "run"], folder.path());
    refused(&wild, "smaller learning rate");
    refused(
        &firebrand(&["train", "--resume", "--out", "nowhere"], folder.path()),
        "nowhere: there is no run to resume here",
    );
    refused(&firebrand(&["codegen", "lint"], folder.path()), "schema/ops.yaml");
}

#[test]
fn ops_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = done(&firebrand(&["ops", "--json"], folder.path()));
    let ops: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let add = ops.iter().find(|o| o["name"] == "aten::add.Tensor").expect("there is addition");
    assert_eq!((&add["derivative"], &add["node"]), (&Value::from("formula"), &Value::from("AddBackward0")));
    assert_eq!(add["forward"], true);
    assert_eq!(add["in_place"], "aten::add_.Tensor");
    for column in ["form", "batching", "autocast", "decomposition", "cost", "fusion"] {
        assert!(ops.iter().all(|op| op[column].is_string()), "every op has an answer in the column {column}");
    }
    assert!(done(&firebrand(&["ops"], folder.path())).lines().count() > 2 * ops.len());
}

#[test]
fn declarations_are_dumped_and_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writable");
    write("native.yaml", "- func: scale(Tensor self, Tensor by) -> Tensor\n  dispatch: {CPU: scale}\n");
    write("good.yaml", "- name: scale(Tensor self, Tensor by) -> Tensor\n  self: grad * by\n  by: grad * self\n");
    write("bad.yaml", "- name: scald(Tensor self) -> Tensor\n  self: grad\n");
    let dump = |derivatives: &str, rest: &[&str]| {
        let mut all = vec!["codegen", "dump", "--native", "native.yaml", "--derivatives", derivatives];
        all.extend(rest);
        firebrand(&all, folder.path())
    };
    let model: Value = serde_json::from_str(&done(&dump("good.yaml", &["--json", "--plan"]))).expect("JSON");
    assert_eq!(model["nodes"][0]["op"], "ScaleBackward0");
    assert!(done(&dump("good.yaml", &[])).contains("with derivatives: 1"));
    let bad = dump("bad.yaml", &["--json"]);
    refused(&bad, "bad.yaml:1:");
    let error: Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    assert!(error["error"]["kind"].is_string());
}

/// The generated code of this very tree, from its root.
#[test]
fn our_own_declarations_are_in_order() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    #[cfg(feature = "dev")]
    done(&firebrand(&["codegen", "check"], &root));
    assert!(done(&firebrand(&["codegen", "lint"], &root)).trim_end().ends_with(" 0 findings"));
}

#[cfg(not(feature = "dev"))]
#[test]
fn commands_that_are_not_in_this_build_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["emit", "check"] {
        let answer = firebrand(&["codegen", command], folder.path());
        refused(&answer, &format!("`codegen {command}` is not included in this build"));
        refused(&answer, "--features dev");
    }
}

#[cfg(feature = "dev")]
#[test]
fn a_refused_declaration_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writable");
    write(
        "ops.yaml",
        "- func: scale(Tensor self) -> Tensor\n  shape: unary\n  kernel: pointwise::scale\n  tags: [pointwise]\n",
    );
    let emit = |derivatives: &str| {
        write("derivatives.yaml", derivatives);
        let files = ["--ops", "ops.yaml", "--derivatives", "derivatives.yaml", "--out", "generated"];
        firebrand(&[&["codegen", "emit"], &files[..]].concat(), folder.path())
    };
    let entry = "- name: scale(Tensor self) -> Tensor\n";
    refused(&emit(""), "ops.yaml:1: could lose a gradient silently");
    refused(
        &emit(&format!("{entry}  self: grad * (2.0\n")),
        "derivatives.yaml:2: the formula is not a valid Rust expression",
    );
    refused(&emit(&format!("{entry}  self: grad * to\n")), "derivatives.yaml:2: unknown name `to`");
    assert!(!folder.path().join("generated").exists(), "nothing was written");
    done(&emit(&format!("{entry}  self: grad\n")));
    assert!(folder.path().join("generated/nodes.rs").exists());
}
