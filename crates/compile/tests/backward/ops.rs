//! Every row of the op table: its gradient under compiled backward is that of a plain run (L-9).
//!
//! All rows share one compiled backward, so rows that differ only in sizes or numbers use one graph, and rows that differ in
//! anything else must not.

use firebrand_compile::backend;
use firebrand_compile::backends::counter;
use firebrand_compile::backward::{CompiledBackward, Options};
use firebrand_core::autograd::{GradOptions, grad};
use firebrand_core::dispatch::{Op, Value};
use firebrand_core::{DType, Tensor};
use firebrand_opinfo::{Call, FAMILIES, Place};

type Grads = Vec<Option<Tensor>>;

/// A gradient that is not the same everywhere.
fn seed(t: &Tensor) -> Tensor {
    let values: Vec<f64> = (0..t.numel()).map(|i| 0.5 + (i as f64 * 0.7).sin()).collect();
    Tensor::from_slice(&values, t.shape()).to_dtype(t.dtype())
}

fn gradients(call: &Call, compiler: Option<&CompiledBackward>) -> Option<Result<Grads, String>> {
    let results = call.run().ok()?;
    let mut roots: Vec<Tensor> = Vec::new();
    for value in &results {
        match value {
            Value::Tensor(t) => roots.push(t.clone()),
            Value::Tensors(list) => roots.extend(list.iter().cloned()),
            _ => {}
        }
    }
    roots.retain(Tensor::requires_grad);
    if roots.is_empty() || call.leaves.is_empty() {
        return None;
    }
    let options = GradOptions {
        grad_outputs: roots.iter().map(|t| Some(seed(t))).collect(),
        allow_unused: Some(true),
        ..GradOptions::default()
    };
    let _scope = compiler.map(CompiledBackward::enable);
    Some(grad(roots, call.leaves.clone(), &options).map_err(|e| e.to_string()))
}

fn numbers(t: &Tensor) -> Vec<f64> {
    let real = |t: &Tensor| t.to_dtype(DType::F64).contiguous().to_vec::<f64>();
    if t.dtype().is_complex() { [t.real(), t.imag()].iter().flat_map(real).collect() } else { real(t) }
}

/// How close numbers must be.
#[derive(Clone, Copy, PartialEq)]
enum Close {
    Exact,
    /// Sums may be taken in another order.
    Sums,
    /// As numbers of f32.
    Single,
}

fn alike(found: &Tensor, expected: &Tensor, close: Close) -> bool {
    let tolerance = match expected.dtype() {
        _ if close == Close::Exact => 0.0,
        _ if close == Close::Single => 2e-5,
        DType::F64 | DType::C128 => 1e-11,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 2e-5,
    };
    let (a, b) = (numbers(found), numbers(expected));
    let same = |(a, b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
    };
    found.dtype() == expected.dtype() && found.shape() == expected.shape() && a.iter().zip(&b).all(same)
}

fn check(call: &Call, plain: &Result<Grads, String>, compiler: &CompiledBackward, close: Close) -> Result<(), String> {
    let found = gradients(call, Some(compiler)).ok_or("it does not run")?;
    match (found, plain) {
        (Ok(found), Ok(plain)) => {
            for (k, pair) in found.iter().zip(plain).enumerate() {
                match pair {
                    (None, None) => {}
                    (Some(a), Some(b)) if alike(a, b, close) => {}
                    (a, b) => return Err(format!("gradient {k} is\n{a:?}\nexpected\n{b:?}")),
                }
            }
            Ok(())
        }
        (Err(_), Err(_)) => Ok(()),
        (Ok(_), Err(e)) => Err(format!("a plain run fails: {e}")),
        (Err(e), Ok(_)) => Err(e),
    }
}

#[test]
fn every_row_of_the_op_table() {
    let make = |name: &str| {
        let counter = counter(backend(name).expect("a known back end"));
        let options = Options { cache_limit: usize::MAX, ..Options::with_backend(counter.clone()) };
        (name.to_string(), counter, CompiledBackward::new(options))
    };
    let compilers = [make("eager"), make("firebrand")];
    let (mut rows, mut failures) = (0, Vec::new());
    for family in &FAMILIES {
        for row in family.rows().iter().filter(|r| !r.error) {
            let Some(op) = Op::from_name(&format!("aten::{}", row.op.trim_start_matches("aten::"))) else { continue };
            let random =
                op.has(firebrand_core::dispatch::Tags::NONDETERMINISTIC_SEEDED) || op.info().name.contains("empty");
            if random || firebrand_graph::schema::Schema::of_op(op).mutates() {
                continue;
            }
            for place in [Place::AsListed, Place::Reversed] {
                let Ok(call) = Call::new(op, row, place, true) else { continue };
                let Some(plain) = gradients(&call, None) else { continue };
                rows += 1;
                for (name, _, compiler) in &compilers {
                    let close = match &name[..] {
                        // A traced formula does not look at values, so it multiplies the others instead of dividing;
                        // `linalg_vander` is a cumulative product.
                        _ if row.op.contains("prod") || row.op.contains("vander") => Close::Single,
                        "eager" => Close::Exact,
                        _ => Close::Sums,
                    };
                    if let Err(why) = check(&call, &plain, compiler, close) {
                        failures
                            .push(format!("{} line {} {} {place:?} on {name}: {why}", family.name, row.line, row.op));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {rows}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
    for (name, counter, compiler) in &compilers {
        let (captures, frames) = (compiler.captures(), counter.frames());
        assert!(
            rows > 3000 && captures < rows && frames < rows,
            "{name}: {rows} rows, {captures} captures, {frames} frames"
        );
    }
}
