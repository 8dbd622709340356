//! The gradient of every sample of a batch, without a loop: `vmap` of `grad`.
//!
//! Checked against one backward pass per sample.

use firebrand::func::{grad, vmap};
use firebrand::prelude::*;

type Params = (Tensor, Tensor, Tensor);

/// A network of two layers on one sample; cross entropy with one target.
fn loss((w1, b1, w2): &Params, x: &Tensor, target: &Tensor) -> Tensor {
    let hidden = (w1.matmul(x) + b1).tanh();
    let logits = w2.matmul(&hidden);
    -logits.log_softmax(0).gather(0, &target.unsqueeze(0)).squeeze()
}

pub(crate) fn main() -> Result<()> {
    manual_seed(0);
    let params: Params =
        (Tensor::randn([16, 8], DType::F64), Tensor::randn([16], DType::F64), Tensor::randn([4, 16], DType::F64));
    let x = Tensor::randn([32, 8], DType::F64);
    let targets = Tensor::from_slice(&(0..32).map(|k| k % 4).collect::<Vec<i64>>(), [32]);

    let per_sample = |(x, t): &(Tensor, Tensor)| grad(|p: &Params| loss(p, x, t))(&params);
    let (w1, _, _) = vmap(per_sample).call(&(x.clone(), targets.clone()))?;
    assert_eq!(w1.shape(), [32, 16, 8]);

    let mut difference = 0.0f64;
    for k in 0..32 {
        let one = grad(|p: &Params| loss(p, &x.select(0, k), &targets.select(0, k)))(&params)?;
        difference = difference.max((w1.select(0, k) - &one.0).abs().amax(.., false).item());
    }
    println!("largest difference from a loop over the samples: {difference:.1e}");
    assert!(difference < 1e-12);
    Ok(())
}
