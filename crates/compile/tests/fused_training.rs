//! Joint graphs through the fused back end: losses and gradients are those of the plain run.
//! docs/behaviour/compile-and-hooks.md (e), f.8.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_compile::fused::{FusedOptions, counters, reset_counters};
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::joint::firebrand;
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable, Value, compile};
use firebrand_core::{DType, Tensor, ops};
use firebrand_graph::interpret::{Eager, run_module};
use firebrand_graph::ir::{GraphModule, TensorMeta};
use firebrand_graph::text::parse_module;

/// Counters are of the process: tests take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn randn(sizes: &[usize]) -> Tensor {
    let sizes: Vec<_> = sizes.iter().map(|&n| n.into()).collect();
    ops::randn(&sizes, Some(DType::F32), None).unwrap()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.detach().to_dtype(DType::F64).contiguous().to_vec()
}

/// The result's sum and the gradients of all inputs, plainly or compiled.
fn run(module: &GraphModule, inputs: &[Tensor], compiled: bool) -> Vec<Vec<f64>> {
    let leaves: Vec<Tensor> = inputs.iter().map(|t| t.clone_tensor().requires_grad_()).collect();
    let values: Vec<Value> = leaves.iter().map(|t| Value::Tensor(t.clone())).collect();
    let mut all = Vec::new();
    for _ in 0..2 {
        let result = if compiled {
            let example =
                |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
            let examples: Vec<ExampleInput> = leaves.iter().map(example).collect();
            let backend = firebrand(FusedOptions::default());
            let executable = backend.compile_graph(module, &examples).unwrap();
            executable.run(&values, &Call::default()).unwrap().remove(0)
        } else {
            run_module(&mut Eager::default(), module, &values).unwrap().items().unwrap()[0].clone()
        };
        let y = result.tensor().unwrap().clone();
        all.push(numbers(&y));
        y.sum().backward();
        for leaf in &leaves {
            all.push(leaf.grad().map_or(vec![], |g| numbers(&g)));
            leaf.zero_grad();
        }
    }
    all
}

fn agree(text: &str, inputs: &[Tensor]) {
    let module = parse_module(&format!("graph {{\n{text}\n}}\n")).unwrap_or_else(|e| panic!("{e}"));
    let (plain, fused) = (run(&module, inputs, false), run(&module, inputs, true));
    for (k, (p, f)) in plain.iter().zip(&fused).enumerate() {
        let scale = p.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
        let apart = p.iter().zip(f).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max);
        assert!(p.len() == f.len() && apart < 2e-5, "result {k} is {apart:e} apart in\n{text}");
    }
}

#[test]
fn gradients_are_those_of_the_plain_run() {
    let _turn = TURN.lock();
    agree(
        "  %x = placeholder\n  %w = placeholder\n  %b = placeholder\n  %h = aten.linear.default(%x, %w, %b)\n  \
         %g = aten.gelu.default(%h)\n  %n = aten.layer_norm.default(%g, [96])\n  %s = aten.softmax.int(%n, -1)\n  \
         %y = aten.mul.Tensor(%s, %h)\n  return (%y,)",
        &[randn(&[40, 30]), randn(&[96, 30]), randn(&[96])],
    );
    agree(
        "  %x = placeholder\n  %y = placeholder\n  %t = aten.t.default(%y)\n  %a = aten.add.Tensor(%x, %t)\n  \
         %r = aten.relu.default(%a)\n  %m = aten.mean.dim(%r, [0], True)\n  %d = aten.sub.Tensor(%r, %m)\n  \
         %e = aten.tanh.default(%d)\n  %q = aten.mul.Tensor(%e, %e)\n  return (%q,)",
        &[randn(&[20, 70]), randn(&[70, 20])],
    );
    agree(
        "  %x = placeholder\n  %w = placeholder\n  %c = aten.conv2d.default(%x, %w, None, [1, 1], [1, 1])\n  \
         %r = aten.relu.default(%c)\n  %p = aten.mean.dim(%r, [2, 3])\n  %l = aten.log_softmax.int(%p, 1)\n  return (%l,)",
        &[randn(&[3, 2, 8, 8]), randn(&[5, 2, 3, 3])],
    );
}

/// U-146: gelu, and `cos(2x)`, are one kernel forward and one backward.
#[test]
fn one_kernel_each_way() {
    let _turn = TURN.lock();
    for op in ["  %y = aten.gelu.default(%x)", "  %a = aten.mul.Tensor(%x, 2.0)\n  %y = aten.cos.default(%a)"] {
        reset_counters();
        agree(&format!("  %x = placeholder\n{op}\n  return (%y,)"), &[randn(&[50])]);
        let made = counters();
        assert_eq!(made.kernels, made.plans, "{op}: {made:?}");
    }
}

/// U-150: a hook on `2x` in `cos(2x)` costs no kernel of its own: its body `sin(g) + 1` is in the backward's.
#[test]
fn a_hook_is_fused() {
    let _turn = TURN.lock();
    let hooked = |x: &Tensor| {
        let y = x * 2.0;
        register_pure_hook(&y, |g| g.sin() + 1.0).unwrap();
        y.cos()
    };
    let grad = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| {
        let x = x.clone_tensor().requires_grad_();
        f(&x).sum().backward();
        numbers(&x.grad().unwrap())
    };
    let x = randn(&[100]);
    let f = compile(hooked);
    reset_counters();
    let fused = grad(&|x| f.call(x), &x);
    assert_eq!(counters().kernels, 2);
    let apart = grad(&hooked, &x).iter().zip(&fused).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart <= 2.4e-7, "{apart:e} apart: more than one rounding of a number near 3");
}
