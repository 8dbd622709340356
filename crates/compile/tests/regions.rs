//! Dynamic sizes, graph breaks, effects, mutation, aliases and modes (U-31 to U-60, U-75, U-139 to U-142, L-7, L-8).

mod common;

use common::*;
use firebrand_compile::{
    BreakKind, Dynamic, Error, Number, Options, Shared, compile_module, compile_with, disable, explain, graph_break,
    mark_dynamic, mark_static, maybe_mark_dynamic,
};
use firebrand_core::autograd::{CheckpointOptions, checkpoint, is_grad_enabled, no_grad, set_grad_enabled};
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore};
use firebrand_core::random::manual_seed;
use firebrand_core::{DType, Result, Tensor, ops};
use std::sync::Arc;

fn matrix(rows: i64, cols: i64) -> Tensor {
    Tensor::ones([rows, cols], DType::F32)
}

/// U-31: a marked dimension is a symbol at once; 0 and 1 have graphs of their own.
#[test]
fn marked_dynamic() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
    let rows = [(3, 4, 1), (5, 4, 1), (6, 4, 1), (2, 4, 1), (1, 4, 2), (0, 4, 3), (3, 5, 4)];
    for (rows, cols, frames) in rows {
        let x = matrix(rows, cols);
        mark_dynamic(&x, 0);
        assert_eq!(f.call(&x).shape(), [rows as usize, cols as usize]);
        assert_eq!(c.frames(), frames, "{rows}x{cols}");
    }
}

/// U-32, U-33: a marked dimension that must have one value is an error that names it.
#[test]
fn constraint_violations() {
    let x = ones(3);
    mark_dynamic(&x, 0);
    let w = ones(3);
    let violation = |refused: Error| match refused {
        Error::ConstraintViolation { dim, value, .. } => assert_eq!((dim, value), (0, 3)),
        other => panic!("expected a violation, found {other}"),
    };
    let f = compile_with(|x: &Tensor| if x.size(0) == 3 { x + 1.0 } else { x - 1.0 }, with(&counter()));
    violation(f.try_call(&x).map(drop).unwrap_err());
    let f = compile_with(move |x: &Tensor| x + &w, with(&counter()));
    violation(f.try_call(&x).map(drop).unwrap_err());
    // Without the promise it is compiled for the one size.
    let x = ones(3);
    maybe_mark_dynamic(&x, 0);
    assert_eq!(f.call(&x).to_vec::<f32>(), [2.0; 3]);
    // Reading sizes as plain integers ties the graph to them too.
    let x = ones(3);
    mark_dynamic(&x, 0);
    let f = compile_with(|x: &Tensor| x * x.shape()[0] as f64, with(&counter()));
    violation(f.try_call(&x).map(drop).unwrap_err());
}

/// U-34: a dimension marked static gets a graph per size.
#[test]
fn marked_static() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
    for (n, frames) in [(3, 1), (4, 2), (5, 3)] {
        let x = ones(n);
        mark_static(&x, 0);
        f.call(&x);
        assert_eq!(c.frames(), frames);
    }
}

/// U-35: a branch on a size is a relation that is guarded.
#[test]
fn branch_on_a_size() {
    let c = counter();
    let f = compile_with(|x: &Tensor| if x.size(0) > 5 { x * 2.0 } else { x * 3.0 }, with(&c));
    for (n, frames, expected) in [(3, 1, 3.0f32), (4, 2, 3.0), (5, 2, 3.0), (6, 3, 2.0), (9, 3, 2.0)] {
        assert_eq!(f.call(&ones(n)).to_vec::<f32>(), vec![expected; n]);
        assert_eq!(c.frames(), frames, "{n}");
    }
}

/// A branch on the size of a value inside is expressed by the sizes of the arguments.
#[test]
fn branch_on_an_inner_size() {
    let c = counter();
    let f = compile_with(
        |x: &Tensor| {
            let y = ops::cat(&[x.clone(), x.clone()], 0).unwrap();
            if y.size(0) > 10 { y * 2.0 } else { y * 3.0 }
        },
        Options { dynamic: Dynamic::Always, ..with(&c) },
    );
    for (n, frames, expected) in [(3, 1, 3.0f32), (5, 1, 3.0), (6, 2, 2.0), (4, 2, 3.0), (40, 2, 2.0)] {
        assert_eq!(f.call(&ones(n)).to_vec::<f32>(), vec![expected; 2 * n]);
        assert_eq!(c.frames(), frames, "{n}");
    }
}

/// U-36: equal sizes share a symbol. U-37: each dimension that starts to vary costs one graph.
#[test]
fn several_sizes() {
    let c = counter();
    let f = compile_with(|(x, y): &(Tensor, Tensor)| x + y, with(&c));
    for (a, b, frames) in [(3, 3, 1), (4, 4, 2), (5, 5, 2), (6, 1, 3)] {
        assert_eq!(f.call(&(ones(a), ones(b))).to_vec::<f32>(), vec![2.0; a]);
        assert_eq!(c.frames(), frames, "U-36 {a}, {b}");
    }
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
    for (a, b, frames) in [(3, 4, 1), (5, 4, 2), (6, 4, 2), (6, 7, 3), (8, 9, 3)] {
        f.call(&matrix(a, b));
        assert_eq!(c.frames(), frames, "U-37 {a}x{b}");
    }
}

/// U-38, L-8: reading one number cuts the function in two.
#[test]
fn scalar_read() {
    let body = |x: &Tensor| {
        let y = x + 1.0;
        let n = y.sum().item::<f32>();
        y * n
    };
    let c = counter();
    let f = compile_with(body, with(&c));
    assert_eq!(f.call(&ones(3)).to_vec::<f32>(), [12.0; 3]);
    assert_eq!((c.frames(), c.ops()), (2, 3));
    let breaks = f.graph_breaks();
    assert_eq!(breaks.len(), 1);
    assert_eq!(breaks[0].kind, BreakKind::ScalarRead);
    assert_eq!(f.call(&ones(3)).to_vec::<f32>(), [12.0; 3]);
    assert_eq!(c.frames(), 2, "the same segments again");
    let refused = compile_with(body, full(&counter())).try_call(&ones(3)).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::ScalarRead), "{refused}");
}

/// U-38 as one graph: the number stays a tensor, with a gradient of its own.
#[test]
fn number_that_stays_a_tensor() {
    let body = |x: &Tensor| {
        let y = x + 1.0;
        let n = y.sum();
        y * n
    };
    let c = counter();
    let f = compile_with(body, full(&c));
    for x in [ones_leaf(3), leaf(&[1.0, 2.0, 3.0])] {
        let y = f.call(&x);
        assert_eq!(y.to_vec::<f32>(), body(&x).to_vec::<f32>());
        y.sum().backward();
        let sum: f32 = x.detach().to_vec::<f32>().iter().map(|v| v + 1.0).sum();
        assert_eq!(grad(&x), [2.0 * sum; 3], "of the square of the sum");
    }
    assert_eq!(c.frames(), 1);
}

/// U-39, U-40: a branch on numbers; each side is a segment of its own. In one graph it is an error that says where.
#[test]
fn data_dependent_branch() {
    let body = |x: &Tensor| {
        let y = x + 1.0;
        if y.sum().gt_scalar(0.0).item::<bool>() { y * 2.0 } else { y * 3.0 }
    };
    let c = counter();
    let f = compile_with(body, with(&c));
    for (value, expected, frames) in [(1.0, 4.0f32, 2), (-5.0, -12.0, 3), (1.0, 4.0, 3)] {
        assert_eq!(f.call(&v(&[value])).to_vec::<f32>(), [expected]);
        assert_eq!(c.frames(), frames);
    }
    let refused = compile_with(body, full(&counter())).try_call(&ones(1)).map(drop).unwrap_err();
    let Error::GraphBreak(found) = &refused else { panic!("{refused}") };
    assert_eq!(found.kind.name(), "data-dependent branching");
    assert!(found.location.is_some_and(|at| at.file().ends_with("regions.rs")), "{refused}");
    assert!(refused.to_string().contains("Hint: "), "{refused}");
}

/// U-41: explicit breaks. U-42: gradients flow through them. U-43: a disabled function in the middle.
#[test]
fn explicit_breaks() {
    let body = |x: &Tensor| {
        let y = x + 1.0;
        graph_break();
        let y = y * 2.0;
        graph_break();
        y - 1.0
    };
    let c = counter();
    assert_eq!(compile_with(body, with(&c)).call(&ones(1)).to_vec::<f32>(), [3.0]);
    assert_eq!(c.frames(), 3, "U-41");
    let told = explain(body, &ones(1)).unwrap();
    assert_eq!((told.graphs.len(), told.breaks.len(), told.ops()), (3, 2, 3), "U-41");

    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * x;
                graph_break();
                y * 3.0
            },
            with(&c),
        );
        let x = leaf(&[1.0, 2.0]);
        f.call(&x).sum().backward();
        assert_eq!((grad(&x), c.frames()), (vec![6.0, 12.0], 2), "U-42 {name}");
    }

    let c = counter();
    let g = disable(|x: &Tensor| x * 3.0);
    let f = compile_with(move |x: &Tensor| g.call(&(x + 1.0)) - 1.0, with(&c));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [5.0]);
    assert_eq!(c.frames(), 2, "U-43");
}

/// U-44: backward inside the function.
#[test]
fn backward_inside() {
    let body = |x: &Tensor| {
        (x * x).sum().backward();
        x.grad().expect("just computed") * 2.0
    };
    let c = counter();
    let x = leaf(&[1.0]);
    assert_eq!(compile_with(body, with(&c)).call(&x).to_vec::<f32>(), [4.0]);
    assert_eq!((grad(&x), c.frames()), (vec![2.0], 2));
    let refused = compile_with(body, full(&counter())).try_call(&leaf(&[1.0])).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::Backward), "{refused}");
}

/// U-45, U-46, U-47, L-7: effects on a counter, a counter that is an operand, a list that grows.
#[test]
fn host_effects() {
    let c = counter();
    let count = Shared::new(0i64);
    let held = count.clone();
    let f = compile_with(
        move |x: &Tensor| {
            held.update(|n| *n += 1);
            x + 1.0
        },
        full(&c),
    );
    for n in 1..=5 {
        f.call(&ones(1));
        assert_eq!((count.get(), c.frames()), (n, 1), "U-45");
    }

    let c = counter();
    let count = Shared::new(Number::from(1i64));
    let held = count.clone();
    let f = compile_with(
        move |x: &Tensor| {
            let y = x * &held.get();
            held.update(|n| *n = Number::from(n.value().to_i64() + 1));
            y
        },
        full(&c),
    );
    for (expected, frames) in [(1.0f32, 1), (2.0, 2), (3.0, 2), (4.0, 2)] {
        assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [expected]);
        assert_eq!(c.frames(), frames, "U-46");
    }

    let c = counter();
    let list: Shared<Vec<Tensor>> = Shared::default();
    let held = list.clone();
    let f = compile_with(
        move |x: &Tensor| {
            let y = x + 1.0;
            held.push(y.clone());
            y
        },
        full(&c),
    );
    for n in 1..=3 {
        f.call(&v(&[n as f32]));
        assert_eq!(c.frames(), 1, "U-47");
    }
    let held: Vec<f32> = list.with(|l| l.iter().map(|t| t.item::<f32>()).collect());
    assert_eq!(held, [2.0, 3.0, 4.0], "U-47");
}

/// U-48, U-50 to U-54: writes to arguments are seen by the caller. U-49: a leaf that requires grad must not be written.
#[test]
fn mutation_of_arguments() {
    for (name, c) in counted() {
        let add_then_double = |x: &Tensor| {
            x.add_(&ones(1));
            x * 2.0
        };
        let f = compile_with(add_then_double, full(&c));
        for _ in 0..2 {
            let x = ones(2);
            let y = f.call(&x);
            assert_eq!((x.to_vec::<f32>(), y.to_vec::<f32>()), (vec![2.0; 2], vec![4.0; 2]), "U-48 {name}");
            assert!(x.version() >= 1, "U-48 {name}");
        }
        let f = compile_with(|x: &Tensor| Ok(x.try_add_(&ones(1))? * 2.0), full(&c));
        let refused = f.try_call(&ones_leaf(2)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("a leaf tensor that requires grad"), "U-49 {name}: {refused}");

        let f = compile_with(
            |x: &Tensor| {
                x.mul_scalar_(3.0);
                x * 2.0
            },
            full(&c),
        );
        let leaf = ones_leaf(2);
        let x = &leaf * 1.0;
        f.call(&x).sum().backward();
        assert_eq!((grad(&leaf), x.to_vec::<f32>()), (vec![6.0; 2], vec![3.0; 2]), "U-50 {name}");

        for through_detach in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    match through_detach {
                        true => {
                            x.detach().add_(&ones(1));
                        }
                        false => no_grad(|| {
                            x.add_(&ones(1));
                        }),
                    }
                    x * 2.0
                },
                full(&c),
            );
            let x = ones_leaf(2);
            let y = f.call(&x);
            y.sum().backward();
            assert_eq!((x.to_vec::<f32>(), y.to_vec::<f32>()), (vec![2.0; 2], vec![4.0; 2]), "U-51, U-52 {name}");
            assert_eq!((grad(&x), x.is_leaf()), (vec![2.0; 2], true), "U-51, U-52 {name}");
        }

        let f = compile_with(
            |x: &Tensor| {
                x.transpose_(0, 1);
                x + 1.0
            },
            full(&c),
        );
        let x = matrix(2, 3);
        assert_eq!(f.call(&x).shape(), [3, 2], "U-53 {name}");
        assert_eq!(x.shape(), [3, 2], "U-53 {name}");

        let f = compile_with(
            |x: &Tensor| {
                x.select(0, 0).add_(&v(&[5.0]));
                x.sum()
            },
            full(&c),
        );
        let x = Tensor::zeros([2, 2], DType::F32);
        assert_eq!(f.call(&x).item::<f32>(), 10.0, "U-54 {name}");
        assert_eq!(x.to_vec::<f32>(), [5.0, 5.0, 0.0, 0.0], "U-54 {name}");
    }
}

/// U-55: batch norm writes its buffers at every call.
#[test]
fn batch_norm() {
    let x = Tensor::arange(0.0, 12.0, 1.0, DType::F32).reshape([4, 3]);
    for (name, c) in counted() {
        let plain = firebrand_nn::layers::BatchNorm1d::new(3);
        let module = Arc::new(firebrand_nn::layers::BatchNorm1d::new(3));
        let f = compile_module::<_, Tensor>(module.clone(), full(&c));
        for _ in 0..3 {
            assert_eq!(f.call(&x).to_vec::<f32>(), plain.call(&x).to_vec::<f32>(), "{name}");
        }
        let (found, expected) = (module.state_dict(), plain.state_dict());
        for (key, value) in &expected {
            assert_eq!(found[key].to_vec::<f32>(), value.to_vec::<f32>(), "{name}, {key}");
        }
        assert_eq!(found["num_batches_tracked"].item::<i64>(), 3, "{name}");
        let mean = found["running_mean"].to_vec::<f32>();
        for (m, expected) in mean.iter().zip([1.2195, 1.4905, 1.7615]) {
            assert!((m - expected).abs() < 1e-4, "{name}: {mean:?}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// U-56 to U-59: results that alias arguments or each other, one result twice, strides.
#[test]
fn aliased_results() {
    for (name, c) in counted() {
        let f = compile_with(|x: &Tensor| (x.view([-1]), x.clone()), full(&c));
        let x = matrix(2, 2).requires_grad_();
        let (view, same) = f.call(&x);
        assert!(same.is_same(&x), "U-56 {name}");
        assert!(view.shares_storage(&x), "U-56 {name}");
        assert!(view.base().is_some_and(|b| b.is_same(&x)), "U-56 {name}");
        assert_eq!(view.grad_fn().unwrap().name(), "ViewBackward0", "U-56 {name}");

        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                (y.clone(), y.view([-1]), y.t())
            },
            full(&c),
        );
        let x = matrix(2, 2).requires_grad_();
        let (y, flat, t) = f.call(&x);
        assert!(y.shares_storage(&flat) && y.shares_storage(&t), "U-57 {name}");
        flat.mul_scalar_(3.0);
        assert_eq!(y.to_vec::<f32>(), [6.0; 4], "U-57 {name}");
        y.sum().backward();
        assert_eq!(grad(&x), [6.0; 4], "U-57 {name}");

        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                (y.clone(), y)
            },
            full(&c),
        );
        let (a, b) = f.call(&ones(2));
        assert!(a.is_same(&b), "U-58 {name}");

        let f = compile_with(|x: &Tensor| x.t() * 2.0, full(&c));
        assert_eq!(f.call(&matrix(3, 4)).strides(), [1, 4], "U-59 {name}");
    }
}

/// U-60: grad-mode regions, and a mode that the function leaves changed.
#[test]
fn grad_mode_regions() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = no_grad(|| x * 2.0);
                y + x
            },
            full(&c),
        );
        let x = ones_leaf(1);
        let y = f.call(&x);
        y.backward();
        assert_eq!((y.to_vec::<f32>(), grad(&x), c.frames()), (vec![3.0], vec![1.0], 1), "{name}");
        let f = compile_with(|x: &Tensor| no_grad(|| x * 2.0), full(&c));
        assert!(!f.call(&ones_leaf(1)).requires_grad(), "{name}");

        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                let _ = set_grad_enabled(false);
                y
            },
            full(&c),
        );
        for _ in 0..2 {
            let _restore = set_grad_enabled(true).scoped();
            assert!(f.call(&ones_leaf(1)).requires_grad(), "{name}");
            assert!(!is_grad_enabled(), "the region leaves gradients off");
        }
    }
}

/// U-139: a momentum step in place.
#[test]
fn momentum_step() {
    for (name, c) in counted() {
        let f = compile_with(
            |(p, m, g): &(Tensor, Tensor, Tensor)| {
                m.mul_scalar_(0.9);
                m.add_(g);
                p.sub_(&(m * 0.1));
                p.clone()
            },
            full(&c),
        );
        let (p, m, g) = (ones(1), v(&[0.0]), ones(1));
        for _ in 0..3 {
            assert!(f.call(&(p.clone(), m.clone(), g.clone())).is_same(&p), "{name}");
        }
        let close = |t: &Tensor, expected: f32| (t.item::<f32>() - expected).abs() < 1e-6;
        assert!(close(&p, 0.439) && close(&m, 2.71), "{name}: {p} {m}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

#[derive(Module)]
struct Count {
    b: Buffer,
    core: ModuleCore,
}

impl Forward for Count {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.b.set(self.b.get() + 1.0);
        Ok(x + self.b.get())
    }
}

/// U-140: assigning a buffer is an effect.
#[test]
fn buffer_assignment() {
    for (name, c) in counted() {
        let module = Arc::new(Count { b: Buffer::new(v(&[0.0])), core: ModuleCore::new() });
        let f = compile_module::<_, Tensor>(module.clone(), full(&c));
        for expected in [2.0, 3.0, 4.0] {
            assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [expected], "{name}");
        }
        assert_eq!((module.b.get().to_vec::<f32>(), c.frames()), (vec![3.0], 1), "{name}");
    }
}

/// U-141: a batched product, a reshape and a sum.
#[test]
fn batched_product() {
    for (name, c) in counted() {
        let f = compile_with(
            |(a, b): &(Tensor, Tensor)| a.bmm(b).reshape([a.size(0), (-1).into()]).sum_dim(1, false),
            full(&c),
        );
        for (n, frames) in [(2, 1), (4, 2), (5, 2)] {
            let a = Tensor::ones([n, 3, 3], DType::F32);
            assert_eq!(f.call(&(a.clone(), a.clone_tensor())).to_vec::<f32>(), vec![27.0; n as usize], "{name}");
            assert_eq!(c.frames(), frames, "{name}");
        }
    }
}

/// U-142: random numbers come from the generator in the same order as in a plain run.
#[test]
fn random_numbers() {
    let body = |x: &Tensor| {
        let a = x.rand_like();
        let b = ops::dropout(x, 0.5, true).unwrap();
        let c = x.randn_like();
        (a, b, c)
    };
    for (name, c) in counted() {
        let f = compile_with(body, full(&c));
        for _ in 0..2 {
            let values = |(a, b, c): (Tensor, Tensor, Tensor)| [a, b, c].map(|t| t.to_vec::<f32>());
            manual_seed(3);
            let (plain, next) = (values(body(&ones(16))), ones(4).rand_like().to_vec::<f32>());
            manual_seed(3);
            assert_eq!(values(f.call(&ones(16))), plain, "{name}");
            assert_eq!(ones(4).rand_like().to_vec::<f32>(), next, "{name}: the generator is where it would be");
        }
    }
}

/// U-75, second half: a checkpointed `sin cos sin` is one graph.
#[test]
fn checkpointed_region() {
    for reentrant in [false, true] {
        for (name, c) in counted() {
            let f = compile_with(
                move |x: &Tensor| {
                    let body = |inputs: &[Tensor]| Ok(vec![inputs[0].sin().cos().sin()]);
                    let options = CheckpointOptions { use_reentrant: Some(reentrant), ..CheckpointOptions::default() };
                    checkpoint(body, &[x], &options).map(|mut y| y.remove(0))
                },
                full(&c),
            );
            let x = leaf(&[1.0]);
            f.call(&x).sum().backward();
            assert!((grad(&x)[0] + 0.3166792).abs() < 1e-6, "{name}, reentrant {reentrant}: {:?}", grad(&x));
            assert_eq!(c.frames(), 1, "{name}, reentrant {reentrant}");
        }
    }
}

/// U-72: saved-tensor hooks that the function switches on itself see real tensors, and decide what the gradient is; what
/// comes behind their scope is a graph.
#[test]
fn saved_tensor_hooks_inside_the_region() {
    use firebrand_core::autograd::saved_tensors_hooks;
    for (factor, expected) in [(0.5, 1f32.cos()), (1.0, 2f32.cos())] {
        let body = move |x: &Tensor| {
            let y = {
                let _hooks = saved_tensors_hooks(|t: &Tensor| Ok(t * 2.0), move |t: &Tensor| Ok(t * factor))
                    .expect("hooks are allowed here");
                x.sin()
            };
            y.sum()
        };
        let plain = ones_leaf(1);
        body(&plain).backward();
        assert_eq!(grad(&plain), [expected]);
        for (name, c) in counted() {
            let f = compile_with(body, with(&c));
            for _ in 0..2 {
                let x = ones_leaf(1);
                f.call(&x).backward();
                assert_eq!(grad(&x), [expected], "{name}");
                assert_eq!(c.frames(), 1, "{name}");
            }
            let refused =
                compile_with(body, full(&c)).try_call(&ones_leaf(1)).map(drop).expect_err("it is not one graph");
            assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::SavedHooks), "{refused}");
        }
    }
}
