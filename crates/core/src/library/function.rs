//! A call of a registered op: the custom function it is recorded as, and what lies below autograd.

use super::arguments::{Frame, complete};
use super::registry::{Entry, called};
use super::{OpCall, refused};
use crate::autograd::{BatchedOutputs, Context, Function, VmapInfo};
use crate::dispatch::{self, Args, Outputs, Value};
use crate::func::rules;
use crate::ops::devices;
use crate::state;
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

fn function_name(op: &str) -> String {
    op.replace("::", "_").replace('.', "_")
}

/// The name of an op's node.
pub(super) fn node_name(op: &str) -> String {
    function_name(op) + "Backward"
}

/// A full call: autograd and everything below it.
pub(crate) fn call(a: &Args<'_>) -> Result<Outputs> {
    let entry = called(a.op())?;
    let values = complete(entry.info.name, &entry.info.schema, &entry.defaults, a.values())?;
    let (frame, tensors) = Frame::split(&values);
    let outs = crate::autograd::apply_function(Arc::new(OpFunction { entry, frame }), tensors)?;
    Ok(outs.into_iter().map(Value::Tensor).collect())
}

/// A call below autograd: the kernel, or on the meta device the shape function.
pub(crate) fn below(a: &Args<'_>) -> Result<Outputs> {
    let entry = called(a.op())?;
    let values = complete(entry.info.name, &entry.info.schema, &entry.defaults, a.values())?;
    let args = Args::new(entry.info.name, &values);
    let (_, tensors) = Frame::split(&values);
    if devices::of_list(&tensors) == devices::MIXED {
        devices::refuse(entry.op, &values)?;
    }
    let specs = entry.body.shape.as_ref().map(|shape| shape(&args)).transpose()?;
    let outs = if tensors.iter().any(Tensor::is_meta) {
        let what = "a shape function, which the meta device and capture need; give one with shape()";
        let missing = || ErrorKind::NotImplemented { op: entry.info.name.to_string(), what: what.to_string() };
        specs.ok_or_else(missing)?.into_iter().map(Tensor::try_empty).collect::<Result<Vec<_>>>()?
    } else {
        let kernel = entry.body.kernel.as_ref().expect("checked when it was registered");
        let outs = kernel(&args)?;
        for (out, spec) in outs.iter().zip(specs.iter().flatten()) {
            if out.shape() != spec.layout.sizes() || out.dtype() != spec.dtype {
                let (shape, dtype) = (spec.layout.sizes(), spec.dtype);
                let message = format!(
                    "the kernel returned {} {:?}, the shape function says {dtype} {shape:?}",
                    out.dtype(),
                    out.shape()
                );
                return Err(Error::argument(entry.info.name, message));
            }
        }
        outs
    };
    let due = entry.info.schema.returns.len();
    if outs.len() != due {
        return Err(refused(entry.info.schema.text, format!("{} results were made, the schema has {due}", outs.len())));
    }
    Ok(outs.into_iter().map(Value::Tensor).collect())
}

struct OpFunction {
    entry: &'static Entry,
    frame: Frame,
}

impl OpFunction {
    fn values(&self, tensors: &[Tensor]) -> Vec<Value> {
        self.frame.join(tensors.iter().cloned().map(Some))
    }

    /// The call as a derivative sees it: `kept` are the tensor arguments, then the results.
    fn seen<'a>(&self, kept: Vec<Option<Tensor>>, needs_input_grad: &'a [bool]) -> OpCall<'a> {
        let tensors = self.frame.owners().count();
        let (args, results) = kept.split_at(tensors.min(kept.len()));
        OpCall {
            name: self.entry.info.name,
            args: self.frame.join(args.iter().cloned()),
            results: results.to_vec(),
            needs_input_grad,
        }
    }

    fn missing(&self, what: &'static str) -> Error {
        ErrorKind::FunctionNotImplemented { function: self.entry.info.name.to_string(), what }.into()
    }
}

impl Function for OpFunction {
    fn name(&self) -> String {
        function_name(self.entry.info.name)
    }

    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let values = self.values(inputs);
        let outs = match state::is(state::INNER) {
            true => dispatch::call_inner(self.entry.op, &values)?,
            false => below(&Args::new(self.entry.info.name, &values))?,
        };
        Ok(outs.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    }

    fn has_setup_context(&self) -> bool {
        true
    }

    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        if !self.entry.body.differentiable {
            ctx.mark_non_differentiable(&outputs.iter().collect::<Vec<_>>());
        }
        let all = || inputs.iter().chain(outputs);
        if self.entry.body.jvp.is_some() {
            ctx.save_for_forward(&all().map(Some).collect::<Vec<_>>());
        }
        if self.entry.body.backward.is_some() {
            let (args, results) = &self.entry.saves;
            let wanted = self.frame.owners().map(|k| args[k]).chain(results.iter().copied());
            ctx.save_for_backward(&all().zip(wanted).map(|(t, keep)| keep.then_some(t)).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let formula = self.entry.body.backward.as_ref().ok_or_else(|| self.missing("backward"))?;
        formula(&self.seen(ctx.saved_tensors()?, ctx.needs_input_grad()), grads)
    }

    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let formula = self.entry.body.jvp.as_ref().ok_or_else(|| self.missing("jvp"))?;
        formula(&self.seen(ctx.saved_for_forward().to_vec(), ctx.needs_input_grad()), tangents)
    }

    fn vmap(&self, info: VmapInfo, in_dims: &[Option<usize>], inputs: &[Tensor]) -> Result<Option<BatchedOutputs>> {
        let values = self.values(inputs);
        if let Some(rule) = &self.entry.body.vmap {
            return rule(info, in_dims, &Args::new(self.entry.info.name, &values)).map(Some);
        }
        let outs = rules::loop_over_samples(self.entry.op, &values, in_dims, info)?;
        let dims = vec![Some(0); outs.len()];
        Ok(Some((outs, dims)))
    }
}
