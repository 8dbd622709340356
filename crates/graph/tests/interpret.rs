//! Running graphs: docs/behaviour/graph-and-passes.md §7, §10.2.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use expect_test::expect;
use firebrand_core::autograd::{GradOptions, grad, is_grad_enabled};
use firebrand_core::{DType, Device, Tensor, WeakTensor};
use firebrand_graph::Result;
use firebrand_graph::interpret::*;
use firebrand_graph::passes::{Context, replace_set_grad_with_hop_pass};
use firebrand_graph::text::{parse, parse_module};

fn run(text: &str, inputs: &[Value]) -> Result<Value> {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    run_module(&mut Eager::default(), &module, inputs)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.tensor().expect("a tensor").to_dtype(DType::F64).to_vec()
}

fn first(value: &Value) -> &Value {
    &value.items().expect("a tuple")[0]
}

/// P-97
#[test]
fn inputs_go_to_placeholders() {
    let add = "graph {\n  %x = placeholder\n  %y = placeholder(3)\n  %s = operator.add(%x, %y)\n  return %s\n}\n";
    let sum = |inputs: &[Value]| run(add, inputs).unwrap().scalar().unwrap().to_i64();
    assert_eq!(sum(&[1.into(), 2.into()]), 3);
    assert_eq!(sum(&[1.into()]), 4);
    assert_eq!(sum(&[1.into(), 2.into(), 9.into()]), 3);
    let error = run(add, &[]).unwrap_err().to_string();
    assert!(error.contains("expected positional argument for parameter x"), "{error}");
    let rest = "graph {\n  %x = placeholder\n  %rest = placeholder *rest\n  return %rest\n}\n";
    assert_eq!(run(rest, &[1.into(), 2.into(), 3.into()]).unwrap().items().unwrap().len(), 2);
}

#[test]
fn defaults_keywords_and_numbers_for_tensors() {
    let text = "graph {\n  %x = placeholder\n  %a = aten.add.Tensor(%x, 1, alpha=2)\n  %m = aten.max.dim(%a, 0)\n  \
                %v = operator.getitem(%m, 0)\n  %s = aten.sym_size.int(%x, 0)\n  %k = operator.mul(%s, 2)\n  \
                %w = aten.expand.default(%v, [%k])\n  return (%w, %m)\n}\n";
    let out = run(text, &[Tensor::new(&[1.0f32, 5.0]).into()]).unwrap();
    assert_eq!(numbers(first(&out)), [7.0; 4]);
    // A number does not promote an integer tensor to a wider integer.
    let x = Tensor::new(&[1i32, 2]);
    let out = run("graph {\n  %x = placeholder\n  %y = aten.mul.Tensor(%x, 2)\n  return %y\n}\n", &[x.into()]).unwrap();
    assert_eq!(out.tensor().unwrap().dtype(), DType::I32);
}

#[test]
fn errors_name_the_node() {
    let text = "graph {\n  %x = placeholder\n  %y = aten.sin.default(%x, 1)\n  return %y\n}\n";
    let error = run(text, &[Tensor::new(&[1.0f32]).into()]).unwrap_err().to_string();
    assert!(error.contains("%y = aten.sin.default(%x, 1)"), "{error}");
    let text = "graph {\n  %y = aten.no_such_op.default()\n  return %y\n}\n";
    assert!(run(text, &[]).unwrap_err().to_string().contains("not an op of this build"));
    let text = "graph {\n  %y = get_attr a.b\n  return %y\n}\n";
    assert!(run(text, &[]).unwrap_err().to_string().contains("a.b has no value"));
}

/// Values are dropped after their last use.
#[test]
fn values_die_early() {
    struct Watch(Vec<WeakTensor>, Vec<usize>);
    impl NodeRunner for Watch {
        fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
            self.1.push(self.0.iter().filter(|w| w.upgrade().is_some()).count());
            let value = run_call(self, call)?;
            self.0.push(value.tensor()?.downgrade());
            Ok(value)
        }
    }
    let text = "graph {\n  %x = placeholder\n  %a = aten.sin.default(%x)\n  %b = aten.sin.default(%a)\n  \
                %c = aten.sin.default(%b)\n  %d = aten.add.Tensor(%c, %x)\n  return %d\n}\n";
    let mut watch = Watch(Vec::new(), Vec::new());
    run_module(&mut watch, &parse_module(text).unwrap(), &[Tensor::new(&[1.0f32]).into()]).unwrap();
    // The input of a running call is alive; nothing older is.
    assert_eq!(watch.1, [0, 1, 1, 1]);
}

const REGION: &str = "graph {
  %p_w = placeholder
  %x = placeholder
  %a = aten.mul.Tensor(%x, %p_w)
  %g0 = torch._set_grad_enabled(False)
  %s = aten.sin.default(%a)
  %g1 = torch._set_grad_enabled(True)
  %m = aten.mul.Tensor(%s, %a)
  return (%s, %m)
}
";

/// P-58, and that the pass keeps the gradient.
#[test]
fn regions_cut_gradients() {
    let program = parse(REGION).unwrap();
    let w = Tensor::new(&[0.5f64]).requires_grad_();
    let (after, _) = replace_set_grad_with_hop_pass(&program, &Context::default()).unwrap();
    for program in [&program, &after] {
        let inputs = [(&w).into(), Tensor::new(&[2.0f64]).into()];
        let out = run_module(&mut Eager::default(), &program.module, &inputs).unwrap();
        let items = out.items().unwrap();
        let (s, m) = (items[0].tensor().unwrap(), items[1].tensor().unwrap());
        assert!(!s.requires_grad() && m.requires_grad());
        let g = grad(m, &w, &GradOptions::default()).unwrap();
        let expected = 1.0f64.sin() * 2.0;
        assert_eq!(g[0].as_ref().unwrap().to_vec::<f64>(), [expected]);
    }
}

/// R6: the mode is restored when a body fails, and a marker ends with its graph.
#[test]
fn modes_are_restored() {
    let text = "graph {\n  %b = get_attr b\n  %h = hop.wrap_with_set_grad_enabled(False, %b)\n  return %h\n}\n  \
                b {\n    %y = aten.no_such_op.default()\n    return (%y,)\n  }\n";
    expect!["while running node %h = hop.wrap_with_set_grad_enabled(False, %b): while running node %y = aten.no_such_op.default(): aten.no_such_op.default is not an op of this build (`firebrand ops` lists them); a custom op must be registered before the program is loaded"].assert_eq(&run(text, &[]).unwrap_err().to_string());
    assert!(is_grad_enabled());
    run("graph {\n  %g = torch._set_grad_enabled(False)\n  return None\n}\n", &[]).unwrap();
    assert!(is_grad_enabled());
}

fn gradient(value: &Value, x: &Tensor) -> Vec<f64> {
    let y = value.tensor().unwrap().sum();
    grad(&y, x, &GradOptions { retain_graph: Some(true), ..GradOptions::default() }).unwrap()[0]
        .as_ref()
        .unwrap()
        .to_vec()
}

#[test]
fn cond_runs_one_branch() {
    let text = "graph {
  %x = placeholder
  %p = placeholder
  %t = get_attr t
  %f = get_attr f
  %c = hop.cond(%p, %t, %f, (%x,))
  return %c
}
  t {
    %x = placeholder
    %y = aten.mul.Tensor(%x, 3)
    return (%y,)
  }
  f {
    %x = placeholder
    %y = aten.sin.default(%x)
    return (%y,)
  }
";
    for (p, expected) in [(true, 3.0), (false, 2f64.cos())] {
        let x = Tensor::new(&[2.0f64]).requires_grad_();
        for predicate in [Value::from(p), Value::from(Tensor::new(&[p]))] {
            let out = run(text, &[(&x).into(), predicate]).unwrap();
            assert_eq!(gradient(first(&out), &x), [expected]);
        }
    }
}

#[test]
fn while_loop_map_and_scan() {
    let text = "graph {
  %i = placeholder
  %x = placeholder
  %w = placeholder
  %cond = get_attr cond
  %body = get_attr body
  %h = hop.while_loop(%cond, %body, (%i, %x), (%w,))
  return %h
}
  cond {
    %i = placeholder
    %x = placeholder
    %w = placeholder
    %lt = aten.lt.Scalar(%i, 3)
    return %lt
  }
  body {
    %i = placeholder
    %x = placeholder
    %w = placeholder
    %j = aten.add.Tensor(%i, 1)
    %y = aten.mul.Tensor(%x, %w)
    return (%j, %y)
  }
";
    let (x, w) = (Tensor::new(&[2.0f64]).requires_grad_(), Tensor::new(&[3.0f64]).requires_grad_());
    let out = run(text, &[Tensor::scalar(0i64).into(), (&x).into(), (&w).into()]).unwrap();
    assert_eq!(numbers(&out.items().unwrap()[1]), [54.0]);
    assert_eq!(gradient(&out.items().unwrap()[1], &w), [54.0]);

    let map = "graph {\n  %x = placeholder\n  %w = placeholder\n  %b = get_attr b\n  \
               %h = hop.map_impl(%b, [%x], [%w])\n  return %h\n}\n  \
               b {\n    %x = placeholder\n    %w = placeholder\n    %y = aten.mul.Tensor(%x, %w)\n    return (%y,)\n  }\n";
    let xs = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
    let out = run(map, &[(&xs).into(), (&w).into()]).unwrap();
    assert_eq!(gradient(first(&out), &w), [3.0]);

    let scan = "graph {\n  %c = placeholder\n  %x = placeholder\n  %b = get_attr b\n  \
                %h = hop.scan(%b, [%c], [%x], ())\n  return %h\n}\n  \
                b {\n    %c = placeholder\n    %x = placeholder\n    %n = aten.mul.Tensor(%c, %x)\n    \
                return (%n, %n)\n  }\n";
    let out = run(scan, &[Tensor::scalar(1.0f64).into(), (&xs).into()]).unwrap();
    assert_eq!(numbers(&out.items().unwrap()[0]), [2.0]);
    assert_eq!(numbers(&out.items().unwrap()[1]), [1.0, 2.0]);
    assert_eq!(gradient(&out.items().unwrap()[1], &xs), [3.0, 1.0]);
}

/// Gradients of the loops, and zeros for what a body does not use, are PyTorch's.
#[test]
fn gradients_through_loops() {
    let leaf = |v: f64| Tensor::scalar(v).requires_grad_();
    let (xs, w, unused) = (Tensor::new(&[1.0f64, 2.0, 3.0]).requires_grad_(), leaf(0.5), leaf(2.0));
    let close = |found: Vec<f64>, expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} instead of {expected:?}");
    };
    let map = "graph {\n  %x = placeholder\n  %w = placeholder\n  %u = placeholder\n  %b = get_attr b\n  \
               %h = hop.map_impl(%b, [%x], [%w, %u])\n  return %h\n}\n  \
               b {\n    %x = placeholder\n    %w = placeholder\n    %u = placeholder\n    %s = aten.sin.default(%x)\n    \
               %y = aten.mul.Tensor(%s, %w)\n    return (%y,)\n  }\n";
    let out = run(map, &[(&xs).into(), (&w).into(), (&unused).into()]).unwrap();
    close(gradient(first(&out), &xs), &[0.2702, -0.2081, -0.4950]);
    close(gradient(first(&out), &w), &[1.8919]);
    close(gradient(first(&out), &unused), &[0.0]);

    let scan = "graph {\n  %c = placeholder\n  %x = placeholder\n  %b = get_attr b\n  \
                %h = hop.scan(%b, [%c], [%x], ())\n  %e = operator.getitem(%h, 0)\n  %y = operator.getitem(%h, 1)\n  \
                %s = aten.sum.default(%y)\n  %t = aten.add.Tensor(%e, %s)\n  return %t\n}\n  \
                b {\n    %c = placeholder\n    %x = placeholder\n    %n = aten.mul.Tensor(%c, %x)\n    \
                %s = aten.sin.default(%x)\n    %y = aten.add.Tensor(%c, %s)\n    return (%n, %y)\n  }\n";
    let out = run(scan, &[leaf(1.5).into(), (&xs).into()]).unwrap();
    close(gradient(&out, &xs), &[14.0403, 5.5839, 2.0100]);

    let repeat = "graph {\n  %i = placeholder\n  %x = placeholder\n  %w = placeholder\n  %u = placeholder\n  \
                  %c = get_attr c\n  %b = get_attr b\n  %h = hop.while_loop(%c, %b, (%i, %x), (%w, %u))\n  \
                  %y = operator.getitem(%h, 1)\n  return %y\n}\n  \
                  c {\n    %i = placeholder\n    %x = placeholder\n    %w = placeholder\n    %u = placeholder\n    \
                  %lt = aten.lt.Scalar(%i, 3)\n    return %lt\n  }\n  \
                  b {\n    %i = placeholder\n    %x = placeholder\n    %w = placeholder\n    %u = placeholder\n    \
                  %j = aten.add.Tensor(%i, 1)\n    %y = aten.mul.Tensor(%x, %w)\n    return (%j, %y)\n  }\n";
    let out = run(repeat, &[Tensor::scalar(0i64).into(), (&xs).into(), (&w).into(), (&unused).into()]).unwrap();
    close(gradient(&out, &xs), &[0.125, 0.125, 0.125]);
    close(gradient(&out, &w), &[4.5]);
    close(gradient(&out, &unused), &[0.0]);
}

#[test]
fn runs_without_memory() {
    let text = "graph {\n  %x = placeholder\n  %o = aten.ones.default([3], device=device(cpu))\n  \
                %y = aten.mul.Tensor(%x, %o)\n  return %y\n}\n";
    let x = Tensor::empty([2, 3], (DType::F32, Device::Meta));
    let module = parse_module(text).unwrap();
    let out = run_module(&mut Eager { device: Some(Device::Meta) }, &module, &[x.into()]).unwrap();
    assert_eq!(out.tensor().unwrap().shape(), [2, 3]);
    assert!(out.tensor().unwrap().is_meta());
}
