//! Weights from elsewhere in a program: names that differ by a beginning, ties, dtypes, and complete lists of what does not fit.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::{DType, Tensor};
use firebrand_graph::ExportedProgram;
use firebrand_io::{Memory, read_weights, write_npz, write_safetensors, write_torch_save};
use indexmap::IndexMap;
use std::path::Path;

fn program(name: &str) -> ExportedProgram {
    ExportedProgram::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)).unwrap()
}

/// Other values for the whole state, under these names.
fn others(program: &ExportedProgram, rename: impl Fn(&str) -> String) -> IndexMap<String, Tensor> {
    let value = |t: &Tensor| Tensor::randn(t.shape().to_vec(), t.dtype());
    program.state_dict.iter().map(|(name, s)| (rename(name), value(&s.tensor))).collect()
}

#[test]
fn names_may_lack_or_have_a_beginning() {
    let llama = program("lora/llama/base.pt2");
    type Renaming = fn(&str) -> String;
    let renamings: [(&str, Renaming); 4] = [
        ("as they are", |n| n.to_string()),
        ("without the wrapper's", |n| n.strip_prefix("model.").unwrap().to_string()),
        ("with that of data parallelism", |n| format!("module.{n}")),
        ("both", |n| format!("module.{}", n.strip_prefix("model.").unwrap())),
    ];
    for (what, rename) in renamings {
        let weights = others(&llama, rename);
        let (loaded, report) = llama.with_weights(&weights, false).unwrap();
        assert_eq!((report.loaded, report.is_complete()), (weights.len(), true), "{what}: {report}");
        assert!(report.unexpected.is_empty(), "{what}: {report}");
        for (name, state) in &loaded.state_dict {
            assert_eq!(state.tensor.to_vec::<f64>(), weights[&rename(name)].to_vec::<f64>(), "{what}: {name}");
            assert_eq!(state.tensor.requires_grad(), llama.state_dict[name].tensor.requires_grad(), "{what}: {name}");
        }
    }
}

#[test]
fn everything_that_does_not_fit_is_listed() {
    let llama = program("lora/llama/base.pt2");
    let mut weights = others(&llama, str::to_string);
    weights.swap_remove("model.model.norm.weight").unwrap();
    weights.insert("model.extra".into(), Tensor::zeros([1], DType::F64));
    weights.insert("model.lm_head.weight".into(), Tensor::zeros([3, 3], DType::F64));
    let message = llama.with_weights(&weights, false).unwrap_err().to_string();
    for words in [
        "1 missing: model.model.norm.weight",
        "1 not in the program: model.extra",
        "model.lm_head.weight: expected [60, 16], found [3, 3]",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let (partial, report) = llama.with_weights(&weights, true).unwrap();
    assert_eq!(report.loaded, weights.len() - 2);
    let kept =
        |name: &str| partial.state_dict[name].tensor.to_vec::<f64>() == llama.state_dict[name].tensor.to_vec::<f64>();
    assert!(kept("model.model.norm.weight") && kept("model.lm_head.weight"));
    assert!(!kept("model.model.embed_tokens.weight"));
}

#[test]
fn one_name_of_a_tied_tensor_is_enough() {
    let tied = program("programs/tied_weights/model.pt2");
    let names: Vec<(String, String)> = {
        let all: Vec<_> = tied.state_dict.iter().collect();
        let pair = |(i, (a, s)): (usize, &(&String, &firebrand_graph::State))| {
            let other = all[i + 1..].iter().find(|(_, t)| t.tensor.is_same(&s.tensor))?;
            Some((a.to_string(), other.0.to_string()))
        };
        all.iter().enumerate().filter_map(pair).collect()
    };
    let (first, second) = &names[0];
    let mut weights = others(&tied, str::to_string);
    weights.swap_remove(second);
    let (loaded, report) = tied.with_weights(&weights, false).unwrap();
    assert!(report.is_complete(), "{report}");
    assert!(loaded.state_dict[first].tensor.is_same(&loaded.state_dict[second].tensor), "they stay one tensor");
}

#[test]
fn values_are_cast_to_the_programs_types() {
    let llama = program("lora/llama/base.pt2");
    let weights: IndexMap<String, Tensor> =
        others(&llama, str::to_string).into_iter().map(|(n, t)| (n, t.to_dtype(DType::BF16))).collect();
    let (loaded, _) = llama.with_weights(&weights, false).unwrap();
    assert!(loaded.state_dict.values().all(|s| s.tensor.dtype() == DType::F64));
}

#[test]
fn every_format_gives_the_same_tensors() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    let weights: IndexMap<String, Tensor> = [
        ("a.weight", Tensor::randn([3, 4], DType::F32)),
        ("a.bias", Tensor::randn([3], DType::F64)),
        ("turned", Tensor::randn([3, 4], DType::F32).transpose(0, 1)),
        ("half", Tensor::randn([5], DType::F32).to_dtype(DType::BF16)),
        ("count", Tensor::new(&[7i64])),
        ("flags", Tensor::new(&[true, false])),
        ("none", Tensor::zeros([0, 2], DType::F32)),
        ("scalar", Tensor::zeros(Vec::<usize>::new(), DType::F32)),
    ]
    .map(|(n, t)| (n.to_string(), t))
    .into_iter()
    .collect();
    write_safetensors(at("w.safetensors"), &weights).unwrap();
    write_torch_save(at("w.pt"), &weights).unwrap();
    write_npz(at("w.npz"), &weights).unwrap();
    // Two shards and their index.
    let (first, second): (Vec<_>, Vec<_>) = weights.iter().partition(|(n, _)| n.starts_with('a'));
    write_safetensors(at("m-1.safetensors"), first.clone()).unwrap();
    write_safetensors(at("m-2.safetensors"), second.clone()).unwrap();
    let place = |n: &String| if n.starts_with('a') { "m-1.safetensors" } else { "m-2.safetensors" };
    let map: serde_json::Value =
        weights.keys().map(|n| (n.clone(), place(n).into())).collect::<serde_json::Map<_, _>>().into();
    let index = serde_json::json!({ "weight_map": map }).to_string();
    std::fs::write(at("w.index.json"), &index).unwrap();
    for file in ["w.safetensors", "w.pt", "w.npz", "w.index.json"] {
        let found = read_weights(at(file), Memory::Mapped).unwrap();
        assert_eq!(found.len(), weights.len(), "{file}");
        for (name, expected) in &weights {
            let t = &found[name];
            // NumPy has no bfloat16: its bits come back.
            if !(file == "w.npz" && name == "half") {
                assert_eq!((t.dtype(), t.shape()), (expected.dtype(), expected.shape()), "{file}: {name}");
                assert_eq!(t.to_vec::<f64>(), expected.to_vec::<f64>(), "{file}: {name}");
            }
        }
    }
    // An index that leads elsewhere, or to what is not there.
    for (from, to, words) in [
        ("m-1.safetensors", "../m-1.safetensors", "next to the index"),
        ("m-1.safetensors", "m-2.safetensors", "is not in"),
        ("weight_map", "map", "weight_map"),
    ] {
        std::fs::write(at("bad.json"), index.replace(from, to)).unwrap();
        let message = read_weights(at("bad.json"), Memory::Mapped).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    std::fs::write(at("nothing"), "what").unwrap();
    assert!(
        read_weights(at("nothing"), Memory::Mapped).unwrap_err().to_string().contains("expected a .safetensors file")
    );
}
