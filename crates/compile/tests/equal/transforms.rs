//! Forward mode and function transforms, around and inside compiled functions.

use crate::{Callable, Case, How, check, leaf_of};
use firebrand_core::autograd::{dual_level, make_dual, unpack_dual};
use firebrand_core::{Result, Tensor, func};

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

#[test]
fn forward_mode_and_transforms() {
    const CASES: &[Case] = &[
        ("X-90", transforms_outside),
        ("X-91", transforms_inside),
        ("X-92", dual_level_outside),
        ("X-93", dual_level_inside),
        ("X-94", nested),
    ];
    check(CASES);
}
