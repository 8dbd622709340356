//! `firebrand ops`: lists every op with the columns of its record and the checks that the op table runs on it.

use crate::refusal::{Done, Refusal, say};
use firebrand::dispatch::{Autocast, Cost, Decomposition, Derivative, Kind, Op};
use firebrand::func::Batching;
use firebrand_compile::fused::{Fusion, fusion};
use firebrand_opinfo::{Check, Counts};
use serde_json::{Map, Value, json};

/// Arguments of `firebrand ops`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Show how many tests cover each op; fail if an op has none
    #[arg(long)]
    coverage: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// How `vmap` handles an op: by a `rule`, by its parts (`decompose`), sample by sample (`fallback`), or not at all.
fn batching(op: Op) -> &'static str {
    match op.batching() {
        Batching::Rule => "rule",
        Batching::Decompose => "decompose",
        Batching::Fallback => "fallback",
        Batching::Refused => "-",
    }
}

/// How an op is differentiated, and the name of its node if it has one.
fn derivative(op: Op) -> (&'static str, Option<&'static str>) {
    match op.info().derivative {
        Derivative::Formula(node) => ("formula", Some(node)),
        Derivative::Composite => ("composite", None),
        Derivative::NonDifferentiable => ("none", None),
    }
}

/// The columns of an op's record, one word each.
fn columns(op: Op) -> [(&'static str, &'static str); 6] {
    let info = op.info();
    let form = match info.kind {
        Kind::Functional => "functional",
        Kind::InPlace => "in_place",
        Kind::Out => "out",
        Kind::Mutable => "mutable",
    };
    let autocast = match info.autocast {
        Autocast::Lower => "lower",
        Autocast::Full => "full",
        Autocast::Widest => "widest",
        Autocast::Whole => "whole",
        Autocast::AsIs if info.derivative == Derivative::Composite => "parts",
        Autocast::AsIs => "as_is",
    };
    let decomposition = match info.decomposition {
        Decomposition::Kept => "kept",
        Decomposition::Rule => "rule",
        Decomposition::Parts => "parts",
        Decomposition::Functional => "functional",
        Decomposition::Refused => "refused",
    };
    let cost = match info.cost {
        Cost::Free => "free",
        Cost::Cheap => "cheap",
        Cost::Heavy => "heavy",
    };
    let fusion = match fusion(op) {
        Fusion::Recorded => "recorded",
        Fusion::Rule => "rule",
        Fusion::View => "view",
        Fusion::Parts => "parts",
        Fusion::Call => "call",
    };
    [
        ("form", form),
        ("batching", batching(op)),
        ("autocast", autocast),
        ("decomposition", decomposition),
        ("cost", cost),
        ("fusion", fusion),
    ]
}

fn total(counts: Option<&Counts>) -> usize {
    counts.map_or(0, |c| c.iter().sum())
}

/// Checks that run at all, such as `Forward 12, Gradcheck 4`.
fn listed(counts: Option<&Counts>) -> String {
    let some = Check::ALL.iter().zip(counts.into_iter().flatten()).filter(|(_, n)| **n > 0);
    some.map(|(check, n)| format!("{check:?} {n}")).collect::<Vec<_>>().join(", ")
}

fn print_json(op: Op, checks: Option<Option<&Counts>>) -> Done {
    let info = op.info();
    let (kind, node) = derivative(op);
    let mut line = json!({
        "name": info.name, "schema": info.schema.text, "tags": info.tags.names().collect::<Vec<_>>(),
        "derivative": kind, "node": node, "forward": info.forward,
        "functional": info.functional.map(Op::name), "in_place": info.in_place.map(Op::name), "out": info.out.map(Op::name),
        "training": info.training.map(|k| info.schema.args[usize::from(k)].name),
    });
    if let Value::Object(line) = &mut line {
        line.extend(columns(op).map(|(column, value)| (column.to_owned(), value.into())));
    }
    if let (Some(counts), Value::Object(line)) = (checks, &mut line) {
        let pairs = Check::ALL.iter().zip(counts.copied().unwrap_or_default());
        let counted: Map<String, Value> = pairs.map(|(c, n)| (format!("{c:?}"), json!(n))).collect();
        line.insert("checks".into(), counted.into());
    }
    Ok(say!("{line}")?)
}

fn print_row(op: Op, checks: Option<Option<&Counts>>) -> Done {
    let info = op.info();
    let (kind, node) = derivative(op);
    let forward = if info.forward { "forward" } else { "-" };
    let (node, batching) = (node.unwrap_or("-"), batching(op));
    let tags = info.tags.names().collect::<Vec<_>>().join(",");
    say!("{:<44} {kind:<10} {node:<32} {forward:<8} {batching:<10} {tags}", info.name)?;
    let record = columns(op).map(|(column, value)| format!("{column}={value}"));
    say!("    {}", record.join(" "))?;
    match checks {
        None => say!("    {}", info.schema.text)?,
        Some(counts) if total(counts) == 0 => say!("    no row in the op table")?,
        Some(counts) => say!("    {}", listed(counts))?,
    }
    Ok(())
}

/// Lists the ops.
pub(crate) fn run(options: &Options) -> Done {
    let coverage = options.coverage.then(firebrand_opinfo::recorded_coverage);
    let mut unchecked = Vec::new();
    for op in Op::all() {
        // Aliases and their variants are checked with the rows of the op they stand for.
        let second = op.info().alias.or_else(|| op.info().functional.and_then(|f| f.info().alias));
        let rows = second.unwrap_or(op).name();
        let checks = coverage.as_ref().map(|c| c.get(rows));
        let listed = !firebrand_opinfo::UNLISTED.iter().any(|(name, _)| *name == rows || *name == op.name());
        if listed && checks.is_some_and(|c| total(c) == 0) {
            unchecked.push(op.name());
        }
        if options.json { print_json(op, checks)? } else { print_row(op, checks)? }
    }
    if !options.json {
        let (all, formulas) = (Op::all().count(), Op::all().filter(|&op| derivative(op).0 == "formula").count());
        say!(
            "{all} ops, {formulas} with a formula, {} with forward mode, {} that vmap runs sample by sample",
            Op::all().filter(|o| o.info().forward).count(),
            Op::all().filter(|o| o.batching() == Batching::Fallback).count()
        )?;
    }
    if unchecked.is_empty() {
        return Ok(());
    }
    Err(Refusal::because(format!("{} ops have no row in the op table: {}", unchecked.len(), unchecked.join(", "))))
}
