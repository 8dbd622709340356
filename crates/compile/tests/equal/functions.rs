//! Custom functions and checkpoint inside compiled functions.

use crate::{Case, How, check, leaf_of, ramp};
use firebrand_compile::graph_break;
use firebrand_core::autograd::{CheckpointOptions, Context, Function, checkpoint};
use firebrand_core::{Result, Tensor};

/// Twice its input.
pub(crate) struct Double;

impl Function for Double {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 2.0])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|g| g * 2.0)])
    }
}

fn reentrant() -> CheckpointOptions {
    CheckpointOptions { use_reentrant: Some(true), ..CheckpointOptions::default() }
}

/// The size of a custom function's result is that of the call.
fn size_of_a_custom_result(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let y = Double.apply(&[x])?.remove(0);
        let n = y.size(0);
        Ok(y.try_reshape([n, 1.into()])? * i64::from(n) as f64)
    });
    for n in [3, 4, 5, 7, 1] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.see("y", &y);
        how.log.grad("x", &x);
    }
}

/// Sizes of a custom function's result as arguments of ops, without asking for the integer.
fn sizes_of_a_custom_result_as_arguments(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let y = Double.apply(&[x])?.remove(0);
        let n = y.size(0);
        Ok(y.reshape([n, 1.into()]).expand([n, n + 1]).sum_dim(1, false))
    });
    for n in [3, 4, 5, 7, 2] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.see("y", &y);
        how.log.grad("x", &x);
    }
}

/// So is that of a reentrant checkpoint.
fn size_of_a_checkpoint(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let y = checkpoint(|i: &[Tensor]| Ok(vec![i[0].sin()]), &[x], &reentrant())?.remove(0);
        let n = y.size(0);
        y.try_reshape([n, 1.into()])
    });
    for n in [3, 4, 5, 7] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.see("y", &y);
        how.log.grad("x", &x);
    }
}

/// The mask of the recomputation is that of the call, at every call.
fn checkpoint_with_dropout(how: &How) {
    for options in [reentrant(), CheckpointOptions::default()] {
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> {
            let run = |i: &[Tensor]| Ok(vec![firebrand_core::ops::dropout(&i[0], 0.5, true)? * 3.0]);
            Ok(checkpoint(run, &[x], &options)?.remove(0))
        });
        for _ in 0..4 {
            let x = ramp(16);
            let y = f(&x).unwrap();
            y.sum().backward();
            how.log.see("y", &y);
            how.log.grad("x", &x);
        }
    }
}

/// A checkpoint whose closure holds an argument of the call.
fn checkpoint_that_captures_an_argument(how: &How) {
    for options in [reentrant(), CheckpointOptions::default()] {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| -> Result<Tensor> {
            let held = w.clone();
            let run = move |i: &[Tensor]| Ok(vec![(&i[0] * &held).sin()]);
            Ok(checkpoint(run, &[x], &options)?.remove(0))
        });
        for k in 0..3 {
            let (x, w) = (leaf_of(k), leaf_of(k + 2).detach());
            let y = f(&(x.clone(), w.clone())).unwrap();
            y.sum().backward();
            how.log.see("y", &y);
            how.log.grad("x", &x);
            how.log.grad("w", &w);
        }
    }
}

/// A checkpoint whose closure holds a value that the function computed.
fn checkpoint_that_captures_a_value(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let held = (x * 2.0).detach();
        let run = move |i: &[Tensor]| Ok(vec![&i[0] * &held]);
        Ok(checkpoint(run, &[x], &reentrant())?.remove(0))
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.see("y", &y);
        how.log.grad("x", &x);
    }
}

/// Custom functions before and behind a break, one of which holds a value.
fn custom_functions_around_a_break(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let y = Double.apply(&[x])?.remove(0);
        let held = (&y * 3.0).detach();
        let run = move |i: &[Tensor]| Ok(vec![&i[0] * &held]);
        let z = checkpoint(run, &[&y], &reentrant())?.remove(0);
        graph_break();
        Ok(Double.apply(&[&z])?.remove(0) + y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.see("y", &y);
        how.log.grad("x", &x);
    }
}

/// A checkpoint whose closure holds a value that is written behind it: it runs again with what is there then. Its arguments it
/// keeps, and refuses.
fn writes_behind_a_checkpoint(how: &How) {
    type F = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let bodies: [(&str, F); 5] = [
        ("a held value", |x, _| {
            let value = (x * 2.0).detach();
            let y = checkpointed(x, &value.detach())?;
            value.try_add_(&value.detach())?;
            Ok(y + value)
        }),
        ("a held argument", |x, w| {
            let y = checkpointed(x, w)?;
            w.try_mul_(&w.detach())?;
            Ok(y)
        }),
        ("its input", |x, w| {
            let t = x * 1.0;
            let y = checkpointed(&t, w)?;
            t.try_mul_(w)?;
            Ok(y + t)
        }),
        ("a held value, behind a break", |x, w| {
            let y = checkpointed(x, w)?;
            graph_break();
            w.try_mul_(&w.detach())?;
            Ok(y)
        }),
        ("its result", |x, w| Ok(checkpointed(x, w)?.try_mul_(w)?.clone())),
    ];
    for (name, body) in bodies {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| body(x, w));
        for k in 0..3 {
            let (x, w) = (leaf_of(k), leaf_of(k + 2).detach());
            let y = f(&(x.clone(), w.clone())).unwrap();
            how.log.see(name, &y);
            match y.sum().try_backward(&Default::default()) {
                Ok(()) => how.log.grad("x", &x),
                Err(e) => how.log.push(format!("{name} {e}")),
            }
            how.log.see("w", &w);
        }
    }
}

fn checkpointed(x: &Tensor, held: &Tensor) -> Result<Tensor> {
    let held = held.clone();
    let run = move |i: &[Tensor]| Ok(vec![(&i[0] * &held).sin() * &held]);
    Ok(checkpoint(run, &[x], &CheckpointOptions::default())?.remove(0))
}

#[test]
fn custom_functions_and_checkpoint() {
    const CASES: &[Case] = &[
        ("X-20", size_of_a_custom_result),
        ("X-21", sizes_of_a_custom_result_as_arguments),
        ("X-22", size_of_a_checkpoint),
        ("X-23", checkpoint_with_dropout),
        ("X-24", checkpoint_that_captures_an_argument),
        ("X-25", checkpoint_that_captures_a_value),
        ("X-26", custom_functions_around_a_break),
        ("X-27", writes_behind_a_checkpoint),
    ];
    check(CASES);
}
