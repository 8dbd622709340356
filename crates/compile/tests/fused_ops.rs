//! The fused back end against the plain run, for every row of the op table: docs/behaviour/compile-and-hooks.md (e.3), L-11.
//!
//! Each row is a graph of one op. In `bitwise` mode results are the plain ones to the bit; otherwise sums may differ in order.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_compile::fused::{Fused, FusedOptions};
use firebrand_compile::{Call as RunCall, ExampleInput, ExampleValue, Executable, Value};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{MemoryFormat as Format, Op, Tags, Value as Boxed};
use firebrand_core::{DType, Scalar, Tensor};
use firebrand_graph::ir::*;
use firebrand_graph::schema::Schema;
use firebrand_opinfo::{Call, FAMILIES, Place};

/// A graph that calls the op once, and the tensors it takes.
fn one_op(op: Op, args: &[Boxed]) -> Option<(GraphModule, Vec<Tensor>)> {
    let mut graph = Graph::new();
    let mut tensors: Vec<Tensor> = Vec::new();
    let count = args.iter().map(|a| match a {
        Boxed::Tensor(_) => 1,
        Boxed::Tensors(v) => v.len(),
        Boxed::OptTensors(v) => v.iter().flatten().count(),
        _ => 0,
    });
    let inputs: Vec<NodeId> = (0..count.sum::<usize>())
        .map(|k| graph.create_node(Kind::Placeholder(format!("x{k}").into()), [], [], None))
        .collect();
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
    let mut positional = Vec::new();
    let mut named = Vec::new();
    for (arg, schema) in args.iter().zip(Schema::of_op(op).args) {
        let a = match arg {
            Boxed::None => Argument::None,
            Boxed::Tensor(t) => take(t),
            Boxed::Tensors(v) => Argument::list(v.iter().map(&mut take)),
            Boxed::OptTensors(v) => Argument::list(v.iter().map(|t| t.as_ref().map_or(Argument::None, &mut take))),
            Boxed::Scalar(s) => number(s),
            Boxed::Scalars(v) => Argument::list(v.iter().map(number)),
            Boxed::Int(i) => Argument::Int(i.int()),
            Boxed::Ints(v) => Argument::list(v.iter().map(|i| Argument::Int(i.int()))),
            Boxed::Float(v) => Argument::Float(*v),
            Boxed::Floats(v) => Argument::list(v.iter().map(|&v| Argument::Float(v))),
            Boxed::Bool(b) => Argument::Bool(*b),
            Boxed::Bools(v) => Argument::list(v.iter().map(|&b| Argument::Bool(b))),
            Boxed::Str(s) => Argument::Str(s.as_str().into()),
            Boxed::DType(d) => Argument::DType((*d).into()),
            Boxed::MemoryFormat(Format::Contiguous) => Argument::MemoryFormat(MemoryFormat::Contiguous),
            Boxed::MemoryFormat(Format::ChannelsLast) => Argument::MemoryFormat(MemoryFormat::ChannelsLast),
            Boxed::MemoryFormat(Format::Preserve) => Argument::MemoryFormat(MemoryFormat::Preserve),
            _ => return None,
        };
        if schema.kwarg_only {
            if a != Argument::None {
                named.push((Name::from(schema.name), a));
            }
        } else {
            positional.push(a);
        }
    }
    let call = graph.create_node(Kind::CallFunction(OpOverload::from(op).into()), positional, named, None);
    let many = Schema::of_op(op).returns.len() != 1;
    let results = if many { Argument::Node(call) } else { Argument::tuple([Argument::Node(call)]) };
    graph.create_node(Kind::Output, [results], [], None);
    Some((GraphModule::new(graph), tensors))
}

fn bits(t: &Tensor) -> Vec<u64> {
    if t.is_floating_point() {
        let f = |v: f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
        return t.to_dtype(DType::F64).contiguous().to_vec::<f64>().into_iter().map(f).collect();
    }
    t.to_dtype(DType::I64).contiguous().to_vec::<i64>().into_iter().map(|v| v as u64).collect()
}

fn flat(values: &[Value]) -> Vec<Tensor> {
    values.iter().flat_map(|v| v.tensors().into_iter().cloned().collect::<Vec<_>>()).collect()
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    let eps = match a.dtype() {
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 1e-5,
    };
    let (a, b) =
        (a.to_dtype(DType::F64).contiguous().to_vec::<f64>(), b.to_dtype(DType::F64).contiguous().to_vec::<f64>());
    a.iter()
        .zip(&b)
        .all(|(x, y)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= eps * x.abs().max(y.abs()).max(1.0))
}

fn compare(op: Op, args: &[Boxed], bitwise: bool) -> Option<Result<usize, String>> {
    let (module, tensors) = one_op(op, args)?;
    let inputs: Vec<Value> = tensors.iter().map(|t| Value::Tensor(t.detach())).collect();
    let plain = no_grad(|| {
        firebrand_graph::interpret::run_module(&mut firebrand_graph::interpret::Eager::default(), &module, &inputs)
    });
    let Ok(plain) = plain else { return None };
    let plain = flat(std::slice::from_ref(&plain));
    let examples: Vec<ExampleInput> = tensors
        .iter()
        .map(|t| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false })
        .collect();
    Some((|| {
        let fused =
            Fused::new(FusedOptions { bitwise }).compile_graph(&module, &examples).map_err(|e| e.to_string())?;
        let got = flat(&fused.run(&inputs, &RunCall::default()).map_err(|e| e.to_string())?);
        if got.len() != plain.len() {
            return Err(format!("{} results, expected {}", got.len(), plain.len()));
        }
        for (g, p) in got.iter().zip(&plain) {
            if g.shape() != p.shape() || g.strides() != p.strides() || g.dtype() != p.dtype() {
                return Err(format!(
                    "{:?} {:?} {}, expected {:?} {:?} {}",
                    g.shape(),
                    g.strides(),
                    g.dtype(),
                    p.shape(),
                    p.strides(),
                    p.dtype()
                ));
            }
            let same = if bitwise { bits(g) == bits(p) } else { close(g, p) };
            if !same {
                return Err(format!("{g}\nexpected\n{p}"));
            }
        }
        Ok(fused.stats().first().map_or(0, |s| s.kernels))
    })())
}

/// L-11: in bitwise mode a fused op is the plain one to the bit, for every op, dtype and layout of the table.
#[test]
fn every_row_of_the_op_table() {
    let (mut rows, mut fused, mut failures) = (0, 0, Vec::new());
    for family in &FAMILIES {
        for row in family.rows().iter().filter(|r| !r.error) {
            let Some(op) = Op::from_name(&format!("aten::{}", row.op.trim_start_matches("aten::"))) else { continue };
            let info = op.info();
            if Schema::of_op(op).mutates()
                || info.tags.has(Tags::NONDETERMINISTIC_SEEDED)
                || info.name.contains("empty")
            {
                continue;
            }
            for (place, bitwise) in
                [(Place::AsListed, true), (Place::AsListed, false), (Place::Reversed, true), (Place::Gaps, true)]
            {
                let Ok(call) = Call::new(op, row, place, false) else { continue };
                match compare(op, &call.args, bitwise) {
                    None => {}
                    Some(Ok(kernels)) => {
                        rows += 1;
                        fused += usize::from(kernels > 0);
                    }
                    Some(Err(why)) => failures.push(format!(
                        "{} line {} {} {place:?} bitwise {bitwise}: {why}",
                        family.name, row.line, row.op
                    )),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {rows}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
    assert!(fused > 2000, "{fused} of {rows} rows became kernels");
}
