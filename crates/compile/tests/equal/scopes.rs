//! Saved-tensor scopes around and inside compiled functions.

use crate::{Case, How, check, leaf_of};
use firebrand_compile::{Options, backends, compile_with};
use firebrand_core::autograd::{save_compressed, save_on_cpu, saved_tensors_hooks};
use firebrand_core::{DType, Tensor};

/// Pack hooks see real tensors only, whenever they are switched on.
fn pack_hooks_see_real_tensors(how: &How) {
    let f = how.compile(|x: &Tensor| (x.sin() * x).exp() * 2.0);
    for k in 0..3 {
        let x = leaf_of(k);
        let log = how.log.clone();
        let pack = move |t: &Tensor| {
            if t.is_meta() {
                log.push("a meta tensor was packed");
            }
            Ok(t.detach())
        };
        let y = {
            let _scope = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone())).unwrap();
            f(&x).unwrap()
        };
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

/// The same inside, with what they are given.
fn pack_hooks_inside(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let log = log.clone();
        let pack = move |t: &Tensor| {
            log.see("pack", t);
            Ok(t.detach())
        };
        let _scope = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone())).unwrap();
        (&y * &y).sin()
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// Numbers are not packed, plainly and compiled.
fn numbers_are_not_packed(how: &How) {
    let f = how.compile(|x: &Tensor| (x * 1.0).sin());
    for k in 0..3 {
        let x = leaf_of(k);
        let log = how.log.clone();
        let pack = move |t: &Tensor| {
            if t.ndim() == 0 {
                log.push("a number was packed");
            }
            Ok(t.detach())
        };
        let y = {
            let _scope = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone())).unwrap();
            f(&x).unwrap()
        };
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

#[test]
fn saved_tensor_scopes() {
    const CASES: &[Case] =
        &[("X-80", pack_hooks_see_real_tensors), ("X-81", pack_hooks_inside), ("X-82", numbers_are_not_packed)];
    check(CASES);
}

/// a scope that is made anew each step does not recompile.
#[test]
fn a_new_scope_each_step_does_not_recompile() {
    for name in ["eager", "aot_eager", "firebrand"] {
        for kind in 0..3 {
            let counter = backends::counter(backends::backend(name).unwrap());
            let f = compile_with(|x: &Tensor| (x.sin() * x).exp(), Options::with_backend(counter.clone()));
            for k in 0..4 {
                let x = leaf_of(k);
                let y = {
                    let _scope = match kind {
                        0 => save_compressed(DType::F32).unwrap(),
                        1 => save_on_cpu(true).unwrap(),
                        _ => saved_tensors_hooks(|t| Ok(t.detach()), |t: &Tensor| Ok(t.clone())).unwrap(),
                    };
                    f.call(&x)
                };
                y.sum().backward();
                assert!(x.grad().is_some());
                assert_eq!((counter.frames(), f.entries()), (1, 1), "{name}, scope {kind}, step {k}");
            }
        }
    }
}
