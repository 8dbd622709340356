//! A training loop by hand: two layers on the bundled digits, plain gradient descent, only ops.

use firebrand::digits;
use firebrand::prelude::*;

/// Weights drawn uniformly from ±bound.
fn uniform(sizes: [usize; 2], bound: f64) -> Tensor {
    let t = Tensor::empty(sizes, DType::F32);
    t.uniform_(-bound, bound);
    t.requires_grad_()
}

pub(crate) fn main() {
    let (train, test) = (digits::train(), digits::test());
    manual_seed(0);
    let parameters = [uniform([64, 48], 0.2), Tensor::zeros([48], DType::F32).requires_grad_(), uniform([48, 10], 0.2)];
    let forward = |x: &Tensor| (x.mm(&parameters[0]) + &parameters[1]).relu().mm(&parameters[2]);

    for epoch in 1..=150 {
        let log_p = forward(&train.images).log_softmax(1);
        let loss = -log_p.gather(1, &train.labels.unsqueeze(1)).mean();
        loss.backward();
        no_grad(|| {
            for p in &parameters {
                p.sub_(&(p.grad().expect("every parameter is used") * 0.5));
                p.zero_grad();
            }
        });
        if epoch % 30 == 0 {
            println!("epoch {epoch:>3}  loss {:.4}", loss.item::<f32>());
        }
    }
    let right = no_grad(|| forward(&test.images).argmax(Some(1), false).eq(&test.labels).sum());
    let accuracy = right.item::<f64>() / test.labels.numel() as f64;
    println!("test accuracy {:.1}%", 100.0 * accuracy);
    assert!(accuracy > 0.9, "{accuracy}");
}
