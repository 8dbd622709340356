//! Decompositions: a traced graph with normalizations, softmax and activation derivatives decomposed into ops that a back
//! end can fuse.
//!
//! The graph runs once more on meta tensors, with these ops computed by others; everything else is copied. Decomposed
//! results agree with the kernels up to rounding.
#![deny(unreachable_patterns)] // a second rule for an op

use super::trace::outline;
use crate::error::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::Op;
use firebrand_core::{Device, Scalar, Spec, Tensor, ops};
use firebrand_graph::InnerTrace;
use firebrand_graph::interpret::{self, NodeRunner, Value, run_call, run_module};
use firebrand_graph::ir::{Function, GraphModule, Hop, OpOverload, Target, TensorMeta, Val};

/// How an op is computed by others.
type Rule = fn(&[Value]) -> firebrand_graph::Result<Value>;

/// The rule of an op that is decomposed.
fn rule(op: Op) -> Option<Rule> {
    Some(match op {
        Op::NATIVE_LAYER_NORM => layer_norm,
        Op::NATIVE_LAYER_NORM_BACKWARD => layer_norm_backward,
        Op::_SOFTMAX => softmax,
        Op::_SOFTMAX_BACKWARD_DATA => softmax_backward,
        Op::_LOG_SOFTMAX => log_softmax,
        Op::_LOG_SOFTMAX_BACKWARD_DATA => log_softmax_backward,
        Op::THRESHOLD_BACKWARD => threshold_backward,
        Op::SIGMOID_BACKWARD => sigmoid_backward,
        Op::TANH_BACKWARD => tanh_backward,
        _ => return None,
    })
}

fn op_of(target: Option<&Target>) -> Option<Op> {
    target.and_then(Target::overload).and_then(OpOverload::op)
}

/// The graph with those ops decomposed; inputs keep their names.
pub(super) fn decompose(module: GraphModule) -> Result<GraphModule> {
    let graph = &module.graph;
    if !graph.nodes().any(|n| op_of(graph[n].target()).and_then(rule).is_some()) {
        return Ok(module);
    }
    let tracer = InnerTrace::new();
    let mut inputs = Vec::new();
    for n in graph.placeholders() {
        let Some(Val::Tensor(meta)) = &graph[n].meta().val else {
            return Err(Error::internal("a traced graph has inputs that are not tensors"));
        };
        let tensor = outline(&TensorMeta { requires_grad: false, ..(**meta).clone() })?;
        tracer.input(graph[n].name(), &tensor);
        inputs.push(Value::Tensor(tensor));
    }
    let mut runner = Decomposer { tracer: tracer.clone() };
    let result = tracer.trace(|| no_grad(|| run_module(&mut runner, &module, &inputs)))?;
    let results = result.items()?.iter().map(|v| if v.is_none() { Ok(None) } else { Ok(Some(v.tensor()?.clone())) });
    Ok(tracer.finish(&results.collect::<Result<Vec<_>>>()?)?)
}

struct Decomposer {
    tracer: InnerTrace,
}

impl NodeRunner for Decomposer {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> firebrand_graph::Result<Value> {
        let target = call.module.graph[call.node].target();
        if target.is_some_and(|t| t.is_function(&Function::CallHook)) {
            let result = match &call.args[..] {
                [_, Value::Tensor(g)] => {
                    let layout = g.layout().dense_like();
                    Some(Tensor::try_empty(Spec { layout, dtype: g.dtype(), device: Device::Meta })?)
                }
                _ => None,
            };
            self.tracer.call(Function::CallHook, &call.args, result.as_ref())?;
            return Ok(result.map_or(Value::NONE, Value::Tensor));
        }
        if let (Some(Target::Hop(Hop::Cond)), Some(vals)) =
            (target, call.module.graph[call.node].meta().val.as_ref().and_then(Val::items))
        {
            // Its sides were decomposed when they were traced.
            let like = |val: &Val| val.tensor().map(outline).transpose().map_err(firebrand_core::Error::from);
            let results = vals.iter().map(like).collect::<firebrand_core::Result<Vec<_>>>()?;
            self.tracer.call_tuple(Hop::Cond, &call.args, &results)?;
            return Ok(Value::List(results.into_iter().map(|t| t.map_or(Value::NONE, Value::Tensor)).collect()));
        }
        match op_of(target).and_then(rule) {
            Some(rule) if call.kwargs.is_empty() => rule(&call.args),
            _ => run_call(self, call),
        }
    }

    fn device(&self) -> Option<Device> {
        Some(Device::Meta)
    }
}

fn optional(value: &Value) -> firebrand_graph::Result<Option<&Tensor>> {
    if value.is_none() { Ok(None) } else { value.tensor().map(Some) }
}

fn wrong(found: usize) -> firebrand_graph::Error {
    firebrand_graph::Error::Value(format!("a traced op has all of its arguments; found {found}"))
}

fn softmax(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [x, dim, _] = args else { return Err(wrong(args.len())) };
    let (x, dim) = (x.tensor()?, dim.scalar()?.to_i64());
    let e = ops::exp(&ops::sub(x, &ops::amax(x, &[dim], true)?, Scalar::Int(1))?)?;
    Ok(Value::Tensor(ops::div(&e, &ops::sum_dim(&e, Some(&[dim]), true, None)?)?))
}

fn softmax_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, y, dim, _] = args else { return Err(wrong(args.len())) };
    let (g, y, dim) = (g.tensor()?, y.tensor()?, dim.scalar()?.to_i64());
    let gy = ops::mul(g, y)?;
    let total = ops::sum_dim(&gy, Some(&[dim]), true, None)?;
    Ok(Value::Tensor(ops::sub(&gy, &ops::mul(y, &total)?, Scalar::Int(1))?))
}

fn log_softmax(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [x, dim, _] = args else { return Err(wrong(args.len())) };
    let (x, dim) = (x.tensor()?, dim.scalar()?.to_i64());
    let shifted = ops::sub(x, &ops::amax(x, &[dim], true)?, Scalar::Int(1))?;
    let total = ops::log(&ops::sum_dim(&ops::exp(&shifted)?, Some(&[dim]), true, None)?)?;
    Ok(Value::Tensor(ops::sub(&shifted, &total, Scalar::Int(1))?))
}

fn log_softmax_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, y, dim, _] = args else { return Err(wrong(args.len())) };
    let (g, y, dim) = (g.tensor()?, y.tensor()?, dim.scalar()?.to_i64());
    let total = ops::sum_dim(g, Some(&[dim]), true, None)?;
    Ok(Value::Tensor(ops::sub(g, &ops::mul(&ops::exp(y)?, &total)?, Scalar::Int(1))?))
}

fn threshold_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, x, threshold] = args else { return Err(wrong(args.len())) };
    let (g, x) = (g.tensor()?, x.tensor()?);
    let off = ops::le_scalar(x, threshold.scalar()?)?;
    Ok(Value::Tensor(ops::where_self(&off, &Tensor::try_wrapped_number(Scalar::Int(0))?, g)?))
}

/// `g (1 - y) y`
fn sigmoid_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, y] = args else { return Err(wrong(args.len())) };
    let (g, y) = (g.tensor()?, y.tensor()?);
    let rest = ops::rsub_scalar(y, Scalar::Int(1), Scalar::Int(1))?;
    Ok(Value::Tensor(ops::mul(&ops::mul(g, &rest)?, y)?))
}

/// `g (1 - y²)`
fn tanh_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, y] = args else { return Err(wrong(args.len())) };
    let (g, y) = (g.tensor()?, y.tensor()?);
    let slope = ops::rsub_scalar(&ops::mul(y, y)?, Scalar::Int(1), Scalar::Int(1))?;
    Ok(Value::Tensor(ops::mul(g, &slope)?))
}

fn layer_norm(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [x, shape, weight, bias, eps] = args else { return Err(wrong(args.len())) };
    let stats = normalised(x.tensor()?, shape.items()?.len(), optional(weight)?, optional(bias)?, eps)?;
    Ok(Value::List(stats.into_iter().map(Value::Tensor).collect()))
}

fn layer_norm_backward(args: &[Value]) -> firebrand_graph::Result<Value> {
    let [g, x, shape, mean, rstd, weight, _, mask] = args else { return Err(wrong(args.len())) };
    let given = Normalised { g: g.tensor()?, x: x.tensor()?, mean: mean.tensor()?, rstd: rstd.tensor()? };
    let wanted: Vec<bool> =
        mask.items()?.iter().map(|v| Ok(v.scalar()?.to_bool())).collect::<firebrand_graph::Result<_>>()?;
    let grads = given.backward(shape.items()?.len(), optional(weight)?, &wanted)?;
    Ok(Value::List(grads.into_iter().map(|g| g.map_or(Value::NONE, Value::Tensor)).collect()))
}

fn last_dims(x: &Tensor, count: usize) -> Vec<i64> {
    (x.ndim() - count.min(x.ndim())..x.ndim()).map(|d| d as i64).collect()
}

/// Output, mean and reciprocal deviation.
fn normalised(
    x: &Tensor,
    dims: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: &Value,
) -> firebrand_graph::Result<Vec<Tensor>> {
    let dims = last_dims(x, dims);
    let (var, mean) = ops::var_mean_correction(x, Some(&dims), Some(Scalar::Int(0)), true)?;
    let rstd = ops::rsqrt(&ops::add_scalar(&var, eps.scalar()?, Scalar::Int(1))?)?;
    let mut y = ops::mul(&ops::sub(x, &mean, Scalar::Int(1))?, &rstd)?;
    if let Some(w) = weight {
        y = ops::mul(&y, w)?;
    }
    if let Some(b) = bias {
        y = ops::add(&y, b, Scalar::Int(1))?;
    }
    Ok(vec![y, mean, rstd])
}

struct Normalised<'a> {
    g: &'a Tensor,
    x: &'a Tensor,
    mean: &'a Tensor,
    rstd: &'a Tensor,
}

impl Normalised<'_> {
    /// With x^ the normalized input, n its inner size and h = g w: rstd / n (n h - sum h - x^ sum(h x^)).
    fn backward(
        &self,
        dims: usize,
        weight: Option<&Tensor>,
        wanted: &[bool],
    ) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        let inner = last_dims(self.x, dims);
        let outer: Vec<i64> = (0..(self.x.ndim() - inner.len()) as i64).collect();
        let n: usize = inner.iter().map(|&d| self.x.shape()[d as usize]).product();
        let one = Scalar::Int(1);
        let hat = ops::mul(&ops::sub(self.x, self.mean, one)?, self.rstd)?;
        let sum = |t: &Tensor, dims: &[i64], keep| match dims.is_empty() {
            true => Ok(t.clone()),
            false => ops::sum_dim(t, Some(dims), keep, None),
        };
        let mut grads = vec![None, None, None];
        if wanted.first() == Some(&true) {
            let h = match weight {
                Some(w) => ops::mul(self.g, w)?,
                None => self.g.clone(),
            };
            let scaled = ops::mul_scalar(&h, Scalar::Int(n as i64))?;
            let total = sum(&h, &inner, true)?;
            let along = ops::mul(&hat, &sum(&ops::mul(&h, &hat)?, &inner, true)?)?;
            let rest = ops::sub(&ops::sub(&scaled, &total, one)?, &along, one)?;
            grads[0] = Some(ops::mul(&ops::div_scalar(self.rstd, Scalar::Int(n as i64))?, &rest)?);
        }
        if wanted.get(1) == Some(&true) && weight.is_some() {
            grads[1] = Some(sum(&ops::mul(self.g, &hat)?, &outer, false)?);
        }
        if wanted.get(2) == Some(&true) {
            grads[2] = Some(sum(self.g, &outer, false)?);
        }
        Ok(grads)
    }
}
