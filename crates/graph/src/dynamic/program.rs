//! Passes that run a program on meta tensors, on programs whose sizes vary: the pass runs at several sizes, and what comes
//! out becomes one program over the same symbols.

use super::{Sample, Symbol, merge, remainders};
use crate::call::{bind, evaluate};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::{Device, Spec, Tensor};
use indexmap::IndexMap;
use std::sync::Arc;

/// Runs a pass that knows sizes by their values at export (`hint`) only.
pub(crate) fn at_all_sizes(
    program: &ExportedProgram,
    pass: &'static str,
    run: impl Fn(&ExportedProgram) -> Result<ExportedProgram>,
) -> Result<ExportedProgram> {
    let (names, symbols) = symbols_of(program)?;
    if symbols.is_empty() {
        return run(program);
    }
    let exprs: Vec<Expr> = names.values().cloned().collect();
    let hints: Vec<i64> = symbols.iter().map(|s| s.hint).collect();
    let mut result = run(program)?;
    let traced = |varies, symbols: Vec<i64>| {
        let there = run(&program_at(program, &names, &symbols)?)?;
        Ok::<_, Error>(Sample { varies, symbols, module: (*there.module).clone() })
    };
    let alone = |k: usize, value: i64| {
        let mut values = hints.clone();
        values[k] = value;
        traced(Some(k), values)
    };
    let mut others = Vec::new();
    for (k, symbol) in symbols.iter().enumerate() {
        for value in symbol.others() {
            others.push(alone(k, value)?);
        }
    }
    if symbols.len() > 1 {
        let next = |s: &Symbol| s.others().first().copied().unwrap_or(s.hint);
        others.push(traced(None, symbols.iter().map(next).collect())?);
    }
    let base = Sample { varies: None, symbols: hints.clone(), module: (*result.module).clone() };
    let merged = |others: &[Sample]| {
        merge(&base, others, &exprs).map_err(|d| {
            let at = names.keys().zip(&others[d.trace].symbols).map(|(n, v)| format!("{n} = {v}"));
            let at = at.collect::<Vec<_>>().join(", ");
            Error::Pass { pass, message: format!("{} is another one at {at}: {}", d.node, d.message) }
        })
    };
    let mut module = merged(&others)?;
    let mut looked_at = 1;
    while let Some(divisor) = remainders(&module, looked_at) {
        for (k, symbol) in symbols.iter().enumerate() {
            for value in symbol.around(divisor) {
                others.push(alone(k, value)?);
            }
        }
        looked_at = divisor;
        module = merged(&others)?;
    }
    result.module = Arc::new(module);
    Ok(result)
}

/// The symbols of the inputs' sizes, as they are written, and what is known of them.
fn symbols_of(program: &ExportedProgram) -> Result<(IndexMap<String, Expr>, Vec<Symbol>)> {
    let graph = &program.module.graph;
    let mut names = IndexMap::new();
    let mut inputs = Vec::new();
    for n in graph.placeholders() {
        let Some(Val::Tensor(meta)) = &graph[n].meta().val else { continue };
        let exprs: Vec<&Expr> = meta.sizes.iter().filter_map(SymInt::expr).collect();
        if exprs.is_empty() {
            continue;
        }
        exprs.iter().for_each(|e| collect(e, &mut names));
        let sizes: Option<Vec<usize>> = meta.sizes.iter().map(|s| usize::try_from(s.hint()?).ok()).collect();
        let (Some(sizes), Some(dtype)) = (sizes, meta.dtype.dtype()) else {
            let message = "its sizes have no value at export, or its dtype cannot be computed with".into();
            return Err(Error::Input { name: graph[n].name().to_string(), message });
        };
        inputs.push((&**graph[n].name(), &**meta, Tensor::try_empty(Spec::new(&sizes, dtype, Device::Meta)?)?));
    }
    if names.is_empty() {
        return Ok((names, Vec::new()));
    }
    let given = inputs.iter().map(|(name, meta, t)| (*name, *meta, t));
    let bound = bind(given, std::iter::empty(), &IndexMap::new())?;
    let mut symbols = Vec::new();
    for name in names.keys() {
        let hint = bound.get(name).ok_or_else(|| Error::Value(format!("no input determines the value of {name}")))?;
        let range = program.range_constraints.get(name).copied().unwrap_or_default();
        symbols.push(Symbol { dim: name.clone(), place: (0, 0), range, hint });
    }
    Ok((names, symbols))
}

fn collect(expr: &Expr, names: &mut IndexMap<String, Expr>) {
    match expr {
        Expr::Symbol(name, _) => _ = names.entry(name.to_string()).or_insert_with(|| expr.clone()),
        Expr::Call(_, args) => args.iter().for_each(|a| collect(a, names)),
        _ => {}
    }
}

/// The program with the sizes of its inputs at these values of the symbols.
fn program_at(program: &ExportedProgram, names: &IndexMap<String, Expr>, values: &[i64]) -> Result<ExportedProgram> {
    let mut module = (*program.module).clone();
    let inputs: Vec<NodeId> = module.graph.placeholders().collect();
    let value = |s: &SymInt| match s {
        Symbolic::Known(v) => Symbolic::Known(*v),
        Symbolic::Expr { expr, .. } => {
            let found = evaluate(expr, &|name| names.get_index_of(name).map(|k| values[k]));
            Symbolic::Expr { expr: expr.clone(), hint: found.and_then(|n| n.int()) }
        }
    };
    for n in inputs {
        let meta = module.graph.meta_mut(n);
        match &meta.val {
            Some(Val::Tensor(t)) => {
                let all = |list: &[SymInt]| list.iter().map(value).collect::<Vec<_>>();
                let (sizes, strides) = (all(&t.sizes), all(&t.strides));
                let storage_offset = value(&t.storage_offset);
                meta.val = Some(Val::Tensor(Arc::new(TensorMeta { sizes, strides, storage_offset, ..(**t).clone() })));
            }
            Some(Val::SymInt(s)) => meta.val = Some(Val::SymInt(value(s))),
            _ => {}
        }
    }
    Ok(ExportedProgram { module: Arc::new(module), ..program.clone() })
}
