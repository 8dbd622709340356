//! sizes_at: runs a graph on meta tensors and reads the sizes of values inside it.

use crate::error::Result;
use crate::interpret::{Call, NodeRunner, Value, outline_cond, run_module};
use crate::ir::{GraphModule, NodeId};
use firebrand_core::Device;
use std::collections::HashMap;

/// Sizes of nodes.
pub type Sizes = HashMap<NodeId, Vec<i64>>;

/// Runs a graph on meta inputs, each call by `runner`, and keeps the sizes of the nodes that are `wanted`.
pub fn sizes_at(
    runner: &mut dyn NodeRunner,
    module: &GraphModule,
    inputs: &[Value],
    wanted: &dyn Fn(NodeId) -> bool,
) -> Result<Sizes> {
    let mut probe = Probe { inner: runner, wanted, found: Sizes::new(), top: module };
    run_module(&mut probe, module, inputs)?;
    Ok(probe.found)
}

struct Probe<'a> {
    inner: &'a mut dyn NodeRunner,
    wanted: &'a dyn Fn(NodeId) -> bool,
    found: Sizes,
    top: *const GraphModule,
}

impl NodeRunner for Probe<'_> {
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        let value = match outline_cond(self, call) {
            Some(value) => value?,
            None => self.inner.run_node(call)?,
        };
        if std::ptr::eq(call.module, self.top)
            && (self.wanted)(call.node)
            && let Value::Tensor(t) = &value
        {
            self.found.insert(call.node, t.layout().sizes().iter().map(|&n| n as i64).collect());
        }
        Ok(value)
    }

    fn device(&self) -> Option<Device> {
        Some(Device::Meta)
    }
}
