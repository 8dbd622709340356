//! Exported programs on the command line: every program of the corpus runs and is differentiated as PyTorch does it.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::Tensor;
use firebrand::io::npz::Tensors;
use firebrand::io::{Archive, ArchiveWriter, read_npz, write_npz};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs")
}

fn firebrand<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firebrand")).args(arguments).output().unwrap()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn refused(output: &Output, reason: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(reason), "{errors}");
}

fn meta(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("meta.json")).unwrap()).unwrap()
}

#[track_caller]
fn same(found: &Tensors, expected: &Tensors, meta: &Value) {
    let names = |t: &Tensors| {
        let mut names: Vec<String> = t.keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(found), names(expected));
    let (rtol, atol) = (meta["rtol"].as_f64().unwrap(), meta["atol"].as_f64().unwrap());
    for (name, expected) in expected {
        let found = &found[name];
        assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{name}");
        for (a, b) in found.to_vec::<f64>().into_iter().zip(expected.to_vec::<f64>()) {
            assert!(a == b || (a - b).abs() <= atol + rtol * b.abs(), "{name}: {a} instead of {b}");
        }
    }
}

#[test]
fn programs_run_and_are_differentiated() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(golden()).unwrap().map(|d| d.unwrap().path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    for folder in folders {
        let meta = meta(&folder);
        let file = |name: &str| folder.join(name).to_str().unwrap().to_string();
        let (model, inputs) = (file("model.pt2"), file("inputs.npz"));
        let (out, after) = (at("out.npz"), at("after.npz"));
        done(&firebrand(&["run", &model, "--inputs", &inputs, "-o", &out, "--state-after", &after]));
        same(&read_npz(&out).unwrap(), &read_npz(file("outputs.npz")).unwrap(), &meta);
        let expected = folder.join("state_after.npz");
        let expected = if expected.is_file() { read_npz(expected).unwrap() } else { Tensors::new() };
        same(&read_npz(&after).unwrap(), &expected, &meta);
        let loss = match meta["loss"].as_str() {
            Some("mse0") => "mean_square",
            Some("ce") => "cross_entropy",
            Some("out0") => "sum",
            _ => continue,
        };
        done(&firebrand(&["grad", &model, "--inputs", &inputs, "--loss", loss, "-o", &out, "--threads", "1"]));
        same(&read_npz(&out).unwrap(), &read_npz(file("grads.npz")).unwrap(), &meta);
    }
}

#[test]
fn summaries_and_input_gradients() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.npz").to_str().unwrap().to_string();
    let folder = golden().join("pytree_io");
    let file = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let text = done(&firebrand(&["run", &file("model.pt2"), "--inputs", &file("inputs.npz"), "-o", &out, "--json"]));
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["schema"], "firebrand.run_program/1");
    assert_eq!(summary["outputs"].as_array().unwrap().len(), 6);
    assert_eq!(summary["outputs"][5]["constant"], 3);
    let arguments = ["grad", &file("model.pt2"), "--inputs", &file("inputs.npz"), "--loss", "sum", "-o", &out];
    done(&firebrand(&[&arguments[..], &["--wrt-inputs"]].concat()));
    assert!(read_npz(&out).unwrap().contains_key("input:d_a"));
}

#[test]
fn inspection_shows_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden().join("mlp/model.pt2");
    let text = done(&firebrand(&["inspect".as_ref(), model.as_os_str()]));
    for part in
        ["p_0_weight: PARAMETER float32[16, 6]  0.weight", "%relu = aten.relu.default(%linear)", "2  aten.linear"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = done(&firebrand(&["inspect".as_ref(), model.as_os_str(), "--json".as_ref()]));
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&all["schema"], &all["ops"]["aten.linear.default"]), (&"firebrand.inspect/1".into(), &2.into()));
    assert_eq!(all["unsupported"], serde_json::json!({}));

    // The same program with an op that nobody has.
    let archive = Archive::open(&model).unwrap();
    let mut writer = ArchiveWriter::new(Vec::new());
    for name in archive.names() {
        let content = archive.read(name, 1 << 20).unwrap().into_owned();
        let content = match name.ends_with("model.json") {
            true => String::from_utf8(content).unwrap().replace("aten.relu.", "aten.tomato.").into_bytes(),
            false => content,
        };
        writer.add(name, &content).unwrap();
    }
    let changed = dir.path().join("changed.pt2");
    std::fs::write(&changed, writer.finish().unwrap()).unwrap();
    let output = firebrand(&["inspect".as_ref(), changed.as_os_str()]);
    refused(&output, "aten.tomato.default (1)");
    assert!(String::from_utf8_lossy(&output.stdout).contains("aten.tomato.default  (not supported)"));
    let out = dir.path().join("out.npz");
    let inputs = golden().join("mlp/inputs.npz");
    let arguments =
        ["run".as_ref(), changed.as_os_str(), "--inputs".as_ref(), inputs.as_os_str(), "-o".as_ref(), out.as_os_str()];
    refused(&firebrand(&arguments), "aten.tomato.default");
    assert!(!out.exists(), "nothing is written");
}

/// Fine-tuning makes the loss small, writes a program that runs, and gives the same bytes for any number of threads.
#[test]
fn programs_are_fine_tuned() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let samples: Vec<f32> = (0..16 * 6).map(|i| ((i * 7) % 13) as f32 / 6.0 - 1.0).collect();
    let labels: Vec<i64> = (0..16).map(|i| i64::from(samples[i * 6] > 0.0)).collect();
    let (data, out) = (at("data.npz"), at("out.pt2"));
    write_npz(&data, [("input", &Tensor::from_slice(&samples, [16, 6])), ("__target__", &Tensor::new(&labels))])
        .unwrap();
    let model = golden().join("mlp/model.pt2").to_str().unwrap().to_string();
    let train = |out: &str, more: &[&str]| {
        let arguments =
            ["train", &model, "--data", &data, "--loss", "cross_entropy", "--epochs", "40", "--lr", "0.01", "-o", out];
        done(&firebrand(&[&arguments[..], more].concat()))
    };
    let folder = at("run");
    let text = train(&out, &["--threads", "1", "--out", &folder]);
    assert!(text.contains("after 40 epochs"), "{text}");
    let read = |name: &str| std::fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["train_loss"].as_f64().unwrap();
    let losses: Vec<f64> = read("metrics.jsonl").lines().map(loss).collect();
    assert!(losses.len() == 40 && losses[39] < 0.5 * losses[0], "{losses:?}");
    assert_eq!(read("metrics.csv").lines().count(), 41);
    assert!(read("run.toml").contains("optimizer = \"adamw\""));
    assert!(read("report.html").contains("Autograd graph of the loss"));
    let again = at("again.pt2");
    train(&again, &["--threads", "2"]);
    let contents = |path: &str| -> Vec<Vec<u8>> {
        let archive = Archive::open(path).unwrap();
        archive
            .names()
            .filter(|n| n.contains("weight_"))
            .map(|n| archive.read(n, 1 << 20).unwrap().into_owned())
            .collect()
    };
    assert!(contents(&out) == contents(&again));
    assert!(contents(&out) != contents(&model));
    // A rate that falls ends elsewhere, and every schedule ends.
    let scheduled = at("scheduled.pt2");
    for schedule in ["cosine", "linear", "one_cycle"] {
        train(&scheduled, &["--schedule", schedule]);
        assert!(contents(&scheduled) != contents(&out), "{schedule}");
    }
    done(&firebrand(&["run", &out, "--inputs", golden().join("mlp/inputs.npz").to_str().unwrap(), "-o", &at("o.npz")]));

    for (arguments, reason) in [
        (vec!["--data", "missing.npz"], "missing.npz"),
        (vec!["--loss", "mse"], "expected labels of the output's shape"),
    ] {
        let mut all = vec!["train", &model, "-o", &again];
        if !arguments.contains(&"--data") {
            all.extend(["--data", &data]);
        }
        if !arguments.contains(&"--loss") {
            all.extend(["--loss", "nll"]);
        }
        all.extend(arguments);
        refused(&firebrand(&all), reason);
    }
}

#[test]
fn programs_are_profiled() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.json").to_str().unwrap().to_string();
    let mlp = golden().join("mlp");
    let at = |name: &str| mlp.join(name).to_str().unwrap().to_string();
    let (model, inputs) = (at("model.pt2"), at("inputs.npz"));
    let plain = ["profile", &model, "--inputs", &inputs];
    let table = done(&firebrand(&plain));
    assert!(table.contains("aten::addmm") && table.contains("forward") && !table.contains("backward"), "{table}");
    for compile in [&[][..], &["--compile"]] {
        let steps = ["--steps", "2", "--json", "--trace", &trace];
        let summary: Value = serde_json::from_str(&done(&firebrand(&[&plain, &steps[..], compile].concat()))).unwrap();
        assert_eq!((&summary["schema"], &summary["steps"]), (&"firebrand.profile/1".into(), &2.into()));
        let products = summary["rows"].as_array().unwrap().iter().filter(|r| r["flops"].as_u64().unwrap() > 0);
        assert!(
            products.clone().all(|r| r["calls"].as_u64().unwrap() % 2 == 0),
            "the warm-up is not counted: {summary}"
        );
        assert!(products.count() > 0, "{summary}");
        let events: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
        let events = events["traceEvents"].as_array().unwrap().len();
        let calls: u64 = summary["rows"].as_array().unwrap().iter().map(|r| r["calls"].as_u64().unwrap()).sum();
        assert_eq!(events as u64, calls);
    }
    refused(&firebrand(&[&plain[..], &["--loss", "mse"]].concat()), "does not match the output");
    let training = done(&firebrand(&[&plain[..], &["--loss", "cross_entropy"]].concat()));
    assert!(training.contains("_fused_adamw_") && training.contains("optimizer step"), "{training}");
}
