//! What the tests of the numbered cases share.
#![allow(dead_code, unused_macros, unreachable_pub)]

use firebrand_core::Tensor;

/// The case of docs/behaviour that the assertions below are about. A test that fails prints it, whatever it was that failed.
#[derive(Default)]
pub struct Row(std::cell::Cell<&'static str>);
impl Row {
    /// What follows is about this case.
    pub fn is(&self, case: &'static str) {
        self.0.set(case);
    }
}
impl Drop for Row {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in case {}", self.0.get());
        }
    }
}

/// An f64 scalar leaf that requires grad.
pub fn leaf(v: f64) -> Tensor {
    Tensor::scalar(v).requires_grad_()
}

/// An f64 vector leaf that requires grad.
pub fn leaves(v: &[f64]) -> Tensor {
    Tensor::new(v).requires_grad_()
}

/// An f64 vector without grad.
pub fn con(v: &[f64]) -> Tensor {
    Tensor::new(v)
}

/// The elements.
pub fn vals(t: &Tensor) -> Vec<f64> {
    t.to_vec()
}

/// The gradient's elements.
#[track_caller]
pub fn grad(t: &Tensor) -> Vec<f64> {
    t.grad().expect("a gradient").to_vec()
}

/// Equal up to 1e-9.
#[track_caller]
pub fn close(found: &[f64], expected: &[f64]) {
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 || a == b || (a.is_nan() && b.is_nan()));
    assert!(same, "found {found:?}, expected {expected:?}");
}

/// Name of the node that computed a tensor.
#[track_caller]
pub fn node_name(t: &Tensor) -> String {
    t.grad_fn().expect("a grad_fn").name().to_string()
}

/// `b[range]` along dim 0.
pub fn cut(t: &Tensor, start: i64, end: i64) -> Tensor {
    t.slice(0, Some(start.into()), Some(end.into()), 1)
}

/// Asserts that a result is an error of a kind.
macro_rules! assert_err {
    ($e:expr, $($kind:tt)+) => {
        match $e {
            Err(e) => assert!(matches!(e.kind(), firebrand_core::ErrorKind::$($kind)+), "found {e:?}"),
            Ok(_) => panic!("expected an error {}", stringify!($($kind)+)),
        }
    };
}
