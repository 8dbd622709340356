//! Conditionals in joint graphs: both sides are traced, and so are their gradients, to any order.

use super::*;
use firebrand_compile::fused::FusedOptions;
use firebrand_compile::joint::{aot_eager_decomp, firebrand};
use firebrand_core::autograd::{AutocastOptions, autocast, no_grad};
use firebrand_core::random::{get_rng_state, manual_seed};
use firebrand_graph::cond;

fn all() -> Vec<(&'static str, Aot)> {
    let more = [("aot_eager_decomp", aot_eager_decomp()), ("firebrand", firebrand(FusedOptions::default()))];
    backends().into_iter().chain(more).collect()
}

fn positive(x: &Tensor) -> Tensor {
    x.sum().gt_scalar(0.0)
}

/// What can be seen: results, which require grad, first gradients, gradients of the first result alone, second gradients.
#[derive(Debug, PartialEq)]
struct Seen {
    values: Vec<Vec<f32>>,
    needs: Vec<bool>,
    first: Vec<Option<Vec<f32>>>,
    of_one: Vec<Option<Vec<f32>>>,
    second: Vec<Option<Vec<f32>>>,
}

fn numbers(t: &Tensor) -> Vec<f32> {
    t.detach().to_dtype(firebrand_core::DType::F32).to_vec()
}

fn seen(outs: Vec<Tensor>, inputs: &[Tensor]) -> Seen {
    let values = outs.iter().map(numbers).collect();
    let needs: Vec<bool> = outs.iter().map(Tensor::requires_grad).collect();
    let weighted = |(i, t): (usize, &Tensor)| (t * (1.5 + i as f64)).sum();
    let all = outs.iter().filter(|t| t.requires_grad()).enumerate().map(weighted).reduce(|a, b| &a + &b);
    let options = GradOptions { allow_unused: Some(true), retain_graph: Some(true), ..GradOptions::default() };
    let grads = |of: &Tensor, options: &GradOptions| grad(of, inputs.to_vec(), options).unwrap();
    let shown = |list: &[Option<Tensor>]| list.iter().map(|g| g.as_ref().map(numbers)).collect::<Vec<_>>();
    let (mut first, mut of_one, mut second) = (vec![], vec![], vec![]);
    if let Some(total) = all {
        first = shown(&grads(&total, &options));
        if needs[0] {
            of_one = shown(&grads(&outs[0].sum(), &options));
        }
        let create = GradOptions { create_graph: true, ..options.clone() };
        let squares = grads(&total, &create).into_iter().flatten().filter(Tensor::requires_grad);
        if let Some(penalty) = squares.map(|g| (&g * &g).sum()).reduce(|a, b| &a + &b) {
            second = shown(&grads(&penalty, &options));
        }
    }
    Seen { values, needs, first, of_one, second }
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-6 * b.abs().max(1.0))
}

/// What a plain run leaves undefined may be zeros: in a graph, what a side uses from outside is an operand too.
fn close_grads(found: &[Option<Vec<f32>>], plain: &[Option<Vec<f32>>]) -> bool {
    let is_zero = |v: &[f32]| v.iter().all(|x| *x == 0.0);
    found.iter().enumerate().all(|(i, found)| match (found, plain.get(i).and_then(Option::as_ref)) {
        (Some(found), Some(plain)) => close(found, plain),
        (Some(found), None) => is_zero(found),
        (None, plain) => plain.is_none(),
    })
}

fn alike(found: &Seen, plain: &Seen) -> bool {
    found.values.iter().zip(&plain.values).all(|(a, b)| close(a, b))
        && found.needs == plain.needs
        && close_grads(&found.first, &plain.first)
        && close_grads(&found.of_one, &plain.of_one)
        && close_grads(&found.second, &plain.second)
        && (!found.second.is_empty() || plain.second.iter().flatten().flatten().all(|v| *v == 0.0))
}

/// Functions of two tensors of sizes 2x2; the sign of the first decides.
const FUNCTIONS: &[(&str, F)] = &[
    ("nonlinear sides, ops around", |x| {
        let h = &x[0] * &x[1];
        let y = cond(&positive(&x[0]), |h| Ok(vec![&h[0].sin() * &h[0]]), |h| Ok(vec![h[0].exp()]), &[&h])?;
        Ok(vec![&y[0].tanh() * &h])
    }),
    ("an operand that one side uses", |x| {
        cond(&positive(&x[0]), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[1].cos()]), &[&x[0], &x[1]])
    }),
    ("an operand that no side uses", |x| {
        cond(&positive(&x[0]), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[0].cos()]), &[&x[0], &x[1]])
    }),
    ("a side without history", |x| {
        cond(&positive(&x[0]), |x| Ok(vec![&x[0].detach() * 2.0]), |x| Ok(vec![&x[0] * 3.0]), &[&x[0]])
    }),
    ("sides without history", |x| {
        cond(&positive(&x[0]), |x| Ok(vec![no_grad(|| x[0].sin())]), |x| Ok(vec![x[0].detach()]), &[&x[0]])
    }),
    ("several results, one a truth value", |x| {
        let y = cond(
            &positive(&x[0]),
            |x| Ok(vec![x[0].exp(), &x[0] * &x[1], x[1].gt_scalar(0.0)]),
            |x| Ok(vec![&x[1] * 2.0, x[0].tanh(), x[0].gt_scalar(0.5)]),
            &[&x[0], &x[1]],
        )?;
        Ok(vec![y[0].clone(), y[1].sin(), y[2].clone()])
    }),
    ("operands, views and one result twice", |x| {
        cond(
            &positive(&x[0]),
            |x| Ok(vec![x[0].clone(), x[1].t(), x[0].clone()]),
            |x| {
                let y = x[0].sin();
                Ok(vec![y.clone(), &x[1] * 2.0, y])
            },
            &[&x[0], &x[1]],
        )
    }),
    ("strides that differ", |x| {
        let y = cond(&positive(&x[0]), |x| Ok(vec![x[0].t().exp()]), |x| Ok(vec![x[0].exp()]), &[&x[0]])?;
        Ok(vec![&y[0] * &x[1]])
    }),
    ("tensors from outside", |x| {
        let w = x[1].exp();
        cond(&positive(&x[0]), |x| Ok(vec![&x[0] * &w]), |x| Ok(vec![&x[0] * 3.0]), &[&x[0]])
    }),
    ("one inside another", |x| {
        let large = x[1].sum().gt_scalar(100.0);
        cond(
            &positive(&x[0]),
            |x| {
                let y = x[0].matmul(&x[1]);
                let z = cond(&large, |y| Ok(vec![y[0].sin()]), |y| Ok(vec![&y[0] * &y[0]]), &[&y])?;
                Ok(vec![&z[0] * &x[0]])
            },
            |x| Ok(vec![&x[0] * &x[1]]),
            &[&x[0], &x[1]],
        )
    }),
    ("one after another, the second decided by the first", |x| {
        let y = cond(&positive(&x[0]), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![&x[0] * &x[0]]), &[&x[0]])?;
        cond(&positive(&y[0]), |y| Ok(vec![&y[0] * &y[1]]), |y| Ok(vec![y[0].exp()]), &[&y[0], &x[1]])
    }),
    ("a side that writes what it made", |x| {
        cond(
            &positive(&x[0]),
            |x| {
                let y = &x[0] * 2.0;
                y.try_select(0, 0)?.try_mul_scalar_(3.0)?;
                Ok(vec![&y * &x[0]])
            },
            |x| Ok(vec![&x[0] * 1.0]),
            &[&x[0]],
        )
    }),
    ("where nothing is recorded", |x| {
        let y = no_grad(|| cond(&positive(&x[0]), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[0].exp()]), &[&x[0]]))?;
        Ok(vec![&y[0] * &x[0]])
    }),
    ("layers with kernels of their own", |x| {
        cond(
            &positive(&x[0]),
            |x| Ok(vec![x[0].softmax(1).matmul(&x[1])]),
            |x| Ok(vec![x[0].relu().matmul(&x[1]).sigmoid()]),
            &[&x[0], &x[1]],
        )
    }),
    ("a result nobody differentiates", |x| {
        let y = cond(
            &positive(&x[0]),
            |x| Ok(vec![x[0].sin(), x[0].exp()]),
            |x| Ok(vec![x[0].exp(), x[0].sin()]),
            &[&x[0]],
        )?;
        Ok(vec![y[0].clone(), y[1].detach()])
    }),
];

fn inputs(sign: f32) -> [Tensor; 2] {
    let x = [0.5f32, -0.25, 0.75, 0.3].map(|v| v * sign);
    [
        Tensor::from_slice(&x, [2, 2]).requires_grad_(),
        Tensor::from_slice(&[0.2f32, 0.9, -0.4, 1.1], [2, 2]).requires_grad_(),
    ]
}

/// Results, gradients of all or some results and gradients of gradients are those of a plain run, whichever side runs, in one
/// graph that was traced as a whole.
#[test]
fn sides_and_their_gradients() {
    for (what, f) in FUNCTIONS {
        let graph = capture(f, &inputs(1.0));
        for (name, backend) in all() {
            let executable = compile(&backend, &graph, &inputs(1.0));
            for sign in [1.0, -1.0] {
                let x = inputs(sign);
                let plain = seen(f(&x).unwrap(), &x);
                let found = seen(call(&executable, &x), &x);
                assert!(alike(&found, &plain), "{what}, {sign}, on {name}:\n{found:?}\n{plain:?}");
            }
        }
    }
}

/// The forward holds one conditional, and so does the backward; what is around is cut as ever. The decision is kept: computed
/// again it might fall otherwise.
#[test]
fn graphs_hold_conditionals() {
    let (_, f) = FUNCTIONS[0];
    let x = inputs(1.0);
    for (name, backend) in all() {
        let executable = compile(&backend, &capture(f, &x), &x);
        let count = |g: &GraphModule, what: &str| {
            g.graph.nodes().filter(|n| g.graph[*n].target().is_some_and(|t| t.to_string().contains(what))).count()
        };
        let (forward, backward) = (executable.forward_graph().unwrap(), executable.backward_graph().unwrap());
        // Without a budget the conditional itself runs again, for what follows it.
        let again = usize::from(name == "recompute");
        assert_eq!((count(&forward, "cond"), count(&backward, "cond")), (1, 1 + again), "{name}");
        assert_eq!((count(&forward, "aten.gt"), count(&backward, "aten.gt")), (1, 0), "{name}");
    }
}

/// Random numbers that a side draws are those of a plain run, the gradient uses the same, and the generator moves on by as
/// much. (PyTorch draws anew for the gradient.)
#[test]
fn sides_draw_once() {
    let f: F = |x| {
        cond(
            &positive(&x[0]),
            |x| {
                let mask = x[0].detach().rand_like().gt_scalar(0.5);
                Ok(vec![&(&x[0] * &x[0]) * &mask.to_dtype(firebrand_core::DType::F32)])
            },
            |x| Ok(vec![&(&firebrand_core::ops::dropout(&x[0], 0.5, true)? * &x[0]) * &x[1]]),
            &[&x[0], &x[1]],
        )
    };
    let graph = capture(f, &inputs(1.0));
    for (name, backend) in all() {
        let executable = compile(&backend, &graph, &inputs(1.0));
        for (sign, seed) in [(1.0, 1), (1.0, 2), (-1.0, 3), (-1.0, 4)] {
            let run = |go: &dyn Fn(&[Tensor]) -> Vec<Tensor>| {
                manual_seed(seed);
                let x = inputs(sign);
                let outs = go(&x);
                let after = get_rng_state();
                (seen(outs, &x), format!("{after:?}"))
            };
            let plain = run(&|x| f(x).unwrap());
            let found = run(&|x| call(&executable, x));
            assert!(alike(&found.0, &plain.0), "{sign}, {seed}, on {name}:\n{found:?}\n{plain:?}");
            assert_eq!(found.1, plain.1, "{name}");
        }
    }
}

/// A conditional in an autocast region is traced with it: sides, and their gradients.
#[test]
fn sides_in_autocast_regions() {
    let f: F = |x| {
        autocast(AutocastOptions::default(), || {
            cond(&positive(&x[0]), |x| Ok(vec![x[0].matmul(&x[1])]), |x| Ok(vec![x[1].matmul(&x[0])]), &[&x[0], &x[1]])
        })
    };
    let graph = capture(f, &inputs(1.0));
    for (name, backend) in all() {
        let executable = compile(&backend, &graph, &inputs(1.0));
        for sign in [1.0, -1.0] {
            let x = inputs(sign);
            let (plain, found) = (f(&x).unwrap(), call(&executable, &x));
            assert_eq!(found[0].dtype(), firebrand_core::DType::BF16, "{name}");
            assert_eq!(seen(found, &x).first, seen(plain, &x).first, "{name}, {sign}");
        }
    }
}

/// The back end that fuses plans what is around a conditional, and each side when it first runs.
#[test]
fn sides_are_fused() {
    use firebrand_compile::fused::{Fused, counters, reset_counters};
    let f: F = |x| {
        let h = &(&x[0] * 2.0) + 1.0;
        let y = cond(&x[1].sum().gt_scalar(0.0), |h| Ok(vec![h[0].sin().exp()]), |h| Ok(vec![h[0].cos()]), &[&h])?;
        Ok(vec![y[0].tanh().neg()])
    };
    let x = inputs(1.0).map(|t| t.detach());
    let fused = Fused::default().compile_graph(&capture(f, &x), &[]).unwrap();
    reset_counters();
    let values: Vec<Value> = x.iter().map(Value::from).collect();
    let found = fused.run(&values, &Call::default()).unwrap();
    assert!(close(&numbers(found[0].tensor().unwrap()), &numbers(&f(&x).unwrap()[0])));
    assert!(counters().kernels >= 3, "before, inside and after: {:?}", counters());
    assert!(!fused.describe().contains("interpreted"), "{}", fused.describe());
}
