//! merge: combines several traces of one function, each at different sizes, into one graph over symbols.
//!
//! The traces must agree in everything except integers. An integer that differs becomes an expression of the inputs' sizes;
//! nodes that compute it follow the inputs. Where the traces differ otherwise, the function does not do the same
//! for all sizes, and the first difference says where.

use super::{Point, SizeExpr, fit, size_function};
use crate::ir::*;
use crate::text::print_node;
use std::collections::HashMap;
use std::sync::Arc;

/// A function traced at one set of values of the symbols.
pub(crate) struct Sample {
    /// See [`Point`].
    pub(crate) varies: Option<usize>,
    pub(crate) symbols: Vec<i64>,
    pub(crate) module: GraphModule,
}

/// Where two traces are not the same.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The node, as text, in the first trace.
    pub(crate) node: String,
    /// Which of the other traces differs.
    pub(crate) trace: usize,
    pub(crate) message: String,
}

/// One graph for all of them. `names` are the symbols.
pub(crate) fn merge(base: &Sample, others: &[Sample], names: &[Expr]) -> Result<GraphModule, Difference> {
    let modules: Vec<&GraphModule> = others.iter().map(|t| &t.module).collect();
    let points = others.iter().map(|t| Point { varies: t.varies, symbols: &t.symbols, size: 0 }).collect();
    Merge { base: &base.symbols, points, names }.module(&base.module, &modules)
}

struct Merge<'a> {
    base: &'a [i64],
    points: Vec<Point<'a>>,
    names: &'a [Expr],
}

/// Integers of one place: in the first trace, and in the others.
type Everywhere<T> = (T, Vec<T>);

impl Merge<'_> {
    fn module(&self, base: &GraphModule, others: &[&GraphModule]) -> Result<GraphModule, Difference> {
        let rows: Vec<Vec<NodeId>> = others.iter().map(|m| m.graph.nodes().collect()).collect();
        let positions = |graph: &Graph| graph.nodes().enumerate().map(|(i, n)| (n, i)).collect::<HashMap<_, _>>();
        let mut level = Level {
            merge: self,
            others,
            at: positions(&base.graph),
            others_at: others.iter().map(|m| positions(&m.graph)).collect(),
            cursor: base.graph.placeholders().last(),
            sizes: Vec::new(),
            inputs: Vec::new(),
            out: base.clone(),
        };
        for (i, n) in base.graph.nodes().enumerate() {
            let mut row = Vec::with_capacity(rows.len());
            for (trace, nodes) in rows.iter().enumerate() {
                row.push(*nodes.get(i).ok_or_else(|| Difference {
                    node: print_node(&base.graph, n),
                    trace,
                    message: "it is not reached".into(),
                })?);
            }
            level.node(base, n, &row)?;
        }
        Ok(level.out)
    }

    fn fit(&self, (here, there): &Everywhere<i64>) -> Option<SizeExpr> {
        if there.iter().all(|v| v == here) {
            return Some(SizeExpr::Int(*here));
        }
        let points: Vec<Point<'_>> = self.points.iter().zip(there).map(|(p, v)| Point { size: *v, ..*p }).collect();
        fit(*here, self.base, &points)
    }

    /// Like [`Merge::fit`], at the points only where `counts` holds.
    fn fit_where(&self, (here, there): &Everywhere<i64>, counts: &[bool]) -> Option<SizeExpr> {
        let all = self.points.iter().zip(there).zip(counts).filter(|(_, c)| **c);
        let points: Vec<Point<'_>> = all.map(|((p, v), _)| Point { size: *v, ..*p }).collect();
        fit(*here, self.base, &points)
    }

    fn symbolic(&self, size: &SizeExpr) -> SymInt {
        match size {
            SizeExpr::Int(v) => Symbolic::Known(*v),
            other => Symbolic::Expr { expr: Arc::new(other.named(self.names)), hint: other.value(self.base) },
        }
    }
}

/// What became of a part of a node; if it differs, in which of the other traces, and how.
type Merged<T> = Result<T, (usize, String)>;
/// Positional and named arguments.
type Arguments = (Vec<Argument>, Vec<(Name, Argument)>);

/// One graph in the making.
struct Level<'a> {
    merge: &'a Merge<'a>,
    others: &'a [&'a GraphModule],
    at: HashMap<NodeId, usize>,
    others_at: Vec<HashMap<NodeId, usize>>,
    /// Nodes for sizes go behind this one.
    cursor: Option<NodeId>,
    sizes: Vec<(SizeExpr, NodeId)>,
    /// Sizes of inputs: node, dimension, what it is.
    inputs: Vec<(NodeId, usize, SizeExpr)>,
    out: GraphModule,
}

impl Level<'_> {
    fn node(&mut self, base: &GraphModule, n: NodeId, row: &[NodeId]) -> Result<(), Difference> {
        let node = &base.graph[n];
        let differs = |trace: usize, message: String| Difference { node: print_node(&base.graph, n), trace, message };
        let others: Vec<&Node> = self.others.iter().zip(row).map(|(m, o)| &m.graph[*o]).collect();
        for (trace, (other, id)) in others.iter().zip(row).enumerate() {
            if other.kind() != node.kind() {
                let found = print_node(&self.others[trace].graph, *id);
                return Err(differs(trace, format!("{found} takes its place")));
            }
        }
        let vals = others.iter().map(|o| o.meta().val.clone()).collect::<Vec<_>>();
        if let Some(val) = &node.meta().val {
            let vals: Option<Vec<&Val>> = vals.iter().map(Option::as_ref).collect();
            let vals = vals.ok_or_else(|| differs(0, "nothing is known of its value".into()))?;
            let merged = self.val(val, &vals).map_err(|(trace, message)| differs(trace, message))?;
            if let (Kind::Placeholder(_), Val::Tensor(meta)) = (node.kind(), val) {
                self.note_input(n, meta, &vals);
            }
            if let (Kind::Placeholder(_), Some(here)) = (node.kind(), size_hint(val)) {
                let there: Option<Vec<i64>> = vals.iter().map(|v| size_hint(v)).collect();
                let size = there.and_then(|there| self.merge.fit(&(here, there)));
                self.sizes.extend(size.map(|size| (size, n)));
            }
            if matches!(node.kind(), Kind::GetAttr(_)) && merged != *val {
                return Err(differs(0, "it is a constant whose sizes depend on those of the inputs".into()));
            }
            self.out.graph.meta_mut(n).val = Some(merged);
        }
        if let Kind::GetAttr(path) = node.kind()
            && let Some(body) = base.subgraph(path)
        {
            let bodies: Option<Vec<&GraphModule>> =
                self.others.iter().map(|m| m.subgraph(path).map(|b| &**b)).collect();
            let bodies = bodies.ok_or_else(|| differs(0, "its sub-graph is missing".into()))?;
            let body = self.merge.module(body, &bodies)?;
            self.out.attributes.set(path, Attribute::Graph(Arc::new(body)));
        }
        let fail = |(trace, message)| differs(trace, message);
        let (args, kwargs) = self.arguments(node, &others).map_err(fail)?;
        if args != node.args() || kwargs != node.kwargs() {
            self.out.graph.set_arguments(n, args, kwargs);
        }
        Ok(())
    }

    fn note_input(&mut self, n: NodeId, meta: &TensorMeta, vals: &[&Val]) {
        for dim in 0..meta.sizes.len() {
            let sizes = everywhere(meta, vals, |m| m.sizes.get(dim)?.hint());
            if let Some(size) = sizes.and_then(|s| self.merge.fit(&s)) {
                self.inputs.push((n, dim, size));
            }
        }
    }

    fn arguments(&mut self, node: &Node, others: &[&Node]) -> Merged<Arguments> {
        // What is left out has its default value: written out where another trace gives it.
        let longest = others.iter().map(|o| o.args().len()).chain([node.args().len()]).max().unwrap_or(0);
        let mut args = Vec::with_capacity(longest);
        for k in 0..longest {
            let of = |n: &Node| n.args().get(k).cloned().or_else(|| left_out(n, |s| s.args.get(k)));
            args.push(self.one(of(node), others.iter().map(|o| of(o)).collect())?);
        }
        let mut keys: Vec<Name> = Vec::new();
        for (key, _) in [node].into_iter().chain(others.iter().copied()).flat_map(|n| n.kwargs()) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        let mut kwargs = Vec::with_capacity(keys.len());
        for key in keys {
            let of = |n: &Node| {
                let given = n.kwargs().iter().find(|(k, _)| *k == key).map(|(_, a)| a.clone());
                given.or_else(|| left_out(n, |s| s.args.iter().find(|a| a.name == &*key)))
            };
            let merged = self.one(of(node), others.iter().map(|o| of(o)).collect())?;
            kwargs.push((key, merged));
        }
        Ok((args, kwargs))
    }

    fn one(&mut self, base: Option<Argument>, others: Vec<Option<Argument>>) -> Merged<Argument> {
        let others: Option<Vec<Argument>> = others.into_iter().collect();
        match (base, others) {
            (Some(base), Some(others)) => self.argument(&base, &others.iter().collect::<Vec<_>>()),
            _ => Err((0, "it takes another number of arguments".into())),
        }
    }

    fn argument(&mut self, base: &Argument, others: &[&Argument]) -> Merged<Argument> {
        let apart = |trace: usize, a: &Argument| {
            (trace, format!("an argument is {a:?} instead of {base:?}; only integers may depend on a size"))
        };
        if let Argument::Int(here) = base {
            let there: Option<Vec<i64>> =
                others.iter().map(|a| if let Argument::Int(v) = a { Some(*v) } else { None }).collect();
            let Some(there) = there else {
                let odd = others.iter().position(|a| !matches!(a, Argument::Int(_))).unwrap_or(0);
                return Err(apart(odd, others[odd]));
            };
            let odd = there.iter().position(|v| v != here).unwrap_or(0);
            let values = (*here, there);
            let fitted = self.merge.fit(&values);
            let size =
                fitted.ok_or_else(|| (odd, format!("{} is not a simple function of the sizes", list(&values))))?;
            return self.size(&size).map_err(|message| (odd, message));
        }
        let items = |a: &Argument| match a {
            Argument::Slice(parts) => Some(parts.to_vec()),
            Argument::Tuple(items) | Argument::List(items) => Some(items.to_vec()),
            Argument::Dict(entries) => Some(entries.iter().map(|(_, a)| a.clone()).collect()),
            _ => None,
        };
        let Some(own) = items(base) else {
            let same = |(j, a): &(usize, &&Argument)| match (base, **a) {
                (Argument::Node(b), Argument::Node(o)) => self.at.get(b) == self.others_at[*j].get(o),
                (Argument::Float(b), Argument::Float(o)) => b.to_bits() == o.to_bits(),
                (b, o) => b == o,
            };
            return match others.iter().enumerate().find(|pair| !same(pair)) {
                None => Ok(base.clone()),
                Some((trace, a)) => Err(apart(trace, a)),
            };
        };
        let mut columns: Vec<Vec<Argument>> = Vec::with_capacity(others.len());
        for (trace, a) in others.iter().enumerate() {
            let alike = std::mem::discriminant(*a) == std::mem::discriminant(base);
            match items(a).filter(|i| alike && i.len() == own.len()) {
                Some(column) => columns.push(column),
                None => return Err(apart(trace, a)),
            }
        }
        let mut merged = Vec::with_capacity(own.len());
        for (k, item) in own.iter().enumerate() {
            let row: Vec<&Argument> = columns.iter().map(|c| &c[k]).collect();
            merged.push(self.argument(item, &row)?);
        }
        Ok(match base {
            Argument::Slice(_) => {
                let [a, b, c] = &merged[..] else { return Err((0, "a slice has three parts".into())) };
                Argument::Slice(Arc::new([a.clone(), b.clone(), c.clone()]))
            }
            Argument::Tuple(_) => Argument::tuple(merged),
            Argument::Dict(entries) => Argument::Dict(entries.iter().map(|(k, _)| k.clone()).zip(merged).collect()),
            _ => Argument::list(merged),
        })
    }

    /// The argument that stands for a size: a number, or a node that computes it.
    fn size(&mut self, size: &SizeExpr) -> Result<Argument, String> {
        if let SizeExpr::Int(v) = size {
            return Ok(Argument::Int(*v));
        }
        if let Some((_, node)) = self.sizes.iter().find(|(s, _)| s == size) {
            return Ok((*node).into());
        }
        let node = match size {
            SizeExpr::Symbol(s) => self.symbol(*s)?,
            SizeExpr::Binary(op, parts) => {
                let args = [self.size(&parts.0)?, self.size(&parts.1)?];
                self.call(Target::from(size_function(*op)), args, size)
            }
            SizeExpr::Int(_) => unreachable!("answered above"),
        };
        self.sizes.push((size.clone(), node));
        Ok(node.into())
    }

    /// Reads a symbol off an input: one that has it as a size, or a multiple of it and a number.
    fn symbol(&mut self, symbol: u32) -> Result<NodeId, String> {
        let plain = SizeExpr::Symbol(symbol);
        let found = self.inputs.iter().find(|(_, _, s)| *s == plain).cloned();
        if let Some((input, dim, size)) = found {
            return Ok(self.read(input, dim, &size));
        }
        for (input, dim, size) in self.inputs.clone() {
            // times·s + plus
            let mut at = vec![0i64; self.merge.base.len()];
            let zero = size.value(&at);
            at[symbol as usize] = 1;
            let (Some(plus), Some(one)) = (zero, size.value(&at)) else { continue };
            let times = one - plus;
            if times == 0 || size != plain.clone().times(times).plus(plus) {
                continue;
            }
            let mut node: NodeId = self.read(input, dim, &size);
            let mut rest = size.clone();
            if plus != 0 {
                rest = plain.clone().times(times);
                node = self.call(Target::from(Function::Sub), [node.into(), plus.into()], &rest);
            }
            if rest != plain {
                node = self.call(Target::from(Function::FloorDiv), [node.into(), times.into()], &plain);
            }
            return Ok(node);
        }
        Err(format!("no input here determines the value of s{symbol}"))
    }

    fn read(&mut self, input: NodeId, dim: usize, size: &SizeExpr) -> NodeId {
        self.call(Target::aten("sym_size.int"), [input.into(), (dim as i64).into()], size)
    }

    fn call(&mut self, target: Target, args: [Argument; 2], size: &SizeExpr) -> NodeId {
        let at = self.cursor.map_or(InsertPoint::Front, InsertPoint::After);
        let node = self.out.graph.inserting(at, |g| g.call_function(target, args));
        self.out.graph.meta_mut(node).val = Some(Val::SymInt(self.merge.symbolic(size)));
        self.cursor = Some(node);
        node
    }

    fn val(&self, base: &Val, others: &[&Val]) -> Merged<Val> {
        Ok(match base {
            Val::Tensor(meta) => Val::Tensor(Arc::new(self.meta(meta, others)?)),
            Val::SymInt(s) => {
                let there: Option<Vec<i64>> = others.iter().map(|v| size_hint(v)).collect();
                let fitted = s.hint().zip(there).and_then(|v| self.merge.fit(&v));
                Val::SymInt(self.merge.symbolic(&fitted.ok_or((0, "its value is not a function of the sizes".into()))?))
            }
            Val::Tuple(items) | Val::List(items) => {
                let mut merged = Vec::with_capacity(items.len());
                for (k, item) in items.iter().enumerate() {
                    let row: Option<Vec<&Val>> = others.iter().map(|o| o.items()?.get(k)).collect();
                    let row = row.ok_or((0, "it has another number of results".to_string()))?;
                    merged.push(self.val(item, &row)?);
                }
                if let Some(trace) = others.iter().position(|o| o.items().map(<[_]>::len) != Some(items.len())) {
                    return Err((trace, "it has another number of results".into()));
                }
                if let Val::Tuple(_) = base { Val::Tuple(merged.into()) } else { Val::List(merged.into()) }
            }
            other => match others.iter().position(|o| *o != other) {
                None => other.clone(),
                Some(trace) => return Err((trace, format!("its value is {}, not {other}", others[trace]))),
            },
        })
    }

    fn meta(&self, base: &TensorMeta, others: &[&Val]) -> Merged<TensorMeta> {
        let mut merged = base.clone();
        for (trace, other) in others.iter().enumerate() {
            let alike = other.tensor().is_some_and(|o| {
                let plain = |m: &TensorMeta| (m.dtype, m.sizes.len(), m.layout, m.requires_grad, m.device.clone());
                plain(o) == plain(base)
            });
            if !alike {
                return Err((trace, format!("its value is {other}, not {base}")));
            }
        }
        let missing = || (0, "its sizes are not known".to_string());
        let mut sizes = Vec::with_capacity(base.sizes.len());
        for dim in 0..base.sizes.len() {
            let values = everywhere(base, others, |m| m.sizes[dim].hint()).ok_or_else(missing)?;
            let odd = values.1.iter().position(|v| *v != values.0).unwrap_or(0);
            let size = self.merge.fit(&values).ok_or_else(|| {
                (odd, format!("its size {dim} is {}, which is not a simple function of the sizes", list(&values)))
            })?;
            merged.sizes[dim] = self.merge.symbolic(&size);
            sizes.push(size);
        }
        // A dimension of one element or none has any stride; such traces say nothing of strides.
        let told = |(base, other): (&SymInt, &SymInt)| match other.hint() {
            Some(n) if n > 1 => true,
            n => n == Some(1) && base.hint() == n,
        };
        let full = |o: &&Val| o.tensor().is_some_and(|m| base.sizes.iter().zip(&m.sizes).all(told));
        let counts: Vec<bool> = others.iter().map(full).collect();
        let mut strides: Vec<Option<SizeExpr>> = vec![None; base.strides.len()];
        let mut order: Vec<usize> = (0..base.strides.len()).collect();
        order.sort_by_key(|&d| base.strides[d].hint());
        for &dim in &order {
            let values = everywhere(base, others, |m| m.strides[dim].hint()).ok_or_else(missing)?;
            let product = order.iter().filter(|&&d| d != dim).find_map(|&d| {
                // The stride of another dimension times its size, wherever it was looked at.
                let step = everywhere(base, others, |m| m.strides[d].hint()?.checked_mul(m.sizes[d].hint()?))?;
                let same = step.0 == values.0
                    && step.1.iter().zip(&values.1).zip(&counts).all(|((a, b), counts)| !counts || a == b);
                let (stride, size) = (strides[d].clone().filter(|_| same)?, sizes[d].clone());
                Some(product(stride, size))
            });
            let odd = values.1.iter().position(|v| *v != values.0).unwrap_or(0);
            let stride = product.or_else(|| self.merge.fit_where(&values, &counts)).ok_or_else(|| {
                (odd, format!("its stride {dim} is {}, which is not a simple function of the sizes", list(&values)))
            })?;
            merged.strides[dim] = self.merge.symbolic(&stride);
            strides[dim] = Some(stride);
        }
        let offsets = everywhere(base, others, |m| m.storage_offset.hint()).ok_or_else(missing)?;
        let offset = self.merge.fit_where(&offsets, &counts);
        let offset = offset.ok_or_else(|| (0, format!("its offset is {}: no simple function", list(&offsets))))?;
        merged.storage_offset = self.merge.symbolic(&offset);
        Ok(merged)
    }
}

fn product(a: SizeExpr, b: SizeExpr) -> SizeExpr {
    match (a, b) {
        (SizeExpr::Int(x), SizeExpr::Int(y)) => SizeExpr::Int(x.saturating_mul(y)),
        (SizeExpr::Int(n), e) | (e, SizeExpr::Int(n)) => e.times(n),
        (a, b) => SizeExpr::binary(firebrand_core::sym::SymOp::Mul, a, b),
    }
}

/// The value of a symbolic integer.
fn size_hint(val: &Val) -> Option<i64> {
    if let Val::SymInt(s) = val { s.hint() } else { None }
}

/// A number of a tensor in all traces.
fn everywhere(
    base: &TensorMeta,
    others: &[&Val],
    read: impl Fn(&TensorMeta) -> Option<i64>,
) -> Option<Everywhere<i64>> {
    let there = others.iter().map(|o| read(o.tensor()?)).collect::<Option<Vec<i64>>>()?;
    Some((read(base)?, there))
}

fn list((here, there): &Everywhere<i64>) -> String {
    let shown: Vec<String> = there.iter().take(4).map(i64::to_string).collect();
    format!("{here} (elsewhere {})", shown.join(", "))
}

/// What an argument is that was left out, if that is a number or a flag.
fn left_out(
    node: &Node,
    find: impl Fn(&crate::schema::Schema) -> Option<&crate::schema::SchemaArg>,
) -> Option<Argument> {
    use crate::schema::Constant;
    let schema = node.target()?.overload()?.schema()?;
    match find(schema)?.default? {
        Constant::None => Some(Argument::None),
        Constant::Bool(b) => Some(Argument::Bool(b)),
        Constant::Int(i) => Some(Argument::Int(i)),
        Constant::Float(v) => Some(Argument::Float(v)),
        _ => None,
    }
}
