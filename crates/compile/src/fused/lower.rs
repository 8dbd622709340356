//! From a functional graph and the layouts of its inputs to loops and calls.
//!
//! The graph is run once on meta tensors, which gives every value its sizes and strides. An op that is pointwise
//! becomes a loop by recording its eager kernel; reductions, norms and softmax become loops by the rules of `rules`; a view is
//! only a layout; whatever is left stays a call. Values that are not tensors and differ from call to call stay late.

use super::ir::*;
use super::join::Joins;
use super::{Fused, FusedGraph, FusedOptions, rules};
use crate::backend::same_list;
use crate::backend::{ACCUMULATE, host_results};
use crate::error::{Error, Result};
use firebrand_core::dispatch::{Op as Aten, Tags, Value as Boxed};
use firebrand_core::layout::Dims;
use firebrand_core::{Complex, DType, Device, Layout, Scalar, Spec, Tensor, fusion};
use firebrand_graph::interpret::{Call, NodeRunner, Outlined, Value, boxed_arguments};
use firebrand_graph::ir::{Argument, Attribute, Function, GraphModule, Hop, Kind, Name, Node, NodeId, Target};
use firebrand_kernels::pointwise::{self as kernel, Sink, Source, Value as Number};
use smallvec::smallvec;
use std::collections::HashMap;
use std::sync::Arc;

/// What a plan is made for: one per placeholder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// A tensor of this geometry.
    Tensor { sizes: Dims, strides: Dims, dtype: DType },
    /// An integer or truth value: sizes may depend on it, so a plan is made for each.
    Int(Scalar),
    /// A float: late.
    Float,
    /// Anything else: late.
    Other,
}

impl Given {
    /// What a plan for this value is made for.
    pub(crate) fn of(value: &Value) -> Given {
        match value {
            Value::Tensor(t) => {
                Given::Tensor { sizes: t.shape().into(), strides: t.strides().into(), dtype: t.dtype() }
            }
            Value::Scalar(Scalar::Float(_)) => Given::Float,
            Value::Scalar(s) => Given::Int(*s),
            _ => Given::Other,
        }
    }

    /// Whether the plan fits this value.
    #[inline]
    pub(crate) fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Given::Tensor { sizes, strides, dtype }, Value::Tensor(t)) => {
                t.dtype() == *dtype && same_list(sizes, t.shape()) && same_list(strides, t.strides()) && !t.is_meta()
            }
            (Given::Int(s), Value::Scalar(v)) => s == v,
            (Given::Float, Value::Scalar(Scalar::Float(_))) => true,
            (Given::Other, Value::Tensor(_) | Value::Scalar(_)) => false,
            (Given::Other, _) => true,
            _ => false,
        }
    }
}

/// A tensor while lowering: where it lies, and a meta tensor that describes it.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) load: Load,
    pub(super) meta: Tensor,
}

/// What is known of a value.
#[derive(Clone)]
pub(super) enum Known {
    Tensor(Placed),
    List(Vec<Known>),
    /// Known at run time only; the value stands for it until then.
    Late(usize, Value),
    Plain(Value),
}

impl Known {
    fn value(&self) -> Value {
        match self {
            Known::Tensor(p) => Value::Tensor(p.meta.clone()),
            Known::List(items) => Value::List(items.iter().map(Known::value).collect()),
            Known::Late(_, v) | Known::Plain(v) => v.clone(),
        }
    }

    fn arg(&self) -> Arg {
        match self {
            Known::Tensor(p) => Arg::Tensor(p.load.clone()),
            Known::List(items) => Arg::List(items.iter().map(Known::arg).collect()),
            Known::Late(k, _) => Arg::Late(*k),
            Known::Plain(v) => Arg::Known(v.clone()),
        }
    }

    fn is_late(&self) -> bool {
        match self {
            Known::Late(..) => true,
            Known::List(items) => items.iter().any(Known::is_late),
            _ => false,
        }
    }

    fn each_tensor<'a>(&'a self, see: &mut impl FnMut(&'a Placed)) {
        match self {
            Known::Tensor(p) => see(p),
            Known::List(items) => items.iter().for_each(|k| k.each_tensor(see)),
            Known::Late(..) | Known::Plain(_) => {}
        }
    }
}

/// A call of an op whose arguments are known, as the rules see it.
pub(super) struct OpCall<'a> {
    pub(super) op: Aten,
    /// One per argument of the schema.
    pub(super) boxed: &'a [Boxed],
    /// Every tensor among the arguments.
    pub(super) tensors: &'a [Placed],
    /// What it returns, as meta tensors.
    pub(super) results: &'a [Tensor],
}

impl OpCall<'_> {
    /// The tensor given for argument `k`.
    pub(super) fn tensor(&self, k: usize) -> Option<&Placed> {
        let Boxed::Tensor(t) = self.boxed.get(k)? else { return None };
        self.tensors.iter().find(|p| p.meta.is_same(t))
    }
}

/// Lowers a graph for inputs of this kind.
pub(super) fn lower(module: &GraphModule, given: &[Given], options: &FusedOptions) -> Result<Lowered> {
    let graph = &module.graph;
    let mut l = Lowering {
        module,
        options,
        out: Lowered::default(),
        values: vec![None; graph.capacity()],
        numbers: HashMap::new(),
        joins: Joins::of(graph),
    };
    let mut inputs = given.iter().enumerate();
    for n in graph.nodes() {
        let value = match graph[n].kind() {
            Kind::Placeholder(target) => {
                let missing = || Error::internal(format!("there is no input for the placeholder {target}"));
                let (k, given) = inputs.next().ok_or_else(missing)?;
                l.placeholder(k, given)?
            }
            Kind::GetAttr(path) => l.attribute(path)?,
            Kind::Output => {
                l.outputs(&graph[n].args()[0])?;
                break;
            }
            _ => {
                l.out.nodes += 1;
                l.call(n)?
            }
        };
        l.values[n.index()] = Some(value);
    }
    Ok(l.out)
}

pub(super) struct Lowering<'a> {
    pub(super) module: &'a GraphModule,
    pub(super) options: &'a FusedOptions,
    pub(super) out: Lowered,
    values: Vec<Option<Known>>,
    /// Buffers that are one number everywhere: readers take the number.
    pub(super) numbers: HashMap<BufferId, Number>,
    joins: Joins,
}

impl Lowering<'_> {
    fn buffer(&mut self, layout: Layout, dtype: DType, origin: Origin) -> BufferId {
        self.out.buffers.push(Buffer { layout, dtype, origin });
        self.out.buffers.len() - 1
    }

    fn placeholder(&mut self, k: usize, given: &Given) -> Result<Known> {
        Ok(match given {
            Given::Tensor { sizes, strides, dtype } => {
                let layout = Layout::strided(sizes, strides, 0)?;
                let spec = Spec { layout: layout.clone(), dtype: *dtype, device: Device::Meta };
                let buffer = self.buffer(layout.clone(), *dtype, Origin::Input(k));
                Known::Tensor(Placed { load: Load { buffer, layout }, meta: Tensor::try_empty(spec)? })
            }
            Given::Int(s) => Known::Plain(Value::Scalar(*s)),
            Given::Float => {
                self.out.late_inputs.push((k, self.out.late));
                self.late(Value::Scalar(Scalar::Float(1.0)))
            }
            Given::Other => {
                self.out.late_inputs.push((k, self.out.late));
                self.late(Value::NONE)
            }
        })
    }

    fn late(&mut self, stand_in: Value) -> Known {
        self.out.late += 1;
        Known::Late(self.out.late - 1, stand_in)
    }

    fn attribute(&mut self, path: &Name) -> Result<Known> {
        let missing = || Error::internal(format!("the graph reads attribute {path}, which has no value"));
        Ok(match self.module.attributes.get(path).ok_or_else(missing)? {
            Attribute::Graph(g) => Known::Plain(Value::Graph(Arc::clone(g))),
            attribute => {
                let t = attribute.tensor().ok_or_else(missing)?;
                if t.is_meta() {
                    return Err(Error::internal(format!("attribute {path} is on meta")));
                }
                let layout = t.layout().from_start();
                let spec = Spec { layout: layout.clone(), dtype: t.dtype(), device: Device::Meta };
                let buffer = self.buffer(layout.clone(), t.dtype(), Origin::Constant(t.clone()));
                Known::Tensor(Placed { load: Load { buffer, layout }, meta: Tensor::try_empty(spec)? })
            }
        })
    }

    fn resolve(&self, a: &Argument) -> Result<Known> {
        Ok(match a {
            Argument::Node(n) => {
                let missing =
                    || Error::internal(format!("%{} is used before it has a value", self.module.graph[*n].name()));
                self.values[n.index()].clone().ok_or_else(missing)?
            }
            Argument::Tuple(items) | Argument::List(items) => {
                Known::List(items.iter().map(|a| self.resolve(a)).collect::<Result<_>>()?)
            }
            Argument::Bool(b) => Known::Plain(Value::Scalar(Scalar::Bool(*b))),
            Argument::Int(i) => Known::Plain(Value::Scalar(Scalar::Int(*i))),
            Argument::Float(v) => Known::Plain(Value::Scalar(Scalar::Float(*v))),
            Argument::Complex(re, im) => Known::Plain(Value::Scalar(Scalar::Complex(Complex::new(*re, *im)))),
            // Here every tensor has memory in the end; a graph that makes others is interpreted.
            Argument::Device(d) if &*d.kind == "meta" => {
                return Err(Error::internal("a tensor is made on meta"));
            }
            other => Known::Plain(Value::Constant(other.clone())),
        })
    }

    fn outputs(&mut self, a: &Argument) -> Result<()> {
        let Known::List(items) = self.resolve(a)? else {
            return Err(Error::internal("a graph for a backend must return a tuple"));
        };
        for item in items {
            self.out.outputs.push(match item {
                Known::Tensor(p) => Output::Tensor(p.load),
                Known::Late(k, _) => Output::Late(k),
                Known::Plain(v) => Output::Known(v),
                Known::List(_) => return Err(Error::internal("a graph for a backend must not return nested lists")),
            });
        }
        Ok(())
    }

    fn call(&mut self, n: NodeId) -> Result<Known> {
        let node = &self.module.graph[n];
        let args: Vec<Known> = node.args().iter().map(|a| self.resolve(a)).collect::<Result<_>>()?;
        let kwargs: Vec<(Name, Known)> =
            node.kwargs().iter().map(|(k, a)| Ok((k.clone(), self.resolve(a)?))).collect::<Result<_>>()?;
        if let (Some(Target::Function(f)), [Known::List(items), Known::Plain(Value::Scalar(k))]) =
            (node.target(), &args[..])
            && f.name() == "operator.getitem"
            && let Some(item) = usize::try_from(k.to_i64()).ok().and_then(|k| items.get(k))
        {
            return Ok(item.clone());
        }
        let mut tensors: Vec<Placed> = Vec::new();
        args.iter().chain(kwargs.iter().map(|(_, k)| k)).for_each(|k| k.each_tensor(&mut |p| tensors.push(p.clone())));
        let late = args.iter().chain(kwargs.iter().map(|(_, k)| k)).any(Known::is_late);
        let values: Vec<Value> = args.iter().map(Known::value).collect();
        let named: Vec<(Name, Value)> = kwargs.iter().map(|(k, v)| (k.clone(), v.value())).collect();
        let call = Call { module: self.module, node: n, args: values, kwargs: named };
        let layouts: Vec<Layout> = tensors.iter().map(|p| p.meta.layout().clone()).collect();
        let result = match (node.target(), &args[..]) {
            // A hook may return any tensor of the gradient's sizes.
            (Some(Target::Function(Function::CallHook)), [_, Known::Tensor(grad)]) => {
                let spec =
                    Spec { layout: grad.load.layout.dense_like(), dtype: grad.meta.dtype(), device: Device::Meta };
                Value::Tensor(Tensor::try_empty(spec)?)
            }
            (Some(Target::Function(Function::CallHost)), _) => {
                let make = |spec: Option<Spec>| spec.map_or(Ok(Value::NONE), |s| Ok(Tensor::try_empty(s)?.into()));
                let results = host_results(&call.args, Device::Meta)?;
                Value::List(results.into_iter().map(make).collect::<Result<_>>()?)
            }
            _ => Outlined.run_node(&call)?,
        };
        let results: Vec<Tensor> = result.tensors().into_iter().cloned().collect();
        let alias = |t: &Tensor| tensors.iter().find(|p| p.meta.shares_storage(t)).map(|p| p.load.buffer);
        let schema = match node.target() {
            Some(Target::Op(op)) => op.schema().map(|s| (op, s)),
            _ => None,
        };
        let writes = schema.is_some_and(|(_, s)| s.mutates());
        // A buffer has one layout; what gives a tensor another one (`out=` of an empty one too) changes it for every reader.
        let relaid = tensors.iter().zip(&layouts).any(|(p, before)| !p.meta.layout().same_geometry(before));
        let by_tag = |op: Aten| op.has(Tags::INPLACE_VIEW) && op != Aten::DETACH_;
        if relaid || schema.is_some_and(|(op, _)| op.op().is_some_and(by_tag)) {
            return Err(Error::internal(format!("%{}: a tensor gets another layout in place", node.name())));
        }
        if let Some((op, _)) = schema
            && op.base().ends_with("embedding_bag")
        {
            return Err(Error::internal(format!("%{}: sizes of results depend on values", node.name())));
        }
        // Buffers have one dtype: strides and offsets of the real numbers in a complex one count other elements.
        let retyped = |r: &Tensor| tensors.iter().any(|p| p.meta.shares_storage(r) && p.meta.dtype() != r.dtype());
        if results.iter().any(retyped) {
            return Err(Error::internal(format!("%{}: a view of another dtype", node.name())));
        }
        if let (Some((op, _)), false) = (schema, late) {
            if let Value::Scalar(_) = result {
                return Ok(Known::Plain(result)); // a question about sizes: what depends on numbers has no answer here
            }
            if !writes && !results.is_empty() && results.iter().all(|r| alias(r).is_some()) {
                return Ok(self.view(&result, &alias));
            }
            if let Some(joined) = self.joins.lower(n, args.get(1), &tensors) {
                return Ok(Known::Tensor(joined));
            }
            let complex = |t: &Tensor| t.dtype().is_complex();
            if results.iter().any(complex) || tensors.iter().any(|p| complex(&p.meta)) {
                return self.opaque(n, args, kwargs, result, &alias); // registers hold real numbers
            }
            let (id, boxed) = boxed_arguments(op, &call.args, &call.kwargs, Some(Device::Meta))?;
            let call = OpCall { op: id, boxed: &boxed, tensors: &tensors, results: &results };
            if op.is(Aten::COPY_) && self.write_whole(node.name(), &call) {
                return Ok(args[0].clone());
            }
            if op.is(Aten::NATIVE_BATCH_NORM)
                && let Some(normed) = self.batch_norm(n, &call)
            {
                return Ok(normed);
            }
            if !writes && results.iter().all(|r| alias(r).is_none()) {
                let lowered = rules::number(&call)
                    .map(|number| self.fill(&call, number))
                    .or_else(|| self.pointwise(&call, &fusion::formula(id, &boxed)?))
                    .or_else(|| if self.options.bitwise { None } else { rules::lower(&call) });
                if let Some(l) = lowered {
                    return Ok(self.push_loop(node.name(), l, &result, &results));
                }
            }
        } else if results.is_empty() && tensors.is_empty() && !late && is_arithmetic(node.target()) {
            return Ok(Known::Plain(result)); // arithmetic on sizes
        }
        self.opaque(n, args, kwargs, result, &alias)
    }

    /// A result that only looks at memory which exists.
    fn view(&self, value: &Value, alias: &dyn Fn(&Tensor) -> Option<BufferId>) -> Known {
        match value {
            Value::Tensor(t) => match alias(t) {
                Some(buffer) => {
                    Known::Tensor(Placed { load: Load { buffer, layout: t.layout().clone() }, meta: t.clone() })
                }
                None => Known::Plain(value.clone()),
            },
            Value::List(items) => Known::List(items.iter().map(|v| self.view(v, alias)).collect()),
            other => Known::Plain(other.clone()),
        }
    }

    fn opaque(
        &mut self,
        n: NodeId,
        args: Vec<Known>,
        kwargs: Vec<(Name, Known)>,
        result: Value,
        alias: &dyn Fn(&Tensor) -> Option<BufferId>,
    ) -> Result<Known> {
        let node = &self.module.graph[n];
        let mut writes = Vec::new();
        let effect = match node.target() {
            Some(Target::Op(op)) => {
                let schema = op.schema();
                for (k, arg) in args.iter().enumerate() {
                    if schema.is_some_and(|s| s.args.get(k).is_some_and(|a| a.written)) {
                        arg.each_tensor(&mut |p| writes.push(p.load.buffer));
                    }
                }
                for (name, arg) in &kwargs {
                    let written = schema.and_then(|s| Some(s.args[s.position(name)?].written));
                    if written == Some(true) {
                        arg.each_tensor(&mut |p| writes.push(p.load.buffer));
                    }
                }
                op.draws() || !writes.is_empty()
            }
            Some(Target::Function(f)) => !f.name().starts_with("operator."),
            _ => true,
        };
        let effect = effect || result.is_none(); // an assertion
        for b in &writes {
            self.numbers.remove(b);
        }
        let (taken, known) = self.take(&result, alias, &mut Vec::new());
        let op = match node.target() {
            Some(Target::Op(op)) => Some(op.clone()),
            _ => None,
        };
        let opaque = Opaque {
            node: n,
            op,
            sides: self.sides(node, &args)?,
            args: args.iter().map(Known::arg).collect(),
            kwargs: kwargs.iter().map(|(k, v)| (k.clone(), v.arg())).collect(),
            taken,
            writes,
            effect,
            barrier: node.target().is_some_and(|t| t.is_function(&Function::CallHost))
                && node.args().first() != Some(&Argument::from(ACCUMULATE)),
        };
        self.out.items.push(Item { name: node.name().clone(), work: Work::Opaque(opaque) });
        Ok(known)
    }

    /// The sides of a conditional, to be planned when they first run.
    fn sides(&self, node: &Node, args: &[Known]) -> Result<Option<Arc<[FusedGraph; 2]>>> {
        let cond = node.target() == Some(&Target::from(Hop::Cond));
        let [_, Known::Plain(Value::Graph(yes)), Known::Plain(Value::Graph(no)), _] = args else { return Ok(None) };
        let side = |graph| Fused::new(*self.options).compile_graph(graph, &[]);
        if cond { Ok(Some(Arc::new([side(yes)?, side(no)?]))) } else { Ok(None) }
    }

    /// What becomes of a result, or part of it; `before` are those of the same call that came before it.
    fn take(
        &mut self,
        value: &Value,
        alias: &dyn Fn(&Tensor) -> Option<BufferId>,
        before: &mut Vec<Placed>,
    ) -> (Taken, Known) {
        match value {
            Value::Tensor(t) => {
                if alias(t).is_some() {
                    return (Taken::Ignored, self.view(value, alias));
                }
                let beside = |p: &&Placed| p.meta.shares_storage(t) && p.meta.layout().offset() == 0;
                if let Some(buffer) = before.iter().find(beside).map(|p| p.load.buffer) {
                    self.joins.share(buffer);
                    return (Taken::Ignored, self.view(value, &|_| Some(buffer)));
                }
                let placed = self.made(t);
                before.push(placed.clone());
                (Taken::Buffer(placed.load.buffer), Known::Tensor(placed))
            }
            Value::List(items) => {
                let (taken, known) = items.iter().map(|v| self.take(v, alias, before)).unzip();
                (Taken::List(taken), Known::List(known))
            }
            v if v.is_none() => (Taken::Ignored, Known::Plain(Value::NONE)),
            other => {
                let known = self.late(other.clone());
                (Taken::Late(self.out.late - 1), known)
            }
        }
    }

    /// A new buffer for a result.
    pub(super) fn made(&mut self, t: &Tensor) -> Placed {
        let layout = t.layout().from_start();
        let buffer = self.buffer(layout.clone(), t.dtype(), Origin::Made);
        Placed { load: Load { buffer, layout }, meta: t.clone() }
    }

    fn push_loop(&mut self, name: &Name, mut l: Loop, result: &Value, results: &[Tensor]) -> Known {
        let mut placed: Vec<Known> = Vec::new();
        for t in results {
            placed.push(Known::Tensor(self.made(t)));
        }
        // A rule names results by their position.
        for store in &mut l.stores {
            if let Known::Tensor(p) = &placed[store.load.buffer] {
                store.load = p.load.clone();
            }
        }
        if let ([only], []) = (&l.stores[..], &l.code[..])
            && let Source::Memory(0) = only.source
            && let [Operand::Number(number, _)] = l.operands[..]
        {
            self.numbers.insert(only.load.buffer, number);
        }
        self.out.items.push(Item { name: name.clone(), work: Work::Loop(l) });
        match result {
            Value::List(_) => Known::List(placed),
            _ => placed.swap_remove(0),
        }
    }

    /// One number everywhere.
    fn fill(&self, call: &OpCall<'_>, number: Number) -> Loop {
        let t = &call.results[0];
        let dtype = register(t.dtype());
        Loop {
            domain: t.shape().into(),
            row: 1,
            operands: vec![Operand::Number(rounded(number, t.dtype()), dtype)],
            code: vec![],
            stores: vec![result_store(0, Source::Memory(0), Sink::Elements)],
        }
    }

    /// A memory operand seen with the sizes of a domain, or the number it is.
    pub(super) fn operand(&self, p: &Placed, domain: &[usize]) -> Option<Operand> {
        if let Some(&number) = self.numbers.get(&p.load.buffer) {
            return Some(Operand::Number(number, register(p.meta.dtype())));
        }
        Some(Operand::Load(Load { buffer: p.load.buffer, layout: broadcast(&p.load.layout, domain)? }))
    }

    fn pointwise(&self, call: &OpCall<'_>, formula: &fusion::Formula) -> Option<Loop> {
        let domain: Dims = call.results.first()?.shape().into();
        if call.results.iter().any(|r| r.shape() != &domain[..]) {
            return None;
        }
        let mut operands = Vec::new();
        for arg in call.boxed {
            let Boxed::Tensor(t) = arg else { continue };
            operands.push(match call.tensors.iter().find(|p| p.meta.is_same(t)) {
                Some(p) => self.operand(p, &domain)?,
                // A number that stands where a tensor is due.
                None => Operand::Number(scalar_of(t)?.into(), t.dtype()),
            });
        }
        let code = formula.steps.iter().map(|s| Instr {
            action: match s.action {
                kernel::Action::Op(op) => Action::Op(op),
                kernel::Action::Cast(to) => Action::Cast(to),
                kernel::Action::Round(to) => Action::Round(to),
            },
            dtype: s.dtype,
            args: s.args.iter().copied().collect(),
        });
        let stores = formula.results.iter().enumerate().map(|(k, &s)| result_store(k, s, Sink::Elements)).collect();
        Some(Loop { domain, row: 1, operands, code: code.collect(), stores })
    }

    /// `copy_` to all of a buffer: a store, so that the value is computed where it belongs.
    fn write_whole(&mut self, name: &Name, call: &OpCall<'_>) -> bool {
        let (Some(to), Some(from)) = (call.tensor(0), call.tensor(1)) else { return false };
        let buffer = &self.out.buffers[to.load.buffer];
        if !buffer.is_whole(&to.load.layout) || !buffer.layout.is_non_overlapping_and_dense() {
            return false;
        }
        let domain: Dims = to.meta.shape().into();
        let Some(operand) = self.operand(from, &domain) else { return false };
        let (have, want) = (register(from.meta.dtype()), register(to.meta.dtype()));
        let mut code = Vec::new();
        let mut source = Source::Memory(0);
        if have != want {
            code.push(Instr { action: Action::Cast(want), dtype: have, args: smallvec![source] });
            source = Source::Step(code.len() - 1);
        }
        if want != to.meta.dtype() {
            code.push(Instr { action: Action::Round(to.meta.dtype()), dtype: want, args: smallvec![source] });
            source = Source::Step(code.len() - 1);
        }
        let store = Store { source, load: to.load.clone(), sink: Sink::Elements };
        let work = Work::Loop(Loop { domain, row: 1, operands: vec![operand], code, stores: vec![store] });
        self.numbers.remove(&to.load.buffer);
        self.out.items.push(Item { name: name.clone(), work });
        true
    }
}

/// A store to result `k`, whose buffer is not known yet.
pub(super) fn result_store(k: usize, source: Source, sink: Sink) -> Store {
    Store { source, load: Load { buffer: k, layout: Layout::scalar() }, sink }
}

/// The register type of values of a dtype: f32 for half types.
pub(super) fn register(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// What a number becomes in memory of a dtype.
pub(super) fn rounded(number: Number, dtype: DType) -> Number {
    match dtype {
        DType::F64 => Number::Float(number.to_f64()),
        DType::F32 => Number::Float(f64::from(number.to_f64() as f32)),
        DType::F16 => Number::Float(firebrand_core::f16::from_f64(number.to_f64()).to_f64()),
        DType::BF16 => Number::Float(firebrand_core::bf16::from_f64(number.to_f64()).to_f64()),
        DType::Bool => Number::Bool(number.to_bool()),
        DType::C64 => {
            let v = number.to_complex();
            Number::Complex(Complex::new(f64::from(v.re as f32), f64::from(v.im as f32)))
        }
        DType::C128 => Number::Complex(number.to_complex()),
        _ => Number::Int(number.to_i64()),
    }
}

/// Whether a call only computes with numbers. What calls user code has effects, also with no tensor at all (an accumulation of
/// nothing runs hooks).
fn is_arithmetic(target: Option<&Target>) -> bool {
    let Some(Target::Function(f)) = target else { return !matches!(target, Some(Target::Hop(_))) };
    !matches!(
        f,
        Function::CallHost
            | Function::CallHook
            | Function::RegisterHook
            | Function::ApplyFunction
            | Function::SetGradEnabled
            | Function::EnterAutocast
            | Function::ExitAutocast
            | Function::Other(_)
    )
}

fn scalar_of(t: &Tensor) -> Option<Scalar> {
    if !t.is_wrapped_number() || t.is_meta() {
        return None;
    }
    Some(match t.dtype() {
        DType::Bool => Scalar::Bool(t.try_item().ok()?),
        DType::I64 => Scalar::Int(t.try_item().ok()?),
        d if d.is_complex() => Scalar::Complex(t.try_item().ok()?),
        _ => Scalar::Float(t.try_item().ok()?),
    })
}

/// A layout repeated to larger sizes; none if it does not fit.
pub(super) fn broadcast(layout: &Layout, domain: &[usize]) -> Option<Layout> {
    let lead = domain.len().checked_sub(layout.ndim())?;
    let mut strides: Dims = smallvec![0; domain.len()];
    for (d, (&n, &s)) in layout.sizes().iter().zip(layout.strides()).enumerate() {
        if n == domain[lead + d] {
            strides[lead + d] = s;
        } else if n != 1 {
            return None;
        }
    }
    Layout::strided(domain, &strides, layout.offset()).ok()
}

/// Instructions as a rule writes them.
pub(super) fn instr(action: Action, dtype: DType, args: &[Source]) -> Instr {
    Instr { action, dtype, args: args.iter().copied().collect() }
}
