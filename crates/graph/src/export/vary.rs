//! Export with dynamic sizes: the function is traced at the sizes of the example and at others, and the traces become one
//! graph. Where the function fails at other sizes, or does something else, the op that forces a size is named.

use super::{Export, TraceLayer};
use crate::dynamic::{Difference, Places, Sample, Symbol, merge, remainders};
use crate::error::{Error, Result};
use crate::ir::{Expr, GraphModule, Kind};
use crate::text::print_node;
use firebrand_core::Tensor;
use firebrand_core::autograd::is_grad_enabled;
use std::sync::Arc;

type Function<'a> = &'a dyn Fn(&[Tensor]) -> firebrand_core::Result<Vec<Tensor>>;

/// Traces a function at several sizes. The symbols come back with the ranges it works for.
pub(super) fn trace(
    export: &Export<'_>,
    places: &Places,
    mut symbols: Vec<Symbol>,
    f: Function<'_>,
) -> Result<(GraphModule, Vec<Symbol>)> {
    let hints: Vec<i64> = symbols.iter().map(|s| s.hint).collect();
    let layer = Arc::new(TraceLayer::new(is_grad_enabled()));
    let outlines = export.begin(&layer, places, &hints)?;
    let results = super::layer::above_autograd(&layer, || f(&outlines))?;
    let base = Sample { varies: None, symbols: hints.clone(), module: layer.finish(&results)? };
    let trials = Trials { export, places, f, names: (0..symbols.len()).map(Symbol::expr).collect(), base };
    let mut others = Vec::new();
    for (k, symbol) in symbols.iter().enumerate() {
        for value in symbol.others() {
            let found = trials.at(&[k], value);
            others.push(found.map_err(|refusal| trials.specialized(&symbols, k, value, refusal))?);
        }
    }
    if symbols.len() > 1 {
        // All of them at once, each by another amount, so that products and sums differ.
        for step in 0..2 {
            let next = |s: &Symbol| s.others().get(step).copied().unwrap_or(s.hint);
            let values: Vec<i64> = symbols.iter().map(next).collect();
            let found = trials.traced(None, values.clone());
            others.push(found.map_err(|refusal| trials.specialized(&symbols, 0, values[0], refusal))?);
        }
    }
    let mut module = trials.merged(&symbols, &others)?;
    // A quotient is known only when every remainder was looked at.
    let mut looked_at = 1;
    while let Some(divisor) = remainders(&module, looked_at) {
        for (k, symbol) in symbols.iter().enumerate() {
            for value in symbol.around(divisor) {
                let found = trials.at(&[k], value);
                others.push(found.map_err(|refusal| trials.specialized(&symbols, k, value, refusal))?);
            }
        }
        looked_at = divisor;
        module = trials.merged(&symbols, &others)?;
    }
    for (k, symbol) in symbols.iter_mut().enumerate() {
        if symbol.range.min.is_none() {
            symbol.range.min = Some(trials.smallest(k, &mut others));
        }
    }
    Ok((module, symbols))
}

/// Why a function does not work at other sizes: the node of the first trace that is to blame, and what happens.
struct Refusal {
    node: String,
    message: String,
}

impl From<Difference> for Refusal {
    fn from(d: Difference) -> Refusal {
        Refusal { node: d.node, message: d.message }
    }
}

struct Trials<'a> {
    export: &'a Export<'a>,
    places: &'a Places,
    f: Function<'a>,
    names: Vec<Expr>,
    base: Sample,
}

impl Trials<'_> {
    /// The function with some symbols at another value.
    fn at(&self, group: &[usize], value: i64) -> Result<Sample, Refusal> {
        let mut values = self.base.symbols.clone();
        group.iter().for_each(|&k| values[k] = value);
        self.traced(group.first().copied(), values)
    }

    fn traced(&self, varies: Option<usize>, symbols: Vec<i64>) -> Result<Sample, Refusal> {
        let plain = |e: Error| Refusal { node: "the function".into(), message: e.to_string() };
        let layer = Arc::new(TraceLayer::trial(is_grad_enabled()));
        let outlines = self.export.begin(&layer, self.places, &symbols).map_err(plain)?;
        let results = layer.attempt(|| (self.f)(&outlines));
        let results = results.map_err(|(reached, message)| Refusal { node: self.node(reached), message })?;
        let module = layer.finish(&results).map_err(plain)?;
        Ok(Sample { varies, symbols, module })
    }

    fn merged(&self, symbols: &[Symbol], others: &[Sample]) -> Result<GraphModule> {
        merge(&self.base, others, &self.names).map_err(|d| {
            let trace = &others[d.trace];
            let k = trace.varies.unwrap_or(0);
            self.specialized(symbols, k, trace.symbols[k], d.into())
        })
    }

    /// The op of the first trace after this many nodes.
    fn node(&self, reached: usize) -> String {
        let graph = &self.base.module.graph;
        let is_op = |n: &_| matches!(graph[*n].kind(), Kind::CallFunction(t) if t.overload().is_some());
        graph.nodes().skip(reached).find(is_op).map_or_else(|| "the function".into(), |n| print_node(graph, n))
    }

    /// The error for symbol `k`, which cannot be `value`.
    fn specialized(&self, symbols: &[Symbol], k: usize, value: i64, refusal: Refusal) -> Error {
        let symbol = &symbols[k];
        let tied: Vec<usize> = (0..symbols.len()).filter(|&j| j != k && symbols[j].hint == symbol.hint).collect();
        let equal = tied.iter().find(|&&j| self.at(&[k, j], value).is_ok_and(|t| self.agrees(t)));
        let advice = match equal {
            Some(&j) => format!("it must be equal to Dim {}; use one Dim for both", symbols[j].dim),
            None => "remove its Dim, or narrow the range".to_string(),
        };
        let (input, dim) = symbol.place;
        Error::Specialized {
            dim: symbol.dim.clone(),
            place: format!("size {dim} of {}", self.export.name(input)),
            value: symbol.hint,
            op: refusal.node,
            message: format!("at {value}, {}; {advice}", refusal.message),
        }
    }

    /// Whether a trace differs from the first one by integers only.
    fn agrees(&self, trace: Sample) -> bool {
        merge(&self.base, &[trace], &self.names).is_ok()
    }

    /// The smallest value of symbol `k` that the function does the same for: all between it and the example do.
    fn smallest(&self, k: usize, others: &mut Vec<Sample>) -> i64 {
        let mut works = |value: i64| {
            let Ok(trace) = self.at(&[k], value) else { return false };
            others.push(trace);
            let agrees = merge(&self.base, others, &self.names).is_ok();
            if !agrees {
                others.pop();
            }
            agrees
        };
        let (mut fails, mut least) = (-1, self.base.symbols[k]);
        while least - fails > 1 {
            let middle = fails + (least - fails) / 2;
            if works(middle) { least = middle } else { fails = middle }
        }
        least
    }
}
