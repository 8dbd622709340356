//! Forward mode and function transforms, around and inside compiled functions.

use crate::{Callable, Case, How, Log, check, leaf_of, ramp};
use firebrand_compile::{Options, backends, compile_with, graph_break};
use firebrand_core::autograd::{
    Context, Function, GradOptions, dual_level, grad, make_dual, saved_tensors_hooks, unpack_dual,
};
use firebrand_core::{Result, Tensor, func};
use std::sync::Arc;

fn cubes(x: &Tensor) -> Tensor {
    (x * x * x).sum()
}

fn point(k: usize) -> Tensor {
    leaf_of(k).detach()
}

fn see(how: &How, name: &str, t: Result<Tensor>) {
    match t {
        Ok(t) => how.log.see(name, &t),
        Err(e) => how.log.push(format!("{name} {e}")),
    }
}

/// What a compiled function is to a transform: an ordinary function.
fn wrapped<O: 'static>(f: Callable<Tensor, O>) -> impl Fn(&Tensor) -> Result<O> {
    move |x| f(x).map_err(firebrand_core::Error::user)
}

/// Transforms of a compiled function.
fn transforms_outside(how: &How) {
    let f = wrapped(how.compile(cubes));
    let g = wrapped(how.compile(|x: &Tensor| x.sin() * x));
    for k in 0..3 {
        let x = point(k);
        let (y, t) = func::jvp(&g, &x, &point(k + 1)).unwrap();
        how.log.see("jvp", &y);
        how.log.see("jvp", &t);
        see(how, "grad", func::grad(&f)(&x));
        see(how, "jacrev", func::jacrev(&g)(&x));
        see(how, "jacfwd", func::jacfwd(&g)(&x));
        see(how, "hessian", func::hessian(&f)(&x));
        let rows = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0 + k as f64], [2, 3]);
        see(how, "vmap", func::vmap(&g).call(&rows));
        see(how, "vmap grad", func::vmap(func::grad(&f)).call(&rows));
        see(how, "grad jvp", func::grad(|x: &Tensor| func::jvp(&g, x, &point(k)).map(|(_, t)| t.sum()))(&x));
        let (out, pull) = func::vjp(&g, &x).unwrap();
        see(how, "vjp", pull.call(&out));
        // And as an ordinary function again.
        let x = leaf_of(k);
        f(&x).unwrap().backward();
        how.log.grad("x", &x);
    }
}

/// Transforms inside a compiled function.
fn transforms_inside(how: &How) {
    type F = fn(&Tensor) -> Result<Tensor>;
    let inside: [(&str, F); 11] = [
        ("grad", |x| func::grad(cubes)(x)),
        ("vjp", |x| func::vjp(|x: &Tensor| x.sin(), x)?.1.call(&(x * 2.0))),
        ("jvp", |x| Ok(func::jvp(|x: &Tensor| x.sin() * x, x, &(x * 2.0))?.1)),
        ("hessian", |x| func::hessian(cubes)(x)),
        ("jacrev", |x| func::jacrev(|x: &Tensor| x.sin() * x.sum())(x)),
        ("jacfwd", |x| func::jacfwd(|x: &Tensor| x.sin() * x.sum())(x)),
        ("vmap", |x| func::vmap(|x: &Tensor| x.sin() * 2.0).call(x)),
        ("vmap grad", |x| func::vmap(func::grad(|x: &Tensor| x * x * x)).call(x)),
        ("grad of a captured value", |x| {
            let w = x * 2.0;
            func::grad(move |x: &Tensor| (x * &w).sin().sum())(x)
        }),
        ("vmap of a captured value", |x| {
            let w = x.sum();
            func::vmap(move |x: &Tensor| x * &w).call(x)
        }),
        ("linearize", |x| func::linearize(|x: &Tensor| x.sin(), x)?.1.call(&(x * 2.0))),
    ];
    for (name, body) in inside {
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> { Ok(body(&(x * 1.5))? * 2.0) });
        for k in 0..3 {
            let x = leaf_of(k);
            match f(&x) {
                Ok(y) => {
                    how.log.see(name, &y);
                    if y.requires_grad() {
                        y.sum().backward();
                    }
                    how.log.grad("x", &x);
                }
                Err(e) => how.log.push(format!("{name} {e}")),
            }
        }
    }
}

/// A dual level around a call, and calls without one before and after.
fn dual_level_outside(how: &How) {
    let f = how.compile(|x: &Tensor| (x.sin() * x, x.detach()));
    for k in 0..3 {
        let x = point(k);
        how.log.see("plain", &f(&x).unwrap().0);
        dual_level(|| {
            let d = make_dual(&x, &point(k + 1)).unwrap();
            let (y, _) = f(&d).unwrap();
            let (p, t) = unpack_dual(&y).unwrap();
            how.log.see("primal", &p);
            how.log.see_opt("tangent", t.as_ref());
        })
        .unwrap();
        how.log.see("plain", &f(&x).unwrap().0);
    }
}

/// A dual level inside.
fn dual_level_inside(how: &How) {
    let f = how.compile(|(x, v): &(Tensor, Tensor)| -> Result<(Tensor, Tensor)> {
        let w = x * 2.0;
        dual_level(|| {
            let d = make_dual(x, v)?;
            let (p, t) = unpack_dual(&(d.sin() * &w))?;
            Ok((p, t.unwrap_or_else(|| v * 0.0)))
        })?
    });
    for k in 0..3 {
        let (p, t) = f(&(point(k), point(k + 1))).unwrap();
        how.log.see("primal", &p);
        how.log.see("tangent", &t);
    }
}

/// Two of them nested, one outside and one inside.
fn nested(how: &How) {
    let f = wrapped(how.compile(|x: &Tensor| -> Result<Tensor> { Ok(func::grad(cubes)(x)?.sin()) }));
    for k in 0..3 {
        let x = point(k);
        see(how, "jvp of grad", func::jvp(&f, &x, &point(k + 1)).map(|(_, t)| t));
        see(how, "grad of grad", func::grad(|x: &Tensor| f(x).map(|t| t.sum()))(&x));
        see(how, "jacrev of grad", func::jacrev(&f)(&x));
        let rows = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        see(how, "vmap of grad", func::vmap(&f).call(&rows));
    }
}

/// A function of a tensor, made of others by transforms.
type Mapped = Arc<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

const TRANSFORMS: [&str; 8] = ["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "linearize"];

fn transformed(name: &str, f: Mapped) -> Mapped {
    let total = {
        let f = f.clone();
        move |x: &Tensor| f(x)?.try_sum()
    };
    match name {
        "grad" => Arc::new(move |x| func::grad(&total)(x)),
        "vjp" => Arc::new(move |x| {
            let (y, pull) = func::vjp(|x: &Tensor| f(x), x)?;
            pull.call(&y)
        }),
        "jvp" => Arc::new(move |x| Ok(func::jvp(|x: &Tensor| f(x), x, &(x * 0.5))?.1)),
        "jacrev" => Arc::new(move |x| func::jacrev(|x: &Tensor| f(x))(x)),
        "jacfwd" => Arc::new(move |x| func::jacfwd(|x: &Tensor| f(x))(x)),
        "hessian" => Arc::new(move |x| func::hessian(&total)(x)),
        "vmap" => Arc::new(move |x| func::vmap(|x: &Tensor| f(x)).call(x)),
        "linearize" => Arc::new(move |x| func::linearize(|x: &Tensor| f(x), x)?.1.call(&(x * 0.5))),
        other => panic!("no transform {other}"),
    }
}

fn waves() -> Mapped {
    Arc::new(|x| Ok((x.sin() * x).exp() * 0.25))
}

fn rows(call: usize) -> Tensor {
    let start = 0.1 * call as f64;
    Tensor::from_slice(&[start, 0.2, -0.3, 0.4], [2, 2])
}

/// Those whose pairs run in every way.
const PAIRED: [&str; 6] = ["grad", "vjp", "jvp", "jacrev", "hessian", "vmap"];

/// Every pair of transforms, in one compiled function: `inside` of them in it, the others around it.
fn pairs(how: &How, inside: usize) {
    for outer in PAIRED {
        for inner in PAIRED.into_iter().filter(|inner| (outer, *inner) != ("hessian", "hessian")) {
            let chain = [inner, outer];
            let body = chain[..inside].iter().fold(waves(), |f, t| transformed(t, f));
            let compiled: Mapped = {
                let f = how.compile(move |x: &Tensor| body(x));
                Arc::new(move |x| f(x).map_err(firebrand_core::Error::user))
            };
            let whole = chain[inside..].iter().fold(compiled, |f, t| transformed(t, f));
            see(how, &format!("{outer} of {inner}"), whole(&rows(0)));
            let x = rows(1).requires_grad_();
            match whole(&x).map(|y| y.sum().try_backward(&Default::default())) {
                Ok(_) => how.log.grad(&format!("{outer} of {inner}"), &x),
                Err(e) => how.log.push(e.to_string()),
            }
        }
    }
}

fn both_inside(how: &How) {
    pairs(how, 2);
}

fn one_inside(how: &How) {
    pairs(how, 1);
}

fn both_outside(how: &How) {
    pairs(how, 0);
}

/// What a transform in a compiled function does besides ops ends the graph, and is done.
fn more_than_ops_in_a_transform(how: &How) {
    type F = fn(&Tensor, &Log) -> Result<Tensor>;
    let bodies: [(&str, F); 9] = [
        ("a hook", |x, log| {
            let log = log.clone();
            func::grad(move |x: &Tensor| {
                let (y, log) = (x.sin(), log.clone());
                y.try_register_hook(move |g: &Tensor| {
                    log.see("hook", g);
                    g * 2.0
                })?;
                y.try_sum()
            })(x)
        }),
        ("a read of a captured value", |x, _| {
            let w = x.sum().detach();
            func::vmap(move |x: &Tensor| if w.item::<f64>() > 7.0 { x.sin() } else { x.cos() }).call(x)
        }),
        ("a custom function", |x, _| func::grad(|x: &Tensor| Cube.apply(&[x])?.remove(0).try_sum())(x)),
        ("a gradient inside", |x, _| {
            func::grad(|x: &Tensor| {
                let create = GradOptions::create_graph();
                Ok::<_, firebrand_core::Error>(grad(&cubes(x), [x.clone()], &create)?[0].clone().unwrap().sum())
            })(x)
        }),
        ("a read between a pullback and its use", |x, _| {
            let (y, pull) = func::vjp(|x: &Tensor| x.sin(), x)?;
            let scale = if y.detach().to_vec::<f64>()[0] > 0.0 { 2.0 } else { 3.0 };
            pull.call(&(y * scale))
        }),
        ("a read after a transform", |x, _| {
            let g = func::grad(cubes)(x)?;
            let scale = if g.detach().to_vec::<f64>()[0] > 10.0 { 2.0 } else { 3.0 };
            Ok(g * scale)
        }),
        ("a transform after a read", |x, _| {
            let scale = if x.detach().to_vec::<f64>()[0] > 2.0 { 2.0 } else { 3.0 };
            func::grad(move |x: &Tensor| (x * x * scale).sum())(x)
        }),
        ("a write of a captured value", |x, _| {
            let w = x * 2.0;
            func::grad(move |x: &Tensor| {
                w.try_add_(&w.detach())?;
                (x * &w).try_sum()
            })(x)
        }),
        ("a write of a value", |x, _| func::grad(|x: &Tensor| (x * 2.0).try_mul_(&x.sin())?.try_sum())(x)),
    ];
    for (name, body) in bodies {
        let log = how.log.clone();
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> { Ok(body(&(x * 1.5), &log)? * 2.0) });
        for k in 0..3 {
            let x = leaf_of(k);
            match f(&x) {
                Ok(y) => {
                    how.log.see(name, &y);
                    if y.requires_grad() {
                        y.sum().backward();
                    }
                    how.log.grad("x", &x);
                }
                Err(e) => how.log.push(format!("{name} {e}")),
            }
        }
    }
}

struct Cube;

impl Function for Cube {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * &inputs[0] * &inputs[0]])
    }
    fn has_setup_context(&self) -> bool {
        true
    }
    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], _: &[Tensor]) -> Result<()> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(())
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let x = ctx.saved_tensors()?.remove(0).unwrap();
        Ok(vec![grads[0].as_ref().map(|g| g * &x * &x * 3.0)])
    }
}

/// Sizes that vary, and transforms inside and around.
fn transforms_of_other_sizes(how: &How) {
    let inside = how.compile(|x: &Tensor| -> Result<Tensor> { Ok(func::grad(cubes)(&(x * x.size(0)))? * 2.0) });
    let around = wrapped(how.compile(|x: &Tensor| (x * x.size(0)).sin().sum()));
    for n in [3, 4, 5, 1, 3] {
        let x = ramp(n);
        let y = inside(&x).unwrap();
        how.log.see("inside", &y);
        y.sum().backward();
        how.log.grad("x", &x);
        see(how, "around", func::grad(&around)(&ramp(n).detach()));
        let batch = ramp(2 * n).detach().reshape([2, n as i64]);
        see(how, "mapped", func::vmap(func::grad(&around)).call(&batch));
    }
}

/// Gradients of a batch of seeds, and of dual numbers, through a compiled node.
fn batched_gradients_of_a_compiled_node(how: &How) {
    let f = how.compile(|x: &Tensor| (x.sin() * x, firebrand_core::ops::dropout(x, 0.5, true).unwrap()));
    for k in 0..3 {
        let x = leaf_of(k);
        let (y, z) = f(&x).unwrap();
        let seeds = Tensor::from_slice(&[1.0, 0.0, 0.0, 0.5, 2.0, 1.0], [2, 3]);
        for out in [y, z] {
            let grad_outputs = vec![Some(seeds.clone())];
            let options = GradOptions { grad_outputs, is_grads_batched: true, ..Default::default() };
            see(how, "batched", grad(&out, [x.clone()], &options).map(|g| g[0].clone().unwrap()));
        }
    }
}

/// Transforms before and behind breaks, of values from before them.
fn transforms_around_breaks(how: &How) {
    type F = fn(&Tensor) -> Result<Tensor>;
    let bodies: [(&str, F); 5] = [
        ("a result of vmap held by grad", |x| {
            let w = x.detach().sum();
            let mapped = func::vmap(move |t: &Tensor| t.try_mul(&w)?.try_tanh()).call(x)?;
            let held = mapped.clone();
            let g = func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(&x.detach())?;
            graph_break();
            Ok(g * mapped)
        }),
        ("a value held by grad", |x| {
            let held = x.tanh();
            let g = func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(&x.detach())?;
            graph_break();
            Ok(g)
        }),
        ("vmap", |x| {
            let w = x.detach().sum();
            let mapped = func::vmap(move |t: &Tensor| t.try_mul(&w)?.try_tanh()).call(x)?;
            graph_break();
            Ok(mapped.sin())
        }),
        ("behind a break", |x| {
            let held = x.tanh();
            graph_break();
            func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(x)
        }),
        ("in a scope of saved-tensor hooks behind it", |x| {
            let held = x.tanh();
            let g = func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(&x.detach())?;
            let _scope = saved_tensors_hooks(|t: &Tensor| Ok(t.detach()), |t: &Tensor| Ok(t.clone()))?;
            Ok(g.sin() * x)
        }),
    ];
    for (name, body) in bodies {
        let f = how.compile(move |x: &Tensor| -> Result<Tensor> { body(&(x * 0.5)) });
        for k in 0..3 {
            let x = leaf_of(k);
            let y = f(&x).unwrap();
            how.log.see(name, &y);
            y.sum().backward();
            how.log.grad("x", &x);
        }
    }
}

/// A transform in a compiled function is part of its graph.
#[test]
fn transforms_are_compiled() {
    for outer in TRANSFORMS {
        for inner in TRANSFORMS {
            let body = transformed(outer, transformed(inner, waves()));
            for backend in ["eager", "firebrand"] {
                let backend = backends::backend(backend).unwrap();
                let options = Options { fullgraph: true, ..Options::with_backend(backend) };
                let f = compile_with(
                    {
                        let body = body.clone();
                        move |x: &Tensor| body(x)
                    },
                    options,
                );
                for k in 0..3 {
                    let found = f.try_call(&rows(k)).unwrap_or_else(|e| panic!("{outer} of {inner}: {e}"));
                    assert_eq!(crate::shown(&found), crate::shown(&body(&rows(k)).unwrap()), "{outer} of {inner}");
                }
                assert_eq!((f.entries(), f.graph_breaks().len()), (1, 0), "{outer} of {inner}");
            }
        }
    }
}

#[test]
fn forward_mode_and_transforms() {
    const CASES: &[Case] = &[
        ("X-90", transforms_outside),
        ("X-91", transforms_inside),
        ("X-92", dual_level_outside),
        ("X-93", dual_level_inside),
        ("X-94", nested),
        ("X-95", both_inside),
        ("X-96", one_inside),
        ("X-97", both_outside),
        ("X-98", more_than_ops_in_a_transform),
        ("X-99", transforms_of_other_sizes),
        ("X-101", transforms_around_breaks),
        ("X-100", batched_gradients_of_a_compiled_node),
    ];
    check(CASES);
}
