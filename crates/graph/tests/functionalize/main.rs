//! The pass that makes writes pure: what it gives for known programs, and that random ones mean the same.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod random;

use expect_test::expect;
use firebrand_core::autograd::{GradOptions, grad, no_grad};
use firebrand_core::{Result, Tensor};
use firebrand_graph::interpret::Value;
use firebrand_graph::passes::{Context, functionalize};
use firebrand_graph::text::{Form, print};
use firebrand_graph::{Dialect, ExportedProgram, NamedTensor, export, verify};

type F = fn(&[Tensor]) -> Result<Vec<Tensor>>;

fn pure(f: F, inputs: &[Tensor]) -> ExportedProgram {
    let (program, _) = functionalize(&export(f, inputs, &[]).unwrap(), &Context::default()).unwrap();
    verify::verify_program(&program).unwrap();
    assert_eq!(program.dialect, Dialect::Aten);
    program
}

fn numbers(values: &[Value]) -> Vec<Vec<f32>> {
    values.iter().map(|v| v.tensor().unwrap().to_vec()).collect()
}

/// Runs the closure and its pure program on copies of the inputs; both must give the same and write the same.
fn same(f: F, inputs: &[Tensor]) {
    let program = pure(f, inputs);
    let copy = |t: &Tensor| t.detach().clone_tensor();
    let (a, b): (Vec<Tensor>, Vec<Tensor>) = (inputs.iter().map(copy).collect(), inputs.iter().map(copy).collect());
    let plain: Vec<Value> = f(&a).unwrap().iter().map(Value::from).collect();
    let ran = program.module().unwrap().run(&b).unwrap();
    assert_eq!(numbers(&plain), numbers(&ran));
    let list = |t: &[Tensor]| t.iter().map(Tensor::to_vec::<f32>).collect::<Vec<_>>();
    assert_eq!(list(&a), list(&b));
}

#[test]
fn writes_through_views_reach_every_alias() {
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).reshape([2, 3]);
    let programs: &[F] = &[
        |x| {
            let row = x[0].select(0, 1);
            let flat = x[0].view([6]);
            row.try_add_scalar_(5.0, 1.0)?;
            Ok(vec![&flat * 2.0, row])
        },
        |x| {
            let t = x[0].t();
            t.select(0, 0).try_mul_(&Tensor::new(&[10.0f32, 20.0]))?;
            let parts = x[0].try_split(1, 1)?;
            parts[2].try_zero_()?;
            Ok(vec![t, x[0].sum()])
        },
        |x| {
            let y = x[0].sin();
            y.diagonal(0, 0, 1).try_fill_(1.0)?;
            y.slice(1, Some(1i64.into()), None, 1).try_copy_(&Tensor::new(&[7.0f32, 8.0]), false)?;
            Ok(vec![y])
        },
        |x| {
            let y = x[0].cos();
            y.try_transpose_(0, 1)?;
            y.select(0, 2).try_add_scalar_(1.0, 1.0)?;
            y.try_unsqueeze_(0)?;
            Ok(vec![y])
        },
    ];
    programs.iter().for_each(|f| same(*f, std::slice::from_ref(&x)));
}

#[test]
fn new_values_of_inputs_come_first() {
    let x = Tensor::new(&[1.0f32, 2.0]);
    let program = pure(
        |x| {
            x[0].try_add_scalar_(1.0, 1.0)?;
            Ok(vec![&x[0] * 2.0])
        },
        &[x],
    );
    expect![[r#"
        graph {
          %arg_0 = placeholder
          %add = aten.add.Scalar(%arg_0, 1.0)
          %mul = aten.mul.Tensor(%add, 2.0)
          return (%add, %mul)
        }
        # inputs
        arg_0: USER_INPUT

        # outputs
        add: USER_INPUT_MUTATION target='arg_0'
        mul: USER_OUTPUT
    "#]]
    .assert_eq(&print(&program, Form::Short));
}

#[test]
fn running_statistics_are_results() {
    let names = ["mean", "var"];
    let state = [Tensor::new(&[0.0f32, 0.0, 0.0]), Tensor::new(&[1.0f32, 1.0, 1.0])];
    let named: Vec<NamedTensor> = names
        .iter()
        .zip(&state)
        .map(|(n, t)| NamedTensor { name: n.to_string(), tensor: t.clone(), is_parameter: false })
        .collect();
    let (mean, var) = (state[0].clone(), state[1].clone());
    let x = Tensor::arange(0.0, 12.0, 1.0, firebrand_core::DType::F32).reshape([4, 3]).requires_grad_();
    let norm = move |x: &[Tensor]| {
        let y = firebrand_core::ops::batch_norm(&x[0], None, None, Some(&mean), Some(&var), true, 0.1, 1e-5, false)?;
        Ok(vec![y])
    };
    let program = export(&norm, std::slice::from_ref(&x), &named).unwrap();
    let (after, _) = functionalize(&program, &Context::default()).unwrap();
    verify::verify_program(&after).unwrap();
    let (a, b) = (program.module().unwrap(), after.module().unwrap());
    for _ in 0..3 {
        let outs = [&a, &b].map(|m| m.run(std::slice::from_ref(&x)).unwrap()[0].tensor().unwrap().clone());
        assert_eq!(outs[0].to_vec::<f32>(), outs[1].to_vec::<f32>());
        let seed = Tensor::arange(0.0, 12.0, 1.0, firebrand_core::DType::F32).reshape([4, 3]).sin();
        let options = GradOptions { grad_outputs: vec![Some(seed)], ..GradOptions::default() };
        let grads = outs.map(|o| grad(&o, &x, &options).unwrap()[0].clone().unwrap());
        assert_eq!(grads[0].to_vec::<f32>(), grads[1].to_vec::<f32>());
    }
    for name in names {
        let [p, q] = [&a, &b].map(|m| m.program().state(name).unwrap().to_vec::<f32>());
        assert_eq!(p, q, "{name}");
    }
}

/// A write that is not recorded changes numbers, and no history: the gradient of what follows is that of the old value.
#[test]
fn unrecorded_writes_keep_history() {
    let x = Tensor::new(&[1.0f32, 2.0]).requires_grad_();
    let programs: &[F] = &[
        |x| {
            let y = &x[0] * 3.0;
            no_grad(|| y.try_add_scalar_(1.0, 1.0).map(drop))?;
            Ok(vec![&y * &y])
        },
        |x| {
            let y = &x[0] * 3.0;
            y.detach().select(0, 0).try_add_scalar_(1.0, 1.0)?;
            Ok(vec![&y * &y])
        },
    ];
    for f in programs {
        let program = pure(*f, std::slice::from_ref(&x));
        let outs = [
            f(std::slice::from_ref(&x)).unwrap()[0].clone(),
            program.run(std::slice::from_ref(&x)).unwrap()[0].tensor().unwrap().clone(),
        ];
        assert_eq!(outs[0].to_vec::<f32>(), outs[1].to_vec::<f32>());
        let grads =
            outs.map(|o| grad(&o.sum(), &x, &GradOptions::default()).unwrap()[0].clone().unwrap().to_vec::<f32>());
        assert_eq!(grads[0], grads[1]);
    }
}

#[test]
fn refusals_name_the_node() {
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0]).reshape([2, 2]);
    let refused = |f: F| {
        let program = export(f, std::slice::from_ref(&x), &[]).unwrap();
        functionalize(&program, &Context::default()).unwrap_err().to_string()
    };
    let message = refused(|x| {
        let y = x[0].sin();
        y.try_exponential_(1.0)?;
        Ok(vec![y])
    });
    assert!(message.contains("%exponential_") && message.contains("no functional form"), "{message}");
    let message = refused(|x| {
        x[0].try_t_()?;
        Ok(vec![x[0].sin()])
    });
    assert!(message.contains("changes its shape in place"), "{message}");
}

/// Writing ops without a functional form are refused, each by its name: no write is dropped.
#[test]
fn ops_without_a_pure_form_are_refused_by_name() {
    use firebrand_core::dispatch::{Value as Boxed, call_by_name};
    fn written(x: &[Tensor], name: &str, rest: &[Boxed]) -> Result<Vec<Tensor>> {
        let y = x[0].try_sin()?;
        call_by_name(name, &[&[Boxed::Tensor(y.clone())], rest].concat())?;
        Ok(vec![y])
    }
    fn index() -> Tensor {
        Tensor::new(&[0i64, 1])
    }
    fn sizes() -> Boxed {
        let sizes: [firebrand_core::SymInt; 2] = [3.into(), 2.into()];
        Boxed::from(&sizes[..])
    }
    let cases: [(&str, F); 9] = [
        ("resize_", |x| written(x, "aten::resize_", &[sizes()])),
        ("resize_as_", |x| written(x, "aten::resize_as_", &[Boxed::Tensor(index())])),
        ("set_", |x| written(x, "aten::set_.source_Tensor", &[Boxed::Tensor(x[0].cos())])),
        ("polygamma_", |x| written(x, "aten::polygamma_", &[Boxed::from(1i64)])),
        ("fill_diagonal_", |x| written(x, "aten::fill_diagonal_", &[Boxed::from(2.0)])),
        ("log_normal_", |x| written(x, "aten::log_normal_", &[])),
        ("cauchy_", |x| written(x, "aten::cauchy_", &[])),
        ("geometric_", |x| written(x, "aten::geometric_", &[Boxed::from(0.5)])),
        ("embedding_renorm_", |x| {
            written(x, "aten::embedding_renorm_", &[Boxed::Tensor(index()), Boxed::from(1.0), Boxed::from(2.0)])
        }),
    ];
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0]).reshape([2, 2]);
    for (name, f) in cases {
        let made = export(f, std::slice::from_ref(&x), &[]).and_then(|p| functionalize(&p, &Context::default()));
        let message = made.map(drop).expect_err(name).to_string();
        assert!(message.contains(name), "{name}: {message}");
    }
}
