//! Hooks: observe and change gradients during backward, and act when they have been accumulated.

use firebrand::prelude::*;
use std::sync::{Arc, Mutex};

pub(crate) fn main() -> Result<()> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let log = log.clone();
        move || log.lock().expect("nobody panics here").push(text)
    };

    let w = Tensor::new(&[1.0f64, -2.0]).requires_grad_();
    let hidden = w.exp();
    let loss = (&hidden * &hidden).sum();

    // On a tensor: sees its gradient and may replace it. Here gradients are clipped by hand.
    let seen = note("gradient of hidden");
    hidden.register_hook(move |g: &Tensor| {
        seen();
        g * 0.5
    });
    // On a node of the graph: sees all incoming gradients.
    let seen = note("SumBackward0 is next");
    let node = loss.grad_fn().expect("the loss was computed");
    node.register_prehook(move |_grads| {
        seen();
        Ok(None)
    });
    // On a leaf, once its gradient is stored: a whole optimizer fits in here.
    let seen = note("w has its gradient");
    let handle = w.try_register_post_accumulate_grad_hook(move |w: &Tensor| -> Result<()> {
        seen();
        no_grad(|| w.try_sub_(&(w.grad().expect("just stored") * 0.1)))?;
        w.zero_grad();
        Ok(())
    })?;

    loss.backward();
    handle.remove();
    let order = log.lock().expect("nobody panics here").clone();
    println!("{order:#?}\nw is now {w:?}");
    assert_eq!(order, ["SumBackward0 is next", "gradient of hidden", "w has its gradient"]);
    // d/dw Σexp(w)² = 2·exp(2w), halved by the first hook, times the learning rate.
    let expected = [1.0 - 0.1 * 2f64.exp(), -2.0 - 0.1 * (-4f64).exp()];
    assert!(w.to_vec::<f64>().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12));
    Ok(())
}
