//! LoRA: adds low-rank adapters to the linear and convolution layers of a program and freezes everything else.
//!
//! A layer `y = W x` becomes `y = W x + B (s · A x)` with `A` of a few rows and `B` of as few columns; only these are trained. Names,
//! initial values, scaling and files are those of the Python library PEFT, so that each loads what the other trained: with
//! the same seed the initial values are PEFT's, bit for bit. Frozen weights are handles to their original memory, so a
//! mapped file stays mapped; they get no gradient, and ops save nothing that only such a gradient would need.
//!
//! [`lora`] adds adapters, [`merge_lora`] merges them into the weights, [`save_adapter`] and [`load_adapter`] write and read
//! them as `adapter_model.safetensors` with `adapter_config.json`.
//!
//! Not supported: layers whose weight is computed in the program, layers inside sub-graphs (an error names them), embeddings.

mod adapter;
mod layers;
mod merge;

pub use adapter::{AdapterFiles, load_adapter, save_adapter};
pub use merge::merge_lora;

pub(super) use layers::argument;

use super::Report;
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::{ExportedProgram, State};
use crate::pt2::Extras;
use crate::signature::{InputKind, InputSpec, SpecArg};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::Op;
use firebrand_core::{DType, Tensor, TensorMap, ops};
use layers::{Layer, LayerKind, Layers};
use std::sync::Arc;

const PASS: &str = "lora";
/// The key under which a program stores its adapters' configuration.
const CONFIG: &str = "adapter_config.json";

/// How adapters are added; the defaults are PEFT's.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// Rows of `A` and columns of `B`.
    pub rank: usize,
    /// Adapters are scaled by `alpha / rank`.
    pub alpha: f64,
    /// Which layers get adapters, by the last components of their module path (`q_proj`, `layers.0.mlp.up_proj`). `None`: every linear layer whose
    /// weight is not shared.
    pub targets: Option<Vec<String>>,
    /// Modules that are trained in full and saved with the adapter, such as a new classifier; by the last components of their path.
    pub modules_to_save: Vec<String>,
    /// Whether adapters are scaled by `alpha / sqrt(rank)` instead (rank-stabilized LoRA).
    pub rslora: bool,
    /// Dropout probability on the input of `A` while training.
    pub dropout: f64,
}

impl Default for LoraOptions {
    fn default() -> LoraOptions {
        LoraOptions { rank: 8, alpha: 8.0, targets: None, modules_to_save: Vec::new(), rslora: false, dropout: 0.0 }
    }
}

impl LoraOptions {
    fn scaling(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Pass { pass: PASS, message: message.into() })
}

/// Whether a module path ends in this name, as PEFT matches targets.
fn ends_in(path: &str, name: &str) -> bool {
    path == name || path.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

/// The layer's adapter: where it goes, what it holds.
struct Adapter<'a> {
    layer: &'a Layer,
    scaling: f64,
    a: Tensor,
    b: Tensor,
}

/// Adds adapters and freezes everything else. Initial values are drawn from the default generator
/// ([`firebrand_core::random::manual_seed`]).
///
/// # Errors
/// If a target matches no layer, or a layer that cannot have an adapter; if a layer already has one.
pub fn lora(program: &ExportedProgram, options: &LoraOptions) -> Result<(ExportedProgram, Report)> {
    if options.rank == 0 {
        return refuse("the rank must be at least 1");
    }
    if !(options.alpha.is_finite() && options.alpha != 0.0) {
        return refuse(format!("alpha must be a finite number other than 0, found {}", options.alpha));
    }
    if !(0.0..1.0).contains(&options.dropout) {
        return refuse(format!("dropout must be at least 0 and less than 1, found {}", options.dropout));
    }
    let layers = Layers::of(program)?;
    let chosen = layers.choose(options.targets.as_deref())?;
    let mut adapters = Vec::with_capacity(chosen.len());
    for layer in chosen {
        let (a, b) = layer.initial(options.rank)?;
        adapters.push(Adapter { layer, scaling: options.scaling(), a, b });
    }
    let mut result = insert(program, &adapters, options.dropout, &options.modules_to_save)?;
    let targets = options.targets.clone().unwrap_or_else(|| shortest_names(&layers, &adapters));
    let config = adapter::Config::of(options, targets, adapters.iter().any(|a| a.layer.kind == LayerKind::Conv1D));
    keep_config(&mut result, &config);
    Ok((result, Report::of(adapters.len())))
}

/// For every adapted layer the last part of its path, or its whole path where other layers end alike.
fn shortest_names(layers: &Layers, adapters: &[Adapter<'_>]) -> Vec<String> {
    let adapted = |path: &str| adapters.iter().any(|a| a.layer.path == path);
    let mut names: Vec<String> = Vec::new();
    for a in adapters {
        let last = a.layer.path.rsplit('.').next().unwrap_or_default();
        let only_adapted = layers.iter().filter(|l| ends_in(&l.path, last)).all(|l| adapted(&l.path));
        let name = if only_adapted { last.to_string() } else { a.layer.path.clone() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn keep_config(program: &mut ExportedProgram, config: &adapter::Config) {
    let mut extras: Extras = program.extras.as_deref().cloned().unwrap_or_default();
    extras.files.insert(CONFIG.to_string(), config.to_json().into_bytes());
    program.extras = Some(Arc::new(extras));
}

/// The program with these adapters added.
fn insert(
    program: &ExportedProgram,
    adapters: &[Adapter<'_>],
    dropout: f64,
    modules_to_save: &[String],
) -> Result<ExportedProgram> {
    let mut result = program.clone();
    freeze(&mut result, modules_to_save)?;
    let mut module = (*result.module).clone();
    let mut signature = result.signature()?.clone();
    for adapter in adapters {
        let path = &adapter.layer.path;
        let mut inputs = Vec::new();
        for (part, tensor) in [("lora_A", &adapter.a), ("lora_B", &adapter.b)] {
            let name = format!("{path}.{part}.weight");
            if result.state_dict.contains_key(&name) {
                return refuse(format!("{path} already has an adapter ({name}); merge it first"));
            }
            tensor.try_set_requires_grad(true)?;
            let at =
                signature.inputs.iter().take_while(|s| matches!(s.kind, InputKind::Parameter(_) | InputKind::Token));
            let at = at.count();
            let placeholder = state_input(&mut module.graph, at, "p_", &name, tensor);
            let arg = SpecArg::Tensor(module.graph[placeholder].name().clone());
            signature.inputs.insert(at, InputSpec { kind: InputKind::Parameter(name.as_str().into()), arg });
            result.state_dict.insert(name, State { tensor: tensor.clone(), is_parameter: true });
            inputs.push(placeholder);
        }
        for call in &adapter.layer.calls {
            let sum = Beside { graph: &mut module.graph, adapter, dropout }.build(call, inputs[0], inputs[1]);
            let (old, new) = (module.graph[call.node].name().clone(), module.graph[sum].name().clone());
            for spec in signature.outputs.iter_mut().filter(|s| s.arg.node() == Some(&old)) {
                spec.arg.set_name(new.clone());
            }
            let known = result.module_call_graph.iter_mut().filter_map(|e| e.signature.as_mut());
            for arg in known.flat_map(|s| &mut s.outputs).filter(|a| a.node() == Some(&old)) {
                arg.set_name(new.clone());
            }
        }
    }
    result.module = Arc::new(module);
    result.signature = Some(Arc::new(signature));
    Ok(result)
}

/// Parameters outside these modules no longer require grad. They share memory with the originals.
fn freeze(program: &mut ExportedProgram, modules_to_save: &[String]) -> Result<()> {
    let mut frozen: TensorMap<Tensor> = TensorMap::new();
    let mut used = vec![false; modules_to_save.len()];
    let mut still: Vec<&str> = Vec::new();
    for (name, state) in program.state_dict.iter_mut().filter(|(_, s)| s.is_parameter) {
        // A module is any beginning of the name.
        let modules = name.match_indices('.').map(|(i, _)| &name[..i]);
        let kept = modules.filter_map(|m| modules_to_save.iter().position(|wanted| ends_in(m, wanted))).next();
        if let Some(k) = kept {
            used[k] = true;
            let trained = state.tensor.detach();
            trained.try_set_requires_grad(state.tensor.dtype().is_floating_point())?;
            state.tensor = trained;
            continue;
        }
        state.tensor = match frozen.get(&state.tensor) {
            Some(f) => f.clone(),
            None => {
                let f = state.tensor.detach();
                frozen.insert(&state.tensor, f.clone());
                f
            }
        };
        still.push(name);
    }
    if let Some(k) = used.iter().position(|u| !u) {
        return refuse(format!("no module path ends in {:?} (modules_to_save)", modules_to_save[k]));
    }
    let still: Vec<String> = still.into_iter().map(str::to_string).collect();
    let mut module = (*program.module).clone();
    let placeholders: Vec<NodeId> = module.graph.placeholders().collect();
    for (n, spec) in placeholders.into_iter().zip(&program.signature()?.inputs) {
        let InputKind::Parameter(target) = &spec.kind else { continue };
        if let Some(Val::Tensor(meta)) = &mut module.graph.meta_mut(n).val {
            let wanted = meta.dtype.is_differentiable() && !still.iter().any(|s| **s == **target);
            if meta.requires_grad != wanted {
                Arc::make_mut(meta).requires_grad = wanted;
            }
        }
    }
    program.module = Arc::new(module);
    Ok(())
}

/// A new input for a tensor of the state, at this position; its name begins as those of its kind do.
pub(super) fn state_input(graph: &mut Graph, at: usize, prefix: &str, name: &str, tensor: &Tensor) -> NodeId {
    let before = graph.placeholders().nth(at).or_else(|| graph.nodes().find(|&n| !graph[n].is_placeholder()));
    let place = before.map_or(InsertPoint::End, InsertPoint::Before);
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let name = format!("{prefix}{plain}");
    let new = graph.inserting(place, |g| g.create_node(Kind::Placeholder(name.as_str().into()), [], [], Some(&name)));
    let given = graph[new].name().clone();
    graph.set_kind(new, Kind::Placeholder(given));
    *graph.meta_mut(new) = Meta::with_val(TensorMeta::of(tensor));
    new
}

/// Builds the ops of an adapter behind the layer's.
struct Beside<'a, 'b> {
    graph: &'a mut Graph,
    adapter: &'a Adapter<'b>,
    dropout: f64,
}

impl Beside<'_, '_> {
    /// Adds them behind a call; what used its result uses the sum, which is returned.
    fn build(&mut self, call: &layers::Call, a: NodeId, b: NodeId) -> NodeId {
        let base = call.node;
        let place = self.graph.next(base).map_or(InsertPoint::End, InsertPoint::Before);
        let before = self.graph.set_insert_point(place);
        let (dtype, rank) = (ScalarType::from(self.adapter.a.dtype()), self.adapter.a.shape()[0] as i64);
        let input = tensor_of(self.graph, call.input);
        let output = tensor_of(self.graph, base);
        let width = |meta: &Option<TensorMeta>, size: i64| {
            let mut sizes = meta.as_ref()?.sizes.clone();
            let channel = sizes.len().checked_sub(self.adapter.layer.kind.features_from_end())?;
            *sizes.get_mut(channel)? = size.into();
            Some(TensorMeta::contiguous_of(dtype, sizes))
        };
        let mut x = call.input;
        let given = input.as_ref().map_or(dtype, |m| m.dtype);
        if given != dtype {
            let meta = input.clone().map(|m| TensorMeta { dtype, ..m });
            x = self.call(base, Op::TO_DTYPE, vec![x.into(), dtype.into()], meta);
        }
        if self.dropout > 0.0 {
            let meta = input.map(|m| TensorMeta { dtype, ..m });
            x = self.call(base, Op::DROPOUT, vec![x.into(), self.dropout.into(), true.into()], meta);
        }
        // Scaled while it is narrow: the product with B is wide.
        let narrow = width(&output, rank);
        let op = call.narrow(&*self.graph, x, a);
        let mut y = self.call(base, op.0, op.1, narrow.clone());
        if self.adapter.scaling != 1.0 {
            y = self.call(base, Op::MUL_TENSOR, vec![y.into(), self.adapter.scaling.into()], narrow);
        }
        let sizes = output.as_ref().map(|m| TensorMeta::contiguous_of(dtype, m.sizes.clone()));
        let op = call.wide(&*self.graph, y, b);
        let wide = self.call(base, op.0, op.1, sizes.clone());
        let mut sum = self.call(base, Op::ADD_TENSOR, vec![base.into(), wide.into()], sizes);
        let first = sum;
        if let Some(result) = output.filter(|m| m.dtype != dtype) {
            let dtype = result.dtype;
            sum = self.call(base, Op::TO_DTYPE, vec![sum.into(), dtype.into()], Some(result));
        }
        self.graph.set_insert_point(before);
        self.graph.replace_uses_if(base, sum, |_, user| user != first);
        sum
    }

    /// Adds one call; it belongs to the modules that the layer's call belongs to.
    fn call(&mut self, base: NodeId, op: Op, args: Vec<Argument>, meta: Option<TensorMeta>) -> NodeId {
        let new = self.graph.call_function(OpOverload::from(op), args);
        let stack = self.graph[base].meta().nn_module_stack.clone();
        *self.graph.meta_mut(new) = Meta { val: meta.map(Val::from), nn_module_stack: stack, ..Meta::default() };
        new
    }
}

/// Weights of linear layers that are called as `linear`: name, input and calls.
pub(super) fn linear_weights(program: &ExportedProgram) -> Result<Vec<(String, NodeId, Vec<NodeId>)>> {
    let graph = &program.module.graph;
    let mut found = Vec::new();
    for layer in Layers::of(program)?.iter().filter(|l| l.kind == LayerKind::Linear) {
        let calls: Vec<NodeId> = layer.calls.iter().map(|c| c.node).collect();
        if calls.iter().all(|&n| graph[n].target().is_some_and(|t| t.is_op(Op::LINEAR))) {
            found.push((format!("{}.weight", layer.path), layer.placeholder, calls));
        }
    }
    Ok(found)
}

/// What is known of a node that gives a tensor.
fn tensor_of(graph: &Graph, n: NodeId) -> Option<TensorMeta> {
    graph[n].meta().val.as_ref()?.tensor().cloned()
}

impl Layer {
    /// Initial values of `A` and `B`: what PEFT draws, in its order. It creates both layers, which draw their own initial
    /// values, then initializes `A` again and sets `B` to zero. All of this is in f32.
    fn initial(&self, rank: usize) -> Result<(Tensor, Tensor)> {
        let (a, b) = self.shapes(rank)?;
        let dtype = adapter_dtype(self.dtype);
        no_grad(|| {
            let draw = |shape: &[usize]| -> Result<Tensor> {
                let t = Tensor::zeros(shape, DType::F32);
                let fan: usize = shape[1..].iter().product();
                let slope = 5f64.sqrt();
                let bound = 3f64.sqrt() * ((2.0 / (1.0 + slope * slope)).sqrt() / (fan as f64).sqrt());
                ops::uniform_(&t, -bound, bound)?;
                Ok(t)
            };
            let (_, _, first) = (draw(&a)?, draw(&b)?, draw(&a)?);
            Ok((first.try_to_dtype(dtype)?, Tensor::zeros(&b[..], dtype)))
        })
    }
}

/// Adapters of half-precision layers train in f32.
fn adapter_dtype(weight: DType) -> DType {
    if weight == DType::F64 { DType::F64 } else { DType::F32 }
}
