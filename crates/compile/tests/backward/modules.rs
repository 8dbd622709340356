//! Layers: an optimiser that steps inside backward (U-93, L-5), hooks of modules (U-97), a custom function, views in place.

use crate::common::*;
use crate::compilers;
use firebrand_compile::backends::record;
use firebrand_compile::backward::{CompiledBackward, Options as BackwardOptions};
use firebrand_compile::{Options, backend, compile_module, compile_with};
use firebrand_core::autograd::{Context, Function, no_grad};
use firebrand_core::module::{Forward, Module, ModuleHooks};
use firebrand_core::{DType, Result, Tensor};
use firebrand_graph::ir;
use firebrand_nn::layers::{Linear, LinearOptions, ReLU, Sequential};
use std::sync::Arc;

fn ramp(from: f32, to: f32, n: usize) -> Vec<f32> {
    (0..n).map(|i| if n == 1 { from } else { from + (to - from) * i as f32 / (n - 1) as f32 }).collect()
}

/// U-93, L-5: in every pair of back ends; the sums are PyTorch's.
#[test]
fn optimiser_in_backward() {
    let input = Tensor::from_slice(&ramp(-1.0, 1.0, 12), [3, 4]);
    for forward in [None, Some("eager"), Some("aot_eager"), Some("firebrand")] {
        for (name, counter, compiler) in compilers() {
            let net = Arc::new(Sequential::new().then(Linear::new(4, 4)).then(ReLU::new()).then(Linear::new(4, 1)));
            let parameters: Vec<Tensor> = net.parameters().into_iter().map(|p| p.tensor().clone()).collect();
            for (i, p) in parameters.iter().enumerate() {
                let values: Vec<f32> = ramp(-0.5, 0.5, p.numel()).iter().map(|v| v + 0.1 * i as f32).collect();
                no_grad(|| p.copy_(&Tensor::from_slice(&values, p.shape()), false).clone());
                p.try_register_post_accumulate_grad_hook(|p: &Tensor| {
                    let step = &p.grad().expect("just accumulated") * 0.1;
                    no_grad(|| p.sub_(&step).clone());
                    p.zero_grad();
                })
                .expect("a leaf");
            }
            let compiled = forward.map(|f| {
                let options = Options::with_backend(backend(f).expect("a known back end"));
                compile_module::<_, Tensor>(net.clone(), options)
            });
            let _scope = compiler.enable();
            for _ in 0..3 {
                let out = compiled.as_ref().map_or_else(|| net.call(&input), |f| f.call(&input));
                out.sum().backward();
            }
            for (p, expected) in parameters.iter().zip([-0.98463, 0.07424, -0.45725, -1.1]) {
                let sum: f32 = p.to_vec::<f32>().iter().sum();
                assert!((sum - expected).abs() < 2e-5, "{forward:?} and {name}: {sum} for {expected}");
                assert!(p.grad().is_none(), "{forward:?} and {name}");
            }
            assert_eq!((compiler.captures(), counter.frames()), (1, 1), "{forward:?} and {name}");
        }
    }
}

/// U-97.
#[test]
fn hooks_of_modules() {
    for forward in [None, Some("eager"), Some("aot_eager")] {
        for (name, _, compiler) in compilers() {
            let layer =
                Arc::new(LinearOptions { bias: false, ..LinearOptions::new(2, 2) }.build().expect("a small layer"));
            no_grad(|| layer.weight.fill_(1.0).clone());
            let times = |g: &[Option<Tensor>], k: f64| g.iter().map(|g| g.as_ref().map(|g| g * k)).collect::<Vec<_>>();
            layer.register_full_backward_hook(move |_, gi, _| times(gi, 5.0)).expect("no other kind is there");
            layer.register_full_backward_pre_hook(move |_, go| times(go, 2.0));
            let compiled = forward.map(|f| {
                let options = Options::with_backend(backend(f).expect("a known back end"));
                compile_module::<_, Tensor>(layer.clone(), options)
            });
            let _scope = compiler.enable();
            for _ in 0..2 {
                let x = Tensor::ones([1, 2], DType::F32).requires_grad_();
                layer.weight.zero_grad();
                let out = compiled.as_ref().map_or_else(|| layer.call(&x), |f| f.call(&x));
                out.sum().backward();
                assert_eq!((grad(&x), grad(&layer.weight)), (vec![20.0; 2], vec![2.0; 4]), "{forward:?} and {name}");
            }
        }
    }
}

/// Gives the first input twice the gradient, the second none.
struct FirstOnly;

impl Function for FirstOnly {
    fn name(&self) -> String {
        "FirstOnly".to_string()
    }
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] + &inputs[1]])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|g| g * 2.0), None])
    }
}

/// A custom function is called; a gradient it does not give stays undefined.
#[test]
fn custom_functions() {
    for (name, counter, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..3 {
            let (x, w) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]));
            let y = FirstOnly.apply(&[&x, &(&w * 2.0)]).expect("applies").remove(0);
            y.sin().sum().backward();
            let expected: Vec<f32> = y.to_vec::<f32>().iter().map(|v| v.cos() * 2.0).collect();
            assert_eq!(grad(&x), expected, "{name}");
            assert!(w.grad().is_none(), "{name}");
        }
        assert_eq!((compiler.captures(), counter.frames()), (1, 1), "{name}");
    }
}

/// A cube that says of its backward that it only computes.
struct Traceable {
    scale: f64,
}

impl Function for Traceable {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(vec![&inputs[0] * &inputs[0] * &inputs[0] * self.scale])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let x = ctx.saved_tensors()?.remove(0).expect("it was saved");
        Ok(vec![grads[0].as_ref().map(|g| g * &x * &x * 3.0 * self.scale)])
    }
    fn traceable(&self) -> Option<u64> {
        Some(self.scale.to_bits())
    }
}

/// Backwards that only compute, and compiled forwards, are part of the graph: nothing is called.
#[test]
fn traceable_functions_are_inlined() {
    for inner in ["eager", "aot_eager", "firebrand"] {
        let recorder = record(backend(inner).expect("a known back end"));
        let compiler = CompiledBackward::new(BackwardOptions::with_backend(recorder.clone()));
        for forward in ["aot_eager", "firebrand"] {
            let forward = Options::with_backend(backend(forward).expect("a known back end"));
            let f = compile_with(|x: &Tensor| (x.sin() * x).tanh(), forward);
            for (k, scale) in [1.0, 1.0, 2.0].into_iter().enumerate() {
                let step = |x: &Tensor, h: &Tensor| {
                    Traceable { scale }.apply(&[h]).expect("applies").remove(0).sum().backward();
                    grad(x)
                };
                let values = [0.5 + k as f32, 2.0];
                let plain = leaf(&values);
                let expected = step(&plain, &(plain.sin() * &plain).tanh());
                let _scope = compiler.enable();
                let x = leaf(&values);
                let found = step(&x, &f.call(&x));
                assert!(
                    found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5),
                    "{inner}: {found:?} {expected:?}"
                );
            }
        }
        for (graph, _) in recorder.graphs() {
            let g = &graph.graph;
            let calls = g.nodes().filter(|&n| g[n].target().is_some_and(|t| t.is_function(&ir::Function::CallHost)));
            assert_eq!(calls.count(), 1, "{inner}: the accumulation, and nothing else");
        }
        assert_eq!(recorder.graphs().len(), 4, "{inner}: two forwards, two scales");
    }
}

/// Views written in place: what the base's history became is traced.
#[test]
fn views_in_place() {
    let step = || {
        let x = leaf(&[1.0, 2.0, 3.0, 4.0]);
        let y = &x * 1.0;
        y.narrow(0, 1, 2).mul_(&v(&[5.0, 7.0]));
        y.narrow(0, 0, 2).exp_();
        (&y * &y).sum().backward();
        grad(&x)
    };
    let plain = step();
    for (name, counter, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..2 {
            assert_eq!(step(), plain, "{name}");
        }
        assert_eq!((compiler.captures(), counter.frames()), (1, 1), "{name}");
    }
}
