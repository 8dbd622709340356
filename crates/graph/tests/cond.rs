//! cond: eager, with gradients, exported, and at sizes that vary.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{GradOptions, grad, no_grad};
use firebrand_core::state::ThreadState;
use firebrand_core::{Result, Tensor};
use firebrand_graph::passes::{Context, run_decompositions};
use firebrand_graph::text::{Form, print};
use firebrand_graph::{Dim, Export, ExportedProgram, NamedTensor, cond, export, verify};

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec()
}

/// Two sides with tensors of their own, in different order; one does not use its second operand.
fn model(x: &[Tensor], w: &Tensor, b: &Tensor) -> Result<Vec<Tensor>> {
    let h = &x[0] * 2.0;
    cond(
        &h.sum().gt_scalar(0.0),
        |x| Ok(vec![&(&x[0] * w) + b, x[0].sin()]),
        |x| Ok(vec![&(b - &x[1]) * w, no_grad(|| x[1].cos())]),
        &[&h, &x[1]],
    )
}

fn state() -> (Tensor, Tensor) {
    (Tensor::new(&[0.5f64, -1.5]).requires_grad_(), Tensor::new(&[3.0f64, 1.0]).requires_grad_())
}

fn inputs(sign: f64) -> [Tensor; 2] {
    [Tensor::new(&[sign, 0.25 * sign]).requires_grad_(), Tensor::new(&[2.0f64, -1.0]).requires_grad_()]
}

/// Gradients of the first result for all leaves; none where there is none.
fn gradients(y: &Tensor, leaves: &[&Tensor]) -> Vec<Option<Vec<f64>>> {
    let options = GradOptions { allow_unused: Some(true), retain_graph: Some(true), ..GradOptions::default() };
    leaves.iter().map(|t| grad(&y.sum(), *t, &options).unwrap()[0].as_ref().map(values)).collect()
}

/// Gradients come from the side that ran; an operand that only the other side uses gets zeros.
#[test]
fn runs_one_side() {
    let (w, b) = state();
    let x = inputs(1.0);
    let y = model(&x, &w, &b).unwrap();
    assert_eq!(values(&y[0]), [2.0 * 0.5 + 3.0, 0.5 * -1.5 + 1.0]);
    assert_eq!(
        gradients(&y[0], &[&x[0], &x[1], &w, &b]),
        [Some(vec![1.0, -3.0]), Some(vec![0.0, 0.0]), Some(vec![2.0, 0.5]), Some(vec![1.0, 1.0])]
    );
    let x = inputs(-1.0);
    let y = model(&x, &w, &b).unwrap();
    assert_eq!(values(&y[0]), [(3.0 - 2.0) * 0.5, (1.0 + 1.0) * -1.5]);
    assert_eq!(gradients(&y[0], &[&x[0], &x[1]]), [Some(vec![0.0, 0.0]), Some(vec![-0.5, 1.5])]);
}

/// P-109: what the sides use from outside becomes operands of both, in one order. The program takes the side that its
/// inputs say, with the gradients of a plain run, also as an archive.
#[test]
fn programs_keep_both_sides() {
    let (w, b) = state();
    let named = |name: &str, t: &Tensor| NamedTensor { name: name.into(), tensor: t.clone(), is_parameter: true };
    let example = inputs(1.0);
    let own = [named("w", &w), named("b", &b)];
    let program = Export::new(&example).names(["x", "y"]).state(&own).run(|x| model(x, &w, &b)).unwrap();
    verify::verify_program(&program).unwrap();
    expect_test::expect![[r#"
        graph {
          %p_w = placeholder
          %p_b = placeholder
          %x = placeholder
          %y = placeholder
          %mul = aten.mul.Tensor(%x, 2.0)
          %sum_1 = aten.sum.default(%mul)
          %gt = aten.gt.Scalar(%sum_1, 0.0)
          %true_graph_0 = get_attr true_graph_0
          %false_graph_0 = get_attr false_graph_0
          %cond = hop.cond(%gt, %true_graph_0, %false_graph_0, (%mul, %y, %p_w, %p_b))
          %getitem = operator.getitem(%cond, 0)
          %getitem_1 = operator.getitem(%cond, 1)
          return (%getitem, %getitem_1)
        }
          true_graph_0 {
            %mul = placeholder
            %y = placeholder
            %p_w = placeholder
            %p_b = placeholder
            %mul_1 = aten.mul.Tensor(%mul, %p_w)
            %add = aten.add.Tensor(%mul_1, %p_b)
            %sin = aten.sin.default(%mul)
            return (%add, %sin)
          }
          false_graph_0 {
            %mul = placeholder
            %y = placeholder
            %p_w = placeholder
            %p_b = placeholder
            %sub = aten.sub.Tensor(%p_b, %y)
            %mul_1 = aten.mul.Tensor(%sub, %p_w)
            %submod_3 = get_attr submod_1
            %cos = hop.wrap_with_set_grad_enabled(False, %submod_3, %y)
            %getitem = operator.getitem(%cos, 0)
            return (%mul_1, %getitem)
          }
            submod_1 {
              %y = placeholder
              %cos = aten.cos.default(%y)
              return (%cos,)
            }
        # inputs
        p_w: PARAMETER target='w'
        p_b: PARAMETER target='b'
        x: USER_INPUT
        y: USER_INPUT

        # outputs
        getitem: USER_OUTPUT
        getitem_1: USER_OUTPUT
    "#]]
    .assert_eq(&print(&program, Form::Short));
    let loaded = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    for program in [&program, &loaded] {
        let module = program.module().unwrap();
        let state: Vec<Tensor> =
            firebrand_core::module::Module::parameters(&module).iter().map(|p| p.tensor().clone()).collect();
        for sign in [1.0, -1.0] {
            let (x, z) = (inputs(sign), inputs(sign));
            let found: Vec<Tensor> = module.run(&x).unwrap().iter().map(|v| v.tensor().unwrap().clone()).collect();
            let expected = model(&z, &w, &b).unwrap();
            assert_eq!(found.iter().map(values).collect::<Vec<_>>(), expected.iter().map(values).collect::<Vec<_>>());
            let ours = gradients(&found[0], &[&x[0], &x[1], &state[0], &state[1]]);
            assert_eq!(ours, gradients(&expected[0], &[&z[0], &z[1], &w, &b]));
        }
    }
}

/// A conditional inside another, and sizes that vary in both sides.
#[test]
fn nests_and_varies() {
    let f = |x: &[Tensor]| {
        let small = x[0].abs().max().lt_scalar(10.0);
        let sign = x[0].sum().gt_scalar(0.0);
        cond(
            &small,
            |x| {
                cond(
                    &sign,
                    |x| Ok(vec![x[0].try_reshape([x[0].size(0) * 2])?]),
                    |x| Ok(vec![x[0].flatten(0, 1).neg()]),
                    &[&x[0]],
                )
            },
            |x| Ok(vec![x[0].try_reshape([x[0].shape()[0] * 2])?.tanh()]),
            &[&x[0]],
        )
    };
    let data = |n: usize, scale: f64| {
        Tensor::from_slice(&(0..2 * n).map(|i| scale * (i as f64 + 1.0)).collect::<Vec<_>>(), [n, 2])
    };
    let example = [data(3, 1.0)];
    let program = Export::new(&example).dynamic(0, 0, &Dim::new("n").min(2)).run(f).unwrap();
    let loaded = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    let (core, _) = run_decompositions(&loaded, &Context::default()).unwrap();
    for n in [2, 3, 5] {
        for scale in [0.1, -0.1, 100.0] {
            let x = [data(n, scale)];
            let expected = values(&f(&x).unwrap()[0]);
            for program in [&program, &loaded, &core] {
                assert_eq!(values(program.run(&x).unwrap()[0].tensor().unwrap()), expected, "{n}, {scale}");
            }
        }
    }
}

#[test]
fn refusals_say_what_differs() {
    let x = Tensor::new(&[1.0f64, 2.0]);
    let error = cond(&x, |x| Ok(x.to_vec()), |x| Ok(x.to_vec()), &[&x]).unwrap_err().to_string();
    assert!(error.contains("the predicate has sizes [2]; it must have one element"), "{error}");
    let apart = |x: &[Tensor]| cond(&x[0].sum(), |x| Ok(vec![x[0].sum()]), |x| Ok(x.to_vec()), &[&x[0]]);
    let error = Export::new(&[x]).run(apart).unwrap_err().to_string();
    assert!(error.contains("the branches return (float64[]) and (float64[2]); they must match"), "{error}");
}

/// A conditional on a thread that took over the state of the export is part of the program.
#[test]
fn is_recorded_where_the_work_goes() {
    let f = |x: &[Tensor]| {
        let here = ThreadState::capture();
        let branch = || cond(&x[0].sum().gt_scalar(0.0), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[0].cos()]), &[&x[0]]);
        std::thread::scope(|s| s.spawn(|| here.run(branch)).join().unwrap())
    };
    let program = export(f, &[Tensor::new(&[1.0f64])], &[]).unwrap();
    let run = |v: f64| program.run(&[Tensor::new(&[v])]).unwrap()[0].tensor().unwrap().item::<f64>();
    assert_eq!([run(2.0), run(-2.0)], [2.0f64.sin(), 2.0f64.cos()]);
}
