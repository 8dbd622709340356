//! Random programs: every pass keeps what it promises to keep.
//!
//! A program is a list of choices; ops that do not fit are left out when it is built, so every list is a program.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod magnitude;

use firebrand_core::Tensor;
use firebrand_core::autograd::{GradOptions, grad};
use firebrand_graph::interpret::{Eager, Value, run_module};
use firebrand_graph::ir::*;
use firebrand_graph::passes::*;
use firebrand_graph::text::{Form, parse, print};
use firebrand_graph::verify::verify_module;
use firebrand_graph::{ExportedProgram, GraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SpecArg};
use magnitude::magnitudes;
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

/// What a run gives, bit by bit: results, and gradients of the sum of all of them.
#[derive(Debug, PartialEq)]
struct Outcome {
    values: Vec<Vec<u64>>,
    gradients: Vec<Option<Vec<u64>>>,
}

/// Whether a run is as it should be; the last argument is how large the terms of its gradients are.
type Comparison = fn(&Outcome, &Outcome, &[Vec<f64>; 2]) -> bool;

const INPUTS: [[f64; 3]; 2] = [[0.3, -1.2, 2.0], [1.1, 0.4, -0.7]];

fn run(program: &ExportedProgram) -> Outcome {
    let bits = |t: &Tensor| t.to_vec::<f64>().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let inputs = INPUTS.map(|v| Tensor::new(&v).requires_grad_());
    let out = run_module(&mut Eager::default(), &program.module, &[(&inputs[0]).into(), (&inputs[1]).into()]).unwrap();
    let tensors: Vec<Tensor> = out.items().unwrap().iter().map(|v: &Value| v.tensor().unwrap().clone()).collect();
    let wanted = tensors.iter().filter(|t| t.requires_grad()).map(Tensor::sum);
    let gradients = match wanted.reduce(|sum, t| &sum + &t) {
        Some(total) => {
            let options = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
            grad(&total, inputs, &options).unwrap().iter().map(|g| g.as_ref().map(bits)).collect()
        }
        None => vec![None, None],
    };
    Outcome { values: tensors.iter().map(bits).collect(), gradients }
}

/// Whether gradients agree up to the order of their sums: a node that serves two users adds their gradients before it
/// passes them on, two equal nodes after.
///
/// `size` bounds what the order can change: the sum of the magnitudes of all terms. Where that overflows, the order
/// decides between numbers, infinities and NaN, and nothing can be said; everywhere else a bit more than rounding shows.
fn same_but_for_order(a: &Outcome, b: &Outcome, size: &[Vec<f64>; 2]) -> bool {
    const ROUNDINGS: f64 = 256.0;
    let element = |x: u64, y: u64, size: f64| {
        let (apart, bound) = ((f64::from_bits(x) - f64::from_bits(y)).abs(), ROUNDINGS * f64::EPSILON * size);
        x == y || !size.is_finite() || apart <= bound
    };
    a.values == b.values
        && a.gradients.iter().zip(&b.gradients).zip(size).all(|((a, b), size)| match (a, b) {
            (Some(a), Some(b)) => a.iter().zip(b).zip(size).all(|((&x, &y), &size)| element(x, y, size)),
            (a, b) => a.is_none() && b.is_none(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn passes_keep_values_and_gradients(steps in steps(), returned in prop::collection::vec(any::<usize>(), 1..4)) {
        let before = program(&steps, &returned);
        verify_module(&before.module).unwrap();
        let terms = magnitudes(&steps, &returned);
        let context = Context::default();
        let exact: Comparison = |a, b, _| a == b;
        let keeping: &[(PassFn, Comparison)] = &[
            (replace_set_grad_with_hop_pass, exact),
            (replace_autocast_with_hop_pass, exact),
            (eliminate_dead_code, exact),
            (eliminate_common_subexpressions, same_but_for_order),
            (remove_runtime_assertions, exact),
            (placeholder_naming_pass, exact),
            (constant_fold, exact),
        ];
        let mut program = before.clone();
        for (pass, same) in keeping {
            for input in [&before, &program] {
                let expected = run(input);
                let (after, _) = pass(input, &context).unwrap();
                verify_module(&after.module).unwrap();
                let found = run(&after);
                prop_assert!(same(&found, &expected, &terms), "{found:x?}, expected {expected:x?}");
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

    /// The same calls in the same order under the same modes, with the same names but for those of `getitem` nodes,
    /// which taking the results of parts apart uses up. Markers are repeated in parts: the mode tells, not their number.
    #[test]
    fn splitting_and_inlining_is_nothing(steps in steps(), returned in prop::collection::vec(any::<usize>(), 1..4), every in 1usize..5) {
        let before = program(&steps, &returned);
        let mut count = 0;
        let split = sequential_split(&before.module, |_, _| { count += 1; count % every == 0 }).unwrap();
        verify_module(&split.module).unwrap();
        let mut whole = split.module;
        for call in split.calls {
            node_inline_(&mut whole, call).unwrap();
        }
        verify_module(&whole).unwrap();
        prop_assert_eq!(calls(&whole.graph), calls(&before.module.graph));
        let whole = ExportedProgram { module: whole.into(), signature: None, ..before.clone() };
        prop_assert_eq!(run(&whole), run(&before));
    }
}

/// Every node but the markers: the mode it runs in, its name unless it takes a tuple apart, what it is, and its arguments
/// with nodes by position.
fn calls(graph: &Graph) -> Vec<(bool, Option<Name>, Kind, Vec<Argument>)> {
    let (mut on, mut list) = (true, Vec::new());
    let mut position = vec![0i64; graph.capacity()];
    for n in graph.nodes() {
        let node = &graph[n];
        if node.target() == Some(&Function::SetGradEnabled.into()) {
            on = node.args() == [true.into()];
            continue;
        }
        position[n.index()] = list.len() as i64;
        let name = (node.target() != Some(&Function::GetItem.into())).then(|| node.name().clone());
        let place = |n: NodeId| Argument::list([position[n.index()].into()]);
        let arguments = node.args().iter().map(|a| a.map_nodes(&mut { place })).collect();
        list.push((on, name, node.kind().clone(), arguments));
    }
    list
}
