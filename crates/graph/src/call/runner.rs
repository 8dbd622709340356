//! How a program's nodes run: as the interpreter runs them, with autocast regions in force.

use super::autocast;
use crate::error::Result;
use crate::interpret::{Call, NodeRunner, Value, run_call, run_module};
use crate::ir::{Argument, Function, Hop, Kind, Target};
use firebrand_core::{DType, Device};

/// Runs nodes for real; keeps the autocast regions that are open.
#[derive(Default)]
pub(crate) struct Runner {
    /// The last one counts; none switches autocast off.
    regions: Vec<Option<DType>>,
    /// A device that stands for every device the program names.
    device: Option<Device>,
    /// Takes conditionals whose predicate has no memory.
    conditional: Option<Conditional>,
}

/// What is done with a conditional.
type Conditional = Box<dyn Fn(&Call<'_>) -> Result<Value>>;

impl Runner {
    /// Runs on this device, whatever the program names.
    pub(crate) fn on(device: Device) -> Runner {
        Runner { device: Some(device), ..Runner::default() }
    }

    /// Leaves conditionals whose predicate has no memory to `f`.
    pub(crate) fn with_conditional(self, f: impl Fn(&Call<'_>) -> Result<Value> + 'static) -> Runner {
        Runner { conditional: Some(Box::new(f)), ..self }
    }

    fn autocast(&self) -> Option<DType> {
        self.regions.last().copied().flatten()
    }

    /// The state inside a region that begins with these arguments.
    fn region(&self, device: &Value, dtype: &Value, enabled: &Value) -> Result<Option<DType>> {
        if !matches!(device, Value::Constant(Argument::Str(d)) if &**d == "cpu") {
            // Regions of other devices do not concern what runs here.
            return Ok(self.autocast());
        }
        let lower = match dtype {
            Value::Constant(Argument::DType(d)) => d.dtype(),
            _ => None,
        };
        Ok(enabled.scalar()?.to_bool().then_some(lower.unwrap_or(DType::BF16)))
    }
}

impl NodeRunner for Runner {
    fn device(&self) -> Option<Device> {
        self.device
    }

    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        let Kind::CallFunction(target) = call.module.graph[call.node].kind() else { return run_call(self, call) };
        match (target, &call.args[..]) {
            (Target::Op(op), _) => match self.autocast() {
                Some(lower) => {
                    let mut cast = Call { args: call.args.clone(), kwargs: call.kwargs.clone(), ..*call };
                    let values = cast.args.iter_mut().chain(cast.kwargs.iter_mut().map(|(_, v)| v));
                    autocast::cast(op.base(), lower, values)?;
                    run_call(self, &cast)
                }
                None => run_call(self, call),
            },
            (Target::Hop(Hop::WrapWithAutocast), [device, dtype, enabled, _cache, body, operands @ ..]) => {
                let depth = self.regions.len();
                self.regions.push(self.region(device, dtype, enabled)?);
                let result = run_module(self, body.graph()?, operands);
                self.regions.truncate(depth);
                result
            }
            (Target::Hop(Hop::Cond), [Value::Tensor(pred), ..]) if pred.is_meta() => match &self.conditional {
                Some(f) => f(call),
                None => run_call(self, call),
            },
            (Target::Function(Function::EnterAutocast), [device, dtype, enabled, ..]) => {
                self.regions.push(self.region(device, dtype, enabled)?);
                Ok(Value::NONE)
            }
            (Target::Function(Function::ExitAutocast), _) => {
                self.regions.pop();
                Ok(Value::NONE)
            }
            _ => run_call(self, call),
        }
    }
}
