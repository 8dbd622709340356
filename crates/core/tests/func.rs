//! Cases F-25 to F-33 and F-35 of docs/behaviour/autograd.md: function transforms and their nestings.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{BackwardOptions, backward, make_dual, no_grad, saved_tensors_hooks};
use firebrand_core::func::{
    Randomness, functional_call, grad, grad_and_value, grad_with_aux, hessian, jacfwd, jacrev, jacrev_with_aux, jvp,
    linearize, vjp, vmap,
};
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Class, DType, Result, Tensor, ops};
use indexmap::IndexMap;

fn cubes(x: &Tensor) -> Tensor {
    (x * x * x).sum()
}

fn squares(x: &Tensor) -> Tensor {
    x * x
}

/// F-25
#[test]
fn gradients_and_jacobians() {
    let x = con(&[1.0, 2.0]);
    close(&vals(&grad(cubes)(&x).unwrap()), &[3.0, 12.0]);
    let (g, y) = grad_and_value(cubes)(&x).unwrap();
    close(&vals(&g), &[3.0, 12.0]);
    close(&vals(&y), &[9.0]);
    assert!(!y.requires_grad() && !g.requires_grad());
    close(&vals(&jacrev(squares)(&x).unwrap()), &[2.0, 0.0, 0.0, 4.0]);
    close(&vals(&jacfwd(squares)(&x).unwrap()), &[2.0, 0.0, 0.0, 4.0]);
    let h = hessian(cubes)(&x).unwrap();
    assert_eq!(h.shape(), [2, 2]);
    close(&vals(&h), &[6.0, 0.0, 0.0, 12.0]);
    let both = (con(&[1.0, 2.0]), con(&[3.0, 6.0]));
    let (a, b) = grad(|(a, b): &(Tensor, Tensor)| (a * b).sum())(&both).unwrap();
    close(&vals(&a), &[3.0, 6.0]);
    close(&vals(&b), &[1.0, 2.0]);
    let (g, aux) = grad_with_aux(|x: &Tensor| (cubes(x), x + 1.0))(&x).unwrap();
    close(&vals(&g), &[3.0, 12.0]);
    close(&vals(&aux), &[2.0, 3.0]);
    assert!(!aux.requires_grad());
}

/// F-26
#[test]
fn what_a_transform_refuses() {
    let x = con(&[1.0, 2.0]);
    assert_err!(grad(squares)(&x), TransformOutput { .. });
    assert_err!(grad(|x: &Tensor| (cubes(x), cubes(x)))(&x), TransformOutput { .. });
    let inside = grad(|x: &Tensor| -> Result<Tensor> {
        let y = cubes(x);
        backward(&y, &BackwardOptions::default())?;
        Ok(y)
    });
    assert_err!(inside(&x), BackwardInTransform);
    let hooks = || saved_tensors_hooks(|t| Ok(t.clone()), |t: &Tensor| Ok(t.clone()));
    {
        let _around = hooks().unwrap();
        assert_err!(grad(cubes)(&x), SavedHooksDisabled { .. });
    }
    let with_hooks = grad(move |x: &Tensor| -> Result<Tensor> {
        let _inside = hooks()?;
        Ok(cubes(x))
    });
    assert_err!(with_hooks(&x), SavedHooksDisabled { .. });
    // The scope is over: hooks work again.
    assert!(hooks().is_ok());
}

/// F-27
#[test]
fn products_and_nesting() {
    let x = con(&[1.0, 2.0]);
    let (y, pullback) = vjp(squares, &x).unwrap();
    close(&vals(&y), &[1.0, 4.0]);
    for _ in 0..2 {
        close(&vals(&pullback.call(&con(&[1.0, 1.0])).unwrap()), &[2.0, 4.0]);
    }
    let (y, t) = jvp(squares, &x, &con(&[1.0, 1.0])).unwrap();
    close(&vals(&y), &[1.0, 4.0]);
    close(&vals(&t), &[2.0, 4.0]);
    let fourth = |x: &Tensor| x * x * x * x;
    let third = grad(grad(grad(fourth)))(&Tensor::scalar(2.0)).unwrap();
    close(&vals(&third), &[48.0]);
    let (y, linear) = linearize(squares, &Tensor::scalar(3.0)).unwrap();
    close(&vals(&y), &[9.0]);
    close(&vals(&linear.call(&Tensor::scalar(1.0)).unwrap()), &[6.0]);
    close(&vals(&linear.call(&Tensor::scalar(2.0)).unwrap()), &[12.0]);
}

/// F-28
#[test]
fn mapping() {
    let x = con(&[0.0, 1.0, 2.0]);
    close(&vals(&vmap(grad(squares)).call(&x).unwrap()), &[0.0, 2.0, 4.0]);
    let matrices = Tensor::ones([2, 3, 3], DType::F64);
    let matvec = |(m, v): &(Tensor, Tensor)| m.matmul(v);
    let ones = con(&[1.0, 1.0, 1.0]);
    let out = vmap(matvec).in_dims([Some(0), None]).call(&(matrices, ones.clone())).unwrap();
    assert_eq!(out.shape(), [2, 3]);
    let m = Tensor::ones([2, 3], DType::F64);
    close(&vals(&vmap(|row: &Tensor| ops::dot(row, row)).call(&m).unwrap()), &[3.0, 3.0]);
    close(&vals(&vmap(|x: &Tensor| x.sum()).in_dims(1).call(&m).unwrap()), &[2.0, 2.0, 2.0]);
    assert_eq!(vmap(|x: &Tensor| x * 2.0).out_dims(1).call(&m).unwrap().shape(), [3, 2]);
    let five = con(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let whole = vmap(squares).call(&five).unwrap();
    close(&vals(&vmap(squares).chunk_size(2).call(&five).unwrap()), &vals(&whole));
}

/// F-29
#[test]
fn what_vmap_refuses() {
    let (two, three) = (con(&[1.0, 2.0]), con(&[1.0, 2.0, 3.0]));
    let add = |(a, b): &(Tensor, Tensor)| a + b;
    let e = vmap(add).call(&(two.clone(), three.clone())).unwrap_err();
    assert_eq!(e.kind().class(), Class::Value);
    assert!(e.to_string().contains('2') && e.to_string().contains('3'), "{e}");
    let item = |x: &Tensor| -> Result<Tensor> { Ok(x * x.try_item::<f64>()?) };
    assert_err!(vmap(item).call(&three), BatchedData { .. });
    let branch = |x: &Tensor| -> Result<Tensor> { if ops::is_nonzero(x)? { Ok(x * 2.0) } else { Ok(x.clone()) } };
    expect!["vmap: aten::is_nonzero: its result depends on the values of each sample, which vmap cannot read; use where_self, masks of fixed size, or loop over the samples"].assert_eq(&vmap(branch).call(&three).unwrap_err().to_string());
    let noise = |x: &Tensor| -> Result<Tensor> { Ok(x + ops::randn(&[2.into()], Some(DType::F64), None)?) };
    assert_err!(vmap(noise).call(&three), VmapRandomness { .. });
    let write = |x: &Tensor| -> Result<Tensor> {
        let kept = ops::zeros(&[], Some(DType::F64), None)?;
        ops::add_(&kept, x, 1i64.into())?;
        Ok(kept)
    };
    assert_err!(vmap(write).call(&three), UnbatchedWrite { .. });
    let same = vals(&vmap(noise).randomness(Randomness::Same).call(&con(&[0.0, 0.0])).unwrap());
    assert_eq!(same[..2], same[2..]);
    let different = vals(&vmap(noise).randomness(Randomness::Different).call(&con(&[0.0, 0.0])).unwrap());
    assert_ne!(different[..2], different[2..]);
    assert_err!(vmap(squares).in_dims(3).call(&three), Vmap { .. });
    assert_err!(vmap(squares).in_dims([None]).call(&three), Vmap { .. });
}

/// F-31
#[test]
fn no_grad_inside_and_around() {
    let f = |x: &Tensor| x - no_grad(|| x * x);
    let x = Tensor::scalar(3.0);
    close(&vals(&grad(f)(&x).unwrap()), &[1.0]);
    close(&vals(&no_grad(|| grad(f)(&x)).unwrap()), &[1.0]);
    let nested = no_grad(|| grad(grad(cubes))(&x)).unwrap();
    close(&vals(&nested), &[18.0]);
}

/// F-32
#[test]
fn captured_tensors_stay_as_they_are() {
    let outer = Tensor::scalar(1.0);
    let writes = |x: &Tensor| -> Result<Tensor> {
        ops::copy_(&outer, x, false)?;
        Ok(x * x)
    };
    assert_err!(grad(writes)(&Tensor::scalar(2.0)), CapturedMutation { .. });
    close(&vals(&outer), &[1.0]);
    assert_err!(vjp(writes, &Tensor::scalar(2.0)), CapturedMutation { .. });
    assert_err!(jvp(writes, &Tensor::scalar(2.0), &Tensor::scalar(1.0)), CapturedMutation { .. });
    let own = |x: &Tensor| -> Result<Tensor> {
        let kept = ops::zeros(&[], Some(DType::F64), None)?;
        ops::copy_(&kept, x, false)?;
        Ok(&kept * x)
    };
    close(&vals(&grad(own)(&Tensor::scalar(2.0)).unwrap()), &[4.0]);
}

/// F-33
#[test]
fn jacobian_with_something_beside_it() {
    let f = |x: &Tensor| (x * x, x.sum());
    let (j, aux) = jacrev_with_aux(f)(&con(&[1.0, 2.0])).unwrap();
    close(&vals(&j), &[2.0, 0.0, 0.0, 4.0]);
    close(&vals(&aux), &[3.0]);
    // Both as outputs: a block each.
    let (a, b) = jacrev(f)(&con(&[1.0, 2.0])).unwrap();
    assert_eq!((a.shape(), b.shape()), (&[2, 2][..], &[2][..]));
    let (a2, b2) = jacfwd(f)(&con(&[1.0, 2.0])).unwrap();
    close(&vals(&a), &vals(&a2));
    close(&vals(&b), &vals(&b2));
}

/// Derivatives of an inner level never leak into an outer one.
#[test]
fn no_perturbation_confusion() {
    let one = || Tensor::scalar(1.0);
    // d/dx (x * d/dy (x + y)) = d/dx x = 1, in all four combinations of modes.
    let inner_jvp = |x: &Tensor| -> Result<Tensor> {
        let (_, t) = jvp(|y: &Tensor| x + y, &one(), &one())?;
        Ok(x * t)
    };
    let inner_grad = |x: &Tensor| -> Result<Tensor> { Ok(x * grad(|y: &Tensor| x + y)(&one())?) };
    let x = Tensor::scalar(2.0);
    close(&vals(&jvp(inner_jvp, &x, &one()).unwrap().1), &[1.0]);
    close(&vals(&jvp(inner_grad, &x, &one()).unwrap().1), &[1.0]);
    close(&vals(&grad(inner_jvp)(&x).unwrap()), &[1.0]);
    close(&vals(&grad(inner_grad)(&x).unwrap()), &[1.0]);
    // d/dx d/dy (x y^2) at y = x: inner 2xy -> 2x^2 -> 4x.
    let product = |x: &Tensor| -> Result<Tensor> { Ok(jvp(|y: &Tensor| x * y * y, x, &one())?.1) };
    close(&vals(&jvp(product, &x, &one()).unwrap().1), &[8.0]);
    close(&vals(&grad(product)(&x).unwrap()), &[8.0]);
    // Three deep: d3/dx3 x^4 = 24x, as jvp of jvp of jvp.
    let f1 = |x: &Tensor| -> Result<Tensor> { Ok(jvp(|x: &Tensor| x * x * x * x, x, &one())?.1) };
    let f2 = |x: &Tensor| -> Result<Tensor> { Ok(jvp(f1, x, &one())?.1) };
    close(&vals(&jvp(f2, &x, &one()).unwrap().1), &[48.0]);
    // Inside a plain dual level too.
    let t = firebrand_core::autograd::dual_level(|| {
        let d = make_dual(&x, &one()).unwrap();
        firebrand_core::autograd::unpack_dual(&f1(&d).unwrap()).unwrap().1
    });
    close(&vals(&t.unwrap().unwrap()), &[48.0]);
}

/// Every nesting of two transforms, against the closed form: f(x) = sum(x^3 w), with w captured.
#[test]
fn every_pair() {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
    let w = con(&[0.5, -1.0]);
    let ones = Tensor::ones([3, 2], DType::F64);
    let row = con(&[1.0, 2.0]);
    let (f, v) = (|x: &Tensor| (x * x * x * &w).sum(), con(&[1.0, 1.0]));
    let expect = |per: fn(f64) -> f64| -> Vec<f64> {
        vals(&x).iter().enumerate().map(|(k, &x)| per(x) * [0.5, -1.0][k % 2]).collect()
    };
    // vmap of grad, grad of vmap
    close(&vals(&vmap(grad(f)).call(&x).unwrap()), &expect(|x| 3.0 * x * x));
    let total = |x: &Tensor| -> Result<Tensor> { Ok(vmap(f).call(x)?.sum()) };
    close(&vals(&grad(total)(&x).unwrap()), &expect(|x| 3.0 * x * x));
    // vmap of jvp, jvp of vmap
    let along = |x: &Tensor| -> Result<Tensor> { Ok(jvp(f, x, &v)?.1) };
    let sums: Vec<f64> = expect(|x| 3.0 * x * x).chunks(2).map(|c| c[0] + c[1]).collect();
    close(&vals(&vmap(along).call(&x).unwrap()), &sums);
    close(&vals(&jvp(|x: &Tensor| vmap(f).call(x), &x, &ones).unwrap().1), &sums);
    // grad of grad, jvp of grad, grad of jvp
    let gsum = |x: &Tensor| -> Result<Tensor> { Ok(grad(f)(x)?.sum()) };
    close(&vals(&grad(gsum)(&row).unwrap()), &[3.0, -12.0]);
    close(&vals(&jvp(grad(f), &row, &v).unwrap().1), &[3.0, -12.0]);
    close(&vals(&grad(along)(&row).unwrap()), &[3.0, -12.0]);
    // vmap of vmap
    close(&vals(&vmap(vmap1(squares)).call(&x).unwrap()), &[1.0, 4.0, 9.0, 16.0, 25.0, 36.0]);
    // vjp under vmap and the other way round
    let pulled = |x: &Tensor| -> Result<Tensor> { vjp(squares, x)?.1.call(&v) };
    close(&vals(&vmap(pulled).call(&x).unwrap()), &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    let (_, pullback) = vjp(|x: &Tensor| vmap(f).call(x), &x).unwrap();
    close(&vals(&pullback.call(&con(&[1.0, 1.0, 1.0])).unwrap()), &expect(|x| 3.0 * x * x));
    // per-sample Hessian-vector products: vmap of jvp of grad, vmap of grad of jvp
    let hvp = |x: &Tensor| -> Result<Tensor> { Ok(jvp(grad(f), x, &v)?.1) };
    close(&vals(&vmap(hvp).call(&x).unwrap()), &expect(|x| 6.0 * x));
    close(&vals(&vmap(grad(along)).call(&x).unwrap()), &expect(|x| 6.0 * x));
    // per-sample Hessians, and the Hessian of a mapped function
    let each = vmap(hessian(f)).call(&x).unwrap();
    assert_eq!(each.shape(), [3, 2, 2]);
    let diagonal: Vec<f64> = vals(&each).chunks(4).flat_map(|h| [h[0], h[3]]).collect();
    close(&diagonal, &expect(|x| 6.0 * x));
    let whole = hessian(total)(&x).unwrap();
    assert_eq!(whole.shape(), [3, 2, 3, 2]);
    let found: Vec<f64> = (0..6).map(|k| vals(&whole)[k * 6 + k]).collect();
    close(&found, &expect(|x| 6.0 * x));
}

fn vmap1<F: Fn(&Tensor) -> Tensor>(f: F) -> impl Fn(&Tensor) -> Result<Tensor> {
    let mapped = vmap(f);
    move |x| mapped.call(x)
}

/// Captured tensors that require grad: the transform's result is differentiable with respect to them.
#[test]
fn gradients_flow_out_of_a_transform() {
    let w = leaf(3.0);
    let g = grad(|x: &Tensor| x * x * &w)(&Tensor::scalar(2.0)).unwrap();
    close(&vals(&g), &[12.0]);
    g.backward();
    close(&common::grad(&w), &[4.0]);
    let x = leaf(2.0);
    let g = grad(|x: &Tensor| x * x * x)(&x).unwrap();
    g.backward();
    close(&common::grad(&x), &[12.0]);
    let xs = leaves(&[1.0, 2.0]);
    let each = vmap(grad(|x: &Tensor| x * x * x)).call(&xs).unwrap();
    each.sum().backward();
    close(&common::grad(&xs), &[6.0, 12.0]);
    let quiet = no_grad(|| grad(|x: &Tensor| x * x * x)(&xs.sum())).unwrap();
    assert!(!quiet.requires_grad());
}

#[derive(Module)]
struct Linear {
    weight: Parameter,
    bias: Parameter,
    core: ModuleCore,
}

impl Forward for Linear {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::linear(x, &self.weight, Some(&self.bias))
    }
}

fn named(weight: f64, bias: f64) -> IndexMap<String, Tensor> {
    let weight = Tensor::from_slice(&[weight], [1, 1]);
    IndexMap::from([("weight".to_string(), weight), ("bias".to_string(), con(&[bias]))])
}

/// F-30
#[test]
fn a_module_as_a_function_of_its_parameters() {
    let own = named(10.0, 20.0);
    let linear = Linear {
        weight: Parameter::new(own["weight"].clone()),
        bias: Parameter::new(own["bias"].clone()),
        core: ModuleCore::new(),
    };
    let x = con(&[3.0]);
    close(&vals(&functional_call(&linear, &named(2.0, 1.0), &x).unwrap()), &[7.0]);
    close(&vals(&linear.call(&x)), &[50.0]);
    let loss = |p: &IndexMap<String, Tensor>| -> Result<Tensor> { Ok(functional_call(&linear, p, &x)?.sum()) };
    let g = grad(loss)(&named(2.0, 1.0)).unwrap();
    close(&vals(&g["weight"]), &[3.0]);
    close(&vals(&g["bias"]), &[1.0]);
    assert!(linear.weight.grad().is_none());
    // An ensemble: parameters mapped over; the map of parameters holds inside an inner vmap too.
    let stacked = IndexMap::from([
        ("weight".to_string(), Tensor::from_slice(&[1.0, 2.0], [2, 1, 1])),
        ("bias".to_string(), Tensor::from_slice(&[0.0, 1.0], [2, 1])),
    ]);
    let both = vmap(|p: &IndexMap<String, Tensor>| functional_call(&linear, p, &x)).call(&stacked).unwrap();
    close(&vals(&both), &[3.0, 7.0]);
    expect!["functional_call: Linear has no parameter or buffer named 'none'"].assert_eq(
        &functional_call(&linear, &IndexMap::from([("none".to_string(), x.clone())]), &x).unwrap_err().to_string(),
    );
}

/// Transforms with respect to some of the arguments; the others are constants, and nested transforms see the same function.
#[test]
fn argnums_choose_arguments() {
    use firebrand_core::func::{
        Arg, grad_and_value_argnums, grad_argnums, hessian_argnums, jacfwd_argnums, jacrev_argnums,
    };
    let loss = |(w, x, y): &(Tensor, Tensor, Tensor)| ((w * x - y) * (w * x - y)).sum();
    let args = (Tensor::new(&[1.0f64]), Tensor::new(&[2.0f64]), Tensor::new(&[5.0f64]));
    let list = |t: &Tensor| t.to_vec::<f64>();
    assert_eq!(list(&grad_argnums(loss, Arg::<0>)(&args).unwrap()), [-12.0], "one");
    let (w, y) = grad_argnums(loss, (Arg::<0>, Arg::<2>))(&args).unwrap();
    assert_eq!((list(&w), list(&y)), (vec![-12.0], vec![6.0]), "two");
    let (x, value) = grad_and_value_argnums(loss, Arg::<1>)(&args).unwrap();
    assert_eq!((list(&x), value.item::<f64>()), (vec![-6.0], 9.0), "with the value");
    let rows = |(w, x): &(Tensor, Tensor)| w * x;
    let pair = (Tensor::new(&[3.0f64, 4.0]), Tensor::new(&[5.0f64, 6.0]));
    assert_eq!(list(&jacrev_argnums(rows, Arg::<0>)(&pair).unwrap()), [5.0, 0.0, 0.0, 6.0], "jacrev");
    assert_eq!(list(&jacfwd_argnums(rows, Arg::<1>)(&pair).unwrap()), [3.0, 0.0, 0.0, 4.0], "jacfwd");
    assert_eq!(list(&hessian_argnums(loss, Arg::<0>)(&args).unwrap()), [8.0], "hessian");
    // An integer argument that is not chosen is no obstacle.
    let at = (Tensor::new(&[2.0f64, 3.0]), Tensor::new(&[1i64]));
    let picked = grad_argnums(|(x, i): &(Tensor, Tensor)| x.index_select(0, i).sum(), Arg::<0>)(&at).unwrap();
    assert_eq!(list(&picked), [0.0, 1.0], "an integer argument");
}

/// F-35: the values of the first sample were read, or the process panicked.
#[test]
fn samples_do_not_escape_their_batch() {
    let kept = std::cell::RefCell::new(Vec::new());
    let keep = |x: &Tensor| {
        kept.borrow_mut().extend([x.clone(), x * 2.0]);
        x * 3.0
    };
    let batch = Tensor::zeros([3, 4], DType::F64);
    vmap(keep).call(&batch).unwrap();
    let four = Tensor::zeros([4], DType::F64);
    for t in kept.take() {
        assert_err!(t.try_to_vec::<f64>(), EscapedTensor);
        assert_err!(ops::add(&t, &four, 1.into()), EscapedTensor);
        assert_err!(ops::sum(&t, None), EscapedTensor);
        assert_err!(ops::zero_(&t), EscapedTensor);
        assert_err!(ops::copy_(&four, &t, false), EscapedTensor);
        let view = ops::select(&t, 0, 1.into()).unwrap();
        assert_err!(view.try_item::<f64>(), EscapedTensor);
        assert_err!(ops::mul(&view, &view), EscapedTensor);
        // Two batches of the same size that follow each other have nothing in common.
        let again = vmap(|x: &Tensor| -> Result<Tensor> { ops::add(x, &t, 1.into()) });
        assert_err!(again.call(&batch), EscapedTensor);
        let other = vmap(|_: &Tensor| t.clone());
        assert_err!(other.call(&batch), EscapedTensor);
        let nested = vmap(|x: &Tensor| -> Result<Tensor> { vmap(|y: &Tensor| ops::mul(y, &t)).call(x) });
        assert_err!(nested.call(&Tensor::zeros([2, 3, 4], DType::F64)), EscapedTensor);
    }
    close(&vals(&four), &[0.0; 4]);
}
