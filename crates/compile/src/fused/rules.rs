//! Ops that are loops although they are not pointwise: constants, reductions, products of columns and rows, softmax and layer norm.
//!
//! A rule writes what the op does as folds, row instructions (which are the op's own row kernel) and plain ones; it declines
//! (none) what the loops cannot do well: short or very long rows, dimensions in the middle, integers. Then the op stays a
//! call of its own kernel.
#![deny(unreachable_patterns)] // a second rule for an op

use super::fuse::LONGEST_ROW;
use super::ir::*;
use super::lower::{OpCall, Placed, broadcast, instr, register, result_store};
use firebrand_core::dispatch::{Op as Aten, Value as Boxed};
use firebrand_core::layout::Dims;
use firebrand_core::{DType, SymInt, Tensor};
use firebrand_kernels::pointwise::{Fold, Op, RowOp, Sink, Source, Terms, Value as Number};

/// The shortest row that is worth its own pass.
const SHORTEST_ROW: usize = 64;

/// Where the number stands that an op fills its result with.
enum Fill {
    Number(Number),
    /// The argument at this position.
    Argument(usize),
}

fn fill(op: Aten) -> Option<Fill> {
    Some(match op {
        Aten::ZEROS | Aten::ZEROS_LIKE | Aten::NEW_ZEROS | Aten::ZERO => Fill::Number(Number::Int(0)),
        Aten::ONES | Aten::ONES_LIKE | Aten::NEW_ONES => Fill::Number(Number::Int(1)),
        Aten::SCALAR_TENSOR => Fill::Argument(0),
        Aten::FULL | Aten::FULL_LIKE | Aten::FILL_SCALAR => Fill::Argument(1),
        Aten::NEW_FULL => Fill::Argument(2),
        _ => return None,
    })
}

/// The number that an op fills its result with.
pub(super) fn number(call: &OpCall<'_>) -> Option<Number> {
    match fill(call.op)? {
        Fill::Number(n) => Some(n),
        Fill::Argument(k) => match call.boxed.get(k)? {
            Boxed::Scalar(s) => Some((*s).into()),
            _ => None,
        },
    }
}

/// Whether an op has a rule here.
pub(super) fn has_rule(op: Aten) -> bool {
    fill(op).is_some() || rule(op).is_some()
}

/// How the loop of an op is written.
type Rule = fn(&OpCall<'_>) -> Option<Loop>;

/// The rule of an op.
fn rule(op: Aten) -> Option<Rule> {
    Some(match op {
        Aten::SUM | Aten::SUM_DIM_INTLIST => |call| reduce(call, Fold::Sum, false),
        Aten::MEAN | Aten::MEAN_DIM => |call| reduce(call, Fold::Sum, true),
        Aten::AMAX => |call| reduce(call, Fold::Max, false),
        Aten::AMIN => |call| reduce(call, Fold::Min, false),
        Aten::_SOFTMAX => |call| softmax(call, RowOp::Softmax, false),
        Aten::_SAFE_SOFTMAX => |call| softmax(call, RowOp::Softmax, true),
        Aten::_LOG_SOFTMAX => |call| softmax(call, RowOp::LogSoftmax, false),
        Aten::_SOFTMAX_BACKWARD_DATA => |call| softmax_backward(call, RowOp::SoftmaxBackward),
        Aten::_LOG_SOFTMAX_BACKWARD_DATA => |call| softmax_backward(call, RowOp::LogSoftmaxBackward),
        Aten::MM | Aten::BMM => outer,
        Aten::NATIVE_LAYER_NORM => layer_norm,
        Aten::NATIVE_LAYER_NORM_BACKWARD => layer_norm_backward,
        _ => return None,
    })
}

/// The loop of an op, if there is a rule for it that does not decline.
pub(super) fn lower(call: &OpCall<'_>) -> Option<Loop> {
    let rule = rule(call.op)?;
    if call.results.iter().any(|r| r.numel() == 0) || call.tensors.iter().any(|t| t.meta.numel() == 0) {
        return None;
    }
    let lowered = rule(call)?;
    let in_rows = lowered.row == 1 || lowered.loads().all(|l| by_rows(&l.layout, lowered.row).is_some());
    (in_rows && call.results.iter().all(|r| r.is_contiguous())).then_some(lowered)
}

/// A loop being written.
struct Draft {
    domain: Dims,
    dtype: DType,
    operands: Vec<Operand>,
    code: Vec<Instr>,
}

impl Draft {
    /// Over the elements of this tensor; none unless they are floats.
    fn over(t: &Placed) -> Option<Draft> {
        Draft::like(&t.meta)
    }

    fn like(meta: &Tensor) -> Option<Draft> {
        let dtype = register(meta.dtype());
        let float = matches!(dtype, DType::F32 | DType::F64);
        float.then(|| Draft { domain: meta.shape().into(), dtype, operands: Vec::new(), code: Vec::new() })
    }

    fn load(&mut self, t: &Placed) -> Option<Source> {
        if register(t.meta.dtype()) != self.dtype {
            return None;
        }
        let layout = broadcast(&t.load.layout, &self.domain)?;
        self.operands.push(Operand::Load(Load { buffer: t.load.buffer, layout }));
        Some(Source::Memory(self.operands.len() - 1))
    }

    fn push(&mut self, action: Action, args: &[Source]) -> Source {
        self.code.push(instr(action, self.dtype, args));
        Source::Step(self.code.len() - 1)
    }

    fn op(&mut self, op: Op, args: &[Source]) -> Source {
        self.push(Action::Op(op), args)
    }

    fn fold(&mut self, how: Fold, v: Source) -> Source {
        self.push(Action::Fold(how), &[v])
    }

    fn row(&mut self, op: RowOp, args: &[Source]) -> Source {
        self.push(Action::Row(op), args)
    }

    fn finish(self, row: usize, stores: &[(Source, Sink)]) -> Loop {
        let stores = stores.iter().enumerate().map(|(k, &(source, sink))| result_store(k, source, sink)).collect();
        Loop { domain: self.domain, row, operands: self.operands, code: self.code, stores }
    }
}

fn value(v: f64) -> Source {
    Source::Value(Number::Float(v))
}

fn is_good_row(n: usize) -> bool {
    (SHORTEST_ROW..=LONGEST_ROW).contains(&n)
}

/// The elements of a row if `dim` is the last dimension, and a good row.
fn last_dim(t: &Placed, dim: &Boxed) -> Option<usize> {
    let Boxed::Int(dim) = dim else { return None };
    let nd = t.meta.ndim() as i64;
    let dim = dim.int();
    let row = *t.meta.shape().last()?;
    let rows_fit = by_rows(&t.load.layout, row).is_some();
    ((dim == -1 || dim == nd - 1) && is_good_row(row) && rows_fit).then_some(row)
}

fn ints(v: &Boxed) -> Option<Vec<i64>> {
    match v {
        Boxed::None => Some(Vec::new()),
        Boxed::Ints(list) => Some(list.iter().map(|i: &SymInt| i.int()).collect()),
        Boxed::Int(i) => Some(vec![i.int()]),
        _ => None,
    }
}

/// Columns times rows: one multiplication for each element, so that writing them is all the work. Gradients of each sample are such
/// products. The sum of the one term begins at zero, as every sum does: that a product of -0.0 becomes 0.0 is part of it.
fn outer(call: &OpCall<'_>) -> Option<Loop> {
    let (columns, rows, out) = (call.tensor(0)?, call.tensor(1)?, &call.results[0]);
    if columns.meta.shape().last() != Some(&1) || out.dtype() != columns.meta.dtype() {
        return None;
    }
    let mut d = Draft::like(out)?;
    let (x, y) = (d.load(columns)?, d.load(rows)?);
    let sum = d.op(Op::MulAdd, &[x, y, value(0.0)]);
    Some(d.finish(1, &[(sum, Sink::Elements)]))
}

fn reduce(call: &OpCall<'_>, how: Fold, mean: bool) -> Option<Loop> {
    let (x, out) = (call.tensor(0)?, &call.results[0]);
    if out.dtype() != x.meta.dtype() {
        return None;
    }
    let nd = x.meta.ndim();
    let over_all = matches!(call.op, Aten::SUM | Aten::MEAN);
    let given = if over_all { Vec::new() } else { ints(call.boxed.get(1)?)? };
    let mut reduced = vec![given.is_empty(); nd];
    for d in given {
        *reduced.get_mut(usize::try_from(if d < 0 { d + nd as i64 } else { d }).ok()?)? = true;
    }
    let sizes = x.meta.shape();
    // Dimensions of size one are both kept and reduced.
    let real: Vec<(usize, bool)> = (0..nd).filter(|&d| sizes[d] != 1).map(|d| (sizes[d], reduced[d])).collect();
    let count: usize = real.iter().filter(|(_, r)| *r).map(|(n, _)| n).product();
    let factor = if mean { 1.0 / count as f64 } else { 1.0 };
    let mut d = Draft::over(x)?;
    let v = d.load(x)?;
    if real.is_empty() {
        return None;
    }
    if how == Fold::Sum && real.iter().all(|(_, r)| *r) {
        return Some(d.finish(1, &[(v, Sink::Total(factor))]));
    }
    let switch = real.iter().position(|(_, r)| *r != real[0].1)?;
    if real[switch..].iter().any(|(_, r)| *r == real[0].1) {
        return None;
    }
    let row: usize = real[switch..].iter().map(|(n, _)| n).product();
    by_rows(&x.load.layout, row)?;
    if real[0].1 {
        // Leading dimensions go: one sum per place in a row.
        let fits = how == Fold::Sum && (8..=LONGEST_ROW).contains(&row);
        return fits.then(|| d.finish(row, &[(v, Sink::Columns(factor))]));
    }
    if !is_good_row(row) {
        return None;
    }
    let mut r = d.fold(how, v);
    if mean {
        r = d.op(Op::Mul, &[r, value(factor)]);
    }
    Some(d.finish(row, &[(r, Sink::Rows)]))
}

/// A `safe` one is zero in rows where nothing is allowed.
fn softmax(call: &OpCall<'_>, op: RowOp, safe: bool) -> Option<Loop> {
    let x = call.tensor(0)?;
    if call.results[0].dtype() != x.meta.dtype() {
        return None;
    }
    let row = last_dim(x, call.boxed.get(1)?)?;
    let mut d = Draft::over(x)?;
    let v = d.load(x)?;
    let mut y = d.row(op, &[v]);
    if safe {
        let most = d.fold(Fold::Max, v);
        let nothing = d.op(Op::Eq, &[most, value(f64::NEG_INFINITY)]);
        y = d.op(Op::Where, &[nothing, value(0.0), y]);
    }
    Some(d.finish(row, &[(y, Sink::Elements)]))
}

fn softmax_backward(call: &OpCall<'_>, op: RowOp) -> Option<Loop> {
    let (grad, output) = (call.tensor(0)?, call.tensor(1)?);
    let row = last_dim(output, call.boxed.get(2)?)?;
    by_rows(&grad.load.layout, row)?;
    let mut d = Draft::over(output)?;
    let (g, y) = (d.load(grad)?, d.load(output)?);
    let out = d.row(op, &[g, y]);
    Some(d.finish(row, &[(out, Sink::Elements)]))
}

/// The elements of a row of a layer norm, if all its tensors are of one float type and lie in rows.
fn norm_row(call: &OpCall<'_>, shape: usize) -> Option<usize> {
    let row: i64 = ints(call.boxed.get(shape)?)?.iter().product();
    let row = usize::try_from(row).ok().filter(|&n| is_good_row(n))?;
    let dtype = call.tensors.first()?.meta.dtype();
    let float = matches!(dtype, DType::F32 | DType::F64);
    let alike = call.tensors.iter().map(|t| &t.meta).chain(call.results).all(|t| t.dtype() == dtype);
    (float && alike).then_some(row)
}

fn layer_norm(call: &OpCall<'_>) -> Option<Loop> {
    let x = call.tensor(0)?;
    let row = norm_row(call, 1)?;
    by_rows(&x.load.layout, row)?;
    let Boxed::Float(eps) = call.boxed.get(4)? else { return None };
    let mut d = Draft::over(x)?;
    let v = d.load(x)?;
    let part = value(1.0 / row as f64);
    let sum = d.fold(Fold::Sum, v);
    let mean = d.op(Op::Mul, &[sum, part]);
    let total = d.push(Action::Sum(Terms::SquaredDifferences), &[v, mean]);
    let variance = d.op(Op::MulAdd, &[total, part, value(*eps)]);
    let rstd = d.op(Op::Rsqrt, &[variance]);
    let mut or = |t: Option<&Placed>, missing: f64| t.map_or(Some(value(missing)), |t| d.load(t));
    let (w, b) = (or(call.tensor(2), 1.0)?, or(call.tensor(3), 0.0)?);
    let y = d.row(RowOp::LayerNorm, &[v, mean, rstd, w, b]);
    Some(d.finish(row, &[(y, Sink::Elements), (mean, Sink::Rows), (rstd, Sink::Rows)]))
}

fn layer_norm_backward(call: &OpCall<'_>) -> Option<Loop> {
    let (grad, x, mean, rstd) = (call.tensor(0)?, call.tensor(1)?, call.tensor(3)?, call.tensor(4)?);
    let weight = call.tensor(5)?;
    if call.results.len() != 3 {
        return None;
    }
    let row = norm_row(call, 2)?;
    by_rows(&x.load.layout, row)?;
    by_rows(&grad.load.layout, row)?;
    let mut d = Draft::over(x)?;
    let (g, v, m, r, w) = (d.load(grad)?, d.load(x)?, d.load(mean)?, d.load(rstd)?, d.load(weight)?);
    let out = d.row(RowOp::LayerNormBackward, &[g, v, m, r, w]);
    let sums = [0, 1].map(|k| d.push(Action::OverRows(k), &[out]));
    let columns = Sink::Columns(1.0);
    Some(d.finish(row, &[(out, Sink::Elements), (sums[0], columns), (sums[1], columns)]))
}
