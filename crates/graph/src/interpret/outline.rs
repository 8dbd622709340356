//! Running on meta tensors: every value gets its sizes, strides and dtype, and nothing is computed.
//!
//! No side of a conditional can be chosen then: both run, and their results must match.

use super::{Call, NodeRunner, Value, attach, run_call, run_module};
use crate::error::{Error, Result};
use crate::ir::{Hop, Kind, Target};
use firebrand_core::{Device, Spec, Tensor};

/// Runs nodes on meta tensors.
#[derive(Debug, Default)]
pub struct Outlined;

impl NodeRunner for Outlined {
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        match outline_cond(self, call) {
            Some(result) => result,
            None => run_call(self, call),
        }
    }

    fn device(&self) -> Option<Device> {
        Some(Device::Meta)
    }
}

/// The result of a conditional whose predicate is a meta tensor; `None` for other calls. Both sides run through
/// `runner`.
pub fn outline_cond(runner: &mut dyn NodeRunner, call: &Call<'_>) -> Option<Result<Value>> {
    let Kind::CallFunction(Target::Hop(Hop::Cond)) = call.module.graph[call.node].kind() else { return None };
    match &call.args[..] {
        [Value::Tensor(pred), yes, no, operands] if pred.is_meta() => Some(both(runner, yes, no, operands)),
        _ => None,
    }
}

fn both(runner: &mut dyn NodeRunner, yes: &Value, no: &Value, operands: &Value) -> Result<Value> {
    let first = run_module(runner, yes.graph()?, operands.items()?)?;
    let second = run_module(runner, no.graph()?, operands.items()?)?;
    let (first, second) = (first.items()?, second.items()?);
    if first.len() != second.len() {
        let (a, b) = (first.len(), second.len());
        return Err(Error::Value(format!("the branches of cond return {a} and {b} values; they must match")));
    }
    let one = |(a, b): (&Value, &Value)| match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) => Ok(Value::Tensor(like_both(a, b)?)),
        (a, _) => Ok(a.clone()),
    };
    attach(Value::List(first.iter().zip(second).map(one).collect::<Result<_>>()?), operands)
}

/// A tensor of its own like both, with the strides of both if they agree.
fn like_both(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        let shown = |t: &Tensor| format!("{:?} of sizes {:?}", t.dtype(), t.shape());
        return Err(Error::Value(format!("the branches of cond return {} and {}", shown(a), shown(b))));
    }
    let agree = a.strides() == b.strides() && a.layout().is_non_overlapping_and_dense();
    let layout = if agree { a.layout().from_start() } else { a.layout().to_contiguous() };
    Ok(Tensor::try_empty(Spec { layout, dtype: a.dtype(), device: Device::Meta })?)
}
