//! The bench of growth: what elements, nodes of a history, nodes of a program and layers cost as they become more.
//!
//! Every case is measured at sizes ten times apart, up to the largest or until a call takes [`ENOUGH`], and ends with its exponent: the slope between the
//! last three sizes in logarithms, 1 where twice as much costs twice as much. Small sizes show overhead instead and are not part of it.

use super::training::adam;
use super::{Bench, Done};
use firebrand::graph::passes::{Context, PASSES};
use firebrand::graph::{ExportedProgram, NamedTensor, export};
use firebrand::nn::layers::{Linear, ReLU, Sequential};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::ops;
use firebrand::optim::Optimizer;
use firebrand::prelude::*;
use std::collections::HashMap;

/// Seconds of a call after which a case is not made larger.
const ENOUGH: f64 = 2.0;
/// Calls of which the fastest counts, while they are short.
const CALLS: usize = 5;
/// Sizes that the exponent is taken from.
const LAST: usize = 3;
/// Nodes of one layer of [`program`]: two parameters and four ops.
const LAYER: usize = 6;

/// Measures `f`, which sets up a case of a size and returns what is timed, at ever larger sizes.
fn growth<T, R>(
    bench: &Bench<'_>,
    case: &str,
    sizes: &[usize],
    mut make: impl FnMut(usize) -> Done<T>,
    mut call: impl FnMut(&mut T) -> Done<R>,
) -> Done {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for &size in sizes {
        let mut subject = make(size)?;
        let mut best = f64::INFINITY;
        for _ in 0..CALLS {
            let clock = bench.clock.start();
            drop(call(&mut subject)?);
            best = best.min(clock.seconds());
            if best > ENOUGH / CALLS as f64 {
                break;
            }
        }
        bench.emit(&format!("{case}.1e{}", (size as f64).log10().round()), 1e3 * best, "ms")?;
        points.push(((size as f64).ln(), best.ln()));
        if best > ENOUGH {
            break;
        }
    }
    let last = &points[points.len().saturating_sub(LAST)..];
    match last {
        [_, .., _] => bench.emit(&format!("{case}.exponent"), slope(last), "exponent"),
        _ => Ok(()),
    }
}

/// The slope of the line that fits best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(a, b), p| (a + (p.0 - x) * (p.1 - y), b + (p.0 - x) * (p.0 - x)));
    above / below
}

/// A program of about so many nodes: layers `x + tanh(w x + b)`, each with parameters of its own.
fn program(nodes: usize) -> Done<ExportedProgram> {
    let layers = nodes.div_ceil(LAYER);
    let parameters = || -> Result<Vec<Tensor>> {
        (0..2 * layers).map(|_| Ok(Tensor::try_randn([4], DType::F32)?.requires_grad_())).collect()
    };
    let parameters = parameters()?;
    let named = |(i, t): (usize, &Tensor)| NamedTensor {
        name: format!("layers.{}.{}", i / 2, ["weight", "bias"][i % 2]),
        tensor: t.clone(),
        is_parameter: true,
    };
    let state: Vec<NamedTensor> = parameters.iter().enumerate().map(named).collect();
    let f = |i: &[Tensor]| {
        let mut x = i[0].clone();
        for layer in parameters.chunks_exact(2) {
            x = &x + &(&x * &layer[0] + &layer[1]).tanh();
        }
        Ok(vec![x.sum()])
    };
    Ok(export(f, &[Tensor::ones([4], DType::F32)], &state)?)
}

/// Powers of ten.
fn powers(from: u32, to: u32) -> Vec<usize> {
    (from..=to).map(|e| 10usize.pow(e)).collect()
}

pub(super) fn scale(bench: &Bench<'_>) -> Done {
    elements(bench)?;
    history(bench)?;
    programs(bench)?;
    layers(bench)
}

/// Ops over ever more elements.
fn elements(bench: &Bench<'_>) -> Done {
    type Op = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&str, Op); 4] = [
        ("elements.add", |x| ops::add(x, x, 1.into())),
        ("elements.tanh", ops::tanh),
        ("elements.sum", |x| ops::sum(x, None)),
        ("elements.softmax", |x| ops::softmax(&ops::view(x, &[(-1).into(), 100.into()])?, -1, None)),
    ];
    for (case, op) in cases {
        let make = |n: usize| Ok(Tensor::ones([n as i64], DType::F32));
        growth(bench, case, &powers(3, 8), make, |x| Ok(op(x)?))?;
    }
    Ok(())
}

/// A forward and a backward pass of ever more nodes, and releasing them.
fn history(bench: &Bench<'_>) -> Done {
    let make = |n: usize| Ok((Tensor::ones([4], DType::F32).requires_grad_(), n));
    growth(bench, "history.forward_backward", &powers(3, 6), make, |(x, n)| {
        let mut y = x.clone();
        for _ in 0..*n / 2 {
            y = &y * 0.999 + 1e-3;
        }
        Ok(y.sum().try_backward(&BackwardOptions::default())?)
    })
}

/// Everything that is done to a program.
fn programs(bench: &Bench<'_>) -> Done {
    let sizes = powers(3, 6);
    growth(bench, "program.export", &sizes, Ok, |n| program(*n))?;
    let built = sizes.iter().map(|&n| Ok((n, program(n)?))).collect::<Done<HashMap<usize, ExportedProgram>>>()?;
    let program = |n: usize| Ok(built[&n].clone());
    for pass in PASSES {
        let case = format!("program.pass.{}", pass.name);
        growth(bench, &case, &sizes, program, |p| {
            // A pass that this program is nothing for says so, which takes time as well.
            Ok((pass.run)(p, &Context::default()))
        })?;
    }
    growth(
        bench,
        "program.run",
        &sizes,
        |n| Ok(program(n)?.module()?),
        |m| Ok(m.run(&[Tensor::ones([4], DType::F32)])?),
    )?;
    // Joint trace, partition, fused kernels, and the first pass in both directions.
    growth(bench, "program.compile", &sizes, program, |p| {
        let mut module = p.module()?;
        module.set_evaluator((bench.compiled)());
        let loss = module.run(&[Tensor::ones([4], DType::F32)])?;
        Ok(loss[0].tensor()?.try_backward(&BackwardOptions::default())?)
    })?;
    growth(bench, "program.viz", &sizes, program, |p| Ok(firebrand::viz::program_html("scale", p)))
}

/// A training step of ever more layers.
fn layers(bench: &Bench<'_>) -> Done {
    let batch = (Tensor::ones([8, 64], DType::F32), Tensor::zeros([8], DType::I64));
    let make = |n: usize| {
        let mut model = Sequential::new();
        for _ in 0..n {
            model = model.then(Linear::new(64, 64)).then(ReLU::new());
        }
        let optimizer = adam(model.parameters())?;
        Ok((model, optimizer))
    };
    growth(bench, "layers.training_step", &powers(0, 3), make, |(model, optimizer)| {
        let loss = CrossEntropyLoss::new().loss(&model.try_call(&batch.0)?, &batch.1)?;
        loss.try_backward(&BackwardOptions::default())?;
        optimizer.step()?;
        optimizer.zero_grad();
        Ok(())
    })
}
