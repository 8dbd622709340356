//! Tensors shared between threads: an op that meets another one on the same elements is refused, and nothing else is.
//! Cases C-62 to C-64 of docs/behaviour/autograd.md. Threads meet by channels, so every test has one outcome.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, Op, Value};
use firebrand_core::races::{ENABLED, Role, Use};
use firebrand_core::{DType, ErrorKind, Result, Tensor, ops};
use firebrand_opinfo::{Argument, Call, FAMILIES, Family, Place};
use std::collections::BTreeSet;
use std::sync::mpsc::channel;

/// Runs `f` while another thread is inside an op called `name` that uses the tensors.
fn while_used<R>(name: &'static str, role: Role, tensors: &[Tensor], f: impl FnOnce() -> R) -> R {
    let (entered, inside) = channel();
    let (leave, left) = channel::<()>();
    std::thread::scope(|s| {
        s.spawn(move || {
            let _use = Use::new(name, role, tensors).unwrap();
            entered.send(()).unwrap();
            let _ = left.recv(); // ends when the sender is dropped, also if `f` panics
        });
        let _leave = leave;
        inside.recv().unwrap();
        f()
    })
}

fn race<T: std::fmt::Debug>(result: Result<T>) -> Option<String> {
    match result.err()?.kind() {
        ErrorKind::DataRace { op, operand, role, other, other_operand, other_role } => {
            Some(format!("{op} {role} {operand}; {other} {other_role} {other_operand}"))
        }
        kind => panic!("another error: {kind}"),
    }
}

fn x() -> Tensor {
    Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).view([2, 3])
}

/// C-62: both ops, their operands and what each does; the refused one has written nothing.
#[test]
fn conflicts_name_both_ops() {
    const { assert!(ENABLED, "tests are debug builds, or have the feature") };
    let t = x();
    let all = [t.clone()];
    let other = x();
    let (w, r) = (Role::Writes, Role::Reads);
    let found = while_used("reader", r, &all, || {
        [
            race(ops::add_(&t, &other, 1.into())),
            race(ops::mul_out(&other, &other, &t)),
            race(ops::copy_(&t, &other, false)),
            race(t.try_uniform_(0.0, 1.0)),
            race(no_grad(|| ops::foreach_add_scalar_(&[other.clone(), t.clone()], 1.into()))),
        ]
    });
    let expected =
        ["add_ writes self", "mul writes out", "copy_ writes self", "uniform_ writes self", "add_ writes self"];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.as_deref(), Some(&*format!("{expected}; reader reads tensors[0]")), "C-62");
    }
    assert_eq!(t.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "C-62: nothing was written");
    let found = while_used("writer", w, &all, || {
        [
            race(ops::add(&other, &t, 1.into())),
            race(ops::sum(&t, None)),
            race(ops::cat(&[other.clone(), t.clone()], 0)),
            race(t.try_to_vec::<f32>()),
            race(ops::mm(&t, &other.t())),
            race(t.try_deep_copy()),
            race(ops::zero_(&t)),
        ]
    });
    let expected = [
        "add reads other",
        "sum reads self",
        "cat reads tensors[1]",
        "to_vec reads self",
        "mm reads self",
        "deep_copy reads self",
        "zero_ writes self",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.as_deref(), Some(&*format!("{expected}; writer writes tensors[0]")), "C-62");
    }
    let message = while_used("writer", w, &all, || ops::neg(&t).unwrap_err().to_string());
    assert!(message.starts_with("neg reads its operand self while writer writes the same memory (its tensors[0])"));
    assert!(ops::neg_(&t).is_ok(), "C-62: what was held is free again");
}

/// C-63: what is not a conflict.
#[test]
fn readers_and_disjoint_writers_do_not_meet() {
    let t = x();
    let all = [t.clone()];
    while_used("reader", Role::Reads, &all, || {
        assert!(ops::add(&t, &t, 1.into()).is_ok() && t.try_to_vec::<f32>().is_ok(), "C-63: two readers");
    });
    // Two rows, and two columns, whose memory interleaves.
    for (mine, theirs) in [(t.select(0, 0), t.select(0, 1)), (t.select(1, 0), t.narrow(1, 1, 2))] {
        while_used("writer", Role::Writes, std::slice::from_ref(&theirs), || {
            assert!(ops::add_scalar_(&mine, 1.into(), 1.into()).is_ok(), "C-63: disjoint views");
            assert!(mine.try_to_vec::<f32>().is_ok());
            assert!(race(ops::add_scalar_(&t, 1.into(), 1.into())).is_some(), "C-63: the whole is not disjoint");
            assert!(race(ops::neg(&theirs)).is_some());
        });
    }
    // Shapes, views and metadata are not memory.
    while_used("writer", Role::Writes, &all, || {
        assert!(ops::zeros_like(&t, None, None, None).is_ok(), "C-63: only the shape counts");
        assert_eq!(t.t().detach().shape(), [3, 2], "C-63: views touch nothing");
        assert!(t.clone().shares_storage(&t) && t.version() > 0);
    });
    let empty = t.narrow(0, 0, 0);
    while_used("writer", Role::Writes, &all, || assert!(ops::neg(&empty).is_ok(), "C-63: no elements, no conflict"));
}

/// C-63: a thread is never in its own way, whichever aliases it uses.
#[test]
fn one_thread_may_use_memory_as_it_likes() {
    let t = x();
    let _use = Use::new("mine", Role::Writes, &[t.clone(), t.view([6]), t.select(0, 1)]).unwrap();
    ops::add_(&t, &t, 1.into()).unwrap();
    ops::copy_(&t, &t.flip([0]), false).unwrap();
    ops::add_out(&t, &t.data(), 1.into(), &t).unwrap();
    ops::mul_(&t.select(0, 0), &t.select(0, 1)).unwrap();
    assert_eq!(t.numel(), 6);
}

/// What a use holds is let go with it, also where the next one is refused or the op fails.
#[test]
fn refusals_leave_nothing_held() {
    let (a, b) = (x(), x());
    while_used("reader", Role::Reads, std::slice::from_ref(&b), || {
        let both = Use::new("both", Role::Writes, &[a.clone(), b.clone()]);
        assert!(both.is_err());
    });
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(ops::mm(&a, &b).is_err(), "shapes do not fit");
            ops::neg_(&a).unwrap();
        });
    });
    while_used("writer", Role::Writes, &[a.clone(), b.clone()], || ());
}

/// An error of an op inside backward is the engine's error, and the gradient arrives when it is run again.
#[test]
fn backward_reports_conflicts() {
    let w = Tensor::new(&[2.0f64, 3.0]);
    let x = Tensor::new(&[1.0f64, 1.0]).requires_grad_();
    let y = (&x * &w).sum();
    let keep = firebrand_core::autograd::BackwardOptions { retain_graph: Some(true), ..Default::default() };
    let found = while_used("optimizer", Role::Writes, std::slice::from_ref(&w), || race(y.try_backward(&keep)));
    assert_eq!(found.as_deref(), Some("mul reads other; optimizer writes tensors[0]"));
    y.backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 3.0]);
}

fn operands(args: &[Value]) -> Vec<Tensor> {
    let mut list = Vec::new();
    for a in args {
        match a {
            Value::Tensor(t) => list.push(t.clone()),
            Value::Tensors(ts) => list.extend(ts.iter().cloned()),
            Value::OptTensors(ts) => list.extend(ts.iter().flatten().cloned()),
            _ => {}
        }
    }
    list.retain(|t| t.numel() > 0);
    list
}

/// C-64: every op of the table, in every form, is refused while another thread writes all of its operands, unless it
/// looks at none of their elements: these are listed in `races_unchecked.txt` (`UPDATE_EXPECT=1` writes it anew).
#[test]
fn every_op_is_checked() {
    let (mut unchecked, mut refused, mut seen) = (BTreeSet::new(), 0, BTreeSet::new());
    for row in FAMILIES.iter().flat_map(Family::rows).filter(|row| !row.error) {
        let Some(op) = Op::from_name(&row.op) else { continue };
        let Ok(call) = Call::new(op, row, Place::AsListed, false) else { continue };
        let outs: Vec<Value> = row
            .out
            .iter()
            .filter_map(|o| if let Argument::Tensor(t) = o { t.tensor(Place::AsListed).ok() } else { None })
            .map(Value::Tensor)
            .collect();
        let mut calls = vec![(op, call.args.clone())];
        calls.extend(op.info().in_place.map(|op| (op, call.args.clone())));
        // Only where the row knows every result: others have no tensors that could take them.
        let form = op.info().out.filter(|form| form.schema().args.len() == call.args.len() + outs.len());
        calls.extend(form.map(|op| (op, [call.args.clone(), outs].concat())));
        for (op, args) in calls {
            let tensors = operands(&args);
            if tensors.is_empty() || !seen.insert(op.name()) {
                continue;
            }
            let run = || no_grad(|| dispatch::call(op, &args)).map(drop);
            let found = while_used("writer", Role::Writes, &tensors, run);
            match found {
                Err(e) if matches!(e.kind(), ErrorKind::DataRace { op, .. } if *op != "a kernel") => refused += 1,
                Ok(()) => drop(unchecked.insert(op.name().trim_start_matches("aten::").to_owned())),
                Err(e) => drop(unchecked.insert(format!("{}: {e}", op.name()))),
            }
        }
    }
    let list: String = unchecked.iter().map(|name| format!("{name}\n")).collect();
    expect_test::expect_file!["races_unchecked.txt"].assert_eq(&list);
    assert!(refused > 700, "{refused} forms of ops are checked");
}

/// The check of a dtype view: bytes are compared, not elements.
#[test]
fn views_of_parts_are_compared_in_bytes() {
    let z = Tensor::zeros([4], DType::C64);
    let parts = ops::view_as_real(&z).unwrap();
    let imaginary = parts.select(1, 1);
    while_used("writer", Role::Writes, &[imaginary], || {
        assert!(ops::add_scalar_(&parts.select(1, 0), 1.into(), 1.into()).is_ok());
        assert!(race(ops::neg(&z)).is_some());
    });
}
