//! Written inputs, results that share memory, undefined gradients, random numbers.

use super::*;
use firebrand_core::autograd::{BackwardOptions, no_grad};
use firebrand_core::random::manual_seed;

/// The joint family: a write shows in the caller's tensor, and gradients go through it.
#[test]
fn writes_reach_the_caller() {
    // `x *= 3; 2x`, written as the graph that capture gives for a tensor that has a history.
    let mut g = firebrand_graph::ir::Graph::new();
    let x = g.placeholder("x");
    let y = g.call_function(firebrand_graph::ir::Target::aten("mul_.Scalar"), [x.into(), 3.0.into()]);
    let z = g.call_function(firebrand_graph::ir::Target::aten("mul.Scalar"), [y.into(), 2.0.into()]);
    g.output(firebrand_graph::ir::Argument::tuple([z.into()]));
    let graph = GraphModule::new(g);
    for (name, backend) in backends() {
        let root = leaf(&[1.0, 1.0]);
        let x = &root * 1.0;
        let executable = compile(&backend, &graph, std::slice::from_ref(&x));
        let z = call(&executable, std::slice::from_ref(&x));
        assert_eq!(x.to_vec::<f32>(), [3.0, 3.0], "{name}");
        assert!(x.version() >= 1);
        z[0].sum().backward();
        assert_eq!(root.grad().unwrap().to_vec::<f32>(), [6.0, 6.0], "{name}");
        // Without history.
        let x = Tensor::new(&[1.0f32, 2.0]);
        let z = no_grad(|| call(&executable, std::slice::from_ref(&x)));
        assert_eq!((x.to_vec::<f32>(), z[0].to_vec::<f32>()), (vec![3.0, 6.0], vec![6.0, 12.0]), "{name}");
    }
}

/// A view of an input that the graph writes afterwards is kept as it was (it once showed the new numbers).
#[test]
fn kept_views_of_written_inputs() {
    use firebrand_graph::ir::{Argument, Graph, Target};
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let t = g.call_function(Target::aten("t.default"), [x.into()]);
    let written = g.call_function(Target::aten("sin_.default"), [t.into()]);
    g.output(Argument::tuple([written.into()]));
    let graph = GraphModule::new(g);
    let numbers = [0.5f32, -1.0, 2.0, 0.25];
    for (name, backend) in backends() {
        let root = Tensor::from_slice(&numbers, [2, 2]).requires_grad_();
        let x = &root * 1.0;
        let out = call(&compile(&backend, &graph, std::slice::from_ref(&x)), std::slice::from_ref(&x));
        out[0].sum().backward();
        let expected: Vec<f32> = Tensor::from_slice(&numbers, [2, 2]).cos().to_vec();
        assert_eq!(root.grad().unwrap().to_vec::<f32>(), expected, "{name}");
    }
}

/// Results that share memory share it here too, and a result that is an input is that input.
#[test]
fn results_share_memory() {
    let f: F = |x| {
        let y = &x[0] * 2.0;
        Ok(vec![y.clone(), y.try_view([4])?, y.try_t()?, x[0].clone(), x[0].try_t()?, y])
    };
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).requires_grad_();
    let inputs = std::slice::from_ref(&x);
    for (name, backend) in backends() {
        let executable = compile(&backend, &capture(f, inputs), inputs);
        let out = call(&executable, inputs);
        assert!(out[0].shares_storage(&out[1]) && out[0].shares_storage(&out[2]), "{name}");
        assert!(out[3].is_same(&x) && out[4].shares_storage(&x) && out[4].base().unwrap().is_same(&x), "{name}");
        assert_eq!(out[2].strides(), f(inputs).unwrap()[2].strides(), "{name}");
        out[1].try_mul_scalar_(3.0).unwrap();
        assert_eq!(out[0].to_vec::<f32>(), [6.0, 12.0, 18.0, 24.0], "{name}");
        let g = grad(&out[0].sum(), &x, &GradOptions::default()).unwrap();
        assert_eq!(g[0].as_ref().unwrap().to_vec::<f32>(), [6.0; 4], "{name}");
    }
}

/// An output nobody differentiates has no gradient: inputs that only it depends on get none, as in a plain run.
#[test]
fn undefined_gradients_stay_undefined() {
    let f: F = |x| Ok(vec![&x[0] * &x[0], &x[1] * 3.0, &x[0] * &x[1]]);
    for (name, backend) in backends() {
        let x = [leaf(&[2.0]), leaf(&[5.0])];
        let executable = compile(&backend, &capture(f, &x), &x);
        let out = call(&executable, &x);
        out[0].backward();
        assert_eq!(x[0].grad().unwrap().to_vec::<f32>(), [4.0], "{name}");
        assert!(x[1].grad().is_none(), "{name}: nothing reaches the second input");
        let out = call(&executable, &x);
        (&out[1] + &out[2]).backward();
        assert_eq!(x[0].grad().unwrap().to_vec::<f32>(), [9.0], "{name}");
        assert_eq!(x[1].grad().unwrap().to_vec::<f32>(), [5.0], "{name}");
    }
}

/// U-74: a kept graph runs twice and doubles; after release a third run says so.
#[test]
fn repeated_backward() {
    let f: F = |x| Ok(vec![x[0].try_sin()?]);
    for (name, backend) in backends() {
        let x = leaf(&[1.0]);
        let inputs = std::slice::from_ref(&x);
        let out = call(&compile(&backend, &capture(f, inputs), inputs), inputs);
        let keep = BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() };
        out[0].try_backward(&keep).unwrap();
        out[0].try_backward(&BackwardOptions::default()).unwrap();
        assert!((x.grad().unwrap().item::<f32>() - 1.080_604_6).abs() < 1e-6, "{name}");
        let error = out[0].try_backward(&BackwardOptions::default()).unwrap_err().to_string();
        assert!(error.contains("second time") || error.contains("freed"), "{name}: {error}");
    }
}

/// U-143: the mask of the backward is that of the forward, and the generator stands where a plain run leaves it.
#[test]
fn dropout_masks_agree() {
    let f: F = |x| Ok(vec![firebrand_core::ops::dropout(&x[0], 0.5, true)?]);
    let x = Tensor::ones([64], firebrand_core::DType::F32).requires_grad_();
    let inputs = std::slice::from_ref(&x);
    manual_seed(3);
    let plain = f(inputs).unwrap();
    let next = Tensor::rand([4], firebrand_core::DType::F32);
    for (name, backend) in backends() {
        let executable = compile(&backend, &capture(f, inputs), inputs);
        manual_seed(3);
        let out = call(&executable, inputs);
        assert_eq!(bits(&out[0]), bits(&plain[0]), "{name}");
        assert_eq!(bits(&Tensor::rand([4], firebrand_core::DType::F32)), bits(&next), "{name}: the generator");
        let g = grads(&out, inputs)[0].clone().unwrap();
        assert_eq!(bits(&g), bits(&out[0]), "{name}: kept elements have gradient 2");
        // The mask stays when the gradient is differentiated.
        let out = call(&executable, inputs);
        let g = grad(&(&out[0] * &out[0]).sum(), &x, &GradOptions::create_graph()).unwrap()[0].clone().unwrap();
        let expected: Vec<f32> = out[0].to_vec::<f32>().iter().map(|v| v * 4.0).collect();
        assert_eq!(g.to_vec::<f32>(), expected, "{name}");
    }
}
