//! The bench of function transforms: gradients sample by sample, a Hessian, a product with the Hessian of a network; plain and compiled.

use super::models::Gpt;
use super::training::classes;
use super::{Bench, Done, workloads::normal};
use firebrand::compile::compile;
use firebrand::func::{functional_call, grad, hessian, jvp, vmap};
use firebrand::nn::layers::{Linear, Tanh};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::nn::sequential;
use firebrand::ops;
use firebrand::prelude::*;
use indexmap::IndexMap;

const SECONDS: f64 = 2.0;

type Parameters = IndexMap<String, Tensor>;

fn parameters(module: &dyn Module) -> Parameters {
    module.named_parameters().into_iter().map(|(name, p)| (name, p.tensor().detach())).collect()
}

pub(super) fn transforms(bench: &Bench) -> Done {
    let model =
        sequential![Linear::new(784, 256), Tanh::new(), Linear::new(256, 256), Tanh::new(), Linear::new(256, 10)];
    let input = (parameters(&model), normal(&[256, 784])?, classes(10, &[256])?);
    let per_sample = move |(weights, x, y): &(Parameters, Tensor, Tensor)| {
        vmap(|(x, y): &(Tensor, Tensor)| {
            grad(|p: &Parameters| {
                let scores = functional_call(&model, p, &ops::unsqueeze(x, 0)?)?;
                CrossEntropyLoss::new().loss(&scores, &ops::unsqueeze(y, 0)?)
            })(weights)
        })
        .call(&(x.clone(), y.clone()))
    };
    bench.emit_ms("per_sample_gradients", bench.measure(SECONDS, || per_sample(&input).map(drop))?)?;
    let compiled = compile(per_sample);
    let run = || Ok(compiled.try_call(&input).map(drop)?);
    bench.emit_ms("per_sample_gradients_compiled", bench.measure(SECONDS, run)?)?;

    let (mixing, x) = (normal(&[50, 50])?, normal(&[50])?);
    let bowl = |x: &Tensor| ops::sum(&ops::sin(&ops::mv(&mixing, &ops::mul(x, x)?)?)?, None);
    bench.emit_ms("hessian_50", bench.measure(SECONDS, || hessian(bowl)(&x).map(drop))?)?;

    let gpt = Gpt::new()?;
    let weights = parameters(&gpt);
    let direction: Parameters =
        weights.iter().map(|(n, p)| Ok((n.clone(), ops::randn_like(p, None, None, None)?))).collect::<Result<_>>()?;
    let (ids, target) = (classes(1000, &[8, 128])?, classes(1000, &[8 * 128])?);
    let product = move |(weights, direction): &(Parameters, Parameters)| {
        let loss = |p: &Parameters| {
            CrossEntropyLoss::new().loss(&ops::flatten(&functional_call(&gpt, p, &ids)?, 0, -2)?, &target)
        };
        jvp(grad(loss), weights, direction).map(|(_, product)| product)
    };
    let input = (weights, direction);
    bench.emit_ms("hvp_gpt", bench.measure(SECONDS, || product(&input).map(drop))?)?;
    let compiled = compile(product);
    bench.emit_ms("hvp_gpt_compiled", bench.measure(SECONDS, || Ok(compiled.try_call(&input).map(drop)?))?)
}
