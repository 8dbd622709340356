//! Random programs of views, writes, hooks, conditionals and grad-mode changes: every joint-graph back end does what a plain run does,
//! and so do compiled backward, with graphs that all programs share, the same program written as tensor methods, and the
//! program exported, saved as an archive and loaded again.
//!
//! A plain run interprets the graph with ordinary recording. Compared are results, written inputs, gradients when only some
//! results are differentiated, the sequence of hook calls with what they saw, and gradients of gradients. One seed is
//! fixed, one is new at every run, and a failure names it; `FIREBRAND_DIFFERENTIAL` says how many programs each of them makes,
//! `FIREBRAND_DIFFERENTIAL_SEED` takes the place of the new one, and `FIREBRAND_DIFFERENTIAL_FROM` is the first program of
//! it that runs. A program that differs is reduced to what matters before it is shown.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod closures;
mod reduce;
mod ways;

use firebrand_compile::backward::{CompiledBackward, Options};
use firebrand_compile::fused::FusedOptions;
use firebrand_compile::hooks::{HookFn, HookSlot};
use firebrand_compile::joint::{Aot, AotOptions, Interpret, aot_eager, aot_eager_decomp, firebrand};
use firebrand_compile::partition::{PartitionOptions, Partitioner};
use firebrand_compile::{Backend, Call, ExampleInput, ExampleValue, Value, backend};
use firebrand_core::autograd::{BackwardOptions, GradOptions, grad};
use firebrand_core::{DType, Tensor};
use firebrand_graph::ExportedProgram;
use firebrand_graph::ir::*;
use firebrand_graph::text::{Form, print};
use std::sync::{Arc, Mutex};
use ways::{Methods, Reloaded};

/// A small generator: the programs of a seed are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
}

/// A program with what is random about how it is called.
#[derive(Clone)]
struct Program {
    graph: GraphModule,
    hooks: usize,
    /// Which results are differentiated.
    chosen: Vec<bool>,
}

/// A side of a conditional: takes two tensors and returns one like the first, or two. `same` says whether the two are alike.
/// It may write what it made, seldom an operand (then the program cannot be traced as a whole).
fn side(r: &mut Random, same: bool, results: usize) -> GraphModule {
    let mut g = Graph::new();
    let operands = [g.placeholder("a"), g.placeholder("b")];
    let mut values = vec![operands[0]];
    values.extend(same.then_some(operands[1]));
    let op = |g: &mut Graph, name: &str, args: Vec<Argument>| g.call_function(Target::aten(name), args);
    for _ in 0..r.below(5) {
        let (a, b) = (values[r.below(values.len())], values[r.below(values.len())]);
        values.push(match r.below(8) {
            0..=2 => op(&mut g, ["sin.default", "tanh.default", "exp.default"][r.below(3)], vec![a.into()]),
            3..=5 => op(&mut g, ["add.Tensor", "mul.Tensor", "sub.Tensor"][r.below(3)], vec![a.into(), b.into()]),
            6 => op(&mut g, "detach.default", vec![a.into()]),
            _ if operands.contains(&a) && r.below(8) > 0 => op(&mut g, "neg.default", vec![a.into()]),
            _ => op(&mut g, "mul_.Scalar", vec![a.into(), 0.75.into()]),
        });
    }
    let returned = (0..results).map(|_| values[values.len() - 1 - r.below(values.len().min(3))]);
    let returned: Vec<NodeId> = returned.collect();
    g.output(Argument::tuple(returned.into_iter().map(Argument::Node)));
    GraphModule::new(g)
}

fn generate(r: &mut Random) -> Program {
    let mut g = Graph::new();
    let mut attributes = Attributes::default();
    let mut values: Vec<(NodeId, Vec<usize>)> = ["x", "y", "w"].map(|n| (g.placeholder(n), vec![2, 3])).to_vec();
    // Results of a conditional but its first: in a graph they come from one node, and hooks on them run in their order.
    let mut second_results: Vec<NodeId> = Vec::new();
    let mut hooks = 0;
    let mut mode = true;
    let op = |g: &mut Graph, name: &str, args: Vec<Argument>| g.call_function(Target::aten(name), args);
    for _ in 0..2 + r.below(14) {
        let (a, shape) = values[r.below(values.len())].clone();
        let (b, other) = values[r.below(values.len())].clone();
        let same = shape == other;
        match r.below(21) {
            0..=3 => {
                let name = ["sin.default", "tanh.default", "neg.default", "exp.default"][r.below(4)];
                values.push((op(&mut g, name, vec![a.into()]), shape));
            }
            4..=7 if same => {
                let name = ["add.Tensor", "mul.Tensor", "sub.Tensor"][r.below(3)];
                values.push((op(&mut g, name, vec![a.into(), b.into()]), shape));
            }
            8 if shape.first().is_some_and(|n| *n > 1) => {
                values.push((op(&mut g, "select.int", vec![a.into(), 0.into(), 1.into()]), shape[1..].to_vec()));
            }
            9 if shape.first().is_some_and(|n| *n > 1) => {
                let mut cut = shape.clone();
                cut[0] -= 1;
                let args = vec![a.into(), 0.into(), 1.into(), (shape[0] as i64).into()];
                values.push((op(&mut g, "slice.Tensor", args), cut));
            }
            10 if shape.len() == 2 => {
                values.push((op(&mut g, "t.default", vec![a.into()]), vec![shape[1], shape[0]]));
            }
            11 => {
                let sizes = Argument::list([Argument::Int(-1)]);
                values.push((op(&mut g, "reshape.default", vec![a.into(), sizes]), vec![shape.iter().product()]));
            }
            12 => values.push((op(&mut g, "detach.default", vec![a.into()]), shape)),
            13..=15 => {
                let written = match r.below(7) {
                    0 => op(&mut g, "add_.Scalar", vec![a.into(), 1.5.into()]),
                    1 => op(&mut g, "mul_.Scalar", vec![a.into(), 0.75.into()]),
                    2 if same => op(&mut g, "add_.Tensor", vec![a.into(), b.into()]),
                    3 if same => op(&mut g, "mul_.Tensor", vec![a.into(), b.into()]),
                    4 if same => op(&mut g, "copy_.default", vec![a.into(), b.into()]),
                    5 => op(&mut g, "sin_.default", vec![a.into()]),
                    _ => op(&mut g, "relu_.default", vec![a.into()]),
                };
                values.push((written, shape));
            }
            16 => {
                mode = !mode;
                g.call_function(Function::SetGradEnabled, [mode.into()]);
            }
            17 | 18 if mode && !second_results.contains(&a) => {
                let hooked = g.call_function(Function::RegisterHook, [a.into(), (hooks as i64).into()]);
                hooks += 1;
                values.push((hooked, shape));
            }
            19 => {
                let sum = op(&mut g, "sum.default", vec![a.into()]);
                let pred = op(&mut g, "gt.Scalar", vec![sum.into(), 0.123.into()]);
                let results = 1 + r.below(2);
                let sides = ["yes", "no"].map(|name| {
                    let path = format!("{name}_{}", g.len());
                    attributes.set(&path, Attribute::Graph(Arc::new(side(r, same, results))));
                    g.get_attr(&path)
                });
                let operands = Argument::tuple([a.into(), b.into()]);
                let cond = g.call_function(Hop::Cond, [pred.into(), sides[0].into(), sides[1].into(), operands]);
                for i in 0..results {
                    let item = g.call_function(Function::GetItem, [cond.into(), (i as i64).into()]);
                    values.push((item, shape.clone()));
                    second_results.extend((i > 0).then_some(item));
                }
            }
            _ => {}
        }
    }
    if !mode {
        g.call_function(Function::SetGradEnabled, [true.into()]);
    }
    let results: Vec<NodeId> =
        (0..1 + r.below(4)).map(|_| values[values.len() - 1 - r.below(values.len().min(6))].0).collect();
    let chosen = results.iter().map(|_| r.below(4) > 0).collect();
    g.output(Argument::tuple(results.into_iter().map(Argument::Node)));
    let mut graph = GraphModule::new(g);
    graph.attributes = attributes;
    Program { graph, hooks, chosen }
}

/// The program without its hooks, which no archive can hold.
fn without_hooks(program: &Program) -> Program {
    let mut graph = program.graph.clone();
    let nodes: Vec<NodeId> = graph.graph.find_calls(&Target::from(Function::RegisterHook)).collect();
    for n in nodes {
        let Argument::Node(of) = graph.graph[n].args()[0] else { unreachable!("hooks are on values") };
        graph.graph.replace_all_uses_with(n, of);
        graph.graph.erase(n).unwrap();
    }
    Program { graph, hooks: 0, chosen: program.chosen.clone() }
}

/// Which hook, and the gradient it saw.
type HookCall = (usize, Option<Vec<f64>>);

/// What can be seen of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    values: Vec<Vec<f64>>,
    needs: Vec<bool>,
    grads: Vec<Option<Vec<f64>>>,
    accumulated: Vec<Option<Vec<f64>>>,
    log: Vec<HookCall>,
    second: Option<Vec<Option<Vec<f64>>>>,
    has_conditionals: bool,
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.detach().to_vec::<f64>()
}

fn leaf(start: f64) -> Tensor {
    let values: Vec<f64> = (0..6).map(|i| (f64::from(i) + start).sin()).collect();
    Tensor::from_slice(&values, [2, 3])
}

fn leaves() -> [Tensor; 2] {
    [leaf(0.3).requires_grad_(), leaf(1.7).requires_grad_()]
}

fn inputs_of(leaves: &[Tensor; 2]) -> [Tensor; 3] {
    [&leaves[0] * 1.0, &leaves[1] * 1.0, leaf(2.9)]
}

fn examples(inputs: &[Tensor]) -> Vec<ExampleInput> {
    let example = |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
    inputs.iter().map(example).collect()
}

/// Runs a program; none if a plain run refuses it (a saved value was written, a view may not be).
fn observe(program: &Program, backend: &dyn Backend, backward: Option<&CompiledBackward>) -> Option<Seen> {
    let leaves = leaves();
    let inputs = inputs_of(&leaves);
    let executable = backend.compile(&program.graph, &examples(&inputs)).ok()?;
    let log: Arc<Mutex<Vec<HookCall>>> = Arc::default();
    let slots: Vec<Arc<HookSlot>> = (0..program.hooks)
        .map(|k| {
            let log = log.clone();
            let hook: HookFn = Arc::new(move |g: Option<&Tensor>| {
                log.lock().unwrap().push((k, g.map(numbers)));
                Ok(g.map(|g| &(g * g) * (0.5 + k as f64)))
            });
            HookSlot::new(hook)
        })
        .collect();
    let call = Call::new(slots, Arc::new([]));
    let values: Vec<Value> = inputs.iter().map(Value::from).collect();
    let outs = executable.run(&values, &call).ok()?;
    let outs = outs.iter().map(|v| v.tensor().ok().cloned()).collect::<Option<Vec<Tensor>>>()?;
    let mut seen: Vec<Vec<f64>> = outs.iter().map(numbers).collect();
    seen.extend(inputs.iter().map(numbers));
    let needs = outs.iter().map(Tensor::requires_grad).collect();
    let mut total: Option<Tensor> = None;
    for (i, out) in outs.iter().enumerate().filter(|(i, o)| program.chosen[*i] && o.requires_grad()) {
        let part = out.try_mul_scalar(1.0 + i as f64).and_then(|t| t.try_sum()).ok()?;
        total = Some(total.map_or(part.clone(), |t| &t + &part));
    }
    let (mut grads, mut accumulated, mut second) = (vec![None; 2], vec![None; 2], None);
    if let Some(total) = total {
        let _scope = backward.map(CompiledBackward::enable);
        let unused = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
        let keep = GradOptions { retain_graph: Some(true), ..unused.clone() };
        grads = grad(&total, leaves.to_vec(), &keep).ok()?.iter().map(|g| g.as_ref().map(numbers)).collect();
        for _ in 0..2 {
            total.try_backward(&BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() }).ok()?;
        }
        accumulated = leaves.iter().map(|t| t.grad().as_ref().map(numbers)).collect();
        let first = grad(&total, leaves.to_vec(), &GradOptions { create_graph: true, ..unused.clone() }).ok()?;
        let squares = first.iter().flatten().filter(|g| g.requires_grad()).map(|g| (g * g).sum());
        second = match squares.reduce(|a, b| &a + &b) {
            Some(penalty) => {
                Some(grad(&penalty, leaves.to_vec(), &unused).ok()?.iter().map(|g| g.as_ref().map(numbers)).collect())
            }
            None => None,
        };
    }
    let log = std::mem::take(&mut *log.lock().unwrap());
    let has_conditionals = program.graph.subgraphs().next().is_some();
    Some(Seen { values: seen, needs, grads, accumulated, log, second, has_conditionals })
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let scale = b.iter().fold(1.0f64, |m, v| if v.is_finite() { m.max(v.abs()) } else { m });
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * scale)
}

/// An absent gradient and one of zeros are alike where tolerances are.
fn close_opt(a: &Option<Vec<f64>>, b: &Option<Vec<f64>>, tolerance: f64) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => close(a, b, tolerance),
        (Some(v), None) | (None, Some(v)) => v.iter().all(|x| *x == 0.0),
        (None, None) => true,
    }
}

fn compare(found: &Seen, plain: &Seen, tolerance: f64) -> Result<(), &'static str> {
    let all =
        |a: &[Vec<f64>], b: &[Vec<f64>]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b, tolerance));
    let grads =
        |a: &[Option<Vec<f64>>], b: &[Option<Vec<f64>>], t: f64| a.iter().zip(b).all(|(a, b)| close_opt(a, b, t));
    if !all(&found.values, &plain.values) {
        return Err("values");
    }
    if found.needs != plain.needs {
        return Err("requires_grad");
    }
    if !grads(&found.grads, &plain.grads, tolerance.max(1e-12)) {
        return Err("gradients");
    }
    if !grads(&found.accumulated, &plain.accumulated, tolerance.max(1e-12)) {
        return Err("accumulated gradients");
    }
    let same = |(a, b): (&HookCall, &HookCall)| a.0 == b.0 && close_opt(&a.1, &b.1, tolerance.max(1e-9));
    // A compiled function is one node, so the node behind an input may run with an undefined gradient where a plain run
    // does not get there. Ordinary hooks are not called then.
    // Gradients of a conditional depend on all its operands, whichever side ran: where a plain run has nothing to
    // differentiate again, there are zeros.
    let matters = |g: &Vec<f64>| !found.has_conditionals || g.iter().any(|v| *v != 0.0);
    let defined =
        |log: &[HookCall]| log.iter().filter(|(_, g)| g.as_ref().is_some_and(matters)).cloned().collect::<Vec<_>>();
    let (ours, theirs) = (defined(&found.log), defined(&plain.log));
    if ours.len() != theirs.len() || !ours.iter().zip(&theirs).all(same) {
        return Err("hook calls");
    }
    match (&found.second, &plain.second) {
        (Some(a), Some(b)) if !grads(a, b, tolerance.max(1e-9)) => Err("second order"),
        (None, Some(b)) if !b.iter().flatten().flatten().all(|v| *v == 0.0) => Err("second order is missing"),
        _ => Ok(()),
    }
}

fn backends() -> Vec<(Box<dyn Backend>, f64)> {
    let with = |name, partition| Aot::new(AotOptions { name, inner: Arc::new(Interpret), partition, decompose: false });
    let default = PartitionOptions { partitioner: Partitioner::Default, ..PartitionOptions::default() };
    let all = PartitionOptions { activation_memory_budget: 0.0, ..PartitionOptions::default() };
    vec![
        (Box::new(Methods), 0.0),
        (Box::new(aot_eager()), 0.0),
        (Box::new(with("default", default)), 0.0),
        (Box::new(with("recompute", all)), 0.0),
        (Box::new(aot_eager_decomp()), 1e-12),
        (Box::new(firebrand(FusedOptions::default())), 1e-12),
    ]
}

/// Compiled backward: the name, what runs the forward, and how close results must be.
fn compiled() -> Vec<(&'static str, Box<dyn Backend>, CompiledBackward, f64)> {
    let with = |name: &str| CompiledBackward::new(Options::with_backend(backend(name).unwrap()));
    vec![
        ("plain, backward eager", Box::new(Interpret), with("eager"), 0.0),
        ("plain, backward aot_eager", Box::new(Interpret), with("aot_eager"), 0.0),
        ("plain, backward firebrand", Box::new(Interpret), with("firebrand"), 1e-12),
        ("aot_eager, backward firebrand", Box::new(aot_eager()), with("firebrand"), 1e-12),
    ]
}

/// A way to run a program: its name, the back ends of the program and of its backward pass, and how close results must be.
struct Way<'a> {
    name: &'a str,
    forward: &'a dyn Backend,
    backward: Option<&'a CompiledBackward>,
    tolerance: f64,
}

impl Way<'_> {
    /// What a run of the program in this way does that a plain run does not.
    fn difference(&self, program: &Program, plain: &Seen) -> Option<String> {
        let Some(found) = observe(program, self.forward, self.backward) else {
            return Some("it does not run".to_string());
        };
        let what = compare(&found, plain, self.tolerance).err()?;
        Some(format!("{what}\nplain {plain:?}\nfound {found:?}"))
    }

    /// The text that a failing program is reported with.
    fn report(&self, program: &Program) -> Option<String> {
        let what = self.difference(program, &observe(program, &Interpret, None)?)?;
        let text = print(&ExportedProgram::new(program.graph.clone(), None), Form::Short);
        Some(format!("{what}\n{text}chosen {:?}", program.chosen))
    }
}

/// More different programs than this are not listed.
const MOST_WRONG: usize = 40;

fn check(seed: u64, count: usize) {
    let mut r = Random(seed.max(1));
    let (mut ran, mut reloaded) = (0, 0);
    let (backends, compiled) = (backends(), compiled());
    let mut ways: Vec<Way> = Vec::new();
    for (backend, tolerance) in &backends {
        ways.push(Way { name: backend.name(), forward: &**backend, backward: None, tolerance: *tolerance });
    }
    for (name, forward, c, tolerance) in &compiled {
        ways.push(Way { name, forward: &**forward, backward: Some(c), tolerance: *tolerance });
    }
    let saved = Way { name: Reloaded.name(), forward: &Reloaded, backward: None, tolerance: 0.0 };
    let mut wrong = Vec::new();
    for i in 0..count {
        if wrong.len() >= MOST_WRONG {
            break;
        }
        let program = generate(&mut r);
        if i < first() {
            continue;
        }
        let Some(plain) = observe(&program, &Interpret, None) else { continue };
        ran += 1;
        let mut check_one = |program: &Program, plain: &Seen, way: &Way| {
            let what = way.difference(program, plain)?;
            let least = reduce::reduced(program, &|p| way.report(p).is_some());
            let text = way.report(&least).unwrap_or(what);
            let text = format!("seed {seed}, program {i} on {}: {text}", way.name);
            eprintln!("{text}");
            wrong.push(text);
            Some(())
        };
        if ways.iter().find_map(|way| check_one(&program, &plain, way)).is_some() {
            continue;
        }
        let bare = without_hooks(&program);
        if let Some(plain) = observe(&bare, &Interpret, None)
            && Reloaded.compile(&bare.graph, &examples(&inputs_of(&leaves()))).is_ok()
        {
            reloaded += 1;
            check_one(&bare, &plain, &saved);
        }
    }
    assert!(wrong.is_empty(), "{} programs differ; the first: {}", wrong.len(), wrong[0]);
    if first() > 0 {
        return;
    }
    assert!(ran * 3 >= count, "most programs of seed {seed} run: {ran} of {count}");
    assert!(reloaded * 2 >= ran, "most programs of seed {seed} can be saved: {reloaded} of {ran}");
    assert!(compiled.iter().all(|(_, _, c, _)| c.captures() > 0));
}

fn count() -> usize {
    wanted().unwrap_or(150)
}

fn wanted() -> Option<usize> {
    std::env::var("FIREBRAND_DIFFERENTIAL").ok().and_then(|v| v.parse().ok())
}

/// The first program of a seed that runs: those before it are made only.
fn first() -> usize {
    std::env::var("FIREBRAND_DIFFERENTIAL_FROM").ok().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// A seed that no run has had, or the one that is asked for.
fn new_seed() -> u64 {
    let given = std::env::var("FIREBRAND_DIFFERENTIAL_SEED").ok().and_then(|v| v.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    given.unwrap_or(now.as_nanos() as u64 | 1)
}

#[test]
fn programs_of_a_fixed_seed() {
    check(0x5EED, count());
}

#[test]
fn programs_of_a_new_seed() {
    check(new_seed(), count());
}

/// The dtype the programs compute in.
#[test]
fn programs_compute_in_f64() {
    assert_eq!(leaf(0.0).dtype(), DType::F64);
}
