//! Hooks registered inside compiled functions.

use crate::{Case, How, Log, check, leaf, leaf_of};
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{Shared, graph_break};
use firebrand_core::autograd::{
    GradOptions, RemovableHandle, get_gradient_edge, grad, no_grad, register_multi_grad_hook,
    register_multi_grad_hook_any,
};
use firebrand_core::{Result, Tensor};

/// A node hook on an inner node.
fn node_hook(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let log = log.clone();
        y.grad_fn().unwrap().register_hook(move |outgoing, incoming| {
            log.see_opt("incoming", incoming[0].as_ref());
            log.see_opt("outgoing", outgoing[0].as_ref());
            Ok(Some(outgoing.iter().map(|g| g.as_ref().map(|g| g * 10.0)).collect()))
        });
        y.sin()
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

/// A node pre-hook on an inner node.
fn node_pre_hook(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x.sin();
        let log = log.clone();
        y.grad_fn().unwrap().register_prehook(move |incoming| {
            log.see_opt("incoming", incoming[0].as_ref());
            Ok(Some(vec![incoming[0].as_ref().map(|g| g * 3.0)]))
        });
        y * 2.0
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// Both on the accumulate node of an argument.
fn hooks_on_an_accumulate_node(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let node = get_gradient_edge(x).unwrap().node;
        let (before, after) = (log.clone(), log.clone());
        node.register_prehook(move |g| {
            before.see_opt("before", g[0].as_ref());
            Ok(Some(vec![g[0].as_ref().map(|g| g * 5.0)]))
        });
        node.register_hook(move |_, g| {
            after.see_opt("after", g[0].as_ref());
            Ok(None)
        });
        x.exp()
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A node hook behind a break, on a value from before it.
fn node_hook_behind_a_break(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let z = y.sin();
        graph_break();
        let log = log.clone();
        y.grad_fn().unwrap().register_hook(move |outgoing, _| {
            log.see_opt("outgoing", outgoing[0].as_ref());
            Ok(None)
        });
        z * &y
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// A hook on several gradients, all of them.
fn multi_grad_hook(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
        let (a, b) = (x * 2.0, w.sin());
        let log = log.clone();
        register_multi_grad_hook(&[x, &a, &b], move |grads| {
            for g in grads {
                log.see_opt("arrived", g.as_ref());
            }
            Ok(())
        })
        .unwrap();
        (&a * &b, a.exp())
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 1));
        let (y, z) = f(&(x.clone(), w.clone())).unwrap();
        if k == 1 {
            z.sum().backward()
        } else {
            (y + z).sum().backward()
        }
        how.log.grad("x", &x);
        how.log.grad("w", &w);
    }
}

/// The first of several.
fn multi_grad_hook_any(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
        let (a, b) = (x * 2.0, w.sin());
        let log = log.clone();
        let hook = move |g: &Tensor| {
            log.see("first", g);
            Ok(())
        };
        register_multi_grad_hook_any(&[&a, &b], hook).unwrap();
        a * b
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 1));
        f(&(x.clone(), w.clone())).unwrap().sum().backward();
        how.log.grad("x", &x);
        how.log.grad("w", &w);
    }
}

/// A hook on a value of an earlier segment sees what flows through other results of it.
fn hook_on_a_value_of_an_earlier_segment(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let z = y.sin();
        graph_break();
        let log = log.clone();
        y.register_hook(move |g: &Tensor| {
            log.see("hook", g);
            g * 10.0
        });
        z * &y
    });
    for k in 0..3 {
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// Hooks on an argument that is no leaf and that the function writes: before and after the write.
fn hooks_on_a_written_argument(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let (before, after) = (log.clone(), log.clone());
        x.register_hook(move |g: &Tensor| {
            before.see("before", g);
            g * 10.0
        });
        x.mul_scalar_(3.0);
        x.register_hook(move |g: &Tensor| {
            after.see("after", g);
            g + 1.0
        });
        x.sin()
    });
    for k in 0..3 {
        let leaf = leaf_of(k);
        let x = &leaf * 1.0;
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        (y.sum() + x.sum()).backward();
        how.log.grad("leaf", &leaf);
    }
}

/// A hook on an argument that is a view, written through its base.
fn hook_on_a_view_that_is_written(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let v = x.slice(0, Some(1.into()), None, 1);
        let log = log.clone();
        v.register_hook(move |g: &Tensor| {
            log.see("hook", g);
            g * 10.0
        });
        x.mul_scalar_(3.0);
        x.sin() + v.sum()
    });
    for k in 0..3 {
        let leaf = leaf_of(k);
        let x = &leaf * 1.0;
        let y = f(&x).unwrap();
        how.log.see("y", &y);
        y.sum().backward();
        how.log.grad("leaf", &leaf);
    }
}

/// A hook on a view, of which another view is used where nothing is recorded.
fn hook_on_a_view_beside_no_grad(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        let v = y.slice(0, Some(1.into()), None, 1);
        let log = log.clone();
        v.register_hook(move |g: &Tensor| {
            log.see("hook", g);
            g * 10.0
        });
        let seen = no_grad(|| v.slice(0, Some(1.into()), None, 1).sum());
        (v.sin(), seen, v.slice(0, Some(0.into()), Some(1.into()), 1))
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (y, seen, part) = f(&x).unwrap();
        how.log.see("seen", &seen);
        (y.sum() + part.sum()).backward();
        how.log.grad("x", &x);
    }
}

/// A kept gradient is that behind later hooks.
fn retain_grad_with_later_hooks(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        y.retain_grad();
        y.register_hook(|g: &Tensor| g * 10.0);
        (y.sin(), y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (z, y) = f(&x).unwrap();
        y.register_hook(|g: &Tensor| g + 1.0);
        z.sum().backward();
        how.log.grad("y", &y);
        how.log.grad("x", &x);
    }
}

/// It is that of the value behind a later write.
fn retain_grad_with_a_later_write(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        y.retain_grad();
        y.mul_scalar_(3.0);
        (y.sin(), y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (z, y) = f(&x).unwrap();
        (z * 2.0).sum().backward();
        how.log.grad("y", &y);
        how.log.grad("x", &x);
    }
}

/// It is kept behind a break.
fn retain_grad_before_a_break(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x * 2.0;
        y.retain_grad();
        graph_break();
        (y.sin(), y)
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (z, y) = f(&x).unwrap();
        z.sum().backward();
        how.log.grad("y", &y);
        how.log.grad("x", &x);
    }
}

/// What a hook does with an argument that it captured, other than in ops.
fn hook_uses_a_captured_argument(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
        let y = x * 2.0;
        let (log, w) = (log.clone(), w.clone());
        y.register_hook(move |g: &Tensor| {
            log.see_opt("w.grad", w.grad().as_ref());
            log.push(format!("{:?} leaf {} requires grad {}", w.to_vec::<f64>(), w.is_leaf(), w.requires_grad()));
            log.push(format!("version {}", w.version()));
            log.see("data", &w.data());
            log.push(format!("{w}"));
            w.zero_grad();
            g * &w
        });
        y.sin() * 3.0
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 2));
        w.set_grad(Some(&leaf_of(k).detach()));
        f(&(x.clone(), w.clone())).unwrap().sum().backward();
        how.log.grad("x", &x);
        how.log.grad("w", &w);
    }
}

/// A hook that puts a hook on an argument, and another gradient in it.
fn hook_registers_on_a_captured_argument(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |(x, w): &(Tensor, Tensor)| {
        let y = x * 2.0;
        let (log, held) = (log.clone(), w.clone());
        y.register_hook(move |_: &Tensor| {
            let log = log.clone();
            held.register_hook(move |g: &Tensor| log.see("later", g));
            held.set_grad(Some(&(held.detach() * 2.0)));
            held.data().add_scalar_(1.0, 1);
        });
        y.sin() * w.detach()
    });
    for k in 0..3 {
        let (x, w) = (leaf_of(k), leaf_of(k + 2));
        f(&(x.clone(), w.clone())).unwrap().sum().backward();
        how.log.grad("x", &x);
        how.log.grad("w", &w);
        how.log.see("w", &w);
        (&w * 2.0).sum().backward();
    }
}

/// Cells that are arguments.
fn cells_as_arguments(how: &How) {
    let f = how.compile(|(x, cell, list): &(Tensor, Shared<Tensor>, Shared<Vec<Tensor>>)| {
        let y = x * 2.0 + cell.get();
        cell.set(y.detach());
        list.push(y.detach());
        let seen = list.clone();
        y.register_hook(move |g: &Tensor| seen.with(|l| l.push(g.clone())));
        y
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let (cell, list) = (Shared::new(leaf_of(k + 1).detach()), Shared::new(Vec::new()));
        f(&(x.clone(), cell.clone(), list.clone())).unwrap().sum().backward();
        how.log.see("cell", &cell.get());
        list.get().iter().for_each(|t| how.log.see("list", t));
    }
}

/// Handles that are arguments.
fn handles_as_arguments(how: &How) {
    let f = how.compile(|(x, handle): &(Tensor, RemovableHandle)| {
        handle.remove();
        x * 2.0
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let log = how.log.clone();
        let handle = x.register_hook(move |g: &Tensor| log.see("removed", g));
        f(&(x.clone(), handle.clone())).unwrap().sum().backward();
        how.log.push(format!("registered {}", handle.is_registered()));
        how.log.grad("x", &x);
    }
}

/// What is done to an argument itself: the wish for gradients, other data, no history.
fn arguments_are_changed_themselves(how: &How) {
    let f = how.compile(|(x, y): &(Tensor, Tensor)| {
        x.try_set_requires_grad(true).unwrap();
        y.set_data(&(y.detach() * 2.0));
        x * y
    });
    for k in 0..3 {
        let (x, y) = (leaf_of(k).detach(), leaf_of(k + 1));
        let z = f(&(x.clone(), y.clone())).unwrap();
        how.log.push(format!("{} {}", x.requires_grad(), z.requires_grad()));
        how.log.see("y", &y);
        z.sum().backward();
        how.log.grad("x", &x);
        how.log.grad("y", &y);
    }
}

/// What a function may ask of its argument's history.
fn history_is_read(how: &How) {
    let f = how.compile(|x: &Tensor| {
        let y = x.sin();
        let name = y.grad_fn().unwrap().name().to_string();
        if name == "SinBackward0" { y * 2.0 } else { y * 5.0 }
    });
    let x = leaf(&[1.0, 2.0]);
    how.log.see("y", &f(&x).unwrap());
}

/// Hooks that change gradients, and gradients of these: what a hook computes with is differentiated too.
fn second_gradients_behind_hooks(how: &How) {
    type F = fn(&Tensor, &Log) -> Result<Tensor>;
    let bodies: [(&str, F); 10] = [
        ("scaled", |x, log| {
            let h = x.sin();
            let log = log.clone();
            h.try_register_hook(move |g: &Tensor| {
                log.see("hook", g);
                g * 0.5
            })?;
            Ok(h.exp() * x)
        }),
        ("squared", |x, _| {
            let h = x.sin();
            h.try_register_hook(|g: &Tensor| g * g)?;
            Ok(h.exp() * x)
        }),
        ("by the argument", |x, _| {
            let (h, held) = (x.sin(), x.clone());
            h.try_register_hook(move |g: &Tensor| g * &held)?;
            Ok(h.exp() * x)
        }),
        ("by the value", |x, _| {
            let h = x.sin();
            let held = h.clone();
            h.try_register_hook(move |g: &Tensor| g * &held)?;
            Ok(h.exp() * x)
        }),
        ("by another value", |x, _| {
            let (h, held) = (x.sin(), x.exp());
            h.try_register_hook(move |g: &Tensor| g * &held)?;
            Ok(h.exp() * x)
        }),
        ("a pure hook", |x, _| {
            let h = x.sin();
            register_pure_hook(&h, |g: &Tensor| g * g)?;
            Ok(h.exp() * x)
        }),
        ("on the argument", |x, log| {
            let log = log.clone();
            x.try_register_hook(move |g: &Tensor| {
                log.see("hook", g);
                g * g
            })?;
            Ok(x.sin().exp() * x)
        }),
        ("on the result", |x, _| {
            let y = x.sin().exp() * x;
            y.try_register_hook(|g: &Tensor| g * 3.0)?;
            Ok(y)
        }),
        ("on two values in a row", |x, log| {
            let h = x.sin();
            let k = h.exp();
            for (name, t) in [("first", &h), ("second", &k)] {
                let log = log.clone();
                t.try_register_hook(move |g: &Tensor| {
                    log.see(name, g);
                    g * g * 0.5
                })?;
            }
            Ok(k * x * h)
        }),
        ("on a view, behind a write", |x, _| {
            let h = x * 2.0;
            let v = h.narrow(0, 0, 2);
            v.try_register_hook(|g: &Tensor| g * g)?;
            let y = v.sin();
            h.try_mul_(&x.detach())?;
            Ok(y.sum() + h)
        }),
    ];
    for (name, body) in bodies {
        let log = how.log.clone();
        let f = how.compile(move |x: &Tensor| body(x, &log));
        for k in 0..3 {
            let leaf = leaf_of(k);
            for x in [leaf.clone(), &leaf * 0.5] {
                let y = f(&x).unwrap();
                let create = GradOptions::create_graph();
                match grad(&y.sum(), [leaf.clone()], &create) {
                    Err(e) => how.log.push(format!("{name} {e}")),
                    Ok(first) => {
                        let first = first[0].clone().unwrap();
                        how.log.see(name, &first);
                        if first.requires_grad() {
                            match grad(&(&first * &first).sum(), [leaf.clone()], &GradOptions::default()) {
                                Ok(second) => how.log.see_opt("second", second[0].as_ref()),
                                Err(e) => how.log.push(format!("{name} {e}")),
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn hooks_inside() {
    const CASES: &[Case] = &[
        ("X-30", node_hook),
        ("X-31", node_pre_hook),
        ("X-32", hooks_on_an_accumulate_node),
        ("X-33", node_hook_behind_a_break),
        ("X-34", multi_grad_hook),
        ("X-35", multi_grad_hook_any),
        ("X-36", hook_on_a_value_of_an_earlier_segment),
        ("X-37", hooks_on_a_written_argument),
        ("X-38", hook_on_a_view_that_is_written),
        ("X-39", hook_on_a_view_beside_no_grad),
        ("X-40", retain_grad_with_later_hooks),
        ("X-41", retain_grad_with_a_later_write),
        ("X-42", retain_grad_before_a_break),
        ("X-43", hook_uses_a_captured_argument),
        ("X-44", hook_registers_on_a_captured_argument),
        ("X-45", cells_as_arguments),
        ("X-46", handles_as_arguments),
        ("X-47", arguments_are_changed_themselves),
        ("X-49", second_gradients_behind_hooks),
        ("X-48", history_is_read),
    ];
    check(CASES);
}
