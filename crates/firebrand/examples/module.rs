//! Writing your own model: a derived module, its hooks and its state.

use firebrand::prelude::*;

#[derive(Module)]
struct Linear {
    weight: Parameter,
    bias: Parameter,
    core: ModuleCore,
}

impl Linear {
    fn new(inputs: i64, outputs: i64) -> Linear {
        let scale = 1.0 / (inputs as f64).sqrt();
        Linear {
            weight: Parameter::new(Tensor::randn([outputs, inputs], DType::F32) * scale),
            bias: Parameter::new(Tensor::zeros([outputs], DType::F32)),
            core: ModuleCore::new(),
        }
    }
}

impl Forward for Linear {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.matmul(&self.weight.t()) + &*self.bias)
    }
}

#[derive(Module)]
struct Net {
    fc1: Linear,
    fc2: Linear,
    core: ModuleCore,
}

impl Forward for Net {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.fc2.call(&self.fc1.call(x).relu()))
    }
}

pub(crate) fn main() -> Result<()> {
    manual_seed(0);
    let net = Net { fc1: Linear::new(2, 16), fc2: Linear::new(16, 1), core: ModuleCore::new() };

    // Clip the gradient of the first layer's output.
    net.fc1.register_full_backward_pre_hook(|_, grads| {
        let clip = |g: &Tensor| g.clamp(Some((-1.0).into()), Some(1.0.into()));
        grads.iter().map(|g| g.as_ref().map(clip)).collect::<Vec<_>>()
    });

    // Learn the sum of two numbers.
    let x = Tensor::rand([64, 2], DType::F32);
    let target = x.sum_dim(1, true);
    let loss = || {
        let e = net.call(&x) - &target;
        (&e * &e).mean()
    };
    let first = loss().item::<f32>();
    for _ in 0..200 {
        net.zero_grad();
        loss().backward();
        no_grad(|| {
            for p in net.parameters() {
                p.sub_(&(p.grad().expect("backward reached every parameter") * 0.1));
            }
        });
    }
    let last = loss().item::<f32>();
    println!("loss {first:.4} -> {last:.4}");
    assert!(last < 0.1 * first);

    let state = net.state_dict();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
    let copy = Net { fc1: Linear::new(2, 16), fc2: Linear::new(16, 1), core: ModuleCore::new() };
    copy.load_state_dict(&state, true)?;
    assert_eq!(copy.call(&x).to_vec::<f32>(), net.call(&x).to_vec::<f32>());
    Ok(())
}
