//! The built-in model and its loss.

use firebrand::{DType, Result, Tensor, ops};

struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Uniform within one over the root of the inputs: what PyTorch's layer of this name does.
    fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = (inputs as f64).powf(-0.5);
        let uniform = |sizes: &[usize]| -> Result<Tensor> {
            let t = Tensor::empty(sizes, DType::F32);
            ops::uniform_(&t, -bound, bound)?;
            t.try_requires_grad_(true)
        };
        Ok(Linear { weight: uniform(&[outputs, inputs])?, bias: uniform(&[outputs])? })
    }
}

/// Fully connected layers with ReLU between them.
pub(crate) struct Mlp(Vec<Linear>);

impl Mlp {
    /// With these sizes, from inputs to outputs; weights are drawn from the default generator.
    pub(crate) fn new(sizes: &[usize]) -> Result<Mlp> {
        sizes.windows(2).map(|w| Linear::new(w[0], w[1])).collect::<Result<_>>().map(Mlp)
    }

    /// Weights and biases, layer by layer.
    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        self.0.iter().flat_map(|l| [l.weight.clone(), l.bias.clone()]).collect()
    }

    /// Logits of a batch.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (k, layer) in self.0.iter().enumerate() {
            if k > 0 {
                x = ops::relu(&x)?;
            }
            x = ops::linear(&x, &layer.weight, Some(&layer.bias))?;
        }
        Ok(x)
    }
}

/// Mean over the batch of what the label's class is worth in nats.
pub(crate) fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    const MEAN: i64 = 1;
    const IGNORED_LABEL: i64 = -100;
    ops::cross_entropy_loss(logits, labels, None, MEAN, IGNORED_LABEL.into(), 0.0)
}
