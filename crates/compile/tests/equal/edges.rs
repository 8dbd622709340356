//! Where a compiled function meets what is around it: failures, state that no graph sees, other threads, lists as long as a size
//! says.

use crate::{Case, How, check, leaf, leaf_of, ramp, run, ways};
use firebrand_compile::Shared;
use firebrand_compile::backward::CompiledBackward;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_core::autograd::{
    BackwardOptions, CheckpointOptions, GradOptions, RemovableHandle, allow_mutation_on_saved_tensors, checkpoint,
    grad, increment_version, node_creation_hook, set_detect_anomaly, unsafe_preserve_version_counter,
    unsafe_set_version_counter,
};
use firebrand_core::state::ThreadState;
use firebrand_core::{DType, Result, Tensor, ops};
use firebrand_nn::optim::{Adam, AdamOptions, Optimizer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// The bits of products of one term, and of sums of negative zeros.
fn signed_zeros(how: &How) {
    let f = how.compile(|(a, b): &(Tensor, Tensor)| {
        let rows = a.expand([2i64, 64]) * -1.0;
        let term = Tensor::new(&[[-0.0f32]]);
        let all = [
            a.mm(b),
            term.addmm(a, b),
            a.matmul(b),
            a.reshape([-1i64]).matmul(&b.reshape([-1i64])),
            a.unsqueeze(0).bmm(&b.unsqueeze(0)),
            a.mm(&b.expand([1i64, 3])),
            rows.sum(),
            rows.sum_dim(1, false),
            rows.mean_dim(1, false),
            rows.amax(1, false),
        ];
        all.into_iter().map(|t| t.reshape([-1i64])).collect::<Vec<_>>()
    });
    for (x, y) in [(-0.0f32, 0.0f32), (-0.0, 1.0), (0.0, -1.0), (0.0, 0.0)] {
        for t in f(&(Tensor::new(&[[x]]), Tensor::new(&[[y]]))).unwrap() {
            how.log.push(format!("{:?}", t.to_vec::<f32>().iter().map(|v| v.to_bits()).collect::<Vec<_>>()));
        }
    }
}

/// Lists whose length depends on a size.
fn pieces(how: &How) {
    for kind in 0..4 {
        let log = how.log.clone();
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> {
            let y = x * 2.0;
            let pieces = match kind {
                0 => y.try_unbind(0)?,
                1 => y.try_split(2, 0)?,
                2 => y.try_chunk(3, 0)?,
                _ => y.try_tensor_split(2, 0)?,
            };
            let log = log.clone();
            pieces[0].register_hook(move |g: &Tensor| log.see("first", g));
            let last = &pieces[pieces.len() - 1];
            (y.sin() * last.sum() * pieces.len() as f64).try_add(&pieces[0].sum())
        });
        for n in [3, 4, 5, 6, 7, 2, 9] {
            let x = ramp(n);
            let y = f(&x).unwrap();
            how.log.see("y", &y);
            y.sum().backward();
            how.log.grad("x", &x);
        }
    }
}

/// A function that sets a cell, writes a tensor and registers a hook, and fails then, in some calls.
fn failing_midway(how: &How) {
    for panics in [false, true] {
        let (log, buffer) = (how.log.clone(), Tensor::new(&[1.0, 2.0]));
        let written = buffer.clone();
        let f = how.compile(move |(x, cell): &(Tensor, Shared<Tensor>)| -> Result<Tensor> {
            let y = x.try_sin()?;
            written.try_mul_scalar_(2.0)?;
            cell.set(y.detach());
            let log = log.clone();
            x.try_register_hook(move |g: &Tensor| log.see("hook", g))?;
            if panics && x.size(0) != 3 {
                panic!("not three");
            }
            y.try_mul(&Tensor::new(&[1.0, 2.0, 3.0]))
        });
        let cell = Shared::new(Tensor::new(&[0.0]));
        for n in [3, 5, 4, 3, 5] {
            let x = ramp(n);
            match catch_unwind(AssertUnwindSafe(|| f(&(x.clone(), cell.clone())))) {
                Ok(Ok(y)) => y.sum().backward(),
                Ok(Err(e)) => how.log.push(e),
                Err(_) => how.log.push("a panic"),
            }
            how.log.see("cell", &cell.get());
            how.log.see("buffer", &buffer);
            (&x * 2.0).sum().backward();
            how.log.grad("x", &x);
        }
    }
}

/// An op that refuses what its operand holds, between writes; random numbers before it.
fn failing_op(how: &How) {
    let buffer = Tensor::new(&[1.0, 2.0, 3.0]);
    let written = buffer.clone();
    let f = how.compile(move |(x, at): &(Tensor, Tensor)| -> Result<Tensor> {
        let y = ops::dropout(&x.try_sin()?, 0.5, true)?;
        written.try_mul_scalar_(2.0)?;
        let z = y.try_index_select(0, at)?;
        written.try_mul_scalar_(3.0)?;
        Ok(z)
    });
    for at in [0i64, 7, 1, 9, 2] {
        let x = leaf_of(1);
        match f(&(x.clone(), Tensor::new(&[at]))) {
            Ok(y) => y.sum().backward(),
            Err(e) => how.log.push(e),
        }
        how.log.see("buffer", &buffer);
        how.log.see("drawn", &ops::dropout(&Tensor::ones([4], DType::F64), 0.5, true).unwrap());
        how.log.grad("x", &x);
    }
}

/// Ops on another thread, and where no scope is active.
fn elsewhere(how: &How) {
    for kind in 0..3 {
        let f = how.compile(move |x: &Tensor| {
            let y = x * 2.0;
            let here = ThreadState::capture();
            let z = match kind {
                0 => ThreadState::isolated(|| y.sin()),
                1 => std::thread::scope(|s| s.spawn(|| y.sin()).join().unwrap()),
                _ => std::thread::scope(|s| s.spawn(|| here.run(|| y.sin())).join().unwrap()),
            };
            z + 1.0
        });
        for k in 0..3 {
            let x = leaf_of(k);
            let y = f(&x).unwrap();
            how.log.see("y", &y);
            y.sum().backward();
            how.log.grad("x", &x);
        }
    }
}

/// An optimizer steps inside: its counts and averages go on from call to call.
fn optimizer_inside(how: &How) {
    let w = leaf(&[1.0, 2.0, 3.0]);
    let (v, options) = (w.clone(), AdamOptions { lr: 0.1, ..AdamOptions::default() });
    let optimizer = Mutex::new(Adam::new([w.clone()], options).unwrap());
    let f = how.compile(move |x: &Tensor| -> Result<Tensor> {
        let mut optimizer = optimizer.lock().unwrap();
        optimizer.zero_grad();
        let loss = x.try_mul(&v)?.sin().sum();
        loss.backward();
        optimizer.step()?;
        Ok(loss.detach())
    });
    for k in 0..4 {
        how.log.see("loss", &f(&leaf_of(k)).unwrap());
        how.log.see("w", &w);
    }
}

/// A checkpoint that draws other numbers when it runs again.
fn drawing_checkpoint(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let options =
            CheckpointOptions { use_reentrant: Some(false), preserve_rng_state: false, ..CheckpointOptions::default() };
        let y = checkpoint(|i: &[Tensor]| Ok(vec![ops::dropout(&i[0], 0.5, true)?.exp()]), &[x], &options)?.remove(0);
        y.try_sin()
    });
    for n in [3, 4, 5, 1] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

/// Anomaly mode around a call and its pass: the error names the node of the op.
fn anomaly_around(how: &How) {
    let f = how.compile(|x: &Tensor| (x * 0.0).sqrt() * 0.0);
    for _ in 0..2 {
        let x = leaf_of(1);
        let _anomaly = set_detect_anomaly(true, true);
        let refused = f(&x).unwrap().sum().try_backward(&BackwardOptions::default());
        how.log.push(refused.unwrap_err().to_string());
    }
}

/// Versions set and kept by hand.
fn versions(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        unsafe_set_version_counter(&[x], &[5])?;
        increment_version(&[x]);
        {
            let _kept = unsafe_preserve_version_counter(&[x]);
            x.try_mul_scalar_(2.0)?;
        }
        x.try_sin()
    });
    for k in 0..3 {
        let x = leaf_of(k).detach();
        how.log.see("y", &f(&x).unwrap());
        how.log.push(x.version().to_string());
    }
}

/// Hooks on nodes as they are made, and a scope in which saved tensors may be written.
fn creation_and_mutation(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| -> Result<Tensor> {
        let log = log.clone();
        let _hook = node_creation_hook(move |node| {
            log.push(node.name().to_string());
            Ok(())
        });
        let y = x.try_sin()?;
        let _scope = allow_mutation_on_saved_tensors()?;
        let z = y.try_exp()?;
        y.try_mul_scalar_(3.0)?;
        z.sum().backward();
        Ok(y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        match f(&x) {
            Ok(y) => how.log.see("y", &y),
            Err(e) => how.log.push(e),
        }
        how.log.grad("x", &x);
    }
}

/// The number of elements, at sizes that vary, none and of no dimension.
fn number_of_elements(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let log = log.clone();
        y.register_hook(move |g: &Tensor| log.see("y", g));
        y.sin().sum() + x.numel() as f64
    });
    let scalars = (0..3).map(|k| Tensor::scalar(f64::from(k)).requires_grad_());
    for x in [3, 0, 1, 4, 0, 5, 6].into_iter().map(ramp).chain(scalars) {
        let y = f(&x).unwrap();
        how.log.see("sum", &y);
        y.backward();
        how.log.grad("x", &x);
    }
}

/// Cells that hold something at times, a handle among them, and cells that are read behind an effect that changes them.
fn cells_that_change(how: &How) {
    let log = how.log.clone();
    let handles = how.compile(move |(x, cell): &(Tensor, Shared<Option<RemovableHandle>>)| {
        if let Some(handle) = cell.get() {
            handle.remove();
        }
        let log = log.clone();
        cell.set(Some(x.register_hook(move |g: &Tensor| log.see("hook", g))));
        x * 2.0
    });
    let at_times = how.compile(|(x, cell): &(Tensor, Shared<Option<Tensor>>)| {
        let held = cell.get();
        let y = held.as_ref().map_or_else(|| x.sin(), |t| x * t);
        cell.set(if held.is_some() { None } else { Some(y.detach()) });
        y
    });
    let changed = how.compile(|(x, cell, list): &(Tensor, Shared<Tensor>, Shared<Vec<Tensor>>)| {
        let before = cell.get();
        cell.update(|t| *t = t.detach() * 2.0);
        list.push(x.detach());
        x * &cell.get() + before + list.get().len() as f64
    });
    let (handle, held) = (Shared::new(None), Shared::new(None));
    let (cell, list) = (Shared::new(Tensor::new(&[1.0, 2.0, 3.0])), Shared::new(Vec::new()));
    let x = leaf_of(0);
    for k in 0..5 {
        handles(&(x.clone(), handle.clone())).unwrap().sum().backward();
        how.log.grad("x", &x);
        how.log.see("at times", &at_times(&(leaf_of(k), held.clone())).unwrap());
        how.log.push(held.get().is_some().to_string());
        how.log.see("changed", &changed(&(leaf_of(k), cell.clone(), list.clone())).unwrap());
        how.log.see("cell", &cell.get());
        how.log.push(list.get().len().to_string());
    }
}

/// Pure hooks on values inside, some not linear, one that holds an argument; derivatives of gradients and of results together.
fn pure_hooks_and_derivatives(how: &How) {
    for kind in 0..4 {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| -> Result<Tensor> {
            let y = x * w;
            let z = y.sin();
            let held = w.clone();
            match kind {
                0 => register_pure_hook(&y, |g: &Tensor| g * g)?,
                1 => register_pure_hook(&y, |g: &Tensor| g + 3.0)?,
                2 => register_pure_hook(&z, move |g: &Tensor| g * &held)?,
                _ => register_pure_hook(x, |g: &Tensor| g.clamp(-1.0, 1.0))?,
            };
            Ok(z.exp())
        });
        for n in [3, 4, 5, 1] {
            let (x, w) = (ramp(n), ramp(n));
            let y = f(&(x.clone(), w.clone())).unwrap();
            let options = GradOptions { create_graph: true, ..GradOptions::default() };
            let first = grad(&y.sum(), [x.clone(), w.clone()], &options).unwrap();
            let sums = first.iter().flatten().map(Tensor::sum);
            sums.fold(y.sum(), |a, b| a + b).backward();
            how.log.grad("x", &x);
            how.log.grad("w", &w);
        }
    }
}

#[test]
fn edges() {
    const CASES: &[Case] = &[
        ("X-141", signed_zeros),
        ("X-143", pieces),
        ("X-144", failing_midway),
        ("X-145", failing_op),
        ("X-146", elsewhere),
        ("X-148", optimizer_inside),
        ("X-149", drawing_checkpoint),
        ("X-150", anomaly_around),
        ("X-151", versions),
        ("X-152", creation_and_mutation),
        ("X-153", number_of_elements),
        ("X-154", cells_that_change),
        ("X-155", pure_hooks_and_derivatives),
    ];
    check(CASES);
}

/// A tensor of one call is kept where no capture sees it, and used in the next.
fn kept_outside(how: &How) {
    let kept: Arc<Mutex<Option<Tensor>>> = Arc::default();
    let f = how.compile(move |x: &Tensor| {
        let y = x.sin();
        let sum = match &*kept.lock().unwrap() {
            Some(before) => &y + before,
            None => y.clone(),
        };
        *kept.lock().unwrap() = Some(y.detach());
        sum * x.size(0)
    });
    // The second call is captured anew, as its size is another.
    for n in [1, 3] {
        match f(&ramp(n)) {
            Ok(y) => how.log.see("y", &y),
            Err(e) => how.log.push(e),
        }
    }
}

/// the capture that meets it refuses it by name.
#[test]
fn a_tensor_kept_outside() {
    for (way, backend, backward) in ways() {
        let _scope = backward.as_ref().map(CompiledBackward::enable);
        let found = run(kept_outside, Some(backend));
        assert!(found[1].contains("keep it in a Shared cell"), "X-147 on {way}: {found:?}");
    }
}
