//! Derivatives of compiled gradients, to third order.

use super::*;

fn third(outs: &[Tensor], x: &Tensor) -> [Vec<f32>; 3] {
    let create = GradOptions::create_graph();
    let first = grad(&outs[0].sum(), x, &create).unwrap()[0].clone().unwrap();
    let second = grad(&first.sum(), x, &create).unwrap()[0].clone().unwrap();
    let third = grad(&second.sum(), x, &GradOptions::default()).unwrap()[0].clone().unwrap();
    [first, second, third].map(|t| t.to_vec())
}

/// L-6: double backward through a compiled graph, and once more.
#[test]
fn to_third_order() {
    let functions: &[F] = &[
        |x| Ok(vec![&(&x[0] * &x[0]) * &(&x[0] * &x[0])]),
        |x| Ok(vec![&x[0].try_sin()? * &x[0].try_exp()?]),
        |x| {
            let y = x[0].try_tanh()?;
            let z = &y * &x[0];
            z.try_select(0, 0)?.try_mul_scalar_(2.0)?;
            Ok(vec![z.try_sigmoid()?])
        },
        |x| Ok(vec![x[0].try_reshape([1, 3])?.try_matmul(&x[0].try_reshape([3, 1])?)?.try_exp()?]),
    ];
    for (i, f) in functions.iter().enumerate() {
        let x = leaf(&[0.5, -0.25, 0.75]);
        let inputs = std::slice::from_ref(&x);
        let plain = third(&f(inputs).unwrap(), &x);
        let graph = capture(f, inputs);
        for (name, backend) in backends() {
            let found = third(&call(&compile(&backend, &graph, inputs), inputs), &x);
            for (order, (a, b)) in found.iter().zip(&plain).enumerate() {
                for (a, b) in a.iter().zip(b) {
                    assert!(
                        (a - b).abs() <= 2e-5 * b.abs().max(1.0),
                        "{i} on {name}, order {}: {a} for {b}",
                        order + 1
                    );
                }
            }
        }
    }
}

/// What a region without gradient computes is a constant for every derivative.
#[test]
fn constants_stay_constants() {
    let f: F = |x| {
        let s = firebrand_core::autograd::no_grad(|| x[0].try_sin())?;
        Ok(vec![&(&x[0] * &s) * &x[0].detach()])
    };
    let x = leaf(&[0.5, 1.5]);
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager(), &capture(f, inputs), inputs);
    for outs in [f(inputs).unwrap(), call(&executable, inputs)] {
        let first = grad(&outs[0].sum(), &x, &GradOptions::create_graph()).unwrap()[0].clone().unwrap();
        let expected: Vec<f32> = [0.5f32, 1.5].iter().map(|v| v.sin() * v).collect();
        first.to_vec::<f32>().iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6));
        assert!(!first.requires_grad(), "the gradient depends on constants only");
    }
}

/// A gradient penalty: the gradient of a norm of a gradient, as plain.
#[test]
fn gradient_penalty() {
    let f: F = |x| Ok(vec![x[0].try_matmul(&x[1])?.try_tanh()?.try_sum()?]);
    let data = |seed: f32| -> Vec<f32> { (0..6).map(|i| ((i as f32) * 0.7 + seed).sin()).collect() };
    let run = |outs: Vec<Tensor>, x: &[Tensor]| {
        let g = grad(&outs[0], x.to_vec(), &GradOptions::create_graph()).unwrap();
        let penalty = g.iter().flatten().map(|g| (g * g).sum()).reduce(|a, b| &a + &b).unwrap();
        let second = grad(&penalty, x.to_vec(), &GradOptions::default()).unwrap();
        second.into_iter().map(|g| g.unwrap().to_vec::<f32>()).collect::<Vec<_>>()
    };
    let inputs = [
        Tensor::from_slice(&data(0.1), [2, 3]).requires_grad_(),
        Tensor::from_slice(&data(1.3), [3, 2]).requires_grad_(),
    ];
    let plain = run(f(&inputs).unwrap(), &inputs);
    for (name, backend) in backends() {
        let executable = compile(&backend, &capture(f, &inputs), &inputs);
        let found = run(call(&executable, &inputs), &inputs);
        for (a, b) in found.iter().flatten().zip(plain.iter().flatten()) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{name}: {a} for {b}");
        }
    }
}
