//! What exported programs say of their state and inputs, read from archives that PyTorch wrote.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::module::Module;
use firebrand_core::{DType, Tensor};
use firebrand_graph::ir::{Argument, Attribute, Graph, Hop, Name, NodeId, Target};
use firebrand_graph::{Constant, Dialect, ExportedProgram, InputKind, OutputKind};
use firebrand_io::read_npz;
use std::path::PathBuf;

fn path(program: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs").join(program).join(file)
}

fn load(program: &str, file: &str) -> ExportedProgram {
    ExportedProgram::load(path(program, file)).unwrap()
}

fn kinds(program: &ExportedProgram) -> Vec<OutputKind> {
    program.signature().unwrap().outputs.iter().map(|o| o.kind.clone()).collect()
}

fn placeholder(program: &ExportedProgram, target: &str) -> NodeId {
    let graph = &program.module.graph;
    let specs = &program.signature().unwrap().inputs;
    let at = specs.iter().position(|s| s.kind.target().is_some_and(|t| &**t == target)).unwrap();
    graph.placeholders().nth(at).unwrap()
}

fn targets(graph: &Graph) -> Vec<String> {
    graph.nodes().filter_map(|n| graph[n].target().map(|t| t.to_string())).collect()
}

/// P-57: an empty block without gradient is a call without results in the archive. We read it, and drop it when we
/// write, because PyTorch cannot load it (R11).
#[test]
fn an_empty_region() {
    let program = load("setgrad_edges", "model.pt2");
    let empty = |p: &ExportedProgram| {
        let graph = &p.module.graph;
        let target = Target::from(Hop::WrapWithSetGradEnabled);
        let results = |n: NodeId| graph[n].num_users();
        graph.find_calls(&target).filter(|&n| results(n) == 0).count()
    };
    assert_eq!(empty(&program), 1);
    let written = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    assert_eq!(empty(&written), 0);
    assert_eq!(written.module.graph.len(), program.module.graph.len() - 2, "the call and the read of its body");
}

/// P-103: a buffer that is not saved is a constant of the program, marked as such in the signature.
#[test]
fn buffers_that_are_not_saved() {
    let program = load("constants_lifted", "model.pt2");
    let specs = &program.signature().unwrap().inputs;
    let buffer = InputKind::Buffer { target: "nb".into(), persistent: false };
    assert!(specs.iter().any(|s| s.kind == buffer));
    assert!(matches!(program.constants.get("nb"), Some(Constant::Tensor(_))));
    assert!(!program.state_dict.contains_key("nb"));
}

/// P-104: batch norm in training writes in place right after export; decomposed, what it writes is returned first.
#[test]
fn batch_norm_in_training() {
    let program = load("batchnorm_train", "model.pt2");
    let found = targets(&program.module.graph);
    assert_eq!(found[1..3], ["aten.add_.Tensor", "aten.batch_norm.default"]);
    assert_eq!(kinds(&program), [OutputKind::UserOutput]);
    let core = load("batchnorm_train", "model_core.pt2");
    let written = |t: &str| OutputKind::BufferMutation(format!("1.{t}").into());
    let expected =
        [written("running_mean"), written("running_var"), written("num_batches_tracked"), OutputKind::UserOutput];
    assert_eq!((core.dialect, kinds(&core)), (Dialect::Aten, expected.to_vec()));
    // Either way a run writes the same three buffers and returns the same value.
    let inputs = read_npz(path("batchnorm_train", "inputs.npz")).unwrap();
    let after = [&program, &core].map(|p| {
        let module = p.module().unwrap();
        let outputs = module.run_named([("input", &inputs["input"])]).unwrap();
        let buffers: Vec<_> = module.named_buffers().into_iter().map(|(n, b)| (n, b.to_vec::<f64>())).collect();
        (outputs.len(), outputs[0].tensor().unwrap().to_vec::<f64>(), buffers)
    });
    assert_eq!(after[0].0, 1);
    assert_eq!(after[0], after[1]);
    assert_eq!(after[0].2[2], ("1.num_batches_tracked".to_string(), vec![1.0]));
}

/// P-105: what a program writes into an input comes back as the input named by its spec.
#[test]
fn inputs_that_are_written() {
    let core = load("input_mutation", "model_core.pt2");
    let written = [OutputKind::BufferMutation("count".into()), OutputKind::UserInputMutation("x".into())];
    assert_eq!(kinds(&core)[..2], written);
    let inputs = read_npz(path("input_mutation", "inputs.npz")).unwrap();
    let before = inputs["x"].to_vec::<f32>();
    let outputs = core.module().unwrap().run_named([("x", &inputs["x"])]).unwrap();
    assert_eq!(outputs.len(), 1, "what was written is no result");
    let doubled: Vec<f32> = before.iter().map(|v| 2.0 * v).collect();
    assert_eq!(inputs["x"].to_vec::<f32>(), doubled);
}

/// P-106: tied weights are two inputs of which the last is used, over one storage: one parameter to whoever trains.
#[test]
fn tied_weights() {
    let program = load("tied_weights", "model.pt2");
    let graph = &program.module.graph;
    let (first, last) = (placeholder(&program, "emb.weight"), placeholder(&program, "out.weight"));
    assert_eq!((graph[first].num_users(), graph[last].num_users()), (0, 2));
    let [a, b] = ["emb.weight", "out.weight"].map(|n| &program.state_dict[n].tensor);
    a.detach().fill_(0.5);
    assert_eq!(b.to_vec::<f32>(), vec![0.5; b.numel()], "they share memory");
}

/// P-109: branches take what either of them captured, in one order.
#[test]
fn branches_capture_parameters() {
    let program = load("cond_hop", "model.pt2");
    let graph = &program.module.graph;
    let cond = graph.find_calls(&Target::from(Hop::Cond)).next().unwrap();
    let name = |a: &Argument| graph[a.node().unwrap()].name().clone();
    let operands: Vec<Name> = graph[cond].args()[3].items().unwrap().iter().map(name).collect();
    let of = |names: &[&str]| names.iter().map(|&n| Name::from(n)).collect::<Vec<_>>();
    assert_eq!(operands, of(&["x", "p_a_bias", "p_a_weight", "p_b_bias", "p_b_weight"]));
    for (branch, used) in [("true_graph_0", "p_a_weight"), ("false_graph_0", "p_b_weight")] {
        let Some(Attribute::Graph(body)) = program.module.attributes.get(branch) else { panic!("{branch}") };
        let inputs: Vec<NodeId> = body.graph.placeholders().collect();
        assert_eq!(inputs.len(), operands.len(), "{branch} takes them all");
        let weights: Vec<NodeId> = [2, 4].map(|i| inputs[i]).into();
        let position = if used == "p_a_weight" { 0 } else { 1 };
        assert_eq!(body.graph[weights[position]].num_users(), 1);
        assert_eq!(body.graph[weights[1 - position]].num_users(), 0);
    }
}

/// P-119: inputs outside what the program was exported for are refused with the condition they break; also a dtype,
/// which PyTorch lets pass (R10).
#[test]
fn inputs_are_guarded() {
    let mut program = load("dynamic_batch", "model.pt2");
    let graph = &program.module.graph;
    let x = graph.placeholders().last().unwrap();
    let meta = graph[x].meta().val.as_ref().unwrap().tensor().unwrap();
    let symbol = meta.sizes[0].expr().unwrap().symbol().unwrap().to_string();
    let width = meta.sizes[1].known().unwrap() as usize;
    let range = program.range_constraints.get_mut(&symbol).unwrap();
    (range.min, range.max) = (Some(3), Some(6));
    let module = program.module().unwrap();
    let call = |sizes: [usize; 2], dtype| module.run(&[Tensor::zeros(sizes, dtype)]);
    assert!(call([3, width], DType::F32).is_ok());
    let fixed = format!("x.size()[1] == {width}");
    for (sizes, dtype, condition) in [
        ([2, width], DType::F32, "x.size()[0] >= 3"),
        ([7, width], DType::F32, "x.size()[0] <= 6"),
        ([4, width + 1], DType::F32, fixed.as_str()),
        ([4, width], DType::F64, "expected float32"),
    ] {
        let error = call(sizes, dtype).unwrap_err().to_string();
        assert!(error.starts_with("input x: ") && error.contains(condition), "{sizes:?}: {error}");
    }
}
