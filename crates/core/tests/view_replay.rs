//! Case A-66 of docs/behaviour/autograd.md: the history of a written view, from the ops that made it.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{ViewReplay, is_view_replay_enabled, set_view_replay};
use firebrand_core::{Tensor, ops};

/// A written view, the names of the nodes from it to the base, and the gradient of its weighted sum.
fn written(view: impl Fn(&Tensor) -> Tensor) -> (Vec<String>, Vec<f64>) {
    let x = Tensor::new(&[[1.0f64, 2.0], [3.0, 4.0]]).requires_grad_();
    let v = view(&(&x * 3.0));
    ops::mul_scalar_(&v, 2.0.into()).unwrap();
    let mut names = Vec::new();
    let mut node = v.grad_fn();
    while let Some(n) = node.filter(|n| !n.name().contains("CopySlices")) {
        names.push(n.name().to_string());
        node = n.next_functions().first().and_then(|e| e.as_ref().map(|e| e.node.clone()));
    }
    let weights = ops::arange(v.numel().into(), Some(v.dtype()), None).unwrap();
    (ops::reshape(&v, &[v.numel().into()]).unwrap() * weights).sum().backward();
    (names, vals(&x.grad().unwrap()))
}

#[test]
fn views_are_rebuilt_by_their_ops() {
    let flat = |t: &Tensor| ops::view(t, &[4.into()]).unwrap();
    let chain = |t: &Tensor| ops::select(&ops::transpose(t, 0, 1).unwrap(), 0, 1.into()).unwrap();
    let (strided, plain) = written(flat);
    assert_eq!(strided, ["AsStridedBackward0"], "A-66");
    let plain_chain = written(chain).1;
    {
        let _on = ViewReplay::new(true);
        assert!(is_view_replay_enabled());
        let (names, grad) = written(flat);
        assert_eq!(names, ["ViewBackward0"], "A-66");
        close(&grad, &plain);
        let (names, grad) = written(chain);
        assert_eq!(names, ["SelectBackward0", "TransposeBackward0"], "A-66");
        close(&grad, &plain_chain);
        let _off = ViewReplay::new(false);
        assert!(!is_view_replay_enabled());
        assert_eq!(written(flat).0, ["AsStridedBackward0"], "A-66");
    }
    assert!(!is_view_replay_enabled());
    assert_eq!(written(flat).0, ["AsStridedBackward0"], "A-66");
    assert!(!set_view_replay(true));
    assert_eq!(written(flat).0, ["ViewBackward0"], "A-66");
    assert!(set_view_replay(false));
}

#[test]
fn what_it_does_not_change() {
    let _on = ViewReplay::new(true);
    let x = leaves(&[1.0, 2.0]) * 1.0;
    let parts = ops::unbind(&x, 0).unwrap();
    assert_err!(ops::add_scalar_(&parts[0], 1.0.into(), 1.into()), MultiOutputViewInplace { .. });
    // A view made while it was off stays a strided slice, and so do views of it.
    let base = leaves(&[1.0, 2.0, 3.0, 4.0]) * 1.0;
    let before = {
        let _off = ViewReplay::new(false);
        ops::view(&base, &[2.into(), 2.into()]).unwrap()
    };
    let after = ops::transpose(&before, 0, 1).unwrap();
    ops::mul_scalar_(&after, 2.0.into()).unwrap();
    assert_eq!(after.grad_fn().unwrap().name(), "AsStridedBackward0", "A-66");
    assert!(after.view_of(&base).unwrap().is_none());
    let known = ops::select(&base, 0, 2.into()).unwrap();
    assert_eq!(known.view_of(&con(&[5.0, 6.0, 7.0])).unwrap().unwrap().item::<f64>(), 7.0);
}
