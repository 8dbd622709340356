//! Every op against PyTorch: one test per family of the op table and kind of check.
//!
//!     cargo test -p firebrand-core --test opinfo                        # everything
//!     cargo test -p firebrand-core --test opinfo reduce::               # one family
//!     cargo test -p firebrand-core --test opinfo gradcheck              # one kind of check
//!     OPINFO_FILTER=aten::sum.,logsumexp cargo test ...                 # ops whose name contains one of these
//!     OPINFO_ROWS=12,40-52 cargo test ... pointwise::                   # lines of golden/opinfo/<family>.json
//!     OPINFO_ALL=1 cargo test ...                                       # list every failure, not the first forty
//!
//! Rows of ops the program does not have are passed over. The row model, the checks and the known differences from
//! PyTorch (with their reasons, `deviations.rs`) are the crate `firebrand-opinfo`; the file format is described in
//! `golden/README.md`.
#![allow(clippy::unwrap_used)]

use firebrand_core::dispatch::Op;
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

    fn is_set(&self) -> bool {
        !self.ops.is_empty() || !self.lines.is_empty()
    }

    fn admits(&self, row: &Row) -> bool {
        (self.ops.is_empty() || self.ops.iter().any(|f| row.op.contains(f)))
            && (self.lines.is_empty() || self.lines.iter().any(|(a, b)| (*a..=*b).contains(&row.line)))
    }
}

fn run(family: &str, check: Check) {
    let family = Family::named(family).expect("a family of the table");
    let filter = Filter::from_env();
    let (mut known, mut ran) = (0, 0);
    let mut failures = Vec::new();
    for row in family.rows().iter().filter(|r| filter.admits(r)) {
        let Some(op) = Op::from_name(&row.op) else { continue };
        known += 1;
        if !check.applies(op, row) {
            continue;
        }
        ran += 1;
        if let Err(why) = check.run(op, row) {
            failures.push(format!("{}.json:{} {} {check:?}: {why}", family.name, row.line, row.op));
        }
    }
    println!("{} {check:?}: {ran} rows, {} failures", family.name, failures.len());
    assert!(
        ran > 0 || known == 0 || filter.is_set() || check != Check::Forward,
        "{}: {known} rows, but none was checked",
        family.name
    );
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
families!(beyond, complex, conv_pool, creation, fft, index, linalg, matmul, norm_loss, pointwise, reduce, view);

#[test]
fn deviations_are_not_stale() {
    for d in deviations::DEVIATIONS {
        let used =
            FAMILIES.iter().flat_map(Family::rows).any(|row| Check::ALL.into_iter().any(|check| d.covers(check, row)));
        assert!(used, "no row needs this deviation: {}", d.reason);
    }
}

/// An op is in the table, or is the writing form of one that is.
#[test]
fn every_op_has_rows() {
    let coverage = coverage();
    let missing: Vec<&str> = Op::all()
        .map(Op::name)
        .filter(|name| !coverage.contains_key(name) && !UNLISTED.iter().any(|(op, _)| op == name))
        // They run ops that have rows; tests/foreach.rs compares each with its own.
        .filter(|name| !name.starts_with("aten::_foreach_"))
        // Optimiser steps: crates/nn/tests/optim.rs compares them with PyTorch's.
        .filter(|name| !name.starts_with("aten::_fused_"))
        .collect();
    assert!(missing.is_empty(), "ops without a row in golden/opinfo: {missing:#?}");
}

/// Every check sees what it is there for: each fails on a row whose expectations are changed.
#[test]
fn checks_can_fail() {
    let op = Op::MUL_TENSOR;
    let sample = || {
        let text = Family::named("pointwise").expect("a family").rows();
        let row = text.iter().find(|r| r.op == op.name() && r.grads.is_some() && r.is_base());
        row.expect("a sample of mul with gradients").clone()
    };
    let spoil = |t: &mut TensorData| match &mut t.data {
        Some(Numbers::Floats(v)) => v[0] += 1e-6,
        other => panic!("{other:?}"),
    };
    let spoil_out = |row: &mut Row| match &mut row.out[0] {
        Argument::Tensor(t) => spoil(t),
        other => panic!("{other:?}"),
    };
    for check in [Check::Forward, Check::Inplace, Check::Out, Check::Layouts] {
        let mut row = sample();
        assert!(check.run(op, &row).is_ok(), "{check:?}");
        spoil_out(&mut row);
        assert!(check.run(op, &row).is_err(), "{check:?} accepts a wrong result");
    }
    for check in [Check::Gradients, Check::ForwardMode, Check::Inplace, Check::Layouts] {
        let mut row = sample();
        spoil(&mut row.grads.as_mut().expect("gradients")[0]);
        assert!(check.run(op, &row).is_err(), "{check:?} accepts a wrong gradient");
    }
    assert!(Check::Refusal.run(op, &sample()).is_err());
    let mut row = sample();
    row.out =
        vec![row.seeds[0].clone().map(|s| TensorData { shape: vec![7], ..s }).map_or(Argument::None, Argument::Tensor)];
    assert!(Check::Meta.run(op, &row).is_err());
}
