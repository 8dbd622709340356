//! Hooks on several gradients at once: called when all of them have arrived, or when the first does.
//!
//! State is kept per backward run (`arrivals`), so a run that fails leaves nothing behind that a later one could see.

use super::arrivals::{Arrivals, FirstArrival};
use super::engine::{self, will_engine_execute_node};
use super::hook_table::RemovableHandle;
use super::node::{Node, WeakNode};
use crate::capture;
use crate::tensor::WeakTensor;
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// Removes all hooks of one multi-grad hook.
#[derive(Clone, Debug)]
pub struct MultiHandle(Vec<RemovableHandle>);

impl MultiHandle {
    /// Removes the hook; does nothing if it is gone.
    pub fn remove(&self) {
        self.0.iter().for_each(RemovableHandle::remove)
    }

    /// A guard that removes the hook when it goes out of scope.
    pub fn scoped(self) -> MultiHookGuard {
        MultiHookGuard(self)
    }
}

/// Removes its hook when dropped.
#[derive(Debug)]
#[must_use = "the hook lasts while the guard lives"]
pub struct MultiHookGuard(MultiHandle);

impl Drop for MultiHookGuard {
    fn drop(&mut self) {
        self.0.remove()
    }
}

/// A member, held weakly: a hook must not keep alive the graph that owns it.
enum Member {
    Leaf(WeakTensor),
    Computed(WeakNode),
}

impl Member {
    fn of(t: &Tensor) -> Result<Member> {
        if !t.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        Ok(match t.try_grad_fn_edge()? {
            Some(e) => Member::Computed(e.node.downgrade()),
            None => Member::Leaf(t.downgrade()),
        })
    }

    fn node(&self) -> Result<Option<Node>> {
        match self {
            Member::Computed(n) => Ok(n.upgrade()),
            Member::Leaf(t) => Ok(match t.upgrade() {
                Some(t) => t.gradient_edge()?.map(|e| e.node),
                None => None,
            }),
        }
    }
}

/// How many members the current run computes.
fn expected(members: &[Member]) -> Result<usize> {
    let mut count = 0;
    for m in members {
        if let Some(n) = m.node()? {
            count += usize::from(will_engine_execute_node(&n)?);
        }
    }
    Ok(count)
}

/// Calls `f` once per backward run, when the gradients of all tensors that the run computes have arrived; `None` is passed
/// for members that are off the graph or pruned.
#[track_caller]
pub fn register_multi_grad_hook(
    tensors: &[&Tensor],
    f: impl Fn(&[Option<Tensor>]) -> Result<()> + Send + Sync + 'static,
) -> Result<MultiHandle> {
    // Which members a run computes is asked of their nodes.
    capture::leave("register_multi_grad_hook")?;
    let tensors: Vec<Tensor> = tensors.iter().map(|t| capture::real(t)).collect();
    let members = tensors.iter().map(Member::of).collect::<Result<Vec<_>>>()?;
    let shared = Arc::new((Arrivals::new(members.len()), members, f));
    let mut handles = Vec::with_capacity(tensors.len());
    for (k, t) in tensors.iter().enumerate() {
        let shared = shared.clone();
        handles.push(t.try_register_hook_any(move |g| -> Result<()> {
            let (arrivals, members, f) = &*shared;
            let run = engine::current().ok_or_else(|| Error::from(ErrorKind::NotInBackward))?;
            match arrivals.arrive(&run, k, g.cloned(), || expected(members))? {
                Some(grads) => f(&grads),
                None => Ok(()),
            }
        })?);
    }
    Ok(MultiHandle(handles))
}

/// Calls `f` once per backward run, with the first gradient that arrives. Tensors without grad are skipped.
pub fn register_multi_grad_hook_any(
    tensors: &[&Tensor],
    f: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static,
) -> Result<MultiHandle> {
    let shared = Arc::new((FirstArrival::new(), f));
    let mut handles = Vec::new();
    for t in tensors.iter().filter(|t| t.requires_grad()) {
        let shared = shared.clone();
        handles.push(t.try_register_hook(move |g| -> Result<()> {
            let (arrivals, f) = &*shared;
            let run = engine::current().ok_or_else(|| Error::from(ErrorKind::NotInBackward))?;
            if arrivals.arrive(&run) { f(g) } else { Ok(()) }
        })?);
    }
    Ok(MultiHandle(handles))
}
