//! Hooks on several gradients at once: called when all of them have arrived, or when the first does.
//!
//! State is kept per backward run, so a run that fails leaves nothing behind that a later one could see. The lock
//! guards the counters only; the user's closure runs outside it.

use super::engine::{current_graph_task_id, will_engine_execute_node};
use super::hooks::RemovableHandle;
use super::node::{Node, WeakNode};
use crate::tensor::WeakTensor;
use crate::{ErrorKind, Result, Tensor};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

/// Removes all hooks of one multi-grad hook.
#[derive(Clone)]
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
#[must_use = "the hook lasts while the guard lives"]
pub struct MultiHookGuard(MultiHandle);

impl Drop for MultiHookGuard {
    fn drop(&mut self) {
        self.0.remove()
    }
}

/// A member, held weakly: a hook must not keep the graph alive that holds it.
enum Member {
    Leaf(WeakTensor),
    Computed(WeakNode),
}

impl Member {
    fn of(t: &Tensor) -> Result<Member> {
        if !t.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        Ok(match t.grad_fn_edge()? {
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

/// What one run has seen so far.
struct Arrivals {
    expected: usize,
    count: usize,
    grads: Vec<Option<Tensor>>,
}

/// Calls `f` once per backward run, when the gradients of all tensors that the run computes have arrived; `None` stands
/// for members that are off the graph or pruned.
pub fn register_multi_grad_hook(
    tensors: &[&Tensor],
    f: impl Fn(&[Option<Tensor>]) -> Result<()> + Send + Sync + 'static,
) -> Result<MultiHandle> {
    let members: Arc<Vec<Member>> = Arc::new(tensors.iter().map(|t| Member::of(t)).collect::<Result<_>>()?);
    let runs: Arc<Mutex<HashMap<i64, Arrivals>>> = Arc::default();
    let f = Arc::new(f);
    let mut handles = Vec::with_capacity(tensors.len());
    for (k, t) in tensors.iter().enumerate() {
        let (members, runs, f) = (members.clone(), runs.clone(), f.clone());
        handles.push(t.register_hook_any(move |g| -> Result<()> {
            let id = current_graph_task_id();
            let ready = {
                let mut runs = runs.lock().unwrap_or_else(|e| e.into_inner());
                let run = match runs.entry(id) {
                    Entry::Occupied(e) => e.into_mut(),
                    Entry::Vacant(e) => {
                        let mut expected = 0;
                        for m in members.iter() {
                            if let Some(n) = m.node()? {
                                expected += usize::from(will_engine_execute_node(&n)?);
                            }
                        }
                        e.insert(Arrivals { expected, count: 0, grads: vec![None; members.len()] })
                    }
                };
                run.grads[k] = g.cloned();
                run.count += 1;
                (run.count == run.expected).then(|| runs.remove(&id)).flatten()
            };
            ready.map_or(Ok(()), |r| f(&r.grads))
        })?);
    }
    Ok(MultiHandle(handles))
}

/// Calls `f` once per backward run, with the first gradient that arrives. Tensors without grad are skipped.
pub fn register_multi_grad_hook_any(
    tensors: &[&Tensor],
    f: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static,
) -> Result<MultiHandle> {
    let seen: Arc<Mutex<i64>> = Arc::new(Mutex::new(-1));
    let f = Arc::new(f);
    let mut handles = Vec::new();
    for t in tensors.iter().filter(|t| t.requires_grad()) {
        let (seen, f) = (seen.clone(), f.clone());
        handles.push(t.try_register_hook(move |g| -> Result<()> {
            let id = current_graph_task_id();
            let first = std::mem::replace(&mut *seen.lock().unwrap_or_else(|e| e.into_inner()), id) != id;
            if first { f(g) } else { Ok(()) }
        })?);
    }
    Ok(MultiHandle(handles))
}
