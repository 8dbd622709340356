//! Every program of the corpus does what PyTorch does: outputs, what is written in place, a second call with other
//! sizes, loss and gradients; right after export and after decompositions, and again after we wrote it ourselves.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Forward, Module};
use firebrand_core::{DType, Scalar, Tensor, ops};
use firebrand_graph::interpret::Value;
use firebrand_graph::{ExportedProgram, ProgramModule};
use firebrand_io::npz::Tensors;
use firebrand_io::read_npz;
use std::path::{Path, PathBuf};

fn programs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/programs")
}

/// One folder of the corpus.
struct Case {
    folder: PathBuf,
    meta: serde_json::Value,
}

impl Case {
    fn arrays(&self, name: &str) -> Option<Tensors> {
        let path = self.folder.join(name);
        path.is_file().then(|| read_npz(path).unwrap())
    }

    fn close(&self, what: &str, found: &Tensor, expected: &Tensor) {
        let (rtol, atol) = (self.meta["rtol"].as_f64().unwrap(), self.meta["atol"].as_f64().unwrap());
        let at = format!("{}: {what}", self.folder.display());
        assert_eq!(found.shape(), expected.shape(), "{at}");
        assert_eq!(found.dtype(), expected.dtype(), "{at}");
        for (a, b) in found.to_vec::<f64>().into_iter().zip(expected.to_vec::<f64>()) {
            let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
            assert!(same, "{at}: {a} instead of {b}\n{found:?}\n{expected:?}");
        }
    }

    fn run(&self, module: &ProgramModule, inputs: &Tensors) -> Vec<Value> {
        let named = inputs.iter().filter(|(n, _)| *n != "__target__").map(|(n, t)| (n.as_str(), t));
        module.run_named(named).unwrap_or_else(|e| panic!("{}: {e}", self.folder.display()))
    }

    fn check_outputs(&self, outputs: &[Value], expected: &Tensors) {
        assert_eq!(outputs.len(), self.meta["outputs"].as_array().unwrap().len());
        for (k, output) in outputs.iter().enumerate() {
            match (output, expected.get(&format!("out_{k}"))) {
                (Value::Tensor(t), Some(e)) => self.close(&format!("output {k}"), t, e),
                (Value::Tensor(_), None) | (_, Some(_)) => panic!("{}: output {k}", self.folder.display()),
                (constant, None) => {
                    let expected = &self.meta["outputs"][k]["constant"];
                    let same = match constant {
                        Value::Scalar(Scalar::Bool(b)) => expected.as_bool() == Some(*b),
                        Value::Scalar(Scalar::Int(i)) => expected.as_i64() == Some(*i),
                        Value::Scalar(Scalar::Float(f)) => expected.as_f64() == Some(*f),
                        other => other.is_none() && expected.is_null(),
                    };
                    assert!(same, "{}: output {k} is {constant:?}, not {expected}", self.folder.display());
                }
            }
        }
    }

    fn loss(&self, outputs: &[Value], target: Option<&Tensor>) -> Option<Tensor> {
        let mut floats = outputs.iter().filter_map(|v| match v {
            Value::Tensor(t) if t.is_floating_point() => Some(t.clone()),
            _ => None,
        });
        match self.meta["loss"].as_str()? {
            "mse0" => floats.map(|t| t.to_dtype(DType::F32)).map(|t| (&t * &t).mean()).reduce(|a, b| a + b),
            "out0" => floats.next(),
            "ce" => {
                let first = floats.next().unwrap();
                let classes = *first.shape().last().unwrap();
                let flat = first.reshape([-1, classes as i64]);
                Some(ops::cross_entropy_loss(&flat, target.unwrap(), None, 1, (-100).into(), 0.0).unwrap())
            }
            other => panic!("{other}"),
        }
    }

    fn check(&self, program: &ExportedProgram, core: bool) {
        let inputs = self.arrays("inputs.npz").unwrap();
        let module = program.module().unwrap();
        let outputs = self.run(&module, &inputs);
        self.check_outputs(&outputs, &self.arrays("outputs.npz").unwrap());
        if let Some(after) = self.arrays("state_after.npz") {
            let buffers = module.named_buffers();
            for (key, expected) in &after {
                let found = match key.split_once(':').unwrap() {
                    ("buffer", name) => buffers.iter().find(|(n, _)| n == name).unwrap().1.clone(),
                    (_, name) => inputs[name].clone(),
                };
                self.close(key, &found, expected);
                assert!(!found.requires_grad(), "{key}");
            }
        }
        // Decompositions lose regions without gradient, so that gradients after them are something else.
        let regions = self.folder.file_name().unwrap().to_str().unwrap().starts_with("setgrad");
        if let Some(grads) = self.arrays("grads.npz").filter(|_| !(core && regions)) {
            let loss = self.loss(&outputs, inputs.get("__target__")).unwrap();
            self.close("loss", &loss.detach(), &grads["__loss__"]);
            loss.backward();
            for (name, p) in module.named_parameters() {
                match (grads.get(&name), p.grad()) {
                    (Some(expected), Some(found)) => self.close(&format!("gradient of {name}"), &found, expected),
                    (None, None) => {}
                    (expected, found) => panic!("{name}: {found:?} instead of {expected:?}"),
                }
            }
        }
        if let Some(inputs) = self.arrays("second_inputs.npz") {
            let module = program.module().unwrap();
            let outputs = no_grad(|| self.run(&module, &inputs));
            self.check_outputs(&outputs, &self.arrays("second_outputs.npz").unwrap());
        }
    }
}

fn check(folder: &Path) {
    let meta = serde_json::from_slice(&std::fs::read(folder.join("meta.json")).unwrap()).unwrap();
    let case = Case { folder: folder.to_path_buf(), meta };
    for file in ["model.pt2", "model_core.pt2"] {
        let path = folder.join(file);
        if path.is_file() {
            let core = file == "model_core.pt2";
            let program = ExportedProgram::load(&path).unwrap();
            case.check(&program, core);
            case.check(&ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap(), core);
            // The program itself is as it was: a second instance starts from the same state.
            case.check(&program, core);
        }
    }
}

/// What running wrote goes along when a program is taken from its module, and when that is saved.
#[test]
fn a_module_passes_its_state_on() {
    let folder = programs().join("batchnorm_train");
    let path = folder.join("model.pt2");
    let program = ExportedProgram::load(&path).unwrap();
    let module = program.module().unwrap();
    let inputs = read_npz(folder.join("inputs.npz")).unwrap();
    module.run_named(inputs.iter().map(|(n, t)| (n.as_str(), t))).unwrap();
    let mean = |m: &ProgramModule| {
        let buffers = m.named_buffers();
        buffers.iter().find(|(n, _)| n == "1.running_mean").unwrap().1.to_vec::<f32>()
    };
    let changed = mean(&module);
    assert_ne!(changed, mean(&program.module().unwrap()), "the program itself is as it was");
    assert_eq!(changed, mean(&module.program().module().unwrap()));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    module.program().save(dir.path().join("after.pt2")).unwrap();
    let again = ExportedProgram::load(dir.path().join("after.pt2")).unwrap();
    assert_eq!(changed, mean(&again.module().unwrap()));
}

/// Evaluation and training change what dropout and batch norm do, also in a program exported in the other mode.
#[test]
fn modes_can_be_changed() {
    let folder = programs().join("batchnorm_train");
    let module = ExportedProgram::load(folder.join("model.pt2")).unwrap().module().unwrap();
    let inputs = read_npz(folder.join("inputs.npz")).unwrap();
    let run = || {
        let outputs = module.run_named(inputs.iter().map(|(n, t)| (n.as_str(), t))).unwrap();
        let Value::Tensor(t) = &outputs[0] else { panic!("a tensor") };
        t.to_vec::<f32>()
    };
    let tracked = || module.named_buffers().iter().find(|(n, _)| n == "1.running_var").unwrap().1.to_vec::<f32>();
    assert!(module.core().is_training(), "as it was exported");
    let (before, training) = (tracked(), run());
    let after = tracked();
    assert_ne!(before, after);
    module.eval();
    assert_ne!(run(), training);
    assert_eq!(tracked(), after, "evaluation leaves statistics alone");
    module.train();
    assert_eq!(run(), training);
}

/// A program is called with the structure of the original call, keywords in any order.
#[test]
fn structured_calls() {
    let folder = programs().join("pytree_io");
    let module = ExportedProgram::load(folder.join("model.pt2")).unwrap().module().unwrap();
    let inputs = read_npz(folder.join("inputs.npz")).unwrap();
    let t = |name: &str| Value::from(&inputs[name]);
    let d = Value::Dict(vec![("b".into(), Value::List(vec![t("d_b_0"), t("d_b_1")])), ("a".into(), t("d_a"))]);
    let pair = Value::List(vec![t("pair_0"), t("pair_1")]);
    let keywords = vec![("flag".into(), false.into()), ("scale".into(), 1.5.into())];
    let result = module.call_structured(vec![d.clone(), pair.clone()], keywords).unwrap();
    let Value::Dict(entries) = result else { panic!("a dict") };
    assert_eq!(entries.iter().map(|(k, _)| &**k).collect::<Vec<_>>(), ["sum", "parts", "flag", "n"]);
    let expected = read_npz(folder.join("outputs.npz")).unwrap();
    assert_eq!(entries[0].1.tensor().unwrap().shape(), expected["out_0"].shape());
    let e = module.call_structured(vec![d, pair], Vec::new()).unwrap_err().to_string();
    assert!(e.contains("(args, kwargs)[1] has no \"scale\""), "{e}");
}

/// Hooks and the module tree see a program as any other module.
#[test]
fn a_program_is_a_module() {
    let folder = programs().join("mlp");
    let module = ExportedProgram::load(folder.join("model.pt2")).unwrap().module().unwrap();
    let inputs = read_npz(folder.join("inputs.npz")).unwrap();
    let names: Vec<String> = module.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
    let outputs = module.call(&vec![inputs["input"].clone()]);
    assert_eq!(outputs.len(), 1);
    outputs[0].sum().backward();
    assert!(module.parameters().iter().all(|p| p.grad().is_some()));
}

macro_rules! corpus {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(&programs().join(stringify!($name)));
        })*

        #[test]
        fn the_list_is_complete() {
            let mut found: Vec<String> = std::fs::read_dir(programs())
                .unwrap()
                .map(|d| d.unwrap().path())
                .filter(|p| p.is_dir())
                .map(|p| p.file_name().unwrap().to_str().unwrap().to_string())
                .collect();
            found.sort();
            assert_eq!(found, [$(stringify!($name)),*]);
        }
    };
}
corpus!(
    autocast_region,
    batchnorm_train,
    cond_hop,
    constants_lifted,
    convnet,
    dtypes,
    dynamic_batch,
    embedding_ce,
    input_mutation,
    lstm,
    mlp,
    pytree_io,
    setgrad_ambient_off,
    setgrad_edges,
    setgrad_in_cond,
    setgrad_nested,
    setgrad_simple,
    strided_state,
    tied_weights,
    transformer_encoder,
);
