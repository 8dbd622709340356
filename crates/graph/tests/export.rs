//! Export of Rust functions: docs/behaviour/graph-and-passes.md §8, §10.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::Tensor;
use firebrand_core::autograd::{GradOptions, enable_grad, grad, inference_mode, no_grad};
use firebrand_core::dispatch::{self, Value};
use firebrand_graph::passes::{Context, run_decompositions};
use firebrand_graph::text::{Form, print};
use firebrand_graph::{Dialect, ExportedProgram, NamedTensor, export};

fn named(name: &str, tensor: &Tensor) -> NamedTensor {
    NamedTensor { name: name.to_string(), tensor: tensor.clone(), is_parameter: true }
}

fn model(x: &[Tensor], w: &Tensor) -> firebrand_core::Result<Vec<Tensor>> {
    let a = &x[0] * w;
    let s = no_grad(|| a.sin());
    Ok(vec![&s * &a, s])
}

fn exported(w: &Tensor) -> ExportedProgram {
    export(|x| model(x, w), &[Tensor::new(&[1.0f64, 2.0])], &[named("lin.weight", w)]).unwrap()
}

/// P-55, P-58: a block without gradient is a region, and its parameters get no gradient through it.
#[test]
fn no_grad_blocks_become_regions() {
    let w = Tensor::new(&[0.5f64, 0.25]).requires_grad_();
    let program = exported(&w);
    expect_test::expect![[r#"
        graph {
          %p_lin_weight = placeholder
          %arg_0 = placeholder
          %mul = aten.mul.Tensor(%arg_0, %p_lin_weight)
          %submod_3 = get_attr submod_1
          %sin = hop.wrap_with_set_grad_enabled(False, %submod_3, %mul)
          %getitem = operator.getitem(%sin, 0)
          %mul_1 = aten.mul.Tensor(%getitem, %mul)
          return (%mul_1, %getitem)
        }
          submod_1 {
            %mul = placeholder
            %sin = aten.sin.default(%mul)
            return (%sin,)
          }
        # inputs
        p_lin_weight: PARAMETER target='lin.weight'
        arg_0: USER_INPUT

        # outputs
        mul_1: USER_OUTPUT
        getitem: USER_OUTPUT
    "#]]
    .assert_eq(&print(&program, Form::Short));
}

#[test]
fn runs_as_the_function_does() {
    let w = Tensor::new(&[0.5f64, 0.25]).requires_grad_();
    let program = exported(&w);
    let x = Tensor::new(&[3.0f64, -1.0]);
    let expected = model(std::slice::from_ref(&x), &w).unwrap();
    let found = program.run(std::slice::from_ref(&x)).unwrap();
    for (value, tensor) in found.iter().zip(&expected) {
        assert_eq!(value.tensor().unwrap().to_vec::<f64>(), tensor.to_vec::<f64>());
        assert_eq!(value.tensor().unwrap().requires_grad(), tensor.requires_grad());
    }
}

/// P-59: under ambient off nothing is a region.
#[test]
fn ambient_off() {
    let w = Tensor::new(&[0.5f64, 0.25]);
    let program = no_grad(|| exported(&w));
    assert!(program.module.attributes.is_empty(), "{}", print(&program, Form::Short));
    let inside = no_grad(|| export(|x| Ok(vec![enable_grad(|| x[0].sin())]), &[Tensor::new(&[1.0f32])], &[]).unwrap());
    assert!(print(&inside, Form::Short).contains("hop.wrap_with_set_grad_enabled(True"));
}

/// P-56: of inference mode a program keeps what matters for gradients: a region without them. PyTorch drops the block,
/// and gradients flow through it (R7).
#[test]
fn inference_mode_is_a_region_without_gradient() {
    let w = Tensor::new(&[2.0f64]).requires_grad_();
    let model = |x: &[Tensor], w: &Tensor| {
        let s = inference_mode(|| (&x[0] * w).sin());
        Ok(vec![&s + w, s])
    };
    let program = export(|x| model(x, &w), &[Tensor::new(&[1.0f64])], &[named("w", &w)]).unwrap();
    let text = print(&program, Form::Short);
    assert!(text.contains("hop.wrap_with_set_grad_enabled(False") && !text.contains("inference"), "{text}");
    let found = program.run(&[Tensor::new(&[0.5f64])]).unwrap();
    let s = 1.0f64.sin();
    assert_eq!(found[0].tensor().unwrap().to_vec::<f64>(), [s + 2.0]);
    assert!(found[0].tensor().unwrap().requires_grad() && !found[1].tensor().unwrap().requires_grad());
}

/// P-45, P-99: writes in place and tensors of the function's own.
#[test]
fn in_place_ops_and_constants() {
    let k = Tensor::new(&[2.0f32]);
    let program = export(
        |x| {
            let y = x[0].exp();
            no_grad(|| y.add_(&k));
            Ok(vec![y.cos()])
        },
        &[Tensor::new(&[1.0f32])],
        &[],
    )
    .unwrap();
    let text = print(&program, Form::Short);
    assert!(text.contains("%c_lifted_tensor_0 = placeholder"), "{text}");
    assert!(text.contains("%add_ = hop.wrap_with_set_grad_enabled"), "{text}");
    let found = program.run(&[Tensor::new(&[0.0f32])]).unwrap();
    assert_eq!(found[0].tensor().unwrap().to_vec::<f32>(), [3.0f32.cos()]);
}

/// R4: decomposition takes layers apart and keeps regions.
#[test]
fn decompositions_keep_gradients() {
    let w = Tensor::new(&[0.5f64, 0.25, 1.0, -1.0]).reshape([2, 2]).detach().requires_grad_();
    let layer = |x: &[Tensor], w: &Tensor| {
        let h = firebrand_core::ops::linear(&x[0], w, None)?;
        let s = no_grad(|| h.sin());
        Ok(vec![&h * &s])
    };
    let example = Tensor::new(&[1.0f64, 2.0]).reshape([1, 2]);
    let program = export(|x| layer(x, &w), std::slice::from_ref(&example), &[named("w", &w)]).unwrap();
    assert!(print(&program, Form::Short).contains("aten.linear.default"));
    let (core, _) = run_decompositions(&program, &Context::default()).unwrap();
    let text = print(&core, Form::Short);
    assert!(!text.contains("aten.linear.default") && text.contains("wrap_with_set_grad_enabled"), "{text}");
    assert_eq!(core.dialect, Dialect::Aten);
    let gradient = |program: &ExportedProgram| {
        let inputs = [(&w).into(), (&example).into()];
        let mut runner = firebrand_graph::interpret::Eager::default();
        let out = firebrand_graph::interpret::run_module(&mut runner, &program.module, &inputs).unwrap();
        let y = out.items().unwrap()[0].tensor().unwrap().sum();
        grad(&y, &w, &GradOptions::default()).unwrap()[0].as_ref().unwrap().to_vec::<f64>()
    };
    assert_eq!(gradient(&core), gradient(&program));
}

/// An op with a list among several results: captured, written, read and run; an element that nobody uses is not missed.
#[test]
fn a_list_among_several_results() {
    let f = |x: &[Tensor]| {
        let bins = Value::Ints([2i64, 3].into_iter().map(Into::into).collect());
        let mut out = dispatch::call_by_name("aten::histogramdd", &[x[0].clone().into(), bins])?.into_iter();
        match (out.next(), out.next()) {
            (Some(Value::Tensor(counts)), Some(Value::Tensors(edges))) => Ok(vec![counts, edges[1].clone()]),
            other => panic!("expected a tensor and a list, found {other:?}"),
        }
    };
    let x = Tensor::from_slice(&[0.0f64, 0.0, 1.0, 3.0, 0.75, 1.5], [3, 2]);
    let program = export(f, std::slice::from_ref(&x), &[]).unwrap();
    let again = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    for (name, program) in [("captured", &program), ("read", &again)] {
        let out = program.module().unwrap().run(std::slice::from_ref(&x)).unwrap();
        let out: Vec<Vec<f64>> = out.iter().map(|v| v.tensor().unwrap().to_vec()).collect();
        assert_eq!(out, [vec![1.0, 0.0, 0.0, 0.0, 1.0, 1.0], vec![0.0, 1.0, 2.0, 3.0]], "{name}");
    }
}
