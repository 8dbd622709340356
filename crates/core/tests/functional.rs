//! Cases F-20 to F-24 of docs/behaviour/autograd.md: Jacobians, Hessians and products by the ordinary engine.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::functional::{Options, Strategy, hessian, hvp, jacobian, jvp, vhp, vjp};
use firebrand_core::{Class, Tensor};

fn plain() -> Options {
    Options::default()
}

fn squares(x: &Tensor) -> Tensor {
    x * x
}

fn cubes(x: &Tensor) -> Tensor {
    (x * x * x).sum()
}

/// F-20
#[test]
fn jacobians() {
    let x = con(&[1.0, 2.0]);
    close(&vals(&jacobian(squares, &x, &plain()).unwrap()), &[2.0, 0.0, 0.0, 4.0]);
    let pair = (con(&[1.0, 2.0]), con(&[3.0, 4.0]));
    let (a, b) = jacobian(|(x, y): &(Tensor, Tensor)| (x * y).sum(), &pair, &plain()).unwrap();
    close(&vals(&a), &[3.0, 4.0]);
    close(&vals(&b), &[1.0, 2.0]);
    let (j, s) = jacobian(|x: &Tensor| (x * 2.0, x.sum()), &x, &plain()).unwrap();
    assert_eq!((j.shape(), s.shape()), (&[2, 2][..], &[2][..]));
    close(&vals(&j), &[2.0, 0.0, 0.0, 2.0]);
    close(&vals(&s), &[1.0, 1.0]);
}

/// F-21
#[test]
fn ways_to_a_jacobian() {
    let x = con(&[1.0, 2.0]);
    let vectorize = Options { vectorize: true, ..plain() };
    let forward = Options { strategy: Strategy::ForwardMode, ..vectorize };
    for options in [vectorize, forward] {
        close(&vals(&jacobian(squares, &x, &options).unwrap()), &[2.0, 0.0, 0.0, 4.0]);
    }
    let e = jacobian(squares, &x, &Options { vectorize: false, ..forward }).unwrap_err();
    assert_eq!(e.kind().class(), Class::NotImplemented);
    let constant = |_: &Tensor| con(&[1.0, 2.0]);
    let strict = Options { strict: true, ..plain() };
    assert_err!(jacobian(constant, &x, &strict), StrictIndependent { .. });
    assert_err!(jacobian(squares, &x, &Options { vectorize: true, ..strict }), Functional { .. });
    close(&vals(&jacobian(constant, &x, &plain()).unwrap()), &[0.0; 4]);
    close(&vals(&jacobian(constant, &x, &vectorize).unwrap()), &[0.0; 4]);
}

/// F-22
#[test]
fn hessians() {
    let x = con(&[1.0, 2.0]);
    let ways = [
        plain(),
        Options { vectorize: true, ..plain() },
        Options { vectorize: true, strategy: Strategy::ForwardMode, ..plain() },
    ];
    for options in ways {
        close(&vals(&hessian(cubes, &x, &options).unwrap()), &[6.0, 0.0, 0.0, 12.0]);
        let pair = (Tensor::scalar(2.0), Tensor::scalar(3.0));
        let ((xx, xy), (yx, yy)) = hessian(|(x, y): &(Tensor, Tensor)| x * y * y, &pair, &options).unwrap();
        let found: Vec<f64> = [xx, xy, yx, yy].iter().map(|t| t.item::<f64>()).collect();
        close(&found, &[0.0, 6.0, 6.0, 4.0]);
    }
    assert_err!(hessian(squares, &x, &plain()), Functional { .. });
}

/// F-23
#[test]
fn products() {
    let (x, v) = (con(&[1.0, 2.0]), con(&[3.0, 4.0]));
    let (y, p) = vjp(squares, &x, Some(&v), &plain()).unwrap();
    close(&vals(&y), &[1.0, 4.0]);
    close(&vals(&p), &[6.0, 16.0]);
    let (y, p) = jvp(squares, &x, Some(&v), &plain()).unwrap();
    close(&vals(&y), &[1.0, 4.0]);
    close(&vals(&p), &[6.0, 16.0]);
    let f = |x: &Tensor| x.select(0, 0) * x.select(0, 1) * x.select(0, 1);
    for (y, p) in [hvp(f, &x, Some(&v), &plain()).unwrap(), vhp(f, &x, Some(&v), &plain()).unwrap()] {
        close(&vals(&y), &[4.0]);
        close(&vals(&p), &[16.0, 20.0]);
    }
}

/// F-24: (an input that is not a tensor is refused by the compiler).
#[test]
fn what_products_need() {
    let x = con(&[1.0, 2.0]);
    assert_err!(vjp(squares, &x, None, &plain()), MissingV { .. });
    assert_err!(jvp(squares, &x, None, &plain()), MissingV { .. });
    assert_err!(vjp(squares, &x, Some(&con(&[1.0])), &plain()), VSize { .. });
    assert_err!(jvp(squares, &x, Some(&con(&[1.0])), &plain()), VSize { .. });
    let x = leaves(&[1.0, 2.0]);
    let v = con(&[1.0, 1.0]);
    for create_graph in [false, true] {
        let options = Options { create_graph, ..plain() };
        assert_eq!(vjp(squares, &x, Some(&v), &options).unwrap().1.requires_grad(), create_graph);
        assert_eq!(jvp(squares, &x, Some(&v), &options).unwrap().1.requires_grad(), create_graph);
        assert_eq!(hvp(cubes, &x, Some(&v), &options).unwrap().1.requires_grad(), create_graph);
        assert_eq!(jacobian(squares, &x, &options).unwrap().requires_grad(), create_graph);
    }
}
