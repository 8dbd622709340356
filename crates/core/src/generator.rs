//! The default random generator: bit for bit PyTorch's CPU generator.
//!
//! One generator serves the whole process, as in PyTorch; a thread can have its own temporarily. What users call is
//! [`random`](crate::random), which knows what a capture is; this does not.

use crate::slot::Slot;
pub(crate) use firebrand_kernels::random::Generator;
use std::sync::{Arc, Mutex, OnceLock};

/// The generator this thread uses instead of the process's. It is shared with threads that continue its work.
static OWN: Slot<Option<Arc<Mutex<Generator>>>> = Slot::new(|| None);

fn shared() -> &'static Mutex<Generator> {
    static DEFAULT: OnceLock<Mutex<Generator>> = OnceLock::new();
    DEFAULT.get_or_init(|| Mutex::new(Generator::new(67280421310721))) // PyTorch's default seed
}

/// Runs `f` on this thread's current generator.
pub(crate) fn draw<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    let own = OWN.get();
    let generator = own.as_deref().unwrap_or_else(|| shared());
    f(&mut generator.lock().unwrap_or_else(|e| e.into_inner()))
}

/// A copy of this thread's current generator.
pub(crate) fn current() -> Generator {
    draw(|g| g.clone())
}

/// Puts it into a saved state.
pub(crate) fn restore(state: Generator) {
    draw(|g| *g = state)
}

/// Runs `f` with a separate generator for this thread, which is dropped afterwards.
pub(crate) fn within<R>(generator: Generator, f: impl FnOnce() -> R) -> R {
    let _scope = OWN.enter(Some(Arc::new(Mutex::new(generator))));
    f()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A panic while numbers are drawn lost the thread's generator, and the end of its scope then took the outer one.
    #[test]
    fn a_panic_while_drawing_keeps_every_generator() {
        within(Generator::new(1), || {
            within(Generator::new(2), || {
                let panicked =
                    catch_unwind(AssertUnwindSafe(|| draw(|_| -> () { std::panic::resume_unwind(Box::new(())) })));
                assert!(panicked.is_err());
                assert_eq!(draw(|g| g.initial_seed()), 2, "the inner generator is in its place");
            });
            assert_eq!(draw(|g| g.initial_seed()), 1, "the outer generator is in its place");
        });
    }
}
