//! Texts on the command line: what is learned of them, prompts through a tokenizer and back, and the README's small model.
#![cfg(feature = "text")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::Tensor;
use firebrand::io::write_npz;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
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

/// A program over forty tokens that takes one row at a time, and a folder with its tokenizer.
fn model() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/generate/plain.pt2");
    (folder, model.to_str().unwrap().to_string())
}

fn evaluated(at: &Path, model: &str, more: &[&str]) -> Value {
    let text = done(at, &[&["eval", model, "--loss", "cross_entropy", "--json"], more].concat());
    serde_json::from_str(&text).unwrap()
}

const SKIP: i64 = -100;

/// Every form of text has the loss of the rows one would make by hand: what is given is not learned, what is learned ends.
#[test]
fn texts_become_the_rows_one_expects() {
    let (folder, model) = model();
    let at = folder.path();
    let prompts = r#"{"prompt": "w3 w4", "completion": "w5 w6"}
{"prompt": "w7", "completion": "w8"}
"#;
    let chat = r#"{"messages": [{"role": "user", "content": "w3"}, {"role": "assistant", "content": "w4 w5"}, {"role": "user", "content": "w6"}, {"role": "assistant", "content": "w7"}]}
"#;
    // The file, its text, options, and ids and labels by hand; 1 is <eos>, 2 is <pad>.
    type Case<'a> = (&'a str, &'a str, Vec<&'a str>, Vec<Vec<i64>>, Vec<Vec<i64>>);
    let cases: Vec<Case> = vec![
        (
            "prompts.jsonl",
            prompts,
            vec![],
            vec![vec![3, 4, 5, 6], vec![7, 8, 1, 2]],
            vec![vec![SKIP, 5, 6, 1], vec![8, 1, SKIP, SKIP]],
        ),
        (
            "prompts.jsonl",
            prompts,
            vec!["--template", "w9 {prompt} w10", "--length", "4"],
            vec![vec![9, 3, 4, 10], vec![9, 7, 10, 8]],
            vec![vec![SKIP, SKIP, SKIP, 5], vec![SKIP, SKIP, 8, 1]],
        ),
        (
            "prompts.jsonl",
            prompts,
            vec!["--rows", "packed", "--length", "3"],
            vec![vec![3, 4, 5], vec![6, 1, 7]],
            vec![vec![SKIP, 5, 6], vec![1, SKIP, 8]],
        ),
        (
            "fields.jsonl",
            "{\"question\": \"w3\", \"n\": 4, \"answer\": \"w5\"}\n",
            vec!["--target", "answer", "--template", "{question} w{n}"],
            vec![vec![3, 4, 5]],
            vec![vec![SKIP, 5, 1]],
        ),
        (
            "chat.jsonl",
            chat,
            vec!["--template", "w2{role} {content} w30 "],
            // `w2user` is no word of the vocabulary, so it is 0.
            vec![vec![0, 3, 30, 0, 4, 5, 30, 0, 6, 30, 0, 7]],
            vec![vec![SKIP, SKIP, SKIP, 4, 5, 30, SKIP, SKIP, SKIP, SKIP, 7, 30]],
        ),
        (
            "lines.jsonl",
            "{\"text\": \"w3 w4\"}\n\n{\"text\": \"w5\"}\n",
            vec![],
            vec![vec![3, 4, 1, 5]],
            vec![vec![4, 1, 5, 1]],
        ),
        ("plain.txt", "w3 w4\nw5 w6", vec!["--end-token", "w39"], vec![vec![3, 4, 5, 6]], vec![vec![4, 5, 6, 39]]),
    ];
    for (name, text, more, ids, labels) in cases {
        std::fs::write(at.join(name), text).unwrap();
        let sizes = [ids.len(), ids[0].len()];
        let tensor = |rows: &[Vec<i64>]| Tensor::from_slice(&rows.concat(), sizes);
        write_npz(at.join("by_hand.npz"), [("input_ids", &tensor(&ids)), ("__target__", &tensor(&labels))]).unwrap();
        let texts = [&["--data", name, "--tokenizer", "tokenizer.json"], &more[..]].concat();
        let (found, expected) = (evaluated(at, &model, &texts), evaluated(at, &model, &["--data", "by_hand.npz"]));
        assert_eq!(found["samples"], expected["samples"], "{name} {more:?}");
        for metric in ["loss", "perplexity", "accuracy"] {
            assert_eq!(found["metrics"][metric], expected["metrics"][metric], "{name} {more:?}: {metric}");
        }
        let loss = found["metrics"]["loss"].as_f64().unwrap();
        assert!((found["metrics"]["perplexity"].as_f64().unwrap() / loss.exp() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn refusals_of_texts() {
    let (folder, model) = model();
    let at = folder.path();
    let with = |name: &str, text: &str, more: &[&str], reason: &str| {
        std::fs::write(at.join(name), text).unwrap();
        let fixed = ["eval", &model, "--loss", "cross_entropy", "--data", name, "--tokenizer", "tokenizer.json"];
        refused(at, &[&fixed[..], more].concat(), reason);
    };
    let prompt = r#"{"prompt": "w3", "completion": "w4"}"#;
    let chat = r#"{"messages": [{"role": "user", "content": "w3"}]}"#;
    with("a.jsonl", "", &[], "a.jsonl: no texts");
    with("a.jsonl", "w3 w4", &[], "a.jsonl: line 1: expected a JSON object");
    with(
        "a.jsonl",
        r#"{"question": "w3"}"#,
        &[],
        "expected `text`, `prompt` and `completion`, or `messages`, found `question`",
    );
    with("a.jsonl", &format!("{prompt}\n{chat}"), &[], "line 2: it has other fields than the lines before it");
    with("a.jsonl", r#"{"prompt": 3, "completion": "w4"}"#, &[], "line 1: `prompt`: expected text, found 3");
    with("a.jsonl", r#"{"completion": "w4"}"#, &[], "line 1: no field `prompt`; the line has `completion`");
    with(
        "a.jsonl",
        prompt,
        &["--template", "{question}"],
        "the template uses the unknown name {question}; expected one of prompt, completion",
    );
    with("a.jsonl", chat, &[], "messages need --template with `{content}` and `{role}`");
    with("a.jsonl", r#"{"messages": 3}"#, &["--template", "{content}"], "expected a list of objects");
    with("a.txt", "w3 w4", &["--template", "{prompt}"], "--template is for prompts and messages");
    with("a.txt", "w3", &["--end-token", "<stop>"], "--end-token <stop>: the tokenizer has no such token");
    with("a.txt", "w3 w4 w5", &["--length", "97"], "--length 97: the program takes rows of 2 to 96 tokens");
    with("a.txt", "w3", &["--rows", "padded", "--end-token", "w4", "--class-weights", "balanced"], "not for texts");
    refused(at, &["eval", &model, "--loss", "cross_entropy", "--data", "a.txt"], "add --tokenizer tokenizer.json");
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firebrand/data/digits.pt2");
    let other = ["eval", images.to_str().unwrap(), "--loss", "cross_entropy", "--data", "a.txt"];
    refused(at, &[&other[..], &["--tokenizer", "tokenizer.json"]].concat(), "is not understood; with texts");
    let mut large = tokenizer();
    large["model"]["vocab"]["w40"] = 40.into();
    std::fs::write(at.join("tokenizer.json"), large.to_string()).unwrap();
    with("a.txt", "w3 w40", &[], "the texts have token 40, the program's output has logits for 40 (0 to 39)");
}

/// The README's second path, word for word: adapters teach a small language model to end its sums in a new way, and it does.
#[test]
fn the_readme_tunes_a_language_model() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").to_str().unwrap().to_string();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap().replace("\\\n", " ");
    let words = |start: &str| -> Vec<String> {
        let line = readme.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
        // The prompt is the only text in quotes, and the last.
        let (line, quoted) = line.split_once('"').map_or((line, None), |(l, q)| (l, q.split('"').next()));
        let plain = line.split_whitespace().skip_while(|w| *w != "train" && *w != "generate");
        plain.map(|w| w.replace("runs/sums", &out)).chain(quoted.map(str::to_string)).collect()
    };
    let train = words("firebrand train crates/firebrand/data/sums/model.pt2");
    let train: Vec<&str> = train.iter().map(String::as_str).collect();
    let found: Value = serde_json::from_str(&done(&root, &[&train[..], &["--json"]].concat())).unwrap();
    let metrics = &found["evaluation"];
    assert!(metrics["accuracy"].as_f64().unwrap() > 0.9 && metrics["perplexity"].as_f64().unwrap() < 1.5, "{metrics}");
    let generate = words("firebrand generate runs/sums/model.pt2");
    let generate: Vec<&str> = generate.iter().map(String::as_str).collect();
    assert_eq!(done(&root, &generate).trim(), "12, as everybody knows");
    let report = std::fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains("Hardest samples") && report.contains("+") && !report.contains("Confusion matrix"));
    // Only adapters were trained, and the run folder says so.
    let facts: Value = serde_json::from_slice(&std::fs::read(Path::new(&out).join("run.json")).unwrap()).unwrap();
    assert!(facts["trainable"].as_u64().unwrap() * 3 < facts["parameters"].as_u64().unwrap(), "{facts}");
}
