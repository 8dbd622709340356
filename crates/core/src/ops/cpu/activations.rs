//! Activations and the kernels of their gradients: one pass each.

use super::fused::{Fused, V};
use super::pointwise::{scalars_op, unary_op};
use crate::layout::Layout;
use crate::ops::shape::wrap_dim;
use crate::{Result, Scalar, Tensor};
use firebrand_kernels::pointwise::Op;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// Activations that are one instruction.
macro_rules! functions {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, out: &Tensor) -> Result<()> {
            unary_op(Op::$op, out.dtype(), a, out)
        }
    )*};
}
functions! { relu Relu, mish Mish }

/// `x sigmoid(x)`: one instruction for real numbers, two for complex ones.
pub(crate) fn silu(a: &Tensor, out: &Tensor) -> Result<()> {
    if out.is_complex() { complex_silu(a, out) } else { unary_op(Op::Silu, out.dtype(), a, out) }
}

/// Formulas whose inputs are tensors only.
macro_rules! formulas {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident),*) = $formula:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: &Tensor,)* out: &Tensor) -> Result<()> {
            static FORMULA: Fused<{ [$(stringify!($arg)),*].len() }> = Fused::new($formula);
            FORMULA.run(out.dtype(), [$($arg.into()),*], out)
        }
    )*};
}
formulas! {
    /// `relu6(x + 3) / 6`.
    fn hardsigmoid(a) = |[x]| (x + 3.0).clamp(0.0, 6.0) / 6.0;
    /// `x relu6(x + 3) / 6`.
    fn hardswish(a) = |[x]| x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
    /// The slope is `weight` below zero.
    fn prelu_kernel(a, weight) = |[x, w]| x.gt(0.0).select(x, w * x);
    fn complex_silu(a) = |[x]| x * x.one(Op::Sigmoid);
    /// From the result `y` of `tanh`.
    fn tanh_backward(grad, output) = |[g, y]| g * (1.0 - y * y).conj();
    /// From the result `y` of `sigmoid`.
    fn sigmoid_backward(grad, output) = |[g, y]| g * (1.0 - y).conj() * y.conj();
    /// `s (1 + x (1 - s))` with the sigmoid `s`.
    fn silu_backward(grad, input) = |[g, x]| {
        let s = x.one(Op::Sigmoid);
        g * (s * x.mul_add(1.0 - s, 1.0)).conj()
    };
    /// `t + x s (1 - t^2)` with the sigmoid `s` and `t = tanh(softplus(x))`.
    fn mish_backward(grad, input) = |[g, x]| {
        let t = softplus_of(x).one(Op::Tanh);
        g * (x * x.one(Op::Sigmoid)).mul_add((-t).mul_add(t, 1.0), t)
    };
    /// Zero outside -3 to 3, one sixth inside.
    fn hardsigmoid_backward(grad, input) = |[g, x]| x.gt(-3.0).and(x.lt(3.0)).select(g * (1.0 / 6.0), 0.0);
    /// Zero below -3, one above 3, linear between.
    fn hardswish_backward(grad, input) = |[g, x]| x.le(-3.0).select(0.0, x.lt(3.0).select(g * (x / 3.0 + 0.5), g));
    /// From `buffer = e^-|x|`.
    fn log_sigmoid_backward(grad, input, buffer) = |[g, x, z]| {
        let below = x.lt(0.0);
        let share = z / (1.0 + z);
        g * below.select(1.0 - share, share)
    };
    /// `e^-|x|`.
    fn log_sigmoid_buffer(a) = |[x]| (-x.one(Op::Abs)).one(Op::Exp);
    /// `a sigmoid(b)`.
    fn gated(a, b) = |[a, b]| a * b.one(Op::Sigmoid);
    /// The gradient of `a sigmoid(b)` for `b`.
    fn gated_backward(grad, a, b) = |[g, a, b]| {
        let s = b.one(Op::Sigmoid);
        (1.0 - s) * s * g * a
    };
    /// The error function's `x Phi(x)`, differentiated.
    fn gelu_backward_erf(grad, input) = |[g, x]| {
        let below = 0.5 * (1.0 + (x * FRAC_1_SQRT_2).one(Op::Erf));
        let density = (x * x * -0.5).one(Op::Exp) * (FRAC_2_SQRT_PI / SQRT_2 / 2.0);
        g * (below + x * density)
    };
    /// The approximation by tanh, differentiated.
    fn gelu_backward_tanh(grad, input) = |[g, x]| {
        const BETA: f64 = SQRT_2 * FRAC_2_SQRT_PI / 2.0;
        const KAPPA: f64 = 0.044715;
        let square = x * x;
        let t = (BETA * (x + KAPPA * square * x)).one(Op::Tanh);
        let slope = (1.0 - t * t) * BETA * (1.0 + 3.0 * KAPPA * square);
        g * (0.5 * (1.0 + t) + 0.5 * x * slope)
    };
}

/// `log(1 + e^x)`, and `x` itself where that is the same number.
fn softplus_of(x: V<'_>) -> V<'_> {
    x.gt(20.0).select(x, x.one(Op::Exp).one(Op::Log1p))
}

/// `gelu`, exact or by tanh.
pub(crate) fn gelu(a: &Tensor, approximate: &str, out: &Tensor) -> Result<()> {
    let op = if approximate == "tanh" { Op::GeluTanh } else { Op::Gelu };
    unary_op(op, out.dtype(), a, out)
}

/// The gradient of `gelu`.
pub(crate) fn gelu_backward(grad: &Tensor, a: &Tensor, approximate: &str, out: &Tensor) -> Result<()> {
    if approximate == "tanh" { gelu_backward_tanh(grad, a, out) } else { gelu_backward_erf(grad, a, out) }
}

/// `log(sigmoid(a))`, and the buffer its gradient starts from.
pub(crate) fn log_sigmoid_forward(a: &Tensor, out: &Tensor, buffer: &Tensor) -> Result<()> {
    unary_op(Op::LogSigmoid, out.dtype(), a, out)?;
    log_sigmoid_buffer(a, buffer)
}

// ---- with numbers

/// `log(1 + e^(beta a)) / beta`, and `a` itself above the threshold.
pub(crate) fn softplus(a: &Tensor, beta: Scalar, threshold: Scalar, out: &Tensor) -> Result<()> {
    scalars_op(Op::Softplus, out.dtype(), a, beta, threshold, out)
}

static SOFTPLUS_BACKWARD: Fused<4> = Fused::new(|[g, x, beta, threshold]| {
    let y = x * beta;
    y.gt(threshold).select(g, g * y.one(Op::Sigmoid))
});

/// The gradient of `softplus`.
pub(crate) fn softplus_backward(
    grad: &Tensor,
    a: &Tensor,
    beta: Scalar,
    threshold: Scalar,
    out: &Tensor,
) -> Result<()> {
    SOFTPLUS_BACKWARD.run(out.dtype(), [grad.into(), a.into(), beta.into(), threshold.into()], out)
}

static ELU: Fused<4> = Fused::new(|[x, negative, scale, input_scale]| {
    x.lt(0.0).select((x * input_scale).one(Op::Expm1) * negative, x * scale)
});
static ELU_BACKWARD: Fused<5> = Fused::new(|[g, x, negative, scale, input_scale]| {
    x.le(0.0).select(g * input_scale * negative * (x * input_scale).one(Op::Exp), g * scale)
});
static ELU_BACKWARD_OF_RESULT: Fused<5> =
    Fused::new(|[g, y, negative, scale, input_scale]| y.le(0.0).select(g * input_scale * (y + negative), g * scale));

/// `scale a` above zero, `alpha scale (e^(input_scale a) - 1)` below.
pub(crate) fn elu(a: &Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar, out: &Tensor) -> Result<()> {
    let negative = alpha.to_f64() * scale.to_f64();
    ELU.run(out.dtype(), [a.into(), negative.into(), scale.into(), input_scale.into()], out)
}

/// `elu` that is smooth at zero for every `alpha`.
pub(crate) fn celu(a: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    elu(a, alpha, Scalar::Float(1.0), Scalar::Float(1.0 / alpha.to_f64()), out)
}

/// The gradient of `elu`, from its input or from its result.
pub(crate) fn elu_backward(
    grad: &Tensor,
    alpha: Scalar,
    scale: Scalar,
    input_scale: Scalar,
    is_result: bool,
    a: &Tensor,
    out: &Tensor,
) -> Result<()> {
    let negative = alpha.to_f64() * scale.to_f64();
    let formula = if is_result { &ELU_BACKWARD_OF_RESULT } else { &ELU_BACKWARD };
    formula.run(out.dtype(), [grad.into(), a.into(), negative.into(), scale.into(), input_scale.into()], out)
}

static LEAKY_RELU: Fused<2> = Fused::new(|[x, slope]| x.gt(0.0).select(x, x * slope));
static LEAKY_RELU_BACKWARD: Fused<3> = Fused::new(|[g, x, slope]| x.gt(0.0).select(g, g * slope));

/// A small slope below zero.
pub(crate) fn leaky_relu(a: &Tensor, slope: Scalar, out: &Tensor) -> Result<()> {
    LEAKY_RELU.run(out.dtype(), [a.into(), slope.into()], out)
}

/// The gradient of `leaky_relu`; input and result have one sign.
pub(crate) fn leaky_relu_backward(
    grad: &Tensor,
    a: &Tensor,
    slope: Scalar,
    _is_result: bool,
    out: &Tensor,
) -> Result<()> {
    LEAKY_RELU_BACKWARD.run(out.dtype(), [grad.into(), a.into(), slope.into()], out)
}

static HARDTANH_BACKWARD: Fused<4> =
    Fused::new(|[g, x, min, max]| x.le(min).select(0.0, x.two(Op::Ge, max).select(0.0, g)));

/// Between two numbers.
pub(crate) fn hardtanh(a: &Tensor, min: Scalar, max: Scalar, out: &Tensor) -> Result<()> {
    scalars_op(Op::Clamp, out.dtype(), a, min, max, out)
}

/// The gradient of `hardtanh`: none at the bounds.
pub(crate) fn hardtanh_backward(grad: &Tensor, a: &Tensor, min: Scalar, max: Scalar, out: &Tensor) -> Result<()> {
    HARDTANH_BACKWARD.run(out.dtype(), [grad.into(), a.into(), min.into(), max.into()], out)
}

static HARDSHRINK: Fused<2> = Fused::new(|[x, lambd]| x.one(Op::Abs).le(lambd).select(0.0, x));
static SOFTSHRINK: Fused<2> =
    Fused::new(|[x, lambd]| x.gt(lambd).select(x - lambd, x.lt(-lambd).select(x + lambd, x * 0.0)));
static SHRINK_BACKWARD: Fused<3> = Fused::new(|[g, x, lambd]| x.one(Op::Abs).le(lambd).select(0.0, g));

/// Zero near zero.
pub(crate) fn hardshrink(a: &Tensor, lambd: Scalar, out: &Tensor) -> Result<()> {
    HARDSHRINK.run(out.dtype(), [a.into(), lambd.into()], out)
}

/// Zero near zero, and nearer to zero elsewhere.
pub(crate) fn softshrink(a: &Tensor, lambd: Scalar, out: &Tensor) -> Result<()> {
    SOFTSHRINK.run(out.dtype(), [a.into(), lambd.into()], out)
}

/// The gradient of both.
pub(crate) fn shrink_backward(grad: &Tensor, a: &Tensor, lambd: Scalar, out: &Tensor) -> Result<()> {
    SHRINK_BACKWARD.run(out.dtype(), [grad.into(), a.into(), lambd.into()], out)
}

static THRESHOLD: Fused<3> = Fused::new(|[x, threshold, value]| x.le(threshold).select(value, x));
static THRESHOLD_BACKWARD: Fused<3> = Fused::new(|[g, x, threshold]| x.le(threshold).select(0.0, g));

/// `value` up to the threshold.
pub(crate) fn threshold(a: &Tensor, threshold: Scalar, value: Scalar, out: &Tensor) -> Result<()> {
    THRESHOLD.run(out.dtype(), [a.into(), threshold.into(), value.into()], out)
}

/// The gradient of `threshold` and of `relu`.
pub(crate) fn threshold_backward(grad: &Tensor, a: &Tensor, threshold: Scalar, out: &Tensor) -> Result<()> {
    THRESHOLD_BACKWARD.run(out.dtype(), [grad.into(), a.into(), threshold.into()], out)
}

// ---- gates

/// The two halves along a dimension.
fn halves(op: &'static str, t: &Tensor, dim: i64) -> Result<[Tensor; 2]> {
    let d = wrap_dim(op, dim, t.ndim())?;
    let half = t.shape()[d] / 2;
    let mut sizes = t.dims();
    sizes[d] = half;
    let part =
        |k: usize| t.alias_with(Layout::derived(&sizes, t.strides(), t.layout().offset() + k * half * t.strides()[d]));
    Ok([part(0), part(1)])
}

/// The first half, gated by the second.
pub(crate) fn glu(a: &Tensor, dim: i64, out: &Tensor) -> Result<()> {
    let [first, second] = halves("glu", a, dim)?;
    gated(&first, &second, out)
}

/// The gradient of `glu`.
pub(crate) fn glu_backward(grad: &Tensor, a: &Tensor, dim: i64, out: &Tensor) -> Result<()> {
    let [first, second] = halves("glu_backward", a, dim)?;
    let [grad_first, grad_second] = halves("glu_backward", out, dim)?;
    gated(grad, &second, &grad_first)?;
    gated_backward(grad, &first, &second, &grad_second)
}
