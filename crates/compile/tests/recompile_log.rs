//! The log of recompilations, in a process of its own: which call sites log is decided for a whole process, so tests beside
//! this one could switch its lines off.

mod common;

use common::*;
use firebrand_compile::compile_with;
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Tensor};
use std::sync::Arc;

/// Keeps the lines of one log channel.
struct Lines {
    target: &'static str,
    kept: Arc<std::sync::Mutex<Vec<String>>>,
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == self.target
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.kept.lock().expect("no test panics with it").push(message.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// U-154: the log has one line per entry, with the guard that failed.
#[test]
fn recompile_log() {
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let lines = Lines { target: "firebrand::recompiles", kept: kept.clone() };
    let c = counter();
    let f = compile_with(|x: &Tensor| x * 2.0, with(&c));
    tracing::subscriber::with_default(lines, || {
        f.call(&ones(3));
        f.call(&Tensor::ones([3], DType::F64));
        f.call(&ones_leaf(3));
        no_grad(|| f.call(&ones(3)));
    });
    assert_eq!(c.frames(), 4);
    let expected = [
        "entry 0: argument 0: dtype: expected float32, actual float64",
        "entry 0: argument 0: requires_grad: expected false, actual true",
        "entry 1: argument 0: dtype: expected float64, actual float32",
        "entry 0: gradient mode: expected true, actual false",
        "entry 1: gradient mode: expected true, actual false",
        "entry 2: gradient mode: expected true, actual false",
    ];
    assert_eq!(*kept.lock().expect("no test panics with it"), expected);
}
