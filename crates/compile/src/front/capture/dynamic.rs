//! Dynamic sizes and numbers of a captured function.
//!
//! The first graph is for the sizes of the first call. A size that a later call brings another value of becomes a symbol of
//! the graph compiled for that call; sizes 0 and 1 never do, since broadcasting and memory order depend on them. After a
//! capture the graph is run at other sizes, on meta tensors: a symbol that cannot vary is tied to others of its value, or to
//! the value, and sizes of values inside the function are expressed by those of its inputs.

use super::{Body, SeenNumber, Session, State};
use crate::backend::EagerRunner;
use crate::error::{Error, Result};
use crate::front::binding::KeptSizes;
use crate::front::guard::{Dim, SizeGuard, SymbolSource};
use crate::front::leaves::Leaves;
use crate::front::marks::{self, Mark};
use crate::front::options::Dynamic;
use crate::front::source::Source;
use firebrand_core::dispatch::{Op, Value as Operand};
use firebrand_core::sym::{SymNode, SymRecord, SymRelation};
use firebrand_core::{Device, Spec, SymInt, Tensor};
use firebrand_graph::dynamic::{self, Point, SizeExpr, Sizes};
use firebrand_graph::interpret::Value;
use firebrand_graph::ir::{Argument, Function, GraphModule, NodeId, Target, Val};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What calls have brought so far, place by place.
#[derive(Default)]
pub(crate) struct Dynamics {
    tensors: Vec<Vec<SeenSize>>,
    numbers: Vec<SeenNumber>,
    sizes: Vec<SeenSize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SeenSize {
    Is(i64),
    Varies,
}

impl SeenSize {
    fn note(&mut self, size: i64) {
        if *self != SeenSize::Is(size) {
            *self = SeenSize::Varies;
        }
    }
}

/// A symbol of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) source: SymbolSource,
    pub(crate) hint: i64,
    marked: bool,
}

/// What varies in the call that is captured.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) dims: Vec<SmallVec<[Dim; 5]>>,
    pub(crate) sizes: Vec<Dim>,
    /// For each number whether it is an input.
    pub(crate) numbers: Vec<bool>,
    pub(crate) symbols: Vec<Symbol>,
}

impl Dynamics {
    /// Takes note of a call and says what varies in it.
    pub(crate) fn plan(&mut self, leaves: &Leaves<'_>, dynamic: Dynamic) -> Plan {
        let sizes_of = |t: &Tensor| t.layout().sizes().iter().map(|&n| SeenSize::Is(n as i64)).collect::<Vec<_>>();
        if self.tensors.len() != leaves.tensors.len() {
            self.tensors = leaves.tensors.iter().map(|t| sizes_of(t)).collect();
        }
        for (seen, t) in self.tensors.iter_mut().zip(&leaves.tensors) {
            if seen.len() != t.ndim() {
                *seen = sizes_of(t);
            }
            seen.iter_mut().zip(t.layout().sizes()).for_each(|(s, &n)| s.note(n as i64));
        }
        if self.numbers.len() != leaves.numbers.len() {
            self.numbers = leaves.numbers.iter().map(|n| SeenNumber::Is(n.peek())).collect();
        }
        if self.sizes.len() != leaves.sizes.len() {
            self.sizes = leaves.sizes.iter().map(|n| SeenSize::Is(n.hint())).collect();
        }
        self.sizes.iter_mut().zip(&leaves.sizes).for_each(|(s, n)| s.note(n.hint()));
        let mut plan = Plan {
            numbers: self.numbers.iter_mut().zip(&leaves.numbers).map(|(s, n)| s.note(n.peek())).collect(),
            ..Plan::default()
        };
        for (argument, (seen, t)) in self.tensors.iter().zip(&leaves.tensors).enumerate() {
            let marks = marks::of(t);
            let mark = |d: usize| marks.iter().find(|(m, _)| *m == d).map(|(_, m)| *m);
            let dims = t.layout().sizes().iter().enumerate().map(|(dim, &n)| {
                let varies = match mark(dim) {
                    Some(Mark::Dynamic | Mark::MaybeDynamic) => true,
                    Some(Mark::Static) => false,
                    None => match dynamic {
                        Dynamic::Always => true,
                        Dynamic::Never => false,
                        Dynamic::Automatic => seen[dim] == SeenSize::Varies,
                    },
                };
                if !varies || n < 2 {
                    return Dim::Is(n);
                }
                let marked = mark(dim) == Some(Mark::Dynamic);
                plan.symbol(SymbolSource::Dim { argument, dim }, n as i64, 2, marked)
            });
            let dims = dims.collect();
            plan.dims.push(dims);
        }
        for (i, (seen, n)) in self.sizes.iter().zip(&leaves.sizes).enumerate() {
            let n = n.hint();
            let dim = match (seen, dynamic) {
                (SeenSize::Varies, Dynamic::Automatic) | (_, Dynamic::Always) => {
                    plan.symbol(SymbolSource::Size(i), n, i64::MIN + 1, false)
                }
                _ => Dim::Is(n as usize),
            };
            plan.sizes.push(dim);
        }
        plan
    }
}

impl Plan {
    /// Nothing varies.
    pub(crate) fn fixed(leaves: &Leaves<'_>) -> Plan {
        Plan {
            dims: leaves.tensors.iter().map(|t| t.layout().sizes().iter().map(|&n| Dim::Is(n)).collect()).collect(),
            sizes: leaves.sizes.iter().map(|n| Dim::Is(n.hint() as usize)).collect(),
            numbers: vec![false; leaves.numbers.len()],
            symbols: Vec::new(),
        }
    }

    fn symbol(&mut self, source: SymbolSource, hint: i64, least: i64, marked: bool) -> Dim {
        self.symbols.push(Symbol { source, hint, marked });
        Dim::Symbol { symbol: self.symbols.len() as u32 - 1, least }
    }

    /// Whether any size varies.
    pub(crate) fn varies(&self) -> bool {
        !self.symbols.is_empty()
    }

    /// The value of a symbol in the call that is captured.
    pub(crate) fn hint(&self, symbol: u32) -> Option<i64> {
        self.symbols.get(symbol as usize).map(|s| s.hint)
    }
}

impl Session {
    /// A size that varies, as an input of the graph.
    pub(crate) fn input_symbol(&self, state: &mut State, symbol: u32) -> SymInt {
        let hint = self.plan.hint(symbol).unwrap_or_default();
        if !state.trace.has_symbol(symbol) {
            let node = state.trace.number(&format!("s{symbol}"), Val::SymInt(hint.into()));
            state.trace.bind_symbol(symbol, node);
            state.inputs.push((node, Source::Symbol(symbol)));
        }
        SymInt::symbol(symbol, hint)
    }

    /// What follows depends on all sizes of these.
    pub(super) fn observe_all_sizes(&self, args: &[Operand]) {
        if !self.plan.varies() {
            return;
        }
        let observe = |t: &Tensor| {
            for d in 0..t.ndim() {
                self.symbolic_size(t, d).int(); // the fact is what counts
            }
        };
        for value in args {
            match value {
                Operand::Tensor(t) => observe(t),
                Operand::Tensors(list) => list.iter().for_each(observe),
                Operand::OptTensors(list) => list.iter().flatten().for_each(observe),
                Operand::Int(n) => _ = n.int(),
                Operand::Ints(list) => list.iter().for_each(|n| _ = n.int()),
                _ => {}
            }
        }
    }

    /// An op that gives a list has given one of some length: the function holds as many tensors, so the graph is for that many.
    pub(super) fn note_length(&self, op: Op, args: &[Operand]) {
        if !self.plan.varies()
            || !matches!(op, Op::UNBIND_INT | Op::SPLIT_TENSOR | Op::UNSAFE_SPLIT_TENSOR | Op::CHUNK | Op::UNSAFE_CHUNK)
        {
            return;
        }
        let Some(Operand::Tensor(t)) = args.first() else { return };
        let dim = if let Some(Operand::Int(dim)) = args.last() { dim.hint() } else { 0 };
        let dim = if dim < 0 { dim + t.ndim() as i64 } else { dim };
        let size = self.symbolic_size(t, dim as usize);
        let one = SymInt::from(1i64);
        let pieces = |n: SymInt, of: SymInt| (n + of - one) / of;
        let length = match (op, args.get(1)) {
            (Op::UNBIND_INT, _) => size,
            (Op::SPLIT_TENSOR | Op::UNSAFE_SPLIT_TENSOR, Some(Operand::Int(of))) if of.hint() > 0 => pieces(size, *of),
            (_, Some(Operand::Int(count))) if count.hint() > 0 && size.hint() > 0 => pieces(size, pieces(size, *count)),
            _ => size,
        };
        length.int(); // the fact is what counts
    }

    pub(super) fn symbolic_size(&self, t: &Tensor, dim: usize) -> SymInt {
        let size = t.layout().sizes()[dim] as i64;
        if self.transforms() {
            return size.into(); // that of this call: the transform said so
        }
        let mut state = self.lock();
        if let Some(size) = state.size_of_gradient(t, dim, self.plan.symbols.len()) {
            return size;
        }
        match state.body() {
            Body::Function => {}
            Body::PureHook | Body::Branch => {
                // They have no inputs for sizes: they hold for those of this call.
                for (k, symbol) in self.plan.symbols.iter().enumerate() {
                    SymInt::symbol(k as u32, symbol.hint).int();
                }
                return size.into();
            }
        }
        let argument = state.sources.iter().find_map(|(o, s)| match s {
            Source::Arg(i) if o.is_same(t) => Some(*i),
            _ => None,
        });
        if let Some(i) = argument {
            return match self.plan.dims[i].get(dim) {
                Some(Dim::Symbol { symbol, .. }) => self.input_symbol(&mut state, *symbol),
                _ => size.into(),
            };
        }
        state.inner_size(t, dim, self.plan.symbols.len()).unwrap_or_else(|| size.into())
    }
}

impl State {
    /// The size of a value that the function computes, as a symbol behind those of its inputs.
    fn inner_size(&mut self, t: &Tensor, dim: usize, inputs: usize) -> Option<SymInt> {
        let size = t.layout().sizes()[dim] as i64;
        let node = self.trace.known(t)?;
        let known = self.derived.iter().find(|(_, n, d)| *n == node && *d == dim).map(|(s, ..)| *s);
        let symbol = known.unwrap_or_else(|| {
            let symbol = (inputs + self.derived.len()) as u32;
            self.derived.push((symbol, node, dim));
            self.read_size(node, dim, size, symbol);
            symbol
        });
        Some(SymInt::symbol(symbol, size))
    }

    /// Reads the size of a value in the graph, for a symbol.
    fn read_size(&mut self, node: NodeId, dim: usize, size: i64, symbol: u32) {
        let graph = &mut self.trace.module_mut().graph;
        let read = graph.call_function(Target::aten("sym_size.int"), [node.into(), Argument::Int(dim as i64)]);
        graph.meta_mut(read).val = Some(Val::SymInt(size.into()));
        self.trace.bind_symbol(symbol, read);
    }

    /// The size of the gradient that a pure hook takes: it is that of its tensor, which the function knows. In the body of
    /// the hook it is read from the gradient.
    fn size_of_gradient(&mut self, t: &Tensor, dim: usize, inputs: usize) -> Option<SymInt> {
        let mut hook = self.in_pure_hook.take_if(|hook| hook.grad.is_same(t))?;
        std::mem::swap(&mut *self.trace, &mut hook.outer);
        let size = self.inner_size(&hook.on, dim, inputs);
        std::mem::swap(&mut *self.trace, &mut hook.outer);
        self.in_pure_hook = Some(hook);
        let size = size?;
        if let Some(SymNode::Symbol(symbol)) = size.parts()
            && !self.trace.has_symbol(symbol)
        {
            let node = self.trace.known(t)?;
            self.read_size(node, dim, size.hint(), symbol);
        }
        Some(size)
    }
}

/// The symbol that varies, the values of all, and the sizes of nodes there.
type Trial = (usize, Vec<i64>, Sizes);

/// Other sizes that a graph is tried at: multiples, so that what divides a size still does.
const FACTORS: [i64; 2] = [101, 211];

/// The values with those of a group at a multiple.
fn varied(base: &[i64], group: &[usize], factor: i64) -> Vec<i64> {
    let mut values = base.to_vec();
    for &k in group {
        values[k] = base[k].saturating_mul(factor).max(2);
    }
    values
}

/// A captured graph whose sizes vary, and what is needed to try it at other sizes.
pub(super) struct Varying<'a> {
    pub(super) plan: &'a Plan,
    pub(super) graph: &'a GraphModule,
    pub(super) inputs: &'a [(Source, Option<Tensor>)],
    pub(super) derived: &'a [(u32, NodeId, usize)],
    pub(super) call: &'a crate::backend::Call,
}

impl Varying<'_> {
    /// The relations between sizes that the graph depends on, and the sizes that were read, if something may have kept them.
    pub(super) fn relations(&self, record: &SymRecord, kept: bool) -> Result<(Vec<SizeGuard>, KeptSizes)> {
        let base: Vec<i64> = self.plan.symbols.iter().map(|s| s.hint).collect();
        let mut relations = Vec::new();
        let mut trials: Vec<Trial> = Vec::new();
        // Symbols that must be equal vary together, under the first of them.
        let mut tied: Vec<usize> = (0..base.len()).collect();
        for k in 0..base.len() {
            if tied[k] != k {
                continue;
            }
            let same: Vec<usize> = (k..base.len()).filter(|&j| tied[j] == j && base[j] == base[k]).collect();
            // What user code does with sizes that do not fit is its own affair: equal ones are taken to belong together.
            let alone = match self.calls_user_code() && same.len() > 1 {
                true => Err(Error::internal("a custom function takes equal sizes")),
                false => self.trial(k, &[k], &base),
            };
            let found = match alone {
                Err(_) if same.len() > 1 => self.trial(k, &same, &base).inspect(|_| {
                    for &j in &same[1..] {
                        tied[j] = k;
                        relations.push(equal(SizeExpr::Symbol(j as u32), SizeExpr::Symbol(k as u32), None));
                    }
                }),
                found => found,
            };
            match found {
                Ok(found) => trials.extend(found),
                Err(e) => relations.push(fixed(k as u32, base[k], Some(e.to_string().into()))),
            }
        }
        let here = self.sizes_at(&base).unwrap_or_default();
        for fact in &record.facts {
            let sides = [fact.left, fact.right].map(|side| self.expr(side, record, &base, &here, &trials));
            match sides {
                [Some(left), Some(right)] => {
                    relations.push(SizeGuard { left, right, relation: fact.relation, reason: None })
                }
                // No expression fits: what it may depend on stays as it is.
                _ => relations.extend(base.iter().enumerate().map(|(k, &hint)| fixed(k as u32, hint, None))),
            }
        }
        let mut sizes = KeptSizes { table: record.table, sizes: Vec::new() };
        for index in (0..record.nodes.len()).filter(|_| kept) {
            match self.node_expr(index, record, &base, &here, &trials) {
                Some(size) => sizes.sizes.push(size),
                // No expression fits: what it may depend on stays as it is, and so does it.
                None => {
                    relations.extend(base.iter().enumerate().map(|(k, &hint)| fixed(k as u32, hint, None)));
                    sizes.sizes.push(SizeExpr::Int(record.nodes[index].1));
                }
            }
        }
        self.check_marks(&relations, &tied)?;
        Ok((relations, sizes))
    }

    /// Runs the graph at two other values of symbol `k`, with which those of `group` go.
    fn trial(&self, k: usize, group: &[usize], base: &[i64]) -> Result<Vec<Trial>> {
        let at = |factor| {
            let values = varied(base, group, factor);
            let sizes = self.sizes_at(&values)?;
            Ok((k, values, sizes))
        };
        FACTORS.into_iter().map(at).collect()
    }

    /// A dimension marked dynamic must not have to have one value.
    fn check_marks(&self, relations: &[SizeGuard], tied: &[usize]) -> Result<()> {
        let base: Vec<i64> = self.plan.symbols.iter().map(|s| s.hint).collect();
        for (k, symbol) in self.plan.symbols.iter().enumerate().filter(|(_, s)| s.marked) {
            let SymbolSource::Dim { argument, dim } = symbol.source else { continue };
            let group: Vec<usize> = (0..base.len()).filter(|&j| tied[j] == tied[k]).collect();
            let holds = |r: &SizeGuard, factor| r.holds(&varied(&base, &group, factor).into_iter().collect());
            let forces = |r: &&SizeGuard| r.relation == SymRelation::Equal && !FACTORS.iter().any(|f| holds(r, *f));
            if let Some(relation) = relations.iter().find(forces) {
                return Err(Error::ConstraintViolation {
                    argument: format!("argument {argument}"),
                    dim,
                    value: symbol.hint,
                    reason: format!("the function requires {relation}"),
                });
            }
        }
        Ok(())
    }

    fn calls_user_code(&self) -> bool {
        let g = &self.graph.graph;
        g.nodes().any(|n| g[n].target().is_some_and(|t| t.is_function(&Function::ApplyFunction)))
    }

    fn sizes_at(&self, values: &[i64]) -> Result<Sizes> {
        let inputs = self.inputs.iter().map(|(source, outline)| self.input_at(source, outline.as_ref(), values));
        let inputs = inputs.collect::<Result<Vec<Value>>>()?;
        let mut runner = EagerRunner { call: self.call, device: Some(Device::Meta) };
        let wanted = |node| self.derived.iter().any(|(_, n, _)| *n == node);
        let run = || dynamic::sizes_at(&mut runner, self.graph, &inputs, &wanted);
        // A custom function may panic where an op fails.
        let sizes = catch_unwind(AssertUnwindSafe(run));
        Ok(sizes.map_err(|_| Error::internal("a custom function does not accept these sizes"))??)
    }

    fn input_at(&self, source: &Source, outline: Option<&Tensor>, values: &[i64]) -> Result<Value> {
        match (source, outline) {
            (Source::Symbol(s), _) => Ok(Value::Scalar(values[*s as usize].into())),
            (Source::Arg(i), Some(t)) => {
                let sizes: Vec<usize> = self.plan.dims[*i]
                    .iter()
                    .map(|d| match d {
                        Dim::Is(n) => *n,
                        Dim::Symbol { symbol, .. } => values[*symbol as usize] as usize,
                    })
                    .collect();
                let layout = firebrand_core::Layout::contiguous(&sizes)?;
                let t2 = Tensor::try_empty(Spec { layout, dtype: t.dtype(), device: Device::Meta })?;
                Ok(Value::Tensor(t2))
            }
            (_, Some(t)) if t.is_wrapped_number() => Ok(Value::Scalar(1i64.into())),
            (_, Some(t)) => Ok(Value::Tensor(firebrand_graph::trace::outline(&t.detach())?)),
            (_, None) => Ok(Value::Scalar(1i64.into())),
        }
    }

    /// An expression of the capture in terms of the inputs.
    fn expr(
        &self,
        value: SymInt,
        record: &SymRecord,
        base: &[i64],
        here: &Sizes,
        trials: &[Trial],
    ) -> Option<SizeExpr> {
        match value.place_in(record) {
            None => Some(SizeExpr::Int(value.hint())),
            Some(index) => self.node_expr(index, record, base, here, trials),
        }
    }

    fn node_expr<'a>(
        &self,
        index: usize,
        record: &SymRecord,
        base: &[i64],
        here: &Sizes,
        trials: &'a [Trial],
    ) -> Option<SizeExpr> {
        match record.nodes[index].0 {
            SymNode::Symbol(s) if (s as usize) < base.len() => Some(SizeExpr::Symbol(s)),
            SymNode::Symbol(s) => {
                let (_, node, dim) = self.derived.iter().find(|(symbol, ..)| *symbol == s)?;
                let at = |sizes: &Sizes| sizes.get(node).and_then(|list| list.get(*dim)).copied();
                let point =
                    |(k, symbols, sizes): &'a Trial| Some(Point { varies: Some(*k), symbols, size: at(sizes)? });
                let points: Vec<Point<'_>> = trials.iter().map(point).collect::<Option<_>>()?;
                dynamic::fit(at(here)?, base, &points)
            }
            SymNode::Binary(op, a, b) => {
                let a = self.expr(a, record, base, here, trials)?;
                let b = self.expr(b, record, base, here, trials)?;
                Some(SizeExpr::binary(op, a, b))
            }
        }
    }
}

fn fixed(symbol: u32, hint: i64, reason: Option<Arc<str>>) -> SizeGuard {
    equal(SizeExpr::Symbol(symbol), SizeExpr::Int(hint), reason)
}

fn equal(left: SizeExpr, right: SizeExpr, reason: Option<Arc<str>>) -> SizeGuard {
    SizeGuard { left, right, relation: SymRelation::Equal, reason }
}
