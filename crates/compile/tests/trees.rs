//! One kind of argument everywhere: what `compile` takes, `func`'s transforms take too, and the other way round.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_compile::{Shared, compile_with};
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::func::{grad as func_grad, vjp, vmap};
use firebrand_core::tree::TensorTree;
use firebrand_core::{DType, Device, Number, SymInt, Tensor};
use indexmap::IndexMap;

/// The same function of the same arguments: plainly, compiled, differentiated two ways, and mapped over one sample.
fn everywhere<A: TensorTree>(name: &str, args: &A, f: fn(&A) -> Tensor) {
    let near = |a: &Tensor, b: &Tensor| {
        let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9)
    };
    let plain = f(args);
    for (backend, c) in counted() {
        let found = compile_with(f, full(&c)).call(args);
        assert!(near(&found, &plain), "{name}: compiled with {backend}");
    }
    // The gradient by the engine, on leaves of its own.
    let leaves = args.replace(&mut |t| t.detach().try_requires_grad_(true)).unwrap();
    f(&leaves).backward();
    let expected: Vec<Tensor> = leaves.leaves().iter().map(|t| t.grad().unwrap()).collect();
    let by_grad = func_grad(f)(args).unwrap().leaves();
    let (value, pullback) = vjp(f, args).unwrap();
    let by_vjp = pullback.call(&Tensor::ones([0i64; 0], DType::F64)).unwrap().leaves();
    assert!(near(&value, &plain), "{name}: vjp");
    for (k, expected) in expected.iter().enumerate() {
        assert!(near(&by_grad[k], expected), "{name}: grad, tensor {k}");
        assert!(near(&by_vjp[k], expected), "{name}: vjp, tensor {k}");
    }
    let batch = args.replace(&mut |t| Ok(t.unsqueeze(0))).unwrap();
    let mapped = vmap(f).call(&batch).unwrap();
    assert!(near(&mapped, &plain), "{name}: vmap");
}

fn t(values: &[f64]) -> Tensor {
    Tensor::new(values)
}

fn handle() -> RemovableHandle {
    leaf(&[1.0]).register_hook(|_: &Tensor| ())
}

#[test]
fn arguments_are_the_same_everywhere() {
    let (a, b) = (t(&[1.0, 2.0]), t(&[3.0, -1.0]));
    everywhere("a tensor", &a, |x| x.sin().sum());
    everywhere("a pair", &(a.clone(), b.clone()), |(x, y)| (x * y).sum());
    everywhere("an array", &[a.clone(), b.clone()], |[x, y]| (x * y).sum());
    everywhere("a list", &vec![a.clone(), b.clone()], |l| (&l[0] * &l[1]).sum());
    let map: IndexMap<String, Tensor> = [("x".to_string(), a.clone()), ("y".to_string(), b.clone())].into();
    everywhere("a map", &map, |m| (&m["x"] * &m["y"]).sum());
    everywhere("an optional tensor", &(a.clone(), Some(b.clone())), |(x, y)| (x * y.as_ref().unwrap()).sum());
    everywhere("an absent tensor", &(a.clone(), None::<Tensor>), |(x, y)| {
        assert!(y.is_none());
        x.exp().sum()
    });
    everywhere("nested", &(vec![(a.clone(), 2.0f64)], [Some(b.clone())]), |(l, [y])| {
        (&(&l[0].0 * l[0].1) * y.as_ref().unwrap()).sum()
    });
    everywhere("host values", &(a.clone(), (true, 3i64, 0.5f32, "sin".to_string())), |(x, (on, n, k, op))| {
        assert!(*on && op == "sin");
        (&x.sin() * (*n as f64 * f64::from(*k))).sum()
    });
    everywhere("a dtype and a device", &(a.clone(), DType::F64, Device::Cpu), |(x, dtype, device)| {
        assert_eq!(*device, Device::Cpu);
        x.to_dtype(*dtype).cos().sum()
    });
    everywhere("a number", &(a.clone(), Number::new(2.5)), |(x, k)| (x * k).sum());
    everywhere("a size", &(a.clone(), SymInt::from(2i64)), |(x, n)| (x * x).view([*n]).sum());
    everywhere("a handle", &(a.clone(), handle()), |(x, _)| (x * x).sum());
    everywhere("a cell", &(a.clone(), Shared::new(4.0f64)), |(x, k)| (x * k.get()).sum());
    everywhere("nothing else", &(a, ()), |(x, ())| x.tanh().sum());
}
