//! The default random generator: bit for bit PyTorch's CPU generator.
//!
//! One generator serves the whole process, as in PyTorch. [`with_generator`] and [`fork_rng`] give a thread one of its
//! own for a while, which is also how tests stay independent of each other.

use firebrand_kernels::random::Generator as Kernel;
use std::cell::RefCell;
use std::sync::{Mutex, OnceLock};

pub use firebrand_kernels::random::{Generator, InvalidState};

thread_local! {
    static OWN: RefCell<Vec<Kernel>> = const { RefCell::new(Vec::new()) };
}

fn shared() -> &'static Mutex<Kernel> {
    static DEFAULT: OnceLock<Mutex<Kernel>> = OnceLock::new();
    DEFAULT.get_or_init(|| Mutex::new(Kernel::new(67280421310721))) // PyTorch's default seed
}

/// Runs `f` on the generator that this thread uses now.
pub(crate) fn draw<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    /// The thread's own generator while it is drawn from; goes back to its place also on unwind.
    struct Drawn(Option<Kernel>);
    impl Drop for Drawn {
        fn drop(&mut self) {
            if let Some(g) = self.0.take() {
                OWN.with_borrow_mut(|o| o.push(g));
            }
        }
    }
    let mut own = Drawn(OWN.with_borrow_mut(Vec::pop));
    match &mut own.0 {
        Some(g) => f(g),
        None => f(&mut shared().lock().unwrap_or_else(|e| e.into_inner())),
    }
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
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            OWN.with_borrow_mut(|o| o.pop());
        }
    }
    OWN.with_borrow_mut(|o| o.push(generator));
    let _pop = Pop;
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
        with_generator(Kernel::new(1), || {
            with_generator(Kernel::new(2), || {
                let panicked =
                    catch_unwind(AssertUnwindSafe(|| draw(|_| -> () { std::panic::resume_unwind(Box::new(())) })));
                assert!(panicked.is_err());
                assert_eq!(initial_seed(), 2, "the inner generator is in its place");
            });
            assert_eq!(initial_seed(), 1, "the outer generator is in its place");
        });
    }
}
