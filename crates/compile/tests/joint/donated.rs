//! Donated buffers: what only the compiled node keeps is freed, or written over, while its last backward runs; what anybody
//! else holds keeps its numbers.

use super::*;
use firebrand_compile::fused::FusedOptions;
use firebrand_compile::joint::firebrand;
use firebrand_core::autograd::{BackwardOptions, SavedValue, saved_tensors_hooks};
use firebrand_core::{DType, memory_stats, ops, reset_peak_memory};
use std::sync::Mutex;

const LAYERS: usize = 8;
/// A value is a megabyte: from there on dying operands are written over.
const WIDTH: usize = 512;

/// Layers that keep their products and what goes into them.
fn layers(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut at = x[0].clone();
    for w in &x[1..] {
        at = ops::exp(&ops::tanh(&ops::matmul(&at, w)?)?)?;
    }
    Ok(vec![at])
}

fn inputs() -> Vec<Tensor> {
    let one = |_| (Tensor::randn([WIDTH, WIDTH], DType::F32) * 0.05).requires_grad_();
    (0..=LAYERS).map(one).collect()
}

fn backward(out: &Tensor, retain: bool) {
    let options = BackwardOptions { retain_graph: Some(retain), ..BackwardOptions::default() };
    out.sum().try_backward(&options).unwrap();
}

/// The gradients, which are taken off.
fn taken(inputs: &[Tensor]) -> Vec<Vec<u64>> {
    let one = |t: &Tensor| {
        let g = t.grad().unwrap();
        t.set_grad(None);
        bits(&g)
    };
    inputs.iter().map(one).collect()
}

/// Gradients take the place of what was kept: the last run needs less than one that keeps the graph, and finds the same.
#[test]
fn the_last_run_needs_less() {
    let inputs = inputs();
    let executable = compile(&firebrand(FusedOptions::default()), &capture(layers, &inputs), &inputs);
    let out = call(&executable, &inputs).remove(0);
    let mut runs = Vec::new();
    for retain in [true, true, false] {
        reset_peak_memory();
        let before = memory_stats().live;
        backward(&out, retain);
        runs.push((memory_stats().peak - before, taken(&inputs)));
    }
    assert_eq!(runs[0].1, runs[1].1, "a kept graph gives the same again");
    assert_eq!(runs[0].1, runs[2].1, "and so does the last run");
    let (kept, last) = (runs[1].0, runs[2].0);
    let layer = WIDTH * WIDTH * size_of::<f32>();
    assert!(last + LAYERS / 2 * layer < kept, "{last} bytes more in the last run, {kept} with the graph kept");
    let error = out.sum().try_backward(&BackwardOptions::default()).unwrap_err().to_string();
    assert!(error.contains("second time") || error.contains("freed"), "{error}");
}

/// Results, inputs, what a pack hook returned and what was read off the node: their numbers stay.
#[test]
fn what_others_hold_stays() {
    let inputs = inputs();
    let executable = compile(&firebrand(FusedOptions::default()), &capture(layers, &inputs), &inputs);
    let out = call(&executable, &inputs).remove(0);
    let node = out.grad_fn().unwrap();
    let Some(SavedValue::Tensors(read)) = node.saved("tensors").unwrap() else {
        panic!("a compiled node keeps tensors")
    };
    let mut held: Vec<Tensor> = read.into_iter().flatten().chain(inputs.iter().cloned()).collect();
    held.push(out.clone());
    let before: Vec<_> = held.iter().map(bits).collect();
    backward(&out, false);
    assert_eq!(held.iter().map(bits).collect::<Vec<_>>(), before);
    let expected = taken(&inputs);

    static PACKED: Mutex<Vec<(Tensor, Vec<u64>)>> = Mutex::new(Vec::new());
    let out = {
        let pack = |t: &Tensor| {
            PACKED.lock().unwrap().push((t.clone(), bits(t)));
            Ok(t.clone())
        };
        let _hooks = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone())).unwrap();
        call(&executable, &inputs).remove(0)
    };
    backward(&out, false);
    assert_eq!(taken(&inputs), expected);
    let packed = PACKED.lock().unwrap();
    assert!(packed.len() > LAYERS, "{}", packed.len());
    assert!(packed.iter().all(|(t, before)| bits(t) == *before));
}

/// A gradient that is differentiated again reads what was kept once more.
#[test]
fn derivatives_of_gradients() {
    let inputs: Vec<Tensor> = inputs().into_iter().take(3).collect();
    let executable = compile(&firebrand(FusedOptions::default()), &capture(layers, &inputs), &inputs);
    let second = |out: &Tensor| {
        let g = grad(&out.sum(), &inputs[1], &GradOptions::create_graph()).unwrap()[0].clone().unwrap();
        backward(&(&g * &g), false);
        inputs.iter().map(|t| (t.grad().unwrap(), t.set_grad(None)).0).collect::<Vec<_>>()
    };
    let (found, expected) = (second(&call(&executable, &inputs)[0]), second(&layers(&inputs).unwrap()[0]));
    for (found, expected) in found.iter().zip(&expected) {
        let off = (found - expected).abs().max().item::<f32>();
        assert!(off <= 1e-3 * expected.abs().max().item::<f32>(), "off by {off}");
    }
}
