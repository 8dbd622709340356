//! Meta tensors, and sizes where they are read.

use crate::functions::Double;
use crate::{Case, How, check, leaf, ramp};
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{Options, Shared, backends, compile_with};
use firebrand_core::autograd::Function;
use firebrand_core::{DType, Device, Number, Result, SymInt, Tensor, TensorOptions};

fn meta(sizes: [i64; 1]) -> Tensor {
    Tensor::full(
        sizes,
        1.0,
        TensorOptions { dtype: Some(DType::F64), device: Some(Device::Meta), ..Default::default() },
    )
}

/// Meta in, meta out.
fn meta_argument(how: &How) {
    let f = how.compile(|x: &Tensor| (x.sin() * 2.0, x.sum()));
    for n in [3, 4] {
        let (y, s) = f(&meta([n])).unwrap();
        how.log.see("y", &y);
        how.log.see("s", &s);
    }
}

/// With gradients.
fn meta_argument_with_gradient(how: &How) {
    let f = how.compile(|x: &Tensor| (x * x).sin().sum());
    let x = meta([3]).requires_grad_();
    let y = f(&x).unwrap();
    how.log.see("y", &y);
    y.backward();
    how.log.see_opt("grad", x.grad().as_ref());
}

/// A meta tensor beside real ones.
fn meta_captured(how: &How) {
    let m = meta([3]);
    let f = how.compile(move |x: &Tensor| (m.sin() * 2.0, x * 3.0));
    let x = leaf(&[1.0, 2.0, 3.0]);
    for _ in 0..2 {
        let (a, b) = f(&x).unwrap();
        how.log.see("a", &a);
        how.log.see("b", &b);
        b.sum().backward();
        how.log.grad("x", &x);
    }
}

/// Mixed with a real one it is refused as plainly.
fn meta_mixed(how: &How) {
    let m = meta([3]);
    let f = how.compile(move |x: &Tensor| x.try_mul(&m));
    how.log.push(format!("{:?}", f(&leaf(&[1.0, 2.0, 3.0])).map(|t| t.is_meta())));
}

/// Reading one is refused as plainly.
fn meta_read(how: &How) {
    let f = how.compile(|x: &Tensor| x.try_to_vec::<f64>().map(|v| x * v[0]));
    how.log.push(format!("{:?}", f(&meta([3])).map(|t| t.is_meta())));
}

/// A pure hook that multiplies by a size.
fn pure_hook_reads_a_size(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        register_pure_hook(&y, |g: &Tensor| g * i64::from(g.size(0)) as f64).unwrap();
        y.sin()
    });
    for n in [3, 4, 5, 6] {
        let x = ramp(n);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A pure hook that branches on one.
fn pure_hook_branches_on_a_size(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        register_pure_hook(&y, |g: &Tensor| if g.size(0) > 4 { g * 10.0 } else { g * 1.0 }).unwrap();
        y.sin()
    });
    for n in [3, 4, 5, 6] {
        let x = ramp(n);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A pure hook that asks a captured value for its size.
fn pure_hook_reads_the_size_of_a_value(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        let held = y.clone();
        register_pure_hook(&y, move |g: &Tensor| g * held.shape()[0] as f64).unwrap();
        y.sin()
    });
    for n in [3, 4, 5, 6] {
        let x = ramp(n);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A size as an operand.
fn tensor_plus_size(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let n = x.size(0);
        (x + n, x * n, x - n, x / n, (x + n * 2 + 1).sum())
    });
    for n in [3, 4, 5, 6, 1, 2] {
        let x = ramp(n);
        let (a, b, c, d, e) = f(&x).unwrap();
        for (name, t) in [("a", &a), ("b", &b), ("c", &c), ("d", &d), ("e", &e)] {
            how.log.see(name, t);
        }
        (a + b + c + d).sum().backward();
        how.log.grad("x", &x);
    }
}

#[test]
fn meta_tensors_and_sizes() {
    const CASES: &[Case] = &[
        ("X-1", meta_argument),
        ("X-2", meta_argument_with_gradient),
        ("X-3", meta_captured),
        ("X-4", meta_mixed),
        ("X-5", meta_read),
        ("X-6", pure_hook_reads_a_size),
        ("X-7", pure_hook_branches_on_a_size),
        ("X-8", pure_hook_reads_the_size_of_a_value),
        ("X-9", tensor_plus_size),
        ("X-12", pure_hook_with_a_captured_size),
        ("X-13", hook_asks_held_tensors),
        ("X-14", hook_holds_sizes),
        ("X-15", hook_holds_a_number),
        ("X-16", sizes_and_numbers_as_results),
    ];
    check(CASES);
}

/// A pure hook computes with a size that was read outside of it, alone and with that of its gradient.
fn pure_hook_with_a_captured_size(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let (y, n) = (x * 2.0, x.size(0));
        register_pure_hook(&y, move |g: &Tensor| (g.reshape([n]) * n) * (g.size(0) + n))?;
        Ok(y.sin())
    });
    for n in [3, 4, 5, 6, 1] {
        let x = ramp(n).requires_grad_();
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A hook asks an argument and a value that it holds for everything but values.
fn hook_asks_held_tensors(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = Tensor::try_cat(&[x.clone(), x.clone()], 0).unwrap();
        let (log, held) = (log.clone(), [x.clone(), y.clone()]);
        y.register_hook(move |g: &Tensor| {
            for t in &held {
                let flags = (t.requires_grad(), t.is_leaf(), t.is_meta(), t.is_view(), t.retains_grad());
                let (n, m) = (t.size(0).int(), t.numel());
                log.push(format!("{:?} {:?} {n} {m} {} {flags:?}", t.shape(), t.strides(), t.dtype()));
            }
            log.push(format!("{}", held[0].is_same(&held[0].clone())));
            g * held[1].shape()[0] as f64
        });
        y.sin()
    });
    for n in [3, 4, 5, 6, 1] {
        let x = ramp(n);
        let y = f(&x).unwrap();
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

/// A hook and a post-accumulate hook compute with sizes that the function has read, of an argument and of a value.
fn hook_holds_sizes(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = Tensor::try_cat(&[x.clone(), x.clone()], 0).unwrap();
        let (n, m) = (x.size(0), y.size(0) + 1);
        y.register_hook(move |g: &Tensor| g * n);
        let log = log.clone();
        x.register_post_accumulate_grad_hook(move |_: &Tensor| {
            log.push(format!("{} {} {} {}", n.int(), m.int(), n + m, n > 4));
        });
        y.sin().reshape([n, 2.into()])
    });
    for n in [3, 4, 5, 6, 1] {
        let x = ramp(n);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A hook computes with a number argument, and reads it.
fn hook_holds_a_number(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, n): &(Tensor, Number)| {
        let y = x * n;
        let (log, n) = (log.clone(), n.clone());
        y.register_hook(move |g: &Tensor| {
            log.push(format!("{:?}", n.value()));
            g * &n
        });
        y.sin()
    });
    for k in 0..4 {
        let x = ramp(3);
        f(&(x.clone(), Number::from(1.5 + k as f64))).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// Sizes and numbers that a function returns, and puts into a cell, are those of the call.
fn sizes_and_numbers_as_results(how: &How) {
    let cell = Shared::new((SymInt::ONE, Number::from(0.0)));
    let inside = cell.clone();
    let f = how.compile(move |(x, n): &(Tensor, Number)| {
        inside.set((x.size(0) * 2, n.clone()));
        (x * n, x.size(0) + 1, n.clone())
    });
    for k in 0..4 {
        let (y, n, number) = f(&(ramp(3 + k), Number::from(1.5 + k as f64))).unwrap();
        how.log.see("y", &y);
        let (m, kept) = cell.get();
        how.log.push(format!("{n} {:?} {m} {:?}", number.value(), kept.value()));
    }
}

/// A function of a vector, for the table of frames.
type Sized = (&'static str, fn(&Tensor) -> Result<Tensor>, [(usize, usize); 7]);

/// sizes as operands, in custom functions and hooks. The frames are PyTorch's: no size that is only
/// computed with ties a graph to it.
#[test]
fn no_more_frames_than_pytorch() {
    const USUAL: [(usize, usize); 7] = [(3, 1), (4, 2), (5, 2), (6, 2), (7, 2), (1, 3), (9, 3)];
    let rows: [Sized; 8] = [
        ("X-10 product and sum", |x| Ok(x * x.size(0) + x.size(0)), USUAL),
        ("X-11 quotient", |x| Ok(x / x.size(0)), USUAL),
        ("X-11 difference", |x| Ok(x - x.size(0)), USUAL),
        (
            "X-11 shapes",
            |x| Ok(x.reshape([x.size(0), 1.into()]).expand([x.size(0), x.size(0)]).sum_dim(1, false)),
            USUAL,
        ),
        (
            "X-11 a branch",
            |x| Ok(if x.size(0) > 3 { x * 2.0 } else { x * 0.5 }),
            [(3, 1), (4, 2), (5, 2), (6, 2), (2, 3), (1, 4), (8, 4)],
        ),
        (
            "X-11 a custom function",
            |x| {
                let y = Double.apply(&[x])?.remove(0);
                Ok(&y * y.size(0))
            },
            USUAL,
        ),
        (
            "X-11 a hook",
            |x| {
                let y = x * 2.0;
                register_pure_hook(&y, |g: &Tensor| g * g.size(0))?;
                Ok(y.sum())
            },
            USUAL,
        ),
        (
            "X-11 a hook with a branch",
            |x| {
                let y = x * 2.0;
                register_pure_hook(&y, |g: &Tensor| if g.size(0) > 3 { g * 0.75 } else { g.sin() })?;
                Ok(y.sum())
            },
            USUAL,
        ),
    ];
    for (what, f, sizes) in rows {
        for name in ["eager", "aot_eager", "firebrand"] {
            let counter = backends::counter(backends::backend(name).unwrap());
            let compiled = compile_with(f, Options::with_backend(counter.clone()));
            for (n, frames) in sizes {
                let x = ramp(n).requires_grad_();
                let (found, plain) = (compiled.try_call(&x).unwrap(), f(&x).unwrap());
                assert_eq!(found.to_vec::<f64>(), plain.to_vec::<f64>(), "{what} on {name}, size {n}");
                assert_eq!(counter.frames(), frames, "{what} on {name}, frames at size {n}");
            }
        }
    }
}
