//! One call of a random closure and everything that is done with its results.

use super::Log;
use super::program::{Alias, Outside, Program};
use super::statements::{Arguments, World};
use firebrand_compile::Shared;
use firebrand_core::autograd::{BackwardOptions, GradOptions, grad, no_grad};
use firebrand_core::{Number, Result, Tensor, func};

fn numbers(n: usize, start: f64) -> Tensor {
    Tensor::new(&(0..n).map(|k| (k as f64 + start).sin()).collect::<Vec<f64>>())
}

type Callable<'a> = &'a dyn Fn(&Arguments) -> std::result::Result<Vec<Tensor>, String>;

/// The sum of the results that are differentiated.
fn total(program: &Program, results: &[Tensor]) -> Option<Tensor> {
    let chosen = results.iter().zip(&program.chosen).enumerate().filter(|(_, (_, c))| **c);
    chosen.map(|(i, (t, _))| (t * (1.0 + i as f64)).sum()).reduce(|a, b| a + b)
}

/// What is shown before gradients of gradients.
pub(super) const SECOND_PASS: &str = "the second pass";

/// The `k`-th call.
pub(super) fn call(
    program: &Program,
    world: &World,
    f: Callable<'_>,
    k: usize,
    log: &Log,
) -> std::result::Result<(), String> {
    let n = program.sizes[k];
    let (a, b, w) = (numbers(n, 0.3 + k as f64), numbers(n, 1.7 + k as f64), numbers(n, 2.9));
    let (cell, number) = (Shared::new(numbers(n, 0.1)), Number::from(1.5 + k as f64 * 0.5));
    let text = |e: firebrand_core::Error| e.to_string();
    if program.outside.is_plain() {
        let leaves = [a.requires_grad_(), b.requires_grad_()];
        let [x, mut y] = [0, 1].map(|i| if program.leaves[i] { leaves[i].clone() } else { &leaves[i] * 1.0 });
        let mut w = w;
        match program.alias {
            Alias::Nothing => {}
            Alias::Same => y = x.clone(),
            Alias::Detached => w = x.detach(),
            Alias::View if x.is_leaf() => {}
            Alias::View => y = x.view([-1i64]),
        }
        let see = log.clone();
        let given = leaves[1].try_register_hook(move |g: &Tensor| see.see("0 given", Some(g))).map_err(text)?;
        let arguments = (x, y, w, cell, number, given);
        return match program.outside == Outside::Quiet && k % 2 == 1 {
            true => no_grad(|| engine(program, world, f, &leaves, &arguments, log)),
            false => engine(program, world, f, &leaves, &arguments, log),
        };
    }
    let given = numbers(n, 0.0).requires_grad_().register_hook(|_: &Tensor| {});
    let apply = |a: &Tensor, b: &Tensor| -> Result<Tensor> {
        let arguments = (a.clone(), b.clone(), w.clone(), cell.clone(), number.clone(), given.clone());
        let results = f(&arguments).map_err(firebrand_core::Error::user)?;
        total(program, &results).map_or_else(|| (a * 0.0).try_sum(), Ok)
    };
    match program.outside {
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
        _ => {
            let rows = Tensor::from_slice(&[a.to_vec::<f64>(), b.to_vec::<f64>()].concat(), [2, n as i64]);
            let each = func::vmap(|t: &Tensor| apply(t, &t.sin())).call(&rows).map_err(text)?;
            log.see("each", Some(&each));
        }
    }
    Ok(())
}

/// Whether one of these leaves is behind a value. One that requires grad in vain need not do so in a compiled function
/// (`crate::Need`): the leaves of a transform, say, lead nowhere.
fn reaches_a_leaf(t: &Tensor, leaves: &[Tensor]) -> bool {
    let mut nodes: Vec<_> = t.grad_fn().into_iter().collect();
    let mut at = 0;
    while let Some(node) = nodes.get(at).cloned() {
        if node.variable().is_some_and(|v| leaves.iter().any(|leaf| leaf.is_same(v))) {
            return true;
        }
        for edge in node.next_functions().iter().flatten() {
            if !nodes.iter().any(|n| n.is_same(&edge.node)) {
                nodes.push(edge.node.clone());
            }
        }
        at += 1;
    }
    false
}

/// A call whose results the engine differentiates.
fn engine(
    program: &Program,
    world: &World,
    f: Callable<'_>,
    leaves: &[Tensor; 2],
    arguments: &Arguments,
    log: &Log,
) -> std::result::Result<(), String> {
    let text = |e: firebrand_core::Error| e.to_string();
    let results = f(arguments)?;
    for t in results.iter().chain([&arguments.0, &arguments.1, &arguments.2, &arguments.3.get()]) {
        log.see("value", Some(t));
    }
    let made = std::mem::take(&mut *log.leaves.lock().unwrap());
    let all: Vec<Tensor> = leaves.iter().chain([&world.leaf]).chain(&made).cloned().collect();
    let Some(total) = total(program, &results).filter(|t| reaches_a_leaf(t, &all)) else { return Ok(()) };
    let unused = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
    let create = GradOptions { create_graph: true, ..unused.clone() };
    if program.outside.accumulates() {
        let later = log.clone();
        if let Some(t) = results.iter().find(|t| t.requires_grad()) {
            t.register_hook(move |g: &Tensor| later.see("on a result", Some(g)));
        }
        for leaf in leaves {
            let log = log.clone();
            leaf.try_register_post_accumulate_grad_hook(move |t: &Tensor| log.see("leaf", t.grad().as_ref()))
                .map_err(text)?;
        }
    }
    match program.outside {
        Outside::Twice => {
            total.try_backward(&BackwardOptions::retain_graph()).map_err(text)?;
            total.try_backward(&BackwardOptions::default()).map_err(text)?;
        }
        Outside::Inputs => {
            let options = BackwardOptions { inputs: Some(vec![(&leaves[0]).into()]), ..BackwardOptions::default() };
            total.try_backward(&options).map_err(text)?;
        }
        Outside::OfResult => {
            let by: Vec<Tensor> = results.iter().chain(leaves).filter(|t| t.requires_grad()).cloned().collect();
            let found = grad(&total, by, &unused).map_err(text)?;
            found.iter().for_each(|g| log.see("of a result", g.as_ref()));
        }
        Outside::Batched => {
            let seeds = Tensor::new(&[1.0, -2.0, 0.5]);
            let options = GradOptions { grad_outputs: vec![Some(seeds)], is_grads_batched: true, ..unused.clone() };
            let found = grad(&total, leaves.to_vec(), &options).map_err(text)?;
            found.iter().for_each(|g| log.see("batch", g.as_ref()));
        }
        Outside::Second => {
            let first = grad(&total, leaves.to_vec(), &create).map_err(text)?;
            first.iter().for_each(|g| log.see("first", g.as_ref()));
            log.say(SECOND_PASS);
            let squares = first.iter().flatten().filter(|g| g.requires_grad()).map(|g| (g * g).sum());
            match squares.reduce(|a, b| a + b) {
                Some(penalty) => {
                    let second = grad(&penalty, leaves.to_vec(), &unused).map_err(text)?;
                    second.iter().for_each(|g| log.see("second", g.as_ref()));
                }
                // Which side of a conditional ran decides whether a gradient has a history: a compiled one always has.
                None if program.has_conditional() => leaves.iter().for_each(|_| log.see("second", None)),
                None => {}
            }
        }
        _ => total.try_backward(&BackwardOptions::default()).map_err(text)?,
    }
    log.see("cell", Some(&arguments.3.get()));
    for t in leaves.iter().chain(&results) {
        log.see("gradient", t.grad().filter(|_| t.requires_grad()).as_ref());
    }
    Ok(())
}
