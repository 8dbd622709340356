//! What a page holds, without a browser: all nodes and edges, modules as groups, rows in which arrows lead down, nothing
//! that is loaded from elsewhere. `cargo xtask conformance viewer` looks at pages with one.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::GraphView;
use firebrand_core::{DType, Tensor};
use firebrand_graph::{ExportedProgram, LoadOptions};
use firebrand_viz::{history_html, program_html};
use serde_json::Value;
use std::path::Path;

/// The data of a page, after what holds for every page.
fn data(page: &str) -> Value {
    for part in ["<!doctype html>", "id=\"graph\"", "id=\"search\"", "aria-live", "</html>"] {
        assert!(page.contains(part), "{part} is missing");
    }
    for elsewhere in ["http:", "https:", "src=", "@import", "<link"] {
        assert!(!page.contains(elsewhere), "the page refers to something outside: {elsewhere}");
    }
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let data: Value = serde_json::from_str(json).unwrap();
    check_layout(&data);
    data
}

/// Every item stands in exactly one row of its group, and edges between nodes of one group lead down.
fn check_layout(data: &Value) {
    let [nodes, groups, levels] = ["nodes", "groups", "levels"].map(|k| data[k].as_array().unwrap());
    let mut row = vec![None; nodes.len() + groups.len()];
    for (g, level) in levels.iter().enumerate() {
        for (r, cells) in level["rows"].as_array().unwrap().iter().enumerate() {
            for code in cells.as_array().unwrap().iter().filter_map(Value::as_u64) {
                assert_eq!(row[code as usize].replace((g as u64, r)), None, "item {code} stands twice");
            }
        }
    }
    for (n, node) in nodes.iter().enumerate() {
        assert_eq!(row[n].map(|(g, _)| g), node["group"].as_u64(), "node {n}");
    }
    for edge in data["edges"].as_array().unwrap() {
        let [a, b] = [0, 1].map(|k| row[edge[k].as_u64().unwrap() as usize].unwrap());
        assert!(a.0 != b.0 || a.1 < b.1, "{edge} leads up");
    }
}

fn golden(name: &str) -> ExportedProgram {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs").join(name).join("model.pt2");
    ExportedProgram::load_with(path, &LoadOptions::structure()).unwrap()
}

fn strings<'a>(data: &'a Value, list: &str, field: &str) -> Vec<&'a str> {
    data[list].as_array().unwrap().iter().filter_map(|v| v[field].as_str()).collect()
}

#[test]
fn calls_stand_in_their_modules() {
    let program = golden("transformer_encoder");
    let data = data(&program_html("encoder", &program));
    assert_eq!(data["nodes"].as_array().unwrap().len(), program.module.graph.len());
    let groups = strings(&data, "groups", "name");
    assert!(groups.contains(&"layers.0") && groups.contains(&"self_attn") && groups.contains(&"linear1"), "{groups:?}");
    assert!(strings(&data, "groups", "kind").contains(&"MultiheadAttention"));
    // Parameters stand with the calls that use them, under the last part of their name.
    let of = |label: &str, class: &str| {
        let nodes = data["nodes"].as_array().unwrap().iter();
        nodes.filter(|n| n["label"] == label && n["class"] == class).map(|n| n["group"].as_u64()).collect::<Vec<_>>()
    };
    let norms = of("layer_norm", "op");
    assert_eq!(norms.len(), 4);
    assert!(norms.iter().all(|group| of("weight", "parameter").contains(group)));
    assert!(strings(&data, "nodes", "kind").contains(&"float32[2, 5, 16]"), "types are shown");
}

#[test]
fn sub_graphs_stand_where_they_are_called() {
    let data = data(&program_html("cond", &golden("cond_hop")));
    assert_eq!(strings(&data, "groups", "kind"), ["sub-graph", "sub-graph"]);
    let nodes = data["nodes"].as_array().unwrap();
    let edges = data["edges"].as_array().unwrap();
    let call = nodes.iter().position(|n| n["label"] == "cond").unwrap();
    let sources: Vec<&Value> =
        edges.iter().filter(|e| e[1] == call).map(|e| &nodes[e[0].as_u64().unwrap() as usize]["label"]).collect();
    assert_eq!(sources, ["p", "output", "output"], "the predicate and both branches");
    // Operands lead into the branches.
    let x = nodes.iter().position(|n| n["label"] == "x" && n["group"] == 0).unwrap();
    assert!(edges.iter().filter(|e| e[0] == x).count() >= 2);
}

#[test]
fn every_program_makes_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.contains('.') {
            data(&program_html(&name, &golden(&name)));
        }
    }
}

#[test]
fn text_is_not_markup() {
    let program = firebrand_graph::text::parse("graph {\n  %x = placeholder\n  return (%x,)\n}\n").unwrap();
    let page = program_html("</script><b>'\"&", &program);
    assert!(!page.contains("<b>") && page.contains("&lt;b&gt;"));
    assert_eq!(data(&page)["title"], "</script><b>'\"&");
}

#[test]
fn a_history_shows_what_is_saved_once() {
    let [w1, w2] = [[3, 4], [4, 2]].map(|shape| Tensor::ones(shape, DType::F32).requires_grad_());
    let hidden = Tensor::ones([5, 3], DType::F32).matmul(&w1).tanh();
    let loss = hidden.matmul(&w2).sum();
    let view = GraphView::of(&[&loss]).named("block.first.weight", &w1).named("block.second.weight", &w2);
    let data = data(&history_html("loss", &view));
    assert_eq!(strings(&data, "groups", "name"), ["", "block", "second", "first"], "nearest to the loss first");
    let node = |label: &str| data["nodes"].as_array().unwrap().iter().find(|n| n["label"] == label).unwrap();
    assert_eq!(
        (&node("TanhBackward0")["bytes"], &node("TanhBackward0")["kind"]),
        (&80.into(), &"float32[5, 4]".into())
    );
    // The activation lies between two layers of the block. Its result is saved twice, and counted once in the block.
    assert_eq!(data["groups"][node("TanhBackward0")["group"].as_u64().unwrap() as usize]["name"], "block");
    let saved = 5 * 3 + 5 * 4 + 4 * 2;
    assert_eq!(data["groups"][0]["bytes"], 4 * saved);
}

/// Deep graphs need no deep stack, and large ones little time.
#[test]
fn a_long_chain_makes_a_page() {
    let mut t = Tensor::ones([1], DType::F32).requires_grad_();
    for _ in 0..5_000 {
        t = &t + 1.0;
    }
    assert_eq!(data(&history_html("chain", &GraphView::of(&[&t])))["nodes"].as_array().unwrap().len(), 5_001);
}
