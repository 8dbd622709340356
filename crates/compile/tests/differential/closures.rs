//! Random closures: what graphs cannot say. A program is a list of statements on vectors, run as a function of tensors, plainly
//! and compiled, at several sizes: hooks of every kind, kept gradients, custom functions with size arithmetic, checkpoint,
//! saved-tensor scopes, cells, breaks, written arguments, transforms inside and outside.
//!
//! Compared is everything a run shows, in order: values, gradients first and second, which hooks ran with what, whether and
//! where it failed. A program that differs is cut down to the statements that matter before it is shown.

use crate::Random;
use firebrand_compile::backward::{CompiledBackward, Options as BackwardOptions};
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{Backend, Options, Shared, backend, compile_with, graph_break};
use firebrand_core::autograd::{
    CheckpointOptions, Context, Function, GradOptions, checkpoint, dual_level, get_gradient_edge, grad, make_dual,
    no_grad, register_multi_grad_hook, register_multi_grad_hook_any, saved_tensors_hooks, unpack_dual,
};
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{Result, Tensor, func};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// One statement. Numbers name values, counted modulo how many there are.
#[derive(Clone, Copy, Debug)]
enum Statement {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    /// Every element plus the sum of all.
    Spread(usize),
    Detach(usize),
    /// All but the first element, padded again.
    Tail(usize),
    /// A view: all elements, in the same order.
    View(usize),
    Write(usize, usize),
    Dropout(usize),
    /// Scaled by the size.
    BySize(usize, usize),
    WhereNothingIsRecorded(usize),
    Hook(usize),
    PureHook(usize),
    /// A pure hook that reads a value.
    PureHookHolding(usize, usize),
    /// A hook that holds an argument and reads more of it than its numbers.
    HookWithArgument(usize, usize),
    NodeHook(usize),
    NodePreHook(usize),
    MultiHook(usize, usize),
    MultiHookAny(usize, usize),
    PostAccumulate(usize),
    Retain(usize),
    Custom(usize),
    Checkpoint(usize, bool),
    /// A checkpoint whose closure holds a value.
    CheckpointHolding(usize, usize),
    SavedScope(usize, usize),
    Cell(usize),
    Break,
    Read(usize),
    Grad(usize, usize),
    Jvp(usize),
    Vmap(usize, usize),
    Jacrev(usize, usize),
    /// A pullback, called twice.
    Vjp(usize, usize),
    /// One transform of another.
    Nested(usize, usize, usize),
    Dual(usize),
    Nothing,
}

use Statement::*;

fn statement(r: &mut Random) -> Statement {
    let (a, b) = (r.below(64), r.below(64));
    match r.below(47) {
        0..=6 => Unary(r.below(5), a),
        7..=12 => Binary(r.below(4), a, b),
        13 => Spread(a),
        14 => Detach(a),
        15 => Tail(a),
        16..=18 => Write(r.below(4), a),
        19 => Dropout(a),
        20 => BySize(r.below(3), a),
        21 => WhereNothingIsRecorded(a),
        22..=24 => Hook(a),
        25 => PureHook(a),
        26 | 27 => HookWithArgument(a, b),
        28 => NodeHook(a),
        29 => NodePreHook(a),
        30 => MultiHook(a, b),
        31 => MultiHookAny(a, b),
        32 => PostAccumulate(a),
        33 => Retain(a),
        34 | 35 => Custom(a),
        36 => Checkpoint(a, b % 2 == 0),
        37 => CheckpointHolding(a, b),
        38 => SavedScope(a, b),
        39 => Cell(a),
        40 => Break,
        41 => Read(a),
        42 => [Grad(a, b), Jvp(a), Vmap(a, b), Dual(a)][r.below(4)],
        43 => [Jacrev(a, b), Vjp(a, b), Nested(0, a, b), Nested(1, a, b), Nested(2, a, b), Break][r.below(6)],
        44 => PureHookHolding(a, b),
        45 => View(a),
        _ => Break,
    }
}

/// A program, and what is random about its calls.
#[derive(Clone, Debug)]
struct Program {
    statements: Vec<Statement>,
    /// Whether each of the two arguments that require grad is a leaf.
    leaves: [bool; 2],
    results: Vec<usize>,
    chosen: Vec<bool>,
    sizes: [usize; 4],
    outside: Outside,
}

/// How the function is differentiated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outside {
    Backward,
    Second,
    Jvp,
    Grad,
    Vmap,
}

fn program(r: &mut Random) -> Program {
    let statements = (0..2 + r.below(10)).map(|_| statement(r)).collect();
    let results: Vec<usize> = (0..1 + r.below(3)).map(|_| r.below(64)).collect();
    let chosen = results.iter().map(|_| r.below(4) > 0).collect();
    let sizes = [[3, 4, 5, 6], [3, 3, 4, 5], [2, 5, 1, 4], [4, 1, 3, 3]][r.below(4)];
    let outside = match r.below(10) {
        0..=5 => Outside::Backward,
        6 => Outside::Second,
        7 => Outside::Jvp,
        8 => Outside::Grad,
        _ => Outside::Vmap,
    };
    Program { statements, leaves: [r.below(2) == 0, r.below(2) == 0], results, chosen, sizes, outside }
}

/// What a run shows.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Shown>>);

impl Log {
    fn see(&self, what: impl Into<String>, t: Option<&Tensor>) {
        let values = t.map(|t| if t.is_meta() { vec![f64::MAX] } else { t.detach().to_vec::<f64>() });
        self.0.lock().unwrap().push((what.into(), values));
    }
    fn say(&self, what: impl Into<String>) {
        self.see(what, None);
    }
}

/// `x * n / (n + 1)` for a vector of `n`, with a derivative that says so in another way.
struct BySizes;

impl Function for BySizes {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        let n = inputs[0].numel() as f64;
        Ok(vec![&inputs[0] * (n / (n + 1.0))])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let n = ctx.saved_tensors()?[0].as_ref().map_or(0.0, |t| t.numel() as f64);
        Ok(vec![grads[0].as_ref().map(|g| g * n / (n + 1.0))])
    }
    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let _ = ctx;
        Ok(vec![tangents[0].as_ref().map(|t| t * (t.numel() as f64 / (t.numel() as f64 + 1.0)))])
    }
    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], _: &[Tensor]) -> Result<()> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(())
    }
}

type Arguments = (Tensor, Tensor, Tensor, Shared<Tensor>);

/// Runs the statements.
fn run(program: &Program, (x, y, w, cell): &Arguments, log: &Log) -> Result<Vec<Tensor>> {
    let arguments = [x.clone(), y.clone(), w.clone()];
    let mut values = arguments.to_vec();
    for (k, s) in program.statements.iter().enumerate() {
        let v = |i: usize| values[i % values.len()].clone();
        let wanted = |t: &Tensor| t.requires_grad();
        let logged = |name: &str| {
            let (log, name) = (log.clone(), format!("{k} {name}"));
            move |g: Option<&Tensor>| log.see(name.clone(), g)
        };
        match *s {
            Unary(op, a) => values.push(match op {
                0 => v(a).try_sin()?,
                1 => v(a).try_tanh()?,
                2 => v(a).try_neg()?,
                3 => v(a).try_cos()?,
                _ => v(a).try_mul_scalar(1.5)?,
            }),
            Binary(op, a, b) => values.push(match op {
                0 => v(a).try_add(&v(b))?,
                1 => v(a).try_sub(&v(b))?,
                _ => v(a).try_mul(&v(b))?.try_tanh()?,
            }),
            Spread(a) => values.push(v(a).try_add(&v(a).try_sum()?)?.try_sin()?),
            Detach(a) => values.push(v(a).detach()),
            Tail(a) => {
                let t = v(a);
                let tail = t.slice(0, Some(1.into()), None, 1);
                values.push(tail.clone().try_sum()?.try_add(&t)?.try_tanh()?);
            }
            View(a) => values.push(v(a).try_view([-1i64])?),
            Write(op, a) => {
                let t = v(a);
                let fits = !wanted(&t) || !t.is_leaf();
                match op {
                    _ if !fits => no_grad(|| t.try_mul_scalar_(1.25).map(drop))?,
                    0 => drop(t.try_add_scalar_(0.5, 1)?),
                    1 => drop(t.try_mul_scalar_(0.75)?),
                    2 => drop(t.try_sin_()?),
                    _ => no_grad(|| t.try_add_scalar_(0.25, 1).map(drop))?,
                }
            }
            Dropout(a) => values.push(firebrand_core::ops::dropout(&v(a), 0.5, true)?),
            BySize(op, a) => {
                let t = v(a);
                let n = t.size(0);
                values.push(match op {
                    0 => (&t * n).try_sin()?,
                    1 => t.reshape([n, 1.into()]).expand([n, n]).sum_dim(1, false).try_tanh()?,
                    _ if n > 3 => &t * 2.0,
                    _ => &t * 0.5,
                });
            }
            WhereNothingIsRecorded(a) => values.push(no_grad(|| v(a).try_sin()?.try_mul_scalar(2.0))?),
            Hook(a) if wanted(&v(a)) => {
                let see = logged("hook");
                v(a).try_register_hook(move |g: &Tensor| {
                    see(Some(g));
                    g * 0.5
                })?;
            }
            PureHook(a) if wanted(&v(a)) => {
                register_pure_hook(&v(a), |g: &Tensor| if g.size(0) > 3 { g * 0.75 } else { g.sin() })?;
            }
            PureHookHolding(a, b) if wanted(&v(a)) => {
                let held = v(b).detach();
                register_pure_hook(&v(a), move |g: &Tensor| g * &held)?;
            }
            HookWithArgument(a, b) if wanted(&v(a)) => {
                let (held, log) = (arguments[b % 3].clone(), log.clone());
                v(a).try_register_hook(move |g: &Tensor| {
                    log.see(format!("{k} held"), Some(&held.data()));
                    log.see(format!("{k} its gradient"), held.grad().filter(|_| held.is_leaf()).as_ref());
                    log.say(format!("{k} version {}", held.version()));
                    g * &held.detach().tanh()
                })?;
            }
            NodeHook(a) if wanted(&v(a)) => {
                let see = logged("node");
                get_gradient_edge(&v(a))?.node.register_hook(move |outgoing, incoming| {
                    incoming.iter().for_each(|g| see(g.as_ref()));
                    Ok(Some(outgoing.iter().map(|g| g.as_ref().map(|g| g * 0.5)).collect()))
                });
            }
            NodePreHook(a) if wanted(&v(a)) => {
                let see = logged("before the node");
                get_gradient_edge(&v(a))?.node.register_prehook(move |incoming| {
                    incoming.iter().for_each(|g| see(g.as_ref()));
                    Ok(Some(incoming.iter().map(|g| g.as_ref().map(|g| g * 0.25)).collect()))
                });
            }
            MultiHook(a, b) if wanted(&v(a)) && wanted(&v(b)) && program.outside == Outside::Backward => {
                let see = logged("all");
                register_multi_grad_hook(&[&v(a), &v(b)], move |grads| {
                    grads.iter().for_each(|g| see(g.as_ref()));
                    Ok(())
                })?;
            }
            MultiHookAny(a, b) if wanted(&v(a)) && wanted(&v(b)) => {
                let see = logged("any");
                register_multi_grad_hook_any(&[&v(a), &v(b)], move |g| {
                    see(Some(g));
                    Ok(())
                })?;
            }
            PostAccumulate(a) if wanted(&v(a)) && v(a).is_leaf() => {
                let log = log.clone();
                v(a).try_register_post_accumulate_grad_hook(move |t: &Tensor| {
                    log.see(format!("{k} accumulated"), t.grad().as_ref())
                })?;
            }
            Retain(a) if wanted(&v(a)) => v(a).try_retain_grad()?,
            Custom(a) => values.push(BySizes.apply(&[&v(a)])?.remove(0)),
            Checkpoint(a, reentrant) => {
                let options = CheckpointOptions { use_reentrant: Some(reentrant), ..CheckpointOptions::default() };
                let body = |i: &[Tensor]| {
                    let t = firebrand_core::ops::dropout(&i[0], 0.5, true)?;
                    Ok(vec![t.try_sin()?.try_mul(&i[0])?])
                };
                if !reentrant || program.outside == Outside::Backward {
                    values.push(checkpoint(body, &[&v(a)], &options)?.remove(0));
                }
            }
            CheckpointHolding(a, b) if program.outside == Outside::Backward => {
                let options = CheckpointOptions { use_reentrant: Some(b % 2 == 0), ..CheckpointOptions::default() };
                let held = v(b).detach();
                let body = move |i: &[Tensor]| Ok(vec![i[0].try_mul(&held)?.try_sin()?]);
                values.push(checkpoint(body, &[&v(a)], &options)?.remove(0));
            }
            SavedScope(a, b) if matches!(program.outside, Outside::Backward | Outside::Second) => {
                let see = logged("packed");
                let pack = move |t: &Tensor| {
                    see(Some(t));
                    Ok(t.detach())
                };
                let _scope = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone()))?;
                let t = v(a).try_mul(&v(b))?;
                values.push(t.try_tanh()?);
            }
            Cell(a) => {
                let t = cell.get().try_add(&v(a))?.try_tanh()?;
                cell.set(t.detach());
                values.push(t);
            }
            Break => graph_break(),
            Read(a) => {
                let first = v(a).detach().to_vec::<f64>()[0];
                let last = values[values.len() - 1].clone();
                values.push(if first > 0.0 { last.try_sin()? } else { last.try_mul_scalar(0.5)? });
            }
            Grad(a, b) => {
                let held = v(b);
                values.push(func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(&v(a))?);
            }
            Jvp(a) => values.push(func::jvp(|t: &Tensor| t.try_sin(), &v(a), &v(a).detach())?.1),
            Vmap(a, b) => {
                let held = v(b).try_sum()?;
                values.push(func::vmap(move |t: &Tensor| t.try_mul(&held)?.try_tanh()).call(&v(a))?);
            }
            Jacrev(a, b) => {
                let held = v(b);
                let rows = func::jacrev(move |t: &Tensor| t.try_mul(&held)?.try_sin())(&v(a))?;
                values.push(rows.sum_dim(0, false).try_tanh()?);
            }
            Vjp(a, b) => {
                let (y, pull) = func::vjp(|t: &Tensor| t.try_sin()?.try_mul(t), &v(a))?;
                values.push(pull.call(&v(b))?.try_add(&pull.call(&y)?)?.try_tanh()?);
            }
            Nested(kind, a, b) => {
                let held = v(b);
                let waves = move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_mul(t)?.try_sum();
                let t = v(a);
                values.push(match kind {
                    0 => func::jvp(func::grad(waves), &t, &v(b).detach())?.1.try_tanh()?,
                    1 => func::hessian(waves)(&t)?.sum_dim(0, false).try_tanh()?,
                    _ => {
                        let each = |t: &Tensor| t.try_sin()?.try_mul(t);
                        func::vmap(func::grad(each)).call(&t)?.try_tanh()?
                    }
                });
            }
            Dual(a) if !matches!(program.outside, Outside::Jvp) => {
                let t = v(a);
                let tangent = dual_level(|| -> Result<Option<Tensor>> {
                    let dual = make_dual(&t, &t.detach())?;
                    Ok(unpack_dual(&dual.try_tanh()?)?.1)
                })??;
                values.extend(tangent);
            }
            _ => {}
        }
    }
    Ok(program.results.iter().map(|&i| values[i % values.len()].clone()).collect())
}

fn numbers(n: usize, start: f64) -> Tensor {
    Tensor::new(&(0..n).map(|k| (k as f64 + start).sin()).collect::<Vec<f64>>())
}

type Callable<'a> = &'a dyn Fn(&Arguments) -> std::result::Result<Vec<Tensor>, String>;

/// One call and everything done with its results.
fn call(program: &Program, f: Callable<'_>, k: usize, log: &Log) -> std::result::Result<(), String> {
    let n = program.sizes[k];
    let text = |e: firebrand_core::Error| e.to_string();
    let (a, b) = (numbers(n, 0.3 + k as f64), numbers(n, 1.7 + k as f64));
    let (w, cell) = (numbers(n, 2.9), Shared::new(numbers(n, 0.1)));
    let total = |results: &[Tensor]| {
        let chosen = results.iter().zip(&program.chosen).enumerate().filter(|(_, (_, c))| **c);
        chosen.map(|(i, (t, _))| (t * (1.0 + i as f64)).sum()).reduce(|a, b| a + b)
    };
    let apply = |a: &Tensor, b: &Tensor| -> Result<Tensor> {
        let results = f(&(a.clone(), b.clone(), w.clone(), cell.clone())).map_err(firebrand_core::Error::user)?;
        total(&results).map_or_else(|| (a * 0.0).try_sum(), Ok)
    };
    match program.outside {
        Outside::Backward | Outside::Second => {
            let leaves = [a.requires_grad_(), b.requires_grad_()];
            let given = [0, 1].map(|i| if program.leaves[i] { leaves[i].clone() } else { &leaves[i] * 1.0 });
            let results = f(&(given[0].clone(), given[1].clone(), w.clone(), cell.clone()))?;
            for t in results.iter().chain(&given).chain([&w, &cell.get()]) {
                log.see("value", Some(t));
            }
            let Some(total) = total(&results).filter(Tensor::requires_grad) else { return Ok(()) };
            let later = log.clone();
            if let Some(t) = results.iter().find(|t| t.requires_grad() && program.outside == Outside::Backward) {
                t.register_hook(move |g: &Tensor| later.see("on a result", Some(g)));
            }
            if program.outside == Outside::Backward {
                for leaf in &leaves {
                    let log = log.clone();
                    leaf.try_register_post_accumulate_grad_hook(move |t: &Tensor| log.see("leaf", t.grad().as_ref()))
                        .map_err(text)?;
                }
                total.try_backward(&Default::default()).map_err(text)?;
            } else {
                let unused = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
                let create = GradOptions { create_graph: true, ..unused.clone() };
                let first = grad(&total, leaves.to_vec(), &create).map_err(text)?;
                first.iter().for_each(|g| log.see("first", g.as_ref()));
                let squares = first.iter().flatten().filter(|g| g.requires_grad()).map(|g| (g * g).sum());
                if let Some(penalty) = squares.reduce(|a, b| a + b) {
                    let second = grad(&penalty, leaves.to_vec(), &unused).map_err(text)?;
                    second.iter().for_each(|g| log.see("second", g.as_ref()));
                }
            }
            for t in leaves.iter().chain(&results) {
                log.see("gradient", t.grad().filter(|_| t.requires_grad()).as_ref());
            }
        }
        Outside::Jvp => {
            let (y, t) = func::jvp(|a: &Tensor| apply(a, &b), &a, &w).map_err(text)?;
            log.see("value", Some(&y));
            log.see("tangent", Some(&t));
        }
        Outside::Grad => {
            let g = func::grad(|(a, b): &(Tensor, Tensor)| apply(a, b))(&(a, b)).map_err(text)?;
            log.see("gradient", Some(&g.0));
            log.see("gradient", Some(&g.1));
        }
        Outside::Vmap => {
            let rows = Tensor::from_slice(&[a.to_vec::<f64>(), b.to_vec::<f64>()].concat(), [2, n as i64]);
            let each = func::vmap(|t: &Tensor| apply(t, &t.sin())).call(&rows).map_err(text)?;
            log.see("each", Some(&each));
        }
    }
    Ok(())
}

type Shown = Vec<(String, Option<Vec<f64>>)>;

/// Everything the calls of a program show; `backend` is none for a plain run.
fn observe(program: &Program, backend: Option<Arc<dyn Backend>>) -> Shown {
    let log = Log::default();
    let (inside, again) = (log.clone(), program.clone());
    let body = move |x: &Arguments| run(&again, x, &inside);
    let compiled = backend.map(|b| compile_with(body.clone(), Options::with_backend(b)));
    let f = |x: &Arguments| match &compiled {
        Some(compiled) => compiled.try_call(x).map_err(|e| e.to_string()),
        None => body(x).map_err(|e| e.to_string()),
    };
    with_generator(Generator::new(11), || {
        for k in 0..program.sizes.len() {
            let outcome = catch_unwind(AssertUnwindSafe(|| call(program, &f, k, &log)));
            match outcome {
                Ok(Ok(())) => log.say(format!("call {k}")),
                Ok(Err(e)) => log.say(format!("{e}: call {k} failed")),
                Err(_) => log.say(format!("panic: call {k} failed")),
            }
        }
    });
    std::mem::take(&mut *log.0.lock().unwrap())
}

fn close(a: &Option<Vec<f64>>, b: &Option<Vec<f64>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => crate::close(a, b, 1e-9),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn difference(found: &Shown, plain: &Shown) -> Option<String> {
    let at = (0..plain.len().max(found.len())).find(|&k| match (plain.get(k), found.get(k)) {
        (Some(p), Some(f)) => p.0 != f.0 || !close(&f.1, &p.1),
        _ => true,
    })?;
    Some(format!("entry {at}\n  plain {:?}\n  found {:?}", plain.get(at), found.get(at)))
}

/// A way to run: its name, the back end of the function and of the backward pass.
type Way = (&'static str, Arc<dyn Backend>, Option<CompiledBackward>);

fn ways() -> Vec<Way> {
    let with = |name: &str| CompiledBackward::new(BackwardOptions::with_backend(backend(name).unwrap()));
    let all = |name: &'static str| (name, backend(name).unwrap(), None);
    vec![
        all("eager"),
        all("aot_eager"),
        all("firebrand"),
        ("eager, compiled backward", backend("eager").unwrap(), Some(with("eager"))),
        ("firebrand, compiled backward", backend("firebrand").unwrap(), Some(with("firebrand"))),
    ]
}

fn differs(program: &Program, way: &Way) -> Option<String> {
    let plain = observe(program, None);
    if plain.iter().any(|(what, _)| what.ends_with("failed")) {
        return None;
    }
    let _scope = way.2.as_ref().map(CompiledBackward::enable);
    difference(&observe(program, Some(way.1.clone())), &plain)
}

/// The program without what does not matter.
fn minimised(program: &Program, way: &Way) -> Program {
    let mut least = program.clone();
    for k in 0..least.statements.len() {
        let mut less = least.clone();
        less.statements[k] = Nothing;
        if differs(&less, way).is_some() {
            least = less;
        }
    }
    while least.results.len() > 1 {
        let mut less = least.clone();
        less.results.pop();
        less.chosen.pop();
        match differs(&less, way) {
            Some(_) => least = less,
            None => break,
        }
    }
    least
}

fn check(seed: u64, count: usize) {
    let mut r = Random(seed.max(1));
    let ways = ways();
    let (mut whole, mut wrong) = (0, Vec::new());
    // Programs may fail, and which ones is compared: their panics are not shown.
    let (here, shown) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != here {
            shown(panic);
        }
    }));
    for i in 0..count {
        let program = program(&mut r);
        let plain = observe(&program, None);
        // As for graphs: what a plain run refuses (a kept value was written) is no program.
        if plain.iter().any(|(what, _)| what.ends_with("failed")) {
            continue;
        }
        whole += 1;
        for way in &ways {
            let found = {
                let _scope = way.2.as_ref().map(CompiledBackward::enable);
                observe(&program, Some(way.1.clone()))
            };
            if difference(&found, &plain).is_some() {
                let least = minimised(&program, way);
                let what = differs(&least, way).unwrap_or_else(|| "only once".to_string());
                let text = format!("seed {seed}, program {i} on {}: {what}\n{least:?}", way.0);
                eprintln!("{text}");
                wrong.push(text);
                break;
            }
        }
        if wrong.len() >= 12 {
            break;
        }
    }
    drop(std::panic::take_hook());
    assert!(wrong.is_empty(), "{} programs differ; the first: {}", wrong.len(), wrong[0]);
    assert!(whole * 2 >= count, "most programs run: {whole} of {count}");
}

#[test]
fn closures_of_a_fixed_seed() {
    check(0x5EED, crate::count());
}

#[test]
fn closures_of_a_new_seed() {
    check(crate::new_seed(), crate::new_closures());
}
