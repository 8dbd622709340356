//! Derivatives that nobody has written: the op runs, its result has history, and only a gradient that reaches it is an
//! error. It says of which op and which argument.

use firebrand_core::autograd::{BackwardOptions, dual_level, make_dual, no_grad};
use firebrand_core::{ErrorKind, Tensor};

fn leaf() -> Tensor {
    Tensor::new(&[3.0, 1.0, 3.0]).requires_grad_()
}

#[test]
fn a_gradient_that_reaches_it_is_an_error_with_op_and_argument() {
    type Unique = fn(&Tensor) -> (Tensor, Tensor, Tensor);
    let table: [(&str, &str, Unique); 3] = [
        ("_unique2", "Unique2Backward0", |x| x.unique2(true, true, true)),
        ("unique_dim", "UniqueDimBackward0", |x| x.unique_dim(0, true, true, true)),
        ("unique_consecutive", "UniqueConsecutiveBackward0", |x| x.unique_consecutive(true, true, None)),
    ];
    for (op, node, unique) in table {
        let x = leaf();
        let (values, inverse, counts) = unique(&x);
        assert!(values.requires_grad() && !inverse.requires_grad() && !counts.requires_grad(), "{op}");
        assert_eq!(values.grad_fn().expect("history").name(), node);
        let error = values.sum().try_backward(&BackwardOptions::default()).expect_err(op);
        let expected = format!("the derivative of {op} with respect to 'self' is not implemented");
        assert!(error.to_string().contains(&expected), "{error}");
        let found = matches!(error.kind(), ErrorKind::DerivativeNotImplemented { op: named, argument }
            if named == op && argument == "self");
        assert!(found, "{error:?}");
        assert!(x.grad().is_none());
    }
}

#[test]
fn without_a_gradient_nothing_is_missing() {
    let x = leaf();
    let (values, ..) = no_grad(|| x.unique2(true, false, false));
    assert!(!values.requires_grad());
    assert_eq!(values.to_vec::<f64>(), [1.0, 3.0]);
    // Another path through the same leaf has its gradient.
    (&x * 2.0).sum().backward();
    assert_eq!(x.grad().expect("a gradient").to_vec::<f64>(), [2.0, 2.0, 2.0]);
}

#[test]
fn a_tangent_that_reaches_it_is_an_error_too() {
    let error = dual_level(|| {
        let x = make_dual(&Tensor::new(&[3.0, 1.0]), &Tensor::new(&[1.0, 1.0]))?;
        x.try_unique2(true, false, false).map(drop)
    });
    let error = error.expect("a level").expect_err("no forward formula");
    assert_eq!(error.to_string(), "forward-mode differentiation of _unique2 is not implemented");
}
