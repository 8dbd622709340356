//! The compiled node in the caller's graph, and errors.

use crate::{Case, How, Log, check, leaf_of};
use firebrand_compile::graph_break;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_core::autograd::{BackwardOptions, GradOptions, grad, no_grad};
use firebrand_core::ops::dropout;
use firebrand_core::{Error, Tensor};

/// The gradient of one result with respect to another.
fn gradient_of_a_returned_value(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let h = x.sin();
        (h.clone(), (&h * &h).exp())
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (h, y) = f(&x).unwrap();
        let options = GradOptions { retain_graph: Some(true), ..GradOptions::default() };
        match grad(&y.sum(), vec![h.clone(), x.clone()], &options) {
            Ok(g) => g.iter().for_each(|g| how.log.see_opt("grad", g.as_ref())),
            Err(e) => how.log.push(e.to_string()),
        }
    }
}

/// A hook on a result sees what flows through the other.
fn hook_on_a_returned_value(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let h = x.sin();
        (h.clone(), (&h * &h).exp())
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (h, y) = f(&x).unwrap();
        let log = how.log.clone();
        h.register_hook(move |g: &Tensor| {
            log.see("hook", g);
            g * 2.0
        });
        (y.sum() + h.sum()).backward();
        how.log.grad("x", &x);
    }
}

/// Three results, each computed from the one before, and second derivatives through them.
fn chain_of_returned_values(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let a = x * 2.0;
        let b = a.sin() + x;
        let c = &b * &a;
        (a, b, c)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (a, b, c) = f(&x).unwrap();
        let create = GradOptions { create_graph: true, ..GradOptions::default() };
        let first = grad(&c.sum(), vec![a.clone(), b.clone(), x.clone()], &create).unwrap();
        first.iter().for_each(|g| how.log.see_opt("first", g.as_ref()));
        let total = first.iter().flatten().map(|g| (g * g).sum()).reduce(|a, b| a + b).unwrap();
        let unused = GradOptions { allow_unused: Some(true), ..GradOptions::default() };
        let second = grad(&total, vec![x.clone()], &unused).unwrap();
        how.log.see_opt("second", second[0].as_ref());
    }
}

/// Hooks inside run between accumulations outside as in a plain run.
fn order_of_hooks_and_accumulation(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
        let y = x * 2.0;
        let log = log.clone();
        y.register_hook(move |g: &Tensor| log.see("inside", g));
        y * w
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 1));
        for (name, t) in [("x", &x), ("w", &w)] {
            let log = how.log.clone();
            t.try_register_post_accumulate_grad_hook(move |t: &Tensor| log.grad(name, t)).unwrap();
        }
        f(&(x.clone(), w.clone())).unwrap().sum().backward();
    }
}

/// Leaves are reached in the order of a plain run.
fn order_of_accumulation(how: &How) {
    let f = how.compile(|(x, w, v): &(Tensor, Tensor, Tensor)| (x * v).sin() * w);
    for k in 0..3 {
        let (x, w, v) = (leaf_of(k), leaf_of(k + 1), leaf_of(k + 2));
        for (name, t) in [("x", &x), ("w", &w), ("v", &v)] {
            let log = how.log.clone();
            t.try_register_post_accumulate_grad_hook(move |t: &Tensor| log.grad(name, t)).unwrap();
        }
        f(&(x.clone(), w.clone(), v.clone())).unwrap().sum().backward();
    }
}

/// Leaves that the caller uses too, several of which one op makes ready.
fn order_of_leaves_used_outside(how: &How) {
    let f = how.compile(|(x, y, z): &(Tensor, Tensor, Tensor)| {
        let early = z.sin();
        (x * y) + z.addcmul(y, x) * early
    });
    for k in 0..3 {
        let leaves = [leaf_of(k), leaf_of(k + 1), leaf_of(k + 2)];
        for (name, t) in ["x", "y", "z"].into_iter().zip(&leaves) {
            let log = how.log.clone();
            t.try_register_post_accumulate_grad_hook(move |t: &Tensor| log.grad(name, t)).unwrap();
        }
        let [x, y, z] = leaves.clone();
        let before = z.tanh();
        let inside = f(&(x, y.clone(), z)).unwrap();
        let behind = y.sin();
        (behind.sum() + inside.sum() + before.sum()).backward();
    }
}

/// A hook inside that puts a hook on an argument, which the same pass reaches later.
fn hook_registered_by_a_hook(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let (log, held) = (log.clone(), x.clone());
        y.register_hook(move |_: &Tensor| {
            let log = log.clone();
            held.register_hook(move |g: &Tensor| {
                log.see("later", g);
                g * 0.5
            });
        });
        y.sin()
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A write behind a break, to what only another value needs.
fn write_behind_a_break(how: &How) {
    let f = how.compile(|(x, w): &(Tensor, Tensor)| {
        let a = x * w;
        let b = x.sin();
        graph_break();
        no_grad(|| w.add_scalar_(1.0, 1).clone());
        (b * 2.0, a)
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 1).detach());
        let (b, a) = f(&(x.clone(), w.clone())).unwrap();
        how.log.see("w", &w);
        let keep = BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() };
        how.log.push(format!("{:?}", b.sum().try_backward(&keep).map_err(|e| e.to_string())));
        how.log.grad("x", &x);
        how.log.push(format!("{}", a.sum().try_backward(&keep).is_err()));
    }
}

/// The error of a hook is the caller's.
fn error_of_a_hook(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x.sin();
        y.register_hook(|_: &Tensor| -> Result<(), Error> { Err(Error::argument("hook", "no more of this")) });
        let z = &y * 2.0;
        z.exp()
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let failed = f(&x).unwrap().sum().try_backward(&BackwardOptions::default());
        how.log.push(format!("{:?}", failed.map_err(|e| e.to_string())));
        how.log.grad("x", &x);
    }
}

/// A hook that gives a gradient of another size or dtype.
fn hook_with_another_size(how: &How) {
    for dtype in [false, true] {
        let f = how.compile(move |x: &Tensor| {
            let y = x.sin();
            y.register_hook(move |g: &Tensor| match dtype {
                true => g.to_dtype(firebrand_core::DType::F32),
                false => g.sum(),
            });
            (&y * 2.0).exp()
        });
        let x = leaf_of(1);
        let failed = f(&x).unwrap().sum().try_backward(&BackwardOptions::default());
        how.log.push(format!("{:?}", failed.map_err(|e| e.to_string())));
    }
}

/// An error of an op, of the function and of a write.
fn errors_of_the_function(how: &How) {
    let f = how.compile(|x: &Tensor| x.try_reshape([5i64]));
    how.log.push(format!("{:?}", f(&leaf_of(0)).map(|_| ())));
    let f = how.compile(|x: &Tensor| x.try_add_scalar_(1.0, 1).map(|t| t * 2.0));
    how.log.push(format!("{:?}", f(&leaf_of(0)).map(|_| ())));
    let f = how.compile(|x: &Tensor| x.detach().try_register_hook(|g: &Tensor| g * 2.0).map(|_| x * 2.0));
    how.log.push(format!("{:?}", f(&leaf_of(0)).map(|_| ())));
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        y.try_register_post_accumulate_grad_hook(|_: &Tensor| ()).map(|_| y)
    });
    how.log.push(format!("{:?}", f(&leaf_of(0)).map(|_| ())));
    let f = how.compile(|x: &Tensor| x.sum().try_backward(&BackwardOptions::default()).map(|()| x * 2.0));
    let x = leaf_of(0);
    how.log.push(format!("{:?}", f(&x).map(|_| ())));
    how.log.grad("x", &x);
}

/// What leads to no result that is differentiated does not reach a leaf: beside random numbers, and beside writes.
fn leaves_out_of_reach(how: &How) {
    type F = fn(&Tensor, &Tensor) -> Result<Vec<Tensor>, Error>;
    let bodies: [(&str, F); 6] = [
        ("memory of results that are detached", |x, y| {
            let t = x.tanh();
            Ok(vec![y * 0.5, t.detach(), t.detach()])
        }),
        ("random numbers nobody returns", |x, y| {
            let t = (x * x).tanh();
            let result = y * 0.5;
            let _lost = dropout(&t.tanh(), 0.5, true)?;
            Ok(vec![result])
        }),
        ("random numbers in another result", |x, y| Ok(vec![y * 0.5, dropout(&x.sin(), 0.5, true)?])),
        ("random numbers in turn", |x, y| {
            let a = dropout(&x.sin(), 0.5, true)?;
            let b = dropout(&y.sin(), 0.5, true)?;
            Ok(vec![dropout(&b, 0.5, true)?, dropout(&a, 0.5, true)?])
        }),
        ("a write nobody returns", |x, y| {
            let t = x.sin();
            let result = y * 0.5;
            t.try_add_(&x.detach())?;
            let _lost = t.tanh();
            Ok(vec![result])
        }),
        ("a write of a leaf", |x, y| {
            let result = y.tanh();
            no_grad(|| x.try_mul_scalar_(1.25).map(drop))?;
            Ok(vec![result])
        }),
    ];
    for (name, body) in bodies {
        let f = how.compile(move |(x, y): &(Tensor, Tensor)| body(x, y));
        for k in 0..3 {
            let leaves = [leaf_of(k), leaf_of(k + 1)];
            for (i, leaf) in leaves.iter().enumerate() {
                let log = how.log.clone();
                leaf.register_post_accumulate_grad_hook(move |t: &Tensor| {
                    log.see_opt(&format!("leaf {i}"), t.grad().as_ref());
                });
            }
            let results = f(&(leaves[0].clone(), leaves[1].clone())).unwrap();
            results.iter().for_each(|t| how.log.see(name, t));
            results[0].sum().backward();
            leaves.iter().for_each(|t| how.log.grad("leaf", t));
        }
    }
}

/// Two leaves whose gradients are logged as they are accumulated.
fn logged_leaves(how: &How, k: usize) -> [Tensor; 2] {
    let leaves = [leaf_of(k), leaf_of(k + 1)];
    for (i, leaf) in leaves.iter().enumerate() {
        let log = how.log.clone();
        leaf.register_post_accumulate_grad_hook(move |t: &Tensor| log.see_opt(&format!("leaf {i}"), t.grad().as_ref()));
    }
    leaves
}

/// A function that logs what its hooks see.
type Hooked = fn(&Log, &Tensor, &Tensor) -> Result<Vec<Tensor>, Error>;

fn see(log: &Log, name: &'static str) -> impl Fn(&Tensor) -> Tensor + Send + Sync + 'static {
    let log = log.clone();
    move |g: &Tensor| {
        log.see(name, g);
        g * 0.5
    }
}

/// Hooks that come after the last use of what they are on: on arguments, and on values from which results were computed before.
fn late_hooks(how: &How) {
    let bodies: [(&str, Hooked); 6] = [
        ("on an argument that is returned", |log, x, y| {
            let r = y.sin();
            x.try_register_hook(see(log, "hook"))?;
            Ok(vec![x.clone(), r])
        }),
        ("on an argument that leads to nothing here", |log, x, y| {
            let (a, _lost) = (y.sin(), x.tanh());
            let b = a.tanh();
            x.try_register_hook(see(log, "hook"))?;
            Ok(vec![a, b])
        }),
        ("on a value, behind a result", |log, x, y| {
            let v = x * y;
            let a = v.sin();
            let b = a.tanh();
            v.try_register_hook(see(log, "hook"))?;
            Ok(vec![a, b])
        }),
        ("a pure one on a value, behind a result", |_, x, y| {
            let v = x * y;
            let a = v.sin();
            let b = a.tanh();
            register_pure_hook(&v, |g: &Tensor| g * 0.75)?;
            Ok(vec![a, b])
        }),
        ("a pure one that reads a value, behind a result", |_, x, y| {
            let v = x * y;
            let (a, held) = (v.sin(), y.cos());
            let b = a.tanh();
            register_pure_hook(&v, move |g: &Tensor| g * &held)?;
            Ok(vec![a, b])
        }),
        ("a pure one and another on one value", |log, x, y| {
            let v = x * y;
            register_pure_hook(&v, |g: &Tensor| g * 0.75)?;
            v.try_register_hook(see(log, "hook"))?;
            Ok(vec![v.sin(), v])
        }),
    ];
    for (name, body) in bodies {
        let log = how.log.clone();
        let f = how.compile(move |(x, y): &(Tensor, Tensor)| body(&log, x, y));
        for k in 0..3 {
            let leaves = logged_leaves(how, k);
            let given = [&leaves[0] * 1.0, &leaves[1] * 1.0];
            let results = f(&(given[0].clone(), given[1].clone())).unwrap();
            results.iter().for_each(|t| how.log.see(name, t));
            let total = results.iter().map(Tensor::sum).reduce(|a, b| a + b).unwrap();
            (total + (&given[0] * 3.0).sum()).backward();
        }
    }
}

/// Leaves get their gradients in the order of a plain run: where ops of two results alternate, where an op passes a gradient on
/// as it is, and where a view of an argument is a result.
fn order_of_leaves(how: &How) {
    type F = fn(&Tensor, &Tensor) -> Vec<Tensor>;
    let bodies: [(&str, F); 5] = [
        ("ops of two results in turn", |x, y| {
            let b = y.sin();
            let a = x.sin();
            vec![a, b.tanh()]
        }),
        ("a gradient passed on", |x, y| vec![(&(x - 0.5) * y).tanh()]),
        ("a gradient passed on, the other way round", |x, y| vec![(y * &(x + 0.5)).tanh()]),
        ("a view of an argument before", |x, y| {
            let v = y.slice(0, Some(1.into()), None, 1);
            vec![x.sin(), v]
        }),
        ("a view of an argument behind", |x, y| {
            let a = x.sin();
            vec![a, y.slice(0, Some(1.into()), None, 1)]
        }),
    ];
    for (name, body) in bodies {
        let f = how.compile(move |(x, y): &(Tensor, Tensor)| body(x, y));
        for k in 0..3 {
            let leaves = logged_leaves(how, k);
            let results = f(&(leaves[0].clone(), leaves[1].clone())).unwrap();
            how.log.push(name);
            results.iter().map(Tensor::sum).reduce(|a, b| a + b).unwrap().backward();
        }
    }
}

/// Derivatives of a gradient that keeps its result pass through the hook on the result, also where the op is decomposed.
fn hook_on_a_kept_result(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| -> Result<Tensor, Error> {
        let y = x.tanh();
        y.try_register_hook(see(&log, "hook"))?;
        Ok(y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let y = f(&x).unwrap();
        let create = GradOptions { create_graph: true, ..GradOptions::default() };
        let first = grad(&(&y * &y).sum(), vec![x.clone()], &create).unwrap().remove(0).unwrap();
        how.log.see("first", &first);
        let second = grad(&(&first * &first).sum(), vec![x.clone()], &GradOptions::default()).unwrap();
        how.log.see_opt("second", second[0].as_ref());
    }
}

/// An argument is written behind a break: gradients that do not read it can still be differentiated.
fn write_that_no_derivative_reads(how: &How) {
    let f = how.compile(|(x, y): &(Tensor, Tensor)| -> Result<Tensor, Error> {
        let a = y.neg().try_add(x)?;
        graph_break();
        no_grad(|| y.try_mul_scalar_(1.25).map(drop))?;
        Ok(a)
    });
    for k in 0..3 {
        let (x, y) = (leaf_of(k), leaf_of(k + 1));
        let a = f(&(x.clone(), y.clone())).unwrap();
        let options = GradOptions { create_graph: true, allow_unused: Some(true), ..GradOptions::default() };
        match grad(&a.sum(), vec![y.clone()], &options) {
            Ok(g) => how.log.see_opt("first", g[0].as_ref()),
            Err(e) => how.log.push(e.to_string()),
        }
    }
}

#[test]
fn the_compiled_node() {
    const CASES: &[Case] = &[
        ("X-60", gradient_of_a_returned_value),
        ("X-61", hook_on_a_returned_value),
        ("X-62", chain_of_returned_values),
        ("X-63", order_of_hooks_and_accumulation),
        ("X-64", order_of_accumulation),
        ("X-65", write_behind_a_break),
        ("X-66", leaves_out_of_reach),
        ("X-67", late_hooks),
        ("X-68", order_of_leaves),
        ("X-69", hook_on_a_kept_result),
        ("X-70", error_of_a_hook),
        ("X-71", hook_with_another_size),
        ("X-72", errors_of_the_function),
        ("X-73", write_that_no_derivative_reads),
        ("X-74", order_of_leaves_used_outside),
        ("X-75", hook_registered_by_a_hook),
    ];
    check(CASES);
}
