//! What is refused, and how it is said (`docs/behaviour/pt2.md` §9): real programs with one thing changed.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use expect_test::expect;
use firebrand_core::Tensor;
use firebrand_graph::{ExportedProgram, LoadOptions};
use firebrand_io::{Archive, ArchiveWriter};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::path::PathBuf;

type Entries = IndexMap<String, Vec<u8>>;

fn entries(program: &str) -> Entries {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs").join(program).join("model.pt2");
    let archive = Archive::open(path).unwrap();
    let inside = |n: &str| n.strip_prefix("model/").unwrap().to_string();
    archive.names().map(|n| (inside(n), archive.read(n, 1 << 30).unwrap().into_owned())).collect()
}

fn archive(entries: &Entries) -> Vec<u8> {
    let mut out = ArchiveWriter::new(Vec::new());
    for (name, content) in entries {
        let placed = name.strip_prefix("../").map_or_else(|| format!("model/{name}"), str::to_string);
        out.add(&placed, content).unwrap();
    }
    out.finish().unwrap()
}

/// An edit of an archive's entries.
type Edit = Box<dyn Fn(&mut Entries)>;

fn json_edit(entry: &'static str, edit: impl Fn(&mut Value) + 'static) -> Edit {
    Box::new(move |entries| {
        let mut value: Value = serde_json::from_slice(&entries[entry]).unwrap();
        edit(&mut value);
        entries.insert(entry.to_string(), serde_json::to_vec(&value).unwrap());
    })
}

const MODEL: &str = "models/model.json";
const WEIGHTS: &str = "data/weights/model_weights_config.json";

/// Sets what a JSON pointer names in the program.
fn set(pointer: &'static str, new: Value) -> Edit {
    json_edit(MODEL, move |v| *v.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = new.clone())
}

/// Sets a part of the first weight's description.
fn weight(pointer: &'static str, new: Value) -> Edit {
    json_edit(WEIGHTS, move |v| {
        let first = v["config"].as_object_mut().unwrap().values_mut().next().unwrap();
        *first.pointer_mut(pointer).unwrap() = new.clone();
    })
}

fn put(entry: &'static str, content: &'static [u8]) -> Edit {
    Box::new(move |entries| _ = entries.insert(entry.to_string(), content.to_vec()))
}

fn remove(entry: &'static str) -> Edit {
    Box::new(move |entries| _ = entries.shift_remove(entry).unwrap())
}

const NODE: &str = "/graph_module/graph/nodes/0";

#[test]
fn changed_programs_are_refused() {
    let node = |rest: &str| -> &'static str { Box::leak(format!("{NODE}{rest}").into_boxed_str()) };
    let cases: Vec<(Edit, &str)> = vec![
        // The container's markers.
        (remove("archive_format"), "archive_format"),
        (put("archive_format", b"zip"), "archive_format: only `pt2`"),
        (remove("archive_version"), "archive_version"),
        (put("archive_version", b"1"), "expected version 0, found 1"),
        (remove(".data/version"), ".data/version"),
        (put(".data/version", b"99\n"), "container version \"99\""),
        (put("byteorder", b"big"), "big-endian"),
        (put("../other/file", b"x"), "different roots"),
        (remove(MODEL), "holds no program"),
        (put("models/second.json", b"{}"), ""), // the one called `model` is taken
        // Versions.
        (set("/schema_version", json!({"major": 9, "minor": 0})), "schema 9.0 of PyTorch 2.15"),
        (set("/schema_version", json!({"major": 7, "minor": 3})), "schema 7.3"),
        (set("/schema_version", json!({"major": 8, "minor": 99})), ""),
        (set("/schema_version", json!({"major": 0, "minor": 0})), ""),
        (set("/opset_version", json!({"aten": 99})), ""),
        (json_edit(MODEL, |v| v["unheard_of"] = json!(1)), ""),
        (json_edit(MODEL, |v| v.pointer_mut(NODE).unwrap()["unheard_of"] = json!(1)), ""),
        (json_edit(MODEL, |v| drop(v.pointer_mut(NODE).unwrap().as_object_mut().unwrap().remove("name"))), ""),
        (remove("byteorder"), ""),
        (remove(".data/serialization_id"), ""),
        (put("data/sample_inputs/model.pt", b""), ""),
        // JSON.
        (put(MODEL, b"{"), "models/model.json: EOF"),
        (put(MODEL, b"\xff"), "UTF-8"),
        (
            Box::new(|e| _ = e.insert(MODEL.into(), format!("{{\"deep\": {}", "[".repeat(200)).into_bytes())),
            "recursion limit",
        ),
        (set(node("/inputs/0/arg"), json!({"as_int": 1, "as_float": 2.0})), "models/model.json"),
        (set(node("/inputs/0/arg"), json!({})), "models/model.json"),
        (set(node("/inputs/0/arg"), json!({"as_tomato": 1})), "unknown variant `as_tomato`"),
        (set(node("/inputs/0/arg"), json!({"as_int": "one"})), "invalid type"),
        (set(node("/inputs/0/kind"), json!(7)), "7 is not a kind of argument"),
        (set("/graph_module/graph/tensor_values/linear/dtype", json!(99)), "99 is not a known element type"),
        (set("/graph_module/graph/tensor_values/linear/layout", json!(0)), "0 is not a known layout"),
        (set("/graph_module/graph/tensor_values/linear/sizes/0", json!({"as_int": -4})), "a negative size"),
        // Names and nodes.
        (set(node("/target"), json!("torch.ops.aten.tomato.default")), "aten.tomato.default (%linear)"),
        (set(node("/target"), json!("torch.ops.mine.op.default")), "mine.op.default (%linear)"),
        (set(node("/target"), json!("torch.ops.higher_order.tomato")), "hop.tomato"),
        (set(node("/target"), json!("#mine:op")), "#mine:op"),
        (
            set(node("/inputs/0/arg"), json!({"as_tensor": {"name": "nowhere"}})),
            "node %linear: the value \"nowhere\" is used",
        ),
        (set(node("/inputs/0/arg"), json!({"as_tensor": {"name": "relu"}})), "used before it is defined"),
        (set(node("/outputs/0"), json!({"as_tensor": {"name": "input"}})), "two values are called \"input\""),
        (set(node("/outputs/0"), json!({"as_tensor": {"name": "tomato"}})), "nothing is known of the value \"tomato\""),
        (
            set(node("/target"), json!("torch.ops.aten.re\u{1b}[31mlu.default")),
            "\\u{1b}[31mlu.default\" is not the name of an op",
        ),
        (set(node("/target"), json!("torch.ops.aten.relu.default\nerror: x")), "is not the name of an op"),
        (
            json_edit(MODEL, |v| {
                let graph = v.pointer_mut("/graph_module/graph").unwrap();
                graph["tensor_values"]["a b\n"] = graph["tensor_values"]["linear"].clone();
                graph["nodes"][0]["outputs"][0] = json!({"as_tensor": {"name": "a b\n"}});
            }),
            "\"a b\\n\" is not a valid name: expected letters, digits and underscores",
        ),
        (
            json_edit(MODEL, |v| {
                v.pointer_mut(NODE).unwrap()["inputs"][2] = json!({"name": "a b", "arg": {"as_none": true}, "kind": 2})
            }),
            "\"a b\" is not a valid name",
        ),
        (set(node("/inputs/2/name"), json!("tomato")), ""), // by position: the name does not matter
        (
            json_edit(MODEL, |v| {
                v.pointer_mut(NODE).unwrap()["inputs"][2] =
                    json!({"name": "tomato", "arg": {"as_none": true}, "kind": 2})
            }),
            "no argument \"tomato\"",
        ),
        (
            json_edit(MODEL, |v| v.pointer_mut(NODE).unwrap()["inputs"].as_array_mut().unwrap().truncate(1)),
            "the argument \"weight\" is missing",
        ),
        (
            json_edit(MODEL, |v| {
                let extra = json!({"name": "x", "arg": {"as_int": 1}, "kind": 1});
                v.pointer_mut(NODE).unwrap()["inputs"].as_array_mut().unwrap().push(extra);
            }),
            "4 positional arguments, the op takes 3",
        ),
        // Signature.
        (
            json_edit(MODEL, |v| drop(v["graph_module"]["signature"]["input_specs"].as_array_mut().unwrap().pop())),
            "5 inputs of the graph, 4 in the signature",
        ),
        (
            json_edit(MODEL, |v| drop(v["graph_module"]["graph"]["outputs"].as_array_mut().unwrap().pop())),
            "0 outputs of the graph, 1 in the signature",
        ),
        (
            set("/graph_module/signature/input_specs/0/parameter/arg/name", json!("other")),
            "the graph calls an input \"p_0_weight\"",
        ),
        (
            set("/graph_module/signature/input_specs/0/parameter/parameter_name", json!("other")),
            "the PARAMETER \"other\"",
        ),
        (
            set("/graph_module/signature/output_specs/0/user_output/arg", json!({"as_tensor": {"name": "other"}})),
            "\"other\", which is not a value",
        ),
        (set("/graph_module/graph/tensor_values/p_0_weight/sizes/0", json!({"as_int": 17})), "the graph expects"),
        // Symbols.
        (
            set(
                "/graph_module/graph/tensor_values/input/sizes/0",
                json!({"as_expr": {"expr_str": "Symbol('s0', integer=True)", "hint": null}}),
            ),
            "", // unbounded
        ),
        (
            set(
                "/graph_module/graph/tensor_values/input/sizes/0",
                json!({"as_expr": {"expr_str": "exec('x')", "hint": null}}),
            ),
            "expression, byte 0",
        ),
        // Weights.
        (remove("data/weights/weight_0"), "`model/data/weights/weight_0` is missing"),
        (remove(WEIGHTS), "model_weights_config.json` is missing"),
        (put("data/weights/weight_0", b""), "do not fit a storage of 0 bytes"),
        (put("data/weights/weight_0", b"1234"), "do not fit a storage of 4 bytes"),
        (Box::new(|e| e["data/weights/weight_0"].push(0)), "not a multiple of the size of float32"),
        (weight("/path_name", json!("../../etc")), "expected a file name like weight_0, found \"../../etc\""),
        (weight("/path_name", json!("weight_0/x")), "expected a file name"),
        (weight("/path_name", json!("tensor_0")), "expected a file name"),
        (weight("/use_pickle", json!(true)), "pickled payload not supported: 0.weight"),
        (weight("/tensor_meta", json!(null)), "pickled payload not supported: 0.weight"),
        (weight("/tensor_meta/dtype", json!(30)), "tensors of float8_e5m2 are not supported"),
        (weight("/tensor_meta/dtype", json!(9)), "tensors of complex32 are not supported"),
        (weight("/tensor_meta/dtype", json!(10)), "of complex64 do not fit a storage of 384 bytes"),
        (weight("/tensor_meta/layout", json!(1)), "sparse_coo are not supported"),
        (weight("/tensor_meta/sizes/0", json!({"as_int": -1})), "expected a size or stride, found -1"),
        (weight("/tensor_meta/strides/0", json!({"as_int": -1})), "expected a size or stride, found -1"),
        (weight("/tensor_meta/storage_offset", json!({"as_int": 1})), "do not fit"),
        (weight("/tensor_meta/storage_offset", json!({"as_int": i64::MAX})), "too large"),
        (weight("/tensor_meta/sizes/0", json!({"as_int": i64::MAX})), "too large"),
        (weight("/tensor_meta/strides/0", json!({"as_int": i64::MAX})), "too large"),
    ];
    let mut wrong = Vec::new();
    for (k, (edit, reason)) in cases.iter().enumerate() {
        let mut changed = entries("mlp");
        edit(&mut changed);
        match (ExportedProgram::from_bytes(archive(&changed)), *reason) {
            (Ok(_), "") => {}
            (Ok(_), reason) => wrong.push(format!("case {k}: {reason:?} was expected, it was accepted")),
            (Err(e), "") => wrong.push(format!("case {k} is not a fault: {e}")),
            (Err(e), reason) if e.to_string().contains(reason) => {}
            (Err(e), reason) => wrong.push(format!("case {k}: {reason:?} was expected: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All unknown targets are named at once, also those in sub-graphs, and the program can still be looked at.
#[test]
fn unknown_ops_are_listed_together() {
    let mut changed = entries("cond_hop");
    json_edit(MODEL, |v| {
        let nodes = v.pointer_mut("/graph_module/graph/nodes").unwrap();
        nodes[1]["target"] = json!("torch.ops.aten.tomato.default");
        nodes[0]["inputs"][1]["arg"]["as_graph"]["graph"]["nodes"][0]["target"] = json!("torch.ops.mine.op.default");
    })(&mut changed);
    let bytes = archive(&changed);
    let e = ExportedProgram::from_bytes(bytes.clone()).unwrap_err().to_string();
    assert!(e.contains("aten.tomato.default (%add)") && e.contains("mine.op.default (%linear)"), "{e}");
    let program = ExportedProgram::from_bytes_with(bytes, &LoadOptions::structure()).unwrap();
    assert_eq!(program.unsupported().len(), 2);
    expect!["this build cannot run: aten.tomato.default (%add); mine.op.default (%linear)"]
        .assert_eq(&program.module().unwrap_err().to_string());
}

/// Programs of another device run here, and say so once.
#[test]
fn other_devices_are_a_warning() {
    let mut changed = entries("mlp");
    let text = String::from_utf8(changed[MODEL].clone()).unwrap();
    changed.insert(MODEL.into(), text.replace("\"type\": \"cpu\"", "\"type\": \"cuda\"").into_bytes());
    let (program, warnings) = firebrand_core::collect_warnings(|| ExportedProgram::from_bytes(archive(&changed)));
    assert!(program.unwrap().run(&[Tensor::zeros([4, 6], firebrand_core::DType::F32)]).is_ok());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("\"cuda\""), "{warnings:?}");
}

/// Inputs that the program was not traced for are refused before anything runs.
#[test]
fn inputs_are_checked() {
    use firebrand_core::DType::{F32, I64};
    let load = |name| ExportedProgram::from_bytes(archive(&entries(name))).unwrap();
    let mlp = load("mlp");
    for (inputs, reason) in [
        (vec![], "expected 1 tensors, found 0: input"),
        (vec![Tensor::zeros([4, 6], F32), Tensor::zeros([1], F32)], "found 2"),
        (vec![Tensor::zeros([4, 6], I64)], "input input: expected float32, found int64"),
        (vec![Tensor::zeros([4], F32)], "expected 2 dimensions, found 1"),
        (vec![Tensor::zeros([4, 7], F32)], "dimension 1 has size 7, expected 6 (input.size()[1] == 6)"),
    ] {
        let e = mlp.run(&inputs).unwrap_err().to_string();
        assert!(e.contains(reason), "{e}");
    }
    let dynamic = load("dynamic_batch");
    let e = dynamic.run(&[Tensor::zeros([65, 6], F32)]).unwrap_err().to_string();
    assert!(e.contains("input x: dimension 0 has size 65, allowed 1..64 (x.size()[0] <= 64)"), "{e}");
    // Constants were baked in.
    use firebrand_graph::interpret::Value as V;
    let module = load("pytree_io").module().unwrap();
    let tensors = module.tensor_inputs().unwrap().into_iter().map(|(_, meta)| {
        let sizes: Vec<i64> = meta.sizes.iter().map(|s| s.known().unwrap()).collect();
        V::Tensor(Tensor::zeros(sizes, meta.dtype.dtype().unwrap()))
    });
    let tensors: Vec<V> = tensors.collect();
    let call = |scale: f64| module.run_flat([tensors.clone(), vec![V::from(scale), V::from(false)]].concat());
    assert!(call(1.5).is_ok());
    let e = call(2.0).unwrap_err().to_string();
    assert!(e.contains("input scale") && e.contains("baked in"), "{e}");
}
