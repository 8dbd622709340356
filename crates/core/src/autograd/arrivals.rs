//! The counters of multi-grad hooks, one per backward run.
//!
//! A run is identified by an object that it alone owns, held weakly: what a failed run left behind is found dead by the next
//! one and dropped. The lock guards the counters only; the user's closure runs outside it. Gradients are of any type
//! here, so that the counters can be tested without an engine.

use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};

fn is<R>(known: &Weak<R>, run: &Arc<R>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(run))
}

struct Run<R, G> {
    run: Weak<R>,
    expected: usize,
    arrived: usize,
    grads: Vec<Option<G>>,
}

/// Waits for all members that a run computes.
pub(crate) struct Arrivals<R, G> {
    members: usize,
    runs: Mutex<Vec<Run<R, G>>>,
}

impl<R, G> Arrivals<R, G> {
    pub(crate) fn new(members: usize) -> Self {
        Arrivals { members, runs: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Run<R, G>>> {
        self.runs.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Member `k` has arrived in a run. The last arrival gets all gradients, `None` for members that the run does not
    /// compute. `expected` says how many it does; it is asked at the first arrival, outside the lock.
    pub(crate) fn arrive<E>(
        &self,
        run: &Arc<R>,
        k: usize,
        grad: Option<G>,
        expected: impl FnOnce() -> Result<usize, E>,
    ) -> Result<Option<Vec<Option<G>>>, E> {
        let known = |runs: &[Run<R, G>]| runs.iter().position(|r| is(&r.run, run));
        // What ends here is dropped when the lock is free again.
        let mut ended = Vec::new();
        let mut runs = self.lock();
        if known(&runs).is_none() {
            drop(runs);
            let expected = expected()?;
            runs = self.lock();
            if known(&runs).is_none() {
                ended.extend(runs.extract_if(.., |r| r.run.strong_count() == 0));
                let grads = std::iter::repeat_with(|| None).take(self.members).collect();
                runs.push(Run { run: Arc::downgrade(run), expected, arrived: 0, grads });
            }
        }
        let at = known(&runs).expect("a run stays until its last member has arrived, and that is this one or a later");
        let state = &mut runs[at];
        let replaced = std::mem::replace(&mut state.grads[k], grad);
        state.arrived += 1;
        let all = (state.arrived == state.expected).then(|| runs.swap_remove(at).grads);
        drop(runs);
        drop((ended, replaced));
        Ok(all)
    }
}

/// Finds the first arrival of each run.
pub(crate) struct FirstArrival<R>(Mutex<Vec<Weak<R>>>);

impl<R> FirstArrival<R> {
    pub(crate) fn new() -> Self {
        FirstArrival(Mutex::new(Vec::new()))
    }

    /// Whether this is the run's first arrival.
    pub(crate) fn arrive(&self, run: &Arc<R>) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if seen.iter().any(|known| is(known, run)) {
            return false;
        }
        seen.retain(|known| known.strong_count() > 0);
        seen.push(Arc::downgrade(run));
        true
    }
}
