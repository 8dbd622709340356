//! Compiling a function and a module: gradients, hooks, dynamic sizes, and explanations of graph breaks.
//!
//! `cargo run --release --example compile`

use firebrand::compile::{Options, backends, compile_module, compile_with, counter, explain};
use firebrand::nn::layers::{Linear, ReLU, Sequential};
use firebrand::prelude::*;
use std::sync::Arc;

fn main() {
    let frames = counter(backends::eager());
    let options = Options { fullgraph: true, ..Options::with_backend(frames.clone()) };

    // A closure over tensors. The hook on the inner value is part of the graph.
    let f = compile_with(
        |(x, w): &(Tensor, Tensor)| {
            let y = (x * w).sin();
            y.register_hook(|g: &Tensor| g * 2.0);
            y.sum()
        },
        options.clone(),
    );
    let (x, w) = (Tensor::new(&[0.5f32, 1.0]).requires_grad_(), Tensor::new(&[2.0f32, 3.0]));
    f.call(&(x.clone(), w)).backward();
    println!("gradient: {}", x.grad().expect("backward has run"));

    // A module: weights are inputs of the graph, so training does not recompile.
    let net = Arc::new(Sequential::new().then(Linear::new(4, 8)).then(ReLU::new()).then(Linear::new(8, 1)));
    let model = compile_module::<_, Tensor>(net, options);
    for batch in [16, 32, 48] {
        let loss = model.call(&Tensor::randn([batch, 4], DType::F32)).sum();
        loss.backward();
        println!("batch {batch}: loss {:.3}, graphs so far {}", loss.item::<f32>(), frames.frames());
    }

    // Reading a value breaks the graph; `explain` says where.
    let told = explain(|x: &Tensor| if x.sum().item::<f32>() > 0.0 { x * 2.0 } else { x * 3.0 }, &x);
    match told {
        Ok(told) => print!("{told}"),
        Err(e) => println!("{e}"),
    }
}
