//! Conditionals in a joint graph: a node that holds both sides, and another like it for its gradient.
//!
//! Each side is traced on its own, as a joint graph is. The gradient of a conditional is a conditional over the sides'
//! gradients, which take the operands and compute what they need again; it is differentiable like the first, so there is no
//! last order. Random numbers come but once: both sides return what either drew, zeros for what only the other draws. As in a
//! plain run every result that is a floating-point number depends on every operand; what a side does not use gets zeros.
//!
//! Results are contiguous and in memory of their own, whichever side ran.

use super::trace::{Input, JointTrace, Request, outline, trace};
use crate::backend::Value;
use crate::error::{Error, Result};
use crate::joint::partition::{Joint, extract};
use firebrand_core::autograd::{Context, Function, is_grad_enabled};
use firebrand_core::{DType, Layout, Tensor};
use firebrand_graph::InnerTrace;
use firebrand_graph::ir::{
    Argument, Function as Builtin, GraphModule, Hop, Kind, MemoryFormat, Name, NodeId, OpOverload, Target, TensorMeta,
    Val,
};
use firebrand_graph::schema::Schema;
use std::collections::HashSet;
use std::sync::Arc;

/// Both sides, the one for true first.
type Sides = [Arc<GraphModule>; 2];

/// How sides are traced.
#[derive(Clone)]
pub(super) struct Conditionals {
    /// Where their nodes go.
    pub(super) tracer: InnerTrace,
    /// Whether derivatives of the gradients are needed.
    pub(super) create_graph: bool,
    /// Whether to decompose ops.
    pub(super) decompose: bool,
    /// What autocast lowers to where the conditional stands, if it is on there.
    pub(super) autocast: Option<DType>,
}

impl Conditionals {
    /// Records a conditional and gives its results.
    pub(super) fn run(&self, pred: &Tensor, sides: Sides, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut results = self.write(pred, sides, operands)?;
        results.tensors.truncate(results.own);
        Ok(results.tensors)
    }

    fn write(&self, pred: &Tensor, mut sides: Sides, operands: &[Tensor]) -> Result<Results> {
        let recording = is_grad_enabled() && operands.iter().any(Tensor::requires_grad);
        let mut how = self.clone();
        let traced = how.both(&sides, operands, recording)?;
        let own = traced[0].joint.outputs.len();
        let drawn = if recording { traced.each_ref().map(|t| drawn_and_read(&t.joint)) } else { Default::default() };
        let traced = match drawn.iter().all(Vec::is_empty) {
            true => traced,
            false => {
                sides = how.with_draws(&sides, operands, &drawn)?;
                how.autocast = None; // casts are ops now
                how.both(&sides, operands, recording)?
            }
        };
        let copied = to_copy(&traced)?;
        let traced = match copied.is_empty() {
            true => traced,
            false => {
                sides = [with_copies(&sides[0], &copied)?, with_copies(&sides[1], &copied)?];
                how.both(&sides, operands, recording)?
            }
        };
        let like = metas(&traced[0].joint)?.into_iter().map(|m| TensorMeta { requires_grad: false, ..m });
        let like: Vec<TensorMeta> = like.collect();
        let tensors = match recording {
            true => {
                let node = Conditional { how, pred: pred.clone(), sides, drawn, like, own };
                node.apply(&operands.iter().collect::<Vec<_>>())?
            }
            false => like.iter().map(outline).collect::<Result<_>>()?,
        };
        let [yes, no] = traced.map(|t| {
            let joint = &t.joint;
            extract(&joint.module, &joint.primals, &joint.outputs, &joint.draws()).map(|g| Value::Graph(Arc::new(g)))
        });
        let operands = Value::List(operands.iter().map(Value::from).collect());
        let written: Vec<Option<Tensor>> = tensors.iter().cloned().map(Some).collect();
        self.tracer.call_tuple(Hop::Cond, &[pred.into(), yes?, no?, operands], &written)?;
        Ok(Results { tensors, own })
    }

    fn both(&self, sides: &Sides, operands: &[Tensor], recording: bool) -> Result<[JointTrace; 2]> {
        let [yes, no] = sides.each_ref().map(|side| trace(&self.request(side, operands, recording)));
        let traced = [yes?, no?];
        let [yes, no] = [metas(&traced[0].joint)?, metas(&traced[1].joint)?];
        let alike = |(a, b): (&TensorMeta, &TensorMeta)| a.dtype == b.dtype && a.sizes == b.sizes;
        match yes.len() == no.len() && yes.iter().zip(&no).all(alike) {
            true => Ok(traced),
            false => Err(Error::internal("the branches of a conditional return tensors of different dtypes or sizes")),
        }
    }

    fn request(&self, side: &Arc<GraphModule>, operands: &[Tensor], recording: bool) -> Request {
        let input = |t: &Tensor| {
            Input::Tensor(TensorMeta { requires_grad: recording && t.requires_grad(), ..TensorMeta::of(t) })
        };
        Request {
            graph: Arc::clone(side),
            inputs: operands.iter().map(input).collect(),
            is_static: vec![false; operands.len()],
            outputs: (0..results_of(side).len()).collect(),
            constants: HashSet::new(),
            deferred: HashSet::new(),
            on_inputs: HashSet::new(),
            decompose: self.decompose,
            defined: None,
            create_graph: self.create_graph,
            through_results: Vec::new(),
            recording,
            autocast: self.autocast,
        }
    }

    /// The sides with what either drew as further results.
    fn with_draws(&self, sides: &Sides, operands: &[Tensor], drawn: &[Vec<usize>; 2]) -> Result<Sides> {
        let differentiable = Conditionals { create_graph: true, decompose: false, ..self.clone() };
        let [yes, no] = differentiable.both(sides, operands, true)?;
        let (first, second) = (pick(&yes.joint, &drawn[0])?, pick(&no.joint, &drawn[1])?);
        let side = |mut joint: Joint, own: &[NodeId], other: &[TensorMeta], own_first: bool| {
            let own = own.iter().map(|&n| n.into());
            let absent: Vec<Argument> = other.iter().map(|meta| zeros(&mut joint.module, meta).into()).collect();
            let mut results = joint.outputs.clone();
            match own_first {
                true => results.extend(own.chain(absent)),
                false => results.extend(absent.into_iter().chain(own)),
            }
            extract(&joint.module, &joint.primals, &results, &joint.draws()).map(Arc::new)
        };
        let (of_first, of_second) = (metas_of(&yes.joint, &first)?, metas_of(&no.joint, &second)?);
        Ok([side(yes.joint, &first, &of_second, true)?, side(no.joint, &second, &of_first, false)?])
    }
}

/// What a conditional gives: results of its own, then what was drawn.
struct Results {
    tensors: Vec<Tensor>,
    own: usize,
}

/// A conditional with a history: its backward records the conditional of the gradients.
struct Conditional {
    how: Conditionals,
    pred: Tensor,
    sides: Sides,
    /// Which of the values that each side draws its gradient reads.
    drawn: [Vec<usize>; 2],
    like: Vec<TensorMeta>,
    own: usize,
}

impl Conditional {
    /// The gradients of one side as a graph: takes operands, what was drawn and the gradients that are defined.
    fn gradients(&self, side: usize, operands: &[Tensor], defined: &[bool]) -> Result<Arc<GraphModule>> {
        let request = self.how.request(&self.sides[side], operands, true);
        let mut joint = trace(&Request { defined: Some(defined.to_vec()), ..request })?.joint;
        let mut inputs = joint.primals.clone();
        let drawn = pick(&joint, &self.drawn[side])?;
        let blank = |joint: &mut Joint, name: String| joint.module.graph.placeholder(&name);
        for (k, theirs) in self.drawn.iter().enumerate() {
            match k == side {
                true => inputs.extend(&drawn),
                false => inputs.extend((0..theirs.len()).map(|i| blank(&mut joint, format!("other_{i}")))),
            }
        }
        for i in (0..defined.len()).filter(|&i| defined[i]) {
            let name: Name = format!("tangents_{i}").into();
            let known = joint.tangents.iter().copied().find(|&n| *joint.module.graph[n].name() == name);
            inputs.push(known.unwrap_or_else(|| blank(&mut joint, name.to_string())));
        }
        let wanted = operands.iter().enumerate().filter(|(_, t)| t.requires_grad());
        let results: Vec<Argument> = wanted
            .map(|(k, _)| match joint.grads[k].clone() {
                Argument::None => {
                    let like = [joint.primals[k].into()];
                    joint.module.graph.call_function(Target::aten("zeros_like.default"), like).into()
                }
                grad => grad,
            })
            .collect();
        Ok(Arc::new(extract(&joint.module, &inputs, &results, &[])?))
    }

    fn differentiate(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let lost = || Error::internal("a conditional kept less than it needs");
        let kept: Vec<Tensor> = ctx.saved_tensors()?.into_iter().collect::<Option<_>>().ok_or_else(lost)?;
        let drawn = self.drawn.iter().map(Vec::len).sum::<usize>();
        let operands = &kept[..kept.len() - drawn];
        let defined: Vec<bool> = grads.iter().map(Option::is_some).collect();
        if !defined.contains(&true) {
            return Ok(vec![None; operands.len()]);
        }
        let sides = [self.gradients(0, operands, &defined)?, self.gradients(1, operands, &defined)?];
        let mut inputs = kept.clone();
        for g in grads.iter().flatten() {
            inputs.push(g.try_contiguous()?);
        }
        let how = Conditionals { autocast: None, ..self.how.clone() };
        let mut found = how.run(&self.pred, sides, &inputs)?.into_iter();
        Ok(operands.iter().map(|t| if t.requires_grad() { found.next() } else { None }).collect())
    }
}

impl Function for Conditional {
    fn forward(&self, ctx: &mut Context, operands: &[Tensor]) -> firebrand_core::Result<Vec<Tensor>> {
        ctx.set_materialize_grads(false);
        let results = self.like.iter().map(outline).collect::<Result<Vec<_>>>()?;
        let kept = operands.iter().chain(&results[self.own..]).map(Some);
        ctx.save_for_backward(&kept.collect::<Vec<_>>());
        let constant = results.iter().filter(|t| !t.dtype().is_differentiable());
        ctx.mark_non_differentiable(&constant.collect::<Vec<_>>());
        Ok(results)
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        Ok(self.differentiate(ctx, grads)?)
    }
}

fn results_of(side: &GraphModule) -> &[Argument] {
    side.graph.result().and_then(Argument::items).unwrap_or(&[])
}

fn metas_of(joint: &Joint, nodes: &[NodeId]) -> Result<Vec<TensorMeta>> {
    let one = |n: &NodeId| match &joint.module.graph[*n].meta().val {
        Some(Val::Tensor(meta)) => Ok((**meta).clone()),
        _ => Err(Error::internal("a branch of a conditional returns something that is not a tensor")),
    };
    nodes.iter().map(one).collect()
}

fn metas(joint: &Joint) -> Result<Vec<TensorMeta>> {
    let nodes: Vec<NodeId> = joint.outputs.iter().filter_map(Argument::node).collect();
    metas_of(joint, &nodes)
}

/// Tensors that a side draws in its forward, in the order of the graph.
fn draws(joint: &Joint) -> Vec<NodeId> {
    let graph = &joint.module.graph;
    let is_item = |n: &NodeId| graph[*n].target().is_some_and(|t| t.is_function(&Builtin::GetItem));
    let parts = joint.draws().into_iter().flat_map(|n| match &graph[n].meta().val {
        Some(Val::Tensor(_)) => vec![n],
        _ => graph.users(n).filter(is_item).collect(),
    });
    parts.collect()
}

/// Which of them its gradients read, by position.
fn drawn_and_read(joint: &Joint) -> Vec<usize> {
    let needed = joint.parts().needed;
    draws(joint).iter().enumerate().filter(|(_, n)| needed.contains(n)).map(|(i, _)| i).collect()
}

fn pick(joint: &Joint, which: &[usize]) -> Result<Vec<NodeId>> {
    let all = draws(joint);
    let lost = || Error::internal("two traces of a branch draw different random numbers");
    which.iter().map(|&i| all.get(i).copied().ok_or_else(lost)).collect()
}

fn zeros(module: &mut GraphModule, like: &TensorMeta) -> NodeId {
    let sizes = Argument::list(like.sizes.iter().map(|s| Argument::Int(s.hint().unwrap_or(0))));
    let kind = Kind::CallFunction(Target::aten("zeros.default"));
    module.graph.create_node(kind, [sizes], [("dtype".into(), like.dtype.into())], None)
}

/// Results that are not contiguous memory of their own in both sides.
fn to_copy(traced: &[JointTrace; 2]) -> Result<Vec<usize>> {
    let mut copied = HashSet::new();
    for t in traced {
        let graph = &t.joint.module.graph;
        let mut seen = HashSet::new();
        for (i, (n, meta)) in t.joint.outputs.iter().filter_map(Argument::node).zip(metas(&t.joint)?).enumerate() {
            let contiguous = outline(&meta)?.layout().same_geometry(&Layout::contiguous(&known(&meta))?);
            let schema = graph[n].target().and_then(Target::overload).and_then(OpOverload::schema);
            let is_item = graph[n].target().is_some_and(|t| t.is_function(&Builtin::GetItem));
            // Parts of a view, such as those of split, are identified by what they are parts of.
            let of = graph[n].args().first().and_then(Argument::node).filter(|_| is_item);
            let whole = of.and_then(|n| graph[n].target()?.overload()?.schema());
            let is_view = schema.or(whole).is_some_and(Schema::is_view);
            if !contiguous || is_view || graph[n].target().is_none() || !seen.insert(n) {
                copied.insert(i);
            }
        }
    }
    let mut copied: Vec<usize> = copied.into_iter().collect();
    copied.sort_unstable();
    Ok(copied)
}

fn known(meta: &TensorMeta) -> Vec<usize> {
    meta.sizes.iter().map(|s| s.hint().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)).collect()
}

/// The side with these results copied.
fn with_copies(side: &GraphModule, which: &[usize]) -> Result<Arc<GraphModule>> {
    let mut side = side.clone();
    let mut results = results_of(&side).to_vec();
    let graph = &mut side.graph;
    if let Some(end) = graph.nodes().find(|n| graph[*n].is_output()) {
        graph.erase(end)?;
    }
    for &i in which {
        let format = Argument::MemoryFormat(MemoryFormat::Contiguous);
        let kind = Kind::CallFunction(Target::aten("clone.default"));
        results[i] = graph.create_node(kind, [results[i].clone()], [("memory_format".into(), format)], None).into();
    }
    graph.output(Argument::tuple(results));
    Ok(Arc::new(side))
}
