//! Cases V-1 to V-41 of docs/behaviour/devices.md, and C-65. Operands on different devices: every op, in every form, gives
//! a result on meta or one error that names the operand.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, Op, Outputs, Value};
use firebrand_core::library::define;
use firebrand_core::{DType, Device, ErrorKind, Result, Scalar, Spec, Tensor, ops};
use firebrand_opinfo::{Argument, Call, FAMILIES, Family, Place, in_place_form};
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
            // A target that is too small is refused before its device.
            ErrorKind::InplaceShape { .. } => None,
            _ if BY_ELEMENT.contains(&base) => None,
            _ => Some(e.to_string()),
        },
    }
}

/// V-38
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
        calls.extend(in_place_form(op).map(|op| (op, call.args.clone())));
        let outs: Vec<Value> = row
            .out
            .iter()
            .filter_map(|o| if let Argument::Tensor(t) = o { t.tensor(Place::AsListed).ok() } else { None })
            .map(Value::Tensor)
            .collect();
        // Only where the row knows every result: others have no tensors that could take them.
        let form = op.info().out.filter(|form| form.schema().args.len() == call.args.len() + outs.len());
        calls.extend(form.map(|op| (op, [call.args.clone(), outs].concat())));
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

/// V-1 to V-36: what PyTorch 2.15 does with a mix; where it computes something of what is not there, we refuse (`Refused`).
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
        ("V-1 add(meta, 0-dim cpu)", Meta, Box::new(move || ops::add(&m(&[3]), &c(&[]), one()))),
        ("V-2 add(0-dim cpu, meta)", Meta, Box::new(move || ops::add(&c(&[]), &m(&[3]), one()))),
        ("V-3 add(0-dim cpu, 0-dim meta)", Meta, Box::new(move || ops::add(&c(&[]), &m(&[]), one()))),
        ("V-4 add(0-dim meta, cpu)", Error, Box::new(move || ops::add(&m(&[]), &c(&[3]), one()))),
        ("V-5 add(meta, cpu of one element)", Error, Box::new(move || ops::add(&m(&[3]), &c(&[1]), one()))),
        ("V-6 add_(meta, 0-dim cpu)", Meta, Box::new(move || ops::add_(&m(&[3]), &c(&[]), one()).cloned())),
        ("V-7 add_(cpu, 0-dim meta)", Refused, Box::new(move || ops::add_(&c(&[3]), &m(&[]), one()).cloned())),
        ("V-8 add_(meta, cpu)", Refused, Box::new(move || ops::add_(&m(&[3]), &c(&[3]), one()).cloned())),
        ("V-9 add.out(cpu)", Error, Box::new(move || ops::add_out(&m(&[3]), &m(&[3]), one(), &c(&[3])).cloned())),
        (
            "V-10 add.out(meta) of cpu",
            Error,
            Box::new(move || ops::add_out(&c(&[3]), &c(&[3]), one(), &m(&[3])).cloned()),
        ),
        (
            "V-11 where(cpu, meta, meta)",
            Error,
            Box::new(|| ops::where_self(&c(&[3]).to_dtype(DType::Bool), &m(&[3]), &m(&[3]))),
        ),
        (
            "V-12 where(0-dim cpu, meta, meta)",
            Meta,
            Box::new(|| ops::where_self(&c(&[]).to_dtype(DType::Bool), &m(&[3]), &m(&[3]))),
        ),
        ("V-13 index(meta, [cpu])", Meta, Box::new(|| ops::index(&m(&[3]), &[Some(ci(&[0, 1]))]))),
        ("V-14 index(cpu, [meta])", Refused, Box::new(|| ops::index(&c(&[3]), &[Some(mi(&[2]))]))),
        (
            "V-15 index_put(meta, [cpu], meta)",
            Meta,
            Box::new(|| ops::index_put(&m(&[3]), &[Some(ci(&[0]))], &m(&[1]), false)),
        ),
        (
            "V-16 index_put(meta, [cpu], 0-dim cpu)",
            Meta,
            Box::new(|| ops::index_put(&m(&[3]), &[Some(ci(&[0]))], &c(&[]), false)),
        ),
        (
            "V-17 index_put(cpu, [cpu], 0-dim meta)",
            Refused,
            Box::new(|| ops::index_put(&c(&[3]), &[Some(ci(&[0]))], &m(&[]), false)),
        ),
        (
            "V-18 index_add(meta, cpu, meta)",
            Error,
            Box::new(move || ops::index_add(&m(&[3]), 0, &ci(&[0]), &m(&[1]), one())),
        ),
        ("V-19 gather(cpu, meta)", Refused, Box::new(|| ops::gather(&c(&[3]), 0, &mi(&[1]), false))),
        ("V-20 cat(meta, cpu)", Error, Box::new(|| ops::cat(&[m(&[3]), c(&[3])], 0))),
        ("V-21 cat(cpu, meta without elements)", Error, Box::new(|| ops::cat(&[c(&[3]), m(&[0])], 0))),
        ("V-22 stack(0-dim meta, 0-dim cpu)", Error, Box::new(|| ops::stack(&[m(&[]), c(&[])], 0))),
        ("V-23 copy_(meta, cpu)", Meta, Box::new(|| ops::copy_(&m(&[3]), &c(&[3]), false).cloned())),
        ("V-24 copy_(cpu, meta)", Error, Box::new(|| ops::copy_(&c(&[3]), &m(&[3]), false).cloned())),
        ("V-25 to(cpu, meta device)", Meta, Box::new(|| c(&[3]).try_to_device(Device::Meta))),
        ("V-26 to(meta, cpu device)", Error, Box::new(|| m(&[3]).try_to_device(Device::Cpu))),
        ("V-27 mm(cpu, meta)", Refused, Box::new(|| ops::mm(&c(&[3, 3]), &m(&[3, 3])))),
        (
            "V-28 addmm(0-dim cpu, meta, meta)",
            Error,
            Box::new(move || ops::addmm(&c(&[]), &m(&[3, 3]), &m(&[3, 3]), one(), one())),
        ),
        (
            "V-29 addmm(meta, cpu, meta)",
            Error,
            Box::new(move || ops::addmm(&m(&[3, 3]), &c(&[3, 3]), &m(&[3, 3]), one(), one())),
        ),
        ("V-30 linear(meta, meta, cpu)", Error, Box::new(|| ops::linear(&m(&[3, 3]), &m(&[3, 3]), Some(&c(&[3]))))),
        (
            "V-31 layer_norm(meta, cpu weight)",
            Error,
            Box::new(|| ops::layer_norm(&m(&[2, 3]), &[3.into()], Some(&c(&[3])), None, 1e-5, false)),
        ),
        ("V-32 mse_loss(meta, 0-dim cpu)", Error, Box::new(|| ops::mse_loss(&m(&[2, 3]), &c(&[]), 1))),
        ("V-33 view_as(meta, cpu)", Meta, Box::new(|| ops::view_as(&m(&[6]), &c(&[2, 3])))),
        (
            "V-34 repeat_interleave(meta, cpu)",
            Meta,
            Box::new(|| ops::repeat_interleave_tensor(&m(&[3]), &ci(&[1, 1, 1]), None, None)),
        ),
        (
            "V-35 _foreach_add([meta], [cpu])",
            Error,
            Box::new(move || Ok(ops::foreach_add(&[m(&[3])], &[c(&[3])], one())?.remove(0))),
        ),
        (
            "V-36 _foreach_mul([meta], 0-dim cpu)",
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
                assert!(told || label.contains(" to("), "{label}: {e}");
            }
            (_, result) => panic!("{label}: expected {expected:?}, found {:?}", result.map(|t| t.device())),
        }
    }
}

/// V-39
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
/// V-40
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

/// V-41
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

/// C-65: seeds, gradients of nodes and replacements by hooks are on the device of what they belong to; a CPU tensor
/// without dimensions is moved to meta. Answers of PyTorch 2.15.
#[test]
fn gradients_stay_on_their_device() {
    use firebrand_core::autograd::{BackwardOptions, GradOptions, grad};
    let on = |t: Tensor| t.requires_grad_();
    let seeded = |y: &Tensor, x: &Tensor, seed: Tensor, is_grads_batched: bool| {
        let options = GradOptions { grad_outputs: vec![Some(seed)], is_grads_batched, ..Default::default() };
        grad(y, x, &options).map(|g| g[0].clone().unwrap())
    };
    let refused = |found: Result<Tensor>, expected: Device, found_on: Device| {
        let e = found.unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::GradDevice { index: 0, .. }), "C-65: {e}");
        let words = format!("invalid gradient at index 0 - expected device {expected} but got {found_on}");
        assert!(e.to_string().starts_with(&words), "C-65: {e}");
    };
    let (x, xm) = (on(c(&[3])), on(m(&[3])));
    refused(seeded(&(&x * 2.0), &x, m(&[3]), false), Device::Cpu, Device::Meta);
    refused(seeded(&(&x * 2.0), &x, m(&[2, 3]), true), Device::Cpu, Device::Meta);
    refused(seeded(&(&xm * 2.0), &xm, c(&[3]), false), Device::Meta, Device::Cpu);
    refused(seeded(&x.sum(), &x, m(&[]), false), Device::Cpu, Device::Meta);
    assert!(seeded(&xm.sum(), &xm, c(&[]), false).unwrap().is_meta(), "C-65: no dimensions");
    let y = &x * 2.0;
    let options = BackwardOptions { grad_tensors: vec![Some(m(&[3]))], ..Default::default() };
    assert!(matches!(y.try_backward(&options).unwrap_err().kind(), ErrorKind::GradDevice { .. }), "C-65: backward");
    xm.sum().backward();
    assert!(xm.grad().unwrap().is_meta(), "C-65: the implicit seed");
    let y = &x * 2.0;
    y.register_hook(|_| m(&[3]));
    let e = y.sum().try_backward(&Default::default()).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::HookDevice { .. }), "C-65: {e}");
}

/// V-37: a mask on the CPU says how many elements of a meta tensor it names. Answers of PyTorch 2.15.
#[test]
fn cpu_masks_index_meta_tensors() {
    let mask = Tensor::new(&[true, false, true, true]);
    let columns = Tensor::new(&[true, false, true]);
    let at = |indices: &[Option<Tensor>]| ops::index(&m(&[4, 3]), indices);
    let shape = |indices: &[Option<Tensor>]| {
        let t = at(indices).unwrap();
        assert!(t.is_meta(), "V-37");
        t.shape().to_vec()
    };
    assert_eq!(shape(&[Some(mask.clone())]), [3, 3], "V-37");
    assert_eq!(shape(&[Some(mask.clone()), Some(ci(&[0]))]), [3], "V-37");
    assert_eq!(shape(&[None, Some(columns.clone())]), [4, 2], "V-37");
    assert_eq!(shape(&[Some(Tensor::full([4, 3], true, DType::Bool))]), [12], "V-37");
    assert!(at(&[Some(mask.clone()), Some(columns)]).is_err(), "V-37: 3 and 2 positions do not broadcast");
    assert!(at(&[Some(Tensor::new(&[true, false]))]).is_err(), "V-37: a mask of another size");
    let unknown = meta(&mask);
    assert!(at(&[Some(unknown.clone())]).is_err() && ops::index(&c(&[4, 3]), &[Some(unknown)]).is_err(), "V-37");
    for values in [m(&[3, 3]), c(&[3, 3]), c(&[])] {
        let put = ops::index_put(&m(&[4, 3]), &[Some(mask.clone())], &values, false).unwrap();
        assert!(put.is_meta() && put.shape() == [4, 3], "V-37");
        let target = m(&[4, 3]);
        ops::index_put_(&target, &[Some(mask.clone())], &values, false).unwrap();
    }
    let x = m(&[4, 3]).requires_grad_();
    ops::index(&x, &[Some(mask)]).unwrap().sum().backward();
    assert_eq!(x.grad().unwrap().shape(), [4, 3], "V-37: its gradient");
}
