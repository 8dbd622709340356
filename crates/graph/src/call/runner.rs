//! Runs a program's nodes as the interpreter does, with autocast regions applied. How a region casts the arguments of an op
//! is decided in core.

use crate::error::Result;
use crate::interpret::{Call, NodeRunner, Value, autocast_options, run_call};
use crate::ir::{Function, Hop, Kind, ModuleStack, Target};
use firebrand_core::Device;
use firebrand_core::autograd::AutocastGuard;
use firebrand_core::profiler::{RecordFunction, is_profiling, record_function};

/// Executes nodes; tracks the open autocast regions.
#[derive(Default)]
pub(crate) struct Runner {
    regions: Regions,
    /// A device to use in place of every device in the program.
    device: Option<Device>,
    /// Handles conditionals whose predicate is a meta tensor.
    conditional: Option<Conditional>,
    labels: Labels,
}

/// Regions between markers, which end in reverse order also when a node fails. Those of other devices are none.
#[derive(Default)]
struct Regions(Vec<Option<AutocastGuard>>);

impl Drop for Regions {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// For a profile: the modules that the current node is part of, outermost first, each with its label.
#[derive(Default)]
struct Labels(Vec<(String, RecordFunction)>);

impl Labels {
    /// Leaves the modules that this node is not part of, and enters those it is.
    #[cold]
    fn follow(&mut self, stack: Option<&ModuleStack>) {
        let paths = || stack.into_iter().flat_map(|s| s.values()).map(|(path, _)| path).filter(|p| !p.is_empty());
        let shared = self.0.iter().zip(paths()).take_while(|((open, _), path)| open == *path).count();
        self.leave(shared);
        self.0.extend(paths().skip(shared).map(|path| (path.clone(), record_function(path))));
    }

    /// Closes the innermost ones first.
    fn leave(&mut self, kept: usize) {
        while self.0.len() > kept {
            self.0.pop();
        }
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        self.leave(0)
    }
}

/// What is done with a conditional.
type Conditional = Box<dyn Fn(&Call<'_>) -> Result<Value>>;

impl Runner {
    /// Runs on this device, regardless of the devices in the program.
    pub(crate) fn on(device: Device) -> Runner {
        Runner { device: Some(device), ..Runner::default() }
    }

    /// Uses `f` for conditionals whose predicate is a meta tensor.
    pub(crate) fn with_conditional(self, f: impl Fn(&Call<'_>) -> Result<Value> + 'static) -> Runner {
        Runner { conditional: Some(Box::new(f)), ..self }
    }
}

impl NodeRunner for Runner {
    fn device(&self) -> Option<Device> {
        self.device
    }

    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        if is_profiling() {
            self.labels.follow(call.module.graph[call.node].meta().nn_module_stack.as_deref());
        }
        let Kind::CallFunction(target) = call.module.graph[call.node].kind() else { return run_call(self, call) };
        match (target, &call.args[..]) {
            (Target::Hop(Hop::Cond), [Value::Tensor(pred), ..]) if pred.is_meta() => match &self.conditional {
                Some(f) => f(call),
                None => run_call(self, call),
            },
            (Target::Function(Function::EnterAutocast), [device, dtype, enabled, ..]) => {
                let options = autocast_options(device, dtype, enabled)?;
                self.regions.0.push(options.map(AutocastGuard::new));
                Ok(Value::NONE)
            }
            (Target::Function(Function::ExitAutocast), _) => {
                self.regions.0.pop();
                Ok(Value::NONE)
            }
            _ => run_call(self, call),
        }
    }
}
