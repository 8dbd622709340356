//! Cases D-54 and E-47 of docs/behaviour/autograd.md: a hook may use the very object it is called for. No closure of the
//! user's runs under a lock, and nothing of the user's is dropped under one. A test that finds a lock held fails after a
//! while instead of waiting for ever.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, Context, EnableGrad, Function, Node, SavedHooks, allow_mutation_on_saved_tensors, backward,
    detect_anomaly, get_gradient_edge, no_grad, node_creation_hook, queue_callback, register_multi_grad_hook,
    saved_tensors_hooks,
};
use firebrand_core::autograd::{dual_level, make_dual};
use firebrand_core::dispatch::{Interpreter, Next, Op, Outputs, Value, push_inner_layer};
use firebrand_core::module::{Forward, Module, ModuleCore, ModuleHooks};
use firebrand_core::{Result, Tensor, WeakTensor, collect_warnings};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Runs `f` on a thread of its own; fails if it never ends.
#[track_caller]
fn ends(what: &str, f: impl FnOnce() + Send + 'static) {
    // Without threads, a lock that its own caller holds panics.
    if cfg!(target_family = "wasm") {
        return f();
    }
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(120)) {
        Err(RecvTimeoutError::Timeout) => panic!("{what}: waits for a lock that its own caller holds"),
        _ => thread.join().unwrap_or_else(|p| resume_unwind(p)),
    }
}

fn recorded() -> BackwardOptions {
    BackwardOptions { create_graph: true, ..Default::default() }
}

/// Runs `f` unless it runs already: what it does may call it again.
fn once_inside(busy: &AtomicBool, f: impl FnOnce()) {
    if !busy.swap(true, Relaxed) {
        f();
        busy.store(false, Relaxed);
    }
}

/// Everything that can be done with a leaf, its gradient and its hooks.
fn touch(x: &Tensor) {
    let _ = (x.grad(), x.grad_fn(), x.requires_grad(), x.is_leaf(), x.retains_grad());
    let handle = x.register_hook(|g| g.clone());
    let post = x.try_register_post_accumulate_grad_hook(|_| ()).unwrap();
    handle.remove();
    post.remove();
    let before = x.grad();
    x.set_grad(before.as_ref());
    x.set_grad_dtype(x.grad_dtype());
}

/// A creation hook is shown the accumulate node of a leaf while the leaf makes it.
#[test]
fn creation_hooks_use_the_leaf_of_a_new_accumulate_node() {
    ends("D-54 creation hook", || {
        let seen: Arc<Mutex<Vec<Node>>> = Arc::default();
        let s = seen.clone();
        let x = leaf(3.0);
        let y = {
            let _scope = node_creation_hook(move |node| {
                if let Some(leaf) = node.variable() {
                    touch(leaf);
                    assert!(get_gradient_edge(leaf)?.node.is_same(node), "D-54: the leaf has this very node");
                    s.lock().unwrap().push(node.clone());
                }
                Ok(())
            });
            &x * &x
        };
        assert_eq!(seen.lock().unwrap().len(), 1);
        assert!(get_gradient_edge(&x).unwrap().node.is_same(&seen.lock().unwrap()[0]));
        y.backward();
        close(&grad(&x), &[6.0]);
    });
}

/// The sum of two recorded gradients is itself recorded, so creation hooks see it while `.grad` is updated.
#[test]
fn creation_hooks_use_the_gradient_that_is_updated() {
    ends("D-54 create_graph", || {
        let x = leaf(3.0);
        (&x * &x).try_backward(&recorded()).unwrap();
        let (weak, sums) = (x.downgrade(), Arc::new(AtomicUsize::new(0)));
        let (inner, counted) = (&x * 100.0, sums.clone());
        let y = x.pow_scalar(2.0); // one gradient, so the only sum is that in `.grad`
        {
            let busy = AtomicBool::new(false);
            let _scope = node_creation_hook(move |node| {
                if node.name() == "AddBackward0" {
                    counted.fetch_add(1, Relaxed);
                    once_inside(&busy, || {
                        assert!(weak.upgrade().unwrap().grad().is_some());
                        let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
                        inner.try_backward(&keep).unwrap();
                    });
                }
                Ok(())
            });
            y.try_backward(&recorded()).unwrap();
        }
        assert_eq!(sums.load(Relaxed), 1, "D-54: each gradient is seen once");
        close(&grad(&x), &[112.0]);
        assert!(x.grad().unwrap().requires_grad());
    });
}

/// A layer below autograd that looks at a tensor whenever an op runs.
struct Watch<F>(F);

impl<F: Fn(&str) + Send + Sync> Interpreter for Watch<F> {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        (self.0)(op.name());
        next.call(op, args)
    }
}

/// Layers see the op that adds to `.grad`, in place or not; a backward they run adds to the same leaf.
#[test]
fn layers_use_the_gradient_that_is_updated() {
    for create_graph in [false, true] {
        ends("D-54 layer", move || {
            let x = leaf(3.0);
            (&x * 2.0).backward();
            let first = x.grad().unwrap();
            let (y, inner, weak) = (&x * 10.0, &x * 100.0, x.downgrade());
            let runs = Arc::new(AtomicUsize::new(0));
            let (counted, busy) = (runs.clone(), AtomicBool::new(false));
            {
                let _layer = push_inner_layer(Arc::new(Watch(move |name: &str| {
                    let Some(x) = weak.upgrade() else { return };
                    assert!(x.grad().is_some());
                    if name.starts_with("aten::add") {
                        once_inside(&busy, || {
                            counted.fetch_add(1, Relaxed);
                            let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
                            inner.try_backward(&keep).unwrap();
                        })
                    }
                })));
                y.try_backward(&BackwardOptions { create_graph, ..Default::default() }).unwrap();
            }
            assert_eq!(runs.load(Relaxed), 1, "D-54: each gradient is seen once");
            close(&grad(&x), &[112.0]);
            assert!(create_graph || x.grad().unwrap().is_same(&first), "D-54: still added in place");
        });
    }
}

/// `pack` runs while its tensor is being hooked: it may read the node and hook its other saved tensor.
#[test]
fn pack_hooks_use_the_node() {
    ends("D-54 pack", || {
        let (a, b) = (leaf(2.0), leaf(5.0));
        let y = &a * &b;
        let node = y.grad_fn().unwrap();
        let (inside, packed) = (node.clone(), Arc::new(AtomicUsize::new(0)));
        let count = packed.clone();
        let hooks = SavedHooks::new(
            move |t: &Tensor| {
                assert_eq!(inside.saved("other")?.unwrap().tensor().unwrap().item::<f64>(), 5.0);
                assert_eq!(inside.saved_names()?, ["other", "self"]);
                let count = count.clone();
                let other = SavedHooks::new(
                    |t: &Tensor| Ok(t.detach()),
                    move |t: &Tensor| {
                        count.fetch_add(1, Relaxed);
                        Ok(t.clone())
                    },
                );
                inside.register_saved_hooks("other", other)?;
                Ok(t.detach())
            },
            |t: &Tensor| Ok(t.clone()),
        );
        node.register_saved_hooks("self", hooks).unwrap();
        drop(node);
        y.backward();
        close(&grad(&a), &[5.0]);
        close(&grad(&b), &[2.0]);
        assert_eq!(packed.load(Relaxed), 1, "the hooks that pack set were kept");
    });
    // What it does to its own tensor meanwhile decides.
    type Inside = fn(&Node, &Tensor);
    let cases: [(&str, Inside); 2] = [
        ("already set", |node, _| {
            let plain = SavedHooks::new(|t: &Tensor| Ok(t.detach()), |t: &Tensor| Ok(t.clone()));
            node.register_saved_hooks("self", plain).unwrap();
        }),
        ("freed", |_, y| y.backward()),
    ];
    for (text, act) in cases {
        ends("D-54 pack, own tensor", move || {
            let y = leaf(2.0).sin();
            let (node, tensor) = (y.grad_fn().unwrap(), y.clone());
            let inside = node.clone();
            let pack = move |t: &Tensor| {
                act(&inside, &tensor);
                Ok(t.detach())
            };
            let e = node.register_saved_hooks("self", SavedHooks::new(pack, |t: &Tensor| Ok(t.clone()))).unwrap_err();
            assert!(e.to_string().contains(text), "D-54: {e}");
        });
    }
}

/// Hooks of every kind on one leaf and one node, each of which uses them, changes its own table and starts another run.
#[test]
fn hooks_use_what_they_are_called_for() {
    type Register = fn(&Tensor, &Tensor, Arc<dyn Fn() + Send + Sync>);
    let kinds: [(&str, Register); 6] = [
        ("tensor hook of a leaf", |x, _, act| drop(x.register_hook(move |_| act()))),
        ("tensor hook of a computed tensor", |_, y, act| drop(y.register_hook(move |_| act()))),
        ("post-accumulate hook", |x, _, act| drop(x.try_register_post_accumulate_grad_hook(move |_| act()).unwrap())),
        ("node pre-hook", |_, y, act| {
            y.grad_fn().unwrap().register_prehook(move |_| {
                act();
                Ok(None)
            });
        }),
        ("node post-hook", |_, y, act| {
            y.grad_fn().unwrap().register_hook(move |_, _| {
                act();
                Ok(None)
            });
        }),
        ("multi-grad hook", |x, y, act| {
            register_multi_grad_hook(&[x, y], move |_| {
                act();
                Ok(())
            })
            .unwrap();
        }),
    ];
    for (kind, register) in kinds {
        ends(kind, move || {
            let x = leaf(3.0);
            let y = &x * &x;
            let (calls, busy) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
            let (count, weak) = (calls.clone(), x.downgrade());
            // Weak: a hook that owns what owns it would never go.
            let output: Arc<OnceLock<WeakTensor>> = Arc::default();
            let again = output.clone();
            let act: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                count.fetch_add(1, Relaxed);
                once_inside(&busy, || {
                    let (x, y) = (weak.upgrade().unwrap(), again.get().unwrap().upgrade().unwrap());
                    touch(&x);
                    let node = y.grad_fn().unwrap();
                    let handles = [
                        node.register_prehook(|_| Ok(None)),
                        node.register_hook(|_, _| Ok(None)),
                        y.register_hook(|g| g.clone()),
                    ];
                    handles.iter().for_each(|h| h.remove());
                    node.insert_metadata("seen", Arc::new(()));
                    assert!(node.metadata().contains_key("seen"));
                    assert!(node.saved("self").unwrap().is_some());
                    let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
                    y.try_backward(&keep).unwrap();
                });
            });
            output.set(y.downgrade()).ok().unwrap();
            register(&x, &y, act);
            y.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
            assert_eq!(calls.load(Relaxed), 2, "D-54 {kind}: once for each run");
            close(&grad(&x), &[12.0]);
        });
    }
}

/// Doubles its input.
#[derive(Module)]
struct Double(ModuleCore);

impl Forward for Double {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x * 2.0)
    }
}

/// Hooks of a module change the tables they are in, call the module again and run backward through it.
#[test]
fn module_hooks_use_their_module() {
    ends("D-54 module hooks", || {
        let m = Arc::new(Double(ModuleCore::new()));
        let log: Arc<Mutex<Vec<&str>>> = Arc::default();
        let busy = Arc::new(AtomicBool::new(false));
        let act = |name: &'static str| {
            let (log, busy, weak) = (log.clone(), busy.clone(), Arc::downgrade(&m));
            move || {
                log.lock().unwrap().push(name);
                once_inside(&busy, || {
                    let m = weak.upgrade().unwrap();
                    let handles = [
                        m.register_forward_hook(|_, _, _| ()),
                        m.register_forward_pre_hook(|_, _| ()),
                        m.register_full_backward_hook(|_, _, _| ()).unwrap(),
                        m.register_full_backward_pre_hook(|_, _| ()),
                    ];
                    handles.iter().for_each(|h| h.remove());
                    let _on = EnableGrad::new(); // off inside backward
                    let x = leaf(1.0);
                    m.call(&x).backward();
                    close(&grad(&x), &[2.0]);
                })
            }
        };
        let (pre, post, back_pre, back) = (act("pre"), act("post"), act("back pre"), act("back"));
        m.register_forward_pre_hook(move |_, _| pre());
        m.register_forward_hook(move |_, _, _| post());
        m.register_full_backward_pre_hook(move |_, _| back_pre());
        m.register_full_backward_hook(move |_, _, _| back()).unwrap();
        let x = leaf(5.0);
        m.call(&x).backward();
        close(&grad(&x), &[2.0]);
        // Each of the four calls the module once more, and that calls all four.
        assert_eq!(log.lock().unwrap().len(), 4 + 4 * 4, "D-54");
    });
}

/// Scopes of pack and unpack hooks: both use the node, the graph and the scope's own hooks again.
#[test]
fn saved_tensor_hooks_use_the_graph() {
    ends("D-54 saved hooks", || {
        let x = leaf(2.0);
        let (busy, unpacked) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
        let (inside, count, weak) = (AtomicBool::new(false), unpacked.clone(), x.downgrade());
        let pack = move |t: &Tensor| {
            let kept = t.detach();
            // Records, and so packs again.
            once_inside(&busy, || {
                let z = leaf(3.0);
                no_grad(|| drop(z.sin()));
                let _on = EnableGrad::new();
                (&z * &z).backward();
                close(&grad(&z), &[6.0]);
            });
            Ok(kept)
        };
        let unpack = move |t: &Tensor| {
            count.fetch_add(1, Relaxed);
            once_inside(&inside, || touch(&weak.upgrade().unwrap()));
            Ok(t.clone())
        };
        let y = {
            let _scope = saved_tensors_hooks(pack, unpack).unwrap();
            x.sin()
        };
        y.backward();
        close(&grad(&x), &[2f64.cos()]);
        assert!(unpacked.load(Relaxed) >= 1);
    });
}

/// A multi-grad hook asks which members the run computes, and that may make the accumulate node of a leaf outside the graph.
#[test]
fn multi_grad_hooks_make_nodes_outside_their_lock() {
    ends("D-54 multi-grad", || {
        let (x, outside) = (leaf(3.0), leaf(4.0));
        let calls = Arc::new(AtomicUsize::new(0));
        let (count, y) = (calls.clone(), &x * &x);
        let _handle = register_multi_grad_hook(&[&x, &outside], move |grads| {
            assert!(grads[0].is_some() && grads[1].is_none());
            count.fetch_add(1, Relaxed);
            Ok(())
        })
        .unwrap();
        let (inner, busy) = (y.clone(), AtomicBool::new(false));
        {
            let _scope = node_creation_hook(move |node| {
                if node.variable().is_some() {
                    let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
                    once_inside(&busy, || inner.try_backward(&keep).unwrap());
                }
                Ok(())
            });
            y.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
        }
        assert_eq!(calls.load(Relaxed), 2, "D-54: the hook of each run");
        close(&grad(&x), &[12.0]);
    });
}

/// Callbacks at the end of a run may start another, and queue more.
#[test]
fn callbacks_start_runs() {
    ends("D-54 callback", || {
        let x = leaf(3.0);
        let y = &x * &x;
        let again = y.clone();
        y.register_hook(move |_| -> Result<()> {
            let again = again.clone();
            if again.grad_fn().unwrap().metadata().contains_key("queued") {
                return Ok(());
            }
            again.grad_fn().unwrap().insert_metadata("queued", Arc::new(()));
            queue_callback(move || {
                again.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() })
            })
        });
        y.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
        close(&grad(&x), &[12.0]);
    });
}

/// The copy of a saved tensor that is about to be written is an op; a layer that sees it may read what is saved.
#[test]
fn layers_read_what_is_copied_before_a_write() {
    ends("D-54 mutation scope", || {
        let scope = allow_mutation_on_saved_tensors().unwrap();
        let x = leaves(&[1.0, 2.0]);
        let a = &x * 1.0;
        let y = a.sin();
        let node = y.grad_fn().unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        {
            let _layer = push_inner_layer(Arc::new(Watch(move |name: &str| {
                if name.starts_with("aten::clone") {
                    assert!(node.saved("self").unwrap().is_some());
                    count.fetch_add(1, Relaxed);
                }
            })));
            a.zero_();
        }
        assert_eq!((reads.load(Relaxed), scope.counts().cloned), (1, 1));
        y.sum().backward();
        close(&grad(&x), &[1f64.cos(), 2f64.cos()]);
    });
}

/// Anomaly mode writes into the node's map; creation hooks and users read it.
#[test]
fn metadata_is_never_locked_for_long() {
    ends("D-54 metadata", || {
        let (y, _) = collect_warnings(|| {
            let _anomaly = detect_anomaly(true);
            let _scope = node_creation_hook(|node| {
                let all = node.metadata();
                assert!(all.contains_key("traceback_"));
                assert!(node.insert_metadata("mine", Arc::new(1i32)).is_none());
                assert!(node.remove_metadata("mine").is_some());
                Ok(())
            });
            leaf(2.0).sin()
        });
        assert!(!y.grad_fn().unwrap().metadata().contains_key("mine"));
    });
}

/// Runs when it is dropped.
struct OnDrop(Box<dyn Fn() + Send + Sync>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)()
    }
}

/// A tensor that owns `probe`: a hook of it captured it.
fn owning(t: Tensor, probe: OnDrop) -> Tensor {
    t.register_hook(move |_| {
        let _ = &probe;
    });
    t
}

/// What is replaced may own values whose drop uses the place it was replaced in.
#[test]
fn replaced_values_are_dropped_outside_locks() {
    ends("D-54 drop of a gradient", || {
        let (x, drops) = (leaf(3.0), Arc::new(AtomicUsize::new(0)));
        for create_graph in [false, true] {
            let (weak, count) = (x.downgrade(), drops.clone());
            let probe = OnDrop(Box::new(move || {
                touch(&weak.upgrade().unwrap());
                count.fetch_add(1, Relaxed);
            }));
            x.set_grad(Some(&owning(leaf(1.0), probe)));
            (&x * 2.0).try_backward(&BackwardOptions { create_graph, ..Default::default() }).unwrap();
            close(&grad(&x), &[3.0]);
            x.zero_grad();
        }
        assert_eq!(drops.load(Relaxed), 2);
    });
    ends("D-54 drop of a tangent", || {
        let drops = Arc::new(AtomicUsize::new(0));
        dual_level(|| {
            let (target, count) = (con(&[1.0]), drops.clone());
            let place: Arc<OnceLock<WeakTensor>> = Arc::default();
            let seen = place.clone();
            let probe = OnDrop(Box::new(move || {
                let dual = seen.get().and_then(WeakTensor::upgrade);
                assert!(dual.is_none_or(|d| firebrand_core::autograd::unpack_dual(&d).is_ok()));
                count.fetch_add(1, Relaxed);
            }));
            let dual = make_dual(&target, &owning(leaves(&[2.0]), probe)).unwrap();
            place.set(dual.downgrade()).ok().unwrap();
        })
        .unwrap();
        assert_eq!(drops.load(Relaxed), 1);
    });
    ends("D-54 drop of a scope", || {
        let drops = Arc::new(AtomicUsize::new(0));
        let count = drops.clone();
        firebrand_core::state::ThreadState::capture().run(move || {
            let probe = OnDrop(Box::new(move || {
                let y = leaf(2.0).sin(); // asks the stacks for hooks
                assert!(y.requires_grad());
                count.fetch_add(1, Relaxed);
            }));
            let pack = move |t: &Tensor| {
                let _ = &probe;
                Ok(t.detach())
            };
            // Never ended: the thread's state goes with it.
            std::mem::forget(saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone())).unwrap());
        });
        assert_eq!(drops.load(Relaxed), 1);
    });
}

/// A function that owns a value.
struct Owns(#[allow(dead_code)] OnDrop);

impl Function for Owns {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 1.0])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(grads.to_vec())
    }
}

/// A value of the user's that panics in its drop ended the queue that drops graphs: nothing on the thread was dropped again.
#[test]
fn a_panic_in_a_drop_leaves_graphs_droppable() {
    ends("drop that panics", || {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = || {
            let count = drops.clone();
            Owns(OnDrop(Box::new(move || {
                count.fetch_add(1, Relaxed);
            })))
        };
        let chain = |middle: Owns| {
            let x = counted().apply(&[&leaf(1.0)]).unwrap().remove(0);
            let y = middle.apply(&[&x]).unwrap().remove(0);
            counted().apply(&[&y]).unwrap().remove(0)
        };
        let panics = chain(Owns(OnDrop(Box::new(|| resume_unwind(Box::new("in a drop"))))));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(panics))).is_err());
        assert_eq!(drops.load(Relaxed), 2, "what lay behind the panic is dropped too");
        drop(chain(counted()));
        assert_eq!(drops.load(Relaxed), 5);
    });
}

/// E-47: what stops a recomputation is an error; layers and functions that pass errors on see nothing else.
#[test]
fn early_stop_reaches_layers_as_an_error() {
    use firebrand_core::autograd::{CheckpointOptions, checkpoint};
    struct Errors(Arc<Mutex<Vec<String>>>);
    impl Interpreter for Errors {
        fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
            let done = catch_unwind(AssertUnwindSafe(|| next.call(op, args)));
            let done = done.unwrap_or_else(|_| panic!("{} unwound through a layer", op.name()));
            if let Err(e) = &done {
                self.0.lock().unwrap().push(format!("{}: {:?}", op.name(), e.kind()));
            }
            done
        }
    }
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    // As values, by forms that panic, and by an error of the caller's own in the place of ours.
    type Body = fn(&Tensor, &Mutex<Vec<&'static str>>) -> Result<Tensor>;
    let bodies: [Body; 3] = [
        |x, log| {
            let y = x.try_sin()?.try_cos()?;
            log.lock().unwrap().push("after");
            y.try_mul(&y)
        },
        |x, log| {
            let y = x.sin().cos();
            log.lock().unwrap().push("after");
            Ok(&y + 2.0)
        },
        |x, log| {
            let y = x.try_sin()?.try_cos().map_err(|_| firebrand_core::Error::user("lost on the way"))?;
            log.lock().unwrap().push("after");
            y.try_add(&y)
        },
    ];
    for (k, body) in bodies.into_iter().enumerate() {
        let (x, l) = (leaf(1.0), log.clone());
        let f = move |i: &[Tensor]| Ok(vec![body(&i[0], &l)?]);
        let y = checkpoint(f, &[&x], &CheckpointOptions::default()).unwrap().remove(0);
        let first = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(first, ["after"]);
        {
            let _layer = firebrand_core::dispatch::push_layer(Arc::new(Errors(errors.clone())));
            backward(vec![&y], &BackwardOptions::default()).unwrap();
        }
        let (s, c) = (1f64.sin(), 1f64.cos());
        let expected = match k {
            0 => -2.0 * s.cos() * s.sin() * c,
            1 => -s.sin() * c,
            _ => -2.0 * s.sin() * c,
        };
        close(&grad(&x), &[expected]);
        let after = std::mem::take(&mut *log.lock().unwrap());
        let errors = std::mem::take(&mut *errors.lock().unwrap());
        if k == 0 {
            // The product saves too, so the rerun ends there.
            assert_eq!(after, ["after"]);
            assert_eq!(errors.len(), 1, "E-47: {errors:?}");
        } else {
            assert!(after.is_empty(), "E-47: the rerun stops at the last value it needs");
            assert_eq!(errors, ["aten::cos: CheckpointEarlyStop"], "E-47");
        }
    }
    assert_err!(
        Err::<(), _>(firebrand_core::Error::from(firebrand_core::ErrorKind::CheckpointEarlyStop)),
        CheckpointEarlyStop
    );
}

/// E-49: whoever looks at what a node keeps may read, hook and release the very node.
#[test]
fn visitors_of_saved_values_may_use_the_node() {
    use firebrand_core::Scalar;
    use firebrand_core::autograd::{SavedTensor, SavedVisitor};
    struct Reads<'a>(&'a Node, usize);
    impl SavedVisitor for Reads<'_> {
        fn tensor(&mut self, _: &SavedTensor) -> Result<()> {
            self.1 += self.0.formula().saved(self.0)?.len();
            self.0.formula().release();
            Ok(())
        }
        fn size(&mut self, _: i64) {}
        fn number(&mut self, _: Scalar) {}
        fn fixed(&mut self, _: u64) {}
    }
    ends("E-49", || {
        let y = leaf(2.0).sin();
        let node = y.grad_fn().unwrap();
        let mut visitor = Reads(&node, 0);
        assert!(node.formula().visit_saved(&node, &mut visitor).unwrap());
        assert_eq!(visitor.1, 1, "E-49: the node was read by its visitor");
        assert!(node.formula().saved(&node).is_err(), "E-49: and released");
    });
}
