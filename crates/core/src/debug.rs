//! Types that print only their name: scopes, and types that hold closures.

firebrand_kernels::opaque_debug! {
    [T] crate::slot::Slot<T> => "Slot";
    [T: Clone + Send + Sync + 'static] crate::slot::SlotGuard<T> => "SlotGuard";
    [] crate::state::ThreadState => "ThreadState";
    [] crate::storage::Fork => "Fork";
    [] crate::capture::StandInScope => "StandInScope";
    [] crate::capture::CaptureScope => "CaptureScope";
    [] crate::dispatch::Cond<'_> => "Cond";
    [] crate::dispatch::Next<'_> => "Next";
    [] crate::tree::SharedRef => "SharedRef";
    [] crate::library::Definition => "Definition";
    [] crate::module::ModuleWatch => "ModuleWatch";
    [] crate::autograd::MutationGuard => "MutationGuard";
    [] crate::autograd::node::Needs<'_> => "Needs";
    [] crate::autograd::autocast::AutocastGuard => "AutocastGuard";
    [] crate::autograd::runner::Outcome => "Outcome";
    [] crate::autograd::runner::GraphTask<'_> => "GraphTask";
    [] crate::autograd::runner::RunnerScope => "RunnerScope";
    [] crate::autograd::saved::SavedHooks => "SavedHooks";
    [] crate::autograd::saved::SavedTensor => "SavedTensor";
    [T] crate::autograd::saved::SavedSlot<T> => "SavedSlot";
    [T] crate::autograd::saved::PlainSlot<T> => "PlainSlot";
    [] crate::autograd::function::Context => "Context";
    [] crate::autograd::ContextFn => "ContextFn";
    [] crate::autograd::node::WeakNode => "WeakNode";
    [] crate::profiler::RecordFunction => "RecordFunction";
    [] crate::races::Use => "Use";
    [] crate::tensor::WeakTensor => "WeakTensor";
    [A, O] crate::func::Linear<A, O> => "Linear";
    [F] crate::func::Vmap<F> => "Vmap";
}

impl std::fmt::Debug for crate::record::OpInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for crate::autograd::RemovableHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemovableHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for crate::autograd::GraphView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.nodes()).finish()
    }
}
