//! Random programs: every pass keeps what it promises to keep.
//!
//! A program is a list of choices; ops that do not fit are left out when it is built, so every list is a program.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::Tensor;
use firebrand_core::autograd::{GradOptions, grad};
use firebrand_graph::interpret::{Eager, Value, run_module};
use firebrand_graph::ir::*;
use firebrand_graph::passes::*;
use firebrand_graph::text::{Form, parse, print};
use firebrand_graph::verify::verify_module;
use firebrand_graph::{ExportedProgram, GraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SpecArg};
use proptest::prelude::*;

/// One step of a random program; numbers choose operands among the values so far.
#[derive(Clone, Debug)]
enum Step {
    Unary(u8, usize),
    Binary(u8, usize, usize),
    Toggle(bool),
    /// Takes a pair apart.
    Max(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..4, any::<usize>()).prop_map(|(f, a)| Step::Unary(f, a)),
        4 => (0u8..3, any::<usize>(), any::<usize>()).prop_map(|(f, a, b)| Step::Binary(f, a, b)),
        3 => any::<bool>().prop_map(Step::Toggle),
        1 => any::<usize>().prop_map(Step::Max),
    ];
    prop::collection::vec(step, 1..24)
}

fn program(steps: &[Step], returned: &[usize]) -> ExportedProgram {
    let mut g = Graph::new();
    let mut values = vec![g.placeholder("x"), g.placeholder("y")];
    for step in steps {
        let at = |i: &usize| values[i % values.len()];
        match step {
            Step::Unary(f, a) => {
                let name = ["sin.default", "cos.default", "tanh.default", "neg.default"][*f as usize];
                let new = g.call_function(Target::aten(name), [at(a).into()]);
                values.push(new);
            }
            Step::Binary(f, a, b) => {
                let name = ["add.Tensor", "mul.Tensor", "sub.Tensor"][*f as usize];
                let new = g.call_function(Target::aten(name), [at(a).into(), at(b).into()]);
                values.push(new);
            }
            Step::Toggle(on) => {
                g.call_function(Function::SetGradEnabled, [(*on).into()]);
            }
            Step::Max(a) => {
                let pair = g.call_function(Target::aten("aminmax.default"), [at(a).into()]);
                let new = g.call_function(Function::GetItem, [pair.into(), 1i64.into()]);
                values.push(new);
            }
        }
    }
    let results: Vec<NodeId> = returned.iter().map(|i| values[i % values.len()]).collect();
    g.output(Argument::tuple(results.iter().map(|&n| n.into())));
    let tensor = |n: &NodeId| SpecArg::Tensor(g[*n].name().clone());
    let signature = GraphSignature {
        inputs: values[..2].iter().map(|n| InputSpec { kind: InputKind::UserInput, arg: tensor(n) }).collect(),
        outputs: results.iter().map(|n| OutputSpec { kind: OutputKind::UserOutput, arg: tensor(n) }).collect(),
    };
    ExportedProgram::new(GraphModule::new(g), Some(signature))
}

/// Results bit by bit, and gradients of their sum.
fn run(program: &ExportedProgram) -> (Vec<Vec<u64>>, Vec<Option<Vec<f64>>>) {
    let bits = |t: &Tensor| t.to_vec::<f64>().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let x = Tensor::new(&[0.3f64, -1.2, 2.0]).requires_grad_();
    let y = Tensor::new(&[1.1f64, 0.4, -0.7]).requires_grad_();
    let out = run_module(&mut Eager::default(), &program.module, &[(&x).into(), (&y).into()]).unwrap();
    let tensors: Vec<Tensor> = out.items().unwrap().iter().map(|v: &Value| v.tensor().unwrap().clone()).collect();
    let wanted: Vec<Tensor> = tensors.iter().filter(|t| t.requires_grad()).map(Tensor::sum).collect();
    let mut total: Option<Tensor> = None;
    for t in wanted {
        total = Some(total.map_or(t.clone(), |s| &s + &t));
    }
    let grads = match total {
        Some(total) => {
            let options = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
            let grads = grad(&total, [&x, &y].map(Clone::clone), &options).unwrap();
            grads.iter().map(|g| g.as_ref().map(Tensor::to_vec)).collect()
        }
        None => vec![None, None],
    };
    (tensors.iter().map(bits).collect(), grads)
}

/// Whether gradients agree: a node that serves two users adds their gradients in another order than two equal nodes do.
fn close(a: &[Option<Vec<f64>>], b: &[Option<Vec<f64>>]) -> bool {
    let largest = b.iter().flatten().flatten().fold(1.0, |m: f64, x| m.max(x.abs()));
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Some(a), Some(b)) => a.iter().zip(b).all(|(x, y)| {
                x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-9 * largest
            }),
            (a, b) => a.is_none() && b.is_none(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn passes_keep_values_and_gradients(steps in steps(), returned in prop::collection::vec(any::<usize>(), 1..4)) {
        let before = program(&steps, &returned);
        verify_module(&before.module).unwrap();
        let expected = run(&before);
        let context = Context::default();
        let keeping: &[PassFn] = &[
            replace_set_grad_with_hop_pass, replace_autocast_with_hop_pass, eliminate_dead_code,
            eliminate_common_subexpressions, remove_runtime_assertions, placeholder_naming_pass, constant_fold,
        ];
        let mut program = before.clone();
        for pass in keeping {
            for input in [&before, &program] {
                let (after, _) = pass(input, &context).unwrap();
                verify_module(&after.module).unwrap();
                let (values, gradients) = run(&after);
                prop_assert_eq!(&values, &expected.0);
                prop_assert!(close(&gradients, &expected.1), "{gradients:?}, expected {:?}", expected.1);
                let (again, report) = pass(&after, &context).unwrap();
                prop_assert!(!report.changed, "not idempotent:\n{}", print(&again, Form::Short));
            }
            program = pass(&program, &context).unwrap().0;
        }
    }

    #[test]
    fn text_reads_back(steps in steps(), returned in prop::collection::vec(any::<usize>(), 1..4), on in any::<bool>()) {
        let before = program(&steps, &returned);
        let context = Context { ambient_grad: on, compat: on };
        let (after, _) = replace_set_grad_with_hop_pass(&before, &context).unwrap();
        for program in [&before, &after] {
            for form in [Form::Short, Form::Long] {
                let text = print(program, form);
                prop_assert_eq!(print(&parse(&text).unwrap(), form), text);
            }
        }
    }

    #[test]
    fn splitting_and_inlining_is_nothing(steps in steps(), returned in prop::collection::vec(any::<usize>(), 1..4), every in 1usize..5) {
        let mut steps = steps;
        // Taking results of parts apart uses names such as `getitem` up, so programs with such names come back renamed.
        steps.retain(|s| !matches!(s, Step::Toggle(_) | Step::Max(_)));
        let before = program(&steps, &returned);
        let mut count = 0;
        let split = sequential_split(&before.module, |_, _| { count += 1; count % every == 0 }).unwrap();
        verify_module(&split.module).unwrap();
        let mut whole = split.module;
        for call in split.calls {
            node_inline_(&mut whole, call).unwrap();
        }
        let whole = ExportedProgram { module: whole.into(), ..before.clone() };
        prop_assert_eq!(print(&whole, Form::Short), print(&before, Form::Short));
    }
}
