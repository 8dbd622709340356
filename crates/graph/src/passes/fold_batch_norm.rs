//! fold_batch_norm: makes the batch norm behind a convolution part of the convolution's weight and bias.
//!
//! In evaluation `batch_norm(conv(x, w, b))` is `conv(x, w · s, (b - mean) · s + bias)` with `s = weight / √(var + eps)` per channel of
//! the result; the new weight and bias are computed in double precision, once, and are constants of the program. So this is for
//! inference: what is folded is trained no more.
//! Folded are norms that do not train, are the only users of their convolution, and whose state is f32 or f64 and read by
//! convolutions and norms only; everything else is unchanged, norms of programs exported in training mode too (`eval_mode` first).

use super::dead_code::sweep;
use super::lora::argument;
use super::{Context, Report, lift_constants};
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use crate::signature::InputKind;
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::Op;
use firebrand_core::{DType, SymInt as Size, Tensor, ops};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs the pass on the top graph.
pub fn fold_batch_norm(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    let state = State::of(program);
    let mut module = (*program.module).clone();
    let found: Vec<Pair> = program.module.graph.nodes().filter_map(|n| state.pair(&program.module.graph, n)).collect();
    if found.is_empty() {
        return Ok((program.clone(), Report::default()));
    }
    let mut names = Vec::new();
    for pair in &found {
        let (weight, bias) = no_grad(|| pair.folded())?;
        let new = [(&weight, "weight"), (&bias, "bias")].map(|(tensor, part)| {
            let free = |i: &usize| module.attributes.get(&format!("_folded_{part}{i}")).is_none();
            let name = format!("_folded_{part}{}", (0..).find(free).expect("there is a free name"));
            module.attributes.set(&name, Attribute::Buffer { tensor: tensor.clone(), persistent: true });
            let read = module.graph.inserting(InsertPoint::Before(pair.conv), |g| g.get_attr(&name));
            *module.graph.meta_mut(read) = Meta::with_val(TensorMeta::of(tensor));
            names.push((tensor.clone(), vec![name]));
            read
        });
        let mut args = module.graph[pair.conv].args().to_vec();
        let mut kwargs = module.graph[pair.conv].kwargs().to_vec();
        for (name, read) in ["weight", "bias"].into_iter().zip(new) {
            let at = pair.op.schema().args.iter().position(|a| a.name == name).expect("a convolution has both");
            match (args.get_mut(at), kwargs.iter_mut().find(|(k, _)| **k == *name)) {
                (Some(arg), _) | (None, Some((_, arg))) => *arg = read.into(),
                (None, None) => kwargs.push((name.into(), read.into())),
            }
        }
        // The norm becomes the convolution: its name and metadata stay.
        let kind = module.graph[pair.conv].kind().clone();
        module.graph.set_kind(pair.result, kind);
        module.graph.set_arguments(pair.result, args, kwargs);
        if pair.norm != pair.result {
            module.graph.erase(pair.norm)?;
        }
        module.graph.erase(pair.conv)?;
    }
    sweep(&mut module)?;
    let mut result = ExportedProgram { module: Arc::new(module), ..program.clone() };
    state.forget(&mut result, &found)?;
    if result.signature.is_some() {
        result = lift_constants(&result, &names)?.0;
    }
    Ok((result, Report::of(found.len())))
}

/// A convolution and the norm behind it.
struct Pair {
    op: Op,
    conv: NodeId,
    norm: NodeId,
    /// The norm, or what takes its first result.
    result: NodeId,
    /// Weight and bias of the convolution; weight, bias, mean and variance of the norm.
    state: [Option<NodeId>; 6],
    tensors: [Option<Tensor>; 6],
    eps: f64,
}

impl Pair {
    /// Weight and bias of the convolution that does both.
    fn folded(&self) -> Result<(Tensor, Tensor)> {
        let [weight, conv_bias, scale, bias, mean, variance] = &self.tensors;
        let weight = weight.as_ref().expect("a convolution has a weight").detach();
        let (channels, dtype) = (weight.shape()[0], weight.dtype());
        let wide = |t: &Option<Tensor>, absent: f64| match t {
            Some(t) => t.detach().try_to_dtype(DType::F64),
            None => Ok(Tensor::full([channels], absent, DType::F64)),
        };
        let deviation = ops::sqrt(&ops::add_scalar(&wide(variance, 1.0)?, self.eps.into(), 1.into())?)?;
        let scale = ops::div(&wide(scale, 1.0)?, &deviation)?;
        let moved = ops::sub(&wide(conv_bias, 0.0)?, &wide(mean, 0.0)?, 1.into())?;
        let bias = ops::add(&ops::mul(&moved, &scale)?, &wide(bias, 0.0)?, 1.into())?;
        let mut sizes: Vec<Size> = vec![1.into(); weight.ndim()];
        sizes[0] = channels.into();
        let weight = ops::mul(&weight.try_to_dtype(DType::F64)?, &ops::reshape(&scale, &sizes)?)?;
        Ok((weight.try_to_dtype(dtype)?, bias.try_to_dtype(dtype)?))
    }
}

/// Nodes whose tensors are known, and what they are called: the attributes that are read, and the inputs of the signature.
struct State<'a> {
    tensors: HashMap<NodeId, Tensor>,
    attributes: HashMap<NodeId, &'a Name>,
    targets: HashMap<NodeId, &'a Name>,
}

impl<'a> State<'a> {
    fn of(program: &'a ExportedProgram) -> State<'a> {
        let graph = &program.module.graph;
        let (mut tensors, mut attributes, mut targets) = (HashMap::new(), HashMap::new(), HashMap::new());
        for n in graph.nodes() {
            if let Some(path) = graph[n].attr_path()
                && let Some(t) = program.module.attributes.get(path).and_then(Attribute::tensor)
            {
                tensors.insert(n, t.clone());
                attributes.insert(n, path);
            }
        }
        let inputs = program.signature.iter().flat_map(|s| &s.inputs);
        for (n, spec) in graph.placeholders().zip(inputs) {
            let (InputKind::Parameter(target) | InputKind::Buffer { target, .. } | InputKind::ConstantTensor(target)) =
                &spec.kind
            else {
                continue;
            };
            if let Some(t) = program.state(target) {
                tensors.insert(n, t.clone());
                targets.insert(n, target);
            }
        }
        State { tensors, attributes, targets }
    }

    /// The pair that ends in this norm, if it can be folded.
    fn pair(&self, graph: &Graph, norm: NodeId) -> Option<Pair> {
        let op = op_of(graph, norm)?;
        let arg = |name: &str| argument(&graph[norm], op, name);
        let result = match op {
            Op::BATCH_NORM if arg("training") == Some(&Argument::Bool(false)) => norm,
            Op::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING => {
                let mut users = graph.users(norm);
                let first = users.next()?;
                let taken = matches!(graph[first].target(), Some(Target::Function(Function::GetItem)))
                    && graph[first].args().get(1) == Some(&Argument::Int(0));
                if !taken || users.next().is_some() {
                    return None;
                }
                first
            }
            _ => return None,
        };
        let conv = arg("input")?.node()?;
        let conv_op = op_of(graph, conv).filter(|op| is_convolution(*op))?;
        if graph[conv].num_users() != 1
            || matches!(argument(&graph[conv], conv_op, "transposed"), Some(Argument::Bool(true)))
        {
            return None;
        }
        let Some(&Argument::Float(eps)) = arg("eps") else { return None };
        let of = |n: NodeId, op: Op, name: &str| match argument(&graph[n], op, name) {
            None | Some(Argument::None) => Some(None),
            Some(given) => given.node().map(Some),
        };
        let state = [
            of(conv, conv_op, "weight")?,
            of(conv, conv_op, "bias")?,
            of(norm, op, "weight")?,
            of(norm, op, "bias")?,
            of(norm, op, "running_mean")?,
            of(norm, op, "running_var")?,
        ];
        let [Some(weight), .., Some(_), Some(_)] = state else { return None };
        let weight = self.tensors.get(&weight)?;
        let mut tensors = [const { None }; 6];
        for (k, n) in state.iter().enumerate().filter_map(|(k, n)| Some((k, (*n)?))) {
            let tensor = self.tensors.get(&n)?;
            let fits = k == 0 || tensor.shape() == [weight.shape()[0]];
            let reads_only = graph.users(n).all(|u| only_reads(graph, u));
            if !fits || !reads_only || tensor.dtype() != weight.dtype() {
                return None;
            }
            tensors[k] = Some(tensor.clone());
        }
        // Without a batch, what the norm takes for channels is something else.
        let rank = graph[conv].meta().val.as_ref()?.tensor()?.sizes.len();
        let float = matches!(weight.dtype(), DType::F32 | DType::F64);
        (float && weight.ndim() == rank).then_some(Pair { op: conv_op, conv, norm, result, state, tensors, eps })
    }

    /// Removes the inputs and attributes that nothing reads any more because of these pairs.
    fn forget(&self, program: &mut ExportedProgram, folded: &[Pair]) -> Result<()> {
        let mut module = (*program.module).clone();
        let mut signature = program.signature.as_deref().cloned();
        for n in folded.iter().flat_map(|p| p.state.into_iter().flatten()) {
            if let Some(path) = self.attributes.get(&n) {
                let read = |m: &Graph| m.nodes().any(|n| m[n].attr_path() == Some(path));
                if !read(&module.graph) {
                    module.attributes.remove(path);
                }
            }
            let Some(target) = self.targets.get(&n) else { continue };
            let Some(node) = module.graph.get(n).filter(|node| node.num_users() == 0) else { continue };
            let name = node.name().clone();
            if let Some(signature) = &mut signature {
                signature.inputs.retain(|s| s.arg.node() != Some(&name));
            }
            module.graph.erase(n)?;
            let target: &str = target;
            program.state_dict.shift_remove(target);
            program.constants.shift_remove(target);
        }
        program.module = Arc::new(module);
        program.signature = signature.map(Arc::new);
        Ok(())
    }
}

fn op_of(graph: &Graph, n: NodeId) -> Option<Op> {
    graph[n].target()?.overload()?.op()
}

fn is_convolution(op: Op) -> bool {
    matches!(
        op,
        Op::CONV1D
            | Op::CONV1D_PADDING
            | Op::CONV2D
            | Op::CONV2D_PADDING
            | Op::CONV3D
            | Op::CONV3D_PADDING
            | Op::CONVOLUTION
    )
}

/// Whether a node is a convolution, or a norm that does not train: they write to none of their operands.
fn only_reads(graph: &Graph, n: NodeId) -> bool {
    op_of(graph, n).is_some_and(|op| {
        is_convolution(op)
            || op == Op::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING
            || (op == Op::BATCH_NORM && argument(&graph[n], op, "training") == Some(&Argument::Bool(false)))
    })
}
