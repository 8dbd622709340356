//! Random programs of views, writes and grad-mode changes: the pure program gives the same bits and gradients.

use firebrand_core::autograd::{GradOptions, grad, is_grad_enabled, set_grad_enabled};
use firebrand_core::{Result, Tensor};
use firebrand_graph::interpret::{Eager, Value, run_module};
use firebrand_graph::passes::{Context, functionalize};
use firebrand_graph::text::{Form, print};
use firebrand_graph::{export, verify};
use proptest::prelude::*;

/// One step; numbers choose operands among the values so far.
#[derive(Clone, Debug)]
enum Step {
    Unary(u8, usize),
    Binary(u8, usize, usize),
    View(u8, usize),
    Write(u8, usize, usize),
    Mode(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..4, any::<usize>()).prop_map(|(f, a)| Step::Unary(f, a)),
        3 => (0u8..3, any::<usize>(), any::<usize>()).prop_map(|(f, a, b)| Step::Binary(f, a, b)),
        5 => (0u8..11, any::<usize>()).prop_map(|(f, a)| Step::View(f, a)),
        5 => (0u8..10, any::<usize>(), any::<usize>()).prop_map(|(f, a, b)| Step::Write(f, a, b)),
        1 => any::<bool>().prop_map(Step::Mode),
    ];
    prop::collection::vec(step, 1..16)
}

/// The function the steps mean. Steps that do not fit are left out; which those are depends on shapes only.
fn interpret(steps: &[Step], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut values = vec![&inputs[0] * 1.0, &inputs[1] * 1.0, inputs[2].clone()];
    let _frame = set_grad_enabled(is_grad_enabled()).scoped();
    for step in steps {
        let at = |i: &usize| values[i % values.len()].clone();
        match step {
            Step::Unary(f, a) => {
                let a = at(a);
                values.push(match f {
                    0 => a.try_sin()?,
                    1 => a.try_tanh()?,
                    2 => a.try_neg()?,
                    _ => a.try_mul_scalar(0.5)?,
                });
            }
            Step::Binary(f, a, b) => {
                let (a, b) = (at(a), at(b));
                if a.shape() == b.shape() {
                    values.push(match f {
                        0 => a.try_add(&b)?,
                        1 => a.try_mul(&b)?,
                        _ => a.try_sub(&b)?,
                    });
                }
            }
            Step::View(f, a) => {
                let a = at(a);
                let last = a.ndim() as i64 - 1;
                let wide = a.ndim() > 0 && a.shape()[0] > 1;
                match f {
                    0 if wide => values.push(a.try_select(0, 1)?),
                    1 if wide => values.push(a.try_slice(0, Some(1i64.into()), None, 1)?),
                    2 if a.ndim() == 2 => values.push(a.try_t()?),
                    3 => values.push(a.try_reshape([-1])?),
                    4 => values.push(a.try_unsqueeze(0)?),
                    5 if a.ndim() == 2 => values.push(a.try_diagonal(0, 0, 1)?),
                    6 => values.push(a.try_detach()?),
                    7 if wide => values.extend(a.try_split(1, 0)?.into_iter().take(2)),
                    8 if wide => values.extend(a.try_unbind(last)?.into_iter().take(2)),
                    9 if a.ndim() == 2 => values.push(a.try_permute([1, 0])?),
                    10 if a.ndim() > 0 => values.push(a.try_squeeze_dim(0)?),
                    _ => {}
                }
            }
            Step::Write(f, a, b) => {
                let (a, b) = (at(a), at(b));
                let fits = a.shape() == b.shape();
                match f {
                    0 => drop(a.try_add_scalar_(1.5, 1.0)?),
                    1 => drop(a.try_mul_scalar_(0.75)?),
                    2 if fits => drop(a.try_add_(&b)?),
                    3 if fits => drop(a.try_mul_(&b)?),
                    4 if fits => drop(a.try_copy_(&b, false)?),
                    5 => drop(a.try_zero_()?),
                    6 => drop(a.try_fill_(0.25)?),
                    7 => drop(a.try_sin_()?),
                    8 => drop(a.try_relu_()?),
                    9 if fits => drop(a.try_lerp_scalar_(&b, 0.5)?),
                    _ => {}
                }
            }
            Step::Mode(on) => drop(set_grad_enabled(*on)),
        }
    }
    values.drain(..3);
    if values.is_empty() { Ok(vec![inputs[2].clone()]) } else { Ok(values) }
}

fn inputs() -> Vec<Tensor> {
    let tensor = |start: f64| {
        Tensor::arange(0.0, 6.0, 1.0, firebrand_core::DType::F64).reshape([2, 3]).add_scalar(start, 1.0).sin()
    };
    vec![tensor(0.3).requires_grad_(), tensor(1.7).requires_grad_(), tensor(2.9)]
}

type Bits = Vec<Vec<u64>>;

/// Bits of the results and of the written input, and gradients of their sum.
fn observe(outs: &[Tensor], inputs: &[Tensor]) -> Option<(Bits, Vec<Option<Vec<f64>>>)> {
    let bits = |t: &Tensor| t.to_vec::<f64>().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let mut seen: Bits = outs.iter().map(bits).collect();
    seen.push(bits(&inputs[2]));
    let mut total: Option<Tensor> = None;
    for t in outs.iter().filter(|t| t.requires_grad()) {
        let t = t.try_sum().ok()?;
        total = Some(total.map_or(t.clone(), |s| &s + &t));
    }
    let options = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
    let grads = match total {
        Some(total) => grad(&total, [&inputs[0], &inputs[1]].map(Clone::clone), &options).ok()?,
        None => vec![None, None],
    };
    Some((seen, grads.iter().map(|g| g.as_ref().map(Tensor::to_vec)).collect()))
}

fn close(a: &[Option<Vec<f64>>], b: &[Option<Vec<f64>>]) -> bool {
    a.iter().zip(b).all(|pair| match pair {
        (Some(a), Some(b)) => a.iter().zip(b).all(|(x, y)| (x - y).abs() <= 1e-9 * (1.0 + y.abs()) || x == y),
        // An alias cut out of a value that has other parts gets zeros where a view of nothing gets none.
        (Some(a), None) | (None, Some(a)) => a.iter().all(|x| *x == 0.0),
        (None, None) => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pure_programs_mean_the_same(steps in steps()) {
        let given = inputs();
        // Programs that do not run as they are (a view written that may not be) are no programs.
        let Ok(plain) = interpret(&steps, &given) else { return Ok(()) };
        let Some(expected) = observe(&plain, &given) else { return Ok(()) };
        let program = export(|x| interpret(&steps, x), &inputs(), &[]).unwrap();
        let pure = match functionalize(&program, &Context::default()) {
            Ok((pure, _)) => pure,
            // Two histories over one memory are refused.
            Err(e) if e.to_string().contains("detached alias gets its own history") => return Ok(()),
            Err(e) => panic!("{e}\n{}", print(&program, Form::Short)),
        };
        verify::verify_program(&pure).unwrap();
        let (again, report) = functionalize(&pure, &Context::default()).unwrap();
        prop_assert!(!report.changed, "not idempotent:\n{}", print(&again, Form::Short));
        let given = inputs();
        let values: Vec<Value> = given.iter().map(Value::from).collect();
        let ran = run_module(&mut Eager::default(), &pure.module, &values).unwrap();
        let mut outs: Vec<Tensor> = ran.items().unwrap().iter().map(|v| v.tensor().unwrap().clone()).collect();
        // The new value of the input comes first, if it has one.
        let written = pure.signature().unwrap().outputs.iter().filter(|o| o.kind.target().is_some()).count();
        let written: Vec<Tensor> = outs.drain(..written).collect();
        let last = written.last().unwrap_or(&given[2]).clone();
        let found = observe(&outs, &[given[0].clone(), given[1].clone(), last]).expect("a pure program has gradients");
        prop_assert_eq!(&found.0, &expected.0, "{}\n{}", print(&program, Form::Short), print(&pure, Form::Short));
        prop_assert!(close(&found.1, &expected.1), "{:?}, expected {:?}\n{}\n{}", found.1, expected.1, print(&program, Form::Short), print(&pure, Form::Short));
    }
}
