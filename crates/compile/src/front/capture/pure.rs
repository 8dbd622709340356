//! Pure hooks: their body is traced and becomes part of the graph.

use super::tracer::HandleProxy;
use super::{HookBody, HookNode, Session, State, session};
use crate::breaks::BreakKind;
use firebrand_core::autograd::{HookResult, RemovableHandle};
use firebrand_core::capture::{self as core_capture, TensorHookFn};
use firebrand_core::{Result, Tensor};
use firebrand_graph::ir::{Argument, Attribute, GraphModule, NodeId};
use firebrand_graph::trace::{Free, Trace, outline};
use std::sync::Arc;

/// Puts a hook on `t` whose body is only computation on tensors.
#[track_caller]
pub(crate) fn register_pure_hook<R: HookResult>(
    t: &Tensor,
    hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
) -> Result<RemovableHandle> {
    match session() {
        Some(session) if !session.is_source(t) => {
            let hook = Arc::new(hook);
            let called = hook.clone();
            let called: TensorHookFn = Arc::new(move |g| g.map_or(Ok(None), |g| called(g).into_result()));
            session.trace_hook(t, |grad| hook(grad).into_result(), called)
        }
        _ => t.try_register_pure_hook(hook),
    }
}

/// A hook whose body is in the graph.
pub(crate) struct PureHook {
    pub(crate) handle: u64,
    pub(crate) node: NodeId,
    /// What its handles refer to.
    proxy: Arc<HandleProxy>,
    /// The hook itself.
    called: TensorHookFn,
}

impl State {
    /// The graph is about to end. A hook to which somebody still holds a handle may be removed later: it is called, since
    /// nothing can be taken out of a compiled graph.
    pub(super) fn call_removable_hooks(&mut self) {
        for hook in std::mem::take(&mut self.pure_hooks) {
            if Arc::weak_count(&hook.proxy) == 0 {
                continue;
            }
            let graph = &mut self.trace.module_mut().graph;
            let on = graph[hook.node].args()[0].clone();
            graph.set_args(hook.node, vec![on, Argument::Int(0)]);
            self.hooks.push(HookNode { node: hook.node, hook: hook.called, handle: hook.handle });
        }
    }
}

impl Session {
    fn trace_hook(
        self: &Arc<Self>,
        t: &Tensor,
        body: impl FnOnce(&Tensor) -> Result<Option<Tensor>>,
        called: TensorHookFn,
    ) -> Result<RemovableHandle> {
        if !t.requires_grad() {
            return t.try_register_hook(|_: &Tensor| ()); // says why not, as an eager run does
        }
        if self.transforms() {
            self.only_ops("register_pure_hook", None)?;
        }
        let grad = core_capture::suspended(|| outline(&t.detach()))?;
        grad.mark_symbolic();
        {
            let mut state = self.lock();
            let mut inner = Trace::new(false, Free::Input);
            inner.input("grad", &grad);
            let outer = std::mem::replace(&mut *state.trace, inner);
            state.in_pure_hook = Some(HookBody { grad: grad.clone(), on: t.clone(), outer });
        }
        let result = firebrand_core::autograd::no_grad(|| body(&grad));
        let (mut inner, failed) = {
            let mut state = self.lock();
            let lost = || firebrand_core::Error::user("the trace of a hook ended before the hook did");
            let outer = state.in_pure_hook.take().ok_or_else(lost)?.outer;
            (std::mem::replace(&mut *state.trace, outer), state.error.is_some())
        };
        let result = result?;
        if failed {
            return Err(firebrand_core::Error::user("a hook that was declared pure is not"));
        }
        let Some(result) = result else { return self.removable(t, None, called) };
        let free: Vec<Tensor> = inner.captured().iter().map(|(t, _)| t.clone()).collect();
        let node = inner.node(&result).map_err(firebrand_core::Error::user)?;
        let free_after = inner.captured().len();
        let graph = inner.finish(vec![node.into()]);
        self.check_pure(&graph, &result, t)?;
        debug_assert_eq!(free_after, free.len(), "the result of a hook is computed in it, or is the gradient");
        self.removable(t, Some((graph, free)), called)
    }

    fn check_pure(&self, graph: &GraphModule, result: &Tensor, t: &Tensor) -> Result<()> {
        let writes = graph.graph.nodes().find(|&n| {
            graph.graph[n].target().and_then(|t| t.overload()).and_then(|o| o.schema()).is_some_and(|s| s.mutates())
        });
        if let Some(n) = writes {
            let what = format!("{} in place", graph.graph[n].name());
            self.note_break(BreakKind::ImpureHook, what, None)?;
        }
        if result.layout().sizes() != t.layout().sizes() {
            let (expected, found) = (t.layout().sizes().to_vec(), result.layout().sizes().to_vec());
            return Err(firebrand_core::ErrorKind::HookShape { hook: None, expected, found }.into());
        }
        Ok(())
    }

    /// The hook node, and a handle that takes it out again.
    fn removable(
        self: &Arc<Self>,
        t: &Tensor,
        body: Option<(GraphModule, Vec<Tensor>)>,
        called: TensorHookFn,
    ) -> Result<RemovableHandle> {
        let handle = self.proxy_handle();
        let Some((graph, free)) = body else { return Ok(handle) };
        let mut args = Vec::new();
        {
            let mut state = self.lock();
            let module = state.trace.module_mut();
            let name = format!("hook_body_{}", module.attributes.len());
            module.attributes.set(&name, Attribute::Graph(Arc::new(graph)));
            args.push(Argument::from(module.graph.get_attr(&name)));
            for t in &free {
                args.push(state.trace.node(t).map_err(firebrand_core::Error::user)?.into());
            }
        }
        let node = self.hook_node(t, args)?;
        let mut state = self.lock();
        let proxy = state.handles.iter().find(|p| handle.belongs_to(p)).cloned();
        let proxy = proxy.ok_or_else(|| firebrand_core::Error::user("a handle of the capture is lost"))?;
        state.pure_hooks.push(PureHook { handle: handle.key(), node, proxy, called });
        drop(state);
        Ok(handle)
    }
}
