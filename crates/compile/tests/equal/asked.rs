//! What a function asks of tensors, and what it does to memory that derivatives, checkpoints and regions read.

use crate::{Case, How, check, leaf, leaf_of, ramp};
use firebrand_compile::{Shared, graph_break};
use firebrand_core::autograd::{
    BackwardOptions, CheckpointOptions, Context, Function, GradOptions, autocast, checkpoint, grad, inference_mode,
    no_grad, set_grad_enabled,
};
use firebrand_core::module::Buffer;
use firebrand_core::{DType, Error, Result, Tensor};

/// Sees a tensor of any dtype.
fn see(how: &How, name: &str, t: &Tensor) {
    how.log.see(name, &t.detach().to_dtype(DType::F64));
}

/// A pass, or the error of it, and the gradient of a leaf.
fn pass(how: &How, y: &Tensor, x: &Tensor) {
    match y.sum().try_backward(&BackwardOptions::default()) {
        Ok(()) => how.log.grad("x", x),
        Err(e) => how.log.push(e.to_string()),
    }
}

/// Where a tensor is in memory, and with whom: layouts and sizes differ from call to call.
fn memory(how: &How) {
    type Ask = fn(&Tensor, &Tensor) -> f64;
    let questions: [(&str, Ask); 6] = [
        ("offset", |x, _| x.storage_offset() as f64),
        ("strides", |x, _| x.strides()[0] as f64 + 10.0 * x.strides()[1] as f64),
        ("together", |x, y| f64::from(u8::from(x.shares_storage(y)))),
        ("bytes", |x, _| x.storage_bytes() as f64),
        ("view", |_, y| f64::from(u8::from(y.is_view()))),
        ("contiguous", |x, _| f64::from(u8::from(x.is_contiguous()))),
    ];
    for (name, ask) in questions {
        let f = how.compile(move |(x, y): &(Tensor, Tensor)| x.sin() * ask(x, y));
        for k in 0..8 {
            let a = ramp(16).detach().reshape([4i64, 4]) * (k as f64 + 1.0);
            let x = match k % 6 {
                0 => a.clone(),
                1 => a.t(),
                2 => a.slice(0, Some(1.into()), None, 1),
                3 => a.slice(1, Some(1.into()), None, 1),
                4 => a.select(0, 1).expand([5i64, 4]),
                _ => a.slice(1, None, None, 2),
            };
            let y = if k % 2 == 0 { x.view_as(&x) } else { &x * 1.0 };
            how.log.see(name, &f(&(x, y)).unwrap());
        }
    }
}

/// Flags that differ from call to call: a leaf, a kept gradient, made in inference mode, the dtype of gradients.
fn flags(how: &How) {
    type Ask = fn(&Tensor) -> bool;
    let questions: [(&str, Ask); 3] =
        [("leaf", Tensor::is_leaf), ("retains", Tensor::retains_grad), ("any dtype", |x| x.grad_dtype().is_none())];
    for (name, ask) in questions {
        let f = how.compile(move |x: &Tensor| if ask(x) { x.sin() } else { x.cos() });
        for k in 0..6 {
            let a = leaf_of(k);
            if k % 3 == 0 {
                a.set_grad_dtype(None);
            }
            let x = if k % 2 == 0 { a.clone() } else { &a * 1.0 };
            if k == 3 {
                x.retain_grad();
            }
            how.log.see(name, &f(&x).unwrap());
        }
    }
    let f = how.compile(|x: &Tensor| if x.is_inference() { x.sin() } else { x.cos() });
    for k in 0..4 {
        let x = if k % 2 == 0 { inference_mode(|| ramp(3).detach() * 2.0) } else { ramp(3).detach() };
        how.log.see("inference", &f(&x).unwrap());
    }
}

/// The dtype of gradients is set inside, and a leaf is copied with its gradient.
fn dtype_and_copy(how: &How) {
    let f = how.compile(|x: &Tensor| {
        x.set_grad_dtype(Some(DType::F32));
        x.sin()
    });
    let g = how.compile(|x: &Tensor| -> Result<(Tensor, Tensor)> {
        let copy = x.try_deep_copy()?;
        Ok((x.try_mul(&copy)?, copy))
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.push(format!("{:?}", x.grad().map(|g| g.dtype())));
        let x = leaf_of(k);
        let (y, copy) = g(&x).unwrap();
        y.sum().backward();
        how.log.grad("x", &x);
        how.log.grad("copy", &copy);
    }
}

/// Writes that no version counts: of a result that is kept, of an argument, behind a break; and reads.
fn through_data(how: &How) {
    type F = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let bodies: [(&str, F); 4] = [
        ("result", |x, _| {
            let y = x.exp();
            y.data().try_mul_scalar_(2.0)?;
            Ok(y)
        }),
        ("argument", |x, w| {
            let y = x * w;
            w.data().try_mul_scalar_(2.0)?;
            Ok(y)
        }),
        ("behind a break", |x, _| {
            let y = x.exp();
            let alias = y.data();
            graph_break();
            alias.try_mul_scalar_(2.0)?;
            Ok(y)
        }),
        ("read", |x, _| x.try_div(&x.data().norm(2.0))),
    ];
    for (name, body) in bodies {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| body(x, w));
        for k in 0..3 {
            let (x, w) = (leaf_of(k), leaf_of(k + 1).detach());
            let y = f(&(x.clone(), w.clone())).unwrap();
            how.log.see(name, &y);
            how.log.push(w.version().to_string());
            pass(how, &y, &x);
        }
    }
}

/// The function writes what a derivative keeps: the pass is refused, that of other results is not.
fn spoiled(how: &How) {
    type F = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let bodies: [F; 4] = [
        |x, _| {
            let y = x.exp();
            y.detach().try_mul_scalar_(2.0)?;
            Ok(y)
        },
        |x, w| {
            let y = x * w;
            no_grad(|| w.try_mul_scalar_(2.0).map(drop))?;
            Ok(y)
        },
        |x, _| {
            let y = x.exp();
            let z = x * 3.0;
            no_grad(|| y.try_mul_scalar_(2.0).map(drop))?;
            Ok(z)
        },
        |x, _| {
            let y = x.sin();
            y.try_relu_()?;
            y.try_mul_scalar_(2.0).cloned()
        },
    ];
    for body in bodies {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| body(x, w));
        for k in 0..4 {
            let (x, w) = (leaf_of(k), leaf_of(k + 1).detach());
            let y = f(&(x.clone(), w)).unwrap();
            if k % 2 == 0 {
                pass(how, &y, &x);
                continue;
            }
            match grad(&y.sum(), [x], &GradOptions::create_graph()) {
                Ok(g) => how.log.see_opt("first", g[0].as_ref()),
                Err(e) => how.log.push(e.to_string()),
            }
        }
    }
}

/// Checkpoints that do something outside: write a captured tensor, set a cell, register a hook on their argument, break.
fn checkpoints_and_the_outside(how: &How) {
    let written = Tensor::new(&[1.0]);
    for kind in 0..3 {
        let (log, held, cell) = (how.log.clone(), written.clone(), Shared::new(Tensor::new(&[0.0])));
        let counted = cell.clone();
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> {
            let (log, held, cell) = (log.clone(), held.clone(), counted.clone());
            let body = move |i: &[Tensor]| {
                match kind {
                    0 => no_grad(|| held.try_mul_scalar_(0.5).map(drop))?,
                    1 => cell.set((cell.get() + 1.0).detach()),
                    _ => graph_break(),
                }
                let t = i[0].try_sin()?;
                if kind == 2 && t.requires_grad() {
                    let log = log.clone();
                    t.try_register_hook(move |g: &Tensor| log.see("inside", g))?;
                }
                Ok(vec![t.try_exp()?])
            };
            Ok(checkpoint(body, &[x], &CheckpointOptions::default())?.remove(0))
        });
        for n in [3, 4, 5, 1] {
            let x = ramp(n);
            let y = f(&x).unwrap();
            how.log.see("y", &y);
            pass(how, &y, &x);
            how.log.see("written", &written);
            how.log.see("cell", &cell.get());
        }
    }
}

/// A weight that an autocast region uses twice is cast once: its gradient is the rounded sum.
fn cast_once(how: &How) {
    for breaks in [false, true] {
        let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
            autocast(DType::BF16, || -> Result<Tensor> {
                let y = x.try_matmul(w)?;
                if breaks {
                    graph_break();
                }
                y.try_matmul(w)
            })
        });
        for n in [3usize, 4, 5] {
            let numbers = |n: usize| (0..n).map(|k| (k as f32 * 0.7).sin()).collect::<Vec<f32>>();
            let x = Tensor::from_slice(&numbers(n * 3), [n as i64, 3]);
            let w = Tensor::from_slice(&numbers(9), [3, 3]).requires_grad_();
            let y = f(&(x, w.clone())).unwrap();
            see(how, "y", &y);
            y.to_dtype(DType::F32).sum().backward();
            see(how, "w.grad", &w.grad().unwrap());
        }
    }
}

/// Scales by its largest element, which it reads; refuses four.
struct Largest;

impl Function for Largest {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        if inputs[0].numel() == 4 {
            return Err(Error::user("four"));
        }
        let most = inputs[0].to_vec::<f64>().into_iter().fold(0.0, f64::max);
        Ok(vec![&inputs[0] * most])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = ctx.saved_tensors()?;
        let most = saved[0].iter().flat_map(|t| t.to_vec::<f64>()).fold(0.0, f64::max);
        Ok(vec![grads[0].as_ref().map(|g| g * most)])
    }
}

/// A custom function that reads numbers and fails at one size, where the function goes on without it.
fn reading_function(how: &How) {
    let f = how.compile(|x: &Tensor| match Largest.apply(&[&x.sin()]) {
        Ok(mut y) => y.remove(0),
        Err(e) => x * e.to_string().len() as f64,
    });
    for n in [3, 4, 5, 4, 6, 1] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        pass(how, &y, &x);
    }
}

/// An op that is refused at some sizes, where the function goes on without it.
fn refused_at_some_sizes(how: &How) {
    let f = how.compile(|x: &Tensor| x.try_mul(&Tensor::new(&[1.0, 2.0, 3.0])).unwrap_or_else(|_| x.cos()));
    for n in [3, 4, 3, 5, 3, 1, 6] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        pass(how, &y, &x);
    }
}

/// Cells and buffers that the function makes.
fn cells_made_inside(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<(Tensor, Tensor)> {
        let buffer = Buffer::new(x.detach() * 0.5);
        buffer.get().try_add_(&x.detach())?;
        buffer.set(buffer.get() * 2.0);
        let cell = Shared::new(x.detach().sin());
        cell.set(cell.get() + buffer.get());
        Ok((x.try_mul(&buffer.get())?, cell.get()))
    });
    for n in [3, 4, 5, 1] {
        let x = ramp(n);
        let (y, held) = f(&x).unwrap();
        how.log.see("held", &held);
        pass(how, &y, &x);
    }
}

/// A checkpoint that holds a value, where nothing is recorded.
fn held_where_nothing_is_recorded(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let _off = set_grad_enabled(false).scoped();
        let held = x.try_cos()?.detach();
        let body = move |i: &[Tensor]| Ok(vec![i[0].try_mul(&held)?]);
        let options = CheckpointOptions { use_reentrant: Some(true), ..CheckpointOptions::default() };
        Ok(checkpoint(body, &[x], &options)?.remove(0))
    });
    for n in [3, 4, 5] {
        how.log.see("y", &f(&ramp(n)).unwrap());
    }
}

/// The versions of results, and of what the function has written.
fn versions_of_results(how: &How) {
    let f = how.compile(|(x, w): &(Tensor, Tensor)| -> Result<(Tensor, Tensor)> {
        w.try_mul_scalar_(2.0)?;
        Ok((x.try_sin()?.try_mul(w)?.try_tanh()?, x.try_exp()?))
    });
    for k in 0..3 {
        let w = leaf_of(k).detach();
        let (a, b) = f(&(leaf_of(k), w.clone())).unwrap();
        how.log.push(format!("{} {} {}", a.version(), b.version(), w.version()));
    }
}

/// A gradient that does not fit is refused where it is set.
fn unfit_gradient(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let refused = x.try_set_grad(Some(&Tensor::new(&[1.0, 2.0]))).map_err(|e| e.to_string());
        (x * if refused.is_err() { 2.0 } else { 3.0 }).sin()
    });
    for k in 0..3 {
        how.log.see("y", &f(&leaf_of(k)).unwrap());
    }
}

/// Arguments that share memory in some calls, both written; a leaf and none in turn where the function writes.
fn shared_and_written(how: &How) {
    let f = how.compile(|(x, y): &(Tensor, Tensor)| -> Result<(Tensor, Tensor)> {
        let z = x.try_sin()?;
        y.try_mul_scalar_(2.0)?;
        x.try_add_scalar_(1.0, 1)?;
        Ok((z, x.try_mul(&y.try_sum()?)?))
    });
    let w = Tensor::new(&[1.0, 2.0, 3.0]);
    let held = w.clone();
    let g = how.compile(move |x: &Tensor| -> Result<Tensor> {
        held.try_mul_scalar_(1.5)?;
        let y = x.try_mul(&held)?;
        x.try_add_scalar_(1.0, 1)?;
        y.try_add(&held)
    });
    for k in 0..6 {
        let a = leaf(&[1.0, 2.0, 3.0, 4.0 + k as f64]);
        let x = if k == 5 { a.clone() } else { &a * 1.0 };
        let y = match k % 3 {
            0 => x.detach().slice(0, Some(1.into()), None, 1),
            1 => (&x * 1.0).detach(),
            _ => x.detach(),
        };
        match f(&(x, y.clone())) {
            Ok((p, q)) => {
                how.log.see("p", &p);
                pass(how, &(p.sum() + q.sum()), &a);
            }
            Err(e) => how.log.push(e),
        }
        how.log.see("y", &y);
        let x = if k % 2 == 0 { w.clone() } else { leaf_of(k).detach() };
        how.log.see("captured", &g(&x).unwrap());
        how.log.see("w", &w);
    }
}

#[test]
fn asked_and_written() {
    const CASES: &[Case] = &[
        ("X-156", memory),
        ("X-157", flags),
        ("X-158", dtype_and_copy),
        ("X-159", through_data),
        ("X-160", spoiled),
        ("X-161", checkpoints_and_the_outside),
        ("X-162", cast_once),
        ("X-163", reading_function),
        ("X-164", refused_at_some_sizes),
        ("X-165", cells_made_inside),
        ("X-166", held_where_nothing_is_recorded),
        ("X-167", versions_of_results),
        ("X-168", unfit_gradient),
        ("X-169", shared_and_written),
    ];
    check(CASES);
}
