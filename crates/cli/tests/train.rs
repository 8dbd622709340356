//! `firebrand train MODEL.pt2` and `firebrand eval`: PyTorch's results, exact resumption after any interruption, and what is
//! said about wrong input.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::Tensor;
use firebrand::graph::ExportedProgram;
use firebrand::io::{read_npz, write_npz, write_safetensors};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/train").join(name);
    path.to_str().unwrap().to_string()
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firebrand"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn firebrand(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What is said beside the result.
#[track_caller]
fn done_with_notes(output: &Output) -> String {
    done(output);
    errors(output)
}

#[track_caller]
fn refused(output: &Output, code: i32, reason: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
    assert!(errors(output).contains(reason), "{reason}: {}", errors(output));
}

/// The trained weights of a program, compared with PyTorch's.
#[track_caller]
fn same_weights(program: &Path, expected: &str) {
    let program = ExportedProgram::load(program).unwrap();
    let expected = read_npz(golden(expected)).unwrap();
    assert_eq!(program.parameters().count(), expected.len());
    for (name, t) in program.parameters() {
        for (a, b) in t.to_vec::<f64>().iter().zip(expected[name].to_vec::<f64>()) {
            assert!((a - b).abs() < 1e-12, "{name}: {a} instead of {b}");
        }
    }
}

/// Arguments that use everything the loop has, on the program `classes`.
fn everything(more: &[&str]) -> Vec<String> {
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    let fixed = [
        "train",
        &model,
        "--data",
        &data,
        "--loss",
        "cross_entropy",
        "--epochs",
        "4",
        "--seed",
        "5",
        "--batch-size",
        "4",
        "--accumulate",
        "3",
        "--clip",
        "0.5",
        "--lr",
        "0.01",
        "--lr",
        "head.*=0.05",
        "--weight-decay",
        "0.1",
        "--no-decay-1d",
        "--schedule",
        "cosine",
        "--warmup",
        "3",
        "--ema",
        "0.9",
        "--label-smoothing",
        "0.1",
        "--class-weights",
        "1,2,0.5,1",
    ];
    fixed.iter().chain(more).map(|s| s.to_string()).collect()
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// Accumulation with labels that do not count, class weights, smoothing, groups, decay, clipping, warm-up, average: the weights
/// are those of PyTorch's loop with one large batch per step; a loss that the program returns and one that PyTorch exported.
#[test]
fn training_is_pytorchs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    done(&firebrand(dir.path(), &texts(&everything(&["-o", "classes.pt2"]))));
    same_weights(&at("classes.pt2"), "classes_trained.npz");
    let (model, data) = (golden("own_loss.pt2"), golden("own_loss.npz"));
    let sgd = ["--optimizer", "sgd", "--lr", "0.1", "--epochs", "3", "--seed", "5"];
    let own = ["train", &model, "--data", &data, "--loss", "output", "--batch-size", "8", "-o", "own.pt2"];
    let output = firebrand(dir.path(), &[&own[..], &sgd].concat());
    done(&output);
    assert!(errors(&output).contains("the loss is computed from output 0 (loss)"), "{}", errors(&output));
    same_weights(&at("own.pt2"), "own_loss_trained.npz");
    done(&firebrand(dir.path(), &[&own[..], &sgd, &["--loss-output", "loss"]].concat()));
    same_weights(&at("own.pt2"), "own_loss_trained.npz");
    let (model, data, loss) = (golden("classes.pt2"), golden("huber.npz"), golden("huber.pt2"));
    let huber = ["train", &model, "--data", &data, "--loss", &loss, "--batch-size", "10", "-o", "huber_out.pt2"];
    done(&firebrand(dir.path(), &[&huber[..], &sgd].concat()));
    same_weights(&at("huber_out.pt2"), "huber_trained.npz");
}

/// Files of a run that must be the same however often it was interrupted.
fn results(run: &Path) -> Vec<(String, Vec<u8>)> {
    ["model.pt2", "best.safetensors", "metrics.jsonl", "metrics.csv", "run.toml", "checkpoint.safetensors"]
        .map(|name| (name.to_string(), std::fs::read(run.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))))
        .to_vec()
}

#[track_caller]
fn same_results(found: &Path, expected: &Path, when: &str) {
    for ((name, a), (_, b)) in results(found).into_iter().zip(results(expected)) {
        assert!(a == b, "{when}: {name} differs");
    }
}

/// Killed without warning at 20 moments, the run ends byte for byte as one that was left alone: with accumulation, clipping, an
/// average, bf16, validation and the best epoch; all parameters and adapters only.
#[cfg(unix)]
#[test]
fn a_killed_run_is_resumed_exactly() {
    kill_and_resume(&[]);
}

#[cfg(unix)]
#[test]
fn a_killed_run_of_adapters_is_resumed_exactly() {
    kill_and_resume(&["--lora", "--rank", "2", "--alpha", "8"]);
}

#[cfg(unix)]
fn kill_and_resume(adapters: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let arguments = |out: &str, more: &[&str]| {
        let fixed =
            ["--bf16", "--val-split", "0.3", "--best", "--checkpoint-every", "1", "--epochs", "30", "--out", out];
        let mut all = everything(&[&fixed[..], adapters, more].concat());
        // The last of two values would be a usage error; epochs are given once.
        let at = all.iter().position(|a| a == "--epochs").unwrap();
        all.drain(at..at + 2);
        all
    };
    done(&firebrand(dir.path(), &texts(&arguments("whole", &[]))));
    let run = dir.path().join("cut");
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut kills = 0;
    while kills < 20 {
        let more = if run.join("run.toml").exists() { &["--resume"][..] } else { &[] };
        let started = std::time::Instant::now();
        let mut child = command(dir.path(), &texts(&arguments("cut", more)))
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let moment = std::time::Duration::from_micros((random >> 33) % 600_000);
        while started.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if ended {
            // It came to its end: begin again, there are moments left.
            same_results(&run, &dir.path().join("whole"), &format!("after {kills} kills"));
            std::fs::remove_dir_all(&run).unwrap();
        }
    }
    let more = if run.join("run.toml").exists() { &["--resume"][..] } else { &[] };
    done(&firebrand(dir.path(), &texts(&arguments("cut", more))));
    same_results(&run, &dir.path().join("whole"), "after all kills");
    // Resuming what has ended changes nothing.
    done(&firebrand(dir.path(), &texts(&arguments("cut", &["--resume"]))));
    same_results(&run, &dir.path().join("whole"), "after the end");
}

/// Ctrl-C and SIGTERM write a checkpoint, and the exit code says which it was.
#[cfg(unix)]
#[test]
fn signals_save_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = |more: &[&str]| {
        let mut all = everything(&[&["--out", "run", "--epochs", "100000"][..], more].concat());
        let at = all.iter().position(|a| a == "--epochs").unwrap();
        all.drain(at..at + 2);
        all
    };
    for (signal, code, more) in [("INT", 130, &[][..]), ("TERM", 143, &["--resume"])] {
        let mut child = command(dir.path(), &texts(&arguments(more))).stderr(Stdio::piped()).spawn().unwrap();
        // It has begun when it writes about its epochs.
        let metrics = dir.path().join("run/metrics.csv");
        let before = std::fs::read(&metrics).unwrap_or_default();
        while std::fs::read(&metrics).unwrap_or_default() == before {
            assert!(child.try_wait().unwrap().is_none(), "it ended early");
            std::thread::yield_now();
        }
        assert!(Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        refused(&output, code, "continue with the same command and --resume");
        assert!(dir.path().join("run/checkpoint.safetensors").exists());
        assert!(!dir.path().join("run/model.pt2").exists() && !dir.path().join("run/report.html").exists());
    }
    // Without a place for it, nothing is kept, and that is said.
    let mut all = everything(&["-o", "out.pt2", "--epochs", "1000000"]);
    let at = all.iter().position(|a| a == "--epochs").unwrap();
    all.drain(at..at + 2);
    let mut child = command(dir.path(), &texts(&all)).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("epoch") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut lines, &mut line).unwrap(), 0, "it ended early");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut lines, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.contains("nothing was saved") && !dir.path().join("out.pt2").exists(), "{rest}");
}

/// The same command again, or a shorter one; any other difference is refused by name.
#[test]
fn resuming_takes_the_same_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), dir.path().join("data.npz").to_str().unwrap().to_string());
    std::fs::copy(golden("classes.npz"), &data).unwrap();
    let all = [
        "train",
        &model,
        "--data",
        &data,
        "--loss",
        "cross_entropy",
        "--lr",
        "1e-3",
        "--out",
        "run",
        "--val-split",
        "0.2",
    ];
    let with = |more: &[&str]| firebrand(dir.path(), &[&all[..], more].concat());
    refused(&with(&["--epochs", "2", "--resume"]), 3, "there is no run to resume here");
    done(&with(&["--epochs", "2"]));
    refused(&with(&["--epochs", "2"]), 3, "already holds a run");
    done(&with(&["--epochs", "2", "--resume"]));
    done(&with(&["--epochs", "3", "--resume"]));
    done(&firebrand(dir.path(), &["train", "--resume", "--out", "run"]));
    assert_eq!(std::fs::read_to_string(dir.path().join("run/metrics.csv")).unwrap().lines().count(), 4);
    for (more, reason) in [
        (vec!["--epochs", "2"], "--epochs was 3 in the resumed run and is 2 now; epochs may only be increased"),
        (vec!["--clip", "1"], "--clip was not set in the resumed run and is 1 now"),
        (vec!["--batch-size", "8"], "--batch-size was not set"),
        (vec!["--lr", "head.*=1"], "--lr was 1e-3 in the resumed run"),
        (vec!["--ema", "0.9"], "--ema was not set"),
        (vec!["--bf16"], "--bf16 was not set"),
    ] {
        refused(&with(&[&["--resume"][..], &more].concat()), 3, reason);
    }
    let mut other = all;
    let other_model = golden("huber.pt2");
    other[1] = &other_model;
    refused(&firebrand(dir.path(), &[&other[..], &["--resume"]].concat()), 3, "the program was");
    let mut arrays = read_npz(&data).unwrap();
    arrays["input"] = &arrays["input"] * 2.0;
    write_npz(&data, &arrays).unwrap();
    refused(&with(&["--resume"]), 3, "the data has changed since the run started");
}

/// Every option is a key of `--config`; the folder of a run has such a file; the command line wins.
#[test]
fn settings_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    let text = format!(
        "model = \"{model}\"\ndata = \"{data}\"\nloss = \"cross_entropy\"\nepochs = 2\nlr = [\"0.01\", \"head.*=0.05\"]\nno_decay_1d = true\nclip = 0.5\nbf16 = false\nval-split = 0.2\n"
    );
    std::fs::write(dir.path().join("my.toml"), text).unwrap();
    done(&firebrand(dir.path(), &["train", "--config", "my.toml", "--out", "one"]));
    done(&firebrand(dir.path(), &["train", "--config", "one/run.toml", "--out", "two"]));
    same_results(&dir.path().join("two"), &dir.path().join("one"), "the same settings");
    done(&firebrand(
        dir.path(),
        &["train", "--config", "one/run.toml", "--epochs", "3", "--seed", "1", "--out", "three"],
    ));
    let stored = std::fs::read_to_string(dir.path().join("three/run.toml")).unwrap();
    for line in [
        "epochs = 3",
        "seed = 1",
        "clip = 0.5",
        "no-decay-1d = true",
        "lr = [\"0.01\", \"head.*=0.05\"]",
        "optimizer = \"adamw\"",
    ] {
        assert!(stored.contains(line), "{line}: {stored}");
    }
    let differences = done(&firebrand(dir.path(), &["runs", "diff", "one", "three", "--json"]));
    let differences: Value = serde_json::from_str(&differences).unwrap();
    assert_eq!(differences["settings"], serde_json::json!({"epochs": ["2", "3"], "seed": ["0", "1"]}));
    for (text, reason) in [
        ("epoch = 3", "`epoch` is not an option of train; did you mean `epochs`?"),
        ("epochs = [", "my.toml"),
        ("bf16 = 1", "`bf16`: expected true or false"),
        ("epochs = {a = 1}", "`epochs`: expected text or a number, found table"),
    ] {
        std::fs::write(dir.path().join("my.toml"), text).unwrap();
        refused(&firebrand(dir.path(), &["train", "--config", "my.toml"]), 3, reason);
    }
    std::fs::write(dir.path().join("my.toml"), "epochs = 0").unwrap();
    refused(
        &firebrand(dir.path(), &["train", "--config", "my.toml"]),
        3,
        "my.toml: invalid value '0' for '--epochs <N>'",
    );
}

#[test]
fn runs_are_listed_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    for (out, lr) in [("runs/a", "0.01"), ("runs/b", "0.001")] {
        let run = [
            "train",
            &model,
            "--data",
            &data,
            "--loss",
            "cross_entropy",
            "--epochs",
            "2",
            "--out",
            out,
            "--lr",
            lr,
            "--val-split",
            "0.2",
        ];
        done(&firebrand(dir.path(), &run));
    }
    let listed = done(&firebrand(dir.path(), &["runs", "list"]));
    assert!(listed.lines().count() == 2 && listed.contains("val_accuracy"), "{listed}");
    let all: Value = serde_json::from_str(&done(&firebrand(dir.path(), &["runs", "list", "--json"]))).unwrap();
    assert_eq!((&all["schema"], &all["runs"][1]["settings"]["lr"]), (&"firebrand.runs/1".into(), &"0.001".into()));
    done(&firebrand(dir.path(), &["runs", "compare", "runs/a", "runs/b", "-o", "page.html"]));
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    for part in ["a validation", "b train", "Accuracy", "<td>lr</td><td>0.01</td><td>0.001</td>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http"), "it loads nothing");
    assert!(done(&firebrand(dir.path(), &["runs", "diff", "runs/a", "runs/a"])).contains("the runs are identical"));
    refused(&firebrand(dir.path(), &["runs", "diff", "runs/a", "."]), 3, "not a run directory");
    refused(&firebrand(dir.path(), &["runs", "list", "nowhere"]), 3, "nowhere");
    refused(
        &firebrand(dir.path(), &["runs", "compare", "runs/a", "runs/b", "-o", "none/page.html"]),
        3,
        "no such directory",
    );
}

/// Wrong data and settings: each is named before the first step, and nothing is written.
#[test]
fn wrong_input_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let arrays = read_npz(golden("classes.npz")).unwrap();
    let (x, y) = (arrays["input"].clone(), arrays["__target__"].clone());
    let changed = |name: &str, pairs: &[(&str, &Tensor)]| {
        write_npz(at(name), pairs.iter().copied()).unwrap();
        at(name)
    };
    let mut labels = y.to_vec::<i64>();
    labels[13] = 4;
    let model = golden("classes.pt2");
    let cases: Vec<(String, Vec<&str>, &str)> = vec![
        (
            changed("high.npz", &[("input", &x), ("__target__", &Tensor::new(&labels))]),
            vec![],
            "sample 13: the label is 4, expected 0 to 3",
        ),
        (
            changed("name.npz", &[("inptu", &x), ("__target__", &y)]),
            vec![],
            "no array `input` for the program's input of that name; the file holds `inptu`, `__target__`; did you mean `inptu`?",
        ),
        (
            changed("extra.npz", &[("input", &x), ("foo", &x), ("__target__", &y)]),
            vec![],
            "the program has no input `foo`; it has `input`",
        ),
        (changed("none.npz", &[("input", &x)]), vec![], "no labels: this loss needs an array `__target__`"),
        (
            changed("wide.npz", &[("input", &x.reshape([100, 3])), ("__target__", &y)]),
            vec![],
            "expected 6 in dimension 1, found shape [100, 3]",
        ),
        (
            changed("int.npz", &[("input", &x.to_dtype(firebrand::DType::I64)), ("__target__", &y)]),
            vec![],
            "expected float64, found int64; convert it with .astype",
        ),
        (
            changed("float.npz", &[("input", &x), ("__target__", &y.to_dtype(firebrand::DType::F32))]),
            vec![],
            "expected class indices (integers)",
        ),
        (
            changed("rows.npz", &[("input", &x), ("__target__", &y.narrow(0, 0, 9))]),
            vec![],
            "`__target__` has 9 samples, `input` has 50",
        ),
        (golden("classes.npz"), vec!["--batch-size", "5000"], "exported for batches of 1 to 1024"),
        (
            golden("classes.npz"),
            vec!["--class-weights", "1,2"],
            "--class-weights has 2 weights, the program's output has 4 classes",
        ),
        (
            golden("classes.npz"),
            vec!["--freeze", "tail.*"],
            "--freeze tail.*: no parameter matches; there are body.0.weight",
        ),
        (golden("classes.npz"), vec!["--freeze", "*"], "nothing is left to train"),
        (golden("classes.npz"), vec!["--lr", "tail=1"], "--lr tail: no parameter matches"),
        (
            golden("classes.npz"),
            vec!["--loss-output", "logits"],
            "--loss-output logits: the program has no such output; it has 0 (",
        ),
        (
            golden("classes.npz"),
            vec!["--val-split", "0.2", "--watch", "val_f2", "--patience", "3"],
            "--watch val_f2: there is no such metric; there are val_loss",
        ),
        (golden("classes.npz"), vec!["--transform", "flip"], "--transform is for directories of images"),
        ("nowhere.npz".into(), vec![], "nowhere.npz"),
        (golden("make.py"), vec![], "make.py: not an .npz file"),
    ];
    for (data, more, reason) in &cases {
        let fixed = ["train", &model, "--data", data, "--loss", "cross_entropy", "--epochs", "1", "-o", "out.pt2"];
        refused(&firebrand(dir.path(), &[&fixed[..], more].concat()), 3, reason);
        assert!(!dir.path().join("out.pt2").exists(), "{reason}");
    }
    // Other files of PyTorch and NumPy in the place of a program.
    let data = golden("classes.npz");
    let saved = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/nn/torch_state.pt");
    for (model, kind) in
        [(data.as_str(), "an archive of arrays (.npz)"), (saved.to_str().unwrap(), "a torch.save file")]
    {
        refused(
            &firebrand(dir.path(), &["eval", model, "--data", &data, "--loss", "mse"]),
            3,
            &format!("this is {kind}"),
        );
        refused(
            &firebrand(dir.path(), &["train", model, "--data", &data, "--loss", "mse", "-o", "o"]),
            3,
            &format!("this is {kind}"),
        );
        refused(&firebrand(dir.path(), &["inspect", model]), 3, &format!("this is {kind}"));
    }
    for (arguments, reason) in [
        (vec!["train", "--data", "x.npz"], "--data needs an exported program"),
        (vec!["train", &model], "--data is missing"),
        (vec!["train", &model, "--data", "x.npz"], "--loss is missing"),
        (vec!["train", &model, "--data", "x.npz", "--loss", "mse"], "-o OUT.pt2 or --out DIR is missing"),
        (
            vec!["train", &model, "--data", "x.npz", "--loss", "mse", "-o", "o", "--patience", "2"],
            "need validation samples",
        ),
        (
            vec!["train", &model, "--data", "x.npz", "--loss", "mse", "-o", "o", "--label-smoothing", "0.1"],
            "--label-smoothing is for cross_entropy",
        ),
        (vec!["train", &model, "--data", "x.npz", "--loss", "sum"], "expected mse, l1"),
        (vec!["train", &model, "-o", "-"], "invalid value '-' for '--output <OUT.pt2>'"),
        (vec!["train", &model, "--clip", "-1"], "invalid value '-1' for '--clip <X>': expected a positive number"),
    ] {
        refused(&firebrand(dir.path(), &arguments), 2, reason);
    }
    // A value that is no number stops the run at its step and is named.
    let mut values = x.to_vec::<f64>();
    values[6 * 21 + 2] = f64::NAN;
    let bad = changed("nan.npz", &[("input", &Tensor::from_slice(&values, [50, 6])), ("__target__", &y)]);
    let nan = ["train", &model, "--data", &bad, "--loss", "cross_entropy", "-o", "out.pt2"];
    refused(&firebrand(dir.path(), &nan), 3, "sample 21 holds NaN");
    refused(&firebrand(dir.path(), &nan), 3, "the loss became NaN at step ");
    // A run that failed before its first checkpoint leaves its directory to the corrected command.
    let run = ["train", &model, "--data", &data, "--loss", "cross_entropy", "--epochs", "1", "--out", "run"];
    let watch = [&run[..], &["--val-split", "0.2", "--watch", "val_f2"]].concat();
    refused(&firebrand(dir.path(), &watch), 3, "there is no such metric");
    assert!(!dir.path().join("run").exists());
    let large =
        done_with_notes(&firebrand(dir.path(), &[&run[..], &["--batch-size", "64", "--accumulate", "2"]].concat()));
    assert!(large.contains("--batch-size 64: there are only 50 training samples"), "{large}");
    assert!(large.contains("--accumulate 2: an epoch has only 1 forward pass"), "{large}");
}

/// Labels of other widths, one-hot rows and probabilities, arrays in other files: the same weights.
#[test]
fn labels_and_files_of_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let arrays = read_npz(golden("classes.npz")).unwrap();
    let x = arrays["input"].clone();
    let labels: Vec<i64> = (0..50).map(|i| (i * 7) % 4).collect();
    let y = Tensor::new(&labels);
    let hot: Vec<i64> = labels.iter().flat_map(|&l| (0..4).map(move |c| i64::from(c == l))).collect();
    let hot = Tensor::from_slice(&hot, [50, 4]);
    let write = |name: &str, y: &Tensor| {
        write_npz(at(name), [("input", &x), ("__target__", y)]).unwrap();
        at(name)
    };
    let train = |data: &str, more: &[&str]| {
        let model = golden("classes.pt2");
        let fixed = ["train", &model, "--data", data, "--loss", "cross_entropy", "--epochs", "2", "-o", "out.pt2"];
        let output = firebrand(dir.path(), &[&fixed[..], more].concat());
        done(&output);
        let program = ExportedProgram::load(dir.path().join("out.pt2")).unwrap();
        let weights: Vec<f64> = program.parameters().flat_map(|(_, t)| t.to_vec::<f64>()).collect();
        (weights, errors(&output))
    };
    let (expected, _) = train(&write("plain.npz", &y), &[]);
    let same = |found: &[f64]| found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12);
    for (name, labels, note) in [
        ("narrow.npz", y.to_dtype(firebrand::DType::I32), "labels are converted from int32 to int64"),
        ("hot.npz", hot.clone(), "labels are one-hot rows of 4 classes"),
        ("hot_float.npz", hot.to_dtype(firebrand::DType::F32), "labels are one-hot rows of 4 classes"),
    ] {
        let (found, said) = train(&write(name, &labels), &[]);
        assert!(same(&found) && said.contains(note), "{name}: {said}");
        let (_, said) = train(&at(name), &["--quiet"]);
        assert_eq!(said, "", "{name}: --quiet");
    }
    write_safetensors(dir.path().join("data.safetensors"), [("input", &x), ("labels", &y)]).unwrap();
    assert!(same(&train(&at("data.safetensors"), &["--target", "labels"]).0), "safetensors");
    let mut table = String::from("a,b,c,label,d,e,f\n");
    for (row, label) in x.to_vec::<f64>().chunks(6).zip(&labels) {
        let v: Vec<String> = row.iter().map(f64::to_string).collect();
        table += &format!("{},{},{},{label},{},{},{}\n", v[0], v[1], v[2], v[3], v[4], v[5]);
    }
    std::fs::write(dir.path().join("table.csv"), table).unwrap();
    assert!(same(&train(&at("table.csv"), &["--target", "label"]).0), "csv");
    // Probabilities are PyTorch's own form: half a label is no label.
    let soft = hot.to_dtype(firebrand::DType::F64) * 0.5 + 0.125;
    let (found, said) = train(&write("soft.npz", &soft), &[]);
    assert!(!same(&found) && said.contains("labels are probabilities"), "{said}");
}

/// Frozen parameters stay as they are to the bit, the others move; what was frozen is not frozen in the file.
#[test]
fn parts_are_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    let before = ExportedProgram::load(&model).unwrap();
    for (more, moved) in [
        (vec!["--freeze", "body.*"], vec!["head.weight", "head.bias"]),
        (vec!["--trainable", "*.bias"], vec!["body.0.bias", "head.bias"]),
        (vec!["--trainable", "head.*", "--freeze", "*.bias"], vec!["head.weight"]),
    ] {
        let fixed = ["train", &model, "--data", &data, "--loss", "cross_entropy", "--epochs", "1", "-o", "out.pt2"];
        done(&firebrand(dir.path(), &[&fixed[..], &more].concat()));
        let after = ExportedProgram::load(dir.path().join("out.pt2")).unwrap();
        let changed: Vec<&str> = after
            .parameters()
            .zip(before.parameters())
            .filter(|((_, a), (_, b))| a.to_vec::<f64>() != b.to_vec::<f64>())
            .map(|((name, _), _)| name)
            .collect();
        assert_eq!(changed, moved, "{more:?}");
        assert!(after.parameters().all(|(_, t)| t.requires_grad()), "{more:?}");
    }
}

/// `eval` says of a program what validation said while it was trained.
#[test]
fn evaluation_is_validation() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    let fixed = [
        "train",
        &model,
        "--data",
        &data,
        "--val-data",
        &data,
        "--loss",
        "cross_entropy",
        "--epochs",
        "3",
        "--out",
        "run",
    ];
    let text = done(&firebrand(dir.path(), &[&fixed[..], &["--json", "--compile"]].concat()));
    let trained: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&trained["schema"], &trained["finish"]), (&"firebrand.train/1".into(), &"done".into()));
    let eval = ["eval", "run/model.pt2", "--data", &data, "--loss", "cross_entropy"];
    let found: Value = serde_json::from_str(&done(&firebrand(dir.path(), &[&eval[..], &["--json"]].concat()))).unwrap();
    assert_eq!((&found["schema"], &found["samples"]), (&"firebrand.eval/1".into(), &50.into()));
    for name in ["loss", "accuracy", "f1"] {
        let (a, b) =
            (found["metrics"][name].as_f64().unwrap(), trained["metrics"][format!("val_{name}")].as_f64().unwrap());
        assert!((a - b).abs() < 1e-9, "{name}: {a} {b}");
    }
    let counted: u64 = found["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|r| r.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!((counted, found["per_class"].as_array().unwrap().len()), (42, 4), "labels of -100 are left out");
    assert!(done(&firebrand(dir.path(), &eval)).contains("precision"));
    refused(&firebrand(dir.path(), &["eval", "run/model.pt2", "--data", &data]), 2, "--loss is missing");
    let report = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    for part in [
        "Confusion matrix",
        "Hardest samples",
        "<h2>Parameters</h2>",
        "<h2>Settings</h2>",
        "head</code>: 36 elements",
        "AccumulateGrad",
    ] {
        assert!(report.contains(part), "{part}");
    }
    assert!(!report.contains("http"), "it loads nothing");
}

/// What a run will need, and nothing is written.
#[test]
fn a_dry_run_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let text = done(&firebrand(dir.path(), &texts(&everything(&["--dry-run", "--json", "--freeze", "body.*"]))));
    let found: Value = serde_json::from_str(&text).unwrap();
    // 6·8+8+8·4+4 numbers of 8 bytes, of which the last 36 are trained, with two moments each and a count.
    assert_eq!((&found["parameters"], &found["trainable"]), (&92.into(), &36.into()));
    assert_eq!((&found["bytes"]["weights"], &found["bytes"]["gradients"]), (&736.into(), &288.into()));
    assert_eq!((&found["bytes"]["optimizer"], &found["bytes"]["average"]), (&584.into(), &288.into()));
    assert_eq!((&found["steps"], &found["steps_per_epoch"]), (&20.into(), &5.into()));
    assert!(found["seconds_per_step"].as_f64().unwrap() > 0.0 && found["bytes"]["activations"].as_u64().unwrap() > 0);
    assert!(done(&firebrand(dir.path(), &texts(&everything(&["--dry-run"])))).contains("nothing was written"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A program exported in training mode says so when it runs; the flags choose.
#[test]
fn the_mode_of_a_run_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs/batchnorm_train");
    let file = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let (model, inputs) = (file("model.pt2"), file("inputs.npz"));
    let run = |more: &[&str], out: &str| {
        let output = firebrand(dir.path(), &[&["run", &model, "--inputs", &inputs, "-o", out], more].concat());
        done(&output);
        (read_npz(dir.path().join(out)).unwrap()["out_0"].to_vec::<f32>(), errors(&output))
    };
    let (plain, said) = run(&[], "a.npz");
    assert!(said.contains("exported in training mode") && said.contains("--eval"), "{said}");
    let (train, said) = run(&["--train"], "b.npz");
    assert!(plain == train && said.is_empty(), "{said}");
    let (eval, said) = run(&["--eval"], "c.npz");
    assert!(plain != eval && said.is_empty(), "{said}");
    assert_eq!(run(&["--quiet"], "d.npz"), (plain, String::new()));
}

/// Shards in one process: a run that was stopped keeps its number of them, and a number that does not fit is refused.
#[test]
fn shards_belong_to_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (golden("classes.pt2"), golden("classes.npz"));
    let fixed =
        ["train", &model, "--data", &data, "--loss", "cross_entropy", "--batch-size", "12", "--accumulate", "2"];
    let with = |more: &[&str]| firebrand(dir.path(), &[&fixed[..], more].concat());
    done(&with(&["--epochs", "3", "--shards", "4", "--out", "whole"]));
    done(&with(&["--epochs", "1", "--shards", "4", "--out", "cut"]));
    done(&with(&["--epochs", "3", "--zero", "1", "--resume", "--out", "cut"]));
    for name in ["model.pt2", "metrics.jsonl", "checkpoint.safetensors"] {
        let read = |run: &str| std::fs::read(dir.path().join(run).join(name)).unwrap();
        assert!(read("cut") == read("whole"), "{name}");
    }
    done(&with(&["--epochs", "3", "--out", "plain"]));
    let numbers = |run: &str| -> Vec<f64> {
        let program = ExportedProgram::load(dir.path().join(run).join("model.pt2")).unwrap();
        program.parameters().flat_map(|(_, t)| t.to_vec::<f64>()).collect()
    };
    for (a, b) in numbers("whole").iter().zip(numbers("plain")) {
        assert!((a - b).abs() < 1e-12, "{a} {b}: shards are the whole batch");
    }
    refused(&with(&["--resume", "--shards", "2", "--out", "cut"]), 3, "--shards was 4 in the run that is resumed");
    refused(
        &with(&["--shards", "3", "--out", "three"]),
        3,
        "times a power of two as the number of shards (1, 2, 4, 8, …), found 3",
    );
    let found: Value = serde_json::from_str(&done(&firebrand(dir.path(), &["dist-info", "--json"]))).unwrap();
    assert_eq!((&found["processes"], &found["launcher"]), (&1.into(), &Value::Null));
}

/// Scripts for shells and pages for `man`, of the commands there are.
#[test]
fn completions_and_manuals() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&firebrand(dir.path(), &["completions", shell]));
        assert!(script.contains("firebrand") && script.contains("val-split"), "{shell}");
    }
    done(&firebrand(dir.path(), &["man", "pages"]));
    let page = std::fs::read_to_string(dir.path().join("pages/firebrand-train.1")).unwrap();
    assert!(page.contains(".TH firebrand-train") && page.contains("accumulate"), "{}", &page[..200]);
    assert!(dir.path().join("pages/firebrand-runs-compare.1").exists());
}

/// A folder of images in one command, as the README has it: the shipped program learns digits it did not know.
#[test]
fn the_readme_trains_on_images() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run").to_str().unwrap().to_string();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap().replace("\\\n", " ");
    let line =
        |start: &str| readme.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}")).to_string();
    let words = |line: &str| -> Vec<String> {
        line.split_whitespace()
            .skip_while(|w| *w != "train" && *w != "eval")
            .map(|w| w.replace("runs/digits", &out))
            .collect()
    };
    let train = words(&line("firebrand train crates/firebrand/data/digits.pt2"));
    let text = done(&firebrand(&root, &[&texts(&train)[..], &["--json"]].concat()));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(found["evaluation"]["accuracy"].as_f64().unwrap() > 0.8, "{text}");
    let eval = words(&line("firebrand eval runs/digits/model.pt2"));
    let text = done(&firebrand(&root, &[&texts(&eval)[..], &["--json"]].concat()));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(found["metrics"]["accuracy"].as_f64().unwrap() > 0.9, "{text}");
    assert_eq!(found["per_class"][7]["name"], "7");
    let report = std::fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains("data:image/png;base64,"), "the hardest samples are shown");
    // Other classes, other sizes, files that are no images.
    let data = "crates/firebrand/data/digits";
    let model = "crates/firebrand/data/digits.pt2";
    let with = |more: &[&str]| {
        firebrand(
            &root,
            &[&["train", model, "--data", data, "--loss", "cross_entropy", "--epochs", "1", "--dry-run"], more]
                .concat(),
        )
    };
    refused(&with(&["--transform", "resize=9x9"]), 3, "the image is [1, 9, 9] after the transforms, expected [64]");
    done(&with(&["--transform", "random_crop=8:1", "--transform", "normalize=0.3/0.4"]));
    refused(&with(&["--transform", "spin"]), 2, "unknown transform `spin`");
    refused(&with(&["--target", "class"]), 3, "the labels of images are the names of their directories");
    let bad = dir.path().join("bad");
    std::fs::create_dir_all(bad.join("a")).unwrap();
    std::fs::write(bad.join("a/x.png"), "not an image").unwrap();
    let bad = bad.to_str().unwrap();
    let fixed = ["train", model, "--data", bad, "--loss", "cross_entropy", "--dry-run"];
    refused(&firebrand(&root, &fixed), 3, "x.png");
}
