//! Cases B-1 to B-32 of docs/behaviour/autograd.md: nodes, edges, saved values, creation hooks.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, Context, Function, GradOptions, Node, SavedValue, backward, enable_grad, get_gradient_edge,
    grad as gradient, iter_graph, node_creation_hook, region_activation_memory_budget,
};
use firebrand_core::{DType, Result, Tensor, ops};
use std::sync::{Arc, Mutex};

/// Doubles: backward is `2 g`.
struct Foo;
impl Function for Foo {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 2.0])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|g| g * 2.0)])
    }
}

fn foo(x: &Tensor) -> Tensor {
    Foo.apply(&[x]).unwrap().remove(0)
}

/// The names of the nodes that receive a node's gradients.
fn next_names(n: &Node) -> Vec<Option<String>> {
    n.next_functions().iter().map(|e| e.as_ref().map(|e| e.node.name().to_string())).collect()
}

const ACCUMULATE: &str = "torch::autograd::AccumulateGrad";

/// B-1
#[test]
fn node_names() {
    let x = leaves(&[1.0, 2.0]);
    let m = Tensor::ones([2, 2], DType::F64).requires_grad_();
    let two = 2.0.into();
    let rows: Vec<(Tensor, &str)> = vec![
        (&x + &x, "Add0"),
        (&x - &x, "Sub0"),
        (&x * &x, "Mul0"),
        (&x / &x, "Div0"),
        (-&x, "Neg0"),
        (x.pow_scalar(2.0), "Pow0"),
        (x.pow(&x), "Pow1"),
        (ops::scalar_pow(two, &x).unwrap(), "Pow2"),
        (x.exp(), "Exp0"),
        (x.sum(), "Sum0"),
        (x.sum_dim(0, false), "Sum1"),
        (x.mean(), "Mean0"),
        (x.clone_tensor(), "Clone0"),
        (m.matmul(&m), "Mm0"),
        (m.matmul(&x), "Mv0"),
        (x.select(0, 0), "Select0"),
        (cut(&x, 0, 1), "Slice0"),
        (x.view([2, 1]), "View0"),
        (m.t(), "T0"),
        (m.transpose(0, 1), "Transpose0"),
        (m.permute([1, 0]), "Permute0"),
        (ops::cat(&[x.clone(), x.clone()], 0).unwrap(), "Cat0"),
        (ops::stack(&[x.clone(), x.clone()], 0).unwrap(), "Stack0"),
        (x.expand([3, 2]), "Expand0"),
        (x.unsqueeze(0), "Unsqueeze0"),
        (x.unbind(0).remove(0), "Unbind0"),
        (x.split(1, 0).remove(0), "Split0"),
        (x.to_dtype(DType::F32), "ToCopy0"),
        (1.0 - &x, "Rsub1"),
    ];
    for (t, short) in rows {
        let (op, digit) = short.split_at(short.len() - 1);
        assert_eq!(node_name(&t), format!("{op}Backward{digit}"));
    }
}

/// B-2
#[test]
fn names_of_hand_written_nodes() {
    let x = leaves(&[1.0, 2.0]);
    assert_eq!(get_gradient_edge(&x).unwrap().node.name(), ACCUMULATE);
    assert_eq!(node_name(&foo(&x)), "FooBackward");
    let b = &x * 1.0;
    cut(&b, 0, 1).mul_scalar_(2.0);
    assert_eq!(node_name(&b), "torch::autograd::CopySlices");
    let c = con(&[0.0, 0.0]);
    c.copy_(&x, false);
    assert_eq!(node_name(&c), "torch::autograd::CopyBackwards");
    let d = &x * 1.0;
    d.add_(&con(&[1.0, 1.0]));
    assert_eq!(node_name(&d), "AddBackward0");
}

/// B-3, B-4, B-5, B-6
#[test]
fn edges_numbers_and_metadata() {
    let row = Row::default();
    row.is("B-3");
    let x = leaves(&[1.0, 2.0]);
    let c = con(&[3.0, 4.0]);
    let acc = Some(ACCUMULATE.to_string());
    assert_eq!(next_names(&(&x * &c).grad_fn().unwrap()), [acc.clone(), None]);
    assert!((&c * &c).grad_fn().is_none());
    assert_eq!(next_names(&(&x * 2.0).grad_fn().unwrap()), [acc, None]);

    row.is("B-4");
    let a = &x * 2.0;
    let _unrecorded = &c * &c;
    let b = &a * 2.0;
    let (na, nb) = (a.grad_fn().unwrap(), b.grad_fn().unwrap());
    assert_eq!(nb.sequence_nr(), na.sequence_nr() + 1);
    assert_eq!(get_gradient_edge(&x).unwrap().node.sequence_nr(), u64::MAX);

    row.is("B-5");
    assert!(na.metadata().is_empty());
    na.insert_metadata("k", Arc::new(1i32));
    let again = a.grad_fn().unwrap();
    assert_eq!(again.metadata().get("k").and_then(|v| v.downcast_ref::<i32>().copied()), Some(1));

    row.is("B-6");
    let u = x.unbind(0);
    let meta = u[0].grad_fn().unwrap();
    let meta = meta.input_metadata();
    assert_eq!(meta.len(), 2);
    assert!(meta.iter().all(|m| m.shape.is_empty() && m.dtype == DType::F64 && m.device.name() == "cpu"));
    let acc = get_gradient_edge(&x).unwrap().node;
    assert_eq!((acc.input_metadata().len(), &acc.input_metadata()[0].shape[..]), (1, &[2usize][..]));
}

/// B-7: built-in, accumulating and custom nodes are all `Node`, and answer as one. What is none is refused by the
/// compiler (docs/behaviour/types.md).
#[test]
fn all_nodes_are_nodes() {
    let x = leaf(1.0);
    let nodes: [Node; 3] =
        [(&x * 2.0).grad_fn().unwrap(), get_gradient_edge(&x).unwrap().node, foo(&x).grad_fn().unwrap()];
    assert_eq!(nodes.each_ref().map(Node::name), ["MulBackward0", ACCUMULATE, "FooBackward"], "B-7");
    assert_eq!(nodes.each_ref().map(|n| n.next_functions().len()), [2, 0, 1], "B-7");
}

/// B-8, B-9, B-10, B-11, B-12
#[test]
fn gradient_edges() {
    let row = Row::default();
    row.is("B-8");
    assert_err!(get_gradient_edge(&con(&[1.0])), EdgeNoGrad);
    row.is("B-9");
    let x = leaf(3.0);
    for (t, name) in [(x.clone(), ACCUMULATE), (&x * 2.0, "MulBackward0"), (foo(&x), "FooBackward")] {
        let e = get_gradient_edge(&t).unwrap();
        assert_eq!((e.node.name(), e.output_nr, e.ownership_token.is_none()), (name, 0, true));
    }

    row.is("B-10");
    let x = leaves(&[1.0, 2.0]);
    let y = &x * 2.0;
    let z = (&y * &y).sum();
    let (ey, ex) = (get_gradient_edge(&y).unwrap(), get_gradient_edge(&x).unwrap());
    let g = gradient(&z, [ey, ex], &GradOptions::default()).unwrap();
    close(&vals(g[0].as_ref().unwrap()), &[4.0, 8.0]);
    close(&vals(g[1].as_ref().unwrap()), &[8.0, 16.0]);

    row.is("B-11");
    let x = leaf(3.0);
    let y = &x * &x;
    backward(&get_gradient_edge(&y).unwrap(), &BackwardOptions::default()).unwrap();
    close(&grad(&x), &[6.0]);
    let x = leaves(&[1.0, 2.0]);
    let e = get_gradient_edge(&(&x * 2.0)).unwrap();
    let options = GradOptions { grad_outputs: vec![Some(con(&[1.0, 1.0]))], ..Default::default() };
    close(&vals(gradient(&e, &x, &options).unwrap()[0].as_ref().unwrap()), &[2.0, 2.0]);

    row.is("B-12");
    let x = leaves(&[1.0, 2.0]);
    let e = get_gradient_edge(&x.unbind(0)[1]).unwrap();
    assert_eq!(e.output_nr, 1);
    close(&vals(gradient(&e, &x, &GradOptions::default()).unwrap()[0].as_ref().unwrap()), &[0.0, 1.0]);
}

/// B-13, B-14, B-15
#[test]
fn lifetimes_of_edges_and_nodes() {
    let row = Row::default();
    row.is("B-13");
    let x = leaf(3.0);
    let y = foo(&x);
    let e = get_gradient_edge(&y).unwrap();
    drop(y);
    backward(&e, &BackwardOptions::default()).unwrap();
    close(&grad(&x), &[2.0]);

    row.is("B-14");
    let x = leaf(2.0);
    let y = &x * 3.0;
    let e = get_gradient_edge(&y).unwrap();
    y.mul_scalar_(2.0);
    close(&vals(gradient(&y, &e, &GradOptions::default()).unwrap()[0].as_ref().unwrap()), &[2.0]);
    assert!(!get_gradient_edge(&y).unwrap().node.is_same(&e.node));

    row.is("B-15");
    let x = leaf(1.0);
    let held = get_gradient_edge(&x).unwrap().node;
    held.insert_metadata("mark", Arc::new(()));
    assert!(get_gradient_edge(&x).unwrap().node.is_same(&held));
    drop(held);
    assert!(get_gradient_edge(&x).unwrap().node.metadata().is_empty());
}

/// B-16, B-17, B-18, B-19
#[test]
fn saved_values() {
    let row = Row::default();
    row.is("B-16");
    let x = leaf(2.0);
    let n = (&x * &x).grad_fn().unwrap();
    let mut names = n.saved_names().unwrap();
    names.sort();
    assert_eq!(names, ["other", "self"]);
    assert!(n.saved("self").unwrap().unwrap().tensor().unwrap().is_same(&x));

    row.is("B-17");
    let y = x.exp();
    let r = y.grad_fn().unwrap().saved("result").unwrap().unwrap();
    let r = r.tensor().unwrap();
    assert!(!r.is_same(&y) && r.shares_storage(&y) && r.requires_grad());
    assert!(r.grad_fn().unwrap().is_same(&y.grad_fn().unwrap()));

    row.is("B-18");
    let b = &x * 1.0;
    let s = b.sin().grad_fn().unwrap().saved("self").unwrap().unwrap();
    assert!(s.tensor().unwrap().is_same(&b));

    row.is("B-19");
    let n = (&x * Tensor::scalar(3.0f64)).grad_fn().unwrap();
    assert!(matches!(n.saved("self").unwrap().unwrap(), SavedValue::None));
    assert_eq!(vals(n.saved("other").unwrap().unwrap().tensor().unwrap()), [3.0]);
    let n = leaves(&[1.0, 2.0]).sum_dim(0, false).grad_fn().unwrap();
    assert!(matches!(n.saved("dim").unwrap().unwrap(), SavedValue::Ints(d) if d == [0]));
    assert!(matches!(n.saved("keepdim").unwrap().unwrap(), SavedValue::Bool(false)));
    assert!(matches!(n.saved("self_sym_sizes").unwrap().unwrap(), SavedValue::Ints(d) if d == [2]));
    let n = x.pow_scalar(3.0).grad_fn().unwrap();
    assert!(matches!(n.saved("exponent").unwrap().unwrap(), SavedValue::Scalar(s) if s.to_f64() == 3.0));
}

/// B-20, B-21, B-22, B-23
#[test]
fn release() {
    let row = Row::default();
    row.is("B-20");
    let x = leaf(2.0);
    let y = &x * &x;
    let n = y.grad_fn().unwrap();
    y.backward();
    assert_err!(y.try_backward(&BackwardOptions::default()), GraphFreed { .. });
    assert_err!(n.saved("self"), GraphFreed { .. });

    row.is("B-21");
    let x = leaves(&[1.0, 2.0]);
    let y = (&x + &x).sum();
    y.backward();
    y.backward();
    close(&grad(&x), &[4.0, 4.0]);

    row.is("B-22");
    let x = leaf(2.0);
    let y = &x * &x;
    let (a, b) = (&y + 1.0, &y + 2.0);
    a.backward();
    assert_err!(b.try_backward(&BackwardOptions::default()), GraphFreed { .. });

    row.is("B-23");
    let x = leaf(2.0);
    let y = &x * &x;
    let z = &y * &y;
    close(&vals(gradient(&z, &y, &GradOptions::default()).unwrap()[0].as_ref().unwrap()), &[8.0]);
    close(&vals(gradient(&y, &x, &GradOptions::default()).unwrap()[0].as_ref().unwrap()), &[4.0]);
}

/// B-24, B-25, on a stack of 2 MB.
#[test]
fn a_million_nodes() {
    let work = || {
        let chain = |x: &Tensor| {
            let one = con(&[1.0]);
            let mut y = x + &one;
            for _ in 1..1_000_000 {
                y = &y + &one;
            }
            y
        };
        let x = leaves(&[1.0]);
        let y = chain(&x);
        y.backward();
        close(&grad(&x), &[1.0]);
        drop(y);
        drop(chain(&x));
    };
    if cfg!(target_family = "wasm") {
        return work();
    }
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

/// B-26, B-27
#[test]
fn calling_and_printing() {
    let x = leaf(2.0);
    let y = &x * &x;
    let n = y.grad_fn().unwrap();
    let out = enable_grad(|| n.call(&[Some(Tensor::scalar(1.0f64))])).unwrap();
    let out: Vec<Tensor> = out.into_iter().flatten().collect();
    assert_eq!(out.iter().map(|t| t.item::<f64>()).collect::<Vec<_>>(), [2.0, 2.0]);
    assert!(out.iter().all(|t| t.requires_grad()));
    assert!(y.to_string().contains("grad_fn=<MulBackward0>"));
    assert!(x.to_string().contains("requires_grad=True"));
}

type Names = Arc<Mutex<Vec<String>>>;

fn recorder() -> (Names, impl Fn(&Node) -> Result<()> + Send + Sync + Clone) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let l = log.clone();
    (log, move |n: &Node| {
        l.lock().unwrap().push(n.name().to_string());
        Ok(())
    })
}

/// B-28, B-29, B-30
#[test]
fn creation_hooks() {
    let row = Row::default();
    let x = leaf(2.0);
    let c = con(&[1.0]);
    row.is("B-28");
    let (log, hook) = recorder();
    {
        let _scope = node_creation_hook(hook);
        let y = &x * 2.0;
        let _z = &y * &y;
        let _c = &c * 2.0;
    }
    let _outside = &x * 3.0;
    assert_eq!(*log.lock().unwrap(), [ACCUMULATE, "MulBackward0", "MulBackward0"]);

    row.is("B-29");
    let y = &x * 1.0;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mark = |name: &'static str| {
        let o = order.clone();
        move |_: &Node| {
            o.lock().unwrap().push(name);
            Ok(())
        }
    };
    {
        let _outer = node_creation_hook(mark("outer"));
        let _inner = node_creation_hook(mark("inner"));
        let _z = &y * 2.0;
    }
    assert_eq!(*order.lock().unwrap(), ["outer", "inner"]);
    {
        let inside = y.clone();
        let _scope = node_creation_hook(move |_| ops::mul(&inside, &inside).map(|_| ()));
        assert_err!(ops::mul(&y, &y), NodeCreatedInCreationHook);
    }

    row.is("B-30");
    let y = x.pow_scalar(3.0);
    let (log, hook) = recorder();
    {
        let _scope = node_creation_hook(hook);
        gradient(&y, &x, &GradOptions::create_graph()).unwrap();
    }
    assert_eq!(*log.lock().unwrap(), ["PowBackward0", "MulBackward1", "MulBackward0"]);
}

/// B-31 (a bool as a budget does not compile: see `region_activation_memory_budget`)
#[test]
fn budgets_are_for_compiled_code() {
    assert_err!(region_activation_memory_budget(0.5), EagerBudget);
    assert_err!(region_activation_memory_budget(1.5), BudgetRange { .. });
}

/// B-32
#[test]
fn breadth_first_walk() {
    let y = (leaf(1.0).sin() * 2.0).sum();
    let names: Vec<String> = iter_graph([None, y.grad_fn()]).iter().map(|n| n.name().to_string()).collect();
    assert_eq!(names, ["SumBackward0", "MulBackward0", "SinBackward0", ACCUMULATE]);
    assert!(iter_graph([]).is_empty());
}
