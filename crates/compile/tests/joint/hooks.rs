//! Hooks inside the graph: pure ones are part of the backward, others are called by it.

use super::*;
use firebrand_compile::hooks::{HookFn, HookSlot};
use firebrand_graph::ir::{Argument, Attribute, Function, Graph, Kind, NodeId, Target};
use std::sync::Mutex;

/// Builds a graph of one input.
fn graph(build: impl FnOnce(&mut GraphModule, NodeId) -> Vec<NodeId>) -> GraphModule {
    let mut module = GraphModule::default();
    let x = module.graph.placeholder("x");
    let results = build(&mut module, x);
    module.graph.output(Argument::tuple(results.into_iter().map(Argument::Node)));
    module
}

fn op(module: &mut GraphModule, name: &str, args: &[Argument]) -> NodeId {
    module.graph.call_function(Target::aten(name), args.to_vec())
}

/// A pure hook whose body is one op of the gradient.
fn pure_hook(module: &mut GraphModule, on: NodeId, name: &str, args: &[Argument]) -> NodeId {
    let mut body = Graph::new();
    let g = body.placeholder("g");
    let all: Vec<Argument> = std::iter::once(g.into()).chain(args.iter().cloned()).collect();
    let new = body.call_function(Target::aten(name), all);
    body.output(Argument::tuple([new.into()]));
    let path = format!("hook_{}", module.attributes.len());
    module.attributes.set(&path, Attribute::Graph(Arc::new(GraphModule::new(body))));
    let body = module.graph.get_attr(&path);
    module.graph.call_function(Function::RegisterHook, [on.into(), body.into()])
}

fn slot_hook(module: &mut GraphModule, on: NodeId, slot: i64) -> NodeId {
    module.graph.call_function(Function::RegisterHook, [on.into(), slot.into()])
}

fn opaque(hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static) -> Arc<HookSlot> {
    let hook: HookFn = Arc::new(move |g| Ok(g.and_then(&hook)));
    HookSlot::new(hook)
}

/// U-69: the hook's op is in the backward graph.
#[test]
fn pure_hooks_are_inlined() {
    let graph = graph(|m, x| {
        let y = op(m, "mul.Tensor", &[x.into(), 2.0.into()]);
        let y = pure_hook(m, y, "sin.default", &[]);
        vec![op(m, "cos.default", &[y.into()])]
    });
    let x = leaf(&[1.0]);
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager(), &graph, inputs);
    let backward = executable.backward_graph().unwrap().graph;
    let names: Vec<String> = backward
        .nodes()
        .filter_map(|n| match backward[n].kind() {
            Kind::CallFunction(Target::Op(op)) => Some(op.base().to_string()),
            _ => None,
        })
        .collect();
    // The value is computed again, then the gradient of cos in some order; the hook's sine comes before the last product.
    assert_eq!((names.len(), &names[0][..], &names[3..]), (6, "mul", &["mul", "sin", "mul"].map(String::from)[..]));
    assert!(names[1..3].contains(&"sin".to_string()) && names[1..3].contains(&"neg".to_string()), "{names:?}");
    let g = grads(&call(&executable, inputs), inputs)[0].clone().unwrap();
    let expected = 2.0 * (-(2.0f32.sin())).sin();
    assert!((g.item::<f32>() - expected).abs() < 1e-6);
}

/// Hooks see the accumulated gradient (U-103: 98), in the order of registration (U-100: 40).
#[test]
fn hooks_see_totals() {
    let twice = |m: &mut GraphModule, x: NodeId| op(m, "mul.Tensor", &[x.into(), 2.0.into()]);
    let total = graph(|m, x| {
        let y = twice(m, x);
        let y = slot_hook(m, y, 0);
        let (a, b) = (op(m, "mul.Tensor", &[y.into(), 3.0.into()]), op(m, "mul.Tensor", &[y.into(), 4.0.into()]));
        vec![op(m, "add.Tensor", &[a.into(), b.into()])]
    });
    let order = graph(|m, x| {
        let y = twice(m, x);
        let y = slot_hook(m, y, 0);
        let y = slot_hook(m, y, 1);
        vec![op(m, "sum.default", &[y.into()])]
    });
    for (name, backend) in backends() {
        let x = leaf(&[1.0]);
        let inputs = std::slice::from_ref(&x);
        let hooks = Call::new(vec![opaque(|g| Some(g * g))], Arc::new([]));
        let out = call_with(&compile(&backend, &total, inputs), inputs, &hooks);
        assert_eq!(grads(&out, inputs)[0].as_ref().unwrap().item::<f32>(), 98.0, "{name}");
        let hooks = Call::new(vec![opaque(|g| Some(g + 1.0)), opaque(|g| Some(g * 10.0))], Arc::new([]));
        let out = call_with(&compile(&backend, &order, inputs), inputs, &hooks);
        assert_eq!(grads(&out, inputs)[0].as_ref().unwrap().item::<f32>(), 40.0, "{name}");
    }
}

/// A removed hook of this call leaves the gradient alone (U-118: 2), and runs once per backward otherwise.
#[test]
fn handles_of_one_call() {
    let graph = graph(|m, x| {
        let y = op(m, "mul.Tensor", &[x.into(), 2.0.into()]);
        let y = slot_hook(m, y, 0);
        vec![op(m, "sin.default", &[y.into()])]
    });
    let x = leaf(&[0.0]);
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager(), &graph, inputs);
    let slots = [0, 1].map(|_| opaque(|g| Some(g * 7.0)));
    let outs = slots.each_ref().map(|s| call_with(&executable, inputs, &Call::new(vec![s.clone()], Arc::new([]))));
    slots[0].handle().remove();
    let found = outs.each_ref().map(|o| grads(o, inputs)[0].as_ref().unwrap().item::<f32>());
    assert_eq!(found, [2.0, 14.0]);
}

/// A hook on a returned tensor runs before hooks the caller adds to it, and sees what they would.
#[test]
fn hooks_on_outputs_run_first() {
    let graph = graph(|m, x| {
        let y = op(m, "mul.Tensor", &[x.into(), 2.0.into()]);
        vec![slot_hook(m, y, 0)]
    });
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    for (name, backend) in backends() {
        log.lock().unwrap().clear();
        let x = leaf(&[1.0]);
        let inputs = std::slice::from_ref(&x);
        let inside = {
            let log = log.clone();
            opaque(move |g| {
                log.lock().unwrap().push("inside");
                Some(g * 10.0)
            })
        };
        let out = call_with(&compile(&backend, &graph, inputs), inputs, &Call::new(vec![inside], Arc::new([])));
        let outside = log.clone();
        out[0].register_hook(move |g: &Tensor| {
            outside.lock().unwrap().push("outside");
            g + 1.0
        });
        assert_eq!(grads(&out, inputs)[0].as_ref().unwrap().item::<f32>(), 22.0, "{name}");
        assert_eq!(*log.lock().unwrap(), ["inside", "outside"], "{name}");
    }
}

/// A hook whose path nobody differentiates does not run (required improvement: zeros would run it).
#[test]
fn hooks_off_the_path_do_not_run() {
    let graph = graph(|m, x| {
        let y = op(m, "mul.Tensor", &[x.into(), 2.0.into()]);
        let h = slot_hook(m, y, 0);
        vec![op(m, "sin.default", &[h.into()]), op(m, "mul.Tensor", &[x.into(), 3.0.into()])]
    });
    for (name, backend) in backends() {
        let x = leaf(&[0.0]);
        let inputs = std::slice::from_ref(&x);
        let calls: Arc<Mutex<usize>> = Arc::default();
        let seen = calls.clone();
        let hook = opaque(move |g| {
            *seen.lock().unwrap() += 1;
            Some(g + 100.0)
        });
        let out = call_with(&compile(&backend, &graph, inputs), inputs, &Call::new(vec![hook], Arc::new([])));
        assert_eq!(grads(&out[1..], inputs)[0].as_ref().unwrap().item::<f32>(), 3.0, "{name}");
        assert_eq!(*calls.lock().unwrap(), 0, "{name}");
    }
}

/// Differentiating through a hook that comes with the call: its ops are recorded as they run.
#[test]
fn second_order_through_opaque_hooks() {
    let graph = graph(|m, x| {
        let y = op(m, "mul.Tensor", &[x.into(), x.into()]);
        let y = slot_hook(m, y, 0);
        vec![op(m, "sin.default", &[y.into()])]
    });
    let x = leaf(&[0.7]);
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager(), &graph, inputs);
    let second = |outs: &[Tensor]| {
        let first = grad(&outs[0].sum(), &x, &GradOptions::create_graph()).unwrap()[0].clone().unwrap();
        grad(&first.sum(), &x, &GradOptions::default()).unwrap()[0].clone().unwrap().item::<f32>()
    };
    let plain = {
        let y = &x * &x;
        y.register_hook(|g: &Tensor| g * g);
        second(&[y.sin()])
    };
    let hooks = Call::new(vec![opaque(|g| Some(g * g))], Arc::new([]));
    assert!((second(&call_with(&executable, inputs, &hooks)) - plain).abs() < 1e-5);
}

/// U-111: a hook that reads an intermediate: `y = sin x`, `g + y` on `2y`; the value is kept or computed again.
#[test]
fn hooks_read_intermediates() {
    let graph = graph(|m, x| {
        let y = op(m, "sin.default", &[x.into()]);
        let z = op(m, "mul.Tensor", &[y.into(), 2.0.into()]);
        let mut body = Graph::new();
        let (g, free) = (body.placeholder("g"), body.placeholder("y"));
        let sum = body.call_function(Target::aten("add.Tensor"), [g.into(), free.into()]);
        body.output(Argument::tuple([sum.into()]));
        m.attributes.set("hook", Attribute::Graph(Arc::new(GraphModule::new(body))));
        let body = m.graph.get_attr("hook");
        let z = m.graph.call_function(Function::RegisterHook, [z.into(), body.into(), y.into()]);
        vec![op(m, "mul.Tensor", &[z.into(), z.into()])]
    });
    let mut all = backends();
    all.push(("firebrand", firebrand_compile::joint::firebrand(Default::default())));
    for (name, backend) in all {
        let x = leaf(&[1.0]);
        let inputs = std::slice::from_ref(&x);
        let found = grads(&call(&compile(&backend, &graph, inputs), inputs), inputs)[0].as_ref().unwrap().item::<f32>();
        assert!((found - 4.546_487).abs() < 1e-6, "{name}: {found}");
    }
}

/// One executable serves every size: each has a plan of its own.
#[test]
fn sizes_have_plans() {
    let f: F = |x| Ok(vec![x[0].try_sin()?.try_sum()?]);
    let first = leaf(&[1.0, 2.0, 3.0]);
    let executable = compile(&aot_eager(), &capture(f, std::slice::from_ref(&first)), std::slice::from_ref(&first));
    for n in [3, 5, 1, 3] {
        let x = Tensor::ones([n], firebrand_core::DType::F32).requires_grad_();
        let inputs = std::slice::from_ref(&x);
        let found = grads(&call(&executable, inputs), inputs)[0].clone().unwrap();
        assert_eq!(bits(&found), bits(&grads(&f(inputs).unwrap(), inputs)[0].clone().unwrap()), "{n}");
    }
}
