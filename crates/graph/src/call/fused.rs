//! A frozen layer with its adapter, and the activation before it, as one node of the autograd graph.
//!
//! A layer `x W + b` and its adapter `s (x A) B` share their result, and in the backward pass the gradient of their input: products add
//! to it where it is, and no sum is made of two wide values. The node saves the layer's input and `s x A`, and lets go of the input
//! before it makes the gradient of the input, which is as large. What is computed is what the ops would compute, up to rounding.

use crate::interpret::Value;
use crate::ir::{Argument, Name, OpOverload};
use firebrand_core::autograd::{Context, Function, is_grad_enabled};
use firebrand_core::dispatch::Op;
use firebrand_core::fusion::is_sole_owner;
use firebrand_core::{DType, Result, Scalar, SymInt, Tensor, ops};

const ONE: Scalar = Scalar::Int(1);

/// The weights under an adapter, which are not trained.
#[derive(Clone)]
enum Weights {
    /// A matrix of one column per result.
    Matrix(Tensor),
    /// Integers and scales of `bits` bits, one row per result.
    Quantized { integers: Tensor, scale: Tensor, bits: i64 },
}

/// A frozen layer with an adapter: a function of the layer's input, `A` and `B`.
#[derive(Clone)]
pub(super) struct Adapted {
    weights: Weights,
    bias: Option<Tensor>,
    scaling: f64,
    /// Of the input, before all else.
    activation: Option<Activation>,
}

/// An activation that is part of the layer behind it.
#[derive(Clone)]
pub(super) enum Activation {
    /// With how it is approximated.
    Gelu(String),
    Silu,
}

impl Activation {
    /// That of a call.
    pub(super) fn of(op: &OpOverload, args: &[Value], kwargs: &[(Name, Value)]) -> Option<Activation> {
        match (op.op(), kwargs, args) {
            (Some(Op::SILU), [], [_]) => Some(Activation::Silu),
            (Some(Op::GELU), [], [_]) => Some(Activation::Gelu("none".to_string())),
            (Some(Op::GELU), [(name, Value::Constant(Argument::Str(text)))], [_]) if &**name == "approximate" => {
                Some(Activation::Gelu(text.to_string()))
            }
            _ => None,
        }
    }

    /// Its value, recorded.
    pub(super) fn apply_to(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Activation::Gelu(approximate) => ops::gelu(x, approximate),
            Activation::Silu => ops::silu(x),
        }
    }

    fn gradient(&self, grad: &Tensor, x: &Tensor) -> Result<Tensor> {
        match self {
            Activation::Gelu(approximate) => ops::gelu_backward(grad, x, approximate),
            Activation::Silu => ops::silu_backward(grad, x),
        }
    }
}

/// So many elements at a time, where a value would be needed as a whole only for a moment.
const PART: usize = 1 << 18;

impl Adapted {
    /// The layer's input and the function, if this call is one that is known and nothing of it is trained.
    pub(super) fn of(op: Op, args: &[Value], scaling: f64) -> Option<(Tensor, Adapted)> {
        let tensor = |i: usize| args.get(i).and_then(|v| v.tensor().ok()).cloned();
        let optional = |i: usize| match args.get(i) {
            None => Some(None),
            Some(v) if v.is_none() => Some(None),
            Some(v) => v.tensor().ok().map(|t| Some(t.clone())),
        };
        let (x, weights, bias) = match op {
            Op::LINEAR => (tensor(0)?, Weights::Matrix(ops::t(&tensor(1)?.detach()).ok()?), optional(2)?),
            Op::ADDMM if args.len() == 3 => (tensor(1)?, Weights::Matrix(tensor(2)?.detach()), optional(0)?),
            Op::MM => (tensor(0)?, Weights::Matrix(tensor(1)?.detach()), None),
            Op::_LINEAR_QUANTIZED => {
                let Some(Value::Scalar(bits)) = args.get(4) else { return None };
                let weights =
                    Weights::Quantized { integers: tensor(1)?, scale: tensor(2)?, bits: bits.to_f64() as i64 };
                (tensor(0)?, weights, optional(3)?)
            }
            _ => return None,
        };
        let trained = args.iter().filter_map(|v| v.tensor().ok()).any(|t| t.requires_grad() && !t.is_same(&x));
        let dtype = x.dtype();
        let same = match &weights {
            Weights::Matrix(m) => m.dtype() == dtype && m.ndim() == 2,
            Weights::Quantized { scale, .. } => scale.dtype() == dtype,
        } && bias.as_ref().is_none_or(|b| b.dtype() == dtype && b.ndim() == 1);
        let plain = matches!(dtype, DType::F32 | DType::F64) && x.ndim() >= 2 && x.numel() > 0 && x.is_contiguous();
        (!trained && same && plain).then_some((x, Adapted { weights, bias, scaling, activation: None }))
    }

    /// With an activation before it.
    pub(super) fn after(self, activation: Option<Activation>) -> Adapted {
        Adapted { activation, ..self }
    }

    /// Whether `A` and `B` are of a dtype and of sizes that this computes with.
    pub(super) fn fits(&self, x: &Tensor, a: &Tensor, b: &Tensor) -> bool {
        let (width, rank) = (x.shape().last().copied(), a.shape().first().copied());
        (a.ndim() == 2 && b.ndim() == 2)
            && (a.dtype() == x.dtype() && b.dtype() == x.dtype())
            && (a.shape().last().copied() == width && b.shape().last().copied() == rank)
    }

    /// The result, and `s x A`. Not recorded. An activation is computed some rows at a time.
    pub(super) fn compute(&self, x: &Tensor, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
        let rows = as_rows(x)?;
        let step = PART / rows.shape()[1].max(1);
        let (y, narrow) = if self.activation.is_some() && step >= 16 && rows.shape()[0] > step {
            let mut made = (Vec::new(), Vec::new());
            for from in (0..rows.shape()[0]).step_by(step) {
                let (y, narrow) = self.of_rows(&part(&rows, from, step)?, a, b)?;
                made.0.push(y);
                made.1.push(narrow);
            }
            let join = |list: Vec<Tensor>| ops::cat(&list, 0);
            (join(made.0)?, join(made.1)?)
        } else {
            self.of_rows(&rows, a, b)?
        };
        let mut sizes: Vec<SymInt> = x.shape()[..x.ndim() - 1].iter().map(|&n| n.into()).collect();
        sizes.push(y.shape()[1].into());
        Ok((ops::unsafe_view(&y, &sizes)?, narrow))
    }

    fn of_rows(&self, rows: &Tensor, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
        let rows = self.activated(rows)?;
        let y = match (&self.weights, &self.bias) {
            (Weights::Matrix(m), Some(bias)) => ops::addmm(bias, &rows, m, ONE, ONE)?,
            (Weights::Matrix(m), None) => ops::mm(&rows, m)?,
            (Weights::Quantized { integers, scale, bits }, bias) => {
                ops::_linear_quantized(&rows, integers, scale, bias.as_ref(), *bits)?
            }
        };
        let narrow = ops::mm(&rows, &ops::t(a)?)?;
        if self.scaling != 1.0 {
            ops::mul_scalar_(&narrow, self.scaling.into())?;
        }
        ops::addmm_(&y, &narrow, &ops::t(b)?, ONE, ONE)?;
        Ok((y, narrow))
    }

    /// What is saved of the weights: they may not change until the backward pass.
    fn saved(&self) -> Vec<Option<&Tensor>> {
        match &self.weights {
            Weights::Matrix(m) => vec![Some(m)],
            Weights::Quantized { integers, scale, .. } => vec![Some(integers), Some(scale)],
        }
    }

    /// The weights as a matrix of one row per result.
    fn rows_of(&self, saved: &[Option<Tensor>]) -> Result<Option<Tensor>> {
        Ok(match (&self.weights, saved) {
            (Weights::Matrix(_), [Some(m)]) => Some(ops::t(m)?),
            (Weights::Quantized { bits, .. }, [Some(integers), Some(scale)]) => {
                Some(ops::_dequantize_groups(integers, scale, *bits)?)
            }
            _ => None,
        })
    }
}

/// So many rows from `from` on, or as many as there are.
fn part(t: &Tensor, from: usize, count: usize) -> Result<Tensor> {
    let to = (from + count).min(t.shape()[0]);
    ops::slice(t, 0, Some(from.into()), Some(to.into()), 1.into())
}

/// All dimensions but the last as one.
fn as_rows(x: &Tensor) -> Result<Tensor> {
    let &[.., width] = x.shape() else { return Ok(x.clone()) };
    if x.ndim() == 2 { Ok(x.clone()) } else { ops::reshape(x, &[(x.numel() / width.max(1)).into(), width.into()]) }
}

impl Function for Adapted {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (y, narrow) = self.compute(&inputs[0], &inputs[1], &inputs[2])?;
        let mut saved = vec![Some(&inputs[0]), Some(&narrow), Some(&inputs[1]), Some(&inputs[2])];
        saved.extend(self.saved());
        ctx.save_for_backward(&saved);
        Ok(vec![y])
    }

    fn takes_saved_tensors(&self) -> bool {
        true
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        self.backward_owned(ctx, grads.to_vec())
    }

    fn backward_owned(&self, ctx: &Context, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(vec![None; 3]) };
        let mut saved = ctx.take_saved_tensors()?.into_iter();
        let mut next = || saved.next().flatten();
        let (Some(x), Some(narrow), Some(a), Some(b)) = (next(), next(), next(), next()) else {
            return Ok(vec![None; 3]);
        };
        let weights: Vec<Option<Tensor>> = saved.collect();
        let needs = ctx.needs_input_grad();
        let given = Given { x, narrow, a, b, grad: as_rows(&grad)? };
        let fresh = !is_grad_enabled();
        if let (Some(activation), true, true, Some(weights)) =
            (&self.activation, fresh, needs[0] && needs[1], self.rows_of(&weights)?)
        {
            return self.in_parts(activation, given, &weights, needs[2]);
        }
        let Given { x, narrow, a, b, grad } = given;
        let sizes: Vec<SymInt> = x.shape().iter().map(|&n| n.into()).collect();
        let grad_b = if needs[2] {
            // A second derivative sees what `narrow` is made of.
            let narrow = if fresh { narrow } else { self.narrow(&x, &a)? };
            Some(ops::mm(&ops::t(&grad)?, &narrow)?)
        } else {
            None
        };
        let back = self.back(&grad, &b)?;
        let input = self.activated(&as_rows(&x)?)?;
        let grad_a = if needs[1] { Some(ops::mm(&ops::t(&back)?, &input)?) } else { None };
        drop(input);
        let kept = self.activation.as_ref().map(|activation| (activation, x));
        let mut grad_x = None;
        if let (true, Some(weights)) = (needs[0], self.rows_of(&weights)?) {
            let product = ops::mm(&grad, &weights)?;
            let mut sum = if fresh {
                ops::addmm_(&product, &back, &a, ONE, ONE)?;
                product
            } else {
                ops::addmm(&product, &back, &a, ONE, ONE)?
            };
            if let Some((activation, x)) = kept {
                sum = activation.gradient(&sum, &as_rows(&x)?)?;
            }
            grad_x = Some(ops::unsafe_view(&sum, &sizes)?);
        }
        Ok(vec![grad_x, grad_a, grad_b])
    }
}

/// What the gradient is computed from; the gradient as rows.
struct Given {
    x: Tensor,
    narrow: Tensor,
    a: Tensor,
    b: Tensor,
    grad: Tensor,
}

impl Adapted {
    fn activated(&self, x: &Tensor) -> Result<Tensor> {
        self.activation.as_ref().map_or_else(|| Ok(x.clone()), |activation| activation.apply_to(x))
    }

    /// The gradient of the product with `A`.
    fn back(&self, grad: &Tensor, b: &Tensor) -> Result<Tensor> {
        let back = ops::mm(grad, b)?;
        if self.scaling == 1.0 { Ok(back) } else { ops::mul_scalar(&back, self.scaling.into()) }
    }

    /// The gradients, some rows at a time: neither the activation nor its gradient exists as a whole, and the gradient of what the
    /// activation reads takes its place in memory, if nothing else can see it.
    fn in_parts(
        &self,
        activation: &Activation,
        given: Given,
        weights: &Tensor,
        b: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        let Given { mut x, narrow, a, b: wide, grad } = given;
        let grad_b = if b { Some(ops::mm(&ops::t(&grad)?, &narrow)?) } else { None };
        let own = x.is_contiguous() && is_sole_owner(&mut x);
        let result = if own { x.detach() } else { Tensor::zeros(x.shape(), x.dtype()) };
        let (rows, into) = (as_rows(&x)?, as_rows(&result)?);
        let step = (PART / rows.shape()[1].max(1)).max(16);
        let mut grad_a: Option<Tensor> = None;
        for from in (0..rows.shape()[0]).step_by(step) {
            let part = |t: &Tensor| part(t, from, step);
            let (grad, rows) = (part(&grad)?, part(&rows)?);
            let back = self.back(&grad, &wide)?;
            let input = activation.apply_to(&rows)?;
            match &grad_a {
                None => grad_a = Some(ops::mm(&ops::t(&back)?, &input)?),
                Some(sum) => _ = ops::addmm_(sum, &ops::t(&back)?, &input, ONE, ONE)?,
            }
            drop(input);
            let product = ops::mm(&grad, weights)?;
            ops::addmm_(&product, &back, &a, ONE, ONE)?;
            ops::copy_(&part(&into)?, &activation.gradient(&product, &rows)?, false)?;
        }
        drop((rows, into));
        Ok(vec![Some(result), grad_a, grad_b])
    }

    fn narrow(&self, x: &Tensor, a: &Tensor) -> Result<Tensor> {
        ops::mul_scalar(&ops::mm(&self.activated(&as_rows(x)?)?, &ops::t(a)?)?, self.scaling.into())
    }
}
