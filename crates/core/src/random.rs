//! The default random generator: bit for bit PyTorch's CPU generator.
//!
//! One generator serves the whole process, as in PyTorch. [`with_generator`] and [`fork_rng`] give a thread one of its
//! own for a while, which is also how tests stay independent of each other.

use crate::slot::Slot;
use std::sync::{Arc, Mutex, OnceLock};

pub use firebrand_kernels::random::{Generator, InvalidState};

/// The generator that code here uses instead of the process's. A stream goes on where the work goes on, so it is shared.
static OWN: Slot<Option<Arc<Mutex<Generator>>>> = Slot::new(|| None);

fn shared() -> &'static Mutex<Generator> {
    static DEFAULT: OnceLock<Mutex<Generator>> = OnceLock::new();
    DEFAULT.get_or_init(|| Mutex::new(Generator::new(67280421310721))) // PyTorch's default seed
}

/// Runs `f` on the generator that this thread uses now.
pub(crate) fn draw<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    let own = OWN.get();
    let generator = own.as_deref().unwrap_or_else(|| shared());
    f(&mut generator.lock().unwrap_or_else(|e| e.into_inner()))
}

/// Starts the stream anew from a seed.
pub fn manual_seed(seed: u64) {
    draw(|g| g.manual_seed(seed))
}

/// The seed the stream was started from.
pub fn initial_seed() -> u64 {
    draw(|g| g.initial_seed())
}

/// The generator with its position in the stream.
pub fn get_rng_state() -> Generator {
    draw(|g| g.clone())
}

/// Continues from a state taken before.
pub fn set_rng_state(state: Generator) {
    draw(|g| *g = state)
}

/// Runs `f` with a generator of this thread's own; it is dropped afterwards.
pub fn with_generator<R>(generator: Generator, f: impl FnOnce() -> R) -> R {
    let _scope = OWN.enter(Some(Arc::new(Mutex::new(generator))));
    f()
}

/// Runs `f` on a copy of the current generator, so that the stream outside does not move.
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
