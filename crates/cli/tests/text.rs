//! Texts on the command line: prompts through a tokenizer and back.
#![cfg(feature = "text")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

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
fn refused(at: &Path, arguments: &[&str], words: &str) {
    let output = firebrand(at, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
}

/// Forty words, one token each.
fn tokenizer() -> Value {
    let words = ["<unk>", "<eos>", "<pad>"].map(str::to_string).into_iter().chain((3..40).map(|i| format!("w{i}")));
    let vocabulary: serde_json::Map<String, Value> = words.enumerate().map(|(i, w)| (w, i.into())).collect();
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<eos>"), special(2, "<pad>")],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    })
}

#[test]
fn a_prompt_is_continued_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/generate/plain.pt2");
    let model = model.to_str().unwrap();
    std::fs::write(at.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let generate = ["generate", model, "--tokenizer", "tokenizer.json", "-n", "8"];
    let prompt = "w31 w21 w8 w5 w22 w35 w14 w12 w5";
    let text = done(at, &[&generate[..], &["--prompt", prompt]].concat());
    assert_eq!(text.trim(), "w16 w26 w34 w19 w17 w10 w21 w34", "the tokens of transformers");
    let json: Value =
        serde_json::from_str(&done(at, &[&generate[..], &["--prompt", prompt, "--json"]].concat())).unwrap();
    assert_eq!(json["tokens"], json!([16, 26, 34, 19, 17, 10, 21, 34]));
    let template = [&generate[..], &["--prompt", "w5", "--json", "--template", "w3 {prompt}"]].concat();
    assert_eq!(serde_json::from_str::<Value>(&done(at, &template)).unwrap()["prompt_tokens"], 2);
    std::fs::write(at.join("bad.json"), "{}").unwrap();
    refused(at, &["generate", model, "--tokenizer", "bad.json", "--prompt", "w3"], "bad.json");
    refused(at, &[&template[..template.len() - 1], &["{other}"]].concat(), "unknown name {other}");
}
