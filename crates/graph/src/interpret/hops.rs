//! Higher-order ops: run sub-graphs as eager code would, gradients included.

use super::{NodeRunner, Value, run_module};
use crate::error::{Error, Result};
use crate::ir::{Argument, Hop};
use firebrand_core::autograd::{AutocastGuard, AutocastOptions, Context, Function, is_grad_enabled, set_grad_enabled};
use firebrand_core::dispatch::{self, Value as Boxed};
use firebrand_core::{DType, Scalar, Tensor, ops};

fn wrong(hop: &Hop, message: impl std::fmt::Display) -> Error {
    Error::Value(format!("{}: {message}", hop.name()))
}

/// Calls a higher-order op.
pub(super) fn call_hop(runner: &mut dyn NodeRunner, hop: &Hop, args: &[Value]) -> Result<Value> {
    match (hop, args) {
        (Hop::WrapWithSetGradEnabled, [Value::Scalar(Scalar::Bool(on)), body, operands @ ..]) => {
            // Restored also when the body fails, which PyTorch does not do (R6).
            let _mode = set_grad_enabled(*on).scoped();
            run_module(runner, body.graph()?, operands)
        }
        (Hop::WrapWithAutocast, [device, dtype, enabled, _, body, operands @ ..]) => {
            let _region = autocast_options(device, dtype, enabled)?.map(AutocastGuard::new);
            run_module(runner, body.graph()?, operands)
        }
        (Hop::Cond, [predicate, yes, no, operands]) => {
            let branch = if predicate.scalar()?.to_bool() { yes } else { no };
            let operands = &entered(operands)?;
            let result = run_module(runner, branch.graph()?, operands.items()?)?;
            attach(owned(result, operands)?, operands)
        }
        (Hop::WhileLoop, [condition, body, carried, extra]) => {
            let result = while_loop(runner, condition, body, carried, extra)?;
            attach(result, &Value::List(vec![carried.clone(), extra.clone()]))
        }
        (Hop::MapImpl, [body, xs, extra]) => {
            let steps = slices(hop, xs.items()?)?;
            let mut results = Vec::with_capacity(steps.len());
            for step in steps {
                let inputs: Vec<Value> = step.into_iter().chain(extra.items()?.iter().cloned()).collect();
                results.push(run_module(runner, body.graph()?, &inputs)?);
            }
            let result = stacked(hop, &results, 0).map(Value::List)?;
            attach(result, &Value::List(vec![xs.clone(), extra.clone()]))
        }
        (Hop::Scan, [body, init, xs, extra]) => {
            let mut carry = init.items()?.to_vec();
            let mut results = Vec::new();
            for step in slices(hop, xs.items()?)? {
                let extra = extra.items()?.iter().cloned();
                let inputs: Vec<Value> = carry.iter().cloned().chain(step).chain(extra).collect();
                let result = run_module(runner, body.graph()?, &inputs)?;
                let items = result.items()?;
                let (new, _) = items.split_at_checked(carry.len()).ok_or_else(|| {
                    wrong(hop, format!("the body returns {} values, fewer than {} carried", items.len(), carry.len()))
                })?;
                carry = new.to_vec();
                results.push(result);
            }
            let skip = carry.len();
            carry.extend(stacked(hop, &results, skip)?);
            attach(Value::List(carry), &Value::List(vec![init.clone(), xs.clone(), extra.clone()]))
        }
        (Hop::InvokeSubgraph, [body, Value::Constant(Argument::Str(_)), operands @ ..]) => {
            run_module(runner, body.graph()?, operands)
        }
        (Hop::WithData, [history, value]) => with_data(history.tensor()?, value.tensor()?).map(Value::Tensor),
        _ => Err(wrong(hop, format!("cannot be called with {} arguments of these types", args.len()))),
    }
}

/// The region that begins with these arguments; none for other devices, whose regions do not concern what runs here.
pub(crate) fn autocast_options(device: &Value, dtype: &Value, enabled: &Value) -> Result<Option<AutocastOptions>> {
    if !matches!(device, Value::Constant(Argument::Str(d)) if &**d == "cpu") {
        return Ok(None);
    }
    let lower = match dtype {
        Value::Constant(Argument::DType(d)) => d.dtype(),
        _ => None,
    };
    let (enabled, dtype) = (enabled.scalar()?.to_bool(), lower.unwrap_or(DType::BF16));
    Ok(Some(AutocastOptions { enabled, dtype, cache_enabled: false }))
}

/// The value of one tensor with the history of another: gradients go to the latter as they are.
fn with_data(history: &Tensor, value: &Tensor) -> Result<Tensor> {
    struct WithData;
    impl Function for WithData {
        fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> firebrand_core::Result<Vec<Tensor>> {
            Ok(vec![inputs[1].clone()])
        }
        fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> firebrand_core::Result<Vec<Option<Tensor>>> {
            Ok(vec![grads[0].clone(), None])
        }
    }
    Ok(WithData.apply(&[history, &value.detach()])?.remove(0))
}

/// The operands as a side of a conditional gets them: gradients leave it when all of it has run, in the order of the operands, whichever
/// side ran and whatever it used. The later a node is recorded the earlier it runs, so the first operand comes last here.
pub(crate) fn entered(operands: &Value) -> Result<Value> {
    let mut items = operands.items()?.to_vec();
    if is_grad_enabled() {
        for item in items.iter_mut().rev() {
            if let Value::Tensor(t) = item
                && t.requires_grad()
            {
                *item = Value::Tensor(ops::alias(t)?);
            }
        }
    }
    Ok(Value::List(items))
}

/// Results of a side of a conditional in memory of their own: one that shares it with an operand or another is copied.
pub(crate) fn owned(result: Value, operands: &Value) -> Result<Value> {
    let Value::List(items) = result else { return Ok(result) };
    let mut seen: Vec<Tensor> = operands.tensors().into_iter().cloned().collect();
    let mut one = |v: Value| match v {
        Value::Tensor(t) => {
            let t = if seen.iter().any(|s| s.shares_storage(&t)) { t.try_clone_tensor()? } else { t };
            seen.push(t.clone());
            Ok(Value::Tensor(t))
        }
        other => Ok(other),
    };
    Ok(Value::List(items.into_iter().map(&mut one).collect::<Result<_>>()?))
}

/// Makes a result depend on every operand that requires grad: those that the body did not use get zeros, as if the other
/// side of a conditional had been added with weight zero. Costs nothing but the nodes: what is added is the sum of no elements.
pub(crate) fn attach(result: Value, operands: &Value) -> Result<Value> {
    if !is_grad_enabled() {
        return Ok(result);
    }
    let mut zero: Option<Tensor> = None;
    for t in operands.tensors().into_iter().filter(|t| t.requires_grad()) {
        let t = if t.ndim() == 0 { t.try_unsqueeze(0)? } else { t.clone() };
        let nothing = t.try_slice(0, Some(0.into()), Some(0.into()), 1)?.try_sum()?;
        zero = Some(match zero {
            Some(z) => z.try_add(&nothing)?,
            None => nothing,
        });
    }
    match zero {
        Some(zero) => add_to_floats(result, &zero),
        None => Ok(result),
    }
}

fn add_to_floats(value: Value, zero: &Tensor) -> Result<Value> {
    Ok(match value {
        Value::List(items) => Value::List(items.into_iter().map(|v| add_to_floats(v, zero)).collect::<Result<_>>()?),
        Value::Tensor(t) if t.is_floating_point() => Value::Tensor(t.try_add(&zero.try_to_dtype(t.dtype())?)?),
        other => other,
    })
}

fn while_loop(
    runner: &mut dyn NodeRunner,
    condition: &Value,
    body: &Value,
    carried: &Value,
    extra: &Value,
) -> Result<Value> {
    let extra = extra.items()?;
    let mut carried = carried.items()?.to_vec();
    loop {
        let inputs: Vec<Value> = carried.iter().chain(extra).cloned().collect();
        let holds = match run_module(runner, condition.graph()?, &inputs)? {
            Value::List(items) if items.len() == 1 => items[0].scalar()?,
            one => one.scalar()?,
        };
        if !holds.to_bool() {
            return Ok(Value::List(carried));
        }
        let new = run_module(runner, body.graph()?, &inputs)?;
        let new = if let Value::Tensor(_) = new { vec![new] } else { new.items()?.to_vec() };
        if new.len() != carried.len() {
            let message = format!("the body returns {} values where {} are carried", new.len(), carried.len());
            return Err(wrong(&Hop::WhileLoop, message));
        }
        carried = new;
    }
}

/// The slices of each input along its first dimension, step by step.
fn slices(hop: &Hop, xs: &[Value]) -> Result<Vec<Vec<Value>>> {
    let tensors = xs.iter().map(Value::tensor).collect::<Result<Vec<&Tensor>>>()?;
    let lengths: Vec<_> = tensors.iter().map(|t| t.shape().first().copied()).collect();
    let Some(&Some(length)) = lengths.first() else {
        return Err(wrong(hop, "needs at least one tensor with a first dimension to iterate over"));
    };
    if lengths.iter().any(|l| *l != Some(length)) {
        return Err(wrong(hop, format!("the tensors to iterate over differ in their first dimension: {lengths:?}")));
    }
    let at = |t: &Tensor, i: usize| call1("aten::select.int", [t.into(), 0i64.into(), (i as i64).into()]);
    (0..length).map(|i| tensors.iter().map(|t| at(t, i)).collect()).collect()
}

/// The results of all steps, one stacked tensor each; the first `skip` of every step are left out.
fn stacked(hop: &Hop, steps: &[Value], skip: usize) -> Result<Vec<Value>> {
    let Some(first) = steps.first() else {
        return Err(wrong(hop, "iterates over no elements, so its results have no known shape"));
    };
    let count = first.items()?.len();
    let column = |k: usize| -> Result<Value> {
        let values = steps.iter().map(|s| s.items()?.get(k).unwrap_or(&Value::NONE).tensor().cloned());
        call1("aten::stack", [values.collect::<Result<Vec<Tensor>>>()?.into()])
    };
    (skip..count).map(column).collect()
}

fn call1<const N: usize>(name: &str, args: [Boxed; N]) -> Result<Value> {
    match dispatch::call_by_name(name, &args)?.pop() {
        Some(Boxed::Tensor(t)) => Ok(Value::Tensor(t)),
        other => Err(Error::Value(format!("{name} returned {other:?}"))),
    }
}
