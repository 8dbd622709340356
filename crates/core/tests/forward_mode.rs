//! Cases F-12 to F-19 of docs/behaviour/autograd.md: dual numbers.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{
    GradOptions, dual_level, enter_dual_level, exit_dual_level, grad as gradient, inference_mode, make_dual, no_grad,
    unpack_dual,
};
use firebrand_core::{Class, DType, Tensor, ops};

fn dual(p: &[f64], t: &[f64]) -> Tensor {
    make_dual(&con(p), &con(t)).unwrap()
}

fn number(p: f64, t: f64) -> Tensor {
    make_dual(&Tensor::scalar(p), &Tensor::scalar(t)).unwrap()
}

fn tangent(t: &Tensor) -> Option<Vec<f64>> {
    unpack_dual(t).unwrap().1.map(|t| vals(&t))
}

fn cube(x: &Tensor) -> Tensor {
    x.pow_scalar(3.0)
}

/// F-12
#[test]
fn tangents_live_as_long_as_their_level() {
    let o = dual_level(|| {
        let o = cube(&number(2.0, 1.0));
        close(&vals(&o), &[8.0]);
        close(&tangent(&o).unwrap(), &[12.0]);
        o
    })
    .unwrap();
    close(&vals(&o), &[8.0]);
    assert_eq!(tangent(&o), None);
}

/// F-36
#[test]
fn a_primal_has_no_tangent() {
    dual_level(|| {
        let x = dual(&[1.0, 2.0], &[3.0, 4.0]);
        let (primal, _) = unpack_dual(&x).unwrap();
        let results = [
            primal.clone(),
            primal.mul(2.0),
            primal.select(0, 1),
            primal.unsqueeze(0),
            unpack_dual(&primal).unwrap().0,
        ];
        for (k, t) in results.iter().enumerate() {
            assert_eq!(tangent(t), None, "F-36 result {k}");
        }
        // What is written there has its own; that of the dual tensor stays.
        primal.mul_(&dual(&[1.0, 1.0], &[5.0, 6.0]));
        assert_eq!((tangent(&primal), tangent(&x)), (Some(vec![5.0, 12.0]), Some(vec![3.0, 4.0])), "F-36 written");
    })
    .unwrap();
}

/// F-13
#[test]
fn levels() {
    let x = Tensor::scalar(1.0);
    assert_err!(make_dual(&x, &x), NoDualLevel);
    assert!(unpack_dual(&x).unwrap().0.is_same(&x));
    expect!["cannot exit dual level 0: the active level is None"]
        .assert_eq(&exit_dual_level(None).unwrap_err().to_string());
    assert_eq!(enter_dual_level().unwrap(), 0);
    assert_err!(enter_dual_level(), NestedDualLevel);
    assert_err!(exit_dual_level(Some(3)), DualLevelOrder { .. });
    exit_dual_level(Some(0)).unwrap();
}

/// F-14
#[test]
fn what_cannot_be_dual() {
    dual_level(|| {
        let (x, whole) = (con(&[1.0, 2.0]), Tensor::new(&[1i64, 2]));
        assert_err!(make_dual(&x, &con(&[1.0])), DualShape { .. });
        let e = make_dual(&whole, &x).unwrap_err();
        assert_eq!(e.kind().class(), Class::Value);
        assert_err!(make_dual(&x, &whole), DualDtype { .. });
        let d = make_dual(&x, &x).unwrap();
        assert_err!(make_dual(&d, &x), DualTwice);
        assert_err!(make_dual(&x, &d), DualTwice);
    })
    .unwrap();
}

/// F-15
#[test]
fn what_a_dual_shares() {
    dual_level(|| {
        let (p, t) = (con(&[1.0, 2.0]), con(&[3.0, 4.0]));
        let d = make_dual(&p, &t).unwrap();
        let (primal, tangent_) = unpack_dual(&d).unwrap();
        assert!(tangent_.unwrap().is_same(&t));
        assert!(primal.shares_storage(&p) && !d.is_same(&p));
        assert_eq!(tangent(&p), None);
        let rows = Tensor::ones([2, 3], DType::F64);
        let columns = Tensor::ones([3, 2], DType::F64).transpose(0, 1);
        let d = make_dual(&rows, &columns).unwrap();
        let t = unpack_dual(&d).unwrap().1.unwrap();
        assert_eq!(t.strides(), rows.strides());
        assert!(!t.shares_storage(&columns));
    })
    .unwrap();
}

/// F-16
#[test]
fn where_tangents_go() {
    dual_level(|| {
        assert_eq!(tangent(&(&Tensor::scalar(1.0) * 2.0)), None);
        let d = number(3.0, 1.0);
        assert_eq!(tangent(&d.detach()), None);
        close(&tangent(&no_grad(|| d.pow_scalar(2.0))).unwrap(), &[6.0]);
        assert_eq!(tangent(&inference_mode(|| d.pow_scalar(2.0))), None);
    })
    .unwrap();
}

/// F-17
#[test]
fn views_and_bases_share_tangents() {
    dual_level(|| {
        let b = Tensor::zeros([3], DType::F64);
        ops::copy_(&b.select(0, 1), &number(5.0, 1.0), false).unwrap();
        close(&tangent(&b).unwrap(), &[0.0, 1.0, 0.0]);
        let w = Tensor::zeros([2], DType::F64);
        let v = w.select(0, 1);
        ops::copy_(&w, &dual(&[1.0, 1.0], &[7.0, 8.0]), false).unwrap();
        close(&tangent(&v).unwrap(), &[8.0]);
    })
    .unwrap();
}

/// F-18
#[test]
fn writing_a_dual() {
    dual_level(|| {
        let e = &dual(&[1.0, 2.0], &[1.0, 1.0]) * 1.0;
        ops::mul_scalar_(&e, 3.0.into()).unwrap();
        ops::fill_(&e.select(0, 0), 0.0.into()).unwrap();
        close(&tangent(&e).unwrap(), &[0.0, 3.0]);
    })
    .unwrap();
}

/// F-19
#[test]
fn both_mixed_orders() {
    dual_level(|| {
        let x = leaf(3.0);
        let d = make_dual(&x, &Tensor::scalar(1.0)).unwrap();
        let g = gradient(&cube(&d), &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
        close(&vals(&g), &[27.0]);
        close(&tangent(&g).unwrap(), &[18.0]);
    })
    .unwrap();
    let (x, v) = (leaf(3.0), leaf(2.0));
    dual_level(|| {
        let t = unpack_dual(&cube(&make_dual(&x, &v).unwrap())).unwrap().1.unwrap();
        close(&vals(&t), &[54.0]);
        let g = gradient(&t, [&x, &v], &GradOptions::default()).unwrap();
        close(&vals(g[0].as_ref().unwrap()), &[36.0]);
        close(&vals(g[1].as_ref().unwrap()), &[27.0]);
    })
    .unwrap();
}
