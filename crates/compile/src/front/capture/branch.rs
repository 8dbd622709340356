//! Sides of conditionals (`firebrand_graph::cond`): traced one after the other, each into a graph of its own.

use super::{Body, Session};
use firebrand_core::{Tensor, capture as core_capture};
use firebrand_graph::BranchRecorder;
use firebrand_graph::trace::Trace;

impl BranchRecorder for Session {
    fn begin(&self, branch: Trace) {
        let mut state = self.lock();
        let waiting = std::mem::replace(&mut state.trace, branch);
        state.outer.push(waiting);
        state.body = Body::Branch;
    }

    fn end(&self) -> Trace {
        let mut state = self.lock();
        let waiting = state.outer.pop().expect("what ends has begun");
        if state.outer.is_empty() {
            state.body = Body::Function;
        }
        std::mem::replace(&mut state.trace, waiting)
    }

    fn edit(&self, f: &mut dyn FnMut(&mut Trace)) {
        f(&mut self.lock().trace);
    }

    fn is_active(&self) -> bool {
        // Inside a pure hook ops go to the hook's trace, which takes no conditional: the read of the predicate says so.
        core_capture::is_capturing() && self.lock().body != Body::PureHook
    }

    fn prepare(&self, stand_in: &Tensor) {
        if self.plan.varies() {
            stand_in.mark_symbolic();
        }
    }
}
