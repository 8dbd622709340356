//! The bench of function transforms: gradients sample by sample, a Hessian, a product with the Hessian of a network.

use super::models::Gpt;
use super::training::classes;
use super::{Bench, workloads::normal};
use crate::refusal::Done;
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
    let criterion = CrossEntropyLoss::new();
    let model =
        sequential![Linear::new(784, 256), Tanh::new(), Linear::new(256, 256), Tanh::new(), Linear::new(256, 10)];
    let weights = parameters(&model);
    let batch = (normal(&[256, 784])?, classes(10, &[256])?);
    let per_sample = vmap(|(x, y): &(Tensor, Tensor)| {
        grad(|p: &Parameters| {
            let scores = functional_call(&model, p, &ops::unsqueeze(x, 0)?)?;
            criterion.loss(&scores, &ops::unsqueeze(y, 0)?)
        })(&weights)
    });
    bench.emit_ms("per_sample_gradients", bench.measure(SECONDS, || per_sample.call(&batch).map(drop))?)?;

    let (mixing, x) = (normal(&[50, 50])?, normal(&[50])?);
    let bowl = |x: &Tensor| ops::sum(&ops::sin(&ops::mv(&mixing, &ops::mul(x, x)?)?)?, None);
    bench.emit_ms("hessian_50", bench.measure(SECONDS, || hessian(bowl)(&x).map(drop))?)?;

    let gpt = Gpt::new()?;
    let weights = parameters(&gpt);
    let direction: Parameters =
        weights.iter().map(|(n, p)| Ok((n.clone(), ops::randn_like(p, None, None, None)?))).collect::<Result<_>>()?;
    let (ids, target) = (classes(1000, &[8, 128])?, classes(1000, &[8 * 128])?);
    let loss = |p: &Parameters| criterion.loss(&ops::flatten(&functional_call(&gpt, p, &ids)?, 0, -2)?, &target);
    bench.emit_ms("hvp_gpt", bench.measure(SECONDS, || jvp(grad(loss), &weights, &direction).map(drop))?)
}
