//! Every op against PyTorch: one test per family of the op table and kind of check.
//!
//!     cargo test -p firebrand-core --test opinfo                        # everything
//!     cargo test -p firebrand-core --test opinfo reduce::               # one family
//!     cargo test -p firebrand-core --test opinfo gradcheck              # one kind of check
//!     OPINFO_FILTER=aten::sum.,logsumexp cargo test ...                 # ops whose name contains one of these
//!     OPINFO_ROWS=12,40-52 cargo test ... pointwise::                   # lines of golden/opinfo/<family>.json
//!     OPINFO_ALL=1 cargo test ...                                       # list every failure, not the first forty
//!
//! How many rows drive each check stands in `rows.txt` (`UPDATE_EXPECT=1` writes it anew), so that no check runs dry
//! unseen. The row model, the checks and the known differences from PyTorch (with their reasons, `deviations.rs`) are the
//! crate `firebrand-opinfo`; the file format is described in `golden/README.md`.
#![allow(clippy::unwrap_used)]

use expect_test::expect_file;
use firebrand_core::dispatch::{Args, Op};
use firebrand_core::library::{Definition, define};
use firebrand_core::{DType, Result, Tensor, num_threads};
use firebrand_opinfo::{Argument, Check, FAMILIES, Family, Numbers, Row, TensorData, UNLISTED, coverage, deviations};
use std::fmt::Write;

/// What the environment restricts the run to.
struct Filter {
    ops: Vec<String>,
    lines: Vec<(usize, usize)>,
}

impl Filter {
    fn from_env() -> Filter {
        let list = |name: &str| -> Vec<String> {
            let text = std::env::var(name).unwrap_or_default();
            text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(String::from).collect()
        };
        let lines = list("OPINFO_ROWS").into_iter().map(|s| {
            let (a, b) = s.split_once('-').unwrap_or((&s, &s));
            (a.parse().expect("a line number"), b.parse().expect("a line number"))
        });
        Filter { ops: list("OPINFO_FILTER"), lines: lines.collect() }
    }

    fn admits(&self, row: &Row) -> bool {
        (self.ops.is_empty() || self.ops.iter().any(|f| row.op.contains(f)))
            && (self.lines.is_empty() || self.lines.iter().any(|(a, b)| (*a..=*b).contains(&row.line)))
    }
}

fn run(family: &str, check: Check) {
    let family = Family::named(family).expect("a family of the table");
    let filter = Filter::from_env();
    let mut ran = 0;
    let mut failures = Vec::new();
    for row in family.rows().iter().filter(|r| filter.admits(r)) {
        let Some(op) = Op::from_name(&row.op) else {
            failures.push(format!("{}.json:{} {}: there is no such op", family.name, row.line, row.op));
            continue;
        };
        if !check.applies(op, row) {
            continue;
        }
        ran += 1;
        if let Err(why) = check.run(op, row) {
            failures.push(format!("{}.json:{} {} {check:?}: {why}", family.name, row.line, row.op));
        }
    }
    println!("{} {check:?}: {ran} rows, {} failures", family.name, failures.len());
    if !failures.is_empty() {
        let shown = if std::env::var_os("OPINFO_ALL").is_some() { failures.len() } else { 40 };
        let mut text = String::new();
        for f in failures.iter().take(shown) {
            let _ = writeln!(text, "  {f}");
        }
        panic!("{} of {ran} rows fail {check:?}:\n{text}", failures.len());
    }
}

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family {
            use super::{Check, run};
            families!(@checks stringify!($family);
                forward Forward, inplace Inplace, out Out, refusal Refusal, meta Meta, layouts Layouts, threads Threads,
                gradients Gradients, gradcheck Gradcheck, gradgradcheck Gradgradcheck, forward_mode ForwardMode,
                vmap Vmap, batched_gradients BatchedGradients, transforms Transforms);
        })*

        /// A family or check that is missing here would be passed over silently.
        #[test]
        fn every_family_is_tested() {
            let here = [$(stringify!($family)),*];
            assert!(FAMILIES.iter().map(|f| f.name).eq(here));
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/opinfo");
            for entry in std::fs::read_dir(folder).expect("the folder of the op table") {
                let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
                if let Some(family) = name.strip_suffix(".json") {
                    assert!(here.contains(&family), "golden/opinfo/{name} is not read");
                }
            }
        }
    };
    (@checks $family:expr; $($name:ident $check:ident),*) => {
        const _: () = assert!(Check::ALL.len() == [$(Check::$check),*].len());
        $(#[test]
        fn $name() {
            run($family, Check::$check)
        })*
    };
}
families!(
    beyond, complex, conv_pool, creation, database, extra, fft, index, linalg, lists, matmul, named, norm_loss,
    pointwise, reduce, special, view
);

#[test]
fn deviations_are_not_stale() {
    for d in deviations::DEVIATIONS {
        let used =
            FAMILIES.iter().flat_map(Family::rows).any(|row| Check::ALL.into_iter().any(|check| d.covers(check, row)));
        assert!(used, "no row needs this deviation: {}", d.reason);
    }
}

/// An op is in the table, or is the writing form of one that is, or a second name of one.
#[test]
fn every_op_has_rows() {
    let coverage = coverage();
    let listed = |op: Op| coverage.contains_key(op.name()) || UNLISTED.iter().any(|(name, _)| *name == op.name());
    let second = |op: Op| op.info().alias.or_else(|| op.info().functional.and_then(|f| f.info().alias));
    let missing: Vec<&str> =
        Op::all().filter(|&op| !listed(op) && !second(op).is_some_and(listed)).map(Op::name).collect();
    assert!(missing.is_empty(), "ops without a row in golden/opinfo: {missing:#?}");
}

/// Every op has rows for every check that concerns it, or says why not.
#[test]
fn every_op_has_every_check() {
    let gaps = firebrand_opinfo::complete::gaps();
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

/// What an op does, its second names do, and their forms what its forms do.
#[test]
fn second_names() {
    let mut failures = Vec::new();
    for alias in Op::all().filter(|op| op.info().alias.is_some()) {
        let op = alias.info().alias.expect("a second name");
        let mut ran = 0;
        for row in FAMILIES.iter().flat_map(Family::rows).filter(|row| Op::from_name(&row.op) == Some(op)) {
            for check in [Check::Forward, Check::Gradients, Check::Refusal, Check::Inplace, Check::Out, Check::Meta] {
                if check.applies(alias, row) {
                    ran += 1;
                    failures.extend(check.run(alias, row).err().map(|why| format!("{alias:?} {check:?}: {why}")));
                }
            }
        }
        assert!(ran > 0, "{alias:?} was never called");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// How many rows drive each check, family by family. A row or check that is lost shows here.
#[test]
fn rows_of_every_check() {
    let mut text = format!("{:<18}", "");
    for family in &FAMILIES {
        let _ = write!(text, "{:>11}", family.name);
    }
    for check in Check::ALL {
        let _ = write!(text, "\n{:<18}", format!("{check:?}"));
        for family in &FAMILIES {
            let applies = |row: &&Row| Op::from_name(&row.op).is_some_and(|op| check.applies(op, row));
            let _ = write!(text, "{:>11}", family.rows().iter().filter(applies).count());
        }
    }
    expect_file!["rows.txt"].assert_eq(&(text + "\n"));
}

/// x³ with its gradient, the sample that the checks below are tried on.
fn cube_row() -> Row {
    let x = [0.5, -1.25, 2.0, 0.75, -0.5, 1.5];
    let data = |of: fn(f64) -> f64, grad| TensorData {
        dtype: DType::F64,
        shape: vec![2, 3],
        data: Some(Numbers::Floats(x.iter().map(|&x| of(x)).collect())),
        strides: None,
        grad,
    };
    Row {
        line: 0,
        sample: 0,
        op: "test::cube.default".into(),
        args: vec![Argument::Tensor(data(|x| x, true))],
        kwargs: Vec::new(),
        out: vec![Argument::Tensor(data(|x| x * x * x, false))],
        after: Vec::new(),
        seeds: vec![Some(data(|_| 1.0, false))],
        grads: Some(vec![data(|x| 3.0 * x * x, false)]),
        error: false,
        tags: Vec::new(),
    }
}

fn cube(a: &Args<'_>) -> Result<Vec<Tensor>> {
    let x = a.tensor(0, "x")?;
    Ok(vec![x * x * x])
}

/// 3 x², times what flows in.
fn slope(x: &Tensor, flow: &Option<Tensor>) -> Vec<Option<Tensor>> {
    vec![flow.as_ref().map(|g| g * x * x * 3.0)]
}

/// The cube as a registered op, right in every way.
fn cube_op(name: &str) -> Definition {
    define(format!("test::{name}(Tensor x) -> Tensor"))
        .shape(|a| Ok(vec![a.tensor(0, "x")?.spec().clone()]))
        .kernel(cube)
        .backward(|call, g| Ok(slope(call.args().tensor(0, "x")?, &g[0])))
        .jvp(|call, t| Ok(slope(call.args().tensor(0, "x")?, &t[0])))
        .vmap(|_, dims, a| Ok((cube(a)?, vec![dims[0]])))
}

/// A batch whose samples have changed places.
fn mixed(x: &Tensor, dim: Option<usize>) -> Tensor {
    dim.map_or(x.clone(), |d| x.flip(d))
}

/// Every check sees what it is there for: it accepts an op that is right, and refuses one that is wrong in one respect.
#[test]
fn checks_can_fail() {
    let register = |d: Definition| d.register().unwrap().op();
    let right = register(cube_op("cube"));
    let result = register(cube_op("wrong_result").kernel(|a| Ok(vec![&cube(a)?[0] + 1e-6])));
    let shape = register(cube_op("wrong_shape").shape(|a| Ok(vec![a.tensor(0, "x")?.t().spec().clone()])));
    let threads = register(cube_op("wrong_threads").kernel(|a| Ok(vec![a.tensor(0, "x")? * num_threads() as f64])));
    let gradient =
        register(cube_op("wrong_gradient").backward(|call, g| Ok(slope(&(call.args().tensor(0, "x")? * 1.01), &g[0]))));
    let second =
        register(cube_op("wrong_second").backward(|call, g| Ok(slope(&call.args().tensor(0, "x")?.detach(), &g[0]))));
    let tangent =
        register(cube_op("wrong_tangent").jvp(|call, t| Ok(slope(&(call.args().tensor(0, "x")? * 1.1), &t[0]))));
    let batch =
        register(cube_op("wrong_batch").vmap(|_, dims, a| Ok((vec![mixed(&cube(a)?[0], dims[0])], dims.to_vec()))));
    let pass_on = define("test::pass_on(Tensor x) -> Tensor")
        .kernel(|a| Ok(vec![a.tensor(0, "x")?.clone_tensor()]))
        .backward(|_, g| Ok(g.to_vec()))
        .vmap(|_, dims, a| Ok((vec![mixed(a.tensor(0, "x")?, dims[0])], dims.to_vec())))
        .register()
        .unwrap();
    let transformed = register(cube_op("wrong_batch_of_slopes").backward(move |call, g| {
        let x = pass_on.call1(&[call.args().tensor(0, "x")?.into()])?;
        Ok(slope(&x, &g[0]))
    }));
    let batched = register(cube_op("wrong_batched_gradient").backward(move |call, g| {
        let flow = g[0].as_ref().map(|g| pass_on.call1(&[g.into()])).transpose()?;
        Ok(slope(call.args().tensor(0, "x")?, &flow))
    }));
    for (check, wrong) in [
        (Check::Forward, result),
        (Check::Layouts, result),
        (Check::Meta, shape),
        (Check::Threads, threads),
        (Check::Gradients, gradient),
        (Check::Gradcheck, gradient),
        (Check::Gradgradcheck, second),
        (Check::ForwardMode, tangent),
        (Check::Vmap, batch),
        (Check::BatchedGradients, batched),
        (Check::Transforms, transformed),
    ] {
        let row = cube_row();
        check.run(right, &row).unwrap_or_else(|e| panic!("{check:?} refuses an op that is right: {e}"));
        assert!(check.run(wrong, &row).is_err(), "{check:?} accepts {}", wrong.name());
    }
    // A row whose expectations are spoilt, for the forms that registered ops do not have.
    let op = Op::MUL_TENSOR;
    let rows = Family::named("pointwise").expect("a family").rows();
    let sample =
        rows.iter().find(|r| r.op == op.name() && r.grads.is_some() && r.is_base()).expect("mul has gradients");
    for check in [Check::Inplace, Check::Out] {
        let mut row = sample.clone();
        check.run(op, &row).unwrap_or_else(|e| panic!("{check:?}: {e}"));
        match &mut row.out[0] {
            Argument::Tensor(TensorData { data: Some(Numbers::Floats(v)), .. }) => v[0] += 1e-6,
            other => panic!("{other:?}"),
        }
        assert!(check.run(op, &row).is_err(), "{check:?} accepts a wrong result");
    }
    let mut row = sample.clone();
    match &mut row.grads.as_mut().expect("gradients")[0].data {
        Some(Numbers::Floats(v)) => v[0] += 1e-6,
        other => panic!("{other:?}"),
    }
    assert!(Check::Inplace.run(op, &row).is_err(), "Inplace accepts a wrong gradient");
    let refused = rows.iter().find(|r| r.op == op.name() && r.error).expect("mul refuses something");
    Check::Refusal.run(op, refused).unwrap_or_else(|e| panic!("{e}"));
    assert!(Check::Refusal.run(op, sample).is_err(), "Refusal accepts a call that goes through");
}
