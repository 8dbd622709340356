//! LoRA against the Python library PEFT: `golden/lora` holds programs, adapters before and after twenty steps, and logits.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{BackwardOptions, GradOptions, grad, no_grad};
use firebrand_core::module::Module;
use firebrand_core::random::manual_seed;
use firebrand_core::{Tensor, ops};
use firebrand_graph::interpret::Value;
use firebrand_graph::passes::{
    AdapterFiles, Context, LoraOptions, QuantizeOptions, load_adapter, lora, merge_lora, quantize, run_decompositions,
    save_adapter,
};
use firebrand_graph::{
    Evaluator, ExportedProgram, ProgramModule, recompute_blocks, recompute_cheap, recompute_wide, verify,
};
use firebrand_io::{Output, read_safetensors};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Programs exported with a wrapper around them.
const PREFIX: &str = "model.";
const STEPS: usize = 20;
const LR: f64 = 0.1;

/// The tests of a program take turns: some measure its memory.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

struct Case {
    folder: PathBuf,
    program: ExportedProgram,
    x: Tensor,
    target: Tensor,
    logits: Tensor,
    options: LoraOptions,
}

fn cases() -> Vec<(&'static str, Case)> {
    let names = |list: &[&str]| Some(list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
    let base = LoraOptions { rank: 4, alpha: 8.0, ..LoraOptions::default() };
    let bert = LoraOptions {
        targets: names(&["query", "key", "value", "dense"]),
        modules_to_save: vec!["classifier".to_string()],
        rslora: true,
        ..base.clone()
    };
    [
        ("llama", LoraOptions { targets: names(&["q_proj", "v_proj"]), ..base.clone() }),
        ("bert", bert),
        ("convnet", LoraOptions { targets: names(&["stem", "point", "head"]), ..base }),
    ]
    .map(|(name, options)| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/lora").join(name);
        let program = ExportedProgram::load(folder.join("base.pt2")).unwrap();
        let mut data = read_safetensors(folder.join("data.safetensors")).unwrap();
        let mut take = |name: &str| data.swap_remove(name).unwrap();
        let (x, target, logits) = (take("x"), take("target"), take("logits"));
        (name, Case { folder, program, x, target, logits, options })
    })
    .into()
}

fn run(module: &ProgramModule, x: &Tensor) -> Tensor {
    match module.run(std::slice::from_ref(x)).unwrap().swap_remove(0) {
        Value::Tensor(t) => t,
        other => panic!("logits are a tensor, found {other:?}"),
    }
}

fn worst(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    no_grad(|| (a.detach() - b.detach()).abs().max().item::<f64>())
}

fn loss(module: &ProgramModule, case: &Case) -> Tensor {
    let logits = run(module, &case.x);
    let classes = *logits.shape().last().unwrap();
    let scores = ops::reshape(&logits, &[(-1).into(), classes.into()]).unwrap();
    let target = ops::reshape(&case.target, &[(-1).into()]).unwrap();
    ops::nll_loss(&ops::log_softmax(&scores, -1, None).unwrap(), &target, None, 1, (-100).into()).unwrap()
}

/// Plain steps by hand; the module afterwards.
fn train(module: &ProgramModule, case: &Case, steps: usize) {
    for _ in 0..steps {
        loss(module, case).try_backward(&BackwardOptions::default()).unwrap();
        for p in module.parameters() {
            let Some(grad) = p.tensor().grad() else { continue };
            no_grad(|| ops::add_(p.tensor(), &grad, (-LR).into()).map(drop)).unwrap();
            p.tensor().try_set_grad(None).unwrap();
        }
    }
}

/// The tensors of an adapter, by names without what comes before the module paths.
fn adapter(path: &Path) -> Vec<(String, Tensor)> {
    let tensors = read_safetensors(path).unwrap();
    tensors.into_iter().map(|(n, t)| (format!("{PREFIX}{}", n.strip_prefix("base_model.model.").unwrap()), t)).collect()
}

#[test]
fn adapters_start_and_train_as_pefts() {
    let _turn = turn();
    for (name, case) in cases() {
        manual_seed(7);
        let (program, report) = lora(&case.program, &case.options).unwrap();
        verify::verify_module(&program.module).unwrap();
        assert!(report.changed, "{name}");
        for (key, value) in read_safetensors(case.folder.join("first.safetensors")).unwrap() {
            let key = format!("{PREFIX}{}", key.strip_prefix("base_model.model.").unwrap());
            let found = &program.state_dict[&key].tensor;
            assert_eq!(found.to_vec::<f64>(), value.to_vec::<f64>(), "{name}: initial {key}");
            assert!(found.requires_grad(), "{name}: {key} trains");
        }
        let module = program.module().unwrap();
        train(&module, &case, STEPS);
        let trained = module.program();
        let expected = adapter(&case.folder.join("adapter/adapter_model.safetensors"));
        for (key, value) in &expected {
            let off = worst(&trained.state_dict[key].tensor, value);
            assert!(off < 1e-9, "{name}: {key} after {STEPS} steps differs by {off:e}");
        }
        assert!(worst(&run(&module, &case.x), &case.logits) < 1e-9, "{name}: logits");
        // Everything else is where and what it was.
        for (key, state) in &case.program.state_dict {
            if !expected.iter().any(|(k, _)| k == key) {
                let now = &trained.state_dict[key].tensor;
                assert!(!now.requires_grad() && now.grad().is_none(), "{name}: {key} is frozen");
                assert_eq!(now.to_vec::<f64>(), state.tensor.to_vec::<f64>(), "{name}: {key} is untouched");
                assert!(program.state_dict[key].tensor.shares_storage(&state.tensor), "{name}: {key} is not copied");
            }
        }
    }
}

#[test]
fn adapters_of_peft_are_read_merged_and_written() {
    let _turn = turn();
    for (name, case) in cases() {
        let (program, _) = load_adapter(&case.program, case.folder.join("adapter")).unwrap();
        verify::verify_module(&program.module).unwrap();
        let module = program.module().unwrap();
        assert!(worst(&run(&module, &case.x), &case.logits) < 1e-9, "{name}: logits of PEFT's adapter");
        let (merged, _) = merge_lora(&program).unwrap();
        verify::verify_module(&merged.module).unwrap();
        assert!(!merged.state_dict.keys().any(|k| k.contains("lora_")), "{name}: no adapter is left");
        let [after, before] = [&merged, &case.program].map(|p| p.module.graph.len());
        assert!(after <= before, "{name}: {after} nodes, {before} before there were adapters");
        assert!(worst(&run(&merged.module().unwrap(), &case.x), &case.logits) < 1e-9, "{name}: merged");

        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = AdapterFiles { strip_prefix: PREFIX.into(), base_model: None };
        Output::commit_all(save_adapter(&program, folder.path(), &files).unwrap()).unwrap();
        let written = adapter(&folder.path().join("adapter_model.safetensors"));
        let given = adapter(&case.folder.join("adapter/adapter_model.safetensors"));
        assert_eq!(written.len(), given.len(), "{name}");
        for (key, value) in &given {
            let found = &written.iter().find(|(k, _)| k == key).unwrap().1;
            assert_eq!(found.to_vec::<f64>(), value.to_vec::<f64>(), "{name}: {key} survives");
        }

        // Through a file, nothing changes; frozen stays frozen.
        let path = folder.path().join("lora.pt2");
        program.save(&path).unwrap();
        let again = ExportedProgram::load(&path).unwrap();
        for (key, state) in &program.state_dict {
            assert_eq!(again.state_dict[key].tensor.requires_grad(), state.tensor.requires_grad(), "{name}: {key}");
        }
        Output::commit_all(save_adapter(&again, folder.path(), &files).unwrap()).unwrap();
    }
}

#[test]
fn decomposed_programs_have_adapters_too() {
    let _turn = turn();
    let (_, case) = cases().swap_remove(0);
    let (program, _) = run_decompositions(&case.program, &Context::default()).unwrap();
    let (program, _) = load_adapter(&program, case.folder.join("adapter")).unwrap();
    assert!(worst(&run(&program.module().unwrap(), &case.x), &case.logits) < 1e-9);
    let (merged, _) = merge_lora(&program).unwrap();
    assert!(worst(&run(&merged.module().unwrap(), &case.x), &case.logits) < 1e-9);
}

#[test]
fn refusals_name_what_is_wrong() {
    let _turn = turn();
    let (_, case) = cases().swap_remove(0);
    let refused = |options: LoraOptions, words: &str| {
        let message = lora(&case.program, &options).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let targets = |name: &str| LoraOptions { targets: Some(vec![name.to_string()]), ..LoraOptions::default() };
    refused(targets("query"), "ends in \"query\"; it has \"down_proj\", \"gate_proj\"");
    refused(LoraOptions { rank: 0, ..LoraOptions::default() }, "at least 1");
    refused(LoraOptions { alpha: f64::NAN, ..LoraOptions::default() }, "finite");
    refused(LoraOptions { modules_to_save: vec!["score".into()], ..LoraOptions::default() }, "\"score\"");
    let (once, _) = lora(&case.program, &targets("q_proj")).unwrap();
    let message = lora(&once, &targets("q_proj")).unwrap_err().to_string();
    assert!(message.contains("already has an adapter"), "{message}");
    assert!(merge_lora(&case.program).unwrap_err().to_string().contains("no adapters"));
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let message = save_adapter(&case.program, folder.path(), &AdapterFiles::default()).err().unwrap().to_string();
    assert!(message.contains("no adapters") || message.contains("does not record"), "{message}");
    // Of another kind.
    for (from, to, words) in [
        ("\"LORA\"", "\"IA3\"", "IA3"),
        ("\"use_dora\": false", "\"use_dora\": true", "use_dora"),
        ("\"bias\": \"none\"", "\"bias\": \"all\"", "biases"),
    ] {
        let text = std::fs::read_to_string(case.folder.join("adapter/adapter_config.json")).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(folder.path().join("adapter_config.json"), text.replace(from, to)).unwrap();
        std::fs::copy(
            case.folder.join("adapter/adapter_model.safetensors"),
            folder.path().join("adapter_model.safetensors"),
        )
        .unwrap();
        let message = load_adapter(&case.program, folder.path()).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    // Of another model.
    let message = load_adapter(&cases()[2].1.program, case.folder.join("adapter")).unwrap_err().to_string();
    assert!(message.contains("no linear or convolution layer"), "{message}");
}

#[test]
fn without_targets_every_linear_layer_is_adapted() {
    let _turn = turn();
    let (_, case) = cases().swap_remove(0);
    let (program, report) = lora(&case.program, &LoraOptions::default()).unwrap();
    // Seven in each of two blocks, and the head.
    assert_eq!(report.rewrites, 15);
    assert!(program.state_dict.contains_key("model.lm_head.lora_A.weight"));
}

#[test]
fn blocks_are_recomputed_with_the_same_gradients() {
    let _turn = turn();
    for (name, case) in cases().into_iter().filter(|(name, _)| *name != "convnet") {
        let gradients = |recompute: bool| {
            let mut module = case.program.module().unwrap();
            if recompute {
                module.set_evaluator(recompute_blocks());
            }
            let loss = loss(&module, &case);
            loss.try_backward(&BackwardOptions::default()).unwrap();
            let grads =
                module.named_parameters().into_iter().map(|(n, p)| (n, p.tensor().grad().map(|g| g.to_vec::<f64>())));
            (loss.item::<f64>(), grads.collect::<Vec<_>>())
        };
        assert_eq!(gradients(false), gradients(true), "{name}");
    }
    let (_, case) = cases().swap_remove(2);
    let mut module = case.program.module().unwrap();
    module.set_evaluator(recompute_blocks());
    let message = module.run(std::slice::from_ref(&case.x)).unwrap_err().to_string();
    assert!(message.contains("no block to recompute"), "{message}");
}

/// Gradients of adapters have the same bits, twice over a kept graph, and what the loss holds is less.
#[test]
fn cheap_values_are_recomputed_with_the_same_gradients() {
    let _turn = turn();
    for (name, case) in cases() {
        manual_seed(7);
        let (program, _) = lora(&case.program, &LoraOptions { rank: 2, ..LoraOptions::default() }).unwrap();
        let gradients = |recompute: bool| {
            let mut module = program.module().unwrap();
            if recompute {
                module.set_evaluator(recompute_cheap(None));
            }
            let before = firebrand_core::memory_stats().live;
            let loss = loss(&module, &case);
            let held = firebrand_core::memory_stats().live.saturating_sub(before);
            for _ in 0..2 {
                loss.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
            }
            let grads =
                module.named_parameters().into_iter().map(|(n, p)| (n, p.tensor().grad().map(|g| g.to_vec::<f64>())));
            ((loss.item::<f64>(), grads.collect::<Vec<_>>()), held)
        };
        let ((plain, all), (again, less)) = (gradients(false), gradients(true));
        assert_eq!(plain, again, "{name}");
        assert!(name == "convnet" || less < all, "{name}: {less} bytes instead of {all}");
    }
}

/// A layer and its adapter as one node, and products computed again: the same gradients up to rounding, twice over a kept graph, also
/// over frozen weights of few bits, and the gradient of a gradient.
#[test]
fn wide_values_are_recomputed_with_the_same_gradients() {
    let _turn = turn();
    for (name, case) in cases() {
        for quantized in [false, true] {
            manual_seed(7);
            let options = LoraOptions { rank: 2, alpha: 3.0, ..LoraOptions::default() };
            let (mut program, _) = lora(&case.program, &options).unwrap();
            // B starts at zero, which would hide A.
            no_grad(|| {
                for (n, state) in &program.state_dict {
                    if n.ends_with("lora_B.weight") {
                        ops::normal_(&state.tensor, 0.0, 0.1).unwrap();
                    }
                }
            });
            if quantized {
                let Ok((small, _)) = quantize(&program, &QuantizeOptions { bits: 8, group: 16 }) else { continue };
                program = small;
            }
            let run = |evaluator: Option<Evaluator>| {
                let mut module = program.module().unwrap();
                if let Some(evaluator) = evaluator {
                    module.set_evaluator(evaluator);
                }
                let before = firebrand_core::memory_stats().live;
                let loss = loss(&module, &case);
                let held = firebrand_core::memory_stats().live.saturating_sub(before);
                for _ in 0..2 {
                    loss.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
                }
                let trained: Vec<Tensor> =
                    module.parameters().iter().map(|p| p.tensor().clone()).filter(|p| p.requires_grad()).collect();
                let options = GradOptions { allow_unused: Some(true), ..GradOptions::create_graph() };
                let first = grad(&loss, &trained[..], &options).unwrap();
                let squares = first.iter().flatten().map(|g| ops::sum(&(g * g), None).unwrap());
                let square = squares.reduce(|a, b| &a + &b).unwrap();
                let second = grad(&square, &trained[..], &options).unwrap();
                let grads: Vec<Tensor> = trained.iter().map(|p| p.grad().unwrap()).collect();
                (loss.item::<f64>(), grads, second, held)
            };
            let plain = run(None);
            let (_, _, _, cheap) = run(Some(recompute_cheap(None)));
            let wide = run(Some(recompute_wide(None)));
            let what = format!("{name}, quantized {quantized}");
            assert!((plain.0 - wide.0).abs() <= 1e-12 * plain.0.abs(), "{what}: {} {}", plain.0, wide.0);
            for (a, b) in plain.1.iter().zip(&wide.1) {
                let off = worst(a, b) / a.abs().max().item::<f64>().max(1e-6);
                assert!(off < 1e-11, "{what}: gradients are off by {off}");
            }
            for (a, b) in plain.2.iter().zip(&wide.2).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?))) {
                let off = worst(a, b) / a.abs().max().item::<f64>().max(1e-6);
                assert!(off < 1e-9, "{what}: second gradients are off by {off}");
            }
            assert_eq!(
                plain.2.iter().map(Option::is_some).collect::<Vec<_>>(),
                wide.2.iter().map(Option::is_some).collect::<Vec<_>>(),
                "{what}"
            );
            assert!(name == "convnet" || wide.3 < cheap, "{what}: {} bytes instead of {cheap}", wide.3);
        }
    }
}

#[test]
fn frozen_weights_of_few_bits() {
    let _turn = turn();
    for (name, case) in cases() {
        for (bits, limit) in [(8, 0.02), (4, 0.4)] {
            manual_seed(7);
            let (program, _) = lora(&case.program, &case.options).unwrap();
            let before = run(&program.module().unwrap(), &case.x);
            let (small, report) = quantize(&program, &QuantizeOptions { bits, group: 16 }).unwrap();
            verify::verify_module(&small.module).unwrap();
            assert!(report.changed, "{name}");
            let module = small.module().unwrap();
            let off = worst(&run(&module, &case.x), &before) / before.abs().max().item::<f64>();
            assert!(off > 0.0 && off < limit, "{name}: {bits} bits are off by {off}");
            // It trains, adapters only, and comes back from a file.
            let first = loss(&module, &case).item::<f64>();
            train(&module, &case, STEPS);
            let last = loss(&module, &case).item::<f64>();
            assert!(last < first, "{name}: {bits} bits train, {first} to {last}");
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            module.program().save(folder.path().join("small.pt2")).unwrap();
            let again = ExportedProgram::load(folder.path().join("small.pt2")).unwrap().module().unwrap();
            assert_eq!(run(&again, &case.x).to_vec::<f64>(), run(&module, &case.x).to_vec::<f64>(), "{name}");
        }
    }
}
