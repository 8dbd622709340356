//! Graphs that are called under autocast: its casts become part of the compiled graphs, for each dtype on its own.

use super::{backends, call, capture, compile};
use firebrand_compile::fused::FusedOptions;
use firebrand_compile::joint::firebrand;
use firebrand_core::autograd::autocast;
use firebrand_core::{DType, Result, Tensor};

/// Products, which autocast lowers, and what follows them.
fn mixed(t: &[Tensor]) -> Result<Vec<Tensor>> {
    let hidden = t[0].matmul(&t[1]).tanh();
    Ok(vec![hidden.matmul(&t[2]).softmax(-1), hidden])
}

fn inputs() -> Vec<Tensor> {
    firebrand_core::random::manual_seed(9);
    let random = |sizes: [i64; 2]| Tensor::randn(sizes, DType::F32);
    vec![random([4, 6]), random([6, 5]).requires_grad_(), random([5, 3]).requires_grad_()]
}

fn gradients(t: &[Tensor], results: &[Tensor]) -> Vec<Vec<f32>> {
    (results[0].to_dtype(DType::F32).square().sum() + results[1].to_dtype(DType::F32).sum()).backward();
    t[1..].iter().map(|t| t.grad().unwrap().to_vec::<f32>()).collect()
}

#[test]
fn casts_are_part_of_the_plan() {
    let mut all = backends();
    all.push(("firebrand", firebrand(FusedOptions { bitwise: true })));
    for (name, backend) in all {
        let graph = capture(mixed, &inputs());
        let executable = compile(&backend, &graph, &inputs());
        for dtype in [Some(DType::BF16), None, Some(DType::F16), Some(DType::BF16)] {
            let run = |f: &dyn Fn() -> Vec<Tensor>| dtype.map_or_else(f, |d| autocast(d, f));
            let (plain, compiled) = (inputs(), inputs());
            let expected = run(&|| mixed(&plain).unwrap());
            let found = run(&|| call(&executable, &compiled));
            for (e, f) in expected.iter().zip(&found) {
                assert_eq!((e.dtype(), e.shape()), (f.dtype(), f.shape()), "{name} {dtype:?}");
                assert_eq!(
                    e.to_dtype(DType::F32).to_vec::<f32>(),
                    f.to_dtype(DType::F32).to_vec::<f32>(),
                    "{name} {dtype:?}"
                );
            }
            let (e, f) = (gradients(&plain, &expected), gradients(&compiled, &found));
            for (e, f) in e.iter().flatten().zip(f.iter().flatten()) {
                assert!((e - f).abs() <= 1e-2 * e.abs().max(0.1), "{name} {dtype:?}: {e} {f}");
            }
        }
        // Without gradients too.
        let plain = firebrand_core::autograd::no_grad(|| autocast(DType::BF16, || mixed(&inputs()).unwrap()));
        let found = firebrand_core::autograd::no_grad(|| autocast(DType::BF16, || call(&executable, &inputs())));
        for (e, f) in plain.iter().zip(&found) {
            assert_eq!(e.dtype(), f.dtype(), "{name}");
            assert_eq!(e.to_dtype(DType::F32).to_vec::<f32>(), f.to_dtype(DType::F32).to_vec::<f32>(), "{name}");
        }
    }
}
