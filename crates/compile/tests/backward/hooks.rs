//! Hooks of every kind: what they see, when they run, and what they cost (U-80, U-81, U-87 to U-90, U-94 to U-96, U-99).

use crate::common::*;
use crate::{compilers, with};
use firebrand_compile::Shared;
use firebrand_compile::backends::record;
use firebrand_compile::backward::{CompiledBackward, Options};
use firebrand_compile::hooks::register_pure_hook;
use firebrand_core::autograd::{
    BackwardOptions, current_node, queue_callback, register_multi_grad_hook, saved_tensors_hooks,
};
use firebrand_core::{DType, Tensor};
use firebrand_graph::ir::{Argument, Function, GraphModule, NodeId};
use std::sync::{Arc, Mutex};

/// U-80: hooks come and go; only pure ones have graphs of their own.
#[test]
fn hooks_that_change() {
    for pure in [false, true] {
        let frames = if pure { [1, 2, 3, 3, 4] } else { [1, 2, 2, 2, 2] };
        for (name, counter, compiler) in compilers() {
            let _scope = compiler.enable();
            let steps = [(None, 2.0), (Some(2.0), 4.0), (Some(3.0), 6.0), (None, 2.0), (Some(2.0), 4.0)];
            for (i, (factor, expected)) in steps.into_iter().enumerate() {
                let x = leaf(&[1.0, 1.0]);
                let y = &x * 1.0;
                if let Some(k) = factor {
                    match pure {
                        true => drop(register_pure_hook(&y, move |g: &Tensor| g * k).expect("it requires grad")),
                        false => drop(y.register_hook(move |g: &Tensor| g * k)),
                    }
                }
                (&y * 2.0).sum().backward();
                assert_eq!(grad(&x), [expected; 2], "pure {pure}, step {i} on {name}");
                assert_eq!(compiler.captures(), if i == 0 { 1 } else { 2 }, "pure {pure}, step {i} on {name}");
                assert_eq!(counter.frames(), frames[i], "pure {pure}, step {i} on {name}");
            }
        }
    }
}

/// U-81: what a hook captured is its own business. Opaque hooks are called; pure ones that captured something are told apart,
/// so each new one has a graph (docs/behaviour, section j).
#[test]
fn hooks_with_numbers() {
    for pure in [false, true] {
        for (name, counter, compiler) in compilers() {
            let _scope = compiler.enable();
            let cell = Shared::new(0.0);
            let frames = if pure { [1, 2, 3] } else { [1, 1, 1] };
            for (k, frames) in [2.0, 3.0, 4.0].into_iter().zip(frames) {
                let x = leaf(&[1.0]);
                let y = &x * 2.0;
                cell.set(k);
                let read = cell.clone();
                match pure {
                    true => drop(register_pure_hook(&y, move |g: &Tensor| g * read.get()).expect("it requires grad")),
                    false => drop(y.register_hook(move |g: &Tensor| g * k)),
                }
                y.sum().backward();
                assert_eq!(grad(&x), [2.0 * k as f32], "U-81, pure {pure} on {name}");
                assert_eq!((compiler.captures(), counter.frames()), (1, frames), "U-81, pure {pure} on {name}");
            }
        }
    }
}

/// Pure hooks that capture nothing are known by their type; those that are others at every run are called in the end.
#[test]
fn pure_hooks_of_every_run() {
    for (name, counter, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..4 {
            let x = leaf(&[1.0]);
            let y = &x * 2.0;
            register_pure_hook(&y, |g: &Tensor| g * 5.0).expect("it requires grad");
            y.sum().backward();
            assert_eq!((grad(&x), counter.frames()), (vec![10.0], 1), "{name}");
        }
        for k in 1..12 {
            let (x, k) = (leaf(&[1.0]), f64::from(k));
            let y = x.sin();
            register_pure_hook(&y, move |g: &Tensor| g * k).expect("it requires grad");
            y.sum().backward();
            assert!((grad(&x)[0] - k as f32 * 1f32.cos()).abs() < 1e-5, "{name}");
        }
        assert_eq!(compiler.captures(), 2, "{name}");
        assert!(counter.frames() <= 1 + 6, "{name}: {} frames", counter.frames());
    }
}

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: &str) {
    log.lock().expect("no test panics in a hook").push(what.to_string());
}

fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().expect("no test panics in a hook"))
}

fn say(log: &Log, what: &'static str) -> impl Fn(&Tensor) + Send + Sync + 'static + use<> {
    let log = log.clone();
    move |_| note(&log, what)
}

fn node_hooks(t: &Tensor, log: &Log, pre: &'static str, post: &'static str) {
    let node = t.grad_fn().expect("it was computed");
    let here = log.clone();
    node.register_prehook(move |_| {
        note(&here, pre);
        Ok(None)
    });
    let here = log.clone();
    node.register_hook(move |_, _| {
        note(&here, post);
        Ok(None)
    });
}

/// U-87, U-88, U-90: the order is that of a plain run.
#[test]
fn order_of_hooks() {
    let everything = |log: &Log| {
        let (x, w) = (leaf(&[0.5, 1.5]), leaf(&[2.0, 3.0]));
        x.register_hook(say(log, "x.hook"));
        w.register_hook(say(log, "w.hook"));
        x.try_register_post_accumulate_grad_hook(say(log, "x.postacc")).expect("a leaf");
        w.try_register_post_accumulate_grad_hook(say(log, "w.postacc")).expect("a leaf");
        let y = &x * &w;
        y.register_hook(say(log, "y.hook"));
        node_hooks(&y, log, "y.pre", "y.post");
        let z = y.sin();
        z.register_hook(say(log, "z.hook"));
        node_hooks(&z, log, "z.pre", "z.post");
        let here = log.clone();
        register_multi_grad_hook(&[&x, &w], move |g| {
            note(&here, &format!("multi {}", g.iter().flatten().count()));
            Ok(())
        })
        .expect("both require grad");
        let kept = y.clone();
        y.retain_grad();
        z.sum().backward();
        (grad(&x), grad(&w), kept.grad().expect("kept").to_vec::<f32>())
    };
    let log = Log::default();
    let plain = (everything(&log), taken(&log));
    let only: Vec<&String> = plain.1.iter().filter(|s| !s.starts_with("multi")).collect();
    let expected = "z.hook z.pre z.post y.hook y.pre y.post x.hook x.postacc w.hook w.postacc";
    assert_eq!(only, expected.split(' ').collect::<Vec<_>>(), "U-87");
    for (name, counter, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..3 {
            assert_eq!((everything(&log), taken(&log)), plain, "U-87 on {name}");
        }
        assert_eq!((compiler.captures(), counter.frames()), (1, 1), "{name}");
    }
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..2 {
            let x = leaf(&[1.0]);
            for what in ["t0", "t1", "t2"] {
                x.register_hook(say(&log, what));
            }
            for what in ["a0", "a1", "a2"] {
                x.try_register_post_accumulate_grad_hook(say(&log, what)).expect("a leaf");
            }
            (&x * 2.0).sum().backward();
            assert_eq!(taken(&log), ["t0", "t1", "t2", "a0", "a1", "a2"], "U-88 on {name}");
        }
        for _ in 0..2 {
            let (x, here) = (leaf(&[1.0]), log.clone());
            let y = &x * 2.0;
            y.register_hook(move |_: &Tensor| {
                note(&here, "hook");
                let here = here.clone();
                queue_callback(move || {
                    note(&here, "final");
                    Ok(())
                })
            });
            x.try_register_post_accumulate_grad_hook(say(&log, "acc")).expect("a leaf");
            y.sum().backward();
            assert_eq!(taken(&log), ["hook", "acc", "final"], "U-90 on {name}");
        }
    }
}

/// The kinds of calls of the host and the ops of a graph, in order.
fn kinds(module: &GraphModule) -> Vec<String> {
    let g = &module.graph;
    let kind = |n: NodeId| match (g[n].target()?, g[n].args().first()) {
        (t, Some(Argument::Str(kind))) if t.is_function(&Function::CallHost) => Some(kind.to_string()),
        (t, _) => t.overload().map(|op| op.base().to_string()),
    };
    g.nodes().filter_map(kind).collect()
}

/// U-89: accumulation follows its producer and comes before the next formula; U-96: unpacking comes before its user.
#[test]
fn order_in_the_graph() {
    let recorder = record(firebrand_compile::backends::eager());
    let compiler = CompiledBackward::new(Options::with_backend(recorder.clone()));
    let log = Log::default();
    let step = || {
        let weights = [leaf(&[1.5]), leaf(&[2.5]), leaf(&[3.5])];
        let mut at = v(&[2.0]);
        for (i, w) in weights.iter().enumerate() {
            w.try_register_post_accumulate_grad_hook(say(&log, ["0", "1", "2"][i])).expect("a leaf");
            at = &at * w;
        }
        at.backward();
        weights.map(|w| grad(&w)[0])
    };
    let _scope = compiler.enable();
    for _ in 0..2 {
        assert_eq!((step(), taken(&log)), ([17.5, 10.5, 7.5], ["2", "1", "0"].map(String::from).to_vec()), "U-89");
    }
    let accumulate = "accumulate_grad_with_hooks";
    assert_eq!(kinds(&recorder.graphs()[0].0), ["mul", "mul", accumulate, "mul", "mul", accumulate, "mul", accumulate]);

    let counts = Arc::new(Mutex::new((0, 0)));
    let packed = |x: &Tensor| {
        let (a, b) = (counts.clone(), counts.clone());
        let hooks = saved_tensors_hooks(
            move |t: &Tensor| {
                a.lock().expect("no panics").0 += 1;
                Ok(t.detach())
            },
            move |t: &Tensor| {
                b.lock().expect("no panics").1 += 1;
                Ok(t.clone())
            },
        );
        let _hooks = hooks.expect("hooks are allowed");
        (&x.sin() * &x.cos()).sum()
    };
    let plain = {
        let _off = firebrand_compile::backward::disable();
        let x = leaf(&[1.0]);
        packed(&x).backward();
        grad(&x)
    };
    assert_eq!(*counts.lock().expect("no panics"), (4, 4), "U-96, plain");
    for round in 2..4 {
        let x = leaf(&[1.0]);
        packed(&x).backward();
        assert_eq!(grad(&x), plain, "U-96");
        assert_eq!(*counts.lock().expect("no panics"), (4 * round, 4 * round), "U-96");
    }
    let graph = &recorder.graphs()[1].0.graph;
    let order: Vec<NodeId> = graph.nodes().filter(|n| graph[*n].target().is_some()).collect();
    let is_host = |n: NodeId| graph[n].target().is_some_and(|t| t.is_function(&Function::CallHost));
    let is_unpack = |n: NodeId| is_host(n) && graph[n].args().first() == Some(&Argument::from("unpack"));
    let unpacked: Vec<usize> = (0..order.len()).filter(|i| is_unpack(order[*i])).collect();
    assert_eq!(unpacked.len(), 4, "U-96");
    for at in unpacked {
        let part = graph.users(order[at]).next().expect("it is read");
        let reader = graph.users(part).next().expect("it is read");
        let between: Vec<NodeId> = order[at + 1..].iter().copied().take_while(|n| *n != reader).collect();
        let mut ops = between.iter().filter(|n| graph[**n].target().is_some_and(|t| t.overload().is_some()));
        assert!(ops.clone().count() <= 1, "U-96: at most the other half of the same formula lies between");
        assert!(ops.all(|n| graph.input_nodes(*n).all(|i| !is_host(i))), "U-96");
        assert!(between.iter().all(|n| !is_host(*n) || is_unpack(*n)), "U-96: no other call lies between");
    }
}

/// U-158: a hook that is registered on a node while its packed tensors are read is called or refused, never lost.
#[test]
fn hooks_on_the_running_node() {
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        let x = leaf(&[1.0]);
        let y = {
            let hooks = saved_tensors_hooks(
                |t: &Tensor| Ok(t.detach()),
                |t: &Tensor| {
                    let node = current_node().expect("a node runs");
                    assert_eq!(node.name(), "SinBackward0");
                    drop(node.register_hook(|grads, _| {
                        Ok(Some(grads.iter().map(|g| g.as_ref().map(|g| g * 2.0)).collect()))
                    }));
                    Ok(t.clone())
                },
            );
            let _hooks = hooks.expect("hooks are allowed");
            x.sin().sum()
        };
        let refused = y.try_backward(&BackwardOptions::default()).expect_err("U-158");
        assert!(refused.to_string().contains("SinBackward0, which is running"), "U-158 on {name}: {refused}");
    }
}

/// U-94, U-95: hooks that change leaves.
#[test]
fn hooks_that_write() {
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..2 {
            let w = leaf(&[1.0]);
            w.try_register_post_accumulate_grad_hook(|w: &Tensor| w.zero_grad()).expect("a leaf");
            (&w * 3.0).sum().backward();
            assert!(w.grad().is_none(), "U-94 on {name}");

            let w = leaf(&[1.0]);
            w.try_register_post_accumulate_grad_hook(|w: &Tensor| {
                let step = &w.grad().expect("just accumulated") * 0.1;
                w.detach().sub_(&step);
            })
            .expect("a leaf");
            (&w * 3.0).sum().backward();
            assert_eq!((w.to_vec::<f32>(), grad(&w)), (vec![0.7], vec![3.0]), "U-95 on {name}");
        }
    }
}

/// U-99: a pure hook that reads numbers.
#[test]
fn impure_hooks() {
    let step = || {
        let x = leaf(&[1.0]);
        let y = &x * 2.0;
        let ran = Arc::new(Mutex::new(Vec::new()));
        let here = ran.clone();
        register_pure_hook(&y, move |g: &Tensor| -> firebrand_core::Result<Tensor> {
            let number = g.try_item::<f32>()?;
            here.lock().expect("no panics").push(number);
            Ok(g * 2.0)
        })
        .expect("it requires grad");
        let result = y.sum().try_backward(&BackwardOptions::default());
        let ran = ran.lock().expect("no panics").clone();
        (result, x, ran)
    };
    for (name, counter, compiler) in with(|o| o.fullgraph = true) {
        let _scope = compiler.enable();
        let (result, x, ran) = step();
        let error = result.expect_err("the hook cannot be traced").to_string();
        assert!(error.contains("fullgraph") && error.contains("pure"), "{name}: {error}");
        assert!(x.grad().is_none() && ran.is_empty() && counter.frames() == 0, "{name}");
    }
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        let (result, x, ran) = step();
        result.expect("the hook is called");
        assert_eq!((grad(&x), ran), (vec![4.0], vec![1.0]), "{name}");
    }
}

/// An error of a hook comes as it is; leaves that were not reached keep what they had.
#[test]
fn errors_of_hooks() {
    for (name, _, compiler) in compilers() {
        let _scope = compiler.enable();
        for _ in 0..2 {
            let (x, w) = (leaf(&[1.0]), leaf(&[2.0]));
            let y = &x * 2.0;
            y.register_hook(|_: &Tensor| -> firebrand_core::Result<()> { Err(firebrand_core::Error::user("no more")) });
            let result = (&y * &w).sum().try_backward(&BackwardOptions::default());
            assert_eq!(result.expect_err("the hook fails").to_string(), "no more", "{name}");
            assert!(x.grad().is_none(), "{name}");
        }
    }
}

/// A dtype the tests of this file compute in.
#[test]
fn leaves_are_f32() {
    assert_eq!(leaf(&[1.0]).dtype(), DType::F32);
}
