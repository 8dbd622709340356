//! disable: a function that is never captured.

use crate::front::capture::{self, Session};
use firebrand_core::capture::{self as core_capture, Read, Tracer};
use firebrand_core::tree::{Leaf, Outcome, Rebuild, TensorTree};
use firebrand_core::{Result, Tensor};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// A function that always runs eagerly. Inside a captured function, a call of it breaks the graph.
pub struct Disabled<I, F> {
    f: F,
    input: PhantomData<fn(&I)>,
}

/// Excludes a function from every graph.
pub fn disable<I: TensorTree, R: Outcome, F: Fn(&I) -> R>(f: F) -> Disabled<I, F> {
    Disabled { f, input: PhantomData }
}

impl<I: TensorTree, R: Outcome, F: Fn(&I) -> R> Disabled<I, F> {
    /// Calls the function.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn call(&self, input: &I) -> R::Tree {
        self.try_call(input).unwrap_or_else(|e| e.raise())
    }

    /// Calls the function.
    #[track_caller]
    pub fn try_call(&self, input: &I) -> Result<R::Tree> {
        let Some(session) = capture::session() else { return (self.f)(input).outcome() };
        let at = Location::caller();
        let mut first: Option<Tensor> = None;
        input.visit(&mut |leaf| {
            if let Leaf::Tensor(t) | Leaf::Index(t) = leaf {
                first.get_or_insert_with(|| t.clone());
            }
        });
        match first {
            Some(t) => drop(session.materialize(&t, Read::Disabled, at)?),
            None => session.break_here(crate::breaks::BreakKind::Disabled, "a disabled function", Some(at))?,
        }
        let real = input.rebuild(&mut Real(&session));
        core_capture::suspended(|| (self.f)(&real).outcome())
    }
}

/// Puts real tensors in the place of stand-ins.
struct Real<'a>(&'a Arc<Session>);

impl Rebuild for Real<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        self.0.real(t).unwrap_or_else(|| t.clone())
    }
}
