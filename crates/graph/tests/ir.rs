//! Building and changing graphs: docs/behaviour/graph-and-passes.md §1 to §4.

use firebrand_graph::Error;
use firebrand_graph::ir::*;
use firebrand_graph::verify::verify_module;

fn names(graph: &Graph, nodes: impl Iterator<Item = NodeId>) -> Vec<String> {
    nodes.map(|n| graph[n].name().to_string()).collect()
}

fn sin(graph: &mut Graph, x: NodeId) -> NodeId {
    graph.call_function(Target::aten("sin.default"), [x.into()])
}

/// P-77
#[test]
fn a_star_becomes_an_underscore() {
    let mut g = Graph::new();
    let args = g.placeholder("*args");
    assert_eq!(&**g[args].name(), "_args");
}

/// P-78
#[test]
fn users_are_distinct_and_in_order() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let add = g.call_function(Target::aten("add.Tensor"), [x.into(), x.into()]);
    assert_eq!(g.users(x).collect::<Vec<_>>(), [add]);
    let s = sin(&mut g, x);
    assert_eq!(g.users(x).collect::<Vec<_>>(), [add, s]);
    // References made anew go to the end, as PyTorch has it.
    g.set_args(add, [x.into(), 1i64.into()]);
    assert_eq!(g.users(x).collect::<Vec<_>>(), [s, add]);
    assert_eq!(g.input_nodes(add).collect::<Vec<_>>(), [x]);
}

/// P-79
#[test]
fn a_used_node_is_not_erased() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    sin(&mut g, x);
    let error = g.erase(x).unwrap_err().to_string();
    assert!(error.contains("%x still has 1 users (%sin_default)"), "{error}");
}

/// P-80
#[test]
fn erased_names_stay_used() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let s = sin(&mut g, x);
    assert!(g.erase(s).unwrap());
    assert!(!g.erase(s).unwrap());
    let again = sin(&mut g, x);
    assert_eq!(&**g[again].name(), "sin_default_1");
}

/// P-81, P-84
#[test]
fn graphs_do_not_mix() {
    let (mut g, mut other) = (Graph::new(), Graph::new());
    let x = g.placeholder("x");
    let y = other.placeholder("y");
    assert!(matches!(g.erase(y), Err(Error::WrongGraph { .. })));
    g.call_function(Target::aten("add.Tensor"), [x.into(), y.into()]);
    let error = verify_module(&GraphModule::new(g)).unwrap_err();
    assert!(error.message.contains("another graph"), "{error}");
}

/// P-82
#[test]
fn definitions_come_first() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let a = sin(&mut g, x);
    let b = sin(&mut g, a);
    g.move_before(b, a).unwrap();
    let error = verify_module(&GraphModule::new(g)).unwrap_err();
    assert_eq!(error.to_string(), "node %sin_default_1: argument %sin_default is used before definition");
}

/// P-85
#[test]
fn insertion_points() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let s = sin(&mut g, x);
    g.inserting(InsertPoint::After(x), |g| {
        g.placeholder("a1");
        g.placeholder("a2");
    });
    g.inserting(InsertPoint::Before(s), |g| {
        g.placeholder("b1");
        g.placeholder("b2");
    });
    g.inserting(InsertPoint::Front, |g| {
        g.placeholder("f1");
        g.placeholder("f2");
    });
    assert_eq!(names(&g, g.nodes()), ["f1", "f2", "x", "a2", "a1", "b1", "b2", "sin_default"]);
    assert_eq!(names(&g, g.nodes().rev()).len(), 8);
    g.output(s);
    assert!(g.output_node().is_some());
    g.placeholder("late");
    assert!(g.output_node().is_none());
}

/// P-86
#[test]
fn a_replacement_that_uses_the_old_value() {
    let mut g = Graph::new();
    let a = g.placeholder("a");
    let b = sin(&mut g, a);
    let c = sin(&mut g, a);
    let mut filtered = g.clone();
    g.replace_all_uses_with(a, b);
    assert_eq!(g[b].args(), [b.into()]);
    let changed = filtered.replace_uses_if(a, b, |_, user| user != b);
    assert_eq!(changed, [c]);
    assert_eq!(filtered[b].args(), [a.into()]);
}

/// P-88
#[test]
fn walking_while_changing() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let a = sin(&mut g, x);
    let b = sin(&mut g, x);
    let c = sin(&mut g, x);
    let (mut seen, mut at) = (Vec::new(), g.first());
    while let Some(n) = at {
        seen.push(n);
        if n == a {
            g.erase(a).unwrap();
            g.erase(b).unwrap();
            let new = g.inserting(InsertPoint::After(c), |g| g.placeholder("new"));
            assert_eq!(g.next(c), Some(new));
        }
        at = g.next(n);
    }
    assert_eq!(names(&g, seen.into_iter()), ["x", "sin_default", "sin_default_2", "new"]);
}

/// P-89: stored arguments are shared and immutable; a clone of the graph keeps its own.
#[test]
fn arguments_change_by_assignment_only() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let cat = g.call_function(Target::aten("cat.default"), [Argument::list([x.into(), x.into()])]);
    let before = g.clone();
    g.set_args(cat, [Argument::list([x.into()])]);
    assert_eq!(before[cat].args()[0].items().unwrap().len(), 2);
    assert_eq!(g[cat].args()[0].items().unwrap().len(), 1);
}

#[test]
fn copies_keep_names_and_meta() {
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let s = sin(&mut g, x);
    g.meta_mut(s).val = Some(TensorMeta::contiguous(ScalarType::Float32, &[2, 3]).into());
    g.output(Argument::tuple([s.into()]));
    let mut copy = Graph::new();
    let mut values = std::collections::HashMap::new();
    let result = copy.graph_copy(&g, &mut values).unwrap();
    let node = result.items().unwrap()[0].node().unwrap();
    assert_eq!(names(&copy, copy.nodes()), ["x", "sin_default"]);
    assert_eq!(copy[node].meta(), g[s].meta());
}

#[test]
fn attributes_by_path() {
    let mut m = GraphModule::default();
    let t = firebrand_core::Tensor::new(&[1.0f32]);
    assert!(m.attributes.set("a.b.w", Attribute::Tensor(t.clone())));
    assert!(m.attributes.set("c", Attribute::Graph(Default::default())));
    assert!(!m.attributes.set("a.b.w.x", Attribute::Tensor(t)));
    assert!(m.attributes.get("a.b.w").unwrap().tensor().is_some());
    m.graph.get_attr("a.b.w");
    m.delete_all_unused_submodules();
    assert!(m.attributes.get("c").is_none());
    assert!(m.attributes.get("a.b.w").is_some());
    assert!(m.attributes.remove("a.b.w").is_some());
}

/// Hooks see nodes when they are made, before they are erased, and before each user changes.
#[test]
fn hooks_are_told() {
    use std::sync::{Arc, Mutex};
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = |said: &Arc<Mutex<Vec<String>>>| {
        let said = Arc::clone(said);
        move |line: String| said.lock().expect("no test thread panicked").push(line)
    };
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let tell = log(&said);
    let create = g.register_create_node_hook(move |g, n| {
        tell(format!("new {}", g[n].name()));
        // What a hook makes itself is not reported.
        if g[n].args().is_empty() {
            g.placeholder("inner");
        }
    });
    let tell = log(&said);
    g.register_erase_node_hook(move |g, n| tell(format!("erase {} of {} inputs", g[n].name(), g[n].args().len())));
    let tell = log(&said);
    g.register_replace_node_hook(move |g, r| {
        let inputs = names(g, g.input_nodes(r.user));
        tell(format!("{} becomes {:?} in {} of {inputs:?}", g[r.old].name(), r.new, g[r.user].name()));
    });
    let y = g.placeholder("y");
    let a = sin(&mut g, x);
    let b = g.call_function(Target::aten("add.Tensor"), [a.into(), x.into()]);
    g.replace_all_uses_with(x, y);
    g.rename(y, "z");
    g.replace_all_uses_with(a, 1i64);
    g.erase(a).expect("it has no users");
    assert!(g.remove_hook(create) && !g.remove_hook(create));
    sin(&mut g, b);
    assert_eq!(
        *said.lock().expect("no test thread panicked"),
        [
            "new y",
            "new sin_default",
            "new add_tensor",
            "x becomes Some(\"y\") in sin_default of [\"x\"]",
            "x becomes Some(\"y\") in add_tensor of [\"sin_default\", \"x\"]",
            "y becomes Some(\"z\") in sin_default of [\"y\"]",
            "y becomes Some(\"z\") in add_tensor of [\"sin_default\", \"y\"]",
            "sin_default becomes None in add_tensor of [\"sin_default\", \"z\"]",
            "erase sin_default of 1 inputs",
        ]
    );
}
