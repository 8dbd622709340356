//! Graphs as text, and the log of a backward (spec 2.8).
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{
    BackwardOptions, GraphView, register_logging_hooks_on_whole_graph, saved_tensors_hooks,
};
use firebrand_core::{DType, Error, Tensor};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};

fn example() -> (Tensor, Tensor, Tensor) {
    let (x, w) = (leaves(&[1.0, 2.0, 3.0]), leaves(&[4.0, 5.0, 6.0]));
    let h = (&x * &w).exp();
    let y = (&h * &x + 1.0).sum();
    (x, w, y)
}

#[test]
fn list() {
    let (x, w, y) = example();
    expect![[r#"
        #0 SumBackward0 f64[] -> #1
        #1 AddBackward0 f64[3] -> #2 -
        #2 MulBackward0 f64[3] saved 48 B (other, self) -> #3 #4
        #3 ExpBackward0 f64[3] saved 24 B (result) -> #5
        #4 AccumulateGrad f64[3] x
        #5 MulBackward0 f64[3] saved 48 B (other, self) -> #4 #6
        #6 AccumulateGrad f64[3] w
        7 nodes, 72 B saved
    "#]]
    .assert_eq(&GraphView::of(&[&y]).named("x", &x).named("w", &w).list());
}

#[test]
fn tree() {
    let (x, w, y) = example();
    let names = [("x", &x), ("w", &w)];
    expect![[r#"
        #0 SumBackward0 f64[]
        #1 AddBackward0 f64[3]
        [0] #2 MulBackward0 f64[3] saved 48 B (other, self)
          [1] #4 AccumulateGrad f64[3] x
        [0] #3 ExpBackward0 f64[3] saved 24 B (result)
        #5 MulBackward0 f64[3] saved 48 B (other, self)
          [1] #6 AccumulateGrad f64[3] w
        [0] #4 above
    "#]]
    .assert_eq(&GraphView::of(&[&y]).all_named(names).tree());
}

#[test]
fn dot() {
    let x = leaves(&[1.0, 2.0]);
    let parts = x.unbind(0);
    let y = &parts[0] * &parts[1];
    expect![[r#"
        digraph autograd {
          node [shape=box, fontname=monospace];
          n0 [label="MulBackward0\nf64[]\nsaved 16 B (other, self)"];
          n1 [label="UnbindBackward0\nf64[] f64[]"];
          n2 [label="AccumulateGrad\nf64[2]\nx", style=filled, fillcolor=lightblue];
          n0 -> n1 [label="0"];
          n0 -> n1 [label="1"];
          n1 -> n2;
        }
    "#]]
    .assert_eq(&GraphView::of(&[&y]).named("x", &x).dot());
}

/// Reading a graph runs no hook of saved tensors; what was freed or overwritten is said, not an error.
#[test]
fn reading_changes_nothing() {
    let x = leaf(2.0);
    let scope = saved_tensors_hooks(|t| Ok(t.detach()), |_: &Tensor| Err(Error::user("not to be called"))).unwrap();
    let packed = x.sin();
    drop(scope);
    expect![[r#"
        #0 SinBackward0 f64[] packed 1
        #1 AccumulateGrad f64[]
    "#]]
    .assert_eq(&GraphView::of(&[&packed]).tree());

    let b = &x * 1.0;
    let (stale, freed) = (b.sin(), x.sin());
    b.add_(&Tensor::scalar(1.0f64));
    freed.backward();
    expect![[r#"
        #0 SinBackward0 f64[] saved values were written since
        #2 MulBackward0 f64[] saved 8 B (other)
        [0] #3 AccumulateGrad f64[]
        #1 SinBackward0 f64[] freed
        #3 above
    "#]]
    .assert_eq(&GraphView::of(&[&stale, &freed]).tree());
    assert_eq!(GraphView::of(&[&Tensor::scalar(1.0f64)]).list(), "0 nodes, 0 B saved\n");
}

/// A chain of a million nodes prints without recursion, at one indentation.
#[test]
fn long_chains() {
    let one = Tensor::scalar(1.0f64);
    let mut y = leaf(0.0);
    for _ in 0..1_000_000 {
        y = &y + &one;
    }
    let view = GraphView::of(&[&y]);
    let (tree, list) = (view.tree(), view.list());
    assert_eq!(tree.lines().count(), 1_000_001);
    assert_eq!(tree.lines().last(), Some("[0] #1000000 AccumulateGrad f64[]"));
    assert_eq!(list.lines().last(), Some("1000001 nodes, 0 B saved"));
}

// ---- logging

/// A subscriber that keeps the messages of debug events.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "firebrand::autograd"
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A listener at debug level sees every node with its gradients; nothing stays behind, also after a failure.
#[test]
fn backward_is_logged() {
    let recorder = Recorder::default();
    let take = || std::mem::take(&mut *recorder.0.lock().unwrap()).join("\n");
    let x = Tensor::ones([2, 3], DType::F32).requires_grad_();
    let y = x.sin();
    let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
    tracing::subscriber::with_default(recorder.clone(), || {
        y.sum().try_backward(&keep).unwrap();
        expect![[r#"
            Executing: <SumBackward0> with grad_outputs: [f32[]]
            Executing: <SinBackward0> with grad_outputs: [f32[2, 3]]
            Executing: <torch::autograd::AccumulateGrad> with grad_outputs: [f32[2, 3]]"#]]
        .assert_eq(&take());
        let failing = x.register_hook(|_| Err::<(), _>(Error::user("stop")));
        expect!["stop"].assert_eq(&y.sum().try_backward(&keep).unwrap_err().to_string());
        failing.remove();
        expect![[r#"
            Executing: <SumBackward0> with grad_outputs: [f32[]]
            Executing: <SinBackward0> with grad_outputs: [f32[2, 3]]"#]]
        .assert_eq(&take());
        y.sum().backward();
        assert_eq!(take().lines().count(), 3, "hooks of earlier runs are gone");
    });
    (x.sin().sum()).backward();
    assert_eq!(take(), "");

    // By hand: only what is asked for, and an undefined gradient is None.
    let parts = x.detach().requires_grad_().unbind(0);
    let z = parts[0].sum();
    let hooks = register_logging_hooks_on_whole_graph(&[&z]);
    tracing::subscriber::with_default(recorder.clone(), || {
        // The run adds its own, so every node logs twice.
        z.try_backward(&keep).unwrap();
        assert_eq!(take().matches("UnbindBackward0> with grad_outputs: [f32[3],None]").count(), 2);
    });
    drop(hooks);
}
