//! Operands on different devices: every op, in every form, gives a result on meta or one error that names the operand.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, Op, Outputs, Value};
use firebrand_core::library::define;
use firebrand_core::{DType, Device, ErrorKind, Result, Scalar, Spec, Tensor, ops};
use firebrand_opinfo::schema::forms;
use firebrand_opinfo::{Argument, Call, FAMILIES, Family, Place};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn meta(t: &Tensor) -> Tensor {
    Tensor::try_empty(Spec { layout: t.layout().from_start(), dtype: t.dtype(), device: Device::Meta }).unwrap()
}

/// The arguments with some tensors, by number, on meta; and how many tensors there are.
fn moved(args: &[Value], on_meta: impl Fn(usize) -> bool) -> (Vec<Value>, usize) {
    let mut count = 0;
    let mut one = |t: &Tensor| {
        count += 1;
        if on_meta(count - 1) { meta(t) } else { t.clone() }
    };
    let args = args.iter().map(|a| match a {
        Value::Tensor(t) => Value::Tensor(one(t)),
        Value::Tensors(list) => Value::Tensors(list.iter().map(&mut one).collect()),
        Value::OptTensors(list) => Value::OptTensors(list.iter().map(|t| t.as_ref().map(&mut one)).collect()),
        other => other.clone(),
    });
    (args.collect(), count)
}

fn tensors(out: &Outputs) -> Vec<&Tensor> {
    out.iter()
        .flat_map(|v| match v {
            Value::Tensor(t) => vec![t],
            Value::Tensors(list) => list.iter().collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// Ops that look at shapes only or at one tensor after the other: a mix may give results on both devices.
const BY_ELEMENT: &[&str] = &[
    "view_as",
    "expand_as",
    "reshape_as",
    "type_as",
    "broadcast_tensors",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "copy",
    "copy_",
];

/// What is wrong with how a call with operands on both devices ended.
fn verdict(op: Op, result: std::thread::Result<Result<Outputs>>) -> Option<String> {
    let base = op.name().trim_start_matches("aten::").split('.').next().unwrap();
    match result {
        Err(_) => Some("panicked".into()),
        Ok(Ok(out)) => {
            let cpu = tensors(&out).iter().any(|t| !t.is_meta());
            (cpu && !BY_ELEMENT.contains(&base) && !base.starts_with("_foreach")).then(|| "a result on the CPU".into())
        }
        // What cannot be computed on meta at all says so.
        Ok(Err(e)) => match e.kind() {
            ErrorKind::DeviceMismatch { .. } | ErrorKind::MetaData { .. } => None,
            _ if BY_ELEMENT.contains(&base) => None,
            _ => Some(e.to_string()),
        },
    }
}

#[test]
fn every_op_refuses_a_mix_or_answers_on_meta() {
    std::panic::set_hook(Box::new(|_| ()));
    let (mut failures, mut mixes, mut refused) = (Vec::new(), 0, 0);
    let mut rows_of: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for row in FAMILIES.iter().flat_map(Family::rows).filter(|row| !row.error) {
        let Some(op) = Op::from_name(&row.op) else { continue };
        let seen = rows_of.entry(op.name()).or_default();
        *seen += 1;
        let Ok(call) = Call::new(op, row, Place::AsListed, false) else { continue };
        if *seen > 4 {
            continue;
        }
        let mut calls = vec![(op, call.args.clone())];
        calls.extend(forms(op).inplace.map(|op| (op, call.args.clone())));
        let outs: Vec<Value> = row
            .out
            .iter()
            .filter_map(|o| if let Argument::Tensor(t) = o { t.tensor(Place::AsListed).ok() } else { None })
            .map(Value::Tensor)
            .collect();
        calls.extend(forms(op).out.map(|op| (op, [call.args.clone(), outs].concat())));
        for (op, args) in calls {
            let count = moved(&args, |_| false).1;
            for k in 0..count.min(6) {
                for others in [false, true] {
                    let (args, _) = moved(&args, |n| (n == k) != others);
                    let result = catch_unwind(AssertUnwindSafe(|| no_grad(|| dispatch::call(op, &args))));
                    if count == 1 {
                        if result.is_err() {
                            failures.push(format!("{} line {}: panicked", op.name(), row.line));
                        }
                        continue;
                    }
                    mixes += 1;
                    refused += usize::from(matches!(&result, Ok(Err(_))));
                    if let Some(why) = verdict(op, result) {
                        let which = if others { "all but" } else { "only" };
                        failures.push(format!("{} line {}: {which} tensor {k} on meta: {why}", op.name(), row.line));
                    }
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(failures.is_empty(), "{} of {mixes}:\n{}", failures.len(), failures[..failures.len().min(60)].join("\n"));
    assert!(mixes > 5000 && refused > mixes / 2, "{mixes} mixes, {refused} of them refused");
}

fn m(sizes: &[usize]) -> Tensor {
    Tensor::try_empty(Spec::new(sizes, DType::F32, Device::Meta).unwrap()).unwrap()
}
fn c(sizes: &[usize]) -> Tensor {
    Tensor::try_full(sizes, 1.0, DType::F32).unwrap()
}
fn mi(sizes: &[usize]) -> Tensor {
    Tensor::try_empty(Spec::new(sizes, DType::I64, Device::Meta).unwrap()).unwrap()
}
fn ci(list: &[i64]) -> Tensor {
    Tensor::new(list)
}

/// What PyTorch 2.15 does with a mix; where it computes something of what is not there, we refuse (`Refused`).
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Meta,
    Error,
    /// PyTorch returns a tensor, of numbers that it never had.
    Refused,
}

type Case = (&'static str, Answer, Box<dyn Fn() -> Result<Tensor>>);

fn cases() -> Vec<Case> {
    use Answer::*;
    let one = || Scalar::Int(1);
    let list: Vec<Case> = vec![
        ("add(meta, 0-dim cpu)", Meta, Box::new(move || ops::add(&m(&[3]), &c(&[]), one()))),
        ("add(0-dim cpu, meta)", Meta, Box::new(move || ops::add(&c(&[]), &m(&[3]), one()))),
        ("add(0-dim cpu, 0-dim meta)", Meta, Box::new(move || ops::add(&c(&[]), &m(&[]), one()))),
        ("add(0-dim meta, cpu)", Error, Box::new(move || ops::add(&m(&[]), &c(&[3]), one()))),
        ("add(meta, cpu of one element)", Error, Box::new(move || ops::add(&m(&[3]), &c(&[1]), one()))),
        ("add_(meta, 0-dim cpu)", Meta, Box::new(move || ops::add_(&m(&[3]), &c(&[]), one()).cloned())),
        ("add_(cpu, 0-dim meta)", Refused, Box::new(move || ops::add_(&c(&[3]), &m(&[]), one()).cloned())),
        ("add_(meta, cpu)", Refused, Box::new(move || ops::add_(&m(&[3]), &c(&[3]), one()).cloned())),
        ("add.out(cpu)", Error, Box::new(move || ops::add_out(&m(&[3]), &m(&[3]), one(), &c(&[3])).cloned())),
        ("add.out(meta) of cpu", Error, Box::new(move || ops::add_out(&c(&[3]), &c(&[3]), one(), &m(&[3])).cloned())),
        (
            "where(cpu, meta, meta)",
            Error,
            Box::new(|| ops::where_self(&c(&[3]).to_dtype(DType::Bool), &m(&[3]), &m(&[3]))),
        ),
        (
            "where(0-dim cpu, meta, meta)",
            Meta,
            Box::new(|| ops::where_self(&c(&[]).to_dtype(DType::Bool), &m(&[3]), &m(&[3]))),
        ),
        ("index(meta, [cpu])", Meta, Box::new(|| ops::index(&m(&[3]), &[Some(ci(&[0, 1]))]))),
        ("index(cpu, [meta])", Refused, Box::new(|| ops::index(&c(&[3]), &[Some(mi(&[2]))]))),
        (
            "index_put(meta, [cpu], meta)",
            Meta,
            Box::new(|| ops::index_put(&m(&[3]), &[Some(ci(&[0]))], &m(&[1]), false)),
        ),
        (
            "index_put(meta, [cpu], 0-dim cpu)",
            Meta,
            Box::new(|| ops::index_put(&m(&[3]), &[Some(ci(&[0]))], &c(&[]), false)),
        ),
        (
            "index_put(cpu, [cpu], 0-dim meta)",
            Refused,
            Box::new(|| ops::index_put(&c(&[3]), &[Some(ci(&[0]))], &m(&[]), false)),
        ),
        (
            "index_add(meta, cpu, meta)",
            Error,
            Box::new(move || ops::index_add(&m(&[3]), 0, &ci(&[0]), &m(&[1]), one())),
        ),
        ("gather(cpu, meta)", Refused, Box::new(|| ops::gather(&c(&[3]), 0, &mi(&[1]), false))),
        ("cat(meta, cpu)", Error, Box::new(|| ops::cat(&[m(&[3]), c(&[3])], 0))),
        ("cat(cpu, meta without elements)", Error, Box::new(|| ops::cat(&[c(&[3]), m(&[0])], 0))),
        ("stack(0-dim meta, 0-dim cpu)", Error, Box::new(|| ops::stack(&[m(&[]), c(&[])], 0))),
        ("copy_(meta, cpu)", Meta, Box::new(|| ops::copy_(&m(&[3]), &c(&[3]), false).cloned())),
        ("copy_(cpu, meta)", Error, Box::new(|| ops::copy_(&c(&[3]), &m(&[3]), false).cloned())),
        ("to(cpu, meta device)", Meta, Box::new(|| c(&[3]).try_to_device(Device::Meta))),
        ("to(meta, cpu device)", Error, Box::new(|| m(&[3]).try_to_device(Device::Cpu))),
        ("mm(cpu, meta)", Refused, Box::new(|| ops::mm(&c(&[3, 3]), &m(&[3, 3])))),
        (
            "addmm(0-dim cpu, meta, meta)",
            Error,
            Box::new(move || ops::addmm(&c(&[]), &m(&[3, 3]), &m(&[3, 3]), one(), one())),
        ),
        (
            "addmm(meta, cpu, meta)",
            Error,
            Box::new(move || ops::addmm(&m(&[3, 3]), &c(&[3, 3]), &m(&[3, 3]), one(), one())),
        ),
        ("linear(meta, meta, cpu)", Error, Box::new(|| ops::linear(&m(&[3, 3]), &m(&[3, 3]), Some(&c(&[3]))))),
        (
            "layer_norm(meta, cpu weight)",
            Error,
            Box::new(|| ops::layer_norm(&m(&[2, 3]), &[3.into()], Some(&c(&[3])), None, 1e-5, false)),
        ),
        ("mse_loss(meta, 0-dim cpu)", Error, Box::new(|| ops::mse_loss(&m(&[2, 3]), &c(&[]), 1))),
        ("view_as(meta, cpu)", Meta, Box::new(|| ops::view_as(&m(&[6]), &c(&[2, 3])))),
        (
            "repeat_interleave(meta, cpu)",
            Meta,
            Box::new(|| ops::repeat_interleave_tensor(&m(&[3]), &ci(&[1, 1, 1]), None, None)),
        ),
        (
            "_foreach_add([meta], [cpu])",
            Error,
            Box::new(move || Ok(ops::foreach_add(&[m(&[3])], &[c(&[3])], one())?.remove(0))),
        ),
        (
            "_foreach_mul([meta], 0-dim cpu)",
            Meta,
            Box::new(|| Ok(ops::foreach_mul_tensor(&[m(&[3])], &c(&[]))?.remove(0))),
        ),
    ];
    list
}

#[test]
fn a_mix_is_answered_as_by_pytorch() {
    for (label, expected, call) in cases() {
        match (expected, call()) {
            (Answer::Meta, Ok(t)) => assert!(t.is_meta(), "{label}"),
            (Answer::Error | Answer::Refused, Err(e)) => {
                let told = matches!(e.kind(), ErrorKind::DeviceMismatch { .. } | ErrorKind::MetaData { .. });
                assert!(told || label.starts_with("to("), "{label}: {e}");
            }
            (_, result) => panic!("{label}: expected {expected:?}, found {:?}", result.map(|t| t.device())),
        }
    }
}

#[test]
fn the_error_names_op_operand_and_device() {
    let one = Scalar::Int(1);
    let e = ops::addmm(&c(&[2, 2]), &m(&[2, 2]), &c(&[2, 2]), one, one).unwrap_err();
    assert_eq!(e.to_string(), "addmm: expected all tensors on the same device, but mat1 is on meta and self is on cpu");
    let e = ops::cat(&[c(&[1]), c(&[1]), m(&[1])], 0).unwrap_err();
    assert_eq!(
        e.to_string(),
        "cat: expected all tensors on the same device, but tensors[2] is on meta and tensors[0] is on cpu"
    );
    let e = ops::neg_out(&m(&[3]), &c(&[3])).unwrap_err();
    assert_eq!(e.to_string(), "neg: expected all tensors on the same device, but out is on cpu and self is on meta");
}

fn fused_adam(lists: [&[Tensor]; 5]) -> Result<()> {
    let [params, grads, means, squares, steps] = lists;
    ops::fused_adam_(params, grads, means, squares, &[], steps, 0.1, 0.9, 0.99, 0.0, 1e-8, false, false, None, None)
}

/// The kernel once looked at the parameter only, and read gradients and state where there was no memory.
#[test]
fn fused_optimisers_refuse_a_mix() {
    let all = |f: fn(&[usize]) -> Tensor| [f(&[3]), f(&[3]), f(&[3]), f(&[3])];
    for k in 0..4 {
        for (most, other) in [(all(c), m(&[3])), (all(m), c(&[3]))] {
            let mut lists = most;
            lists[k] = other;
            let [p, g, a, s] = lists.map(|t| vec![t]);
            let e = no_grad(|| fused_adam([&p, &g, &a, &s, &[c(&[])]])).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::DeviceMismatch { op: "_fused_adam_", .. }), "list {k}: {e}");
        }
    }
    let [p, g, a, s] = all(m).map(|t| vec![t]);
    for steps in [c(&[]), m(&[])] {
        no_grad(|| fused_adam([&p, &g, &a, &s, &[steps]])).unwrap();
    }
}

#[test]
fn ops_of_ones_own_refuse_a_mix() {
    let op = define("test::device_pair(Tensor x, Tensor y) -> Tensor")
        .shape(|a| Ok(vec![a.tensor(0, "x")?.spec().clone()]))
        .kernel(|a| Ok(vec![a.tensor(0, "x")? + a.tensor(1, "y")?]))
        .register()
        .unwrap();
    let call = |x: Tensor, y: Tensor| op.call1(&[x.into(), y.into()]);
    assert_eq!(call(c(&[2]), c(&[2])).unwrap().to_vec::<f32>(), [2.0, 2.0]);
    assert!(call(m(&[2]), m(&[2])).unwrap().is_meta());
    for (x, y) in [(c(&[2]), m(&[2])), (m(&[2]), c(&[2]))] {
        assert!(matches!(call(x, y).unwrap_err().kind(), ErrorKind::DeviceMismatch { op: "device_pair", .. }));
    }
}
