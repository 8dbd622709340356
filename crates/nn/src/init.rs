//! Initialization of parameters, in place and without recording: PyTorch's `nn.init`, bit for bit.
//!
//! Every function draws the same values from the default generator as PyTorch's, in the same order.
//! ([`orthogonal_`] uses a QR decomposition, whose last digits depend on the implementation.)

use firebrand_core::autograd::no_grad;
use firebrand_core::{Error, Result, Scalar, Spec, Tensor, ops};

/// Which variance the scale of a weight preserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanMode {
    /// That of activations in the forward pass.
    #[default]
    In,
    /// That of gradients in the backward pass.
    Out,
}

/// The nonlinearity after a layer, which decides the gain of its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// None, or a sigmoid.
    Linear,
    /// Tanh.
    Tanh,
    /// ReLU.
    ReLU,
    /// Leaky ReLU with this negative slope.
    LeakyReLU(f64),
    /// SELU.
    SELU,
}

impl Nonlinearity {
    /// The recommended gain.
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear => 1.0,
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::ReLU => 2f64.sqrt(),
            Nonlinearity::LeakyReLU(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::SELU => 0.75,
        }
    }
}

/// Fan-in and fan-out of a weight.
pub fn fan_in_and_fan_out(weight: &Tensor) -> Result<(usize, usize)> {
    let [out, input, field @ ..] = weight.shape() else {
        let message = format!("expected a weight with at least 2 dimensions, found shape {:?}", weight.shape());
        return Err(Error::argument("fan_in_and_fan_out", message));
    };
    let field: usize = field.iter().product();
    Ok((input * field, out * field))
}

fn fan(weight: &Tensor, mode: FanMode) -> Result<f64> {
    let (input, output) = fan_in_and_fan_out(weight)?;
    Ok(if mode == FanMode::In { input } else { output } as f64)
}

/// Fills with uniform values from `low` to `high`.
pub fn uniform_(t: &Tensor, low: f64, high: f64) -> Result<()> {
    no_grad(|| ops::uniform_(t, low, high).map(drop))
}

/// Fills with normally distributed values.
pub fn normal_(t: &Tensor, mean: f64, std: f64) -> Result<()> {
    no_grad(|| ops::normal_(t, mean, std).map(drop))
}

/// Fills with one value.
pub fn constant_(t: &Tensor, value: impl Into<Scalar>) -> Result<()> {
    no_grad(|| ops::fill_(t, value.into()).map(drop))
}

/// Fills with zeros.
pub fn zeros_(t: &Tensor) -> Result<()> {
    constant_(t, 0)
}

/// Fills with ones.
pub fn ones_(t: &Tensor) -> Result<()> {
    constant_(t, 1)
}

/// Fills with the identity matrix.
pub fn eye_(t: &Tensor) -> Result<()> {
    let [n, m] = *t.shape() else {
        return Err(Error::argument("eye_", format!("expected a matrix, found shape {:?}", t.shape())));
    };
    no_grad(|| ops::copy_(t, &ops::eye_m(n.into(), m.into(), Some(t.dtype()), None)?, false).map(drop))
}

/// Kaiming (He) uniform initialization.
pub fn kaiming_uniform_(t: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    let std = nonlinearity.gain() / fan(t, mode)?.sqrt();
    let bound = 3f64.sqrt() * std;
    uniform_(t, -bound, bound)
}

/// Kaiming (He) normal initialization.
pub fn kaiming_normal_(t: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    normal_(t, 0.0, nonlinearity.gain() / fan(t, mode)?.sqrt())
}

/// Xavier (Glorot) uniform initialization.
pub fn xavier_uniform_(t: &Tensor, gain: f64) -> Result<()> {
    let (input, output) = fan_in_and_fan_out(t)?;
    let std = gain * (2.0 / (input + output) as f64).sqrt();
    let bound = 3f64.sqrt() * std;
    uniform_(t, -bound, bound)
}

/// Xavier (Glorot) normal initialization.
pub fn xavier_normal_(t: &Tensor, gain: f64) -> Result<()> {
    let (input, output) = fan_in_and_fan_out(t)?;
    normal_(t, 0.0, gain * (2.0 / (input + output) as f64).sqrt())
}

/// Fills with a matrix whose rows or columns, whichever are fewer, are orthonormal, times `gain`. Trailing dimensions are flattened.
pub fn orthogonal_(t: &Tensor, gain: f64) -> Result<()> {
    let [rows, rest @ ..] = t.shape() else {
        return Err(Error::argument("orthogonal_", "expected at least 2 dimensions, found a 0-dim tensor"));
    };
    if rest.is_empty() {
        let message = format!("expected at least 2 dimensions, found shape {:?}", t.shape());
        return Err(Error::argument("orthogonal_", message));
    }
    if t.numel() == 0 {
        return Ok(());
    }
    let (rows, columns) = (*rows, rest.iter().product::<usize>());
    no_grad(|| {
        let flat = Tensor::try_empty(Spec::new(&[rows, columns], t.dtype(), t.device())?)?;
        ops::normal_(&flat, 0.0, 1.0)?;
        let tall = if rows < columns { ops::t(&flat)? } else { flat };
        let (q, r) = ops::linalg_qr(&tall, "reduced")?;
        // The decomposition leaves signs open; with these the result is uniformly distributed.
        let q = ops::mul(&q, &ops::sign(&ops::diagonal(&r, 0, 0, 1)?)?)?;
        let q = if rows < columns { ops::t(&q)? } else { q };
        ops::copy_(t, &ops::reshape(&q, &t.shape().iter().map(|&n| n.into()).collect::<Vec<_>>())?, false)?;
        ops::mul_scalar_(t, gain.into()).map(drop)
    })
}

/// Fills a convolution's weight so that it preserves as many input channels as possible in each group.
pub fn dirac_(t: &Tensor, groups: usize) -> Result<()> {
    let [out, inputs, kernel @ ..] = t.shape() else {
        return Err(Error::argument("dirac_", format!("expected 3 to 5 dimensions, found shape {:?}", t.shape())));
    };
    if !(1..=3).contains(&kernel.len()) || groups == 0 || out % groups != 0 {
        let message = format!("expected 3 to 5 dimensions, the first divisible by {groups}, found {:?}", t.shape());
        return Err(Error::argument("dirac_", message));
    }
    let per_group = out / groups;
    no_grad(|| {
        zeros_(t)?;
        for (group, d) in (0..groups).flat_map(|g| (0..per_group.min(*inputs)).map(move |d| (g, d))) {
            let mut at = ops::select(&ops::select(t, 0, (group * per_group + d).into())?, 0, d.into())?;
            for size in kernel {
                at = ops::select(&at, 0, (size / 2).into())?;
            }
            ops::fill_(&at, 1.into())?;
        }
        Ok(())
    })
}

/// Fills with normal values truncated to `low` and `high`; values outside are drawn again.
pub fn trunc_normal_(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    if [low, high, std].iter().any(|v| v.is_nan()) || low > high || std <= 0.0 {
        let message = format!("expected low <= high and std > 0, found {low}, {high} and {std}");
        return Err(Error::argument("trunc_normal_", message));
    }
    let below = |x: f64| Ok::<f64, Error>((1.0 + Tensor::scalar(x / 2f64.sqrt()).erf().try_item::<f64>()?) / 2.0);
    let inside = below((high - mean) / std)? - below((low - mean) / std)?;
    no_grad(|| if inside > 0.3 { redraw(t, mean, std, low, high) } else { reject(t, mean, std, low, high) })
}

/// Most of the distribution is inside: draw normal values until all are.
fn redraw(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    // The bounds as the tensor's dtype sees them.
    let seen = |v: f64| ops::item(&Tensor::try_full([1], v, t.dtype())?);
    let (low, high) = (seen(low)?, seen(high)?);
    let mut result = ops::normal_(t, mean, std)?.clone();
    loop {
        let outside = ops::logical_or(&ops::lt_scalar(&result, low)?, &ops::gt_scalar(&result, high)?)?;
        if !ops::item(&ops::any(&outside)?)?.to_bool() {
            break;
        }
        let again = ops::empty_like(&result, None, None, None)?;
        result = ops::where_self(&outside, ops::normal_(&again, mean, std)?, &result)?;
    }
    if !result.is_same(t) {
        ops::copy_(t, &result, false)?;
    }
    Ok(())
}

/// Little of it is inside: draw uniform candidates and accept them with probability density / peak density.
fn reject(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    let mode = mean.min(high).max(low);
    let log_peak = -0.5 * ((mode - mean) / std).powi(2);
    let chance = ops::empty_like(t, None, None, None)?;
    let refused = |candidates: &Tensor| -> Result<Tensor> {
        let z = ops::div_scalar(&ops::sub_scalar(candidates, mean.into(), 1.into())?, std.into())?;
        let log_density = ops::mul_scalar(&ops::pow_scalar(&z, 2.into())?, (-0.5).into())?;
        let log_ratio = ops::sub_scalar(&log_density, log_peak.into(), 1.into())?;
        ops::gt(&ops::log(ops::uniform_(&chance, 0.0, 1.0)?)?, &log_ratio)
    };
    ops::uniform_(t, low, high)?;
    let mut pending = refused(t)?;
    let mut result = t.clone();
    while ops::item(&ops::any(&pending)?)?.to_bool() {
        let candidates = ops::empty_like(t, None, None, None)?;
        ops::uniform_(&candidates, low, high)?;
        result = ops::where_self(&pending, &candidates, &result)?;
        pending = ops::logical_and(&pending, &refused(&candidates)?)?;
    }
    if !result.is_same(t) {
        ops::copy_(t, &result, false)?;
    }
    Ok(())
}

/// The default initialization of linear and convolutional layers, for weight and bias.
pub(crate) fn default_weight_and_bias(weight: &Tensor, bias: Option<&Tensor>) -> Result<()> {
    kaiming_uniform_(weight, FanMode::In, Nonlinearity::LeakyReLU(5f64.sqrt()))?;
    let (inputs, _) = fan_in_and_fan_out(weight)?;
    match bias {
        Some(bias) if inputs > 0 => {
            let bound = 1.0 / (inputs as f64).sqrt();
            uniform_(bias, -bound, bound)
        }
        _ => Ok(()),
    }
}
