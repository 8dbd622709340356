//! What is captured, and when again (U-76 to U-86, U-91, U-92, U-98).

use crate::common::*;
use crate::{compilers, with};
use firebrand_compile::backends::Counter;
use firebrand_compile::backward::CompiledBackward;
use firebrand_compile::{Options, backend, compile_with};
use firebrand_core::autograd::{BackwardOptions, GradOptions, grad as gradients};
use firebrand_core::{DType, Scalar, Tensor};
use std::sync::Arc;

type F = fn(&Tensor) -> Tensor;

/// One step: what is differentiated, the gradient it must give, captures and frames afterwards.
struct Step {
    f: F,
    x: Vec<f32>,
    grad: Vec<f32>,
    counts: (usize, Option<usize>),
}

fn step(f: F, x: &[f32], grad: &[f32], captures: usize, frames: usize) -> Step {
    Step { f, x: x.to_vec(), grad: grad.to_vec(), counts: (captures, (frames > 0).then_some(frames)) }
}

fn run(id: &str, (name, counter, compiler): &(&str, Arc<Counter>, CompiledBackward), steps: &[Step]) {
    let _scope = compiler.enable();
    for (i, s) in steps.iter().enumerate() {
        let x = leaf(&s.x);
        (s.f)(&x).sum().backward();
        assert_eq!(grad(&x), s.grad, "{id}, step {i} on {name}");
        assert_eq!(compiler.captures(), s.counts.0, "{id}: captures after step {i} on {name}");
        if let Some(frames) = s.counts.1 {
            assert_eq!(counter.frames(), frames, "{id}: frames after step {i} on {name}");
        }
    }
}

fn square(x: &Tensor) -> Tensor {
    x * x
}
fn sin(x: &Tensor) -> Tensor {
    x.sin()
}
fn cos(x: &Tensor) -> Tensor {
    x.cos()
}
fn sin_sin(x: &Tensor) -> Tensor {
    x.sin().sin()
}

#[test]
fn captures_and_frames() {
    let ramp = |n: usize| (0..n).map(|i| i as f32 - 1.0).collect::<Vec<_>>();
    let sized = |n: usize, captures, frames| {
        let x = ramp(n);
        let double: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
        step(square, &x, &double, captures, frames)
    };
    let (s, c) = (1f32.sin(), 1f32.cos());
    for on in &compilers() {
        run("U-76", on, &[1, 1, 1, 1].map(|c| sized(3, c, c)));
    }
    for on in &compilers() {
        let steps = [(3, 1), (4, 2), (5, 2), (6, 2), (1, 3), (0, 4), (7, 4)];
        run("U-77", on, &steps.map(|(n, frames)| sized(n, 1, frames)));
    }
    for on in &with(|o| o.dynamic = false) {
        run("U-78", on, &[(3, 1, 1), (4, 2, 2), (5, 2, 3), (6, 2, 3)].map(|(n, c, f)| sized(n, c, f)));
    }
    for on in &compilers() {
        let twice = s.cos() * c;
        let steps = [(sin as F, c, 1), (cos, -s, 2), (sin, c, 2), (sin_sin, twice, 3)];
        run("U-79", on, &steps.map(|(f, g, captures)| step(f, &[1.0], &[g], captures, 0)));
    }
    for on in &compilers() {
        let steps: [(F, f32); 3] = [(|x| x * 2.0, 2.0), (|x| x * 3.0, 3.0), (|x| x * 4.5, 4.5)];
        run("U-84", on, &steps.map(|(f, g)| step(f, &[1.0, 1.0], &[g, g], 1, 0)));
    }
    for on in &compilers() {
        let steps: [(F, f32); 4] = [
            (|x| x.pow_scalar(2.0), 2.0),
            (|x| x.pow_scalar(3.0), 3.0),
            (|x| x.pow_scalar(4.0), 4.0),
            (|x| x.pow_scalar(2.5), 2.5),
        ];
        run("U-85, L-9", on, &steps.map(|(f, g)| step(f, &[1.0, 1.0], &[g, g], 1, 0)));
    }
    for on in &compilers() {
        let steps: [(F, [f32; 2]); 3] =
            [(|x| clamped(x, 1.0), [0.0, 1.0]), (|x| clamped(x, 1.5), [0.0, 1.0]), (|x| clamped(x, 2.0), [0.0, 0.0])];
        run("U-86, L-9", on, &steps.map(|(f, g)| step(f, &[1.0, 1.75], &g, 1, 0)));
    }
}

fn clamped(x: &Tensor, low: f64) -> Tensor {
    x.clamp(Some(Scalar::Float(low)), None)
}

/// U-82: a leaf that has a gradient is another structure than one that has none.
#[test]
fn accumulation() {
    for (name, _, compiler) in compilers() {
        let x = leaf(&[1.0, 1.0]);
        let _scope = compiler.enable();
        for (i, (total, captures)) in [(2.0, 1), (4.0, 2), (6.0, 2), (8.0, 2), (2.0, 2)].into_iter().enumerate() {
            if i == 4 {
                x.zero_grad();
            }
            square(&x).sum().backward();
            assert_eq!((grad(&x), compiler.captures()), (vec![total; 2], captures), "step {i} on {name}");
        }
    }
}

/// U-83.
#[test]
fn dtypes() {
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        for (dtype, captures) in [(DType::F32, 1), (DType::F64, 2), (DType::F32, 2)] {
            let x = Tensor::ones([3], dtype).requires_grad_();
            square(&x).sum().backward();
            let g = x.grad().expect("a gradient");
            assert_eq!((g.dtype(), g.to_dtype(DType::F64).to_vec::<f64>()), (dtype, vec![2.0; 3]), "{name}");
            assert_eq!(compiler.captures(), captures, "{name}");
        }
    }
}

/// U-91: a run that creates a graph is the engine's.
#[test]
fn graph_creation() {
    for (name, counter, compiler) in compilers() {
        let _scope = compiler.enable();
        let x = leaf(&[2.0, 3.0]);
        let y = (&(&x * &x) * &x).sum();
        let keep = GradOptions { retain_graph: Some(true), ..GradOptions::default() };
        let first = gradients(&y, [&x], &keep).expect("a gradient")[0].clone().expect("defined");
        assert_eq!((first.to_vec::<f32>(), compiler.captures()), (vec![12.0, 27.0], 1), "{name}");
        let graph = gradients(&y, [&x], &GradOptions::create_graph()).expect("a gradient")[0].clone().expect("defined");
        assert!(graph.requires_grad(), "{name}");
        assert_eq!((graph.to_vec::<f32>(), compiler.captures(), counter.frames()), (vec![12.0, 27.0], 1, 1), "{name}");
        graph.sum().backward();
        assert_eq!(grad(&x), [12.0, 18.0], "{name}: what was created is differentiated, and that is compiled");
        assert_eq!(compiler.captures(), 2, "{name}");
    }
}

/// U-92: what a forward was compiled for is part of the structure, its sizes are not.
#[test]
fn compiled_forward() {
    for forward in ["aot_eager", "firebrand"] {
        for (name, _, compiler) in compilers() {
            let options = Options::with_backend(backend(forward).expect("a known back end"));
            let (w1, w2) = (leaf(&[0.5; 16]), leaf(&[0.25; 4]));
            let net = {
                let (w1, w2) = (w1.clone(), w2.clone());
                compile_with(
                    move |x: &Tensor| x.matmul(&w1.reshape([4, 4])).relu().matmul(&w2.reshape([4, 1])).sum(),
                    options,
                )
            };
            let _scope = compiler.enable();
            for (batch, captures) in [(3, 1), (3, 1), (3, 1), (5, 2), (5, 2)] {
                net.call(&Tensor::ones([batch, 4], DType::F32)).backward();
                let expected = vec![batch as f32 * 2.0; 4];
                assert_eq!(grad(&w2), expected, "{forward}, {name}");
                assert_eq!(grad(&w1), vec![batch as f32 * 0.25; 16], "{forward}, {name}");
                assert_eq!(compiler.captures(), captures, "{forward}, {name}");
                w1.zero_grad();
                w2.zero_grad();
            }
        }
    }
}

/// U-98: what the engine frees is freed.
#[test]
fn retained_graph() {
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        let x = leaf(&[1.0]);
        let y = x.sin();
        y.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).expect("runs");
        y.backward();
        assert_eq!((grad(&x), compiler.captures()), (vec![2.0 * 1f32.cos()], 2), "{name}");
        let third = y.try_backward(&BackwardOptions::default()).expect_err("the graph was freed");
        assert!(matches!(third.kind(), firebrand_core::ErrorKind::GraphFreed { .. }), "{name}: {third}");
        assert_eq!(grad(&x), [2.0 * 1f32.cos()], "{name}");
    }
}
