//! Cases of docs/behaviour/autograd.md: tensors, versions, views, in-place history, `.grad`.
//! A-55, about complex gradients, is in complex.rs.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{BackwardOptions, GradOptions, grad as gradient, no_grad};
use firebrand_core::{DType, Tensor, collect_warnings, ops};

///
#[test]
fn integers_cannot_require_grad() {
    assert_err!(Tensor::new(&[1i64, 2]).try_requires_grad_(true), NotDifferentiableDtype { .. });
}

///
#[test]
fn leaves_and_computed_tensors() {
    let row = Row::default();
    row.is("A-2");
    let x = leaf(1.0);
    let y = &x * 2.0;
    let z = con(&[1.0]);
    let d = y.detach();
    assert_eq!([&x, &y, &z, &d].map(|t| t.is_leaf()), [true, false, true, true]);
    assert_eq!([&x, &y, &z, &d].map(|t| t.grad_fn().is_some()), [false, true, false, false]);
    row.is("A-3");
    let e = y.try_set_requires_grad(false).unwrap_err();
    assert!(e.to_string().contains("detach"));
    assert_err!(Err::<(), _>(e), NonLeafFlag);
    row.is("A-4");
    y.try_set_requires_grad(true).unwrap();
}

///
#[test]
fn writing_leaves() {
    let row = Row::default();
    let x = leaves(&[1.0, 2.0]);
    row.is("A-5");
    assert_err!(x.try_add_scalar_(1.0, 1), LeafInplace { .. });
    assert_eq!(vals(&x), [1.0, 2.0]);
    row.is("A-6");
    assert_err!(x.select(0, 0).try_add_scalar_(1.0, 1), LeafViewInplace { .. });
    row.is("A-7");
    no_grad(|| x.add_scalar_(1.0, 1));
    assert_eq!(vals(&x), [2.0, 3.0]);
    assert_eq!((x.version(), x.is_leaf(), x.requires_grad()), (1, true, true));
}

///
#[test]
fn version_counters() {
    let row = Row::default();
    row.is("A-8");
    let x = con(&[1.0; 3]);
    let d = x.detach();
    d.add_scalar_(1.0, 1);
    assert_eq!((x.version(), d.version(), d.is_view(), d.base().is_none()), (1, 1, false, true));

    row.is("A-9");
    let x = con(&[1.0; 3]);
    let e = x.data();
    e.add_scalar_(1.0, 1);
    assert_eq!((vals(&x), x.version(), e.version()), (vec![2.0; 3], 0, 1));

    row.is("A-10");
    let x = con(&[1.0; 4]);
    let v = x.view([2, 2]);
    let w = v.select(0, 0);
    w.mul_scalar_(2.0);
    assert_eq!([x.version(), v.version(), w.version()], [1; 3]);
    assert!(w.base().unwrap().is_same(&x) && v.base().unwrap().is_same(&x));

    row.is("A-11");
    let x = con(&[1.0; 2]);
    x.add_scalar_(1.0, 1);
    assert_eq!(x.clone_tensor().version(), 0);

    row.is("A-12");
    let x = leaves(&[1.0, 2.0]);
    x.set_data(&con(&[1.0; 3]));
    assert_eq!((x.shape(), x.version(), x.requires_grad()), (&[3usize][..], 0, true));
    x.sum().backward();
    assert_eq!(grad(&x), [1.0; 3]);
}

///
#[test]
fn saved_values_are_version_checked() {
    let row = Row::default();
    row.is("A-13");
    let x = leaves(&[1.0, 2.0]);
    let b = &x * 1.0;
    let y = &b * &b;
    b.add_scalar_(1.0, 1);
    assert_err!(y.sum().try_backward(&BackwardOptions::default()), SavedVersionMismatch { expected: 0, found: 1, .. });

    row.is("A-14");
    let x = leaves(&[1.0, 2.0]);
    let b = &x * 1.0;
    let y = &b + &b;
    b.add_scalar_(1.0, 1);
    y.sum().backward();
    assert_eq!(grad(&x), [2.0, 2.0]);

    row.is("A-15");
    let x = leaves(&[1.0, 2.0]);
    let b = &x * 1.0;
    let y = &b * con(&[3.0, 4.0]);
    b.add_scalar_(1.0, 1);
    y.sum().backward();
    assert_eq!(grad(&x), [3.0, 4.0]);

    row.is("A-16");
    let y = leaves(&[1.0, 2.0]).exp();
    y.add_scalar_(1.0, 1);
    assert_err!(y.sum().try_backward(&BackwardOptions::default()), SavedVersionMismatch { .. });
}

///
#[test]
fn writes_through_views_and_bases() {
    let row = Row::default();
    row.is("A-17");
    let x = leaves(&[1.0, 2.0, 3.0, 4.0]);
    let b = x.clone_tensor();
    cut(&b, 0, 2).mul_scalar_(10.0);
    let node = b.grad_fn().unwrap();
    assert_eq!(node.name(), "torch::autograd::CopySlices");
    let next = node.next_functions();
    assert_eq!(next[0].as_ref().unwrap().node.name(), "CloneBackward0");
    assert!(next[1..].iter().all(Option::is_none));
    b.sum().backward();
    assert_eq!(grad(&x), [10.0, 10.0, 1.0, 1.0]);

    row.is("A-18");
    let x = leaves(&[1.0, 2.0, 3.0, 4.0]);
    let b = x.clone_tensor();
    let v = cut(&b, 0, 2);
    b.mul_scalar_(3.0);
    v.sum().backward();
    assert_eq!(grad(&x), [3.0, 3.0, 0.0, 0.0]);

    row.is("A-19");
    let x = leaves(&[1.0, 2.0, 3.0]);
    let b = &x * 1.0;
    let (v1, v2) = (cut(&b, 0, 2), cut(&b, 1, 3));
    v1.mul_scalar_(10.0);
    v2.sum().backward();
    assert_eq!(grad(&x), [0.0, 10.0, 1.0]);

    row.is("A-20");
    let x = leaves(&[1.0, 2.0, 3.0, 4.0]);
    let b = &x * 1.0;
    let m = b.view([2, 2]);
    m.select(0, 0).mul_scalar_(5.0);
    m.mul_scalar_(2.0);
    b.add_scalar_(1.0, 1);
    (&b * con(&[1.0, 10.0, 100.0, 1000.0])).sum().backward();
    assert_eq!((vals(&b), b.version()), (vec![11.0, 21.0, 7.0, 9.0], 3));
    assert_eq!(grad(&x), [10.0, 100.0, 200.0, 2000.0]);
}

///
#[test]
fn writing_gradients_into_plain_tensors() {
    let row = Row::default();
    row.is("A-21");
    let b = con(&[0.0; 2]);
    let w = leaf(3.0);
    b.select(0, 1).copy_(&w, false);
    assert!(b.requires_grad() && !b.is_leaf());
    let g = gradient(&b.sum(), &w, &GradOptions::default()).unwrap();
    assert_eq!(vals(g[0].as_ref().unwrap()), [1.0]);

    row.is("A-22");
    let b = con(&[0.0; 2]);
    let v = b.select(0, 1);
    let w = leaves(&[3.0, 4.0]);
    b.copy_(&w, false);
    assert!(v.requires_grad());
    let g = gradient(&v, &w, &GradOptions::default()).unwrap();
    assert_eq!(vals(g[0].as_ref().unwrap()), [0.0, 1.0]);

    row.is("A-23");
    let x = leaves(&[1.0, 2.0, 3.0]);
    let w = leaf(7.0);
    let b = &x * 2.0;
    b.select(0, 1).copy_(&w, false);
    let node = b.grad_fn().unwrap();
    let names: Vec<&str> = node.next_functions().iter().map(|e| e.as_ref().unwrap().node.name()).collect();
    assert_eq!(names, ["MulBackward0", "torch::autograd::AccumulateGrad"]);
    b.sum().backward();
    assert_eq!((grad(&x), grad(&w)), (vec![2.0, 0.0, 2.0], vec![1.0]));
}

///
#[test]
fn views_that_must_not_be_written() {
    let row = Row::default();
    row.is("A-24");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    assert_err!(b.unbind(0)[0].try_mul_scalar_(2.0), MultiOutputViewInplace { indirect: false, .. });
    assert_err!(b.split(1, 0)[0].try_mul_scalar_(2.0), MultiOutputViewInplace { indirect: false, .. });
    assert_err!(b.chunk(2, 0)[0].try_mul_scalar_(2.0), MultiOutputViewInplace { indirect: false, .. });

    row.is("A-25");
    let u = b.unbind(0);
    b.mul_scalar_(2.0);
    assert_err!(u[0].try_grad_fn_edge(), MultiOutputViewInplace { indirect: true, .. });
    assert_err!(u[0].try_mul_scalar(2.0), MultiOutputViewInplace { indirect: true, .. });

    row.is("A-26");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    let v = no_grad(|| b.select(0, 0));
    assert_err!(v.try_mul_scalar_(2.0), NoGradViewInplace { .. });

    row.is("A-27");
    let b = con(&[0.0; 2]);
    let v = no_grad(|| b.select(0, 0));
    assert_err!(v.try_copy_(&leaf(3.0), false), NoGradViewInplace { .. });

    row.is("A-28");
    let y = (leaves(&[1.0]) * 2.0).expand([3]);
    assert_err!(y.try_add_scalar_(1.0, 1), OverlappingWrite { .. });
}

///
#[test]
fn retained_gradients() {
    let row = Row::default();
    row.is("A-29");
    let x = leaves(&[1.0, 2.0]);
    let y = &x * 2.0;
    y.retain_grad();
    y.retain_grad();
    (&y * 3.0).sum().backward();
    assert_eq!((grad(&y), y.retains_grad(), x.retains_grad()), (vec![3.0, 3.0], true, false));

    row.is("A-30");
    let x = leaf(1.0);
    x.retain_grad();
    assert!(!x.retains_grad());
    assert_err!(con(&[1.0]).try_retain_grad(), RetainGradNoGrad);

    row.is("A-31");
    let y = leaf(1.0) * 2.0;
    let (g, warnings) = collect_warnings(|| y.grad());
    assert!(g.is_none());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("leaf"));

    row.is("A-32");
    let y = leaves(&[1.0, 2.0]) * 2.0;
    y.retain_grad();
    y.mul_scalar_(3.0);
    y.sum().backward();
    assert_eq!(grad(&y), [1.0, 1.0]);

    row.is("A-33");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    let v = cut(&b, 0, 1);
    v.retain_grad();
    b.mul_scalar_(3.0);
    (&v * 2.0).sum().backward();
    assert_eq!(grad(&v), [2.0]);

    row.is("A-34");
    let x = leaves(&[1.0, 2.0]);
    let b = &x * 1.0;
    b.retain_grad();
    cut(&b, 0, 1).mul_scalar_(3.0);
    (&b * 2.0).sum().backward();
    assert_eq!((grad(&b), grad(&x)), (vec![2.0, 2.0], vec![6.0, 2.0]));
}

/// A-35 (a string as a gradient does not compile: types.md; the argument is a tensor)
#[test]
fn assigning_gradients() {
    let x = leaves(&[1.0, 2.0]);
    assert_err!(x.try_set_grad(Some(&con(&[1.0; 3]))), GradAssignShape { .. });
    assert_err!(x.try_set_grad(Some(&Tensor::new(&[1.0f32; 2]))), GradAssignDtype { .. });
    assert_err!(x.try_set_grad(Some(&x)), GradAssignSelf);
}

///
#[test]
fn layout_of_stored_gradients() {
    let x = Tensor::from_slice(&[1.0f64; 6], [2, 3]).t().detach().requires_grad_();
    assert_eq!(x.strides(), [1, 3]);
    (&x * 2.0).sum().backward();
    assert_eq!(x.grad().unwrap().strides(), [1, 3]);

    let x = con(&[1.0; 3]).expand([2, 3]).detach().requires_grad_();
    assert_eq!(x.strides(), [0, 1]);
    (&x * 2.0).sum().backward();
    let g = x.grad().unwrap();
    assert_eq!((g.strides(), vals(&g)), (&[3usize, 1][..], vec![2.0; 6]));
}

///
#[test]
fn accumulation_steals_and_shares() {
    let row = Row::default();
    row.is("A-38");
    let x = leaves(&[1.0, 2.0]);
    let g = con(&[1.0, 1.0]);
    x.backward_with(&g);
    x.grad().unwrap().mul_scalar_(100.0);
    assert_eq!(vals(&g), [1.0, 1.0]);

    row.is("A-39");
    let x = leaves(&[1.0, 2.0]);
    (&x * 2.0).sum().backward();
    let g = x.grad().unwrap();
    (&x * 3.0).sum().backward();
    assert!(g.is_same(&x.grad().unwrap()));
    assert_eq!(vals(&g), [5.0, 5.0]);

    row.is("A-40");
    let x = leaves(&[1.0, 2.0]);
    (&x * &x).sum().backward();
    let g = x.grad().unwrap();
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    (&x * &x * &x).sum().try_backward(&options).unwrap();
    assert_eq!((vals(&g), grad(&x)), (vec![2.0, 4.0], vec![5.0, 16.0]));
    assert!(x.grad().unwrap().requires_grad());
    x.zero_grad(); // breaks the cycle

    row.is("A-41");
    let x = leaves(&[1.0, 2.0]);
    let g = con(&[1.0, 1.0]);
    x.set_grad(Some(&g));
    (&x * 3.0).sum().backward();
    assert_eq!(vals(&g), [4.0, 4.0]);
    assert!(x.grad().unwrap().is_same(&g));
}

///
#[test]
fn detaching_and_numbering() {
    let y = leaves(&[1.0, 2.0]) * 2.0;
    y.detach_();
    assert!(y.is_leaf() && !y.requires_grad());
    let v = cut(&(leaves(&[1.0, 2.0]) * 2.0), 0, 1);
    assert_err!(v.try_detach_(), DetachViewInplace);

    let x = leaves(&[3.0, 1.0]);
    let (v, i) = x.sort(0, false);
    assert_eq!((v.output_nr(), i.requires_grad()), (0, false));
    let u = x.unbind(0);
    assert_eq!([u[0].output_nr(), u[1].output_nr()], [0, 1]);
    assert!(u[0].grad_fn().unwrap().is_same(&u[1].grad_fn().unwrap()));
}

///
#[test]
fn flags_through_views_and_writes() {
    let row = Row::default();
    row.is("A-44");
    let x = leaf(3.0);
    let v = no_grad(|| x.view([1]));
    assert!(v.requires_grad() && v.is_leaf() && v.grad_fn().is_none());
    (&v * 2.0).sum().backward();
    assert!(x.grad().is_none() && v.grad().is_none());

    row.is("A-45");
    let x = con(&[1.0; 4]);
    let v = cut(&x, 0, 2).requires_grad_();
    (&v * 2.0).sum().backward();
    assert_eq!(grad(&v), [2.0, 2.0]);
    assert!(!x.requires_grad() && x.grad().is_none());

    row.is("A-46");
    let a = con(&[0.0; 2]);
    a.add_(&leaves(&[1.0, 2.0]));
    assert!(a.requires_grad() && !a.is_leaf());
    let node = a.grad_fn().unwrap();
    assert_eq!(node.name(), "AddBackward0");
    assert!(node.next_functions()[0].is_none());
    assert_eq!(node.next_functions()[1].as_ref().unwrap().node.name(), "torch::autograd::AccumulateGrad");

    row.is("A-47");
    for overwrite in [
        |y: &Tensor| {
            y.zero_();
        },
        |y: &Tensor| {
            y.copy_(&con(&[5.0, 6.0]), false);
        },
    ] {
        let x = leaves(&[1.0, 2.0]);
        let y = &x * 1.0;
        overwrite(&y);
        y.sum().backward();
        assert_eq!(grad(&x), [0.0, 0.0]);
    }
}

///
#[test]
fn data_detach_and_no_grad() {
    let row = Row::default();
    row.is("A-48");
    let x = leaf(2.0);
    let y = &x * &x;
    x.data().add_scalar_(1.0, 1);
    y.backward();
    assert_eq!(grad(&x), [6.0]);

    row.is("A-49");
    let x = leaf(2.0);
    let y = &x * &x;
    x.detach().add_scalar_(1.0, 1);
    assert_err!(y.try_backward(&BackwardOptions::default()), SavedVersionMismatch { .. });

    row.is("A-50");
    let x = leaf(1.0);
    let y = no_grad(|| &x * 2.0).requires_grad_();
    (&y * 3.0).backward();
    assert_eq!(grad(&y), [3.0]);
    assert!(x.grad().is_none());
}

///
#[test]
fn dtypes_of_gradients() {
    let x = Tensor::new(&[1.0f32, 2.0]).requires_grad_();
    x.to_dtype(DType::F64).sum().backward();
    assert_eq!(x.grad().unwrap().dtype(), DType::F32);

    let x = Tensor::new(&[1.0f32, 2.0]).requires_grad_();
    assert_eq!(x.grad_dtype(), Some(DType::F32));
    x.set_grad_dtype(Some(DType::F64));
    (&x * 2.0).sum().backward();
    assert_eq!(x.grad().unwrap().dtype(), DType::F64);
}

///
#[test]
fn broadcast_and_index_gradients() {
    let a = Tensor::ones([2, 1], DType::F64).requires_grad_();
    let b = Tensor::ones([3], DType::F64).requires_grad_();
    (&a * &b).sum().backward();
    assert_eq!((grad(&a), a.grad().unwrap().shape()), (vec![3.0, 3.0], &[2usize, 1][..]));
    assert_eq!(grad(&b), [2.0; 3]);

    let x = leaves(&[1.0, 2.0, 3.0]);
    x.index(&[Some(Tensor::new(&[0i64, 0, 2]))]).sum().backward();
    assert_eq!(grad(&x), [2.0, 0.0, 1.0]);
}

/// one row per function, its sample and the gradient of its sum.
#[test]
fn sub_gradients() {
    type Row = (&'static str, fn(&Tensor) -> Tensor, &'static [f64], &'static [f64]);
    let rows: &[Row] = &[
        ("relu at 0", |x| x.relu(), &[0.0], &[0.0]),
        ("abs at 0", |x| x.abs(), &[0.0], &[0.0]),
        ("max of equals", |x| x.max(), &[2.0, 2.0], &[0.5, 0.5]),
        ("max along a dim", |x| x.max_dim(0, false).0, &[2.0, 2.0], &[1.0, 0.0]),
        ("maximum with 0 at 0", |x| x.maximum(&con(&[0.0])), &[0.0], &[0.5]),
        ("norm of zeros", |x| x.norm(2.0), &[0.0, 0.0], &[0.0, 0.0]),
        ("sqrt at 0", |x| x.sqrt(), &[0.0], &[f64::INFINITY]),
        ("prod with a zero", |x| x.prod(), &[0.0, 2.0, 3.0], &[6.0, 0.0, 0.0]),
        (
            "where keeps the masked branch",
            |x| ops::where_self(&x.gt_scalar(0.0), &x.sqrt(), &con(&[0.0])).unwrap(),
            &[0.0, 4.0],
            &[f64::NAN, 0.25],
        ),
        (
            "clamp excludes its bounds",
            |x| x.clamp(Some(0.0.into()), Some(1.0.into())),
            &[-1.0, 0.0, 0.5, 1.0, 2.0],
            &[0.0, 0.0, 1.0, 0.0, 0.0],
        ),
    ];
    for (name, f, sample, expected) in rows {
        let x = leaves(sample);
        f(&x).sum().backward();
        let found = grad(&x);
        println!("{name}: {found:?}");
        close(&found, expected);
    }
}

///
#[test]
fn view_kinds_are_inherited() {
    let row = Row::default();
    row.is("A-59");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    let u = b.unbind(0).remove(0);
    assert_err!(u.view([1]).try_mul_scalar_(2.0), MultiOutputViewInplace { .. });
    let v = no_grad(|| u.view([1]));
    assert_err!(v.try_mul_scalar_(2.0), NoGradViewInplace { .. });
    let w = no_grad(|| cut(&b, 0, 1));
    assert_err!(w.view([1]).try_mul_scalar_(2.0), NoGradViewInplace { .. });

    row.is("A-60");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    let u = b.unbind(0);
    no_grad(|| u[0].mul_scalar_(5.0));
    assert_eq!((vals(&b), node_name(&b), b.version()), (vec![5.0, 2.0], "MulBackward0".into(), 1));

    row.is("A-61");
    let (x, w) = (leaf(2.0), leaf(5.0));
    let y = x.clone_tensor();
    y.mul_(&w);
    y.backward();
    assert_eq!((grad(&x), grad(&w)), (vec![5.0], vec![2.0]));
    let (x, z) = (leaf(2.0), leaf(4.0));
    let y = x.clone_tensor();
    y.div_(&z);
    y.backward();
    assert_eq!((grad(&x), grad(&z)), (vec![0.25], vec![-0.125]));
}

///
#[test]
fn deep_copies() {
    let x = leaves(&[1.0, 2.0]);
    (&x * 3.0).sum().backward();
    let c = x.try_deep_copy().unwrap();
    assert!(c.requires_grad() && !c.shares_storage(&x));
    assert_eq!(grad(&c), [3.0, 3.0]);
    assert!(!c.grad().unwrap().shares_storage(&x.grad().unwrap()));
    assert_err!((&x * 1.0).try_deep_copy(), DeepCopyNonLeaf);
}

/// what a plain backward adds to a gradient with history is added in place: the gradient keeps its history.
#[test]
fn plain_accumulation_keeps_the_history_of_a_gradient() {
    let x = Tensor::new(&[2.0f64, 3.0]).requires_grad_();
    let recorded = BackwardOptions { create_graph: true, ..Default::default() };
    (&x * &x * &x).sum().try_backward(&recorded).unwrap();
    let first = x.grad().unwrap();
    assert_eq!(first.to_vec::<f64>(), [12.0, 27.0], "A-65");
    (&x * 5.0).sum().backward();
    let grad = x.grad().unwrap();
    assert!(grad.is_same(&first) && grad.requires_grad() && grad.grad_fn().is_some(), "A-65");
    assert_eq!(grad.to_vec::<f64>(), [17.0, 32.0], "A-65");
    let second = gradient(&grad.sum(), &x, &GradOptions::default()).unwrap();
    assert_eq!(second[0].as_ref().unwrap().to_vec::<f64>(), [12.0, 18.0], "A-65");
}

/// Second derivatives through a write into a view failed: the op's own node, which is the history of the result it saved, found its
/// saved values released by the node of the write.
#[test]
fn second_derivative_through_a_write_into_a_view() {
    let x = Tensor::new(&[0.5f64, -1.0]).requires_grad_();
    let y = &x * 2.0;
    y.view([2]).exp_();
    let options = GradOptions { create_graph: true, ..Default::default() };
    let first = gradient(&y.sum(), &x, &options).unwrap().remove(0).unwrap();
    let second = gradient(&first.sum(), &x, &GradOptions::default()).unwrap().remove(0).unwrap();
    let expected: Vec<f64> = [1.0f64, -2.0].iter().map(|v| 4.0 * v.exp()).collect();
    for (found, expected) in second.to_vec::<f64>().iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "d2 of exp: {found} and {expected}");
    }
}
