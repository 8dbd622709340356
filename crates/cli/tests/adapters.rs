//! Adapters, weights and generation on the command line, from program to program.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::io::{read_npz, read_safetensors, write_npz};
use firebrand::{DType, Tensor};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name);
    path.to_str().unwrap().to_string()
}

fn firebrand(at: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firebrand")).args(arguments).current_dir(at).output().unwrap()
}

#[track_caller]
fn done(at: &Path, arguments: &[&str]) -> String {
    let output = firebrand(at, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(at: &Path, arguments: &[&str], code: i32, words: &str) {
    let output = firebrand(at, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
}

#[test]
fn adapters_are_added_trained_saved_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = golden("lora/llama/base.pt2");
    let data = read_safetensors(golden("lora/llama/data.safetensors")).unwrap();
    let x = data["x"].clone();
    write_npz(at.join("in.npz"), [("x", &x)]).unwrap();
    write_npz(at.join("data.npz"), [("x", &x), ("__target__", &data["target"])]).unwrap();
    let lora = ["pass", "lora", "--rank", "2", "--alpha", "4", "--targets", "q_proj,v_proj", "--seed", "7"];
    done(at, &[&lora[..], &[&model, "-o", "lora.pt2"]].concat());
    let train = ["--loss", "cross_entropy", "--optimizer", "sgd", "--lr", "0.1", "--epochs", "3", "--batch-size", "3"];
    done(at, &[&["train", "lora.pt2", "--data", "data.npz"][..], &train, &["-o", "tuned.pt2"]].concat());
    done(at, &["pass", "lora", "tuned.pt2", "--save-adapter", "adapter", "--strip-prefix", "model."]);
    let adapter = read_safetensors(at.join("adapter/adapter_model.safetensors")).unwrap();
    assert_eq!(adapter.len(), 8, "two tensors in two layers of two blocks");
    let key = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
    assert!(adapter[key].abs().max().item::<f64>() > 0.0, "{key} was trained");
    let config: Value =
        serde_json::from_slice(&std::fs::read(at.join("adapter/adapter_config.json")).unwrap()).unwrap();
    assert_eq!((&config["r"], &config["lora_alpha"], &config["peft_type"]), (&2.into(), &4.into(), &"LORA".into()));

    done(at, &["pass", "lora", "--adapter", "adapter", &model, "-o", "again.pt2"]);
    done(at, &["pass", "lora", "--merge", "tuned.pt2", "-o", "merged.pt2"]);
    let run = |program: &str| {
        done(at, &["run", program, "--inputs", "in.npz", "-o", "out.npz"]);
        read_npz(at.join("out.npz")).unwrap()["out_0"].clone()
    };
    let tuned = run("tuned.pt2");
    for other in ["again.pt2", "merged.pt2"] {
        assert!((&run(other) - &tuned).abs().max().item::<f64>() < 1e-9, "{other}");
    }
    assert!((&run(&model) - &tuned).abs().max().item::<f64>() > 1e-4, "training changed something");
    let sizes = ["merged.pt2", "tuned.pt2"].map(|f| std::fs::metadata(at.join(f)).unwrap().len());
    assert!(sizes[0] < sizes[1]);

    done(at, &["pass", "quantize", "--bits", "4", "--group", "8", "tuned.pt2", "-o", "small.pt2"]);
    assert!((&run("small.pt2") - &tuned).abs().max().item::<f64>() < 0.5);
    assert!(std::fs::metadata(at.join("small.pt2")).unwrap().len() < sizes[1]);
}

#[test]
fn train_adapts_programs_itself() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = golden("lora/llama/base.pt2");
    let data = read_safetensors(golden("lora/llama/data.safetensors")).unwrap();
    write_npz(at.join("data.npz"), [("x", &data["x"]), ("__target__", &data["target"])]).unwrap();
    done(at, &["convert", &model, "weights.safetensors"]);
    let mut weights = read_safetensors(at.join("weights.safetensors")).unwrap();
    for t in weights.values_mut() {
        *t = &*t * 0.5;
    }
    firebrand::io::write_safetensors(at.join("half.safetensors"), &weights).unwrap();
    let train = |name: &str, more: &[&str]| {
        let base = ["train", &model, "--data", "data.npz", "--loss", "cross_entropy", "--optimizer", "sgd"];
        let rest = ["--lr", "0.1", "--epochs", "2", "--batch-size", "3", "-o", name];
        done(at, &[&base[..], &rest, more].concat());
        done(at, &["convert", name, "state.safetensors", "--format", "safetensors"]);
        let copied = at.join(format!("{name}.safetensors"));
        std::fs::rename(at.join("state.safetensors"), &copied).unwrap();
        read_safetensors(copied).unwrap()
    };
    let lora = ["--lora", "--rank", "2", "--targets", "q_proj,v_proj"];
    let plain = train("plain.pt2", &[&lora[..], &["--recompute", "nothing"]].concat());
    let key = "model.model.layers.0.self_attn.q_proj.lora_B.weight";
    assert!(plain[key].abs().max().item::<f64>() > 0.0, "{key} was trained");
    let head = "model.lm_head.weight";
    let base = read_safetensors(at.join("weights.safetensors")).unwrap();
    assert_eq!(plain[head].to_vec::<f64>(), base[head].to_vec::<f64>(), "{head} is frozen");
    // Computing blocks again changes nothing, layers and adapters as one node the rounding, bfloat16 a little, 8 bits a little, other
    // weights a lot.
    let off = |found: &firebrand::io::npz::Tensors| (&found[key] - &plain[key]).abs().max().item::<f64>();
    let step = plain[key].abs().max().item::<f64>();
    let usual = off(&train("usual.pt2", &lora));
    assert!(usual < 1e-12 * step, "{usual} of {step}");
    for what in ["blocks", "cheap"] {
        assert_eq!(off(&train("again.pt2", &[&lora[..], &["--recompute", what]].concat())), 0.0, "{what}");
    }
    let disk = off(&train("disk.pt2", &[&lora[..], &["--saved", "disk"]].concat()));
    assert_eq!(disk, 0.0);
    let bf16 = off(&train("bf16.pt2", &[&lora[..], &["--saved", "bf16"]].concat()));
    assert!(bf16 > 0.0 && bf16 < 0.1 * step, "{bf16} of {step}");
    let few = off(&train("few.pt2", &[&lora[..], &["--quantize", "8"]].concat()));
    assert!(few > 0.0 && few < 0.2 * step, "{few} of {step}");
    let halved = train("halved.pt2", &[&lora[..], &["--weights", "half.safetensors"]].concat());
    assert_eq!(halved[head].to_vec::<f64>(), weights[head].to_vec::<f64>(), "--weights");
    refused(
        at,
        &["train", &model, "--data", "data.npz", "--loss", "mse", "-o", "x.pt2", "--rank", "2"],
        2,
        "need --lora",
    );
}

#[test]
fn refusals_of_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = golden("lora/llama/base.pt2");
    refused(at, &["pass", "lora", "--targets", "query", &model, "-o", "x.pt2"], 3, "it has \"down_proj\"");
    refused(at, &["pass", "lora", "--merge", &model, "-o", "x.pt2"], 3, "no adapters");
    refused(at, &["pass", "dce", "--rank", "4", &model, "-o", "x.pt2"], 3, "need the pass `lora`");
    refused(at, &["pass", "lora", "--merge", "--rank", "4", &model], 2, "cannot be used with");
    refused(at, &["pass", "lora", "--rank", "0", &model], 2, "0 is not in");
    refused(at, &["pass", "quantize", &model, "-o", "x.pt2"], 3, "run `lora` first");
    refused(at, &["pass", "lora", "--adapter", "nowhere", &model, "-o", "x.pt2"], 3, "nowhere");
    assert!(!at.join("x.pt2").exists());
    let list = done(at, &["pass", "--list"]);
    assert!(list.contains("lora: ") && list.contains("quantize: "), "{list}");
}

#[test]
fn state_goes_from_format_to_format_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = golden("lora/convnet/base.pt2");
    let mut from = model.clone();
    for to in ["a.safetensors", "b.npz", "c.pt", "d.safetensors"] {
        done(at, &["convert", &from, to]);
        from = to.to_string();
    }
    let (first, last) =
        (std::fs::read(at.join("a.safetensors")).unwrap(), std::fs::read(at.join("d.safetensors")).unwrap());
    assert!(first == last, "the way through every format changes nothing");
    let mut state = read_safetensors(at.join("d.safetensors")).unwrap();
    let changed = Tensor::ones([5], DType::F64);
    state.insert("model.head.bias".into(), changed);
    firebrand::io::write_safetensors(at.join("e.safetensors"), &state).unwrap();
    let said = done(at, &["convert", "e.safetensors", "out.pt2", "--into", &model]);
    assert!(said.contains("tensors"), "{said}");
    done(at, &["convert", "out.pt2", "f.safetensors"]);
    assert!(std::fs::read(at.join("e.safetensors")).unwrap() == std::fs::read(at.join("f.safetensors")).unwrap());

    refused(at, &["convert", "e.safetensors", "out2.pt2"], 3, "--into MODEL.pt2");
    refused(at, &["convert", "e.safetensors", "out.xyz"], 3, "unknown extension");
    state.swap_remove("model.stem.weight");
    firebrand::io::write_safetensors(at.join("g.safetensors"), &state).unwrap();
    refused(at, &["convert", "g.safetensors", "h.pt2", "--into", &model], 3, "1 missing: model.stem.weight");
    done(at, &["convert", "g.safetensors", "h.pt2", "--into", &model, "--partial"]);
    done(at, &["convert", &model, "half.safetensors", "--dtype", "bf16"]);
    assert_eq!(read_safetensors(at.join("half.safetensors")).unwrap()["model.head.bias"].dtype(), DType::BF16);
}

#[test]
fn tokens_are_those_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let expected: Value = serde_json::from_slice(&std::fs::read(golden("generate/tokens.json")).unwrap()).unwrap();
    let ids = |v: &Value| v.as_array().unwrap().iter().map(|t| t.to_string()).collect::<Vec<_>>().join(",");
    let prompt = ids(&expected["prompt"]);
    let drawn = ["--temperature", "0.8", "--top-k", "20", "--top-p", "0.9", "--seed", "5"];
    for (program, cache) in [("generate/plain.pt2", false), ("generate/cached.pt2", true)] {
        let model = golden(program);
        for more in [&[][..], &["--compile"]] {
            let base = ["generate", &model, "--ids", &prompt, "-n", "24"];
            let text = done(at, &[&base[..], more].concat());
            assert_eq!(text.trim(), ids(&expected["greedy"]), "{program} {more:?}");
            let json = done(at, &[&base[..], &drawn, &["--json"], more].concat());
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["tokens"], expected["drawn"], "{program} {more:?}");
            assert_eq!(json["cache"], cache, "{program}");
        }
        refused(at, &["generate", &model, "--ids", &prompt, "-n", "1000"], 3, "the model is limited");
        refused(at, &["generate", &model, "--ids", &prompt, "--temperature", "0"], 2, "the most likely token is taken");
        let far = format!("{prompt},40");
        refused(at, &["generate", &model, "--ids", &far], 3, "token 40 is not one of the model's 40 tokens");
    }
    refused(at, &["generate", &golden("lora/convnet/base.pt2"), "--ids", "1"], 3, "is not understood");
}
