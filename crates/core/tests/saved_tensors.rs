//! Cases E-1 to E-27 and E-42 of docs/behaviour/autograd.md: saved tensors, their hooks, versions by hand, clone on
//! mutate. Checkpointing (E-28 to E-40) has a file of its own.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, GradOptions, MutationCounts, SavedHooks, allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks, grad as gradient, increment_version, inference_mode, no_grad, save_on_cpu,
    saved_tensors_hooks, saved_tensors_hooks_disabled, unsafe_preserve_version_counter,
};
use firebrand_core::{Error, Result, Tensor, ops};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;

fn plain() -> BackwardOptions {
    BackwardOptions::default()
}

/// Hooks that log their calls and keep a detached alias.
fn logged(log: &Log, name: &str) -> firebrand_core::autograd::SavedHooksGuard {
    let (p, u, n) = (log.clone(), log.clone(), name.to_string());
    let m = n.clone();
    saved_tensors_hooks(
        move |t| {
            p.lock().unwrap().push(format!("pack {n} {:.3}", t.item::<f64>()));
            Ok(t.detach())
        },
        move |t: &Tensor| {
            u.lock().unwrap().push(format!("unpack {m}"));
            Ok(t.clone())
        },
    )
    .unwrap()
}

fn kinds(log: &Log) -> Vec<String> {
    log.lock().unwrap().iter().map(|s| s.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// E-48: a number that an op wrapped as a tensor is not the user's: no hook packs it; a tensor of no dimensions is.
#[test]
fn wrapped_numbers_are_not_packed() {
    let log = Log::default();
    let x = leaf(3.0);
    let plain_numbers = {
        let _scope = logged(&log, "A");
        &(&(&x * 1.0) / 4.0) * 2.0
    };
    plain_numbers.backward();
    assert!(kinds(&log).is_empty(), "{:?}", kinds(&log));
    close(&grad(&x), &[0.5]);
    let _scope = logged(&log, "A");
    let _product = &x * &Tensor::scalar(2.0);
    assert_eq!(kinds(&log), ["pack A"]);
}

/// E-1, E-2, E-3
#[test]
fn packing_and_unpacking() {
    let row = Row::default();
    row.is("E-1");
    let log = Log::default();
    let (a, b) = (leaf(2.0), leaf(3.0));
    let z = {
        let _scope = logged(&log, "A");
        let y = &a * &b;
        let z = y.exp();
        let _w = &y + 1.0;
        z
    };
    let mut packs = log.lock().unwrap().clone();
    packs.sort();
    assert_eq!(packs, ["pack A 2.000", "pack A 3.000", &format!("pack A {:.3}", 6f64.exp())]);
    z.backward();
    assert_eq!(kinds(&log)[3..], ["unpack A", "unpack A", "unpack A"]);

    row.is("E-2");
    let log = Log::default();
    let z = {
        let _outer = logged(&log, "A");
        let y = {
            let _inner = logged(&log, "B");
            &a * &a
        };
        &y * &y
    };
    z.backward();
    assert_eq!(kinds(&log), ["pack B", "pack B", "pack A", "pack A", "unpack A", "unpack A", "unpack B", "unpack B"]);

    row.is("E-3");
    let log = Log::default();
    let y = {
        let _scope = logged(&log, "A");
        a.sin()
    };
    let n = y.grad_fn().unwrap();
    n.saved("self").unwrap();
    n.saved("self").unwrap();
    y.try_backward(&BackwardOptions { retain_graph: Some(true), ..plain() }).unwrap();
    y.backward();
    assert_eq!(kinds(&log), ["pack A", "unpack A", "unpack A", "unpack A", "unpack A"]);
}

/// E-4, E-5 (an unpack hook that returns a number does not compile: types.md)
#[test]
fn hooks_of_any_kind_and_failures() {
    let a = leaf(2.0);
    let y = {
        let _scope =
            saved_tensors_hooks(|t| Ok(("key", t.item::<f64>())), |(_, v): &(&str, f64)| Ok(Tensor::scalar(10.0 * v)))
                .unwrap();
        a.sin()
    };
    y.backward();
    close(&grad(&a), &[20f64.cos()]);

    let _scope = saved_tensors_hooks(|_| -> Result<()> { Err(Error::user("pack")) }, |()| Ok(leaf(1.0))).unwrap();
    assert_eq!(ops::sin(&a).unwrap_err().to_string(), "pack");
    drop(_scope);
    let y = {
        let _scope = saved_tensors_hooks(|_| Ok(()), |()| Err(Error::user("unpack"))).unwrap();
        a.sin()
    };
    assert_eq!(y.try_backward(&plain()).unwrap_err().to_string(), "unpack");
}

/// E-6, E-7, E-8
#[test]
fn hooked_saves_keep_history_but_no_version() {
    let row = Row::default();
    row.is("E-6");
    for (copy, expected) in [(true, 2f64.cos()), (false, 7f64.cos())] {
        let a = leaf(2.0);
        let b = &a * 1.0;
        let y = {
            let _scope = saved_tensors_hooks(
                move |t| Ok(if copy { t.detach().clone_tensor() } else { t.detach() }),
                |t: &Tensor| Ok(t.clone()),
            )
            .unwrap();
            b.sin()
        };
        b.add_scalar_(5.0, 1);
        y.backward();
        close(&grad(&a), &[expected]);
    }

    row.is("E-7");
    let a = leaf(2.0);
    let y = {
        let _scope = saved_tensors_hooks(|t| Ok(t.detach()), |t: &Tensor| Ok(t.clone())).unwrap();
        a.pow_scalar(3.0)
    };
    let g = gradient(&y, &a, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    let h = gradient(&g, &a, &GradOptions::default()).unwrap().remove(0).unwrap();
    assert_eq!((g.item::<f64>(), h.item::<f64>()), (12.0, 12.0));

    row.is("E-8");
    let log = Log::default();
    let y = a.pow_scalar(3.0);
    {
        let _scope = logged(&log, "A");
        gradient(&y, &a, &GradOptions::create_graph()).unwrap();
    }
    assert!(kinds(&log).contains(&"pack A".to_string()));
}

/// E-9, E-10, E-42
#[test]
fn hooks_on_one_saved_tensor() {
    let row = Row::default();
    row.is("E-9");
    let x = leaf(2.0);
    let y = &x * &x;
    let n = y.grad_fn().unwrap();
    let double = || SavedHooks::new(|t: &Tensor| Ok(t.detach() * 2.0), |t: &Tensor| Ok(t.clone()));
    n.register_saved_hooks("self", double()).unwrap();
    assert_eq!(n.saved("self").unwrap().unwrap().tensor().unwrap().item::<f64>(), 4.0);
    row.is("E-10");
    assert_err!(n.register_saved_hooks("self", double()), SavedHooksTwice);
    row.is("E-9");
    y.backward();
    close(&grad(&x), &[6.0]);
    row.is("E-10");
    assert_err!(n.register_saved_hooks("self", double()), SavedHooksAfterFree);

    let n = (&x * con(&[1.0])).grad_fn().unwrap();
    assert_err!(n.register_saved_hooks("self", double()), SavedHooksOnNone);
    let b = &x * 1.0;
    let n = b.sin().grad_fn().unwrap();
    let writes = SavedHooks::new(
        |t: &Tensor| {
            t.add_scalar_(1.0, 1);
            Ok(())
        },
        |()| Ok(Tensor::scalar(0.0f64)),
    );
    assert_err!(n.register_saved_hooks("self", writes), PackMutatesInput);

    row.is("E-42");
    let log = Log::default();
    let n = {
        let _scope = logged(&log, "A");
        x.sin().grad_fn().unwrap()
    };
    assert_err!(n.register_saved_hooks("self", double()), SavedHooksTwice);
}

/// E-11, E-12, E-13
#[test]
fn disabling_hooks() {
    let row = Row::default();
    row.is("E-11");
    let open = || saved_tensors_hooks(|t| Ok(t.detach()), |t: &Tensor| Ok(t.clone()));
    {
        let _off = disable_saved_tensors_hooks("not here").unwrap();
        match open() {
            Err(e) => assert_eq!(e.to_string(), "not here"),
            Ok(_) => panic!("hooks are disabled"),
        }
        row.is("E-13");
        let x = leaf(2.0);
        (&x * &x).backward();
        close(&grad(&x), &[4.0]);
    }
    {
        row.is("E-11");
        let _on = open().unwrap();
        assert_err!(disable_saved_tensors_hooks("too late"), SavedHooksDisabled { .. });
    }
    row.is("E-12");
    let a = disable_saved_tensors_hooks("A").unwrap();
    let b = disable_saved_tensors_hooks("B").unwrap();
    assert_eq!(saved_tensors_hooks_disabled().as_deref(), Some("B"));
    drop(b);
    assert_eq!(saved_tensors_hooks_disabled().as_deref(), Some("A"));
    drop(a);
    assert_eq!(saved_tensors_hooks_disabled(), None);
}

/// E-14
#[test]
fn saving_on_the_cpu() {
    for (pinned, expected) in [(false, 6.0), (true, 4.0)] {
        let x = leaf(2.0);
        let b = &x * 1.0;
        let y = {
            let _scope = save_on_cpu(pinned).unwrap();
            &b * &b
        };
        b.add_scalar_(1.0, 1);
        y.backward();
        close(&grad(&x), &[expected]);
    }
}

/// E-15 (a non-tensor element does not compile: types.md), E-16, E-17, E-18
#[test]
fn versions_by_hand() {
    let row = Row::default();
    row.is("E-15");
    let t = con(&[1.0, 2.0]);
    increment_version(&[&t]);
    assert_eq!(t.version(), 1);
    increment_version(&[&t, &t]);
    assert_eq!(t.version(), 3);
    increment_version(&[&cut(&t, 0, 1)]);
    assert_eq!(t.version(), 4);
    let i = inference_mode(|| con(&[1.0]));
    increment_version(&[&i]);
    assert_eq!(vals(&i), [1.0], "E-15: no effect on inference tensors");
    assert_err!(i.try_version(), InferenceVersion);

    row.is("E-16");
    let b = leaf(2.0) * 1.0;
    let y = b.sin();
    increment_version(&[&b]);
    assert_err!(y.try_backward(&plain()), SavedVersionMismatch { .. });

    row.is("E-17");
    let x = leaf(2.0);
    let b = &x * 1.0;
    let y = b.sin();
    {
        let _hidden = unsafe_preserve_version_counter(&[&b]);
        no_grad(|| b.mul_scalar_(3.0));
    }
    assert_eq!(b.version(), 0);
    y.backward();
    close(&grad(&x), &[6f64.cos()]);

    row.is("E-18");
    let x = leaf(2.0);
    let y = &x * &x;
    no_grad(|| x.add_scalar_(1.0, 1));
    assert_err!(y.try_backward(&plain()), SavedVersionMismatch { producer: None, .. });
}

/// E-19, E-20, E-21, E-22, E-25, E-26, E-27
#[test]
fn clone_on_mutate() {
    let row = Row::default();
    let counts = |cloned, original| MutationCounts { cloned, original };
    row.is("E-19");
    {
        let scope = allow_mutation_on_saved_tensors().unwrap();
        let a = Tensor::ones([2], firebrand_core::DType::F64).requires_grad_();
        let b = a.clone_tensor();
        let o = b.pow_scalar(2.0).sum();
        assert_eq!(scope.counts(), counts(0, 1));
        b.sin_();
        assert_eq!(scope.counts(), counts(1, 1));
        o.backward();
        close(&grad(&a), &[2.0, 2.0]);
    }
    row.is("E-20");
    {
        let _scope = allow_mutation_on_saved_tensors().unwrap();
        let a = leaves(&[1.0, 2.0]);
        let b = a.clone_tensor();
        let o = b.sin();
        cut(&b, 0, 1).mul_scalar_(3.0);
        o.sum().backward();
        close(&grad(&a), &[1f64.cos(), 2f64.cos()]);
    }
    row.is("E-21");
    {
        let scope = allow_mutation_on_saved_tensors().unwrap();
        let a = leaves(&[1.0, 2.0]);
        let (b, c) = (a.clone_tensor(), a.clone_tensor());
        let o = (b.sin() + c.sin()).sum();
        ops::foreach_add_scalar_(&[b, c], 1.into()).unwrap();
        assert_eq!(scope.counts().cloned, 2);
        o.backward();
        close(&grad(&a), &[2.0 * 1f64.cos(), 2.0 * 2f64.cos()]);
    }
    row.is("E-22");
    {
        let _scope = allow_mutation_on_saved_tensors().unwrap();
        let (a, t) = (leaves(&[1.0, 2.0]), con(&[3.0, 4.0]));
        let o = (&a * &t).sum();
        ops::mul_out(&con(&[1.0, 1.0]), &con(&[9.0, 9.0]), &t).unwrap();
        assert_eq!(vals(&t), [9.0, 9.0]);
        o.backward();
        close(&grad(&a), &[3.0, 4.0]);
    }
    row.is("E-25");
    {
        let scope = allow_mutation_on_saved_tensors().unwrap();
        let a = leaf(2.0);
        let b = a.clone_tensor();
        let o1 = &b * &b;
        b.mul_scalar_(2.0);
        let o2 = &b * &b;
        b.mul_scalar_(2.0);
        let o3 = &b * &b;
        assert_eq!(scope.counts(), counts(2, 1));
        (&o1 + &o2 + &o3).backward();
        close(&grad(&a), &[84.0]);
    }
    row.is("E-26");
    {
        let scope = allow_mutation_on_saved_tensors().unwrap();
        let a = leaf(1.0) * 1.0;
        let o = a.pow_scalar(2.0).sum();
        o.backward();
        a.sin_();
        assert_eq!(scope.counts().cloned, 0);
    }
    row.is("E-27");
    {
        let _scope = allow_mutation_on_saved_tensors().unwrap();
        let a = leaf(0.0);
        let y = a.exp();
        y.mul_scalar_(5.0);
        y.backward();
        close(&grad(&a), &[5.0]);
        let a = leaf(3.0);
        let y = &a * &a;
        no_grad(|| a.add_scalar_(10.0, 1));
        y.backward();
        close(&grad(&a), &[6.0]);
    }
}

/// E-23, E-24
#[test]
fn limits_of_clone_on_mutate() {
    let scope = allow_mutation_on_saved_tensors().unwrap();
    assert_err!(allow_mutation_on_saved_tensors(), MutationCtxNested);
    let a = leaf(2.0);
    let (y1, y2, y3) = (&a * &a, &a * &a, &a * &a);
    drop(scope);
    assert_err!(y1.try_backward(&plain()), MutationCtxOutside);
    let scope = allow_mutation_on_saved_tensors().unwrap();
    assert_err!(y2.try_backward(&plain()), MutationCtxOutside);
    let y4 = &a * &a;
    scope.clear();
    assert_err!(y4.try_backward(&plain()), MutationCtxOutside);
    drop(y3);
}

/// Q3: a saved view with an offset is found when its base is written.
#[test]
fn views_with_an_offset_are_cloned() {
    let _scope = allow_mutation_on_saved_tensors().unwrap();
    let a = leaves(&[1.0, 2.0, 3.0]);
    let b = a.clone_tensor();
    let o = cut(&b, 1, 3).sin();
    b.mul_scalar_(10.0);
    o.sum().backward();
    close(&grad(&a), &[0.0, 2f64.cos(), 3f64.cos()]);
}
