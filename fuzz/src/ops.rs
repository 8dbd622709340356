//! Calls of ops with hostile arguments: every call ends with a result or an error.
//!
//! A call is made from one number, its seed: a row of the op table, in its functional, in-place or `out=` form, with some
//! arguments exchanged for others: devices, shapes, strides, dtypes, aliases, extreme integers and floats. It runs on meta
//! first, which tells how large its results are; what would be large is not run with memory. Sometimes gradients follow,
//! sometimes the same call through the fused back end. A panic is a failure; so are an abort and a signal, which is why
//! calls run in a child process that leaves the seed of the current call in a file; so is a call that takes longer than
//! [`LONGEST`], which the child ends itself for.

use firebrand_compile::fused::Fused;
use firebrand_compile::{Call as RunCall, Executable, Value as RunValue};
use firebrand_core::autograd::{GradOptions, grad, no_grad};
use firebrand_core::dispatch::{self, MemoryFormat, Op, Outputs, Value};
use firebrand_core::{Complex, DType, Device, Scalar, Spec, SymInt, Tensor, ops};
use firebrand_graph::interpret;
use firebrand_graph::ir::{Argument, Graph, GraphModule, Kind, Name, NodeId, OpOverload};
use firebrand_graph::schema::Schema;
use firebrand_opinfo::{Call, FAMILIES, Family, Place, Row, in_place_form};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A call that computes for longer hangs: time of the processor, so that a busy machine fails no call.
const LONGEST: Duration = Duration::from_secs(30);
/// So does one that takes longer without computing: it waits for something that does not come.
const LONGEST_WAIT: Duration = Duration::from_secs(1800);
/// Results with more bytes are not computed.
const LARGE: usize = 1 << 20;
/// Address space of the child: what needs more gets an error.
const MEMORY: u64 = 8 << 30;

const INTEGERS: &[i64] = &[
    -1,
    0,
    1,
    2,
    3,
    4,
    7,
    -2,
    -3,
    64,
    65,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 40,
    1 << 61,
    1 << 62,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
    -(1 << 62),
    -(1 << 62) - 1,
    -(1 << 31) - 1,
];
const FLOATS: &[f64] =
    &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 0.5, -1.0, 1e308, -1e308, 1e-320, 9.3e18, 3.0];
const SIZES: &[usize] = &[0, 1, 1, 2, 2, 3, 4, 5, 8];
const HUGE: &[usize] = &[1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 62, i64::MAX as usize];
const DTYPES: &[DType] = &DType::ALL;
const WORDS: &[&str] =
    &["", "mean", "sum", "none", "reflect", "constant", "circular", "ij", "nonsense", "reduced", "\u{0}"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The rows of every op.
fn table() -> &'static [(Op, Vec<&'static Row>)] {
    static TABLE: OnceLock<Vec<(Op, Vec<&'static Row>)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut rows: BTreeMap<&str, (Op, Vec<&Row>)> = BTreeMap::new();
        for row in FAMILIES.iter().flat_map(Family::rows) {
            let small = row.tensors().map(|t| t.shape.iter().product::<usize>()).sum::<usize>() <= 2048;
            if let (Some(op), true) = (Op::from_name(&row.op), small) {
                rows.entry(op.name()).or_insert_with(|| (op, Vec::new())).1.push(row);
            }
        }
        rows.into_values().collect()
    })
}

/// A call, as its seed says.
struct Case {
    op: Op,
    args: Vec<Value>,
    row: &'static Row,
    random: Random,
    gradients: bool,
}

fn outline(t: &Tensor) -> Option<Tensor> {
    let spec = Spec { layout: t.layout().from_start(), dtype: t.dtype(), device: Device::Meta };
    Tensor::try_empty(spec).ok()
}

fn tensors_of(args: &[Value]) -> Vec<Tensor> {
    args.iter()
        .flat_map(|a| match a {
            Value::Tensor(t) => vec![t.clone()],
            Value::Tensors(list) => list.clone(),
            Value::OptTensors(list) => list.iter().flatten().cloned().collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// The arguments with every tensor mapped.
fn mapped(args: &[Value], f: &mut dyn FnMut(&Tensor) -> Tensor) -> Vec<Value> {
    args.iter()
        .map(|a| match a {
            Value::Tensor(t) => Value::Tensor(f(t)),
            Value::Tensors(list) => Value::Tensors(list.iter().map(&mut *f).collect()),
            Value::OptTensors(list) => Value::OptTensors(list.iter().map(|t| t.as_ref().map(&mut *f)).collect()),
            other => other.clone(),
        })
        .collect()
}

impl Case {
    /// None if the row cannot be set up in the wished way.
    fn new(seed: u64) -> Option<Case> {
        let mut r = Random(seed);
        let (op, rows) = r.pick(table());
        let row = *r.pick(rows);
        let places = [Place::AsListed, Place::AsListed, Place::AsListed, Place::Meta, Place::Reversed, Place::Gaps];
        let place = *r.pick(&places);
        let gradients = r.one_in(3);
        let mut args = Call::new(*op, row, place, false).ok()?.args;
        let mut op = *op;
        match (r.below(4), op.info().out) {
            (0, _) => op = in_place_form(op).unwrap_or(op),
            (1, Some(out)) => {
                op = out;
                let outs = row.out.iter().filter_map(|o| match o {
                    firebrand_opinfo::Argument::Tensor(t) => t.tensor(place).ok(),
                    _ => None,
                });
                args.extend(outs.map(Value::Tensor));
            }
            _ => {}
        }
        let all = tensors_of(&args);
        for _ in 0..r.below(4) {
            if args.is_empty() {
                break;
            }
            let k = r.below(args.len());
            args[k] = exchanged(&mut r, &args[k], &all);
        }
        if gradients {
            args = mapped(&args, &mut |t| match t.dtype().is_differentiable() && r.below(4) != 0 {
                true => t.detach().try_requires_grad_(true).unwrap_or_else(|_| t.clone()),
                false => t.clone(),
            });
        }
        Some(Case { op, args, row, random: r, gradients })
    }

    /// What is called, without calling it.
    fn describe(&self) -> String {
        let tensor = |t: &Tensor| {
            let (grad, meta) = (if t.requires_grad() { " grad" } else { "" }, if t.is_meta() { " meta" } else { "" });
            format!("{}{:?} strides {:?} at {}{grad}{meta}", t.dtype(), t.shape(), t.strides(), t.storage_offset())
        };
        let list = |v: &mut dyn Iterator<Item = String>| v.collect::<Vec<_>>().join(", ");
        let mut text = format!("{} (row of line {})", self.op.schema().text, self.row.line);
        for (k, a) in self.args.iter().enumerate() {
            let shown = match a {
                Value::Tensor(t) => tensor(t),
                Value::Tensors(v) => format!("[{}]", list(&mut v.iter().map(tensor))),
                Value::OptTensors(v) => {
                    format!("[{}]", list(&mut v.iter().map(|t| t.as_ref().map_or("none".into(), tensor))))
                }
                other => format!("{other:?}"),
            };
            text += &format!("\n    {k}: {shown}");
        }
        text
    }

    /// The whole of it; errors are fine.
    fn run(&mut self) {
        // The sizes of the results, without memory.
        let meta = mapped(&self.args, &mut |t| outline(t).unwrap_or_else(|| t.clone()));
        let mut meta = meta;
        if let Some(k) = Schema::of_op(self.op).position("device") {
            meta.resize(meta.len().max(k + 1), Value::None);
            meta[k] = Value::Device(Device::Meta);
        }
        let expected = no_grad(|| dispatch::call(self.op, &meta));
        let bytes = |t: &Tensor| t.numel().saturating_mul(t.dtype().size());
        if expected.is_ok_and(|out| tensors_of(&out).iter().any(|t| bytes(t) > LARGE)) {
            return;
        }
        if self.random.one_in(100) && !Schema::of_op(self.op).mutates() {
            self.fused();
        }
        let Ok(out) = dispatch::call(self.op, &self.args) else { return };
        if self.gradients {
            self.differentiate(&out);
        }
    }

    fn differentiate(&mut self, out: &Outputs) {
        let r = &mut self.random;
        let outputs: Vec<Tensor> =
            tensors_of(out).into_iter().filter(|t| t.requires_grad() && t.numel() < LARGE).collect();
        let inputs: Vec<Tensor> =
            tensors_of(&self.args).into_iter().filter(|t| t.requires_grad() && t.is_leaf()).collect();
        if outputs.is_empty() || inputs.is_empty() {
            return;
        }
        let seeds = outputs.iter().map(|t| match r.below(8) {
            0 => outline(t),
            1 => ops::expand(&Tensor::scalar(1.0f32), &t.sym_sizes(), false).ok(),
            _ => ops::ones_like(t, None, None, None).ok(),
        });
        let grad_outputs: Vec<Option<Tensor>> = seeds.collect();
        let create_graph = r.one_in(4);
        let options = GradOptions {
            grad_outputs,
            allow_unused: Some(true),
            create_graph,
            retain_graph: Some(true),
            ..Default::default()
        };
        let Ok(grads) = grad(&outputs[..], &inputs[..], &options) else { return };
        if create_graph {
            let second: Vec<Tensor> = grads.into_iter().flatten().filter(|g| g.requires_grad()).collect();
            let ones = second.iter().map(|g| ops::ones_like(g, None, None, None).ok()).collect();
            if !second.is_empty() {
                let _ = grad(
                    &second[..],
                    &inputs[..],
                    &GradOptions { grad_outputs: ones, allow_unused: Some(true), ..Default::default() },
                );
            }
        }
    }

    fn fused(&self) {
        let Some((module, tensors)) = one_op(self.op, &self.args) else { return };
        let inputs: Vec<RunValue> = tensors.iter().map(|t| RunValue::Tensor(t.detach())).collect();
        let plain = no_grad(|| interpret::run_module(&mut interpret::Eager::default(), &module, &inputs));
        let Ok(fused) = Fused::default().compile_graph(&module, &[]) else { return };
        let got = fused.run(&inputs, &RunCall::default());
        assert!(plain.is_err() || got.is_ok(), "fused refuses what the plain run computes: {:?}", got.err());
        // What comes back can be read.
        let results = got.iter().flatten().flat_map(RunValue::tensors);
        results
            .filter(|t| !t.is_meta() && t.numel() * t.dtype().size() <= LARGE)
            .for_each(|t| drop(t.try_clone_tensor()));
    }
}

/// A graph that calls the op once, and the tensors it takes.
fn one_op(op: Op, args: &[Value]) -> Option<(GraphModule, Vec<Tensor>)> {
    let mut graph = Graph::new();
    let inputs: Vec<NodeId> = (0..tensors_of(args).len())
        .map(|k| graph.create_node(Kind::Placeholder(format!("x{k}").into()), [], [], None))
        .collect();
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut take = |t: &Tensor| {
        tensors.push(t.clone());
        Argument::Node(inputs[tensors.len() - 1])
    };
    let number = |s: &Scalar| match *s {
        Scalar::Bool(b) => Argument::Bool(b),
        Scalar::Int(i) => Argument::Int(i),
        Scalar::Float(v) => Argument::Float(v),
        Scalar::Complex(v) => Argument::Complex(v.re, v.im),
    };
    let (mut positional, mut named) = (Vec::new(), Vec::new());
    for (arg, schema) in args.iter().zip(Schema::of_op(op).args) {
        let a = match arg {
            Value::None => Argument::None,
            Value::Tensor(t) => take(t),
            Value::Tensors(v) => Argument::list(v.iter().map(&mut take)),
            Value::OptTensors(v) => Argument::list(v.iter().map(|t| t.as_ref().map_or(Argument::None, &mut take))),
            Value::Scalar(s) => number(s),
            Value::Scalars(v) => Argument::list(v.iter().map(number)),
            Value::Int(i) => Argument::Int(i.int()),
            Value::Ints(v) => Argument::list(v.iter().map(|i| Argument::Int(i.int()))),
            Value::Float(v) => Argument::Float(*v),
            Value::Floats(v) => Argument::list(v.iter().map(|&v| Argument::Float(v))),
            Value::Bool(b) => Argument::Bool(*b),
            Value::Bools(v) => Argument::list(v.iter().map(|&b| Argument::Bool(b))),
            Value::Str(s) => Argument::Str(s.as_str().into()),
            Value::DType(d) => Argument::DType((*d).into()),
            _ => return None,
        };
        match schema.kwarg_only {
            true if a != Argument::None => named.push((Name::from(schema.name), a)),
            true => {}
            false => positional.push(a),
        }
    }
    let call = graph.create_node(Kind::CallFunction(OpOverload::from(op).into()), positional, named, None);
    let many = Schema::of_op(op).returns.len() != 1;
    let results = if many { Argument::Node(call) } else { Argument::tuple([Argument::Node(call)]) };
    graph.create_node(Kind::Output, [results], [], None);
    Some((GraphModule::new(graph), tensors))
}

/// Another value in the place of an argument; `all` are the tensors of the call.
fn exchanged(r: &mut Random, value: &Value, all: &[Tensor]) -> Value {
    if r.one_in(40) {
        return match r.below(5) {
            0 => Value::None,
            1 => Value::Int((*r.pick(INTEGERS)).into()),
            2 => Value::Tensors(Vec::new()),
            3 => Value::Str("x".into()),
            _ => all.first().map_or(Value::None, |t| Value::Tensor(t.clone())),
        };
    }
    let whole = |r: &mut Random, old: SymInt| match r.below(4) {
        0 => SymInt::from(old.int().wrapping_add(*r.pick(&[-1, 1, 2]))),
        _ => SymInt::from(*r.pick(INTEGERS)),
    };
    match value {
        Value::Tensor(t) => Value::Tensor(other_tensor(r, t, all)),
        Value::Tensors(list) => {
            let mut list = list.clone();
            match r.below(6) {
                0 => list.clear(),
                1 => list.extend(list.first().cloned()),
                2 => drop(list.pop()),
                _ => {
                    let k = r.below(list.len());
                    if let Some(t) = list.get_mut(k) {
                        *t = other_tensor(r, t, all);
                    }
                }
            }
            Value::Tensors(list)
        }
        Value::OptTensors(list) => {
            let mut list = list.clone();
            match r.below(6) {
                0 => list.clear(),
                1 => list.push(None),
                2 => list.extend(list.first().cloned()),
                _ => {
                    let k = r.below(list.len());
                    if let Some(Some(t)) = list.get_mut(k) {
                        *t = other_tensor(r, t, all);
                    }
                }
            }
            Value::OptTensors(list)
        }
        Value::Int(i) => Value::Int(whole(r, *i)),
        Value::Ints(list) => {
            let mut list = list.clone();
            match r.below(8) {
                0 => list.clear(),
                1 => list.extend(list.clone()),
                2 => list.extend(list.first().copied()),
                3 => list = (0..70).map(|_| SymInt::from(1i64)).collect(),
                _ => {
                    for _ in 0..=r.below(2) {
                        let k = r.below(list.len());
                        if let Some(i) = list.get_mut(k) {
                            *i = whole(r, *i);
                        }
                    }
                }
            }
            Value::Ints(list)
        }
        Value::Scalar(_) => Value::Scalar(match r.below(4) {
            0 => Scalar::Int(*r.pick(INTEGERS)),
            1 => Scalar::Bool(r.one_in(2)),
            2 => Scalar::Complex(Complex::new(*r.pick(FLOATS), *r.pick(FLOATS))),
            _ => Scalar::Float(*r.pick(FLOATS)),
        }),
        Value::Float(_) => Value::Float(*r.pick(FLOATS)),
        Value::Floats(list) => {
            let missing = r.below(3) / 2;
            Value::Floats(list.iter().skip(missing).map(|_| *r.pick(FLOATS)).collect())
        }
        Value::Bool(b) => Value::Bool(!b),
        Value::Bools(list) => Value::Bools(list.iter().map(|b| *b != r.one_in(2)).collect()),
        Value::DType(_) => Value::DType(*r.pick(DTYPES)),
        Value::Device(_) => Value::Device(*r.pick(&[Device::Cpu, Device::Meta])),
        Value::Str(_) => Value::Str((*r.pick(WORDS)).into()),
        Value::MemoryFormat(_) => Value::MemoryFormat(*r.pick(&[
            MemoryFormat::Contiguous,
            MemoryFormat::ChannelsLast,
            MemoryFormat::Preserve,
        ])),
        other => other.clone(),
    }
}

fn other_tensor(r: &mut Random, t: &Tensor, all: &[Tensor]) -> Tensor {
    let same = || t.clone();
    let dim = |r: &mut Random| r.below(t.ndim()) as i64;
    let made = match r.below(14) {
        0 | 1 => outline(t),
        2 => ops::to_dtype(t, *r.pick(DTYPES), false, true, None).ok(),
        3 => {
            let (a, b) = (dim(r), dim(r));
            ops::transpose(t, a, b).ok()
        }
        4 => ops::slice(t, dim(r), Some((r.below(3) as i64).into()), None, (1 + r.below(2) as i64).into()).ok(),
        // One element of a dimension for all of it.
        5 => {
            let d = dim(r);
            let size = t.shape().get(d as usize).copied().unwrap_or(1);
            let mut sizes = t.sym_sizes();
            let one = ops::slice(t, d, Some(0.into()), Some(1.into()), 1.into()).ok();
            if let Some(s) = sizes.get_mut(d as usize) {
                *s = if r.one_in(3) { SymInt::from(*r.pick(SIZES)) } else { size.into() };
            }
            one.and_then(|one| ops::expand(&one, &sizes, false).ok())
        }
        6 => {
            let mut sizes = t.sym_sizes();
            match r.below(4) {
                0 => sizes.insert(0, 1.into()),
                1 => sizes.push(1.into()),
                2 => sizes = [SymInt::from(-1i64)].into_iter().collect(),
                _ => sizes.reverse(),
            }
            ops::reshape(t, &sizes).ok()
        }
        // Other sizes, all of them small.
        7 | 8 => {
            let mut sizes: Vec<usize> = t.shape().to_vec();
            match r.below(4) {
                0 => sizes = (0..r.below(6)).map(|_| *r.pick(SIZES)).collect(),
                1 => sizes.iter_mut().for_each(|n| *n = 0),
                _ => {
                    let k = r.below(sizes.len());
                    if let Some(n) = sizes.get_mut(k) {
                        *n = *r.pick(SIZES);
                    }
                }
            }
            let fresh = Spec::new(&sizes, t.dtype(), t.device()).and_then(Tensor::try_empty).ok();
            fresh.inspect(|fresh| {
                let _ = ops::fill_(fresh, Scalar::Int(r.below(3) as i64));
            })
        }
        // Sizes that no memory has, on the device that needs none.
        9 => {
            let mut sizes: Vec<usize> = t.shape().to_vec();
            let k = r.below(sizes.len());
            if let Some(n) = sizes.get_mut(k) {
                *n = *r.pick(HUGE);
            }
            Spec::new(&sizes, t.dtype(), Device::Meta).and_then(Tensor::try_empty).ok()
        }
        10 => Some(r.pick(all).clone()),
        11 => {
            let value = match t.dtype().is_floating_point() {
                true => Scalar::Float(*r.pick(FLOATS)),
                false => Scalar::Int(*r.pick(INTEGERS)),
            };
            let copy = ops::clone(t, None).ok();
            copy.inspect(|copy| {
                let _ = ops::fill_(copy, value);
            })
        }
        12 => {
            let window = 1 + r.below(3) as i64;
            ops::unfold(t, dim(r), window, 1).ok()
        }
        _ => ops::select(t, dim(r), (-1i64).into()).ok(),
    };
    made.map_or_else(same, |t| t.detach())
}

// ---------------------------------------------------------------- running many

/// `ops [--count N] [--time S] [--seed N] [--keep-going]`.
pub(crate) fn command(arguments: &[String]) -> ExitCode {
    let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|k| arguments.get(k + 1));
    let option = |name: &str, default: u64| after(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let (seed, count) = (option("--seed", 1), option("--count", u64::MAX));
    let failed = |e: std::io::Error| {
        eprintln!("ops: {e}");
        ExitCode::from(2)
    };
    if let Some(place) = after("--child") {
        let limit = Duration::from_millis(option("--milliseconds", u64::MAX));
        let done = child(Path::new(place), seed, option("--first", 0), count, limit);
        return done.map_or_else(failed, |()| ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    let time = option("--time", if count == u64::MAX { 5 } else { u64::from(u32::MAX) });
    let keep_going = arguments.iter().any(|a| a == "--keep-going");
    let report = run(seed, count, Duration::from_secs(time), keep_going);
    report.map_or_else(failed, |report| {
        let rate = report.calls as f64 / begin.elapsed().as_secs_f64();
        println!("ops: {} calls, {rate:.0} calls/s, {} failures", report.calls, report.failures);
        if report.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// What became of a run.
struct Report {
    calls: u64,
    failures: usize,
}

/// Runs calls until `count` or `limit` is reached, in a child process. With `keep_going`, goes on after a failure.
fn run(seed: u64, count: u64, limit: Duration, keep_going: bool) -> std::io::Result<Report> {
    let begin = Instant::now();
    let place = std::env::temp_dir().join(format!("firebrand-fuzz-ops.{}", std::process::id()));
    let mut report = Report { calls: 0, failures: 0 };
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    while report.calls < count && begin.elapsed() < limit {
        let left = limit.saturating_sub(begin.elapsed()).as_millis();
        std::fs::write(&place, [0; 8])?;
        let output = Command::new(std::env::current_exe()?)
            .args(["ops", "--child"])
            .arg(&place)
            .args(["--seed", &seed.to_string(), "--first", &report.calls.to_string(), "--count"])
            .args([&count.to_string(), "--milliseconds", &left.to_string()])
            .stdout(Stdio::inherit())
            .stderr(Stdio::piped())
            .output()?;
        let mut done = [0; 8];
        let written = std::fs::read(&place)?;
        done.copy_from_slice(written.get(..8).unwrap_or(&[0; 8]));
        let at = u64::from_le_bytes(done);
        if output.status.success() {
            report.calls = at;
            break;
        }
        report.failures += 1;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let call = Case::new(mixed(seed, at)).map(|c| (c.op.name(), c.describe()));
        let (op, text) = call.unwrap_or(("no call", String::new()));
        let times = shown.entry(op.to_owned()).or_default();
        *times += 1;
        if *times <= 3 {
            eprintln!("call {at} of seed {seed}: {}\n  {text}\n  {said}", output.status);
        }
        report.calls = at + 1;
        if !keep_going {
            break;
        }
    }
    let _ = std::fs::remove_file(&place);
    Ok(report)
}

fn mixed(seed: u64, k: u64) -> u64 {
    Random(seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(k)).next()
}

/// What this process may address from now on.
fn limit_memory() {
    let limited = Command::new("prlimit")
        .args([format!("--pid={}", std::process::id()), format!("--as={MEMORY}")])
        .stderr(Stdio::null())
        .status();
    if !limited.is_ok_and(|s| s.success()) {
        eprintln!("prlimit is missing: memory has no limit");
    }
}

/// The child: calls from `first` to `count`, the current one in the file `place`. Ends the process at a failure.
fn child(place: &Path, seed: u64, first: u64, count: u64, limit: Duration) -> std::io::Result<()> {
    limit_memory();
    firebrand_core::set_num_threads(1);
    table();
    let file = std::fs::OpenOptions::new().write(true).open(place)?;
    let current = Arc::new(AtomicU64::new(first));
    watch(Arc::clone(&current));
    let message: &'static std::sync::Mutex<String> = Box::leak(Box::default());
    std::panic::set_hook(Box::new(move |info| {
        *message.lock().unwrap_or_else(|e| e.into_inner()) = info.to_string();
    }));
    let begin = Instant::now();
    let mut k = first;
    while k < count && begin.elapsed() < limit {
        current.store(k, Relaxed);
        file.write_all_at(&k.to_le_bytes(), 0)?;
        let run = || {
            if let Some(mut case) = Case::new(mixed(seed, k)) {
                case.run();
            }
        };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            eprintln!("{}", message.lock().unwrap_or_else(|e| e.into_inner()));
            std::process::exit(3);
        }
        k += 1;
    }
    file.write_all_at(&k.to_le_bytes(), 0)
}

/// How long the main thread, which makes the calls, has run on a processor. Linux says so in nanoseconds; elsewhere it is
/// the time that has passed.
fn computed(begin: Instant) -> Duration {
    let said = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", std::process::id()));
    let first = said.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.map_or_else(|| begin.elapsed(), Duration::from_nanos)
}

/// Ends the process when one call takes too long.
fn watch(current: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let begin = Instant::now();
        let (mut last, mut since, mut before) = (u64::MAX, begin, Duration::ZERO);
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let (now, used) = (current.load(Relaxed), computed(begin));
            if now != last {
                (last, since, before) = (now, Instant::now(), used);
            } else if used.saturating_sub(before) > LONGEST || since.elapsed() > LONGEST_WAIT {
                let (used, waited) = (used.saturating_sub(before), since.elapsed());
                eprintln!("the call does not end: it has computed for {used:?} in {waited:?}");
                std::process::exit(4);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn waiting_is_not_computing() {
        let begin = Instant::now();
        let said =
            std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", std::process::id())).expect("counted");
        assert!(said.split_whitespace().count() == 3, "{said}");
        assert!(computed(begin) < Duration::from_secs(3600), "nanoseconds on a processor");
    }

    #[test]
    fn a_seed_is_a_call() {
        let calls = |n| (0..n).filter_map(|k| Case::new(mixed(7, k))).map(|c| c.describe()).collect::<Vec<_>>();
        assert_eq!(calls(20), calls(20));
        assert!(calls(200).len() > 150, "few rows fail to be set up");
    }

    /// A few thousand calls; `firebrand-fuzz ops` makes millions.
    #[test]
    fn calls_end_with_a_result_or_an_error() {
        limit_memory();
        firebrand_core::set_num_threads(1);
        for k in 0..2000 {
            if let Some(mut case) = Case::new(mixed(1, k)) {
                let text = case.describe();
                assert!(catch_unwind(AssertUnwindSafe(|| case.run())).is_ok(), "call {k}: {text}");
            }
        }
    }
}
