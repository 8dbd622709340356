//! How functions are compiled and called: call forms, back ends, explanations, stances, and the families next to the hook
//! suite (U-151, U-155, U-156, section h).

mod common;

use common::*;
use firebrand_compile::backends::{self, eager};
use firebrand_compile::{
    Backend, Compiled, Error, ExampleInput, Executable, Options, Shared, Stance, backend, compile, compile_with,
    effects, explain, graph_break, is_compiling, set_stance,
};
use firebrand_core::{DType, Result, Tensor};
use firebrand_graph::ir::{GraphModule, Kind, Target};
use indexmap::IndexMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn has_relu(graph: &GraphModule) -> bool {
    graph.graph.find_calls(&Target::aten("relu.default")).next().is_some()
}

/// U-151: the error of a back end is wrapped with its name; suppressed, the function runs plainly.
#[test]
fn failing_back_end() {
    struct Fails;
    impl Backend for Fails {
        fn name(&self) -> &str {
            "relu_compile_error"
        }
        fn compile(
            &self,
            graph: &GraphModule,
            examples: &[ExampleInput],
        ) -> firebrand_compile::Result<Arc<dyn Executable>> {
            match has_relu(graph) {
                true => Err(firebrand_core::Error::user("no relu, please").into()),
                false => eager().compile(graph, examples),
            }
        }
    }
    let body = |x: &Tensor| x.relu();
    let refused = compile_with(body, Options::with_backend(Arc::new(Fails))).try_call(&ones(1)).map(drop).unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("relu_compile_error") && told.contains("no relu, please"), "{told}");
    let options = Options { suppress_errors: true, ..Options::with_backend(Arc::new(Fails)) };
    assert_eq!(compile_with(body, options).call(&ones(1)).to_vec::<f32>(), [1.0]);
}

/// U-155: a function with a print and an item.
#[test]
fn explanation() {
    let told = explain(
        |x: &Tensor| {
            let y = x + 1.0;
            let _text = y.to_string();
            let n = y.sum().item::<f32>();
            y * n
        },
        &ones(3),
    )
    .unwrap();
    assert_eq!((told.graphs.len(), told.breaks.len(), told.ops()), (3, 2, 3), "{told}");
    let names: Vec<&str> = told.breaks.iter().map(|b| b.kind.name()).collect();
    assert_eq!(names, ["data read", "scalar read"]);
}

/// U-156: a closure is a back end; it gets placeholders, calls, one output, and examples without numbers.
#[test]
fn closure_as_back_end() {
    let seen = Arc::new(AtomicUsize::new(0));
    let held = seen.clone();
    let own = move |graph: &GraphModule, examples: &[ExampleInput]| {
        let g = &graph.graph;
        let kinds: Vec<&str> = g
            .nodes()
            .map(|n| match g[n].kind() {
                Kind::Placeholder(_) => "placeholder",
                Kind::CallFunction(_) => "call",
                Kind::Output => "output",
                _ => "other",
            })
            .collect();
        assert_eq!(kinds, ["placeholder", "placeholder", "call", "call", "output"]);
        let sizes: Vec<usize> = examples.iter().map(|e| e.tensor().expect("a tensor").sizes.len()).collect();
        assert_eq!(sizes, [1, 1]);
        assert!(examples.iter().all(|e| e.tensor().unwrap().sizes[0].known() == Some(2)));
        held.fetch_add(1, Relaxed);
        eager().compile(graph, examples)
    };
    let f = compile_with(|(x, y): &(Tensor, Tensor)| (x + y).relu(), Options::with_backend(Arc::new(own)));
    assert_eq!(f.call(&(ones(2), ones(2))).to_vec::<f32>(), [2.0; 2]);
    assert_eq!(seen.load(Relaxed), 1);
}

/// (h) error messages: kind, explanation, hint and location of every fullgraph error.
#[test]
fn fullgraph_errors_say_what_and_where() {
    type Body = fn(&Tensor) -> Tensor;
    let bodies: [(&str, Body); 3] = [
        ("explicit graph break", |x| {
            graph_break();
            x + 1.0
        }),
        ("data-dependent branching", |x| if x.sum().gt_scalar(0.0).item::<bool>() { x + 1.0 } else { x - 1.0 }),
        ("backward inside the region", |x| {
            (x * x).sum().backward();
            x + 1.0
        }),
    ];
    for (name, body) in bodies {
        let refused = compile_with(body, full(&counter())).try_call(&ones_leaf(1)).map(drop).unwrap_err();
        let Error::GraphBreak(found) = &refused else { panic!("{refused}") };
        assert_eq!(found.kind.name(), name);
        assert!(!found.explanation().is_empty() && !found.hint().is_empty());
        assert!(found.location.is_some_and(|at| at.file().ends_with("entry.rs")), "{refused}");
    }
}

/// (h) joint graph: one tensor twice with one mutated; one leaf twice, then distinct ones; detached results; no
/// arguments; results that mix tensors, host values and nothing.
#[test]
fn shapes_of_arguments_and_results() {
    for (name, c) in counted() {
        let f = compile_with(
            |(a, b): &(Tensor, Tensor)| {
                a.add_(&ones(1));
                b * 2.0
            },
            full(&c),
        );
        let x = ones(1);
        assert_eq!(f.call(&(x.clone(), x.clone())).to_vec::<f32>(), [4.0], "{name}");
        assert_eq!((x.to_vec::<f32>(), c.frames()), (vec![2.0], 1), "{name}");
    }
    for (name, c) in counted() {
        let f = compile_with(|(a, b): &(Tensor, Tensor)| a + b, full(&c));
        let x = ones_leaf(1);
        f.call(&(x.clone(), x.clone())).backward();
        assert_eq!((grad(&x), c.frames()), (vec![2.0], 1), "{name}");
        f.call(&(ones_leaf(1), ones_leaf(1))).backward();
        assert_eq!(c.frames(), 2, "{name}");

        let f = compile_with(|x: &Tensor| (x * 2.0).detach(), full(&c));
        assert!(!f.call(&ones_leaf(1)).requires_grad(), "{name}");
        let w = ones(2);
        let f = compile_with(move |(): &()| &w * 3.0, full(&c));
        assert_eq!(f.call(&()).to_vec::<f32>(), [3.0; 2], "{name}");
        let f = compile_with(|x: &Tensor| (x + 1.0, 7i64, None::<Tensor>, "text".to_string()), full(&c));
        for _ in 0..2 {
            let (y, n, none, text) = f.call(&ones(1));
            assert_eq!((y.to_vec::<f32>(), n, none.is_none(), text.as_str()), (vec![2.0], 7, true, "text"), "{name}");
        }
    }
}

/// (h) reshape, permute, reshape: one graph per varying dimension.
#[test]
fn pixel_unshuffle() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let (b, ch, h, w) = (x.size(0), x.size(1), x.size(2), x.size(3));
                let y = x.reshape([b, ch, h / 2, 2.into(), w / 2, 2.into()]).permute([0, 2, 4, 1, 3, 5]);
                y.reshape([b, (h / 2) * (w / 2), ch * 4]).sum_dim(2, false)
            },
            full(&c),
        );
        let rows = [
            ([1, 2, 4, 4], [1, 4], 1),
            ([2, 2, 4, 4], [2, 4], 2),
            ([3, 2, 8, 8], [3, 16], 3),
            ([5, 2, 6, 10], [5, 15], 3),
        ];
        for (sizes, expected, frames) in rows {
            assert_eq!(f.call(&Tensor::ones(sizes, DType::F32)).shape(), expected, "{name}");
            assert_eq!(c.frames(), frames, "{name} {sizes:?}");
        }
    }
}

/// (h) entry points: `disable`, unknown back ends, `is_compiling`.
#[test]
fn entry_points() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, Options { disable: true, ..with(&c) });
    assert_eq!((f.call(&ones(1)).to_vec::<f32>(), c.frames()), (vec![2.0], 0));
    let told = backend("no such thing").map(drop).unwrap_err().to_string();
    assert!(told.contains("list_backends") && told.contains("eager"), "{told}");

    let seen: Shared<Vec<bool>> = Shared::default();
    let held = seen.clone();
    let body = move |x: &Tensor| {
        held.with(|s| s.push(is_compiling()));
        x + 1.0
    };
    let f = compile(body.clone());
    f.call(&ones(1));
    f.call(&ones(1));
    body(&ones(1));
    assert_eq!(seen.with(|s| s.clone()), [true, false]);
    assert!(!is_compiling());
}

/// (h) call forms: an argument with a default, a list of any length and named ones bind as in a plain call.
#[test]
fn call_forms() {
    type Named = IndexMap<String, Tensor>;
    fn body((x, k, rest, named): &(Tensor, Option<f64>, Vec<Tensor>, Named)) -> Tensor {
        let sum = |start: Tensor, t: &Tensor| start + t;
        let y = rest.iter().fold(x * k.unwrap_or(3.0), sum);
        named.values().fold(y, sum)
    }
    let c = counter();
    let f: Compiled<_, _> = compile_with(body, full(&c));
    let named = Named::from([("n".to_string(), ones(1))]);
    for _ in 0..2 {
        assert_eq!(f.call(&(ones(1), None, vec![ones(1)], named.clone())).to_vec::<f32>(), [5.0]);
    }
    assert_eq!(c.frames(), 1);
}

/// A compiled function inside another is part of it.
#[test]
fn nested() {
    let c = counter();
    let inner = compile(|x: &Tensor| x * 2.0);
    let f = compile_with(move |x: &Tensor| inner.call(x) + 1.0, full(&c));
    assert_eq!((f.call(&ones(1)).to_vec::<f32>(), c.frames(), c.ops()), (vec![3.0], 1, 2));
}

/// Stances: what all compiled functions of the process do.
#[test]
fn stances() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
    f.call(&ones(3));
    set_stance(Stance::FailOnRecompile);
    assert!(matches!(f.try_call(&ones(4)), Err(Error::Recompile { .. })));
    set_stance(Stance::PlainOnRecompile);
    assert_eq!(f.call(&ones(4)).to_vec::<f32>(), [2.0; 4]);
    set_stance(Stance::ForcePlain);
    assert_eq!(f.call(&ones(3)).to_vec::<f32>(), [2.0; 3]);
    set_stance(Stance::Default);
    assert_eq!(c.frames(), 1);
    f.call(&ones(4));
    assert_eq!(c.frames(), 2);
    f.reset();
    f.call(&ones(3));
    assert_eq!(c.frames(), 3);
}

/// Recorded effects happen at every call; plain host code in the function once per compilation.
#[test]
fn effects_and_host_code() {
    let (host, effect) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (h, e) = (host.clone(), effect.clone());
    let f = compile(move |x: &Tensor| -> Result<Tensor> {
        h.fetch_add(1, Relaxed);
        let e = e.clone();
        effects::record(move || {
            e.fetch_add(1, Relaxed);
        });
        x.try_add(x)
    });
    for n in 1..=3 {
        f.call(&ones(1));
        assert_eq!((host.load(Relaxed), effect.load(Relaxed)), (1, n));
    }
}

/// The recorder keeps the graphs it is given.
#[test]
fn recorder() {
    let recorder = backends::record(eager());
    let f = compile_with(|x: &Tensor| x.relu(), Options::with_backend(recorder.clone()));
    f.call(&ones(1));
    let graphs = recorder.graphs();
    assert!(graphs.len() == 1 && has_relu(&graphs[0].0));
}

/// What happened inside an error of the function itself is passed on as it is.
#[test]
fn errors_of_the_function() {
    let f = compile(|x: &Tensor| x.try_matmul(&ones(7)));
    let plain = ones(3).try_matmul(&ones(7)).map(drop).unwrap_err().to_string();
    assert_eq!(f.try_call(&ones(3)).map(drop).unwrap_err().to_string(), plain);
}
