//! The default random generator: bit for bit PyTorch's CPU generator.
//!
//! One generator serves the whole process, as in PyTorch. [`with_generator`] and [`fork_rng`] give a thread its
//! own temporarily, which is also how tests stay independent of each other.

use crate::slot::Slot;
use std::sync::{Arc, Mutex, OnceLock};

pub use firebrand_kernels::random::{Generator, InvalidState};

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

/// Seeds the generator.
pub fn manual_seed(seed: u64) {
    draw(|g| g.manual_seed(seed))
}

/// The seed of the generator.
pub fn initial_seed() -> u64 {
    draw(|g| g.initial_seed())
}

/// The state of the generator.
pub fn get_rng_state() -> Generator {
    draw(|g| g.clone())
}

/// Restores a saved state.
pub fn set_rng_state(state: Generator) {
    draw(|g| *g = state)
}

/// Runs `f` with a separate generator for this thread, which is dropped afterwards.
pub fn with_generator<R>(generator: Generator, f: impl FnOnce() -> R) -> R {
    let _scope = OWN.enter(Some(Arc::new(Mutex::new(generator))));
    f()
}

/// Runs `f` on a copy of the current generator, so that the outer stream does not advance.
pub fn fork_rng<R>(f: impl FnOnce() -> R) -> R {
    with_generator(get_rng_state(), f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A panic while numbers are drawn lost the thread's generator, and the end of its scope then took the outer one.
    #[test]
    fn a_panic_while_drawing_keeps_every_generator() {
        with_generator(Generator::new(1), || {
            with_generator(Generator::new(2), || {
                let panicked =
                    catch_unwind(AssertUnwindSafe(|| draw(|_| -> () { std::panic::resume_unwind(Box::new(())) })));
                assert!(panicked.is_err());
                assert_eq!(initial_seed(), 2, "the inner generator is in its place");
            });
            assert_eq!(initial_seed(), 1, "the outer generator is in its place");
        });
    }
}
