//! `torch_nn::_linear_cross_entropy_batch_chunked` and its kin without a reduction: the cross entropy of a linear layer's outputs as one
//! op, which exported programs of language models carry.
//!
//! PyTorch computes it in chunks of the batch to save memory, and its gradients along with it; chunk sizes change no value, so here the
//! whole batch is one chunk. Gradients are computed when they are asked for. There is no second derivative, as in PyTorch.

use super::{OpCall, define};
use crate::autograd::{EnableGrad, GradOptions, Target, grad, is_grad_enabled};
use crate::dispatch::{Args, Op};
use crate::{Error, Result, Spec, Tensor, ops};

const SCALAR: &str = "torch_nn::_linear_cross_entropy_batch_chunked";
const PER_SAMPLE: &str = "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction";

/// Registers the op of this name if it is one of the two.
pub(super) fn by_name(name: &str) -> Option<Op> {
    match name {
        SCALAR => scalar().ok(),
        PER_SAMPLE => per_sample().ok(),
        _ => None,
    }
}

/// The arguments that decide the loss.
struct Call<'a> {
    input: &'a Tensor,
    linear_weight: &'a Tensor,
    target: &'a Tensor,
    linear_bias: Option<&'a Tensor>,
    weight: Option<&'a Tensor>,
    reduction: i64,
    ignore_index: i64,
    label_smoothing: f64,
}

impl<'a> Call<'a> {
    fn new(a: &Args<'a>, reduces: bool) -> Result<Call<'a>> {
        let reduction = match if reduces { a.str(5, "reduction")? } else { "none" } {
            "none" => 0,
            "mean" => 1,
            "sum" => 2,
            other => return Err(Error::argument(a.op(), format!("expected a reduction mean or sum, found {other:?}"))),
        };
        Ok(Call {
            input: a.tensor(0, "input")?,
            linear_weight: a.tensor(1, "linear_weight")?,
            target: a.tensor(2, "target")?,
            linear_bias: a.opt_tensor(3, "linear_bias")?,
            weight: a.opt_tensor(4, "weight")?,
            reduction,
            ignore_index: a.int(if reduces { 6 } else { 5 }, "ignore_index")?,
            label_smoothing: if reduces { a.float(7, "label_smoothing")? } else { 0.0 },
        })
    }

    /// The loss for these operands in place of the call's own.
    fn loss(
        &self,
        input: &Tensor,
        linear_weight: &Tensor,
        target: &Tensor,
        bias: Option<&Tensor>,
        weight: Option<&Tensor>,
    ) -> Result<Tensor> {
        let like = |t: &Tensor| ops::formulas::cast(t, self.input.dtype());
        let bias = bias.map(like).transpose()?;
        let logits = ops::linear(input, &like(linear_weight)?, bias.as_ref())?;
        let (weight, ignored) = (weight.map(like).transpose()?, self.ignore_index.into());
        ops::cross_entropy_loss(&logits, target, weight.as_ref(), self.reduction, ignored, self.label_smoothing)
    }

    /// The loss.
    fn run(&self) -> Result<Tensor> {
        self.loss(self.input, self.linear_weight, self.target, self.linear_bias, self.weight)
    }

    /// Gradients of input, weight, target (if it is probabilities), bias and weights of classes, as far as they are wanted; `seed` is
    /// that of the loss.
    fn gradients(&self, wanted: [bool; 5], seed: Option<&Tensor>) -> Result<[Option<Tensor>; 5]> {
        let _recording = EnableGrad::new();
        let leaf = |t: &Tensor, wanted: bool| t.detach().try_requires_grad_(wanted);
        let (x, w) = (leaf(self.input, wanted[0])?, leaf(self.linear_weight, wanted[1])?);
        let t = leaf(self.target, wanted[2] && self.target.is_floating_point())?;
        let b = self.linear_bias.map(|b| leaf(b, wanted[3])).transpose()?;
        let each = self.weight.map(|c| leaf(c, wanted[4])).transpose()?;
        let loss = self.loss(&x, &w, &t, b.as_ref(), each.as_ref())?;
        let leaves = [Some(&x), Some(&w), Some(&t), b.as_ref(), each.as_ref()].map(|t| t.filter(|t| t.requires_grad()));
        let targets: Vec<Target> = leaves.iter().flatten().map(|&t| Target::from(t)).collect();
        if targets.is_empty() {
            return Ok([const { None }; 5]);
        }
        // Of targets that are classes, the weights of classes are constants, as in `cross_entropy_loss`.
        let options = GradOptions { grad_outputs: vec![seed.cloned()], allow_unused: Some(true), ..Default::default() };
        let mut found = grad(&loss, targets, &options)?.into_iter();
        Ok(leaves.map(|t| t.and_then(|_| found.next().flatten())))
    }
}

fn backward(call: &OpCall<'_>, grads: &[Option<Tensor>], reduces: bool) -> Result<Vec<Option<Tensor>>> {
    let args = call.args();
    let it = Call::new(&args, reduces)?;
    let needs = call.needs_input_grad();
    let Some(seed) = &grads[0] else { return Ok(vec![None; needs.len()]) };
    let operands = [Some(it.input), Some(it.linear_weight), Some(it.target), it.linear_bias, it.weight, Some(seed)];
    if is_grad_enabled() && operands.into_iter().flatten().any(Tensor::requires_grad) {
        return Err(Error::argument(args.op(), "there is no second derivative; use linear and cross_entropy_loss"));
    }
    // One place for each tensor that was given.
    let given = [true, true, true, it.linear_bias.is_some(), it.weight.is_some()];
    let mut places = needs.iter();
    let wanted = given.map(|given| given && places.next() == Some(&true));
    let found = it.gradients(wanted, Some(&seed.detach()))?;
    Ok(found.into_iter().zip(given).filter_map(|(g, given)| given.then_some(g)).collect())
}

/// Sum or mean; three further results hold the gradients that the call asks for, and are empty otherwise.
fn scalar() -> Result<Op> {
    let schema = format!(
        "{SCALAR}(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, str reduction, \
         SymInt ignore_index, float label_smoothing, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype, \
         bool allow_retain_graph, bool compute_input_grad, bool compute_linear_weight_grad, bool compute_linear_bias_grad) \
         -> (Tensor, Tensor, Tensor, Tensor)"
    );
    fn asked(a: &Args<'_>) -> Result<[bool; 3]> {
        Ok([a.bool(12, "")?, a.bool(13, "")?, a.bool(14, "")?])
    }
    fn specs(a: &Args<'_>) -> Result<Vec<Spec>> {
        let (input, weight, asked) = (a.tensor(0, "input")?, a.tensor(1, "linear_weight")?, asked(a)?);
        let spec = |sizes: &[usize]| Spec::new(sizes, input.dtype(), input.device());
        let bias = weight.shape().split_last().map_or(&[][..], |(_, lead)| lead);
        Ok(vec![
            spec(&[])?,
            spec(if asked[0] { input.shape() } else { &[0, 0] })?,
            spec(if asked[1] { weight.shape() } else { &[0, 0] })?,
            spec(if asked[2] { bias } else { &[0] })?,
        ])
    }
    let op = define(schema)
        .shape(specs)
        .kernel(|a| {
            let it = Call::new(a, true)?;
            let loss = it.run()?;
            let [input, weight, bias] = asked(a)?;
            let [input, weight, _, bias, _] = it.gradients([input, weight, false, bias, false], None)?;
            let mut results = vec![loss];
            for (spec, g) in specs(a)?.into_iter().skip(1).zip([input, weight, bias]) {
                results.push(match g {
                    Some(g) => ops::formulas::cast(&g, spec.dtype)?,
                    None => ops::formulas::zeros_of(&spec)?,
                });
            }
            Ok(results)
        })
        .backward(|call, grads| backward(call, grads, true))
        .registered()?;
    Ok(op.op())
}

fn per_sample() -> Result<Op> {
    let schema = format!(
        "{PER_SAMPLE}(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, \
         SymInt ignore_index, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype) -> Tensor"
    );
    let op = define(schema)
        .shape(|a| {
            let input = a.tensor(0, "input")?;
            let rows = input.shape().first().copied().unwrap_or(1);
            Ok(vec![Spec::new(&[rows], input.dtype(), input.device())?])
        })
        .kernel(|a| {
            let it = Call::new(a, false)?;
            Ok(vec![it.run()?])
        })
        .backward(|call, grads| backward(call, grads, false))
        .registered()?;
    Ok(op.op())
}
